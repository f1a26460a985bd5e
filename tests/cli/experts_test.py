"""Experts in MXFP4, stacked as gpt-oss stores them: what they are packed to, and what is refused."""

import unittest

import harness
import numpy
from harness import CHECKPOINTS

SOURCE = CHECKPOINTS / "gpt-oss-mxfp4"
EXPERTS = "model.layers.1.mlp.experts."
LEAVES = {"gate_up_proj": (192, 64), "down_proj": (64, 96)}
COUNT = 4


def array(tensor):
    dtype, shape, data = tensor
    if dtype == "BF16":
        wide = numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16
        return wide.view(numpy.float32).reshape(shape)
    return numpy.frombuffer(data, {"U8": numpy.uint8, "F32": numpy.float32}[dtype]).reshape(shape)


def packed_weight(blocks):
    """By the closed form, code by code, from the blocks [N, K/32, 16] of an expert."""
    n_size = len(blocks)
    row = blocks.reshape(n_size, -1)
    codes = numpy.stack([row & 15, row >> 4], axis=2).reshape(n_size, -1)
    k_size = codes.shape[1]
    packed = numpy.zeros(n_size * k_size // 2, numpy.uint8)
    for n in range(n_size):
        for k in range(k_size):
            byte = n // 32 * 16 * k_size + k // 2 * 32 + n % 16 * 2 + k % 2
            packed[byte] |= codes[n, k] << (4 * (n % 32 // 16))
    return packed.reshape(n_size, -1)


class Experts(harness.ToolTest):
    def source_with(self, name, change):
        """A copy in which `change` has edited the bytes of a tensor."""
        source = self.copy_checkpoint("gpt-oss-mxfp4")
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        begin, end = (start + offset for offset in header[name]["data_offsets"])
        data = bytearray(path.read_bytes())
        tensor = numpy.frombuffer(data[begin:end], numpy.uint8).reshape(header[name]["shape"] + [-1])
        tensor = tensor.copy()
        change(tensor[..., 0] if header[name]["dtype"] == "U8" else tensor)
        data[begin:end] = tensor.tobytes()
        path.write_bytes(data)
        return source

    def test_experts_become_what_the_op_reads(self):
        out = self.convert(SOURCE, "vllm-cpu")
        source, packed = harness.read_tensors(SOURCE), harness.read_tensors(out)
        for leaf, (n_size, k_size) in LEAVES.items():
            blocks, scales, biases = (
                array(source[f"{EXPERTS}{leaf}_{part}"]) for part in ("blocks", "scales", "bias")
            )
            for part in ("blocks", "scales", "bias"):
                self.assertNotIn(f"{EXPERTS}{leaf}_{part}", packed)
            for expert in range(COUNT):
                name = f"{EXPERTS}{leaf}.{expert}."
                self.assertEqual(packed[name + "weight"][:2], ("U8", [n_size, k_size // 2]))
                self.assertTrue((array(packed[name + "weight"]) == packed_weight(blocks[expert])).all())
                by_blocks = scales[expert].reshape(n_size // 32, 32, -1).transpose(0, 2, 1)
                self.assertEqual(packed[name + "weight_scale"][0], "U8")
                self.assertTrue((array(packed[name + "weight_scale"]) == by_blocks).all())
                self.assertEqual(packed[name + "bias"][0], "F32")
                self.assertTrue((array(packed[name + "bias"]) == biases[expert]).all())
                self.assertTrue(biases[expert].any())
        for name, tensor in source.items():
            if "experts" not in name:
                self.assertEqual(packed[name], tensor)
        result = self.run_ok("verify", out, "--source", SOURCE)
        self.assertIn("16 modules", result.stdout)

    def test_a_weight_is_found_in_source_and_output(self):
        out = self.convert(SOURCE, "vllm-cpu")
        text = self.run_ok(
            "inspect", out, "--find", f"{EXPERTS}gate_up_proj.3", 37, 21, "--json"
        ).stdout
        found = self.checked_json(text, "inspect_find")
        source = harness.read_tensors(SOURCE)
        code = array(source[f"{EXPERTS}gate_up_proj_blocks"])[3, 37, 0, 10] >> 4
        exponent = array(source[f"{EXPERTS}gate_up_proj_scales"])[3, 37, 0]
        steps = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
        weight = (-1 if code & 8 else 1) * steps[code & 7] * 2.0 ** (int(exponent) - 127)
        for side in ("source", "packed"):
            self.assertEqual(found[side]["weight"], weight)

    def test_biases_that_do_not_fit_or_are_not_finite(self):
        infinite = b"\x80\x7f"
        tensor = f"{EXPERTS}down_proj_bias"

        def spoil(bias):
            bias[2, 5] = list(infinite)

        source = self.source_with(tensor, spoil)
        self.assert_fails(
            3, [tensor, f"element {2 * 64 + 5} is not finite"], "convert", source, "-o",
            self.scratch / "out", "-t", "vllm-cpu",
        )
        self.assertFalse((self.scratch / "out").exists())

    def test_a_bias_of_another_expert_is_noticed(self):
        out = self.convert(SOURCE, "vllm-cpu")

        def exchange(bias):
            bias[[0, 1]] = bias[[1, 0]]

        other = self.source_with(f"{EXPERTS}down_proj_bias", exchange)
        result = self.run_tool("verify", out, "--source", other)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(f"{EXPERTS}down_proj.0", result.stdout)
        self.assertIn("bias", result.stdout)

    def test_scales_that_the_kernel_misreads(self):
        codes = array(harness.read_tensors(SOURCE)[f"{EXPERTS}gate_up_proj_blocks"])[3, 40, 1]
        small = min(k for k in range(32) if (codes[k // 2] >> (k % 2 * 4)) & 7 in (1, 2, 3))

        def tiny(scales):
            scales[3, 40, 1] = 0

        source = self.source_with(f"{EXPERTS}gate_up_proj_scales", tiny)
        place = f"the kernel of vllm-cpu/mxfp4 reads weight (40, {32 + small}) as another number"
        self.assert_fails(
            5, [f"module {EXPERTS}gate_up_proj.3", place, "expected a scale from 2.35"],
            "convert", source, "-o", self.scratch / "out", "-t", "vllm-cpu",
        )
        self.assertFalse((self.scratch / "out").exists())
        self.convert(source, "onednn", "--fallback", "dequantize")

    def test_any_scale_suits_zeros(self):
        source = self.source_with(f"{EXPERTS}gate_up_proj_scales", lambda s: s.__setitem__((3, 40, 1), 0))
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        begin = start + header[f"{EXPERTS}gate_up_proj_blocks"]["data_offsets"][0]
        data = bytearray(path.read_bytes())
        block = begin + ((3 * 192 + 40) * 2 + 1) * 16
        data[block : block + 16] = b"\x08\x80" * 8  # zeros of both signs
        path.write_bytes(data)
        out = self.convert(source, "vllm-cpu")
        self.run_ok("verify", out, "--source", source)

    def test_f16_is_refused(self):
        self.assert_fails(
            5, ["activations are F16: the kernel takes BF16 only"], "convert", SOURCE, "-o",
            self.scratch / "out", "-t", "vllm-cpu", "--dtype", "f16",
        )


if __name__ == "__main__":
    unittest.main()
