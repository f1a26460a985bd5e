"""GGUF files as the source of convert, plan, verify and diff, and inspect on single weights.

A checkpoint goes into a GGUF file and comes out again. What comes out is compared with what the quantizers' own code
decodes (fixtures/truth), and with the tensors of the checkpoint that are not quantized.
"""

import json
import pathlib
import shutil
import struct
import sys
import unittest

import gguf
import numpy
from gguf_harness import GgufTest, checkpoint, truth_of
from harness import CHECKPOINTS, ROOT, read_tensors

sys.path[:0] = [str(ROOT / "tests" / "attack"), str(ROOT / "integrations" / "python" / "src")]
import prepack
import raw

# What a checkpoint becomes in GGUF is in gguf_convert_test.py. The minima of Q4_1 are zero points again.
CASES = ["ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "awq-gemm-g128", "gptqmodel-w8-sym", "ar-w3-sym", "quark-uint4",
         "ct-mxfp4", "ct-nvfp4", "ct-int8-moe", "gpt-oss-mxfp4"]
FLOATS = {"BF16": 2, "F16": 2, "F32": 4}


def floats(tensor):
    dtype, shape, data = tensor
    if dtype == "BF16":
        return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return numpy.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[dtype]).astype("<f4").reshape(shape)


def to_bf16(values):
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).view("<f4")


def int4_weights(tensors, module):
    """A module of compressed-tensors, by its own arithmetic."""
    packed, scales = tensors[f"{module}.weight_packed"], floats(tensors[f"{module}.weight_scale"])
    n, k = numpy.frombuffer(tensors[f"{module}.weight_shape"][2], "<i8")
    words = numpy.frombuffer(packed[2], "<u4").reshape(n, -1)
    codes = (words[:, :, None] >> (4 * numpy.arange(8, dtype="<u4"))) & 15
    steps = codes.reshape(n, -1)[:, :k].astype("<f4") - 8
    return steps * numpy.repeat(scales, k // scales.shape[1], axis=1)


class GgufSource(GgufTest):
    def to_folder(self, name, target, *more, source=None):
        out = self.scratch / f"{name}-{target}"
        shutil.rmtree(out, ignore_errors=True)
        result = self.run_ok("convert", source or self.output, "-o", out, "-t", target, "--like", CHECKPOINTS / name,
                             "--json", *more)
        self.report = self.checked_json(result.stdout, "convert")
        return out

    @staticmethod
    def weights_of(tensors, module):
        """A module of a bf16 checkpoint; gpt-oss has its experts in stacks [E, K, N]."""
        if f"{module}.weight" in tensors:
            return floats(tensors[f"{module}.weight"])
        stack, _, expert = module.rpartition(".")
        return floats(tensors[stack])[int(expert)].T

    def assert_weights(self, name, tensors):
        for module, parts in truth_of(name).items():
            weights = self.weights_of(tensors, module)
            for which, expected in parts.items():
                first = 0 if which == "rows_first16" else len(weights) - len(expected)
                actual, rounded = weights[first : first + len(expected)], to_bf16(expected)
                if name == "ct-nvfp4":  # the reciprocal of its factor was rounded
                    self.assertTrue((abs(actual - rounded) <= 2**-7 * abs(rounded)).all(), module)
                    self.assertGreater((actual == rounded).mean(), 0.99)
                else:
                    self.assertTrue((actual == rounded).all(), f"{name}: {module} {which}")

    def assert_plain_tensors(self, name, tensors):
        quantized = {module for module in truth_of(name)}
        kept = 0
        for tensor, stored in read_tensors(CHECKPOINTS / name).items():
            module = tensor.rpartition(".")[0]
            if module in quantized or ".experts" in tensor or stored[0] not in FLOATS:
                continue
            if tensor.endswith((".k_scale", ".v_scale")):
                continue
            self.assertEqual(tensors[tensor], stored, tensor)
            kept += 1
        self.assertGreater(kept, 2)

    def test_what_comes_out_is_what_the_quantizer_made(self):
        for name in CASES:
            with self.subTest(name):
                self.convert_gguf(name, "--force")
                tensors = read_tensors(self.to_folder(name, "bf16"))
                self.assert_weights(name, tensors)
                self.assert_plain_tensors(name, tensors)
                config = json.loads((self.scratch / f"{name}-bf16" / "config.json").read_text())
                self.assertNotIn("quantization_config", config)

    def test_codes_and_scales_come_out_as_they_went_in(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        out = self.to_folder("ct-w4a16-g128-sym", "compressed-tensors", "--verify")
        tensors, source = read_tensors(out), read_tensors(CHECKPOINTS / "ct-w4a16-g128-sym")
        for module in truth_of("ct-w4a16-g128-sym"):
            self.assertEqual(tensors[f"{module}.weight_packed"], source[f"{module}.weight_packed"])
            self.assertTrue((int4_weights(tensors, module) == int4_weights(source, module)).all(), module)
            self.assertEqual(tensors[f"{module}.weight_scale"][1], source[f"{module}.weight_scale"][1])

    def test_every_target_takes_it_and_verify_proves_it(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        for target in ("vllm-cpu", "zentorch", "onednn", "gptq", "awq", "compressed-tensors", "auto-round", "bf16"):
            with self.subTest(target):
                options = ["--scales", "exact"] if target == "zentorch" else []
                out = self.to_folder("ct-w4a16-g128-sym", target, *options)
                source = ["--source", self.output, "--like", CHECKPOINTS / "ct-w4a16-g128-sym"]
                result = self.run_tool("verify", out, *source, "--engine", "reference", "--json")
                report = self.checked_json(result.stdout, "verify")
                self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
                states = {level["state"] for name, level in report["levels"].items() if name != "quality"}
                self.assertEqual(states, {"passed"})

    def test_verify_decodes_every_type_by_itself(self):
        for name in CASES:
            with self.subTest(name):
                self.convert_gguf(name, "--force")
                out = self.to_folder(name, "vllm-cpu", "--fallback", "dequantize")
                result = self.run_tool("verify", out, "--source", self.output, "--like", CHECKPOINTS / name,
                                       "--engine", "reference", "--json")
                self.assertEqual(result.returncode, 0, result.stderr + result.stdout)

    def test_k_quants_are_refused_by_name_or_dequantized(self):
        self.convert_gguf("ct-widths")
        like = ["--like", checkpoint("ct-widths")]
        self.assert_fails(5, ["Q4_K has scales of scales", "--fallback dequantize"], "convert", self.output, "-o",
                          self.scratch / "none", "-t", "bf16", *like)
        out = self.scratch / "dequantized"
        self.run_ok("convert", self.output, "-o", out, "-t", "bf16", "--fallback", "dequantize", *like)
        self.assert_weights("ct-widths", read_tensors(out))
        packed = self.scratch / "packed"
        self.run_ok("convert", self.output, "-o", packed, "-t", "vllm-cpu", "--fallback", "dequantize", *like)
        self.run_ok("verify", packed, "--engine", "reference")  # it knows where the file is

    def test_verify_finds_that_the_file_has_changed(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        out = self.to_folder("ct-w4a16-g128-sym", "vllm-cpu")
        tensor = next(t for t in gguf.GGUFReader(self.output).tensors if t.name == "blk.0.attn_q.weight")
        data = bytearray(self.output.read_bytes())
        data[int(tensor.data_offset) + 18 * 5 + 2] ^= 1
        self.output.write_bytes(data)
        result = self.run_tool("verify", out, "--source", self.output, "--engine", "reference", "--json")
        self.assertEqual(result.returncode, 1)
        problems = json.loads(result.stdout)["levels"]["exactness"]["problems"]
        self.assertIn("model.layers.0.self_attn.q_proj", {problem["module"] for problem in problems})

    def test_diff_says_which_weights_the_file_holds(self):
        for name, verdict in (("ct-w4a16-g128-sym", "identical"), ("gptqmodel-w8-sym", "identical"),
                              ("ct-mxfp4", "identical"), ("gpt-oss-mxfp4", "identical")):
            with self.subTest(name):
                self.convert_gguf(name, "--force")
                for sides in ((CHECKPOINTS / name, self.output), (self.output, CHECKPOINTS / name)):
                    report = self.checked_json(self.run_ok("diff", *sides, "--json").stdout, "diff")
                    self.assertEqual({module["verdict"] for module in report["modules"]}, {verdict})
                    self.assertEqual({tensor["verdict"] for tensor in report["tensors"]}, {"identical"})

    def test_diff_counts_what_was_rounded(self):
        name = "ct-w4a16-g32-asym"
        self.convert_gguf(name)
        result = self.run_tool("diff", CHECKPOINTS / name, self.output, "--json")
        report = self.checked_json(result.stdout, "diff")
        reader = {tensor.name: tensor for tensor in gguf.GGUFReader(self.output).tensors}
        stored = gguf.quants.dequantize(reader["blk.0.ffn_down.weight"].data, gguf.GGMLQuantizationType.Q4_1)
        expected = truth_of(name)["model.layers.0.mlp.down_proj"]["rows_first16"]
        module = next(m for m in report["modules"] if m["module"] == "model.layers.0.mlp.down_proj")
        self.assertGreaterEqual(module["differing"], int((stored[:16] != expected).sum()))
        self.assertGreater(module["differing"], 0)
        self.assertLess(module["max_absolute"], 2**-9 * abs(expected).max())

    def test_two_files(self):
        self.convert_gguf("ct-w4a16-g32-asym")
        other = self.scratch / "exact.gguf"
        self.run_ok("convert", *self.options("ct-w4a16-g32-asym", "-o", other, "--exact"))
        report = json.loads(self.run_tool("diff", self.output, other, "--json").stdout)
        self.assertEqual({len(report["modules"])}, {7})
        self.assertEqual(json.loads(self.run_ok("diff", other, other, "--json").stdout)["modules"][0]["verdict"], "identical")

    def test_a_file_from_elsewhere(self):
        name = "ct-w4a16-g128-sym"
        self.convert_gguf(name)
        pathlib.Path(f"{self.output}.prepack.json").unlink()
        foreign = self.scratch / "foreign.gguf"
        self.rewrite_without_key(foreign)
        self.assert_fails(5, ["prepack has not made this file", "--llama-cpp DIR"], "plan", foreign, "-t", "vllm-cpu")
        self.assert_fails(2, ["--like FOLDER"], "plan", foreign, "-t", "vllm-cpu", "--llama-cpp", self.llama_cpp,
                          "--python", self.python)
        asked = ["--llama-cpp", self.llama_cpp, "--python", self.python]
        tensors = read_tensors(self.to_folder(name, "bf16", *asked, source=foreign))
        self.assert_weights(name, tensors)
        self.assert_plain_tensors(name, tensors)
        # Without --like, the other side says the names.
        report = json.loads(self.run_ok("diff", CHECKPOINTS / name, foreign, *asked, "--json").stdout)
        self.assertEqual({module["verdict"] for module in report["modules"]}, {"identical"})
        # Without llama.cpp, tensors have the names of the file.
        report = json.loads(self.run_tool("diff", foreign, foreign, "--json").stdout)
        self.assertIn("blk.0.attn_q", {module["module"] for module in report["modules"]})

    def rewrite_without_key(self, path):
        """The same file without the hash of the manifest: its key gets another name."""
        data = self.output.read_bytes()
        self.assertEqual(data.count(b"general.prepack.manifest"), 1)
        path.write_bytes(data.replace(b"general.prepack.manifest", b"general.prepack.elsewher"))

    def test_split_files(self):
        folder = self.scratch / "parts"
        name = "ct-w4a16-g128-sym"
        self.run_ok("convert", *self.options(name, "-o", folder, "--shard-size", "400K"))
        first = sorted(folder.glob("*.gguf"))[1]
        tensors = read_tensors(self.to_folder(name, "bf16", source=first))
        self.assert_weights(name, tensors)

    def test_inspect_finds_a_weight(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        reader = {tensor.name: tensor for tensor in gguf.GGUFReader(self.output).tensors}
        tensor = reader["blk.0.ffn_down.weight"]
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        data = self.output.read_bytes()
        module = "model.layers.0.mlp.down_proj"
        for n, k in ((0, 0), (5, 100), (383, 1535), (7, 49)):
            result = self.run_ok("inspect", self.output, "--find", module, n, k, "--json")
            found = self.checked_json(result.stdout, "inspect_find")["source"]
            self.assertEqual(found["weight"], float(weights[n, k]))
            code, scale = found["numbers"]
            place = code["where"][0]
            byte = data[place["offset"]]
            self.assertEqual(byte >> place["bit"] & 15, code["stored"])
            self.assertEqual(place["tensor"], "blk.0.ffn_down.weight")
            block = int(tensor.data_offset) + (n * 1536 + k) // 32 * 18
            group = int(tensor.data_offset) + (n * 1536 + k // 128 * 128) // 32 * 18  # has the same scale
            self.assertEqual(place["offset"], block + 2 + k % 16)
            self.assertEqual(scale["where"][0]["offset"], group)
            self.assertEqual(struct.unpack("<e", data[group : group + 2])[0], scale["value"])
            at = json.loads(self.run_ok("inspect", self.output, "--at", f"{self.output.name}:{place['offset']}",
                                        "--json").stdout)
            self.assertEqual(at["module"], module)
            self.assertIn((n, k), {(number["n"], number["k"]) for number in at["numbers"]})
        values = json.loads(self.run_ok("inspect", self.output, "--values", module, "--json").stdout)
        self.assertEqual(values["values"], weights[:4, :16].tolist())

    def test_inspect_without_a_manifest(self):
        model = ROOT / "fixtures" / "gguf" / "model.gguf"
        tensor = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.1.ffn_down.weight")
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values = json.loads(self.run_ok("inspect", model, "--values", "blk.1.ffn_down", "--json").stdout)
        self.assertEqual(values["values"], weights[:4, :16].tolist())
        for option in (["--modules"], ["--module", "a"], ["--html", "a"]):
            self.assert_fails(2, ["this option is not for GGUF files"], "inspect", model, *option)

    def test_from_python(self):
        name = "ct-w4a16-g128-sym"
        self.convert_gguf(name)
        like = CHECKPOINTS / name
        planned = prepack.plan(self.output, target="vllm-cpu", like=like)
        self.assertEqual({module.layout for module in planned.modules}, {"vllm-cpu/wna16"})
        out = self.scratch / "packed"
        done = prepack.convert(self.output, out, target="vllm-cpu", like=like)
        self.assertEqual((done.packed_modules, done.format), (7, "gguf"))
        self.assertTrue(prepack.verify(out, source=self.output, like=like, engine="reference").ok)
        self.assertTrue(prepack.diff(like, self.output).same)

    def change_manifest(self, change):
        """Another manifest, whose hash is in the file all the same."""
        path = pathlib.Path(f"{self.output}.prepack.json")
        manifest = json.loads(path.read_text())
        before = raw.xxh3(path.read_bytes())
        change(manifest)
        path.write_text(json.dumps(manifest))
        data = self.output.read_bytes()
        self.assertEqual(data.count(before.encode()), 1)
        self.output.write_bytes(data.replace(before.encode(), raw.xxh3(path.read_bytes()).encode()))

    def test_manifests_that_do_not_describe_the_file(self):
        name, q_proj = "ct-w4a16-g128-sym", "model.layers.0.self_attn.q_proj.weight"

        def rows(piece):
            return lambda manifest: manifest["tensors"]["blk.0.attn_q.weight"].update(rows=[[q_proj, *piece]])

        for change, code, text in (
            (rows([0, [[384, 0]]]), 5, "in an order that cannot be undone"),
            (rows([0, [[383, 1]]]), 3, "the manifest has other rows than the tensor"),
            (rows([1, [[384, 1]]]), 3, "the file does not hold one of its rows"),
            (lambda manifest: manifest["shapes"].update({"model.norm.weight": ["BF16", 385]}), 5,
             "the file holds 384 of its 385 weights"),
            (lambda manifest: manifest["shapes"].update({"model.norm.weight": ["BF17", 384]}), 3, "no shape of tensor"),
            (lambda manifest: manifest["tensors"]["blk.0.attn_v.weight"].update(type="Q4_1"), 3,
             "the manifest has another type"),
            (lambda manifest: manifest["tensors"]["blk.0.attn_v.weight"].update(group=64), 0, ""),
            (lambda manifest: manifest["tensors"]["blk.0.attn_v.weight"].update(group=48), 3,
             "blocks do not make groups of this size"),
        ):
            with self.subTest(text):
                self.convert_gguf(name, "--force")
                self.change_manifest(change)
                command = ["convert", self.output, "-o", self.scratch / "out", "-t", "bf16", "--like", CHECKPOINTS / name]
                if code != 0:
                    self.assert_fails(code, [text], *command)
                else:
                    self.run_ok(*command)

    def test_what_is_refused(self):
        name = "ct-w4a16-g128-sym"
        self.convert_gguf(name)
        out = self.scratch / "out"
        self.assert_fails(2, ["--like", "a GGUF file has no config.json"], "convert", self.output, "-o", out, "-t",
                          "vllm-cpu")
        self.assert_fails(2, ["--like", "it is for GGUF files"], "convert", CHECKPOINTS / name, "-o", out, "-t",
                          "vllm-cpu", "--like", CHECKPOINTS / name)
        empty = self.scratch / "empty"
        empty.mkdir()
        self.assert_fails(3, ["no config.json in the folder"], "convert", self.output, "-o", out, "-t", "vllm-cpu",
                          "--like", empty)
        self.assert_fails(5, ["no layout of kt takes"], "convert", self.output, "-o", out, "-t", "kt", "--like",
                          CHECKPOINTS / name)
        manifest = pathlib.Path(f"{self.output}.prepack.json")
        text = manifest.read_text()
        manifest.write_text(text.replace("Q4_0", "Q8_0", 1))
        self.assert_fails(3, ["not the manifest that the GGUF file was made with"], "plan", self.output, "-t", "vllm-cpu")
        manifest.unlink()
        self.assert_fails(4, ["model.gguf.prepack.json"], "plan", self.output, "-t", "vllm-cpu")
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
