"""What the tests of GGUF share: conversions that a stand-in answers for (gguf_stand_in.py), and the truth."""

import functools
import pathlib
import sys

import harness
import numpy
from harness import CHECKPOINTS, ROOT

STAND_IN = pathlib.Path(__file__).with_name("gguf_stand_in.py")


def checkpoint(name):
    own = ROOT / "fixtures" / "gguf" / "checkpoints" / name
    return own if own.exists() else CHECKPOINTS / name


@functools.cache
def truth_of(name):
    """Module → {row: weights}."""
    path = ROOT / "fixtures" / "gguf" / "checkpoints" / f"{name}.truth.safetensors"
    if not path.exists():
        path = ROOT / "fixtures" / "truth" / f"{name}.safetensors"
    header, start = harness.read_header(path)
    data = path.read_bytes()[start:]
    modules = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        module, _, which = key.rpartition(".")
        modules.setdefault(module, {})[which] = numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return modules


class GgufTest(harness.ToolTest):
    """A test with a stand-in for Python, and the file model.gguf to convert to."""

    def setUp(self):
        super().setUp()
        self.llama_cpp = self.scratch / "llama.cpp"
        self.llama_cpp.mkdir()
        (self.llama_cpp / "convert_hf_to_gguf.py").write_text("# stands for the real one\n")
        self.python = self.scratch / "python"
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}"\n')
        self.python.chmod(0o755)
        self.output = self.scratch / "model.gguf"

    def options(self, name, *more):
        return [checkpoint(name), "--target", "gguf", "--llama-cpp", self.llama_cpp, "--python", self.python, *more]

    def convert_gguf(self, name, *more, fallback="dequantize"):
        options = ["--json", "-o", self.output, "--fallback", fallback, *more]
        result = self.run_ok("convert", *self.options(name, *options))
        return self.checked_json(result.stdout, "convert_gguf")
