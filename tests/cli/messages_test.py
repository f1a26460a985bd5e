"""--messages json and --progress json: what programs read from stderr, a document per line."""

import unittest

import harness
from harness import CHECKPOINTS


class Messages(harness.ToolTest):
    def lines(self, stderr):
        return [self.checked_json(line, "message") for line in stderr.splitlines()]

    def error(self, code, *args):
        result = self.run_tool(*args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        (line,) = self.lines(result.stderr)
        self.assertEqual((line["kind"], line["exit_code"]), ("prepack-error", code))
        return line

    def test_error_of_the_system(self):
        line = self.error(4, "plan", "nowhere", "-t", "vllm-cpu", "--messages", "json")
        self.assertEqual(line["error"], "system")
        self.assertEqual(line["where"], "nowhere")
        self.assertEqual(line["hint"], "Check the path")
        self.assertEqual(
            line["text"], "nowhere: cannot open it: No such file or directory. Check the path"
        )

    def test_error_with_what_was_found(self):
        source = CHECKPOINTS / "ct-mixed"
        line = self.error(2, "plan", source, "-t", "zentorc", "--messages=json")
        self.assertEqual(line["found"], "zentorc")
        self.assertEqual(line["expected"], ", ".join(harness.TARGETS))
        self.assertIn("zentorch", line["hint"])

    def test_error_of_malformed_input(self):
        source = self.copy_checkpoint()
        path = source / "model.safetensors"
        path.write_bytes(path.read_bytes()[:100000])
        line = self.error(3, "plan", source, "-t", "vllm-cpu", "--messages", "json")
        self.assertEqual(line["error"], "malformed")
        self.assertIn("model.safetensors", line["where"])

    def test_error_of_the_command_line(self):
        for args in (["plan"], ["nonsense"], ["plan", "x", "--tarket", "y"], ["check", "x", "--jobs", "a"]):
            line = self.error(2, *args, "--messages", "json")
            self.assertEqual((line["error"], line["where"]), ("usage", "command line"))

    def test_what_is_no_option(self):
        result = self.run_tool("plan", "nowhere", "-t", "vllm-cpu", "--", "--messages=json")
        self.assertEqual(result.returncode, 2)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)

    def test_progress(self):
        result = self.run_ok(
            "convert", CHECKPOINTS / "ct-mixed", "-o", self.scratch / "out", "-t", "vllm-cpu",
            "--progress", "json", "--json",
        )
        self.checked_json(result.stdout, "convert")
        lines = self.lines(result.stderr)
        self.assertEqual({line["kind"] for line in lines}, {"prepack-progress"})
        self.assertIn("packing", [line["stage"] for line in lines])
        for line in lines:
            self.assertTrue(line["total"] == 0 or line["done"] <= line["total"], line)

    def test_notes(self):
        source = self.copy_checkpoint()
        (source / "more").mkdir()
        result = self.run_ok(
            "convert", source, "-o", self.scratch / "out", "-t", "vllm-cpu", "--messages", "json"
        )
        (line,) = self.lines(result.stderr)
        self.assertEqual(line["kind"], "prepack-note")
        self.assertIn("not copied: more", line["text"])

    def test_names_from_a_file_stay_in_their_line(self):
        line = self.error(4, "plan", "no\nwhere\x1b[2J", "-t", "vllm-cpu", "--messages", "json")
        self.assertEqual(line["where"], "no\nwhere\x1b[2J")


if __name__ == "__main__":
    unittest.main()
