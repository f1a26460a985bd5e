"""The wheel: pip builds it from this build folder and installs it, and its `prepack` is the program."""

import os
import re
import sys
import unittest
import zipfile

import installed
from installed import BUILD, ROOT, VERSION

# No network, and none of the user's own settings.
PIP = {
    "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1", "PIP_CONFIG_FILE": os.devnull,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


class Wheel(installed.InstalledTest):
    def build_wheel(self, folder):
        self.run_command(
            sys.executable, "-m", "pip", "wheel", ROOT, "--no-build-isolation", "--no-deps", "-w", folder,
            "--config-settings", f"cmake.define.PREPACK_BUILT_IN={BUILD}",
            "--config-settings", f"build-dir={self.scratch / 'build'}",
            env=PIP,
        )
        (wheel,) = folder.iterdir()
        return wheel

    def test_wheel(self):
        wheel = self.build_wheel(self.scratch / "wheels")
        self.assertRegex(wheel.name, rf"^prepack_llm-{VERSION}-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"prepack_llm-{VERSION}.dist-info/METADATA").decode()
            names = archive.namelist()
            archive.extractall(self.scratch / "content")
        self.assertIn(f"\nVersion: {VERSION}\n", metadata)
        self.assertTrue(any(name.endswith("/LICENSE") for name in names), names)
        self.assertFalse([name for name in names if name.endswith((".h", ".a", "/onednn"))])
        self.check_no_paths(self.scratch / "content")
        self.check_extras(metadata)
        environment = self.scratch / "environment"
        self.run_command(sys.executable, "-m", "venv", "--without-pip", environment)
        self.run_command(
            sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install",
            "--no-deps", wheel, env=PIP,
        )
        self.check_tool(environment)
        self.check_package(environment)
        module = BUILD / "bin" / "prepack_onednn.so"
        self.assertEqual(
            (environment / "lib" / "prepack" / "prepack_onednn.so").exists(), module.exists()
        )

    def check_extras(self, metadata):
        self.assertIn("Provides-Extra: gemm\n", metadata)  # what it brought is in the wheel
        self.assertNotIn("onednn", metadata.split("\n\n")[0].lower())
        plugin = (ROOT / "integrations" / "vllm" / "pyproject.toml").read_text()
        version = re.search(r'^version = "(.*)"', plugin, re.MULTILINE)[1]
        self.assertRegex(metadata, rf"Requires-Dist: prepack-vllm>={re.escape(version)}; .*extra ==")
        self.assertIn("Requires-Dist: numpy>=1.24\n", metadata)
        self.assertRegex(metadata, r"Requires-Dist: fsspec>=.*; extra == .remote")
        self.assertIn("Requires-Python: >=3.9\n", metadata)

    def check_package(self, environment):
        """The package finds the program beside it, by itself, and needs nothing else for that."""
        script = (
            "import sys, prepack\n"
            "print(prepack.tool_path())\n"
            "print(prepack.convert(sys.argv[1], sys.argv[2], target='zentorch').packed_modules)\n"
            "try: prepack.arrays\n"
            "except ImportError as error: print(error.name)\n"
        )
        printed = self.run_command(
            environment / "bin" / "python", "-c", script, installed.SOURCE, self.scratch / "by_package",
            env={"PREPACK_TOOL": "", "PYTHONPATH": "", "PATH": "/usr/bin:/bin"},
        )
        self.assertEqual(printed.split(), [str(environment / "bin" / "prepack"), "7", "numpy"])
        usage = self.run_command(environment / "bin" / "prepack-remote", "--help", env={"PYTHONPATH": ""})
        self.assertIn("prepack-remote plan hf://", usage)
        # pip install --target: the folder has neither environment nor scripts.
        target = self.scratch / "apps/mine"
        other = self.scratch / "bin/prepack"  # where pip's notes point then
        other.parent.mkdir()
        other.write_text("#!/bin/sh\nexit 1\n")
        other.chmod(0o755)
        (wheel,) = (self.scratch / "wheels").iterdir()
        self.run_command(sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, wheel, env=PIP)
        printed = self.run_command(
            "/usr/bin/python3", "-c", "import prepack; print(prepack.tool_path())",
            env={"PREPACK_TOOL": "", "PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"},
        )
        self.assertEqual(printed.strip(), str(target / "bin" / "prepack"))

    def test_a_folder_that_was_not_built(self):
        result = self.run_program(
            "cmake", "-S", ROOT, "-B", self.scratch / "b", f"-DPREPACK_BUILT_IN={self.scratch}"
        )
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("Build it first", " ".join(result.stderr.split()))


if __name__ == "__main__":
    unittest.main()
