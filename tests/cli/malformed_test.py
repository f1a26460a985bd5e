"""Broken and unsupported checkpoints: the exit code, and one line that says what is wrong."""

import json
import shutil
import struct
import sys
import unittest

import harness

MODULE = "model.layers.0.mlp.up_proj"


class Malformed(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.source = self.copy_checkpoint()
        self.weights = self.source / "model.safetensors"

    def assert_refused(self, code, *texts):
        out = self.scratch / "out"
        for command in (["convert", self.source, "-o", out], ["plan", self.source]):
            if command[0] == "plan" and texts[-1] == "data":
                continue  # plan reads headers only
            decisive = [text for text in texts if text != "data"]
            self.assert_fails(code, decisive, *command, "-t", "vllm-cpu")
        self.assertEqual([p.name for p in self.scratch.iterdir()], [self.source.name])

    def edit_header(self, edit):
        data = self.weights.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + length])
        edit(header)
        text = json.dumps(header).encode()
        self.weights.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    def edit_config(self, edit):
        config = json.loads((self.source / "config.json").read_text())
        edit(config)
        (self.source / "config.json").write_text(json.dumps(config))

    def rewrite(self, edit):
        tensors = harness.read_tensors(self.source)
        edit(tensors)
        self.weights.write_bytes(harness.safetensors_bytes(tensors))

    def test_sound_copy_is_accepted(self):
        self.rewrite(lambda tensors: None)
        self.run_ok("plan", self.source, "-t", "vllm-cpu")
        self.convert(self.source, "vllm-cpu")

    def test_truncated_file(self):
        self.weights.write_bytes(self.weights.read_bytes()[:-1000])
        self.assert_refused(3, "model.safetensors", "1000 bytes")

    def test_trailing_bytes(self):
        self.weights.write_bytes(self.weights.read_bytes() + b"x" * 7)
        self.assert_refused(3, "model.safetensors", "7 bytes")

    def test_empty_file(self):
        self.weights.write_bytes(b"")
        self.assert_refused(3, "model.safetensors")

    def test_lying_header_length(self):
        data = bytearray(self.weights.read_bytes())
        data[:8] = struct.pack("<Q", 2**63)
        self.weights.write_bytes(data)
        self.assert_refused(3, "model.safetensors", "header")

    def test_overlapping_offsets(self):
        def overlap(header):
            info = header[MODULE + ".weight_packed"]
            info["data_offsets"] = [info["data_offsets"][0] - 64, info["data_offsets"][1] - 64]

        self.edit_header(overlap)
        self.assert_refused(3, "model.safetensors", "overlap")

    def test_shape_that_overflows(self):
        def lie(header):
            header[MODULE + ".weight_packed"]["shape"] = [2**40, 2**40]

        self.edit_header(lie)
        self.assert_refused(3, "model.safetensors", MODULE + ".weight_packed", "shape")

    def test_unknown_dtype(self):
        def lie(header):
            header[MODULE + ".weight_packed"]["dtype"] = "I33"

        self.edit_header(lie)
        self.assert_refused(3, MODULE + ".weight_packed", "I33")

    def test_missing_scale(self):
        self.rewrite(lambda tensors: tensors.pop(MODULE + ".weight_scale"))
        self.assert_refused(3, MODULE, "weight_scale")

    def test_wrong_weight_shape(self):
        def lie(tensors):
            tensors[MODULE + ".weight_shape"] = ("I64", [2], struct.pack("<qq", 1536, 392))

        self.rewrite(lie)
        self.assert_refused(3, MODULE + ".weight_shape", "392")

    def test_nan_scale(self):
        def damage(tensors):
            dtype, shape, data = tensors[MODULE + ".weight_scale"]
            tensors[MODULE + ".weight_scale"] = (dtype, shape, data[:4] + b"\xc0\x7f" + data[6:])

        self.rewrite(damage)
        self.assert_refused(3, "model.safetensors", MODULE + ".weight_scale", "NaN", "data")

    def test_scale_of_the_wrong_shape(self):
        def lie(tensors):
            dtype, _, data = tensors[MODULE + ".weight_scale"]
            tensors[MODULE + ".weight_scale"] = (dtype, [3, 1536], data)

        self.rewrite(lie)
        self.assert_refused(3, MODULE + ".weight_scale")

    def test_asymmetric_without_zero_points(self):
        def lie(config):
            groups = config["quantization_config"]["config_groups"]
            groups["group_0"]["weights"]["symmetric"] = False

        self.edit_config(lie)
        self.assert_refused(3, "model.layers.0.mlp.down_proj", "weight_zero_point is missing")

    def test_config_that_is_not_json(self):
        (self.source / "config.json").write_text('{"a": 1, "a": 2}')
        self.assert_refused(3, "config.json", "duplicate")
        (self.source / "config.json").write_text('{"a": ')
        self.assert_refused(3, "config.json")

    def test_unknown_format(self):
        self.edit_config(lambda c: c["quantization_config"].update(format="zip-quantized"))
        self.edit_config(
            lambda c: c["quantization_config"]["config_groups"]["group_0"].update(
                format="zip-quantized"
            )
        )
        self.assert_refused(5, "config.json", "zip-quantized")

    def test_sound_but_not_supported(self):
        self.edit_config(lambda c: c["quantization_config"].update(quant_method="gptq"))
        self.assert_refused(5, "gptq")

    def test_not_quantized(self):
        self.edit_config(lambda c: c.pop("quantization_config"))
        self.assert_refused(5, "quantiz")

    def test_packed_folders_are_not_checked(self):
        packed = self.convert(self.source, "vllm-cpu")
        result = self.run_tool("check", packed)
        self.assertEqual(result.returncode, 5)
        self.assertIn("the folder is already packed", result.stdout)

    def test_packed_folders_are_not_compared(self):
        packed = self.convert(self.source, "vllm-cpu")
        for pair in ((packed, self.source), (self.source, packed)):
            self.assert_fails(5, ["diff does not compare packed folders"], "diff", *pair)

    def test_module_names_that_patterns_cannot_be_matched_with(self):
        def rename(tensors):
            for name in [n for n in tensors if n.startswith(MODULE)]:
                tensors[name.replace("mlp", "ml\u00fc")] = tensors.pop(name)

        self.rewrite(rename)
        self.assert_refused(5, "up_proj", "characters outside ASCII")

    def test_nothing_to_pack(self):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(harness.ROOT / "fixtures" / "float-bf16" / name, self.source)
        self.assert_refused(5, "quantiz")

    def test_no_such_folder(self):
        self.assert_fails(4, ["nowhere"], "plan", self.scratch / "nowhere", "-t", "vllm-cpu")

    def test_missing_shard_and_stale_index(self):
        self.source = self.copy_checkpoint("ct-w4a16-g128-sharded")
        index = self.source / "model.safetensors.index.json"
        original = index.read_text()
        weight_map = json.loads(original)
        name = MODULE + ".weight_packed"
        weight_map["weight_map"][name] = "model-00001-of-00003.safetensors"
        index.write_text(json.dumps(weight_map))
        self.assert_fails(3, [name, "model-00001"], "plan", self.source, "-t", "vllm-cpu")
        index.write_text(original)
        (self.source / "model-00002-of-00003.safetensors").unlink()
        self.assert_fails(3, ["model-00002"], "plan", self.source, "-t", "vllm-cpu")


if __name__ == "__main__":
    sys.exit(unittest.main())
