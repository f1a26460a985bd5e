"""Runs real ops on packed modules for `prepack tune`, which measures them.

    python -m prepack_vllm.measure

Every line of the standard input is a question, a JSON object, and is answered by one on the standard
output; libconvert/prepack/tune/python_runtime.cpp says which there are. It ends with its input.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

from prepack_vllm.errors import CannotRunHere, PrepackError
from prepack_vllm.kernels import forget_weights
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts
from prepack_vllm.manifest import Manifest, PackedModule, read_manifest
from prepack_vllm.platform import check_layout, load_ops

PROTOCOL = 1

Message = dict[str, Any]


class _Kernel:
    """A module's product on copies of its parts in turn, so that no cache holds the next one's."""

    def __init__(self, manifest: Manifest, module: PackedModule, rows: int, cold_bytes: int):
        from prepack_vllm.bound_kernel import bind, read_parts  # loads vLLM

        geometry, _ = module_parts(module, manifest)
        parts = read_parts(manifest, module)
        size = sum(part.numel() * part.element_size() for part in parts.values())
        copies = max(2, -(-cold_bytes // max(size, 1)))
        self._products = [
            bind(module, geometry, {name: part.clone() for name, part in parts.items()})
            for _ in range(copies)
        ]
        self._next = itertools.cycle(self._products)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(rows, geometry.k, generator=generator)
        self._x = x.to(TORCH_DTYPES[geometry.activation_dtype])
        self.time()  # an op that cannot run here says so now

    def time(self) -> float:
        product = next(self._next)
        with torch.inference_mode():
            begin = time.perf_counter()
            product(self._x)
            return time.perf_counter() - begin


class Session:
    def __init__(self) -> None:
        self._kernels: dict[int, _Kernel] = {}
        self._numbers = itertools.count(1)
        self._manifests: dict[Path, Manifest] = {}
        self._questions: dict[str, Callable[[Message], Message]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "time": self._time,
            "forget": self._forget,
        }

    def answer(self, question: Message) -> Message:
        """What cannot be done is an answer, too: with "ok": false."""
        handle = self._questions.get(str(question.get("do")))
        if handle is None:
            return {"ok": False, "message": f"unknown question {question.get('do')!r}"}
        try:
            return {"ok": True, **handle(question)}
        except PrepackError as error:
            return {"ok": False, "message": str(error)}
        # Ops fail with errors of many kinds; none may end the measurements of others.
        except Exception as error:
            line = (str(error).splitlines() or [""])[0]
            return {"ok": False, "message": f"{type(error).__name__}: {line}"}

    def _hello(self, question: Message) -> Message:
        if question["protocol"] != PROTOCOL:
            raise CannotRunHere(
                "prepack_vllm.measure",
                "prepack speaks another version of the protocol",
                found=question["protocol"],
                expected=PROTOCOL,
                hint="Install the plug-in of the same version as prepack",
            )
        import vllm

        torch.set_num_threads(int(question["threads"]))
        load_ops()
        return {"name": f"vllm {vllm.__version__}, torch {torch.__version__}"}

    def _prepare(self, question: Message) -> Message:
        folder = Path(question["folder"])
        if folder not in self._manifests:
            self._manifests[folder] = read_manifest(folder)
        manifest = self._manifests[folder]
        module = manifest.modules[question["module"]]
        layout_of(module)  # one that this plugin does not run is said to be so
        kernel_type = check_layout(module.layout, str(folder), manifest)
        kernel = _Kernel(manifest, module, int(question["rows"]), int(question["cold_bytes"]))
        number = next(self._numbers)
        self._kernels[number] = kernel
        ops = kernel_type.ops
        return {"kernel": number, "implementation": ops[-1] if ops else "aten::linear"}

    def _time(self, question: Message) -> Message:
        return {"seconds": self._kernels[question["kernel"]].time()}

    def _forget(self, question: Message) -> Message:
        del self._kernels[question["kernel"]]
        forget_weights()  # others may get the addresses of these
        return {}


def _private_stdout() -> TextIO:
    """Libraries print where they like: only answers may reach the standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def serve(questions: Iterator[str], answers: TextIO) -> None:
    session = Session()
    for line in questions:
        answers.write(json.dumps(session.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    serve(iter(sys.stdin), _private_stdout())
