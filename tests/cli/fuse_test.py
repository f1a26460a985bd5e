"""`--fuse`: q, k and v, and gate and up, packed as one module each, as runtimes hold them."""

import json
import shutil
import unittest

import numpy

import harness
from harness import CHECKPOINTS, TARGETS

LAYERS = [f"model.layers.{layer}" for layer in range(4)]
LAYER = LAYERS[0]
FUSED = {f"{layer}.self_attn.qkv_proj": [f"{layer}.self_attn.{name}_proj" for name in "qkv"] for layer in LAYERS}
FUSED |= {f"{layer}.mlp.gate_up_proj": [f"{layer}.mlp.{name}_proj" for name in ("gate", "up")] for layer in LAYERS}
QKV = FUSED[f"{LAYER}.self_attn.qkv_proj"]
GATE_UP = FUSED[f"{LAYER}.mlp.gate_up_proj"]
DTYPES = {
    "I32": numpy.int32, "U8": numpy.uint8, "I8": numpy.int8, "F32": numpy.float32,
    "BF16": numpy.uint16, "F16": numpy.uint16, "F8_E4M3": numpy.uint8,
}  # fmt: skip
# Packed forms in which rows of several modules do not simply follow each other along an axis.
INTERLEAVED = {"vllm-cpu/int8-vnni", "zentorch/int8-dlp", "onednn/w8a8"}


def add_tensors(folder, change):
    """Rewrites the file of a checkpoint with what `change` does to its tensors."""
    tensors = harness.read_tensors(folder)
    change(tensors)
    (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))


def biases(modules):
    """A BF16 bias for each of the modules, by their rows."""
    random = numpy.random.default_rng(5)
    return {
        f"{module}.bias": ("BF16", [n], random.integers(0x3C00, 0x3F80, n, numpy.uint16).tobytes())
        for module, n in modules.items()
    }


def arrays(entries):
    return [numpy.frombuffer(data, DTYPES[dtype]).reshape(shape) for dtype, shape, data in entries]


class Fuse(harness.ToolTest):
    def assert_concatenated(self, whole, pieces, where):
        """The whole is the pieces one after another, along one of the axes."""
        [whole], pieces = arrays([whole]), arrays(pieces)
        for axis in range(whole.ndim):
            others = {tuple(numpy.delete(p.shape, axis)) for p in [whole, *pieces]}
            if len(others) == 1 and numpy.array_equal(numpy.concatenate(pieces, axis), whole):
                return
        self.fail(f"{where} is not its members one after another")

    def assert_scales_by_channel(self, packed, pieces, module, name):
        """FP8 modules with one scale each: fused, every output channel has that of its member."""
        [scales] = arrays([packed[f"{name}.weight_scale"]])
        begin = 0
        for one in module["fused"]:
            [own] = arrays([pieces[f"{one['module']}.weight_scale_inv"]])
            of_member = scales[begin : begin + one["outputs"]]
            self.assertTrue((of_member == own.flat[0]).all() and (own == own.flat[0]).all(), name)
            begin += one["outputs"]
        self.assertEqual(begin, scales.size)

    def test_every_checkpoint_fuses_and_verifies(self):
        fused = 0
        for source in sorted(CHECKPOINTS.iterdir()):
            if not (source / "config.json").exists():
                continue
            for target in TARGETS:
                with self.subTest(checkpoint=source.name, target=target):
                    plain = self.run_tool(
                        "convert", source, "-o", self.scratch / "plain", "--target", target
                    )
                    if plain.returncode == 5:
                        continue  # nothing of it can be packed for this target
                    self.assertEqual(plain.returncode, 0, plain.stderr)
                    out = self.convert(source, target, "--fuse", name="fused")
                    fused += self.check_fused(source, out, self.scratch / "plain")
                shutil.rmtree(self.scratch / "plain", ignore_errors=True)
                shutil.rmtree(self.scratch / "fused", ignore_errors=True)
        self.assertGreaterEqual(fused, 100)

    def test_a_tensor_that_loaders_would_put_into_a_fused_module_is_refused(self):
        source = self.scratch / "stray"
        source.mkdir()
        shutil.copyfile(CHECKPOINTS / "awq-gemm-g128" / "config.json", source / "config.json")
        tensors = harness.read_tensors(CHECKPOINTS / "awq-gemm-g128")
        name = "model.layers.0.mlp.up_proj.weight_scale"
        tensors[name] = ("F16", [1], b"\x00\x3c")
        (source / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        for options in ([], ["--fuse"]):
            result = self.run_tool("convert", source, "-o", self.scratch / "out", "-t", "vllm-cpu", *options)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn(f"{name}: the packed module needs this name", result.stderr)
            self.assertFalse((self.scratch / "out").exists())

    def check_fused(self, source, out, plain):
        report = self.checked_json(
            self.run_ok("verify", out, "--source", source, "--json").stdout, "verify"
        )
        self.assertEqual(report["verdict"], "passed")
        manifest = harness.manifest(out)
        self.checked_json((out / "prepack.json").read_text(), "manifest")
        members = harness.manifest(plain)["modules"]
        packed, pieces = harness.read_tensors(out), harness.read_tensors(plain)
        count = 0
        stacks = {name for name, module in manifest["modules"].items() if "experts" in module}
        for name, module in manifest["modules"].items():
            if name in stacks:
                continue  # stacks_test.py
            if "fused" not in module:
                self.assertNotIn(name, FUSED)
                continue
            count += 1
            self.assertEqual([one["module"] for one in module["fused"]], FUSED[name])
            self.assertEqual(
                [one["outputs"] for one in module["fused"]],
                [members[one]["shape"][0] for one in FUSED[name]],
            )
            for one in FUSED[name]:
                self.assertNotIn(one, manifest["modules"])
            if module["layout"] in INTERLEAVED:
                continue
            for part in module["parts"]:
                if part == "input_order" or part.startswith("input_"):
                    for one in FUSED[name]:
                        self.assertEqual(packed[f"{name}.{part}"], pieces[f"{one}.{part}"])
                    continue
                if part == "weight_scale" and f"{FUSED[name][0]}.{part}" not in pieces:
                    self.assert_scales_by_channel(packed, pieces, module, name)
                    continue
                self.assert_concatenated(
                    packed[f"{name}.{part}"],
                    [pieces[f"{one}.{part}"] for one in FUSED[name]],
                    f"{module['layout']}: {name}.{part}",
                )
        # All that is not fused is as it is without.
        apart = set(manifest["modules"]) - set(FUSED) - stacks
        for name in apart:
            for part in members[name]["parts"]:
                self.assertEqual(packed[f"{name}.{part}"], pieces[f"{name}.{part}"])
        return count

    def test_biases_are_fused_in_the_same_order(self):
        source = self.copy_checkpoint()
        stored = harness.read_tensors(source)
        new = biases({module: stored[f"{module}.weight_packed"][1][0] for module in QKV})
        add_tensors(source, lambda tensors: tensors.update(new))
        out = self.convert(source, "vllm-cpu", "--fuse", "--verify")
        whole = harness.read_tensors(out)[f"{LAYER}.self_attn.qkv_proj.bias"]
        self.assertEqual(whole[2], b"".join(data for _, _, data in new.values()))

    def test_what_does_not_go_together_stays_apart(self):
        def some_bias(tensors):
            tensors.update(biases({QKV[0]: tensors[f"{QKV[0]}.weight_packed"][1][0]}))

        def other_bias(tensors):
            for module in QKV:
                tensors.update(biases({module: tensors[f"{module}.weight_packed"][1][0]}))
            dtype, shape, data = tensors[f"{QKV[2]}.bias"]
            tensors[f"{QKV[2]}.bias"] = ("F16", shape, data)

        def taken(tensors):
            tensors[f"{LAYER}.self_attn.qkv_proj.weight"] = ("BF16", [1], b"\0\0")

        def other_scales(tensors):
            dtype, shape, data = tensors[f"{QKV[1]}.weight_scale"]
            bits = numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16
            halves = bits.view(numpy.float32).astype(numpy.float16)
            tensors[f"{QKV[1]}.weight_scale"] = ("F16", shape, halves.tobytes())

        for change, why in (
            (some_bias, "only some of the layers have a bias"),
            (other_bias, "their biases have different dtypes"),
            (taken, "the checkpoint already has tensors with this name"),
            (other_scales, "q_proj has BF16 scales, k_proj F16"),
        ):
            with self.subTest(why=why):
                source = self.copy_checkpoint()
                add_tensors(source, change)
                out = self.scratch / "out"
                result = self.run_ok(
                    "convert", source, "-o", out, "-t", "vllm-cpu", "--fuse", "--json"
                )
                report = self.checked_json(result.stdout, "convert")
                self.assertEqual(report["apart"], {f"{LAYER}.self_attn.qkv_proj": why})
                self.assertEqual(report["fused_modules"], 1)
                text = self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse").stdout
                self.assertIn(f"not fused: {why} ({LAYER}.self_attn.qkv_proj)", text)
                self.run_ok("verify", out, "--source", source)
                shutil.rmtree(source)
                shutil.rmtree(out)

    def test_a_missing_sibling_keeps_the_others_apart(self):
        source = self.copy_checkpoint()
        config = json.loads((source / "config.json").read_text())
        config["quantization_config"]["ignore"].append(GATE_UP[1])
        (source / "config.json").write_text(json.dumps(config))

        def dequantize(tensors):
            n, columns = tensors[f"{GATE_UP[1]}.weight_packed"][1]
            for part in ("weight_packed", "weight_scale", "weight_shape"):
                del tensors[f"{GATE_UP[1]}.{part}"]
            tensors[f"{GATE_UP[1]}.weight"] = ("BF16", [n, columns * 8], bytes(n * columns * 16))

        add_tensors(source, dequantize)
        result = self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse", "--json")
        plan = self.checked_json(result.stdout, "plan")
        self.assertEqual(
            plan["apart"], {f"{LAYER}.mlp.gate_up_proj": "up_proj is missing or not quantized"}
        )
        made_of = {module["module"]: module["made_of"] for module in plan["modules"]}
        self.assertEqual(made_of[f"{LAYER}.self_attn.qkv_proj"], QKV)
        self.assertEqual(made_of[GATE_UP[0]], [])

    def test_schemes_that_differ_keep_them_apart(self):
        out = self.scratch / "out"
        args = ("-o", out, "-t", "vllm-cpu", "--fuse", "--json", "--scheme", "q_proj=w4a8")
        result = self.run_ok("convert", CHECKPOINTS / "ct-w4a16-g128-sym", *args)
        report = self.checked_json(result.stdout, "convert")
        why = "--scheme gives them different arithmetic"
        self.assertEqual(report["apart"], {f"{LAYER}.self_attn.qkv_proj": why})
        self.run_ok("verify", out, "--source", CHECKPOINTS / "ct-w4a16-g128-sym")
        whole = self.convert(
            CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu", "--fuse", "--scheme", "self_attn=w4a8",
            "--verify", name="whole",
        )  # fmt: skip
        modules = harness.manifest(whole)["modules"]
        self.assertEqual(modules[f"{LAYER}.self_attn.qkv_proj"]["layout"], "vllm-cpu/int4-w4a8")

    def test_parts_of_a_fused_conversion_merge(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        out = self.scratch / "merged"
        for part in (1, 2, 3):
            self.run_ok(
                "convert", source, "-o", out, "-t", "vllm-cpu", "--fuse", "--part", f"{part}/3"
            )
        self.run_ok("merge", out)
        whole = self.convert(source, "vllm-cpu", "--fuse", name="whole")
        self.assertEqual(harness.hashes(out), harness.hashes(whole))
        self.assertEqual(
            {name: module.get("fused") for name, module in harness.manifest(out)["modules"].items()},
            {name: m.get("fused") for name, m in harness.manifest(whole)["modules"].items()},
        )
        self.run_ok("verify", out, "--source", source)


if __name__ == "__main__":
    unittest.main()
