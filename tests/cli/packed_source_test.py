"""Packed folders as sources: what was packed becomes a checkpoint again, with the same numbers."""

import json
import shutil
import unittest

import harness
from harness import CHECKPOINTS

# source, kernel target, target of a checkpoint, options of the first conversion
WAYS = [
    ("ct-w4a16-g128-sym", "vllm-cpu", "compressed-tensors", []),
    ("ct-w4a16-g32-asym", "zentorch", "compressed-tensors", []),
    ("ct-w4a16-g32-asym", "onednn", "awq", []),
    ("ct-w4a16-g32-asym", "vllm-cpu", "gptq-v2", ["--fuse"]),
    ("gptqmodel-w4-actorder-g128", "onednn", "gptq", ["--scales", "exact"]),
    ("gptqmodel-w4-asym-v1", "onednn", "gptq", []),
    ("ct-w8a8-dynamic", "vllm-cpu", "compressed-tensors", ["--fuse"]),
    ("ct-w8a8-dynamic", "onednn", "compressed-tensors", []),
    ("ct-fp8-dynamic", "vllm-cpu", "compressed-tensors", []),
    ("ct-fp8-block", "vllm-cpu", "fp8", []),
    ("ct-nested-moe", "vllm-cpu", "compressed-tensors", ["--fuse"]),
]


class PackedSource(harness.ToolTest):
    def pack(self, source, target, out, *options):
        self.run_ok("convert", source, "-o", out, "--target", target, *options)
        return harness.read_tensors(out)

    def test_the_way_over_a_packed_folder_is_the_direct_way(self):
        for source, kernels, target, options in WAYS:
            with self.subTest(source=source, kernels=kernels, target=target):
                checkpoint = CHECKPOINTS / source
                name = f"{source}-{kernels}-{target}"
                # What no kernel takes is dequantized, and so it is on the direct way.
                packed = self.scratch / f"{name}-packed"
                self.run_ok(
                    "convert", checkpoint, "-o", packed, "--target", kernels, *options, "--fallback", "error"
                )
                over = self.pack(packed, target, self.scratch / f"{name}-over")
                direct = self.pack(checkpoint, target, self.scratch / f"{name}-direct")
                self.assertEqual(over.keys(), direct.keys())
                for tensor, entry in direct.items():
                    self.assertEqual(over[tensor], entry, tensor)
                self.run_ok("verify", self.scratch / f"{name}-over", "--source", packed)
                # The config is that of the direct way, too.
                configs = [
                    json.loads((self.scratch / f"{name}-{way}" / "config.json").read_text())
                    for way in ("over", "direct")
                ]
                self.assertEqual(*[c["quantization_config"] for c in configs])

    def test_what_was_dequantized_stays_bf16(self):
        packed = self.scratch / "packed"
        self.pack(CHECKPOINTS / "ct-w8a16-g128-sym", "vllm-cpu", packed, "--fallback", "dequantize")
        over = self.pack(packed, "bf16", self.scratch / "over")
        direct = self.pack(CHECKPOINTS / "ct-w8a16-g128-sym", "bf16", self.scratch / "direct")
        self.assertEqual(over, direct)

    def test_one_kernel_layout_becomes_another(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        self.pack(source, "vllm-cpu", self.scratch / "first")
        over = self.pack(self.scratch / "first", "zentorch", self.scratch / "second")
        self.assertEqual(over, self.pack(source, "zentorch", self.scratch / "direct"))

    def test_stacks_of_gpt_oss_come_back(self):
        source = CHECKPOINTS / "gpt-oss-mxfp4"
        stored = harness.read_tensors(source)
        self.assertEqual(self.pack(source, "mxfp4", self.scratch / "direct"), stored)
        for options in ([], ["--fuse"]):
            with self.subTest(options=options):
                packed, over = self.scratch / f"packed{len(options)}", self.scratch / f"over{len(options)}"
                self.pack(source, "vllm-cpu", packed, *options)
                tensors = self.pack(packed, "mxfp4", over)
                self.assertEqual(tensors.keys(), stored.keys())
                for name, entry in stored.items():
                    if name.endswith("_bias"):  # the layout has them in F32
                        self.assertEqual(tensors[name][1], entry[1])
                    else:
                        self.assertEqual(tensors[name], entry, name)
                self.run_ok("verify", over, "--source", packed)

    def test_a_checkpoint_made_in_parts_is_the_whole(self):
        source = CHECKPOINTS / "ct-nested-moe"
        whole = self.pack(source, "gptq", self.scratch / "whole")
        merged = self.scratch / "merged"
        for part in ("1/2", "2/2"):
            self.run_ok("convert", source, "-o", merged, "--target", "gptq", "--part", part)
        self.run_ok("merge", merged)
        self.assertEqual(harness.read_tensors(merged), whole)
        configs = [(self.scratch / name / "config.json").read_bytes() for name in ("whole", "merged")]
        self.assertEqual(*configs)
        self.run_ok("verify", merged, "--source", source)

    def test_single_experts_are_not_stacked_for_gpt_oss(self):
        """Its class has the output channels of gate and up in turn."""
        source = self.scratch / "source"
        shutil.copytree(CHECKPOINTS / "ct-int8-moe", source)
        config = json.loads((source / "config.json").read_text())
        config["model_type"] = "gpt_oss"
        (source / "config.json").write_text(json.dumps(config))
        texts = ["gpt_oss", "reads the experts of a layer as one tensor"]
        for target in ("bf16", "compressed-tensors"):
            self.assert_fails(5, texts, "convert", source, "-o", self.scratch / "out", "--target", target)
        plan = self.run_tool("plan", source, "--target", "bf16").stdout
        self.assertIn("has the output channels of gate and up in turn", plan)

    def test_modules_that_were_kept_are_refused(self):
        packed = self.scratch / "packed"
        self.pack(CHECKPOINTS / "ct-mixed", "vllm-cpu", packed)
        manifest = json.loads((packed / "prepack.json").read_text())
        if not manifest["kept"]:
            self.pack(CHECKPOINTS / "quark-mixed", "vllm-cpu", self.scratch / "kept")
            packed = self.scratch / "kept"
        texts = ["the packed folder keeps it as", "Convert the checkpoint that the folder was made from"]
        self.assert_fails(5, texts, "convert", packed, "-o", self.scratch / "out", "--target", "awq")

    def test_damaged_codes_and_orders_are_refused(self):
        packed = self.scratch / "packed"
        self.pack(CHECKPOINTS / "gptqmodel-w4-actorder-g128", "vllm-cpu", packed)
        tensors = harness.read_tensors(packed)
        name = next(tensor for tensor in tensors if tensor.endswith("input_order"))
        manifest = json.loads((packed / "prepack.json").read_text())
        record = next(
            part for module in manifest["modules"].values() for part in module["parts"].values()
            if part["tensor"] == name
        )  # fmt: skip
        with open(packed / record["file"], "r+b") as file:
            file.seek(record["offset"])
            first = file.read(4)
            file.write(first)  # the second channel is the first again
        texts = ["input_order is not a permutation"]
        self.assert_fails(3, texts, "convert", packed, "-o", self.scratch / "out", "--target", "gptq")


if __name__ == "__main__":
    unittest.main()
