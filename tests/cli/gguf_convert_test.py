"""prepack convert and plan with --target gguf, judged by the Python package gguf.

A stand-in answers for llama.cpp's converter what the real one said of these checkpoints (gguf_stand_in.py). What is
compared are the weights that the package decodes, with those that the quantizers' own code decodes (fixtures/truth).
"""

import fcntl
import functools
import json
import operator
import os
import pathlib
import subprocess
import sys
import unittest

import gguf
import harness
import numpy
import safetensors.numpy
from gguf_harness import GgufTest, checkpoint, truth_of
from harness import CHECKPOINTS, ROOT, TOOL

sys.path[:0] = [str(ROOT / "tests" / place) for place in ("attack", "llama")]
sys.path[:0] = [str(ROOT / "integrations" / "python" / "src")]
import activations
import prepack
import raw

# The type of the modules, and how far a weight may be off, as a share of the largest of its row: by the rounding of a
# minimum to f16, of a factor to f32, or of the weight to bf16.
EXACT, MINIMUM, FACTOR, BF16 = 0, 2**-10, 2**-22, 2**-8
CASES = {
    "ct-w4a16-g128-sym": ("Q4_0", EXACT),
    "ct-w4a16-g32-asym": ("Q4_1", MINIMUM),
    "awq-gemm-g128": ("Q4_1", MINIMUM),
    "gptqmodel-w8-sym": ("Q8_0", EXACT),
    "ar-w3-sym": ("Q4_0", EXACT),
    "quark-uint4": ("Q4_1", MINIMUM),
    "ct-mxfp4": ("MXFP4", EXACT),
    "ct-nvfp4": ("NVFP4", FACTOR),
    "ct-int8-moe": ("Q8_0", EXACT),
    "gpt-oss-mxfp4": ("MXFP4", EXACT),
    "ct-fp8-block": ("BF16", BF16),
    "ct-widths": ("Q6_K", EXACT),
}
# What becomes of a width, where one f16 for 256 weights is enough; o_proj has groups of 32.
WIDTHS = {"attn_q": "Q2_K", "attn_k": "Q2_K", "attn_v": "Q3_K", "attn_output": "Q4_0", "ffn_gate": "Q4_K",
          "ffn_up": "Q5_K", "ffn_down": "Q6_K"}


def rows_of(pieces):
    """[(tensor of the checkpoint, row)] of nested loops."""
    rows = []
    for name, first, loops in pieces:
        numbers = numpy.array([first])
        for count, step in loops:
            numbers = (numbers[:, None] + numpy.arange(count) * step).ravel()
        rows += [(name, int(number)) for number in numbers]
    return rows


class GgufConvert(GgufTest):
    def weights(self):
        """GGUF tensor → its weights as the package decodes them, with the factors of NVFP4."""
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(self.output).tensors}
        weights = {}
        for name, tensor in tensors.items():
            decoded = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1, tensor.shape[0])
            factors = tensors.get(name.removesuffix(".weight") + ".scale")
            if tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4 and factors is not None:
                decoded = decoded * numpy.repeat(factors.data, len(decoded) // len(factors.data))[:, None]
            weights[name] = decoded
        return weights

    def by_module(self, truth):
        """Module → {row: weights in the GGUF file}, by what the manifest says."""
        manifest = json.loads(pathlib.Path(f"{self.output}.prepack.json").read_text())
        weights = self.weights()
        modules = {}
        for name, entry in manifest["tensors"].items():
            for row, (source, number) in zip(weights[name], rows_of(entry.get("rows", []))):
                module = source.removesuffix(".weight")
                if f"{source}.0" in truth:  # experts that are stacked
                    stacked = sum(1 for other in truth if other.rpartition(".")[0] == source)
                    each = self.rows_of_stack(manifest, source) // stacked
                    module, number = f"{source}.{number // each}", number % each
                modules.setdefault(module, {})[number] = row
        return modules

    @staticmethod
    def rows_of_stack(manifest, source):
        counts = (functools.reduce(operator.mul, (count for count, _ in loops), 1)
                  for entry in manifest["tensors"].values() for name, _, loops in entry.get("rows", []) if name == source)
        return sum(counts)

    def test_the_package_decodes_the_weights_of_the_quantizer(self):
        for name, (kind, tolerance) in CASES.items():
            with self.subTest(name):
                report = self.convert_gguf(name, "--force")
                self.assertIn(kind, report["types"])
                truth = truth_of(name)
                found = self.by_module(truth)
                self.assertEqual(set(truth) - set(found), set())
                for module, parts in truth.items():
                    rows = found[module]
                    for which, expected in parts.items():
                        first = 0 if which == "rows_first16" else len(rows) - len(expected)
                        actual = numpy.stack([rows[first + row] for row in range(len(expected))])
                        bound = tolerance * numpy.abs(expected).max(axis=1, keepdims=True)
                        self.assertTrue((numpy.abs(actual - expected) <= bound).all(), f"{module} {which}")

    def test_minima_are_rounded_and_counted_or_exact(self):
        report = self.convert_gguf("ct-w4a16-g32-asym")
        self.assertGreater(sum(entry["minima"] for entry in report["rounded"].values()), 0)
        self.assertEqual(sum(entry["scales"] for entry in report["rounded"].values()), 0)
        exact = self.convert_gguf("ct-w4a16-g32-asym", "--force", "--exact")
        self.assertIn("Q5_0", exact["types"])
        self.assertEqual(exact["rounded"], {})
        truth = truth_of("ct-w4a16-g32-asym")
        found = self.by_module(truth)
        for module, parts in truth.items():
            for row, expected in enumerate(parts["rows_first16"]):
                self.assertTrue((found[module][row] == expected).all(), module)

    def test_what_has_to_be_rounded_is_refused_with_exact(self):
        report = self.convert_gguf("ct-fp8-block", "--exact")
        self.assertNotIn("BF16", {kind for kind, count in report["types"].items() if kind == "Q4_0"})
        self.assertEqual(report["rounded"], {})
        self.assertIn("F32", report["types"])

    def test_the_manifest_is_beside_the_file_and_its_hash_in_the_metadata(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        manifest = pathlib.Path(f"{self.output}.prepack.json").read_bytes()
        field = gguf.GGUFReader(self.output).get_field("general.prepack.manifest")
        self.assertEqual(field.contents(), raw.xxh3(manifest))
        self.assertEqual(json.loads(manifest)["kind"], "prepack-gguf")
        self.run_ok("check", self.output)

    def test_plan_says_it_beforehand(self):
        result = self.run_ok("plan", *self.options("ct-w4a16-g128-sym", "--json"))
        plan = self.checked_json(result.stdout, "plan_gguf")
        types = {tensor["name"]: tensor["type"] for tensor in plan["tensors"]}
        self.assertEqual(types["blk.0.attn_q.weight"], "Q4_0")
        self.assertEqual(types["blk.0.attn_norm.weight"], "F32")
        self.convert_gguf("ct-w4a16-g128-sym")
        reader = gguf.GGUFReader(self.output)
        self.assertEqual(types, {tensor.name: tensor.tensor_type.name for tensor in reader.tensors})
        text = self.run_ok("plan", *self.options("ct-w4a16-g128-sym"))
        self.assertIn("for LlamaModel", text.stdout)
        self.assertIn("no tokenizer", text.stderr)

    def test_modules_that_no_type_holds(self):
        self.assert_fails(5, ["activation order", "--fallback dequantize"], "plan",
                          *self.options("gptqmodel-w4-actorder-g128"))
        self.assert_fails(5, ["ggml has no type for FP8"], "convert", *self.options("ct-fp8-block"), "-o", self.output)
        self.assertFalse(self.output.exists())

    def verify(self, name, *more, code=0):
        result = self.run_tool("verify", self.output, "--source", checkpoint(name), "--json", *more)
        self.assertEqual(result.returncode, code, result.stderr)
        return self.checked_json(result.stdout, "verify")

    def test_verify_compares_every_weight_with_the_source(self):
        for name, (kind, tolerance) in CASES.items():
            with self.subTest(name):
                self.convert_gguf(name, "--force")
                report = self.verify(name)
                self.assertEqual(report["levels"]["integrity"]["state"], "passed")
                self.assertEqual(report["levels"]["exactness"]["state"], "passed")
                exact = {module["exact"] for module in report["modules"] if module["layout"] == f"gguf/{kind}"}
                self.assertLessEqual(exact, {True} if tolerance == EXACT else {True, None})
                notes = [note for note in report["levels"]["exactness"]["notes"] if kind in note["message"]]
                self.assertEqual(bool(notes), tolerance != EXACT)

    def test_verify_finds_what_was_changed(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        reader = gguf.GGUFReader(self.output)
        tensor = next(tensor for tensor in reader.tensors if tensor.name == "blk.0.attn_q.weight")
        place = int(tensor.data_offset) + 18 * 5 + 2  # the codes of a block
        data = bytearray(self.output.read_bytes())
        data[place] ^= 1
        self.output.write_bytes(data)
        report = self.verify("ct-w4a16-g128-sym", code=1)
        problem = report["levels"]["integrity"]["problems"][0]
        self.assertEqual(problem["module"], "blk.0.attn_q.weight")
        self.assertIn("other bytes than were written", problem["message"])
        problem = report["levels"]["exactness"]["problems"][0]
        self.assertEqual(problem["module"], "blk.0.attn_q.weight")
        self.assertIn("1 weights are not those of the source: row 0, column 160 is", problem["message"])

    def test_the_smallest_type_that_is_exact(self):
        plan = self.checked_json(self.run_ok("plan", *self.options("ct-widths", "--json")).stdout, "plan_gguf")
        tensors = {tensor["name"].removeprefix("blk.0.").removesuffix(".weight"): tensor for tensor in plan["tensors"]}
        self.assertEqual({name: tensors[name]["type"] for name in WIDTHS}, WIDTHS)
        self.assertEqual(tensors["ffn_gate"]["scheme"], "w4a16 channel asymmetric")
        self.assertEqual({name: tensors[name]["may_round"] for name in WIDTHS},
                         {name: ["scales"] if name == "attn_output" else [] for name in WIDTHS})
        self.assertEqual({name: tensors[name]["why"] for name in WIDTHS if "why" in tensors[name]}, {
            "attn_output": "the scales are no multiples of one f16 in each block of 256, as Q3_K has them"})
        self.assertIn("1 × Q4_0 and nothing smaller: the scales are no multiples",
                      self.run_ok("plan", *self.options("ct-widths")).stdout)
        exact = self.convert_gguf("ct-widths", "--exact")
        self.assertEqual(exact["rounded"], {})
        self.assertEqual({kind for kind in exact["types"] if kind.startswith("Q")}, set(WIDTHS.values()))

    def test_plan_says_why_no_smaller_type_will_do(self):
        plan = self.checked_json(self.run_ok("plan", *self.options("ar-w3-sym", "--json")).stdout, "plan_gguf")
        reasons = {tensor.get("why") for tensor in plan["tensors"] if tensor["type"] == "Q4_0"}
        self.assertIn("K = 384 is no multiple of 256, the block of Q3_K", reasons)

    def test_a_tensor_of_modules_that_no_type_holds_together(self):
        recorded = json.loads((ROOT / "fixtures" / "gguf" / "answers" / "ct-widths.json").read_text())
        query = recorded["tensors"]["blk.0.attn_q.weight"]
        os.environ["PREPACK_TEST_ANSWERS"] = str(self.scratch)
        self.addCleanup(os.environ.pop, "PREPACK_TEST_ANSWERS", None)

        def plan(*more):
            (self.scratch / "ct-widths.json").write_text(json.dumps(recorded))
            planned = self.checked_json(
                self.run_ok("plan", *self.options("ct-widths", "--json", *more)).stdout, "plan_gguf")
            types = {tensor["name"]: tensor["type"] for tensor in planned["tensors"]}
            return types["blk.0.attn_q.weight"], planned["floats"]

        # Codes of 2 bits beside codes of 4 with zero points: a type of 4 bits holds both.
        query["rows"] += recorded["tensors"]["blk.0.ffn_gate.weight"]["rows"]
        query["dims"] = [256, 768]
        self.assertEqual(plan(), ("Q4_1", {}))
        self.assertEqual(plan("--exact"), ("Q5_0", {}))
        # Beside floats none does.
        query["rows"] += recorded["tensors"]["output.weight"]["rows"]
        query["dims"] = [256, 800]
        (self.scratch / "ct-widths.json").write_text(json.dumps(recorded))
        self.assert_fails(5, ["no type holds all modules of the tensor blk.0.attn_q.weight", "--fallback dequantize"],
                          "plan", *self.options("ct-widths"))
        for fallback in ("dequantize", "q8_0"):
            kind, floats = plan("--fallback", fallback)
            self.assertEqual(kind, "BF16")
            self.assertEqual(set(floats), {"model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj"})

    def test_fallback_q8_0_quantizes_as_ggml_does(self):
        self.assert_fails(2, ["--exact changes none"], "plan",
                          *self.options("ct-fp8-block", "--fallback", "q8_0", "--exact"))
        self.assert_fails(2, ["for --target gguf only"], "plan", CHECKPOINTS / "ct-fp8-block", "--target", "vllm-cpu",
                          "--fallback", "q8_0")
        planned = self.run_ok("plan", *self.options("ct-fp8-block", "--fallback", "q8_0", "--json"))
        plan = self.checked_json(planned.stdout, "plan_gguf")
        rounding = {tensor["type"]: tensor["may_round"] for tensor in plan["tensors"]}
        self.assertEqual(rounding, {"Q8_0": ["quantized"], "BF16": [], "F32": []})
        report = self.convert_gguf("ct-fp8-block", fallback="q8_0")
        self.assertEqual((len(report["quantized"]), report["floats"]), (7, {}))
        self.assertEqual(set(report["quantized"].values()), {"ggml has no type for FP8"})
        self.assertEqual(len(report["rounded"]), 7)
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(self.output).tensors}
        manifest = json.loads(pathlib.Path(f"{self.output}.prepack.json").read_text())
        truth = truth_of("ct-fp8-block")
        compared = 0
        for name, entry in manifest["tensors"].items():
            if entry["type"] != "Q8_0":
                continue
            counts = report["rounded"][name]
            self.assertEqual(counts, entry["rounded"])
            self.assertEqual(counts["quantized"], tensors[name].n_elements)
            self.assertTrue(40 < counts["sqnr_db"] < 60, counts)
            for row, (source, number) in enumerate(rows_of(entry["rows"])):
                expected = truth[source.removesuffix(".weight")]["rows_first16"]
                if number < len(expected):
                    blocks = gguf.quants.quantize(expected[number], gguf.GGMLQuantizationType.Q8_0)
                    self.assertEqual(bytes(tensors[name].data[row]), bytes(blocks), f"{name} {row}")
                    compared += 1
        self.assertEqual(compared, 7 * 16)
        notes = [note["message"] for note in self.verify("ct-fp8-block")["levels"]["exactness"]["notes"]]
        self.assertTrue(notes)
        self.assertTrue(all("weights are quantized to what Q8_0 holds" in note for note in notes), notes)
        # The sums of errors do not depend on threads.
        self.output = self.scratch / "again.gguf"
        options = self.options("ct-fp8-block", "-o", self.output, "--fallback", "q8_0", "--jobs", "1")
        self.run_ok("convert", *options)
        self.assertEqual(pathlib.Path(f"{self.output}.prepack.json").read_bytes(),
                         (self.scratch / "model.gguf.prepack.json").read_bytes())

    def test_a_weight_that_is_further_off_than_half_a_step_is_found(self):
        self.convert_gguf("ct-fp8-block", fallback="q8_0")
        tensor = next(one for one in gguf.GGUFReader(self.output).tensors if one.name == "blk.0.attn_q.weight")
        data = bytearray(self.output.read_bytes())
        place = int(tensor.data_offset) + 34 * 7 + 2 + 5  # a code of a block
        data[place] = (data[place] + (1 if data[place] < 100 else -1)) & 0xFF
        self.output.write_bytes(data)
        report = self.verify("ct-fp8-block", code=1)
        self.assertIn("1 weights are not those of the source: row ",
                      report["levels"]["exactness"]["problems"][0]["message"])

    def test_one_conversion_at_a_time_writes_a_file(self):
        lock = self.scratch / ".model.gguf.prepack-lock"
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assert_fails(2, [str(self.output), "another prepack is writing this output"], "convert",
                              *self.options("ct-w4a16-g128-sym", "-o", self.output))
            self.assertFalse(self.output.exists())
        self.convert_gguf("ct-w4a16-g128-sym")  # a lock that nobody holds is free
        self.assertFalse(lock.exists())
        self.assertEqual({path.name for path in self.scratch.iterdir() if path.is_file()},
                         {"python", "model.gguf", "model.gguf.prepack.json"})
        self.assert_fails(4, ["the parent folder of the output does not exist"], "convert",
                          *self.options("ct-w4a16-g128-sym", "-o", self.scratch / "none" / "model.gguf"))

    def test_verify_multiplies_every_matrix(self):
        operands = {"Q4_0": "Q8_0", "Q4_1": "Q8_1", "Q8_0": "Q8_0", "MXFP4": "Q8_0", "NVFP4": "Q8_0"}
        operands |= {f"Q{bits}_K": "Q8_K" for bits in range(2, 7)}
        for name, (kind, _) in CASES.items():
            with self.subTest(name):
                self.convert_gguf(name, "--force")
                report = self.verify(name)
                self.assertEqual((report["levels"]["gemm"]["state"], report["engine"]), ("passed", "reference"))
                manifest = json.loads(pathlib.Path(f"{self.output}.prepack.json").read_text())["tensors"]
                shapes = {tensor.name: tensor.shape for tensor in gguf.GGUFReader(self.output).tensors}
                matrices = {tensor for tensor in shapes if len(shapes[tensor]) > 1 and manifest[tensor].get("rows")}
                modules = {module["module"]: module for module in report["modules"]}
                self.assertEqual({tensor for tensor in modules if modules[tensor]["gemm"]}, matrices)
                for tensor in matrices:
                    figures = modules[tensor]["gemm"]
                    stored = modules[tensor]["layout"].removeprefix("gguf/")
                    self.assertEqual(figures["implementation"], f"model of gguf/{stored}")
                    self.assertEqual(figures["activations"], operands.get(stored, stored))
                    self.assertEqual([(one["input"], one["rows"]) for one in figures["inputs"]],
                                     [("gaussian", 1), ("gaussian", 8), ("gaussian", 64), ("outliers", 8),
                                      ("one-hot", figures["inputs"][-1]["rows"])])
                    for one in figures["inputs"]:
                        self.assertEqual(one["kernel_bar_db"], 65 if stored == "Q4_1" else 95)
                        self.assertGreater(float(str(one["kernel"]["sqnr_db"]).replace("infinite", "inf")), 120)
                    self.assertEqual(figures["inputs"][2]["end_to_end_bar_db"], 35 if stored in operands else 40)

    def test_figures_are_those_of_blocks_of_integers(self):
        """A third implementation, of Q8_0 by numpy: what x loses by it is nearly all that the product loses."""
        for name in ("ct-w4a16-g128-sym", "ct-int8-moe", "ct-nvfp4"):
            self.convert_gguf(name, "--force")
            report = self.verify(name, "--all-channels")
            weights = self.weights()
            for module in report["modules"]:
                if not module["gemm"] or module["gemm"]["activations"] != "Q8_0":
                    continue
                weight = weights[module["module"]].astype(numpy.float64)
                self.assertEqual(module["gemm"]["channels"], len(weight))
                x = activations.gaussian(weight.shape[1])
                blocks = x.reshape(len(x), -1, 32)
                scales = abs(blocks).max(axis=2, keepdims=True) / 127
                rounded = numpy.round(blocks / scales) * scales.astype(numpy.float16).astype(numpy.float32)
                truth = x.astype(numpy.float64) @ weight.T
                expected = activations.decibel(truth, rounded.reshape(x.shape).astype(numpy.float64) @ weight.T)
                self.assertAlmostEqual(module["gemm"]["inputs"][2]["end_to_end"]["sqnr_db"], expected, delta=0.02)

    def flip(self, tensor, at, bits):
        """Other bits in a byte of a tensor. Returns the file as it was."""
        data = self.output.read_bytes()
        place = int(tensor.data_offset) + at
        self.output.write_bytes(data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :])
        return data

    def test_products_find_every_weight_that_was_changed(self):
        # Where in a block there is a code, and a byte of each number beside the codes.
        places = {"Q4_0": (2, 1), "Q4_1": (4, 1, 3), "Q8_0": (2, 1), "MXFP4": (1, 0), "NVFP4": (4, 0)}
        for name in ("ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-int8-moe", "ct-mxfp4", "ct-nvfp4"):
            kind = CASES[name][0]
            self.convert_gguf(name, "--force")
            tensors = [tensor for tensor in gguf.GGUFReader(self.output).tensors if tensor.tensor_type.name == kind]
            row_bytes = tensors[-1].data.shape[-1]
            row = tensors[-1].n_elements // int(tensors[-1].shape[0]) - 1  # of the last expert, where there are some
            for place in places[kind]:
                with self.subTest(name, place=place):
                    before = self.flip(tensors[-1], row * row_bytes + place, 2)
                    report = self.verify(name, "--skip", "integrity,exactness", code=1)
                    problem = report["levels"]["gemm"]["problems"][-1]
                    self.assertEqual(problem["module"], tensors[-1].name)
                    self.assertIn(f"that are not those of the source: row {row}, column", problem["message"])
                    module = next(one for one in report["modules"] if one["module"] == tensors[-1].name)
                    self.assertEqual(module["levels"]["gemm"], "failed")
                    # Its products are too far off where the row is multiplied.
                    report = self.verify(name, "--skip", "integrity,exactness", "--all-channels", code=1)
                    messages = [one["message"] for one in report["levels"]["gemm"]["problems"]]
                    self.assertTrue(any("the kernel SQNR" in message for message in messages), messages)
                    self.output.write_bytes(before)

    def test_products_find_a_factor_that_was_changed(self):
        self.convert_gguf("ct-nvfp4")
        factor = next(tensor for tensor in gguf.GGUFReader(self.output).tensors if tensor.name == "blk.0.ffn_up.scale")
        self.flip(factor, 2, 1)
        report = self.verify("ct-nvfp4", "--skip", "integrity,exactness", code=1)
        self.assertEqual({problem["module"] for problem in report["levels"]["gemm"]["problems"]},
                         {"blk.0.ffn_up.weight"})

    def copied(self, name, change):
        """A copy of a checkpoint with other tensors; it has the name, for the stand-in."""
        source = self.scratch / name
        source.mkdir()
        (source / "config.json").write_bytes((CHECKPOINTS / name / "config.json").read_bytes())
        header, start = harness.read_header(CHECKPOINTS / name / "model.safetensors")
        data = bytearray((CHECKPOINTS / name / "model.safetensors").read_bytes())
        for tensor, entry in header.items():
            begin, end = (start + offset for offset in entry["data_offsets"])
            data[begin:end] = change(tensor, bytes(data[begin:end]))
        (source / "model.safetensors").write_bytes(data)
        return source

    def test_products_of_weights_that_are_zero(self):
        """Codes that are their zero points, whose minima are rounded: of a whole module, and in rows of another."""
        def change(tensor, data):
            zeros = {"q_proj.weight_packed": len(data), "down_proj.weight_packed": len(data) // 4}
            ends = [count for end, count in zeros.items() if tensor.endswith(end)]
            if tensor.endswith("weight_zero_point"):
                return b"\xdd" * len(data)
            return b"\xdd" * ends[0] + data[ends[0] :] if ends else data

        source = self.copied("ct-w4a16-g32-asym", change)
        self.run_ok("convert", source, *self.options("ct-w4a16-g32-asym")[1:], "-o", self.output)
        for option in ([], ["--all-channels"]):
            report = json.loads(self.run_ok("verify", self.output, "--source", source, "--json", *option).stdout)
            states = {report["levels"][level]["state"] for level in ("integrity", "exactness", "gemm")}
            self.assertEqual(states, {"passed"})

    def test_products_of_very_many_columns(self):
        """More than are multiplied at once; in a slab of them a code that was changed."""
        rows, columns, group = 32, 65536 + 4096, 128
        random = numpy.random.default_rng(46)
        module = "model.layers.0.mlp.down_proj"
        norms = ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")
        source, answers = self.scratch / "wide", self.scratch / "answers"
        source.mkdir()
        answers.mkdir()
        config = json.loads((CHECKPOINTS / "ct-w4a16-g128-sym" / "config.json").read_text())
        (source / "config.json").write_text(json.dumps(config | {"intermediate_size": columns, "hidden_size": rows}))
        safetensors.numpy.save_file({
            f"{module}.weight_packed": random.integers(-(2**31), 2**31, (rows, columns // 8), numpy.int32),
            f"{module}.weight_scale": random.uniform(0.01, 0.02, (rows, columns // group)).astype(numpy.float16),
            f"{module}.weight_shape": numpy.array([rows, columns], numpy.int64),
            "model.embed_tokens.weight": numpy.zeros((config["vocab_size"], rows), numpy.float16),
            **{f"model.{norm}.weight": numpy.ones(rows, numpy.float16) for norm in norms},
        }, source / "model.safetensors")
        answer = json.loads((ROOT / "fixtures" / "gguf" / "answers" / "ct-w4a16-g128-sym.json").read_text())
        answer["tensors"] = {"blk.0.ffn_down.weight": {"dims": [columns, rows], "type": None,
                                                       "rows": [[f"{module}.weight", 0, [[rows, 1]]]]}}
        (answers / "wide.json").write_text(json.dumps(answer))
        os.environ["PREPACK_TEST_ANSWERS"] = str(answers)
        self.addCleanup(os.environ.pop, "PREPACK_TEST_ANSWERS", None)
        self.run_ok("convert", source, *self.options("wide")[1:], "-o", self.output)
        report = json.loads(self.run_ok("verify", self.output, "--source", source, "--json").stdout)
        figures = report["modules"][0]["gemm"]
        self.assertEqual((report["levels"]["gemm"]["state"], figures["channels"]), ("passed", 16))
        self.assertGreater(figures["inputs"][2]["kernel"]["sqnr_db"], 120)
        self.assertAlmostEqual(figures["inputs"][2]["end_to_end"]["sqnr_db"], 45.7, delta=0.3)
        tensor = gguf.GGUFReader(self.output).tensors[0]
        self.flip(tensor, tensor.data.shape[-1] - 1, 0x20)
        result = self.run_tool("verify", self.output, "--source", source, "--json", "--all-channels")
        problems = json.loads(result.stdout)["levels"]["gemm"]["problems"]
        self.assertIn(f"row 0, column {columns - 1}", problems[-1]["message"])
        self.assertIn("the kernel SQNR", problems[0]["message"])

    def test_bars_and_reports_of_products(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        report = self.verify("ct-w4a16-g128-sym", "--min-sqnr", "ffn_down=90", code=1)
        self.assertEqual({problem["module"] for problem in report["levels"]["gemm"]["problems"]},
                         {"blk.0.ffn_down.weight"})
        junit, page = self.scratch / "verify.xml", self.scratch / "verify.html"
        text = self.run_ok("verify", self.output, "--source", CHECKPOINTS / "ct-w4a16-g128-sym", "--junit", junit,
                           "--html", page)
        self.assertIn("model of gguf/Q4_0, x Q8_0", text.stdout)
        self.assertIn("blk.0.attn_q.weight", junit.read_text())
        self.assertIn("model of gguf/Q4_0", page.read_text())
        one, two = (self.verify("ct-w4a16-g128-sym", "--jobs", jobs) for jobs in "14")
        self.assertEqual(one, two)
        self.assertEqual(self.run_tool("verify", self.output, "--source", CHECKPOINTS / "ct-w4a16-g128-sym", "--skip",
                                       "gemm").returncode, 6)
        self.assert_fails(2, ["with so little memory"], "verify", self.output, "--source",
                          CHECKPOINTS / "ct-w4a16-g128-sym", "--memory-limit", "1M")

    def test_verify_needs_what_convert_left(self):
        self.assert_fails(5, ["prepack has not made this file"], "verify", ROOT / "fixtures" / "gguf" / "model.gguf")
        self.convert_gguf("ct-w4a16-g128-sym")
        manifest = pathlib.Path(f"{self.output}.prepack.json")
        text = manifest.read_text()
        manifest.write_text(text.replace("Q4_0", "Q8_0", 1))
        self.assert_fails(3, ["not the manifest that the GGUF file was made with"], "verify", self.output)
        manifest.unlink()
        self.assert_fails(4, ["model.gguf.prepack.json"], "verify", self.output)
        manifest.write_text(text)
        self.assertEqual(self.run_tool("verify", self.output).returncode, 0)  # the manifest knows where the source is
        self.verify("ct-mxfp4", code=1)
        for option in (["--sample", "0.5"], ["--engine", "onednn"], ["--baseline", CHECKPOINTS / "ct-mxfp4"]):
            self.assert_fails(2, ["not for GGUF files"], "verify", self.output, *option)

    def test_a_model_in_several_files(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        whole = {tensor.name: bytes(tensor.data) for tensor in gguf.GGUFReader(self.output).tensors}
        folder = self.scratch / "parts"
        options = self.options("ct-w4a16-g128-sym", "-o", folder, "--shard-size", "400K", "--json")
        report = self.checked_json(self.run_ok("convert", *options).stdout, "convert_gguf")
        names = [f"parts-{number:05}-of-{report['files']:05}.gguf" for number in range(1, report["files"] + 1)]
        self.assertEqual(sorted(path.name for path in folder.iterdir()), [*names, "parts.gguf.prepack.json"])
        self.assertGreater(len(names), 2)
        found = {}
        for number, name in enumerate(names):
            reader = gguf.GGUFReader(folder / name)
            self.assertEqual(reader.get_field("split.no").contents(), number)
            self.assertEqual(reader.get_field("split.count").contents(), len(names))
            self.assertEqual(reader.get_field("split.tensors.count").contents(), len(whole))
            self.assertEqual(reader.get_field("general.architecture") is None, number != 0)
            found |= {tensor.name: bytes(tensor.data) for tensor in reader.tensors}
        self.assertEqual(found, whole)
        self.output = folder / names[1]
        self.assertEqual(self.verify("ct-w4a16-g128-sym")["levels"]["exactness"]["state"], "passed")
        self.run_ok("check", self.output)
        self.assert_fails(2, ["parts"], "convert", *options[:-1])
        self.assertEqual(len(list(folder.iterdir())), len(names) + 1)

    def test_from_python(self):
        options = {"target": "gguf", "llama_cpp": self.llama_cpp, "python": self.python}
        planned = prepack.plan(CHECKPOINTS / "ct-w4a16-g32-asym", exact=True, **options)
        self.assertEqual({tensor.type for tensor in planned.tensors}, {"Q5_0", "F32", "BF16"})
        done = prepack.convert(CHECKPOINTS / "ct-w4a16-g32-asym", self.output, exact=True, **options)
        self.assertEqual((done.types["Q5_0"].tensors, done.rounded, done.files), (7, {}, 1))
        self.assertTrue(prepack.verify(self.output).ok)

    def test_existing_files(self):
        self.convert_gguf("ct-w4a16-g128-sym")
        before = self.output.read_bytes()
        options = self.options("ct-w4a16-g128-sym", "-o", self.output)
        self.assert_fails(2, ["it exists", "--force"], "convert", *options)
        self.assertEqual(self.output.read_bytes(), before)
        self.assert_fails(2, ["lie inside it"], "convert", *options[:-1],
                          CHECKPOINTS / "ct-w4a16-g128-sym" / "model.gguf")
        other = self.scratch / "notes.txt"
        other.write_text("mine")
        self.assert_fails(2, ["is no GGUF file"], "convert", *options[:-1], other, "--force")
        self.assertEqual(other.read_text(), "mine")

    def test_what_the_converter_says(self):
        answers = {'{"error": "no such architecture"}': (5, "no such architecture"), "nonsense": (3, "no JSON object"),
                   '{"tokenizer": true}': (3, "class")}
        for answer, (code, text) in answers.items():
            with self.subTest(answer):
                os.environ["PREPACK_TEST_ANSWER"] = answer
                self.addCleanup(os.environ.pop, "PREPACK_TEST_ANSWER", None)
                self.assert_fails(code, [text], "plan", *self.options("ct-w4a16-g128-sym"))

    def test_the_converter_gets_no_code_of_the_checkpoint(self):
        source = self.scratch / "ct-w4a16-g128-sym"
        source.mkdir()
        for path in (CHECKPOINTS / "ct-w4a16-g128-sym").iterdir():
            (source / path.name).write_bytes(path.read_bytes())
        (source / "tokenization_mine.py").write_text("raise SystemExit('executed')\n")
        (source / "merges.txt").write_text("a b\n")
        asked = self.scratch / "question.json"
        os.environ["PREPACK_TEST_QUESTION"] = str(asked)
        self.addCleanup(os.environ.pop, "PREPACK_TEST_QUESTION", None)
        for option, trusted in (([], False), (["--trust-remote-code"], True)):
            self.run_ok("plan", source, *self.options("ct-w4a16-g128-sym")[1:], *option)
            question = json.loads(asked.read_text())
            self.assertEqual(question["trust_code"], trusted)
            self.assertEqual("tokenization_mine.py" in question["side_files"], trusted)
            self.assertIn("merges.txt", question["side_files"])

    def test_llama_cpp_and_python_are_looked_for(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        environment = {key: value for key, value in os.environ.items() if key != "PREPACK_LLAMA_CPP"}
        command = [TOOL, "plan", source, "--target", "gguf", "--python", self.python]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--llama-cpp DIR", result.stderr)
        environment["PREPACK_LLAMA_CPP"] = str(self.llama_cpp)
        subprocess.run(command, env=environment, capture_output=True, check=True)
        self.assert_fails(2, ["there is no convert_hf_to_gguf.py"], "plan", source, "--target", "gguf", "--llama-cpp",
                          self.scratch)

    def test_options_that_are_not_for_gguf(self):
        for option in (["--fuse"], ["--dtype", "f16"], ["--scheme", "w4a8"], ["--scales", "exact"]):
            self.assert_fails(2, ["not for --target gguf"], "plan", *self.options("ct-w4a16-g128-sym", *option))
        self.assert_fails(2, ["not for --target gguf"], "convert",
                          *self.options("ct-w4a16-g128-sym", "-o", self.output, "--part", "1/2"))

    def test_options_that_are_for_gguf_only(self):
        for option in (["--exact"], ["--no-tokenizer"], ["--shard-size", "4G"], ["--trust-remote-code"]):
            for command in (["plan"], ["convert", "-o", self.output]):
                self.assert_fails(2, [f"{option[0]}: this is for --target gguf only"], *command,
                                  CHECKPOINTS / "ct-w4a16-g128-sym", "-t", "vllm-cpu", *option)
        self.assertFalse(self.output.exists())


if __name__ == "__main__":
    unittest.main()
