"""prepack inspect on single numbers: where a weight lies, what a byte holds."""

import functools
import json
import struct
import sys
import unittest

import numpy

import harness
from harness import CHECKPOINTS, read_header

DOWN = "model.layers.0.mlp.down_proj"


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # output channel of each nibble of a word


def array(tensors, name):
    """A tensor as NumPy has it; BF16 and FP8 as floats."""
    dtype, shape, data = tensors[name]
    if dtype == "BF16":
        return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    if dtype == "F8_E4M3":
        return numpy.array([fp8(byte) for byte in range(256)])[numpy.frombuffer(data, "u1")].reshape(shape)
    kinds = {"F16": "<f2", "F32": "<f4", "I32": "<u4", "I8": "i1", "I64": "<i8"}
    return numpy.frombuffer(data, kinds[dtype]).reshape(shape)


def fp8(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    magnitude = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if byte & 128 else magnitude


def fields(words, axis, order=range(8)):
    """The nibbles of words, along an axis."""
    parts = [words >> 4 * place & 15 for place in numpy.argsort(order)]
    return numpy.stack(parts, axis + 1).reshape(
        [size * (8 if i == axis else 1) for i, size in enumerate(words.shape)]).astype("i4")


def decode(folder, module):
    """(codes [N, K], scales [N, G], zero points [N, G] or None, group of each input channel) of a
    module, by what the formats say and by nothing of prepack."""
    tensors = harness.read_tensors(folder)
    part = lambda name: array(tensors, f"{module}.{name}")
    if f"{module}.qweight" in tensors and folder.name.startswith("awq"):
        codes = fields(part("qweight"), 1, AWQ_ORDER).T
        return codes, part("scales").T, fields(part("qzeros"), 1, AWQ_ORDER).T, None
    if f"{module}.qweight" in tensors:
        codes, scales, groups = fields(part("qweight"), 0).T, part("scales").T, part("g_idx")
        zeros = fields(part("qzeros"), 1).T
        return codes, scales, zeros if "v2" in folder.name else (zeros + 1) & 15, groups
    if f"{module}.weight_packed" in tensors:
        zeros = None
        if f"{module}.weight_zero_point" in tensors:
            zeros = fields(part("weight_zero_point"), 0)
        return fields(part("weight_packed"), 1), part("weight_scale"), zeros, None
    return part("weight"), part("weight_scale"), None, None


def nibble(path, offset, bit):
    return path.read_bytes()[offset] >> bit & 15


class Find(harness.ToolTest):
    def find(self, folder, n, k, *args):
        result = self.run_ok("inspect", folder, "--json", *args, "--find", DOWN, n, k)
        return self.checked_json(result.stdout, "inspect_find")

    def test_a_weight_of_a_packed_folder_and_of_its_source(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        out = self.convert(source, "vllm-cpu")
        found = self.find(out, 17, 101)
        header, start = read_header(source / "model.safetensors")
        info = header[DOWN + ".weight_packed"]
        row = 4 * info["shape"][1]
        code, scale, zero_point = found["source"]["numbers"]
        self.assertEqual(
            code["where"][0]["offset"], start + info["data_offsets"][0] + 17 * row + 50
        )
        self.assertEqual((code["where"][0]["bit"], code["where"][0]["bits"]), (4, 4))
        self.assertEqual(found["source"]["group"], 3)
        self.assertEqual(scale["where"][0]["bits"], 16)
        self.assertAlmostEqual(
            found["source"]["weight"], (code["value"] - zero_point["value"]) * scale["value"]
        )
        packed = found["packed"]["numbers"][0]
        self.assertEqual(found["packed"]["form"], "vllm-cpu/wna16")
        self.assertEqual(packed["stored"], code["stored"])
        for path, number in ((source, code), (out, packed)):
            where = number["where"][0]
            stored = nibble(path / where["file"], where["offset"], where["bit"])
            self.assertEqual(stored, number["stored"])
        self.assertEqual(found["packed"]["weight"], found["source"]["weight"])

    def test_a_source_elsewhere_is_named(self):
        source = self.copy_checkpoint()
        out = self.convert(source, "onednn")
        moved = self.scratch / "moved"
        source.rename(moved)
        self.assertIsNone(self.find(out, 1, 2)["source"])
        self.assertEqual(self.find(out, 1, 2, "--source", moved)["source"]["path"], str(moved))
        text = self.run_ok("inspect", out, "--find", DOWN, 1, 2).stdout
        self.assertIn("--source", text)

    def test_columns_line_up(self):
        text = self.run_ok("inspect", CHECKPOINTS / "awq-gemm-g128", "--find", DOWN, 1, 2).stdout
        lines = text.splitlines()
        self.assertEqual(lines[0], f"{DOWN}: output channel 1, input channel 2, group 0")
        at = lines[3].index("file")
        self.assertTrue(all(line[at:].startswith("model.safetensors") for line in lines[4:7]))

    def test_what_is_wrong_is_said(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        near = "Did you mean model.layers.0.mlp.down_proj?"
        self.assert_fails(2, [near], "inspect", source, "--find", DOWN[:-1], 0, 0)
        self.assert_fails(2, ["not a number"], "inspect", source, "--find", DOWN, "x", 0)
        self.assert_fails(2, ["no such weight"], "inspect", source, "--find", DOWN, 0, 99999999)


class At(harness.ToolTest):
    def at(self, folder, offset):
        result = self.run_ok("inspect", folder, "--json", "--at", f"model.safetensors:{offset}")
        return self.checked_json(result.stdout, "inspect_at")

    def test_finding_and_looking_are_inverse(self):
        for source, target in (
            ("gptqmodel-w4-actorder-g128", "vllm-cpu"), ("ct-w4a8", "vllm-cpu"),
            ("awq-gemvfast-g128", "zentorch"), ("ct-fp8-block", "vllm-cpu"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            found = self.run_ok("inspect", out, "--json", "--find", DOWN, 33, 70).stdout
            found = self.checked_json(found, "inspect_find")
            for side, folder in (("source", CHECKPOINTS / source), ("packed", out)):
                where = found[side]["numbers"][0]["where"][0]
                held = self.at(folder, where["offset"])
                self.assertEqual(held["holds"], "code")
                self.assertEqual(held["module"], DOWN)
                self.assertIn((33, 70), [(n["n"], n["k"]) for n in held["numbers"]])

    def test_every_byte_of_a_small_part_is_accounted_for(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        header, start = read_header(out / "model.safetensors")
        begin = start + header[DOWN + ".weight_zero_point"]["data_offsets"][0]
        seen = set()
        for offset in range(begin, begin + 64):
            held = self.at(out, offset)
            self.assertEqual(held["holds"], "zero point")
            seen |= {(n["n"], n["group"], n["bit"]) for n in held["numbers"]}
        self.assertEqual(len(seen), 128)

    def test_offsets_may_be_hexadecimal_and_the_header_is_known(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        self.assertEqual(self.at(source, "0x7")["holds"], "header length")
        self.assertEqual(self.at(source, "0xA")["offset"], 10)
        self.assert_fails(2, ["the offset is missing"], "inspect", source, "--at", "model")
        self.assert_fails(2, ["beyond the end"], "inspect", source, "--at", f"model.safetensors:{1 << 60}")


class Layout(harness.ToolTest):
    def layout(self, folder):
        result = self.run_ok("inspect", folder, "--json", "--layout", DOWN)
        return self.checked_json(result.stdout, "inspect_layout")

    def test_cells_are_what_find_says(self):
        for source, target in (
            ("ct-w4a8", "vllm-cpu"), ("gptqmodel-w4-actorder-g128", "vllm-cpu"),
            ("awq-gemm-g128", "onednn"), ("ct-w8a8-dynamic", "zentorch"), ("ct-fp8-block", "vllm-cpu"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            drawn = self.layout(out)
            for side in ("source", "packed"):
                cells = drawn[side]["cells"]
                self.assertEqual(len(cells) * drawn[side]["cell_bits"], 64 * 8)
                for index in (0, 1, 17, len(cells) - 1):
                    found = self.run_ok("inspect", out, "--json", "--find", DOWN, *cells[index])
                    number = json.loads(found.stdout)[side]["numbers"][0]["where"][0]
                    bit = 8 * number["offset_in_tensor"] + number["bit"]
                    self.assertEqual(bit, index * drawn[side]["cell_bits"])

    def test_side_by_side_when_there_is_room(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        wide = self.run_ok("inspect", out, "--layout", DOWN, env={"COLUMNS": "400"}).stdout
        narrow = self.run_ok("inspect", out, "--layout", DOWN, env={"COLUMNS": "80"}).stdout
        self.assertEqual(len(wide.splitlines()), 18)
        self.assertEqual(len(narrow.splitlines()), 37)
        first = [line for line in narrow.splitlines() if line.startswith("byte 0 ")]
        self.assertEqual([line.split()[2:5] for line in first],
                         [["n0k0", "n0k1", "n0k2"], ["n0k0", "n1k0", "n2k0"]])
        self.assertTrue(wide.splitlines()[2].startswith(first[0]))
        self.assertTrue(wide.splitlines()[2].endswith(first[1]))
        self.assertNotIn("\x1b", wide)


    def test_stacked_experts_say_where_in_their_tensor_they_begin(self):
        folder = harness.large_checkpoint(self.scratch / "stacked", 1, n=16, k=128)
        stacked = {}
        for name, (dtype, shape, data) in harness.read_tensors(folder).items():
            if not name.endswith("weight_shape"):
                stacked[name.replace("up_proj", "experts.up_proj")] = (dtype, [2, 8, shape[1]], data)
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(stacked))
        tensor = "model.layers.0.mlp.experts.up_proj"
        for expert, first in ((0, 0), (1, 8 * 128 // 2)):
            args = ("inspect", folder, "--layout", f"{tensor}.{expert}")
            drawn = self.checked_json(self.run_ok(*args, "--json").stdout, "inspect_layout")
            self.assertEqual(drawn["source"]["offset_in_tensor"], first)
            self.assertEqual(drawn["source"]["cells"][:2], [[0, 0], [0, 1]])
            title = self.run_ok(*args).stdout.splitlines()[1]
            says = " from its byte 512 on" if first else ""
            self.assertEqual(title, f"{tensor}.weight_packed{says}")


class Values(harness.ToolTest):
    def values(self, folder, *args):
        result = self.run_ok("inspect", folder, "--json", "--values", DOWN, *args)
        return self.checked_json(result.stdout, "inspect_values")

    def test_packed_and_stored_weights_are_the_same_numbers(self):
        for source, target in (
            ("ct-w4a16-g32-asym", "vllm-cpu"), ("gptqmodel-w4-actorder-g128", "onednn"),
            ("ct-w8a8-dynamic", "zentorch"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            where = ("--rows", "30:35", "--cols", "120:140")
            stored = self.values(CHECKPOINTS / source, *where)["values"]
            self.assertEqual((len(stored), len(stored[0])), (5, 20))
            self.assertEqual(self.values(out, *where)["values"], stored)
            self.assertGreater(len({value for row in stored for value in row}), 5)

    def test_codes_and_bytes_are_those_of_the_file(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        header, start = read_header(source / "model.safetensors")
        info = header[DOWN + ".weight_packed"]
        at = start + info["data_offsets"][0] + 2 * 4 * info["shape"][1]
        stored = (source / "model.safetensors").read_bytes()[at : at + 4]
        where = ("--rows", "2:3", "--cols", ":8")
        codes = self.values(source, *where, "--codes")["values"]
        self.assertEqual(codes, [[b >> s & 15 for b in stored for s in (0, 4)]])
        shown = self.values(source, *where, "--bytes")["values"]
        self.assertEqual(shown, [[b for b in stored for _ in (0, 4)]])

    def test_columns_line_up_and_nonsense_is_refused(self):
        source = CHECKPOINTS / "ct-w8a8-dynamic"
        lines = self.run_ok("inspect", source, "--values", DOWN).stdout.splitlines()
        self.assertEqual(len(lines), 6)
        self.assertEqual(len({len(line) for line in lines[1:]}), 1)
        for wrong, text in (("4:4", "not a range"), ("a:b", "not a range"), ("9999999:", "no weights")):
            self.assert_fails(2, [text], "inspect", source, "--values", DOWN, "--rows", wrong)


class Summary(harness.ToolTest):
    def inspect(self, folder, *args):
        return self.checked_json(self.run_ok("inspect", folder, "--json", *args).stdout, "inspect")

    def test_the_summary_adds_up(self):
        for source in sorted(CHECKPOINTS.iterdir()):
            with self.subTest(checkpoint=source.name):
                report = self.inspect(source)
                summary, modules = report["summary"], report["modules"]
                self.assertEqual(sum(s["modules"] for s in summary["schemes"]), len(modules))
                weights = sum(m["shape"][0] * m["shape"][1] for m in modules)
                self.assertEqual(sum(s["weights"] for s in summary["schemes"]), weights)
                inside = {name for m in modules for name in m["tensors"]}
                others = [t for t in report["tensors"] if t["name"] not in inside]
                self.assertEqual(sum(o["tensors"] for o in summary["other_tensors"]), len(others))
                self.assertEqual(sum(o["bytes"] for o in summary["other_tensors"]),
                                 sum(t["bytes"] for t in others))
                experts = any(".experts." in m["module"] for m in modules)
                expected = harness.KERNEL_TARGETS + (harness.EXPERT_TARGETS if experts else [])
                self.assertEqual([t["target"] for t in summary["targets"]], expected)

    def test_targets_say_what_convert_then_does(self):
        for name in ("ct-mixed", "gptqmodel-dynamic", "ct-fp8-block"):
            for use in self.inspect(CHECKPOINTS / name)["summary"]["targets"]:
                if use["packed_modules"] == 0:
                    self.assertTrue(use["left"][0]["why"])
                    self.assertEqual(self.run_tool("plan", CHECKPOINTS / name, "-t", use["target"]).returncode, 5)
                    continue
                out = self.convert(CHECKPOINTS / name, use["target"])
                packed = self.inspect(out)
                self.assertEqual(packed["tensor_bytes"], use["output_bytes"])
                self.assertEqual(packed["summary"]["targets"], [])
                layouts = {}
                for module in packed["modules"]:
                    layouts[module["layout"]] = layouts.get(module["layout"], 0) + 1
                self.assertEqual(layouts, use["layouts"])
                self.assertEqual(sum(left["modules"] for left in use["left"]),
                                 use["modules"] - use["packed_modules"])

    def test_modules_that_differ_in_numbers_are_one_line(self):
        folder = harness.large_checkpoint(self.scratch / "many", 12, n=8, k=128)
        text = self.run_ok("inspect", folder).stdout
        lines = [line.split() for line in text.splitlines() if "up_proj" in line]
        self.assertEqual([line[:2] for line in lines], [["model.layers.{0..11}.mlp.up_proj", "×12"]])
        text = self.run_ok("inspect", folder, "--modules").stdout
        names = [line.split()[0] for line in text.splitlines() if "up_proj" in line]
        self.assertEqual(names, [f"model.layers.{i}.mlp.up_proj" for i in range(12)])
        self.assertNotIn("weight_scale", text)
        self.assertIn("weight_scale", self.run_ok("inspect", folder, "--tensors").stdout)

    def test_a_target_that_takes_nothing_says_why(self):
        text = self.run_ok("inspect", CHECKPOINTS / "ct-fp8-block").stdout
        self.assertIn("vllm-cpu      7 of 7  vllm-cpu/fp8-vnni", text)
        self.assertIn("zentorch would leave 7 modules as stored: the weights are FP8: zentorch/woq", text)
        self.assertIn("not quantized: 4 tensors of BF16, 395.5 kB", text)

    def test_a_packed_folder_names_its_origin(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "zentorch")
        origin = self.inspect(out)["origin"]
        self.assertEqual(origin["source_fingerprint"], harness.manifest(out)["source"]["fingerprint"])
        self.assertEqual(origin["activation_dtype"], "bf16")
        self.assertIn("--target zentorch", origin["options"])
        self.assertIn("made by prepack", self.run_ok("inspect", out).stdout)
        self.assertIsNone(self.inspect(CHECKPOINTS / "ct-mixed")["origin"])
        chosen = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu", "--scheme", "mlp=w4a8", name="chosen")
        self.assertIn(" --scheme mlp=w4a8, shards of ", self.inspect(chosen)["origin"]["options"])
        self.assertEqual(self.inspect(chosen)["origin"]["options"].count("--scheme"), 1)


class Numbers(harness.ToolTest):
    def numbers(self, folder, module=DOWN):
        result = self.run_ok("inspect", folder, "--json", "--module", module)
        report = self.checked_json(result.stdout, "inspect")
        self.assertIsNone(report["summary"])
        self.assertEqual([m["module"] for m in report["modules"]], [module])
        return report["statistics"]

    def test_numbers_are_those_of_the_files(self):
        for name in ("ct-w4a16-g32-asym", "gptqmodel-w4-asym-v1", "gptqmodel-w4-asym-v2",
                     "gptqmodel-w4-actorder-g128", "awq-gemm-g128", "ct-w8a8-dynamic", "ct-fp8-block"):
            with self.subTest(checkpoint=name):
                found = self.numbers(CHECKPOINTS / name)
                codes, scales, zeros, groups = decode(CHECKPOINTS / name, DOWN)
                n, k = codes.shape
                self.assertEqual(found["weights"], n * k)
                values, counts = numpy.unique(codes, return_counts=True)
                used = {c["value"]: c["count"] for c in found["codes"] if c["count"]}
                if name == "ct-fp8-block":  # 0 and -0 are two codes of one value
                    used[0] = sum(c["count"] for c in found["codes"] if c["value"] == 0)
                self.assertEqual(used, dict(zip(values.tolist(), counts.tolist())))
                self.assertEqual(found["codes_used"], sum(c["count"] != 0 for c in found["codes"]))
                order = numpy.sort(scales.astype("f8"), axis=None)
                self.assertEqual(found["scales"], {
                    "count": order.size, "min": order[0], "median": order[(order.size - 1) // 2],
                    "max": order[-1], "zero": 0, "negative": 0})
                group_size = -(-k // scales.shape[1])
                self.assertEqual(found["group_size"], group_size)
                if groups is None:
                    groups = numpy.arange(k) // group_size
                self.assertEqual(found["activation_order"], bool((numpy.diff(groups.astype("i4")) < 0).any()))
                rows = numpy.arange(n) * scales.shape[0] // n
                if zeros is None or "asym" not in name and not name.startswith("awq"):
                    self.assertIsNone(found["zero_points"])
                    shift = 8 if name == "gptqmodel-w4-actorder-g128" else 0
                else:
                    shift = zeros[:, groups]
                    values, counts = numpy.unique(zeros, return_counts=True)
                    there = {v["value"]: v["count"] for v in found["zero_points"]["values"]}
                    self.assertEqual(there, dict(zip(values.tolist(), counts.tolist())))
                    self.assertEqual(found["zero_points"]["count"], zeros.size)
                    self.assertEqual(found["zero_points"]["values"][0]["count"], counts.max())
                    self.assertEqual((found["zero_points"]["min"], found["zero_points"]["max"]),
                                     (values.min(), values.max()))
                weights = (codes - shift).astype("f4") * scales[rows][:, groups].astype("f4")
                self.assertEqual((found["min_weight"], found["max_weight"]),
                                 (float(weights.min()), float(weights.max())))

    def test_packing_changes_no_number(self):
        """In every layout, of every format."""
        seen = set()
        for source in sorted(CHECKPOINTS.iterdir()):
            stored = functools.cache(lambda module, source=source: self.numbers(source, module))
            for target in harness.TARGETS:
                out = self.scratch / f"{source.name}-{target}"
                result = self.run_tool("convert", source, "-o", out, "-t", target, "--scales", "exact",
                                       "--no-flush", "-q")
                if result.returncode == 5:
                    continue
                self.assertEqual(result.returncode, 0, result.stderr)
                # Where the kernel wants scales that have fewer bits, they are others.
                records = harness.manifest(out)["modules"]
                for module in (DOWN, "model.layers.0.self_attn.q_proj"):
                    if module not in records or records[module]["rounded_scales"]:
                        continue
                    seen.add(records[module]["layout"])
                    with self.subTest(checkpoint=source.name, target=target, module=module):
                        self.assertEqual(self.numbers(out, module), stored(module))
        self.assertGreaterEqual(len(seen), 9, seen)

    def test_a_fused_module_is_known_by_what_it_was_made_of(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        out = self.convert(source, "vllm-cpu", "--fuse")
        whole = DOWN.replace("mlp.down_proj", "self_attn.qkv_proj")
        first = 0
        for part in ("q_proj", "k_proj", "v_proj"):
            name = whole.replace("qkv_proj", part)
            result = self.run_ok("inspect", out, "--json", "--module", name)
            report = self.checked_json(result.stdout, "inspect")
            self.assertEqual([m["module"] for m in report["modules"]], [whole])
            self.assertEqual(report["statistics"], self.numbers(source, name))
            n = report["statistics"]["shape"][0]
            self.assertIn({"module": name, "first": first, "n": n}, report["modules"][0]["fused"])
            text = self.run_ok("inspect", out, "--module", name).stdout
            self.assertTrue(text.startswith(f"{name}: output channels {first} to {first + n - 1} of\n{whole}: "))
            first += n
        self.assertEqual(self.numbers(out, whole)["shape"][0], first)
        text = self.run_ok("inspect", out, "--module", whole).stdout
        self.assertRegex(text, r"\n  fused of  +output channels\n  \S+q_proj +0 to \d+\n")
        result = self.run_tool("inspect", out, "--module", whole.replace("qkv_proj", "k_prok"))
        self.assertEqual(result.returncode, 2)
        self.assertIn(whole.replace("qkv_proj", "k_proj"), result.stderr)

    def test_modules_of_bf16_have_weights_only(self):
        out = self.convert(CHECKPOINTS / "ct-fp8-block", "zentorch", "--fallback", "dequantize")
        found, stored = self.numbers(out), self.numbers(CHECKPOINTS / "ct-fp8-block")
        self.assertIsNone(found["codes"])
        self.assertIsNone(found["scales"])
        self.assertAlmostEqual(found["min_weight"] / stored["min_weight"], 1, delta=2**-8)
        self.assertIn("weights", self.run_ok("inspect", out, "--module", DOWN).stdout)

    def checkpoint(self, scales):
        """A W4A16 module of one row for each scale, whose codes are all 9, but for a 0 in front."""
        folder = harness.large_checkpoint(self.scratch / "made", 1, n=len(scales), k=128)
        tensors = harness.read_tensors(folder)
        module = "model.layers.0.mlp.up_proj"
        words = struct.pack("<I", 0x99999999) * (16 * len(scales))
        tensors[f"{module}.weight_packed"] = ("I32", [len(scales), 16], bytes([0x90]) + words[1:])
        bits = numpy.array(scales, dtype="<f4").view("<u4") >> 16
        tensors[f"{module}.weight_scale"] = ("BF16", [len(scales), 1], bits.astype("<u2").tobytes())
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder, module

    def test_scales_below_zero_and_the_median(self):
        folder, module = self.checkpoint([-0.5, 2.0, 0.25, 1.0, 0.75, -0.125, 4.0, 0.5])
        found = self.numbers(folder, module)
        self.assertEqual(found["scales"], {"count": 8, "min": -0.5, "median": 0.5, "max": 4.0,
                                           "zero": 0, "negative": 2})
        self.assertEqual((found["min_weight"], found["max_weight"]), (-0.5, 4.0))
        self.assertEqual(found["codes_used"], 2)
        text = self.run_ok("inspect", folder, "--module", module).stdout
        self.assertIn("scales       8, -0.5 to 4, median 0.5; 0 zero, 2 negative", text)
        self.assertIn("codes        2 of 16 used", text)

    def test_what_cannot_be_read_fails_and_the_rest_is_shown(self):
        folder, module = self.checkpoint([1.0, float("nan")] * 4)
        result = self.run_tool("inspect", folder, "--module", module)
        self.assertEqual(result.returncode, 3)
        self.assertIn("weight_scale", result.stdout)
        self.assertIn("weight_scale", result.stderr)
        result = self.run_tool("inspect", folder, "--module", module, "--json")
        self.assertEqual(result.returncode, 3)
        self.assertIsNone(self.checked_json(result.stdout, "inspect")["statistics"])

    def bars(self, text):
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["code", "count"])
        return lines[first + 1 :]

    def test_bars_line_up_and_follow_the_terminal(self):
        args = ("inspect", CHECKPOINTS / "ct-w8a8-dynamic", "--module", DOWN)
        plain = self.bars(self.run_ok(*args, env={"LC_ALL": "C.UTF-8"}).stdout)
        self.assertEqual(len(plain), 32)
        self.assertEqual(plain[0].split()[0], "-128..-121")
        starts = {line.index("#") for line in plain if "#" in line}
        self.assertEqual(len(starts), 1)
        self.assertTrue(plain[16].isascii())
        for locale, is_ascii in (("C.UTF-8", False), ("C", True)):
            shown = self.bars(harness.in_terminal(*args, env={"LC_ALL": locale}))
            self.assertEqual(len(shown), 32)
            self.assertEqual(shown[16].isascii(), is_ascii)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
