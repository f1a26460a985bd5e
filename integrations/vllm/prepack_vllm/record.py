"""Runs a model on prompts, and records a few rows of x of each quantized linear layer.

    python -m prepack_vllm.record MODEL --prompts FILE -o acts.safetensors

`prepack verify --activations acts.safetensors` and `prepack tune --activations acts.safetensors` take
the file. MODEL is a checkpoint, a packed folder (with vLLM), or a name on the Hugging Face Hub. A line
of FILE is a prompt; of a file *.jsonl, an object with a "prompt", or with "prompt_token_ids".

Exit codes: 0 recorded; 2 usage; 3 a file is malformed; 4 the system failed; 5 not supported; 6 the
runtime is missing or cannot run the model here, or there was nothing to record.
"""

import argparse
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prepack_vllm.activations import Recording, modules_of
from prepack_vllm.errors import (
    CannotRunHere,
    Malformed,
    PrepackError,
    Unsupported,
    UsageError,
    first_line,
    run_command,
)
from prepack_vllm.strict_json import parse

# Runs prompts of token numbers; returns what ran.
Run = Callable[[str, list[list[int]], Recording], str]


@dataclass(frozen=True)
class Options:
    model: str
    prompts: Path
    output: Path
    runtime: str = ""  # "vllm", "transformers"; empty: what is installed
    names_of: Path | None = None
    revision: str = ""
    rows: int = 64
    expert_rows: int = 8
    tokens: int = 2048
    seed: int = 0


def read_prompts(file: Path) -> list[str | list[int]]:
    """Texts, or numbers of tokens."""
    prompts: list[str | list[int]] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise Malformed(str(file), f"the file is no UTF-8 text: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        prompts.append(_prompt_of(file, number, line) if file.suffix == ".jsonl" else line)
    if not prompts:
        raise Malformed(str(file), "the file has no prompt")
    return prompts


def _prompt_of(file: Path, number: int, line: str) -> str | list[int]:
    try:
        entry = parse(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{file}:{number}", f"the line is no JSON: {error}") from error
    if isinstance(entry, dict):
        text, tokens = entry.get("prompt"), entry.get("prompt_token_ids")
        if isinstance(text, str) and text:
            return text
        if isinstance(tokens, list) and tokens and all(type(one) is int for one in tokens):
            return tokens
    raise Malformed(
        f"{file}:{number}",
        "the line is no prompt",
        expected='an object with a "prompt", or with "prompt_token_ids"',
    )


def choose_runtime(wanted: str) -> str:
    """vLLM, if it is installed: it is what will serve."""
    for name in [wanted] if wanted else ["vllm", "transformers"]:
        if importlib.util.find_spec(name) is not None:
            return name
    raise CannotRunHere(
        "prepack_vllm.record",
        f"{wanted or 'neither vLLM nor Transformers'} is not installed here",
        hint="pip install torch transformers, or use the Python that vLLM is installed in",
    )


def _download(model: str, revision: str) -> tuple[Path, str]:
    """The folder of a checkpoint, and its revision on the Hub."""
    if Path(model).is_dir():
        return Path(model), ""
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(model, revision=revision or None))
    # Of many kinds, all of which say what is wrong.
    except Exception as error:
        raise PrepackError(
            model, f"there is no such folder, and the Hub has no such model: {first_line(error)}"
        ) from error
    return folder, folder.name


def _tokens_of(folder: Path, prompts: Sequence[str | list[int]], most: int) -> list[list[int]]:
    tokenizer = None
    found = []
    for prompt in prompts:
        if isinstance(prompt, str):
            if tokenizer is None:
                from transformers import AutoTokenizer

                tokenizer = AutoTokenizer.from_pretrained(str(folder))
            prompt = list(tokenizer(prompt)["input_ids"])
        if prompt:
            found.append(prompt[:most])
    if not found:
        raise Malformed("prompts", "no prompt has a token")
    return found


def _run_of(runtime: str) -> Run:
    if runtime == "vllm":
        from prepack_vllm.record_with_vllm import run
    else:
        from prepack_vllm.record_with_transformers import run
    return run


def _save_tensors(
    rows: Mapping[str, Sequence[Any]], file: Path, metadata: dict[str, str]
) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.stack(list(one)) for name, one in rows.items()}, file, metadata=metadata)


def _save(rows: Mapping[str, Sequence[Any]], metadata: dict[str, str], output: Path) -> int:
    """Returns the size of the file, which appears whole or not at all."""
    partial = output.with_name(f".{output.name}.partial")
    try:
        _save_tensors(rows, partial, metadata)
        os.replace(partial, output)
    finally:
        partial.unlink(missing_ok=True)
    return output.stat().st_size


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _check_output(output: Path) -> None:
    if output.suffix != ".safetensors":
        raise UsageError(
            str(output), "prepack would not take the file", expected="a name that ends in .safetensors"
        )
    if not output.parent.is_dir():
        raise UsageError(str(output), "there is no such folder for the file")


def record(options: Options) -> str:
    """Writes the file, and says what is in it."""
    _check_output(options.output)
    prompts = read_prompts(options.prompts)
    digest = hashlib.sha256(options.prompts.read_bytes()).hexdigest()
    runtime = choose_runtime(options.runtime)
    folder, revision = _download(options.model, options.revision)
    if runtime == "transformers" and (folder / "prepack.json").is_file():
        raise Unsupported(
            str(folder),
            "Transformers cannot run a packed folder",
            hint="Record from the checkpoint that it was made from, with --for FOLDER",
        )
    modules = modules_of(options.names_of or folder)
    recording = Recording(modules, options.rows, options.expert_rows, options.seed)
    tokens = _tokens_of(folder, prompts, options.tokens)
    ran = _run_of(runtime)(str(folder), tokens, recording)
    found = recording.by_module()
    if not found:
        raise CannotRunHere(
            str(folder),
            "the model ran without the modules that are to be recorded",
            expected=_some(recording.missing()),
        )
    metadata = {
        "made_by": "prepack_vllm.record",
        "model": options.model,
        "revision": revision,
        "runtime": ran,
        "prompts_sha256": digest,
        "prompts": str(len(tokens)),
        "tokens": str(sum(map(len, tokens))),
        "rows": str(options.rows),
        "expert_rows": str(options.expert_rows),
        "seed": str(options.seed),
    }
    size = _save(found, metadata, options.output)
    text = (
        f"{options.output}: {len(found)} of {len(modules.quantized)} modules, {size / 1e6:.1f} MB, from "
        f"{metadata['tokens']} tokens of {len(tokens)} prompts, with {ran}"
    )
    if missing := recording.missing():
        text += f"\nnot recorded, because {ran} shows no x of theirs: {_some(missing)}"
    if recording.not_finite:
        text += f"\nleft out: {recording.not_finite} rows that hold infinities or NaNs"
    return text


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def parse_options(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m prepack_vllm.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="a folder, or a name on the Hub")
    parser.add_argument("--prompts", type=Path, required=True, metavar="FILE")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--runtime",
        choices=("vllm", "transformers"),
        default="",
        help="what runs the model (default: vLLM if it is installed)",
    )
    parser.add_argument(
        "--for",
        dest="names_of",
        type=Path,
        metavar="FOLDER",
        help="record the modules that this quantized checkpoint or packed folder has, if MODEL is the "
        "unquantized model",
    )
    parser.add_argument("--revision", default="", help="of MODEL on the Hub")
    for name, default, what in (
        ("--rows", Options.rows, "rows of x per module at most (default: %(default)s, all that verify uses)"),
        ("--expert-rows", Options.expert_rows, "of an expert of a mixture (default: %(default)s)"),
        ("--tokens", Options.tokens, "of a prompt at most (default: %(default)s)"),
    ):
        parser.add_argument(name, type=_at_least_one, default=default, help=what)
    parser.add_argument(
        "--seed", type=int, default=Options.seed, help="of the choice of rows (default: %(default)s)"
    )
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)

    def run() -> int:
        print(record(options))
        return 0

    return run_command(run)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.exit(main())
