"""tools/sanitize_share: which programs it runs for a commit, and what it makes of how they end."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from tool_module import ROOT, load_tool

TOOL = ROOT / "tools" / "sanitize_share"

tool = load_tool("sanitize_share")


def test_programs():
    """Of the build: one for every folder that has tests, and what CMake adds."""
    found = {f"test_{path.parent.name}" for path in (ROOT / "tests").glob("*/*_test.cpp")}
    lists = (ROOT / "tests" / "emulated_avx512" / "tests.cmake").read_text()
    found |= {f"test_{folder}_emulated" for folder in re.findall(r"^prepack_test_emulated\((\w+)", lists, re.MULTILINE)}
    targets = (ROOT / "tests" / "fuzz" / "CMakeLists.txt").read_text()
    for path in (ROOT / "tests" / "fuzz").glob("*.cpp"):
        if path.stem != "replay" and "int LLVMFuzzerTestOneInput(" in path.read_text():
            assert re.search(rf"\b{path.stem}\b", targets), path
            found.add(f"fuzz_{path.stem}")
    return found


def shares(preset):
    return [share for share in tool.SHARES if share.preset == preset]


class Shares(unittest.TestCase):
    def test_every_program_is_in_one_share_with_the_address_sanitizer(self):
        chosen = [name for share in shares("asan") for name in share.programs]
        self.assertEqual(sorted([*chosen, *tool.LEFT_OUT]), sorted(test_programs()))

    def test_programs_with_threads_are_in_one_share_with_the_thread_sanitizer(self):
        chosen = [name for share in shares("tsan") for name in share.programs]
        self.assertEqual(sorted(chosen), sorted(set(chosen)))
        self.assertLessEqual(set(chosen), test_programs())
        for folder in ("base", "check", "convert", "diff", "verify"):
            self.assertIn(f"test_{folder}", chosen)

    def test_consecutive_hashes_get_every_share(self):
        hashes = [f"{0xDECADE + i:040x}" for i in range(len(tool.SHARES))]
        listed = [subprocess.run([TOOL, "--list", hash], capture_output=True, text=True, check=True).stdout.split()
                  for hash in hashes]
        expected = [[share.preset, *share.programs] for share in tool.SHARES]
        self.assertEqual(sorted(listed), sorted(expected))
        self.assertEqual(tool.number_of("0" * 39 + "2"), 3)

    def test_name_of_no_commit(self):
        result = subprocess.run([TOOL, "--list", "no-such-commit"], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, "error: sanitize_share: no-such-commit is no commit here\n")


class Time(unittest.TestCase):
    def test_share_that_does_not_fit_is_left_out_and_no_error(self):
        needed = tool.SHARES[1].seconds
        result = subprocess.run([TOOL, "--share", "2", "--within", str(needed - 1)], capture_output=True, text=True,
                                check=True)
        self.assertEqual(
            result.stdout,
            f"sanitize_share: LEFT OUT: share 2 of {len(tool.SHARES)} of the tests with sanitizers (asan) takes "
            f"{needed} s, and {needed - 1} s are left: tools/sanitize_share --share 2 runs it\n",
        )

    def test_command_is_stopped_when_time_is_over(self):
        self.assertEqual(tool.Clock(None).run("sh", "-c", "exit 3"), 3)
        with self.assertRaises(tool.OutOfTime):
            tool.Clock(0).run("sleep", "1000")


class Ends(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "bin").mkdir()

    def put_program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_share(self, *programs, preset="asan", within=None):
        tool.run_programs(self.folder, tool.Share(preset, "tune", 1, programs), tool.Clock(within))

    def test_all_pass(self):
        self.put_program("test_a", "echo fine")
        self.put_program("fuzz_layouts", f"test \"$1\" = {ROOT}/fixtures/fuzz/layouts")
        self.run_share("test_a", "fuzz_layouts")
        self.assertEqual((self.folder / "test_a.log").read_text(), "fine\n")

    def test_thread_sanitizer_gets_its_options(self):
        self.put_program("test_a", 'test "$TSAN_OPTIONS" = ignore_noninstrumented_modules=1')
        self.run_share("test_a", preset="tsan")

    def test_finding_is_an_error(self):
        self.put_program("test_a", "exit 0")
        self.put_program("test_b", "echo found; exit 1")
        with self.assertRaises(SystemExit) as end:
            self.run_share("test_a", "test_b")
        self.assertEqual(end.exception.code, "error: sanitize_share: test_b failed")

    def test_program_that_does_not_end(self):
        self.put_program("test_a", "exec sleep 1000")
        with self.assertRaises(tool.OutOfTime):
            self.run_share("test_a", within=0)

    def test_finding_counts_more_than_time(self):
        (self.folder / "test_b.log").write_text("found")
        with self.assertRaises(SystemExit):
            tool.judge(self.folder, {"test_a": None, "test_b": 1})
        with self.assertRaises(tool.OutOfTime):
            tool.judge(self.folder, {"test_a": None, "test_b": 0})


if __name__ == "__main__":
    unittest.main()
