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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from prepack_vllm.errors import CannotRunHere, PrepackError, first_line
from prepack_vllm.kernels import forget_weights
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts
from prepack_vllm.manifest import Manifest, PackedModule, read_manifest
from prepack_vllm.platform import check_layout, load_ops

PROTOCOL = 2

Message = dict[str, Any]
Product = Callable[[torch.Tensor], torch.Tensor]


class _OpNames(TorchDispatchMode):
    """The ops that are called while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


class _Kernel:
    """A product on copies of its operands in turn, so that no cache holds the next one's."""

    def __init__(self, products: Sequence[Product], rows: int, k: int, dtype: torch.dtype):
        self.products = products
        self._next = itertools.cycle(products)
        generator = torch.Generator().manual_seed(1)
        self._x = torch.randn(rows, k, generator=generator).to(dtype)
        self.time()  # an op that cannot run here says so now

    def last_op(self) -> str:
        with _OpNames() as ops:
            self.time()
        return ops.names[-1]

    def time(self) -> float:
        product = next(self._next)
        with torch.inference_mode():
            begin = time.perf_counter()
            product(self._x)
            return time.perf_counter() - begin


def _copies(size: int, cold_bytes: int) -> range:
    return range(max(2, -(-cold_bytes // max(size, 1))))


def _kernel_of(manifest: Manifest, module: PackedModule, rows: int, cold_bytes: int) -> _Kernel:
    from prepack_vllm.bound_kernel import bind, read_parts  # loads vLLM

    geometry, _ = module_parts(module, manifest)
    parts = read_parts(manifest, module)
    size = sum(part.numel() * part.element_size() for part in parts.values())
    products = [
        bind(module, geometry, {name: part.clone() for name, part in parts.items()})
        for _ in _copies(size, cold_bytes)
    ]
    return _Kernel(products, rows, geometry.k, TORCH_DTYPES[geometry.activation_dtype])


class Session:
    def __init__(self) -> None:
        self._kernels: dict[int, _Kernel] = {}
        self._numbers = itertools.count(1)
        self._manifests: dict[Path, Manifest] = {}
        self._questions: dict[str, Callable[[Message], Message]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "prepare_experts": self._prepare_experts,
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
            return {"ok": False, "message": f"{type(error).__name__}: {first_line(error)}"}

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

    def _manifest(self, question: Message) -> Manifest:
        folder = Path(question["folder"])
        if folder not in self._manifests:
            self._manifests[folder] = read_manifest(folder)
        return self._manifests[folder]

    def _prepare(self, question: Message) -> Message:
        manifest = self._manifest(question)
        module = manifest.modules[question["module"]]
        layout_of(module)  # one that this plugin does not run is said to be so
        kernel_type = check_layout(module.layout, str(manifest.folder), manifest)
        kernel = _kernel_of(manifest, module, int(question["rows"]), int(question["cold_bytes"]))
        # vLLM chooses one for weights that it loads itself.
        op = kernel_type.ops[-1] if kernel_type.ops else kernel.last_op()
        return self._keep(kernel, op)

    def _prepare_experts(self, question: Message) -> Message:
        from prepack_vllm.bound_experts import Mixture  # loads vLLM

        manifest = self._manifest(question)
        mixture = Mixture(
            manifest, question["mixture"], int(question["experts"]), int(question["top_k"])
        )
        products = [mixture.bind() for _ in _copies(mixture.bytes, int(question["cold_bytes"]))]
        kernel = _Kernel(products, int(question["rows"]), mixture.hidden, mixture.dtype)
        return self._keep(kernel, mixture.op)

    def _keep(self, kernel: _Kernel, implementation: str) -> Message:
        number = next(self._numbers)
        self._kernels[number] = kernel
        return {"kernel": number, "implementation": implementation}

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
