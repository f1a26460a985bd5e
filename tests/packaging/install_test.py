"""cmake --install: what it installs works, wherever it is moved; a stranger's program is built with
it, by CMake and by pkg-config."""

import os
import re
import shutil
import unittest

import installed
from installed import BUILD, ROOT, VERSION

EXAMPLE = ROOT / "examples" / "read_tensor"


class Install(installed.InstalledTest):
    def setUp(self):
        super().setUp()
        staged = {"DESTDIR": str(self.scratch / "staged")}
        self.run_command("cmake", "--install", BUILD, "--prefix", "/opt/first", env=staged)
        self.prefix = self.scratch / "moved here"
        shutil.move(self.scratch / "staged" / "opt" / "first", self.prefix)
        self.packed = self.check_tool(self.prefix)

    def test_files(self):
        self.check_no_paths(self.prefix)
        installed_files = {str(p.relative_to(self.prefix)) for p in self.prefix.rglob("*")}
        self.assertLessEqual(
            {
                "bin/prepack", "share/doc/prepack/copyright", "share/doc/prepack/CHANGELOG.md",
                "include/prepack/base/version.h", "include/prepack/verify/verify.h",
            },
            installed_files,
        )
        # Nothing that could meet another project's files.
        self.assertEqual(os.listdir(self.prefix / "include"), ["prepack"])
        self.assertFalse([f for f in installed_files if "/kernels" in f or "CMakeLists" in f])

    @unittest.skipIf(
        re.search("^PREPACK_SANITIZE:.*=.|^PREPACK_HARDENING:.*=OFF|^CMAKE_BUILD_TYPE:.*=Debug",
                  (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE), "built without hardening")
    def test_hardening(self):
        """The program reads hostile files: what protects it must not get lost in a build script."""
        tool = self.prefix / "bin" / "prepack"
        self.assertIn("DYN (Position-Independent Executable", self.run_command("readelf", "-hW", tool))
        self.assertIn("GNU_RELRO", self.run_command("readelf", "-lW", tool))
        self.assertIn("BIND_NOW", self.run_command("readelf", "-dW", tool))
        symbols = self.run_command("nm", "-D", "--undefined-only", tool)
        for function in "__stack_chk_fail", "__memcpy_chk", "__glibcxx_assert_fail":
            self.assertIn(function, symbols)

    @unittest.skipUnless((BUILD / "bin" / "prepack_onednn.so").exists(), "built without oneDNN")
    def test_onednn_is_found(self):
        tool = self.prefix / "bin" / "prepack"
        self.assertRegex(self.run_command(tool, "verify", self.packed), "gemm +passed +onednn ")
        # Through a link, too: what counts is where the program lies.
        (self.scratch / "link").symlink_to(tool)
        self.run_command(self.scratch / "link", "verify", self.packed)
        module = next(self.prefix.glob("lib*/**/prepack_onednn.so"))
        module.rename(self.scratch / "prepack_onednn.so")
        self.assertIn("note: oneDNN: it did not multiply", self.run_command(tool, "verify", self.packed))
        without = self.run_program(tool, "verify", self.packed, "--engine", "onednn")
        self.assertEqual(without.returncode, 6)
        self.assertIn("--engine reference", without.stdout + without.stderr)

    def check_example(self, program):
        listed = self.run_command(program, self.packed)
        manifest = installed.harness.manifest(self.packed)
        lines = []
        for _, module in sorted(manifest["modules"].items()):
            part = module["parts"]["weight"]
            data = (self.packed / part["file"]).read_bytes()
            size = 4 * part["shape"][0] * part["shape"][1]
            lines.append(
                f"{part['tensor']}: {size} bytes, the first is 0x{data[part['offset']]:02x}"
            )
        self.assertEqual(listed.splitlines(), lines)

    def test_a_program_by_cmake(self):
        build = self.scratch / "build"
        self.run_command(
            "cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Debug",
        )
        self.run_command("cmake", "--build", build)
        self.check_example(build / "read_tensor")

    def test_a_cmake_package_of_another_version(self):
        project = self.scratch / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(stranger LANGUAGES CXX)\n"
            "find_package(prepack 0.2 QUIET)\n"
            'message(STATUS "found: ${prepack_FOUND}, seen: ${prepack_CONSIDERED_VERSIONS}")\n'
        )
        output = self.run_command(
            "cmake", "-S", project, "-B", self.scratch / "b", f"-DCMAKE_PREFIX_PATH={self.prefix}"
        )
        self.assertIn(f"found: 0, seen: {VERSION}", output)

    def test_a_program_by_pkg_config(self):
        # pkg-config cannot say a path with a space so that `$(…)` in a shell takes it.
        prefix = self.scratch / "plain"
        self.prefix.rename(prefix)
        folder = next(prefix.glob("**/prepack.pc")).parent
        env = {"PKG_CONFIG_PATH": str(folder)}
        self.assertEqual(
            self.run_command("pkg-config", "--modversion", "prepack", env=env), VERSION + "\n"
        )
        flags = self.run_command("pkg-config", "--cflags", "--libs", "prepack", env=env).split()
        program = self.scratch / "read_tensor"
        self.run_command("g++", EXAMPLE / "main.cpp", *flags, "-o", program)
        self.check_example(program)
        # Every header that is installed includes what it needs.
        headers = sorted((prefix / "include").rglob("*.h"))
        self.assertGreater(len(headers), 20)
        every = self.scratch / "every.cpp"
        every.write_text("".join(f'#include "{h.relative_to(prefix / "include")}"\n' for h in headers))
        self.run_command("g++", "-fsyntax-only", "-Wall", "-Werror", every, *flags)


if __name__ == "__main__":
    unittest.main()
