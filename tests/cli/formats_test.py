"""Every format on the command line: real checkpoints are checked, packed and verified."""

import math
import shutil
import struct
import sys
import unittest

import harness
from harness import CHECKPOINTS, TARGETS, WARNED


def planned():
    """By checkpoint and target: how many modules the target takes with --dtype bf16, of fixtures/plans.txt (which
    tests/convert/plan_table_test.cpp writes, and holds the plans against)."""
    counts = {}
    for line in (harness.ROOT / "fixtures" / "plans.txt").read_text().splitlines():
        if not line.startswith(" "):
            head = line
            counts[head] = 0
        elif not (fate := line.split(maxsplit=1))[1].startswith("kept: "):
            counts[head] += int(fate[0])
    return {
        (source.name, target): counts.get(f"{plain} --dtype bf16", counts[plain])
        for source in sorted(CHECKPOINTS.iterdir())
        for target in TARGETS
        for plain in [f"{source.name} --target {target}"]
    }


# Ways to damage the tensors of a checkpoint, {name: (dtype, shape, bytes)}.
def without(part):
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name}


def copied(source, target):
    def function(tensors):
        copies = {name.replace(source, target): tensor for name, tensor in tensors.items() if source in name}
        return {**tensors, **copies}

    return function


def exchanged(a, b):
    return lambda tensors: {**tensors, a: tensors[b], b: tensors[a]}


def inverted(suffix):
    """Reciprocals of scales: exponents e become 254 - e."""

    def one(dtype, shape, data):
        if dtype in ("U8", "F8_E8M0"):
            return dtype, shape, bytes(254 - byte for byte in data)
        if dtype == "BF16":
            wide = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
            narrow = one("F32", shape, wide)[2]
            return dtype, shape, b"".join(narrow[i + 2 : i + 4] for i in range(0, len(narrow), 4))
        numbers = struct.unpack(f"<{len(data) // 4}f", data)
        return dtype, shape, struct.pack(f"<{len(numbers)}f", *(1 / number for number in numbers))

    return lambda tensors: {
        name: one(*tensor) if name.endswith(suffix) else tensor for name, tensor in tensors.items()
    }


def first_expert(tensors):
    return {
        name: (d, [1, *s[1:]], data[: len(data) // s[0]]) if ".experts." in name and s else (d, s, data)
        for name, (d, s, data) in tensors.items()
    }


def transposed(name):
    def function(tensors):
        dtype, shape, data = tensors[name]
        return {**tensors, name: (dtype, shape[::-1], data)}

    return function


def last_scale(name, change):
    """Changes the last of the scales in a BF16 tensor: that of the last head, or the only one."""

    def function(tensors):
        dtype, shape, data = tensors[name]
        (scale,) = struct.unpack("<f", b"\0\0" + data[-2:])
        return {**tensors, name: (dtype, shape, data[:-2] + struct.pack("<f", change(scale))[2:])}

    return function


MLP = "model.layers.0.mlp."
HEADS = "model.layers.2.self_attn."
# What goes wrong in the field with FP8, MX and NVFP4: checkpoint, damage, exit code, finding.
DAMAGED = [
    ("ct-nvfp4", inverted("weight_global_scale"), 0, "weights-size"),
    ("modelopt-nvfp4", inverted("weight_scale_2"), 0, "weights-size"),
    ("modelopt-nvfp4-gpt-oss", inverted("weight_scale_2"), 0, "weights-size"),
    ("quark-nvfp4", inverted("weight_scale_2"), 0, "weights-size"),
    ("mxfp8-minimax", inverted("weight_scale_inv"), 0, "weights-size"),
    ("fp8-deepseek-v4", inverted(".scale"), 0, "weights-size"),
    ("modelopt-fp8", inverted("weight_scale"), 0, "weights-size"),
    ("fp8-minimax-fmt", inverted("weight_scale_inv"), 0, "weights-size"),
    ("quark-fp8", inverted("weight_scale"), 0, "weights-size"),
    ("ct-fp8-block", inverted("weight_scale"), 0, "weights-size"),
    ("fbgemm-fp8", inverted("weight_scale"), 0, "weights-size"),
    ("modelopt-nvfp4", exchanged(MLP + "gate_proj.weight_scale", MLP + "up_proj.weight_scale"), 0, "scale-unrelated"),
    ("ct-nvfp4a16", exchanged(MLP + "gate_proj.weight_scale", MLP + "up_proj.weight_scale"), 0, "scale-unrelated"),
    ("fp8-deepseek-v4", transposed("layers.0.attn.wq_a.scale"), 3, "tensor-shape"),
    ("fp8-deepseek-v4", without("layers.1.ffn.experts.1.w2.scale"), 3, "tensor-missing"),
    ("fp8-deepseek-v4", without("layers.1.ffn.experts.1."), 3, "expert-missing"),
    ("fp8-deepseek-v4", without("layers.1.ffn.experts.1.w2."), 3, "expert-missing"),
    ("fp8-deepseek-v4", copied("layers.1.ffn.experts.0.", "layers.1.ffn.experts.1."), 0, "module-copied"),
    ("mxfp8-minimax", without("experts.1.w1.weight_scale_inv"), 3, "tensor-missing"),
    ("mxfp8-minimax", without("experts.1."), 3, "expert-missing"),
    ("mxfp8-minimax", copied("experts.0.", "experts.1."), 0, "module-copied"),
    ("modelopt-nvfp4-gpt-oss", first_expert, 3, "expert-missing"),
    ("gpt-oss-mxfp4", first_expert, 3, "expert-missing"),
    ("ct-kimi-k3", without("experts.1.w2."), 3, "expert-missing"),
    ("ct-kimi-k3", without("experts.1.w2.weight_scale"), 3, "tensor-missing"),
    ("ct-kimi-k3", copied("experts.0.", "experts.1."), 0, "module-copied"),
    ("ct-mobile", without("embed_tokens_per_layer.weight_scale"), 3, "tensor-missing"),
    ("ct-fp8-tensor", last_scale("model.layers.0.self_attn.k_scale", lambda scale: 0.0), 1, "cache-scale-bad"),
    ("ct-fp8-tensor", last_scale("model.layers.0.self_attn.v_scale", lambda scale: -scale), 1, "cache-scale-bad"),
    ("ct-cache-heads", last_scale(HEADS + "k_scale", lambda scale: 0.0), 1, "cache-scale-bad"),
    ("ct-cache-heads", last_scale(HEADS + "v_scale", lambda scale: math.nan), 1, "cache-scale-bad"),
    ("ct-cache-heads", last_scale(HEADS + "k_scale", lambda scale: -scale), 1, "cache-scale-bad"),
    ("ct-cache-heads", last_scale(HEADS + "v_scale", lambda scale: 1000 * scale), 1, "cache-scale-bad"),
    ("ct-cache-heads", last_scale(HEADS + "k_scale", lambda scale: scale / 1000), 1, "cache-scale-bad"),
    ("ct-cache-heads", without(HEADS + "v_scale"), 0, "cache-scale-missing"),
]


class Formats(harness.ToolTest):
    def test_convert_and_verify(self):
        for (name, target), packed in planned().items():
            with self.subTest(checkpoint=name, target=target):
                source = CHECKPOINTS / name
                out = self.scratch / f"{name}-{target}"
                before = harness.snapshot(source)
                # AWQ-packed exports are f16 models; zentorch computes in bf16 only.
                result = self.run_tool("convert", source, "-o", out, "-t", target, "--dtype", "bf16", "--json")
                self.assertEqual(harness.snapshot(source), before)
                if packed == 0:
                    self.assertEqual(result.returncode, 5, result.stderr)
                    self.assertFalse(out.exists())
                    continue
                self.assertEqual(result.returncode, 0, result.stderr)
                report = self.checked_json(result.stdout, "convert")
                self.assertEqual(report["packed_modules"], packed)
                result = self.run_tool("verify", out, "--source", source, "--json")
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                verified = self.checked_json(result.stdout, "verify")
                self.assertEqual(verified["verdict"], "passed")
                self.assertEqual(len(verified["modules"]), packed)

    def test_real_checkpoints_are_sound(self):
        for source in sorted(CHECKPOINTS.iterdir()):
            with self.subTest(checkpoint=source.name):
                result = self.run_tool("check", source, "--json")
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                report = self.checked_json(result.stdout, "check")
                warnings = [f["id"] for f in report["findings"] if f["severity"] != "info"]
                self.assertEqual(warnings, WARNED.get(source.name, []))

    def test_what_goes_wrong_with_small_floats_is_found(self):
        for number, (name, damage, code, finding) in enumerate(DAMAGED):
            with self.subTest(checkpoint=name, number=number, finding=finding):
                source = CHECKPOINTS / name
                folder = self.scratch / str(number)
                folder.mkdir()
                for path in source.glob("*.json"):
                    shutil.copyfile(path, folder / path.name)
                tensors = damage(harness.read_tensors(source))
                (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
                result = self.run_tool("check", folder, "--json")
                self.assertEqual(result.returncode, code, result.stdout + result.stderr)
                report = self.checked_json(result.stdout, "check")
                self.assertIn(finding, [found["id"] for found in report["findings"]])

    def test_an_embedding_stays_as_it_is_stored_or_becomes_plain(self):
        source, name = CHECKPOINTS / "ct-mobile", "model.embed_tokens_per_layer"
        stored = harness.read_tensors(source)
        kept = harness.read_tensors(self.convert(source, "vllm-cpu"))
        for part in ("weight_packed", "weight_scale", "weight_shape"):
            self.assertEqual(kept[f"{name}.{part}"], stored[f"{name}.{part}"])
        out = self.convert(source, "vllm-cpu", "--fallback", "dequantize", name="plain")
        plain = harness.read_tensors(out)
        self.assertNotIn(f"{name}.weight_packed", plain)
        self.assertEqual(plain[f"{name}.weight"][:2], ("BF16", [32, 64]))
        self.run_ok("verify", out, "--source", source)
        # Another module is a better reason to refuse the model, if there is one.
        result = self.run_tool("convert", source, "-o", self.scratch / "refused", "-t", "awq")
        self.assertEqual(result.returncode, 5)
        self.assertIn("awq cannot hold it", result.stderr)
        self.assertNotIn("embed", result.stderr)
        result = self.run_tool("convert", source, "-o", self.scratch / "refused", "-t", "compressed-tensors")
        self.assertEqual(result.returncode, 5)
        self.assertIn(f"{name}: compressed-tensors cannot hold it: ", result.stderr)
        self.assertIn("the module is an embedding, which prepack writes in bf16 only", result.stderr)

    def test_every_json_follows_its_schema(self):
        for source in sorted(CHECKPOINTS.iterdir()):
            with self.subTest(checkpoint=source.name):
                result = self.run_tool("inspect", source, "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.checked_json(result.stdout, "inspect")
                result = self.run_tool("plan", source, "-t", "vllm-cpu", "--json")
                self.assertIn(result.returncode, (0, 5), result.stderr)
                self.checked_json(result.stdout, "plan")

    def test_one_model_in_two_layouts_is_identical(self):
        for other in ("awq-gemv-g128", "awq-gemvfast-g128"):
            result = self.run_tool(
                "diff", CHECKPOINTS / "awq-gemm-g128", CHECKPOINTS / other, "--json"
            )
            self.assertEqual(result.returncode, 0, result.stdout)
            modules = self.checked_json(result.stdout, "diff")["modules"]
            self.assertEqual([m["verdict"] for m in modules], ["identical"] * 7)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
