"""What the tests of packages share: an installation, and what must hold for everything that is
given away."""

import os
import pathlib
import re
import subprocess

import harness
from harness import CHECKPOINTS, ROOT

BUILD = pathlib.Path(os.environ["PREPACK_BUILD"])
SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
VERSION = re.search(
    r"^project\(prepack VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
).group(1)


class InstalledTest(harness.ToolTest):
    def run_command(self, *command, **kwargs):
        """stdout of a command that must end well."""
        result = self.run_program(*command, **kwargs)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_program(self, *command, env=None, cwd=None):
        return subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, check=False, timeout=600,
            cwd=cwd, env={**os.environ, **(env or {})},
        )

    def check_tool(self, prefix):
        """The program in PREFIX/bin is of this version, packs and verifies; gives the packed folder."""
        tool, packed = prefix / "bin" / "prepack", self.scratch / "packed"
        self.assertEqual(self.run_command(tool, "--version"), VERSION + "\n")
        self.run_command(tool, "convert", SOURCE, "-o", packed, "-t", "vllm-cpu", "--force")
        verified = self.run_command(tool, "verify", packed, "--engine", "reference")
        self.assertIn("gemm        passed", verified)
        return packed

    def check_no_paths(self, folder):
        """No file says where prepack was built, or who its user was."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                for place in (ROOT, BUILD, pathlib.Path.home()):
                    self.assertNotIn(f"{place}/".encode(), data, f"{place} in {path}")
