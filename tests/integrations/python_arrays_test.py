"""prepack.arrays: codes, scales, zero points and weights of a module as numpy arrays are those that
`inspect --values` shows, for every bundled checkpoint and what becomes of it; and where the folder
holds them, they are views of its files."""

import json
import os
import re
import tempfile
import unittest

import numpy

import harness
import prepack
from harness import CHECKPOINTS

ASYMMETRIC = CHECKPOINTS / "ct-w4a16-g32-asym"
MODULE = "model.layers.0.mlp.down_proj"


def mapped_file(array):
    """What is mapped where the array begins."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end, _, _, _, _, path = re.match(r"(\w+)-(\w+) (\S+) (\w+) (\S+) (\d+)\s*(.*)", line).groups()
            if int(begin, 16) <= address < int(end, 16):
                return path
    raise AssertionError("nothing is mapped there")


def modules_of(folder):
    """One module of every scheme."""
    by_scheme = {}
    for module in prepack.inspect(folder).modules:
        by_scheme.setdefault((module.scheme, module.layout), module)
    return by_scheme.values()


class Arrays(harness.ToolTest):
    def check_module(self, folder, module, n, k):
        arrays = prepack.arrays(folder, module)
        self.assertEqual(arrays.shape, (n, k))
        rows = (max(0, n - 3), n)
        for what, found in (("codes", arrays.codes), ("weights", arrays.weights())):
            shown = prepack.inspect_values(folder, module, rows=rows, cols=(0, k), codes=what == "codes")
            self.assertEqual(found.shape, (n, k))
            expected = numpy.array(shown.values, dtype=numpy.float64)
            if what == "codes" and arrays.input_order is not None:
                expected = expected[:, arrays.input_order]  # shown in the order of the model
            numpy.testing.assert_array_equal(found[rows[0] :].astype(numpy.float64), expected, f"{folder} {module}")
        if arrays.scales is not None:
            groups = -(-k // arrays.scheme.group_size)
            self.assertEqual((arrays.scales.shape, arrays.scales.dtype), ((n, groups), numpy.float32))
        self.assertEqual(arrays.zero_points is None, arrays.scheme.symmetric)
        return arrays

    def test_every_checkpoint(self):
        orders = 0
        for folder in sorted(CHECKPOINTS.iterdir()):
            for module in modules_of(folder):
                with self.subTest(checkpoint=folder.name, module=module.module):
                    arrays = self.check_module(folder, module.module, *module.shape)
                    orders += arrays.input_order is not None
        self.assertGreater(orders, 0)

    def test_packed_folders(self):
        for source in ("ct-w4a16-g32-asym", "gptqmodel-w4-actorder-g128", "ct-w8a8-dynamic", "ct-fp8-block",
                       "ct-int8-moe", "ct-int4-moe"):
            for target in harness.TARGETS:
                out = self.scratch / f"{source}-{target}"
                prepack.convert(CHECKPOINTS / source, out, target=target, fallback="dequantize", fuse=target != "onednn")
                for module in modules_of(out):
                    with self.subTest(source=source, target=target, module=module.module):
                        # Of fused modules, those that they are made of.
                        for name, n in ([(f.module, f.n) for f in module.fused] or [(module.module, module.shape[0])])[-2:]:
                            self.check_module(out, name, n, module.shape[1])

    def test_views_of_a_checkpoint(self):
        packed = prepack.arrays(ASYMMETRIC, MODULE)
        file = ASYMMETRIC / "model.safetensors"
        self.assertEqual(packed.in_place, ("codes",))
        self.assertEqual(mapped_file(packed.stored_codes), str(file))
        header, start = harness.read_header(file)
        begin, end = header[MODULE + ".weight_packed"]["data_offsets"]
        self.assertEqual(packed.stored_codes.tobytes(), file.read_bytes()[start + begin : start + end])
        # A code per byte: the codes themselves.
        whole = prepack.arrays(CHECKPOINTS / "ct-fp8-dynamic", MODULE)
        self.assertIn("codes", whole.in_place)
        self.assertIs(whole.codes, whole.stored_codes)
        self.assertEqual(mapped_file(whole.codes), str(CHECKPOINTS / "ct-fp8-dynamic" / "model.safetensors"))
        with self.assertRaises(ValueError):
            whole.codes[0, 0] = 1

    def test_views_of_a_packed_folder(self):
        out = self.scratch / "packed"
        prepack.convert(CHECKPOINTS / "ct-w8a8-dynamic", out, target="zentorch")
        arrays = prepack.arrays(out, MODULE)
        self.assertIn("codes", arrays.in_place)
        part = prepack.open(out)[MODULE].parts["weight"].numpy()
        self.assertEqual(mapped_file(arrays.codes), mapped_file(part))
        numpy.testing.assert_array_equal(arrays.codes, part)

    def test_an_expert_of_a_stack(self):
        """Where experts share a tensor, each is a view of its own part."""
        folder = CHECKPOINTS / "gpt-oss-mxfp4"
        names = [m.module for m in prepack.inspect(folder).modules if "experts.1." in m.module or ".1" in m.module]
        self.check_module(folder, names[0], *prepack.arrays(folder, names[0]).shape)

    def test_nothing_is_left(self):
        before = set(os.listdir(tempfile.gettempdir()))
        arrays = prepack.arrays(ASYMMETRIC, MODULE)
        left = {name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("prepack-")}
        self.assertEqual({name for name in left if not name.startswith("prepack-cli-")}, set())
        self.assertTrue(mapped_file(arrays.scales).endswith("(deleted)"))
        self.assertEqual(float(arrays.scales.min()) > 0, True)

    def test_errors(self):
        with self.assertRaises(prepack.UsageError) as caught:
            prepack.arrays(ASYMMETRIC, MODULE + "s")
        self.assertIn(MODULE, caught.exception.hint)
        with self.assertRaises(prepack.SystemFailedError):
            prepack.arrays(self.scratch / "nowhere", MODULE)


class Command(harness.ToolTest):
    """`inspect --arrays` itself."""

    def test_document_and_file(self):
        into = self.scratch / "a.safetensors"
        document = self.checked_json(
            self.run_ok("inspect", ASYMMETRIC, "--arrays", MODULE, "--into", into, "--json").stdout, "inspect_arrays"
        )
        self.assertEqual([(a["array"], a["in_place"]) for a in document["arrays"]],
                         [("codes", True), ("scales", False), ("zero_points", False)])
        header, start = harness.read_header(into)
        self.assertEqual(set(header), {"scales", "zero_points"})
        for array in document["arrays"][1:]:
            self.assertEqual(array["file"], str(into))
            self.assertEqual(array["offset"], start + header[array["array"]]["data_offsets"][0])
        self.assertEqual([path.name for path in self.scratch.iterdir()], ["a.safetensors"])
        text = self.run_ok("inspect", ASYMMETRIC, "--arrays", MODULE, "--into", into).stdout
        self.assertIn("as the folder holds it", text)

    def test_a_stored_copy_that_differs_in_one_byte_is_none(self):
        """In place means byte for byte."""
        out = self.convert(CHECKPOINTS / "ct-w8a8-dynamic", "vllm-cpu")
        document = json.loads(self.run_ok(
            "inspect", out, "--arrays", MODULE, "--into", self.scratch / "a.safetensors", "--json").stdout)
        codes = next(a for a in document["arrays"] if a["array"] == "codes")
        self.assertFalse(codes["in_place"])  # reordered for VNNI

    def test_errors(self):
        into = self.scratch / "a.safetensors"
        copy = self.copy_checkpoint(ASYMMETRIC.name)
        self.assert_fails(2, ["--into", "the folder"], "inspect", copy, "--arrays", MODULE, "--into", copy / "a")
        self.assert_fails(4, ["nowhere"], "inspect", copy, "--arrays", MODULE, "--into", self.scratch / "nowhere" / "a")
        self.assert_fails(2, ["no quantized module"], "inspect", copy, "--arrays", "x", "--into", into)
        self.assert_fails(2, ["--into"], "inspect", copy, "--arrays", MODULE)
        header, start = harness.read_header(copy / "model.safetensors")
        scale = start + header[MODULE + ".weight_scale"]["data_offsets"][0]
        data = bytearray((copy / "model.safetensors").read_bytes())
        data[scale : scale + 2] = b"\x80\x7f"  # infinity
        (copy / "model.safetensors").write_bytes(data)
        self.assert_fails(3, ["weight_scale"], "inspect", copy, "--arrays", MODULE, "--into", into)
        self.assertFalse(into.exists() or [p for p in self.scratch.iterdir() if "partial" in p.name])


if __name__ == "__main__":
    unittest.main()
