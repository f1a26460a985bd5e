"""--accept: findings of the source that the user accepts."""

import unittest

import harness
from harness import CHECKPOINTS, manifest

# Checkpoint → how the tensors with scales end. Of each way to store scales one.
SCALES = {
    "ct-w4a16-g32-asym": ".weight_scale",
    "ct-w4a16-g128-sym": ".weight_scale",
    "ct-w4a8": ".weight_scale",
    "ct-w8a8-dynamic": ".weight_scale",
    "ct-fp8-block": ".weight_scale",
    "awq-gemm-g128": ".scales",
    "awq-gemv-g128": ".scales",
    "gptqmodel-w4-sym-g128": ".scales",
    "gptqmodel-w4-actorder-g128": ".scales",
    "ar-w4-sym-g128": ".scales",
}


class Accept(harness.ToolTest):
    def zero_scale(self, name):
        """A copy of the checkpoint in which the first scale of the first module is zero."""
        source = self.copy_checkpoint(name)
        path = min(source.glob("*.safetensors"))
        header, start = harness.read_header(path)
        tensor = min(t for t in header if t.endswith(SCALES[name]))
        data = bytearray(path.read_bytes())
        at = start + header[tensor]["data_offsets"][0]
        width = {"F32": 4, "F16": 2, "BF16": 2}[header[tensor]["dtype"]]
        data[at : at + width] = bytes(width)
        path.write_bytes(data)
        return source, tensor

    def test_zero_scales_of_every_format(self):
        for name in SCALES:
            source, tensor = self.zero_scale(name)
            for target in harness.TARGETS:
                with self.subTest(checkpoint=name, target=target):
                    out = self.scratch / f"{name}-{target}"
                    args = (
                        "convert", source, "-o", out, "-t", target, "--fallback", "dequantize",
                    )
                    self.assert_fails(3, [tensor, "is zero", "--accept scale-zero"], *args)
                    self.run_ok(*args, "--accept", "scale-zero", "-q")
                    self.assertEqual(manifest(out)["accepted"], ["scale-zero"])
                    self.checked_json((out / "prepack.json").read_text(), "manifest")
                    result = self.run_ok("verify", out, "--source", source)
                    self.assertIn("the user accepted these findings in the source: scale-zero", result.stdout)

    def test_what_needs_no_acceptance_is_the_same_with_it(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        plain = self.convert(source, "vllm-cpu", name="plain")
        accepting = self.convert(source, "vllm-cpu", "--accept", "scale-zero", name="accepting")
        self.assertEqual(harness.read_tensors(plain), harness.read_tensors(accepting))
        self.assertNotIn("accepted", manifest(plain))

    def test_only_some_findings_can_be_accepted(self):
        source, _ = self.zero_scale("ct-w4a16-g32-asym")
        for names in ("scale-not-finite", "scale-zero,nonsense", ""):
            for command in (("convert", source, "-o", self.scratch / "o"), ("plan", source)):
                self.assert_fails(2, ["--accept"], *command, "-t", "vllm-cpu", "--accept", names)
        self.run_ok("plan", source, "-t", "vllm-cpu", "--accept", "scale-zero")

    def test_a_scale_that_is_no_number_is_not_accepted_with_it(self):
        source, tensor = self.zero_scale("ct-w4a16-g32-asym")
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[tensor]["data_offsets"][0]
        data[at + 2 : at + 4] = b"\xff\x7f"
        path.write_bytes(data)
        self.assert_fails(
            3, [tensor, "not a finite number"],
            "convert", source, "-o", self.scratch / "o", "-t", "vllm-cpu", "--accept", "scale-zero",
        )

    def test_parts_and_later_runs_know_it(self):
        source, _ = self.zero_scale("ct-w4a16-g32-asym")
        out = self.scratch / "out"
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--accept", "scale-zero")
        for part in ("1/2", "2/2"):
            self.run_ok(*args, "--part", part)
        self.run_ok("merge", out)
        self.assertEqual(manifest(out)["accepted"], ["scale-zero"])
        self.run_ok("verify", out, "--source", source)
        self.assertIn("is complete already", self.run_ok(*args, "--resume").stdout)
        self.assert_fails(2, ["other options", "--accept scale-zero"], *args[:-2], "--resume")


if __name__ == "__main__":
    unittest.main()
