"""A stand-in for Python with llama.cpp's converter: it answers what the real one has answered.

prepack runs it in place of Python. fixtures/gguf/answers has, for some checkpoints, what llama.cpp's converter said of
them (fixtures/make/bundled/gguf_answers.py records it), so that conversions are tested without torch.
"""

import base64
import json
import math
import os
import pathlib
import sys

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "gguf" / "answers"
ANSWERS = pathlib.Path(os.environ.get("PREPACK_TEST_ANSWERS", FIXTURES))


def answer(question):
    answers = pathlib.Path(os.environ.get("PREPACK_TEST_ANSWERS", ANSWERS))
    recorded = json.loads((answers / f"{pathlib.Path(question['model']).name}.json").read_text())
    numbers = {entry["name"]: number for number, entry in enumerate(question["tensors"])}
    for tensor in recorded["tensors"].values():
        for piece in [*tensor.get("rows", []), *tensor.get("elements", [])]:
            piece[0] = numbers[piece[0]]
        if "of" in tensor:
            tensor["of"] = numbers[tensor["of"]]
    pathlib.Path(question["plan"]).write_text(json.dumps({"tensors": recorded["tensors"]}))
    for part in ("metadata", "values"):
        pathlib.Path(question[part]).write_bytes(base64.b64decode(recorded[part]))
    return {"tokenizer": recorded["tokenizer"], "class": recorded["class"]}


def seen(question):
    """Vector → the first bytes that the real converter would have been given for it."""
    found = {}
    for tensor in question["tensors"]:
        if len(tensor["shape"]) < 2 and "file" in tensor:
            with open(tensor["file"], "rb") as file:
                file.seek(tensor["offset"])
                found[tensor["name"]] = file.read(2 * math.prod(tensor["shape"])).hex()
    return found


def main():
    question = json.loads(pathlib.Path(json.loads(sys.stdin.readline())["question"]).read_text())
    if "PREPACK_TEST_QUESTION" in os.environ:
        pathlib.Path(os.environ["PREPACK_TEST_QUESTION"]).write_text(json.dumps(question))
    if "PREPACK_TEST_SEEN" in os.environ:
        pathlib.Path(os.environ["PREPACK_TEST_SEEN"]).write_text(json.dumps(seen(question)))
    print(os.environ.get("PREPACK_TEST_ANSWER") or json.dumps(answer(question)), flush=True)


if __name__ == "__main__":
    main()
