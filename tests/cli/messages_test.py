"""--messages json and --progress json: what programs read from stderr, a document per line."""

import os
import pathlib
import signal
import subprocess
import sys
import time
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
        self.assertEqual(line["expected"], ", ".join([*harness.KERNEL_TARGETS, *harness.EXPERT_TARGETS, *harness.CHECKPOINT_TARGETS]))
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

    def test_findings_of_a_quiet_check(self):
        source = self.copy_checkpoint("ct-w4a16-g32-asym")
        header, start = harness.read_header(source / "model.safetensors")
        scale = start + header["model.layers.0.mlp.down_proj.weight_scale"]["data_offsets"][0]
        data = bytearray((source / "model.safetensors").read_bytes())
        data[scale : scale + 2] = b"\x80\x7f"  # infinity
        (source / "model.safetensors").write_bytes(data)
        text = self.run_tool("check", source, "--quiet")
        self.assertEqual(text.returncode, 1)
        line = self.error(1, "check", source, "--quiet", "--messages", "json")
        self.assertEqual((line["error"], line["id"]), ("check-failed", "scale-not-finite"))
        self.assertIn("model.layers.0.mlp.down_proj", line["where"])
        self.assertEqual(text.stderr, f"error: {line['text']}\n")

    def test_warnings_of_a_strict_check(self):
        line = self.error(1, "check", CHECKPOINTS / "ct-mixed", "--quiet", "--strict", "--messages", "json")
        self.assertEqual((line["error"], line["id"]), ("check-failed", "module-siblings-differ"))
        self.assertTrue(line["hint"])

    def test_end_before_there_is_output(self):
        source = self.scratch / "large"
        harness.sparse_checkpoint(source, 1, 1, 8192, 1 << 17)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with subprocess.Popen(
                [harness.TOOL, "check", source, "--messages", "json", "--progress", "json"],
                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            ) as child:
                child.stderr.readline()  # it is at work
                child.send_signal(number)
                (*_, last) = self.lines(child.stderr.read())
                self.assertEqual(child.wait(), code)
            self.assertEqual((last["error"], last["exit_code"]), ("interrupted", 130))

    def test_end_with_the_parent(self):
        """PREPACK_STOP_WITH_PARENT: what the Python package asks for."""
        source = self.scratch / "large"
        harness.sparse_checkpoint(source, 1, 4, 16384, 1 << 17)
        out = self.scratch / "out"
        script = (
            "import os, subprocess, sys, time\n"
            "child = subprocess.Popen(sys.argv[1:], env={**os.environ,\n"
            "    'PREPACK_STOP_WITH_PARENT': str(os.getpid())}, stderr=subprocess.PIPE)\n"
            "child.stderr.readline()\n"
            "print(child.pid, flush=True)\n"
            "os._exit(0)\n"
        )
        parent = subprocess.run(
            [sys.executable, "-c", script, harness.TOOL, "convert", source, "-o", out, "-t", "vllm-cpu",
             "--progress", "json"], stdout=subprocess.PIPE, text=True, check=True,
        )
        child = int(parent.stdout)
        for _ in range(600):
            if not os.path.exists(f"/proc/{child}") or " Z " in pathlib.Path(f"/proc/{child}/stat").read_text():
                break
            time.sleep(0.1)
        else:
            self.fail("it goes on")
        self.assertEqual([path.name for path in self.scratch.iterdir()], ["large"])

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

    def test_progress_ends_when_all_is_written(self):
        """Scales, zero points and small parts count, and a tensor's padding."""
        for name, target in (
            ("ct-w4a16-g32-asym", "vllm-cpu"), ("ct-w4a16-g32-asym", "zentorch"), ("ct-w8a8-static", "onednn"),
            ("gptqmodel-w4-actorder-g128", "vllm-cpu"), ("gpt-oss-mxfp4", "vllm-cpu"), ("ct-int8-moe", "kt"),
            ("awq-gemm-g128", "gptq"),
        ):
            with self.subTest(source=name, target=target):
                result = self.run_ok(
                    "convert", CHECKPOINTS / name, "-o", self.scratch / f"{name}-{target}", "-t", target,
                    "--progress", "json",
                )
                last = [line for line in self.lines(result.stderr) if line.get("stage") == "packing"][-1]
                self.assertGreater(last["total"], 0)
                self.assertEqual(last["done"], last["total"])

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
