"""What tools/release adds to the packages, without its builds, which take too long: the SBOM, and that the versions
in its script are those of the project."""

import hashlib
import json
import os
import re
import subprocess
import sys
import unittest

import harness
from harness import ROOT

SBOM = ROOT / "packaging" / "release" / "sbom.py"
VERSIONS = {
    "fmtlib": "9.1.0+ds1-2", "mimalloc": "2.0.9+ds-2", "onednn": "3.7.2+ds-2", "pcre2": "10.42-1+deb12u2",
    "xxhash": "0.8.1-1",
}



class Release(harness.ToolTest):
    def write_sbom(self, name):
        sources = self.scratch / "sources"
        sources.mkdir(exist_ok=True)
        for package, version in VERSIONS.items():
            (sources / f"{package}_{version}.dsc").write_text(f"Format: 3.0\nVersion: {version}\n")
        for artefact in ("b.whl", "a.tar.gz"):
            (self.scratch / artefact).write_text(artefact)
        out = self.scratch / name
        subprocess.run(
            [sys.executable, SBOM, "--version", "1.2.3", "--epoch", "1700000000", "--sources", sources,
             "--zig", "0.1", "--output", out, self.scratch / "b.whl", self.scratch / "a.tar.gz"],
            check=True,
        )
        return out.read_text()

    def test_sbom(self):
        text = self.write_sbom("one.json")
        self.assertEqual(self.write_sbom("two.json"), text)
        sbom = json.loads(text)
        self.assertEqual((sbom["bomFormat"], sbom["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(sbom["metadata"]["timestamp"], "2023-11-14T22:13:20Z")
        named = {component["name"]: component for component in sbom["components"]}
        self.assertEqual(named["b.whl"]["hashes"][0]["content"], hashlib.sha256(b"b.whl").hexdigest())
        libraries = {"fmt": "fmtlib", "mimalloc": "mimalloc", "oneDNN": "onednn", "PCRE2": "pcre2", "xxHash": "xxhash"}
        for name, package in libraries.items():
            self.assertEqual(named[name]["version"], VERSIONS[package])
            self.assertTrue(named[name]["licenses"])
            description = (self.scratch / "sources" / f"{package}_{VERSIONS[package]}.dsc").read_bytes()
            self.assertEqual(named[name]["hashes"][0]["content"], hashlib.sha256(description).hexdigest())
        # Every library that CMakeLists.txt asks for.
        wanted = re.findall(r"^find_package\((\w+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
        listed = {re.sub(r"\W|\d|_", "", name).lower() for name in named}
        for library in {re.sub(r"\d|_", "", name).lower() for name in wanted} - {"threads"}:
            self.assertTrue(any(name.startswith(library[:6]) or library.startswith(name) for name in listed), library)
        references = [component["bom-ref"] for component in sbom["components"]]
        self.assertEqual(len(references), len(set(references)))
        self.assertLessEqual(set(sbom["dependencies"][0]["dependsOn"]), set(references))

    def test_usage(self):
        tool = ROOT / "tools" / "release"
        for args in ([], ["--help"], [str(self.scratch)]):
            done = subprocess.run([tool, *args], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertTrue(done.stderr.startswith("error: release: "), done.stderr)
        for args in ([], ["--help"], [str(self.scratch / "b"), "more"]):
            build = ROOT / "packaging" / "portable" / "build"
            done = subprocess.run([build, *args], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
        self.assertFalse((self.scratch / "b").exists())

    def test_machines_that_are_neither_x86_nor_arm(self):
        machine = self.scratch / "uname"
        machine.write_text("#!/bin/sh\necho riscv64\n")
        machine.chmod(0o755)
        for script, code, text in (
            ("tools/release", 5, "error: release: a release is made on x86-64"),
            ("packaging/portable/build", 2, "error: portable: usage: "),
        ):
            done = subprocess.run([ROOT / script, self.scratch / "b"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": f"{self.scratch}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, code)
            self.assertTrue(done.stderr.startswith(text), done.stderr)
        self.assertFalse((self.scratch / "b").exists())


if __name__ == "__main__":
    unittest.main()
