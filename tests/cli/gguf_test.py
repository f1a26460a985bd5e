"""prepack inspect and check on GGUF files."""

import json
import shutil
import struct
import unittest

import harness
from harness import ROOT

GGUF = ROOT / "fixtures" / "gguf"


class Gguf(harness.ToolTest):
    def test_metadata_types_and_tensors_are_shown(self):
        text = self.run_ok("inspect", GGUF / "model.gguf", "--tensors").stdout
        self.assertIn("GGUF version 3, llama\n20 tensors, 41.0 kB, in 1 file\n", text)
        self.assertRegex(text, r"tokenizer.ggml.tokens +STRING\[40\]  t0, t1, t2, t3, …\n")
        self.assertRegex(text, r"Q4_0 +14 +61.4 k +34.6 kB +4.50\n")
        self.assertRegex(text, r"blk.1.ffn_down.weight +Q4_0 +\[96, 64\] ")

    def test_json_follows_its_schema_and_says_the_same(self):
        result = self.run_ok("inspect", GGUF / "split-00002-of-00003.gguf", "--json")
        report = self.checked_json(result.stdout, "inspect_gguf")
        self.assertEqual([file["tensors"] for file in report["files"]], [8, 8, 4])
        self.assertEqual(sum(use["tensors"] for use in report["types"]), len(report["tensors"]))
        values = {entry["key"]: entry.get("value") for entry in report["metadata"]}
        self.assertEqual(values["test.int64"], -(2**40))
        self.assertEqual(values["test.uint64"], 2**63)
        self.assertIs(values["test.bool"], True)

    def test_what_is_shown_is_where_it_is_said_to_be(self):
        report = json.loads(self.run_ok("inspect", GGUF / "truth.gguf", "--json").stdout)
        tensor = next(t for t in report["tensors"] if t["name"] == "MXFP4.bits")
        data = (GGUF / "truth.gguf").read_bytes()
        self.assertEqual(tensor["bytes"], 4 * tensor["dims"][0] * tensor["dims"][1])
        self.assertLessEqual(tensor["offset"] + tensor["bytes"], len(data))

    def test_text_that_no_terminal_should_see(self):
        def text(value):
            return struct.pack("<Q", len(value)) + value

        path = self.scratch / "m.gguf"
        entry = text(b"general.name") + struct.pack("<I", 8) + text(b"\xff\x1b[2J" + b"x" * 100)
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
        shown = self.run_ok("inspect", path).stdout
        self.assertIn(r"\xff\x1b[2Jxxx", shown)
        self.assertIn("…\n", shown)
        report = self.checked_json(self.run_ok("inspect", path, "--json").stdout, "inspect_gguf")
        self.assertEqual(report["metadata"][0]["bytes"], 105)
        self.assertIsNone(report["architecture"])

    def test_options_for_modules_are_refused(self):
        for option in (["--modules"], ["--module", "a"], ["--html", "page.html"]):
            self.assert_fails(2, ["this option is not for GGUF files"], "inspect", GGUF / "model.gguf", *option)

    def test_a_cut_file_is_malformed(self):
        path = self.scratch / "m.gguf"
        shutil.copy(GGUF / "model.gguf", path)
        with open(path, "r+b") as file:
            file.truncate(20000)
        self.assert_fails(3, ["the file ends before the tensor does", "Is the download complete?"], "inspect", path)
        report = self.checked_json(self.run_tool("check", path, "--json").stdout, "check")
        self.assertEqual(report["findings"][0]["id"], "malformed")

    def test_check_gives_its_verdict(self):
        result = self.run_ok("check", GGUF / "model.gguf", "--json")
        report = self.checked_json(result.stdout, "check")
        self.assertEqual((report["format"], report["findings"]), ("gguf", []))
        self.assertIn("sound", self.run_ok("check", GGUF / "model.gguf").stdout)


if __name__ == "__main__":
    unittest.main()
