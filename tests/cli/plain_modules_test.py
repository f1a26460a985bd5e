"""`--fuse` packs the head and the attention that no quantizer touched, where vLLM would pack them at every start."""

import json
import shutil
import unittest

import numpy

import harness
from harness import CHECKPOINTS

LAYER = "model.layers.0.self_attn"
QKV = [f"{LAYER}.{name}_proj" for name in "qkv"]
MIB = 1 << 20


def weights(rows, columns, seed):
    random = numpy.random.default_rng(seed)
    return ("BF16", [rows, columns], random.integers(0x3C00, 0x3F80, rows * columns, numpy.uint16).tobytes())


def bias(rows, seed):
    dtype, _, data = weights(rows, 1, seed)
    return (dtype, [rows], data)


def in_blocks(plain):
    """The bytes of vllm-cpu/bf16-vnni: per 32 output channels, two input channels of each side by side."""
    _, (n, k), data = plain
    elements = numpy.frombuffer(data, numpy.uint16).reshape(n // 32, 32, k // 2, 2)
    return numpy.ascontiguousarray(elements.transpose(0, 2, 1, 3)).tobytes()


class PlainModules(harness.ToolTest):
    def source(self, change=lambda tensors, config: None, name="source"):
        """gpt-oss with a head, and an attention in the first layer, of 1 MiB each."""
        folder = self.scratch / name
        shutil.copytree(CHECKPOINTS / "gpt-oss-mxfp4", folder)
        tensors = harness.read_tensors(folder)
        rows = {"q": 4096, "k": 2048, "v": 2048}
        for seed, (one, n) in enumerate(rows.items()):
            tensors[f"{LAYER}.{one}_proj.weight"] = weights(n, 64, seed)
            tensors[f"{LAYER}.{one}_proj.bias"] = bias(n, 10 + seed)
        tensors[f"{LAYER}.o_proj.weight"] = weights(64, 8192, 4)
        tensors["lm_head.weight"] = weights(8192, 64, 5)
        config = json.loads((folder / "config.json").read_text())
        change(tensors, config)
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder

    def plain_modules(self, source, *options):
        """Those that were packed, by their names."""
        out = self.scratch / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu", *options)
        self.run_ok("verify", out)
        modules = harness.manifest(out)["modules"]
        return {name for name, module in modules.items() if module["layout"] == "vllm-cpu/bf16-vnni"}

    def test_head_and_attention_are_packed_and_verified(self):
        source = self.source()
        stored = harness.read_tensors(source)
        fused = f"{LAYER}.qkv_proj"
        self.assertEqual(self.plain_modules(source, "--fuse"), {"lm_head", fused, f"{LAYER}.o_proj"})
        packed = harness.read_tensors(self.scratch / "out")
        for module in ("lm_head", f"{LAYER}.o_proj"):
            self.assertEqual(packed[f"{module}.weight"][2], in_blocks(stored[f"{module}.weight"]), module)
        together = b"".join(in_blocks(stored[f"{one}.weight"]) for one in QKV)
        self.assertEqual(packed[f"{fused}.weight"], ("BF16", [8192, 64], together))
        halves = numpy.frombuffer(b"".join(stored[f"{one}.bias"][2] for one in QKV), numpy.uint16)
        widened = numpy.frombuffer(packed[f"{fused}.bias"][2], numpy.uint32)
        self.assertTrue(numpy.array_equal(widened, halves.astype(numpy.uint32) << 16))
        # Smaller layers stay as they are.
        self.assertEqual(packed["model.layers.1.self_attn.q_proj.weight"][1], [64, 64])
        report = json.loads(self.run_ok("verify", self.scratch / "out", "--json").stdout)
        self.assertEqual(report["verdict"], "passed")
        self.assertEqual({level["state"] for level in report["levels"].values() if level["asked"]}, {"passed"})

    def test_plan_says_so(self):
        source = self.source()
        plan = json.loads(self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse", "--json").stdout)
        [head] = [module for module in plan["modules"] if module["module"] == "lm_head"]
        self.assertEqual(head["layout"], "vllm-cpu/bf16-vnni")
        text = self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse").stdout
        self.assertIn("oneDNN matmul on plain weights", text)

    def test_inspect_finds_a_weight_in_folder_and_source(self):
        self.plain_modules(self.source(), "--fuse")
        found = self.run_ok("inspect", self.scratch / "out", "--find", QKV[1], 33, 5).stdout
        self.assertIn(f"{QKV[1]}.weight", found)
        self.assertIn(f"{LAYER}.qkv_proj.weight", found)

    def test_without_fuse_they_stay(self):
        self.assertEqual(self.plain_modules(self.source()), set())

    def test_what_is_not_packed(self):
        def tie(tensors, config):
            config["tie_word_embeddings"] = True

        def odd_vocabulary(tensors, config):
            tensors["lm_head.weight"] = weights(8192 + 32, 64, 5)

        def half_precision(tensors, config):
            tensors[QKV[1] + ".weight"] = ("F16", *tensors[QKV[1] + ".weight"][1:])

        def odd_channels(tensors, config):
            tensors[QKV[2] + ".weight"], tensors[QKV[2] + ".bias"] = weights(2064, 64, 3), bias(2064, 3)

        def short_bias(tensors, config):
            tensors[f"{LAYER}.o_proj.bias"] = bias(32, 3)

        attention = {f"{LAYER}.qkv_proj", f"{LAYER}.o_proj"}
        everything = {"lm_head", *attention}
        cases = [
            (tie, attention),
            (odd_vocabulary, attention),
            (half_precision, everything - {f"{LAYER}.qkv_proj"}),
            (odd_channels, everything - {f"{LAYER}.qkv_proj"}),
            (short_bias, everything - {f"{LAYER}.o_proj"}),
        ]
        for change, expected in cases:
            with self.subTest(change=change.__name__):
                source = self.source(change, change.__name__)
                self.assertEqual(self.plain_modules(source, "--fuse"), expected)

    def test_the_op_takes_bf16_only(self):
        source = self.source()
        plan = self.run_tool("plan", source, "-t", "vllm-cpu", "--fuse", "--dtype", "f32", "--json").stdout
        self.assertNotIn("lm_head", [module["module"] for module in json.loads(plan)["modules"]])

    def test_an_encoder_keeps_its_attention(self):
        def encoder(tensors, config):
            for name in [*QKV, f"{LAYER}.o_proj"]:
                tensors[f"vision_{name}.weight"] = tensors[f"{name}.weight"]

        source = self.source(encoder)
        self.assertEqual(self.plain_modules(source, "--fuse"), {"lm_head", f"{LAYER}.qkv_proj", f"{LAYER}.o_proj"})

    def test_a_changed_weight_fails_verification(self):
        source = self.source()
        self.plain_modules(source, "--fuse")
        other = self.source(lambda tensors, config: tensors.update({"lm_head.weight": weights(8192, 64, 6)}), "other")
        result = self.run_tool("verify", self.scratch / "out", "--source", other)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("lm_head", result.stdout + result.stderr)

    def test_another_conversion_takes_them_apart(self):
        source = self.source()
        self.plain_modules(source, "--fuse")
        back = self.scratch / "back"
        self.run_ok("convert", self.scratch / "out", "-o", back, "-t", "mxfp4")
        stored, restored = harness.read_tensors(source), harness.read_tensors(back)
        for name in ["lm_head", *QKV, f"{LAYER}.o_proj"]:
            self.assertEqual(restored[f"{name}.weight"], stored[f"{name}.weight"], name)


if __name__ == "__main__":
    unittest.main()
