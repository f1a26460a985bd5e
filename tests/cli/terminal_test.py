"""How the tool behaves on a terminal, in a pipe and in a log."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

from harness import CHECKPOINTS, TOOL, large_checkpoint

COLOUR = re.compile("\x1b\\[[0-9;]+m")
CHECKPOINT = CHECKPOINTS / "ct-w4a16-g32-asym"


def on_terminal(*arguments, columns=200, **environment):
    """(exit code, what a terminal got) of the tool with stdout and stderr on a terminal."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("NO_COLOR", "COLUMNS", "LC_ALL", "LC_CTYPE", "LANG")}
    env |= {"TERM": "xterm", "LANG": "C.UTF-8", **environment}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([TOOL, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                               env=env)
    os.close(slave)
    received = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        received += data
    os.close(master)
    return process.wait(), received.decode().replace("\r\n", "\n")


def in_pipe(*arguments, **environment):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment})


class TerminalTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_colours_come_with_a_terminal_and_go_with_no_color(self):
        code, text = on_terminal("check", CHECKPOINT)
        self.assertEqual(code, 0)
        self.assertIn("\x1b[32msound\x1b[0m", text)
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotRegex(on_terminal("check", CHECKPOINT, **environment)[1], COLOUR)
        self.assertNotRegex(on_terminal("check", CHECKPOINT, "--color", "never")[1], COLOUR)
        code, text = on_terminal("check", CHECKPOINT, "--color", "always", NO_COLOR="1")
        self.assertIn("\x1b[32msound\x1b[0m", text)

    def test_a_pipe_has_colours_when_asked(self):
        plain = in_pipe("inspect", CHECKPOINT)
        self.assertNotIn("\x1b", plain.stdout)
        coloured = in_pipe("inspect", CHECKPOINT, "--color", "always")
        self.assertRegex(coloured.stdout, COLOUR)
        self.assertEqual(COLOUR.sub("", coloured.stdout), plain.stdout)

    def test_errors_are_coloured_too(self):
        code, text = on_terminal("check", self.folder / "none")
        self.assertEqual(code, 4)
        self.assertTrue(text.startswith("\x1b[1;31merror:\x1b[0m "), text)

    def test_documents_have_no_colours_and_keep_their_characters(self):
        for options in ((), ("--color", "always")):
            code, text = on_terminal("check", CHECKPOINT, "--json", "--progress", "none", *options,
                                     LANG="C")
            self.assertEqual(json.loads(text)["exit_code"], 0)

    def test_a_terminal_without_unicode_gets_ascii(self):
        command = ("convert", CHECKPOINT, "-t", "vllm-cpu", "--progress", "none", "-o")
        self.assertIn("7 × vllm-cpu/wna16", on_terminal(*command, self.folder / "a")[1])
        self.assertIn("7 x vllm-cpu/wna16", on_terminal(*command, self.folder / "b", LANG="C")[1])
        self.assertIn("7 × vllm-cpu/wna16", in_pipe(*command, self.folder / "c", LC_ALL="C").stdout)

    def test_tables_fit_the_terminal(self):
        wide = on_terminal("plan", CHECKPOINT, "-t", "zentorch", columns=200)[1]
        narrow = on_terminal("plan", CHECKPOINT, "-t", "zentorch", columns=85)[1]
        self.assertIn("model.layers.0.self_attn.o_proj", wide)
        rows = [COLOUR.sub("", line) for line in narrow.splitlines() if "zentorch/woq" in line]
        self.assertEqual(max(map(len, rows[:7])), 85)
        self.assertIn("…", rows[0])

    def test_progress_is_one_line_that_leaves_nothing_behind(self):
        source = large_checkpoint(self.folder / "large", layers=8)
        code, text = on_terminal("convert", source, "-o", self.folder / "out", "-t", "vllm-cpu",
                                 "--jobs", "1", columns=60)
        self.assertEqual(code, 0)
        progress, report = text.split("\r\x1b[K")
        self.assertNotIn("\n", progress)
        for line in progress.split("\r")[1:]:
            self.assertTrue(line.endswith("\x1b[K"), line)
            self.assertLessEqual(len(line.removesuffix("\x1b[K")), 60)
        self.assertIn("8 × vllm-cpu/wna16", report)

    def test_a_pipe_is_spared_the_progress(self):
        self.assertEqual(in_pipe("check", CHECKPOINT).stderr, "")

    def test_plain_progress_is_for_logs(self):
        command = ("check", CHECKPOINT, "--progress", "plain")
        checked = in_pipe(*command)
        self.assertRegex(checked.stderr, r"^checking   \d+\.\d s  [\d.]+ [kM]B  [\d.]+ .B/s\n")
        self.assertNotIn("\r", checked.stderr)
        self.assertEqual(checked.stdout, in_pipe("check", CHECKPOINT).stdout)
        self.assertEqual(in_pipe(*command, "--quiet").stderr, "")

    def test_verbose_names_what_is_worked_on(self):
        done = in_pipe("convert", CHECKPOINT, "-o", self.folder / "out", "-t", "vllm-cpu", "-v",
                       PREPACK_ISA="scalar")
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], r"^prepack \d+\.\d+\.\d+, instructions: scalar$")
        packed = {line.removeprefix("packing ") for line in lines if line.startswith("packing model")}
        self.assertIn("model.layers.0.mlp.down_proj", packed)
        self.assertIn("model.norm.weight", packed)
        self.assertEqual(len(packed), 11)  # 7 modules, 4 other tensors
        self.assertTrue(any(re.match(r"packing    \d+\.\d s  1\.6 MB ", line) for line in lines))
        verified = in_pipe("verify", self.folder / "out", "--skip", "gemm", "--verbose")
        self.assertIn("verifying config.json\n", verified.stderr)
        self.assertIn("verifying model.layers.0.mlp.down_proj\n", verified.stderr)
        clash = in_pipe("verify", self.folder / "out", "--verbose", "--quiet")
        self.assertEqual(clash.returncode, 2)

    def test_mistyped_options_and_commands_are_told_what_may_have_been_meant(self):
        for arguments, meant in (
            (("convert", CHECKPOINT, "-o", "x", "--traget", "vllm-cpu"), "Did you mean --target?"),
            (("check", CHECKPOINT, "--headrs=1"), "Did you mean --headers?"),
            (("covnert",), "Did you mean convert?"),
            (("plan", CHECKPOINT, "-t", "vlm-cpu"), "Did you mean vllm-cpu?"),
            (("check", CHECKPOINT, "--zzzzzzzzzz"), "`prepack check --help` lists what is valid"),
            ((), "`prepack --help` lists what is valid"),
        ):
            failed = in_pipe(*arguments)
            self.assertEqual(failed.returncode, 2)
            self.assertTrue(failed.stderr.startswith("error: "), failed.stderr)
            self.assertIn(meant, failed.stderr)
            self.assertEqual(failed.stderr.count("\n"), 1, failed.stderr)


if __name__ == "__main__":
    unittest.main()
