"""Streams that cannot be written: the exit code still says what happened, and no signal ends the tool."""

import os
import subprocess
import unittest

import harness
from harness import CHECKPOINTS, TOOL

SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"


def broken_streams(full):
    """name → (arguments of subprocess, is it stdout that cannot be written)"""

    def closed(*numbers):
        return lambda: [os.close(number) for number in numbers]

    return {
        "stderr is full": ({"stderr": full}, False),
        "stderr is closed": ({"preexec_fn": closed(2)}, False),
        "stdout is full": ({"stdout": full}, True),
        "stdout is closed": ({"preexec_fn": closed(1)}, True),
        "both are full": ({"stdout": full, "stderr": full}, True),
        "all are closed": ({"preexec_fn": closed(0, 1, 2)}, True),
    }


class Streams(harness.ToolTest):
    def setUp(self):
        super().setUp()
        full = open("/dev/full", "w")
        self.addCleanup(full.close)
        self.streams = broken_streams(full)
        self.packed = self.convert(SOURCE, "vllm-cpu", name="packed")
        self.damaged = self.convert(SOURCE, "vllm-cpu", name="damaged")
        harness.flip_weight(self.damaged, next(iter(harness.manifest(self.damaged)["modules"])))

    def commands(self):
        """(exit code, does it print to stdout, arguments)"""
        out = self.scratch / "out"
        cut = self.scratch / "cut"
        cut.mkdir(exist_ok=True)
        (cut / "model.safetensors").write_bytes((SOURCE / "model.safetensors").read_bytes()[:100_000])
        (cut / "config.json").write_bytes((SOURCE / "config.json").read_bytes())
        return [
            (0, True, ("targets",)),
            (0, True, ("--help",)),
            (0, True, ("convert", "--help")),
            (0, True, ("--version",)),
            (0, False, ("convert", SOURCE, "-o", out, "-t", "vllm-cpu", "-q", "--force")),
            (0, True, ("convert", SOURCE, "-o", out, "-t", "vllm-cpu", "--force", "--progress", "plain", "-v")),
            (1, True, ("verify", self.damaged, "--source", SOURCE)),
            (1, False, ("verify", self.damaged, "--source", SOURCE, "-q")),
            (2, False, ("convrt",)),
            (2, False, ("convert", SOURCE, "-o", out, "-t", "vlm-cpu")),
            (2, False, ("convert", SOURCE, "-o", self.packed, "-t", "vllm-cpu")),
            (3, False, ("convert", cut, "-o", self.scratch / "never", "-t", "vllm-cpu")),
            (4, False, ("plan", self.scratch / "nowhere", "-t", "vllm-cpu")),
            (5, False, ("convert", SOURCE, "-o", self.scratch / "never", "-t", "fp8")),
            (6, False, ("verify", self.packed, "--source", SOURCE, "--skip", "gemm", "-q")),
        ]

    def run_broken(self, args, streams):
        process = subprocess.run(
            [TOOL, *map(str, args)],
            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **streams},
            timeout=300, check=False,
        )
        return process.returncode

    def test_the_exit_code_says_what_happened(self):
        for name, (streams, is_stdout) in self.streams.items():
            for code, prints, args in self.commands():
                with self.subTest(streams=name, args=args):
                    expected = 4 if is_stdout and prints else code
                    self.assertEqual(self.run_broken(args, streams), expected)

    def test_nothing_that_is_printed_gets_into_files(self):
        for name, (streams, _) in self.streams.items():
            with self.subTest(streams=name):
                self.run_broken(
                    ("convert", SOURCE, "-o", self.scratch / "out", "-t", "vllm-cpu", "--force",
                     "--progress", "plain", "-v"),
                    streams,
                )
                self.assertEqual(
                    harness.contents(self.scratch / "out"), harness.contents(self.packed)
                )

    def test_reports_that_cannot_be_written(self):
        for option in ("--junit", "--html", "--markdown"):
            for name, (streams, _) in self.streams.items():
                with self.subTest(streams=name, option=option):
                    args = ("verify", self.damaged, "--source", SOURCE, option, "/dev/full", "-q")
                    self.assertEqual(self.run_broken(args, streams), 4)


if __name__ == "__main__":
    unittest.main()
