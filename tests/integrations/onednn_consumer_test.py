"""examples/onednn_consumer: it computes what it should on the mapped weights of every layout for
oneDNN, and refuses what is not for it.

Weights of 8 bits need VNNI: without it oneDNN's sums overflow, and the example says so. Smaller
weights, which cannot overflow, are right on every CPU.
"""

import json
import os
import re
import subprocess
import unittest

import numpy

import harness
from harness import CHECKPOINTS, ROOT

CONSUMER = os.environ["PREPACK_CONSUMER"]
SOURCES = ROOT / "examples" / "onednn_consumer"
NATIVE = ("--onednn-form", "native")
MODULE = "model.layers.0.self_attn.k_proj"
SHARD = "model.safetensors"
# Sums of two products of u8 with weights up to 64 fit in 16 bits.
SMALL = 64

REPORT = re.compile(
    r"^(\S+): (\S+), \[(\d+), (\d+)\], (\S+)\n"
    r"  first result (\S+) ms on the mapped file, (\S+) ms with a reorder at load \((.*)\)\n"
    r"  SQNR (\S+) dB against the same rounded inputs, (\S+) dB end to end\n",
    re.MULTILINE,
)


def bf16_ramp(n):
    """A bias far larger than what the weights make, so that one that is left out is seen."""
    bits = numpy.linspace(-300, 300, n, dtype=numpy.float32).view(numpy.uint32) >> 16
    return "BF16", [n], bits.astype(numpy.uint16).tobytes()


class ConsumerTest(harness.ToolTest):
    def consume(self, *args, env=None):
        return subprocess.run(
            [CONSUMER, *map(str, args)], capture_output=True, text=True, check=False, timeout=300,
            env={**os.environ, **(env or {})},
        )

    def check_right(self, folder, layout, least_end_to_end=35):
        """Every module of the folder, by its layout, with figures that only right results have."""
        result = self.consume(folder)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        modules = harness.manifest(folder)["modules"]
        reports = REPORT.findall(result.stdout)
        self.assertEqual([r[0] for r in reports], sorted(modules))
        for name, found, n, k, _, mapped, reordered, same, kernel, end_to_end in reports:
            self.assertEqual(found, layout)
            self.assertEqual([int(n), int(k)], modules[name]["shape"])
            self.assertEqual(same, "to the same bytes")
            self.assertGreater(float(mapped), 0)
            self.assertGreater(float(reordered), 0)
            self.assertGreaterEqual(float(kernel), 48)
            self.assertGreaterEqual(float(end_to_end), least_end_to_end)

    def check_refused(self, code, texts, *args, **kwargs):
        result = self.consume(*args, **kwargs)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def changed_source(self, name, change):
        """A copy of a checkpoint whose tensors went through `change`."""
        source = self.copy_checkpoint(name)
        tensors = harness.read_tensors(source)
        change(tensors)
        (source / SHARD).write_bytes(harness.safetensors_bytes(tensors))
        return source

    def native(self, source, *options):
        return self.convert(source, "onednn", *NATIVE, *options)

    def with_bias(self, name):
        def add(tensors):
            for tensor in list(tensors):
                module, _, part = tensor.rpartition(".")
                if module.endswith("_proj") and part in ("weight", "weight_packed"):
                    tensors[module + ".bias"] = bf16_ramp(tensors[tensor][1][0])

        source = self.changed_source(name, add)
        out = self.native(source)
        modules = harness.manifest(out)["modules"]
        self.assertTrue(all("bias" in module["parts"] for module in modules.values()))
        return out


class W4A16(ConsumerTest):
    def test_every_granularity(self):
        for source in ("ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-w4a16-channel-sym"):
            with self.subTest(source=source):
                self.check_right(self.native(CHECKPOINTS / source), "onednn/w4a16")

    def test_activation_order(self):
        out = self.native(CHECKPOINTS / "gptqmodel-w4-actorder-g128")
        modules = harness.manifest(out)["modules"]
        self.assertTrue(all("input_order" in m["parts"] for m in modules.values()))
        self.check_right(out, "onednn/w4a16")

    def test_bias(self):
        self.check_right(self.with_bias("ct-w4a16-g32-asym"), "onednn/w4a16")

    def test_models_in_f32(self):
        out = self.native(CHECKPOINTS / "ct-w4a16-g128-sym", "--dtype", "f32")
        self.check_right(out, "onednn/w4a16")

    def test_only_the_comparison_reorders(self):
        out = self.native(CHECKPOINTS / "ct-w4a16-g32-asym")
        result = self.consume(out, MODULE, env={"ONEDNN_VERBOSE": "profile_exec"})
        self.assertEqual(result.returncode, 0, result.stderr)
        executed = re.findall(r"^onednn_verbose.*,exec,cpu,(\w+)", result.stdout, re.MULTILINE)
        # One run to warm up; then three on the mapped file, and three after a reorder.
        self.assertEqual(executed, ["matmul"] + 3 * ["matmul", "reorder", "matmul"])

    def test_on_a_cpu_with_avx2_alone(self):
        out = self.native(CHECKPOINTS / "ct-w4a16-g32-asym")
        result = self.consume(out, MODULE, env={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([report[0] for report in REPORT.findall(result.stdout)], [MODULE])


class W4A8(ConsumerTest):
    def test_symmetric(self):
        self.check_right(self.native(CHECKPOINTS / "ct-w4a8"), "onednn/w4a8")

    def test_asymmetric(self):
        out = self.native(CHECKPOINTS / "ct-w4a16-g32-asym", "--scheme", "w4a8")
        self.check_right(out, "onednn/w4a8")

    def test_bias(self):
        self.check_right(self.with_bias("ct-w4a8"), "onednn/w4a8")

    def test_activations_that_the_layout_does_not_take(self):
        for field in ("dynamic", "symmetric"):
            with self.subTest(field=field):
                packed = self.convert(CHECKPOINTS / "ct-w4a8", "onednn", name=field)
                manifest = harness.manifest(packed)
                manifest["modules"][MODULE]["numbers"]["activations"][field] = False
                (packed / "prepack.json").write_text(json.dumps(manifest))
                self.check_refused(3, ["does not go with the other fields"], packed, MODULE)


def small_weights(tensors):
    for name, (dtype, shape, data) in list(tensors.items()):
        if dtype == "I8" and name.endswith(".weight"):
            codes = numpy.frombuffer(data, numpy.int8) // (128 // SMALL)
            tensors[name] = (dtype, shape, codes.astype(numpy.int8).tobytes())


class W8A8Dynamic(ConsumerTest):
    def test_small_weights_are_right_everywhere(self):
        for name in ("ct-w8a8-dynamic", "ct-w8a8-asym-act"):
            with self.subTest(source=name):
                out = self.native(self.changed_source(name, small_weights))
                self.check_right(out, "onednn/w8a8")

    def test_large_weights_are_right_or_the_cpu_is_to_blame(self):
        out = self.native(CHECKPOINTS / "ct-w8a8-dynamic")
        if self.consume(out).returncode == 0:
            self.check_right(out, "onednn/w8a8")
        else:
            self.check_refused(6, ["this CPU has no VNNI"], out)

    def test_bias(self):
        def change(tensors):
            small_weights(tensors)
            tensors[MODULE + ".bias"] = bf16_ramp(128)

        out = self.native(self.changed_source("ct-w8a8-dynamic", change))
        self.assertIn("bias", harness.manifest(out)["modules"][MODULE]["parts"])
        self.check_right(out, "onednn/w8a8")


class W8A8Static(ConsumerTest):
    # Inputs of the checkpoint's range are not those of the example: many are cut off.
    LEAST = 20

    def test_symmetric(self):
        out = self.native(CHECKPOINTS / "ct-w8a8-static")
        self.check_right(out, "onednn/w8a8", self.LEAST)

    def test_bias(self):
        self.check_right(self.with_bias("ct-w8a8-static"), "onednn/w8a8", self.LEAST)

    def test_zero_points(self):
        def add(tensors):
            for tensor in [t for t in tensors if t.endswith(".input_scale")]:
                point = tensor.replace("input_scale", "input_zero_point")
                tensors[point] = ("I8", [1], numpy.int8(-3).tobytes())

        source = self.changed_source("ct-w8a8-static", add)
        config = json.loads((source / "config.json").read_text())
        group = config["quantization_config"]["config_groups"]["group_0"]
        group["input_activations"]["symmetric"] = False
        (source / "config.json").write_text(json.dumps(config))
        out = self.native(source)
        modules = harness.manifest(out)["modules"]
        self.assertTrue(all("input_zero_point" in m["parts"] for m in modules.values()))
        self.check_right(out, "onednn/w8a8", self.LEAST)


# (fields on the way, field, value, exit code, what the error says): a manifest with one change.
LAYER = ("modules", MODULE)
FORM = (*LAYER, "memory_descriptor")
WEIGHT = (*LAYER, "parts", "weight")
# Sound, but of another matrix.
OTHER_FORM = {
    "name": "ab", "dims": [384, 64], "padded_dims": [384, 64], "strides": [64, 1],
    "inner_blocks": [], "s8s8_compensation": False, "zero_point_compensation": False,
}
# A sound part that a module with dynamic activations does not have.
INPUT_SCALE = {"file": SHARD, "offset": 8, "dtype": "F32", "shape": [1]}
DEFECTS = [
    ((), "manifest_version", 3, 3, "no manifest of version 2"),
    ((), "target", "zentorch", 3, "prepack convert --target onednn"),
    ((), "modules", 7, 3, 'field "modules" has the wrong type (found number, expected object)'),
    (("layouts", "onednn/w8a8"), "version", 2, 6, "unknown version of onednn/w8a8. Pack again"),
    (LAYER, "layout", "onednn/w2", 3, 'layouts: field "onednn/w2" is missing'),
    (LAYER, "shape", [128], 3, "its shape is not [N, K]"),
    (LAYER, "shape", [1 << 62, 384], 3, "its shape is not [N, K]"),
    (LAYER, "group_size", 0, 3, "groups that divide K"),
    (LAYER, "group_size", 128, 3, "does not go with the other fields"),
    (LAYER, "symmetric", "yes", 3, 'field "symmetric" has the wrong type'),
    (LAYER, "memory_descriptor", None, 3, 'field "memory_descriptor" has the wrong type'),
    (LAYER, "memory_descriptor", OTHER_FORM, 3, "expected dims [384,128]"),
    (FORM, "dims", [384, 64], 3, "expected dims [384,128]"),
    (FORM, "dims", [384], 3, 'field "dims" is no pair'),
    (FORM, "padded_dims", [384, 256], 3, "no descriptor of the module's weights"),
    (FORM, "strides", [1, 384], 6, "in another form here (found dims [384,128]"),
    (FORM, "strides", [-1, 1], 3, "expected array of integers of 0 or more"),
    (FORM, "inner_blocks", [[0, 16], [1, 64], [0, 4]], 6, "inner blocks [[0,16],[1,64],[0,4]]"),
    (FORM, "inner_blocks", [[2, 4]], 3, "no descriptor of the module's weights"),
    (FORM, "inner_blocks", [[0, 0]], 3, "no descriptor of the module's weights"),
    (FORM, "s8s8_compensation", "no", 3, 'field "s8s8_compensation" has the wrong type'),
    ((*LAYER, "onednn"), "version", "3.9.0", 6, "another version of oneDNN (found 3.9.0, expected"),
    ((*LAYER, "onednn"), "isa", "0x3fff", 6, "other instructions of the CPU (found 0x3fff"),
    ((*LAYER, "numbers"), "activations", None, 3, "does not go with the other fields"),
    (WEIGHT, "file", "../x", 3, 'no plain file name (found "../x")'),
    (WEIGHT, "file", "none", 4, "No such file"),
    (WEIGHT, "file", "config.json", 3, "is not inside the file"),
    (WEIGHT, "offset", 1 << 40, 3, "is not inside the file"),
    (WEIGHT, "offset", (1 << 64) - 1, 3, "is not inside the file"),
    (WEIGHT, "offset", -1, 3, "expected integer of 0 or more"),
    (WEIGHT, "offset", 1.5, 3, "found number, expected integer of 0 or more"),
    (WEIGHT, "dtype", "I8", 3, 'part "weight" is not as its layout says (found "I8"'),
    (WEIGHT, "shape", [49153], 3, 'expected "U8" [49152]'),
    ((*LAYER, "parts"), "weight_scale", None, 3, 'field "weight_scale" has the wrong type'),
    ((*LAYER, "parts"), "input_scale", INPUT_SCALE, 3, '"input_scale" does not belong to'),
]


class Refusals(ConsumerTest):
    def setUp(self):
        super().setUp()
        self.source = self.changed_source("ct-w8a8-dynamic", small_weights)
        # The same on every CPU that has AVX2: plain weights.
        self.env = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
        self.out = self.convert(self.source, "onednn", *NATIVE, env=self.env)
        self.manifest = harness.manifest(self.out)

    def write(self, manifest):
        (self.out / "prepack.json").write_text(json.dumps(manifest))

    def test_defects_of_the_manifest(self):
        self.write(self.manifest)
        self.assertEqual(self.consume(self.out, MODULE, env=self.env).returncode, 0)
        for way, field, value, code, text in DEFECTS:
            with self.subTest(way=way, field=field, value=value):
                manifest = json.loads(json.dumps(self.manifest))
                place = manifest
                for key in way:
                    place = place[key]
                place[field] = value
                self.write(manifest)
                self.check_refused(code, [text], self.out, MODULE, env=self.env)

    def test_the_rebuild_command_makes_it_right(self):
        blocked = self.convert(self.source, "onednn", name="it's blocked")
        result = self.consume(blocked, env=self.env)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("sums for s8, expected dims", result.stderr)
        command = re.search(r"Pack again on this machine: prepack (.*)$", result.stderr).group(1)
        subprocess.run(
            ["sh", "-c", f"{harness.TOOL} {command}"], check=True, capture_output=True,
            env={**os.environ, **self.env},
        )
        self.assertEqual(self.consume(blocked, env=self.env).returncode, 0)

    def test_a_part_that_is_missing(self):
        del self.manifest["modules"][MODULE]["parts"]["weight_scale"]
        self.write(self.manifest)
        self.check_refused(3, ['part "weight_scale" is missing'], self.out, MODULE, env=self.env)

    def test_files_that_are_cut_off(self):
        size = (self.out / SHARD).stat().st_size
        part = self.manifest["modules"][MODULE]["parts"]["weight"]
        weight = f"a tensor of {part['shape'][0]} bytes at {part['offset']} is not inside"
        for cut in (part["offset"] + part["shape"][0] - 1, part["offset"], 1):
            self.assertLess(cut, size)
            os.truncate(self.out / SHARD, cut)
            self.check_refused(
                3, [weight, f"of {cut} bytes. Was it cut off?"], self.out, MODULE, env=self.env
            )
        os.truncate(self.out / SHARD, 0)
        self.check_refused(3, ["it is empty"], self.out, MODULE, env=self.env)

    def test_an_order_of_inputs_that_is_none(self):
        out = self.native(CHECKPOINTS / "gptqmodel-w4-actorder-g128")
        part = harness.manifest(out)["modules"][MODULE]["parts"]["input_order"]
        harness.flip(out / SHARD, part["offset"] + 3, 7)
        self.check_refused(3, ['part "input_order" names input -'], out, MODULE)

    def test_a_static_scale_that_is_none(self):
        out = self.native(CHECKPOINTS / "ct-w8a8-static")
        part = harness.manifest(out)["modules"][MODULE]["parts"]["input_scale"]
        harness.flip(out / SHARD, part["offset"] + 3, 7)
        self.check_refused(3, ["the scale of its inputs must be above 0"], out, MODULE)

    def test_texts_that_are_no_manifest(self):
        for text, expected in (
            ("", "parse error"), ("[]", "no JSON object"), ('{"a": 1, "a": 2}', 'there twice: "a"'),
            ("[" * 100000, "parse error"),
        ):
            (self.out / "prepack.json").write_text(text)
            self.check_refused(3, [expected], self.out)
        (self.out / "prepack.json").unlink()
        self.check_refused(3, ["cannot be read"], self.out)

    def test_usage(self):
        self.assertEqual(self.consume().returncode, 2)
        self.assertEqual(self.consume(1, 2, 3).returncode, 2)
        self.check_refused(2, ["no such packed module: none"], self.out, "none", env=self.env)


class Sources(unittest.TestCase):
    def test_it_uses_nothing_of_prepack(self):
        own = {path.name for path in SOURCES.glob("*.h")}
        for path in SOURCES.glob("*.[hc]*"):
            for header in re.findall(r'#include "(.*)"', path.read_text()):
                self.assertIn(header, own, path.name)


if __name__ == "__main__":
    unittest.main()
