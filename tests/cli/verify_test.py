"""prepack verify on packed folders of every kind of kernel, as a user calls it."""

import unittest

import harness
from harness import CHECKPOINTS


class Verify(harness.ToolTest):
    def pack(self, name, target, *options):
        out = self.scratch / f"{name}-{target}"
        self.run_ok(
            "convert", CHECKPOINTS / name, "-o", out, "-t", target, "--fallback", "dequantize", *options
        )
        return out

    def report(self, name, out, *options):
        result = self.run_ok("verify", out, "--source", CHECKPOINTS / name, "--json", *options)
        return self.checked_json(result.stdout, "verify")

    def test_kernels_that_are_no_engine_are_modelled(self):
        cases = [
            ("ct-w8a8-dynamic", "vllm-cpu", "vllm-cpu/int8-vnni", 35),
            ("ct-w8a8-static", "onednn", "onednn/w8a8", 35),
            ("ct-w4a8", "zentorch", "zentorch/da8w4", 35),
            ("ct-fp8-block", "vllm-cpu", "vllm-cpu/fp8-vnni", 40),
            ("ct-w8a16-g128-sym", "zentorch", "plain/bf16", 40),
        ]
        for name, target, layout, bar in cases:
            with self.subTest(checkpoint=name, target=target):
                report = self.report(name, self.pack(name, target))
                self.assertEqual(report["verdict"], "passed")
                self.assertEqual(report["engine"], "reference")
                self.assertEqual(report["min_end_to_end_sqnr_db"], bar)
                for module in report["modules"]:
                    self.assertEqual(module["layout"], layout)
                    self.assertGreaterEqual(module["kernel_sqnr_db"], 52)

    def test_fp8_activations_have_a_bar_of_their_own(self):
        name = "ct-fp8-dynamic"
        report = self.report(name, self.pack(name, "vllm-cpu", "--scheme", "w8a8"))
        self.assertEqual(report["min_end_to_end_sqnr_db"], 25)

    def test_activation_order(self):
        name = "gptqmodel-w4-actorder-g128"
        out = self.pack(name, "vllm-cpu", "--dtype", "bf16")
        self.assertTrue(self.report(name, out)["engine"].startswith("onednn"))
        self.assertEqual(self.report(name, out, "--engine", "reference")["engine"], "reference")

    def test_a_bar_that_is_given_is_for_all_modules(self):
        name = "ct-w8a8-dynamic"
        out = self.pack(name, "zentorch")
        result = self.run_tool("verify", out, "--source", CHECKPOINTS / name, "--min-sqnr", "43")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("expected at least 43.0 dB", result.stdout)


if __name__ == "__main__":
    unittest.main()
