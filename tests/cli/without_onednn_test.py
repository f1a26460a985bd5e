"""verify where oneDNN cannot be loaded: the models of the kernels give the verdict, over every layout."""

import json
import shutil
import subprocess
import unittest

import harness
from harness import CHECKPOINTS, TOOL

DEQUANTIZE = ("--fallback", "dequantize")
# (target, checkpoint, options): together they pack every layout that is offered.
PACKED = [
    ("vllm-cpu", "ct-mixed", ()),
    ("vllm-cpu", "ct-w4a8", ()),
    ("vllm-cpu", "ct-w8a8-static", ()),
    ("vllm-cpu", "ct-fp8-block", ()),
    ("vllm-cpu", "ct-fp8-block", ("--scheme", "w8a8")),
    ("vllm-cpu", "gpt-oss-mxfp4", ()),
    ("vllm-cpu", "ct-nvfp4", DEQUANTIZE),
    ("zentorch", "ct-mixed", ()),
    ("zentorch", "ct-w4a8", ()),
    ("zentorch", "ct-fp8-dynamic", DEQUANTIZE),
    ("zentorch", "gptqmodel-gpt2-w8", DEQUANTIZE),
    ("vllm-arm", "ct-w4a8", ()),
    ("vllm-arm", "ct-w8a8-dynamic", ()),
    ("vllm-arm", "ct-int8-moe", ()),
    ("vllm-arm", "gpt-oss-mxfp4", DEQUANTIZE),
    ("onednn", "ct-mixed", ()),
    ("onednn", "ct-w4a8", ()),
    ("onednn", "ct-w8a8-asym-act", ("--onednn-form", "plain")),
    ("kt", "ct-int8-moe", ()),
    ("kt", "ct-int4-moe", ()),
]


@harness.needs_onednn_module
class WithoutOneDnn(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.tool = self.scratch / "alone" / "prepack"  # without the module that lies beside it elsewhere
        self.tool.parent.mkdir()
        shutil.copy(TOOL, self.tool)

    def test_the_models_give_the_verdict_and_a_note_says_so(self):
        source = CHECKPOINTS / "ct-w4a16-channel-sym"
        out = self.convert(source, "zentorch")
        run = [self.tool, "verify", out, "--source", source]
        result = subprocess.run([*run, "--json"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["engine"], "reference")
        (note,) = report["levels"]["gemm"]["notes"]
        self.assertEqual((note["module"], note["where"]), (None, "oneDNN"))
        self.assertIn("it did not multiply, the models of the kernels did: ", note["message"])
        self.assertIn("prepack_onednn.so", note["message"])
        text = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(text.stdout.count("note: "), 1)
        result = subprocess.run([*run, "--engine", "onednn", "--json"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 6, result.stderr)
        reason = self.checked_json(result.stdout, "verify")["levels"]["gemm"]["reason"]
        self.assertIn("prepack_onednn.so", reason)
        self.assertIn("cannot be loaded", reason)
        self.assertIn("--engine reference", reason)
        result = subprocess.run([*run, "--engine", "reference"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_every_layout_is_proved(self):
        packed = set()
        for index, (target, checkpoint, options) in enumerate(PACKED):
            with self.subTest(target=target, checkpoint=checkpoint, options=options):
                out = self.convert(CHECKPOINTS / checkpoint, target, *options, name=f"packed-{index}")
                packed |= set(harness.manifest(out)["layouts"])
                result = subprocess.run([self.tool, "verify", out, "--json"], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                report = json.loads(result.stdout)
                self.assertEqual((report["verdict"], report["engine"]), ("passed", "reference"))
                states = {name: level["state"] for name, level in report["levels"].items() if level["asked"]}
                self.assertEqual(states, dict.fromkeys(("integrity", "exactness", "gemm"), "passed"))
        targets = json.loads(self.run_ok("targets", "--json").stdout)["targets"]
        offered = {row["layout"] for one in targets if not one["checkpoint"] for row in one["layouts"] if row["offered"]}
        self.assertEqual(packed, offered)


if __name__ == "__main__":
    unittest.main()
