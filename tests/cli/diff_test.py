"""prepack diff on real checkpoints."""

import struct
import sys
import unittest

import harness
from harness import CHECKPOINTS

SYMMETRIC = CHECKPOINTS / "ct-w4a16-g128-sym"
MODULE = "model.layers.0.mlp.down_proj"


class Diff(harness.ToolTest):
    def diff(self, code, *args):
        result = self.run_tool("diff", *args, "--json")
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return self.checked_json(result.stdout, "diff")

    def test_sharding_does_not_matter(self):
        report = self.diff(0, SYMMETRIC, CHECKPOINTS / "ct-w4a16-g128-sharded")
        self.assertTrue(report["same"])
        self.assertEqual({m["verdict"] for m in report["modules"]}, {"identical"})
        self.assertEqual(len(report["modules"]), 7)
        self.assertEqual({t["verdict"] for t in report["tensors"]}, {"identical"})
        self.assertGreater(len(report["tensors"]), 0)

    def test_other_quantizations_of_one_model_differ(self):
        report = self.diff(1, SYMMETRIC, CHECKPOINTS / "ct-w4a16-g32-asym")
        for module in report["modules"]:
            self.assertEqual(module["verdict"], "different")
            self.assertEqual(len(module["worst"]), 5)
            # Both are within 17 dB of the same float weights.
            self.assertGreater(module["sqnr_db"], 12)
            worst = module["worst"][0]
            for side in (worst["a"], worst["b"]):
                value = (side["code"] - side["zero_point"]) * side["scale"]
                self.assertAlmostEqual(value, side["value"], places=6)
            distance = abs(worst["a"]["value"] - worst["b"]["value"])
            self.assertAlmostEqual(distance, module["max_absolute"], places=6)

    def test_one_scale(self):
        folder = self.copy_checkpoint()
        tensors = harness.read_tensors(folder)
        dtype, shape, data = tensors[MODULE + ".weight_scale"]
        bits = struct.unpack("<H", data[:2])[0]
        tensors[MODULE + ".weight_scale"] = (dtype, shape, struct.pack("<H", bits + 8) + data[2:])
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        report = self.diff(1, SYMMETRIC, folder)
        different = [m for m in report["modules"] if m["verdict"] != "identical"]
        self.assertEqual([m["module"] for m in different], [MODULE])
        self.assertLessEqual(different[0]["differing"], 128)
        self.assertTrue(all(w["n"] == 0 and w["k"] < 128 for w in different[0]["worst"]))

        text = self.run_tool("diff", SYMMETRIC, folder)
        self.assertEqual(text.returncode, 1)
        self.assertIn("quantized modules: 6 identical, 1 different\n", text.stdout)
        self.assert_fails(1, ["differs from"], "diff", SYMMETRIC, folder, "-q")
        self.run_ok("diff", SYMMETRIC, folder, "--module", "model.layers.0.mlp.up_proj")

    def test_signed_codes_are_shown_as_signed(self):
        folder = self.copy_checkpoint("ct-w8a8-dynamic")
        tensors = harness.read_tensors(folder)
        dtype, shape, data = tensors[MODULE + ".weight"]
        stored = struct.unpack("<b", data[:1])[0]
        changed = -20 if stored != -20 else -21
        tensors[MODULE + ".weight"] = (dtype, shape, struct.pack("<b", changed) + data[1:])
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        report = self.diff(1, CHECKPOINTS / "ct-w8a8-dynamic", folder, "--module", MODULE)
        worst = report["modules"][0]["worst"]
        self.assertEqual([(w["n"], w["k"]) for w in worst], [(0, 0)])
        self.assertEqual((worst[0]["a"]["code"], worst[0]["b"]["code"]), (stored, changed))
        text = self.run_tool("diff", CHECKPOINTS / "ct-w8a8-dynamic", folder, "--module", MODULE)
        self.assertIn(f"code {changed} - zero point 0", text.stdout)

    def test_same_output_for_any_threads(self):
        other = CHECKPOINTS / "ct-w4a16-g32-asym"
        outputs = {
            self.run_tool("diff", SYMMETRIC, other, "--json", "--jobs", jobs).stdout
            for jobs in (1, 2, 7)
        }
        self.assertEqual(len(outputs), 1)

    def test_refusals(self):
        packed = self.convert(SYMMETRIC, "vllm-cpu")
        self.assert_fails(5, ["prepack verify"], "diff", SYMMETRIC, packed)
        self.assert_fails(2, ["no quantized module has this name"], "diff", SYMMETRIC, SYMMETRIC, "--module", "x")
        self.assert_fails(4, [], "diff", SYMMETRIC, self.scratch / "none")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
