"""fixtures/make/judge: its verdicts on checkpoints whose weights are known, sound ones and spoilt ones."""

import json
import subprocess
import sys
import unittest

import numpy
from harness import CHECKPOINTS, ROOT, TOOL, ToolTest, read_tensors, safetensors_bytes

FIXTURE = CHECKPOINTS / "ct-w8a8-dynamic"


def decoded(tensors):
    """The weights of W8A8 in f32: name → (dtype, shape, bytes)."""
    weights = {}
    for name, (dtype, shape, data) in tensors.items():
        if dtype == "I8":
            scales = tensors[name + "_scale"]
            values = numpy.frombuffer(scales[2], numpy.uint16).astype(numpy.uint32) << 16
            product = numpy.frombuffer(data, numpy.int8).reshape(shape) * values.view(numpy.float32).reshape(-1, 1)
            weights[name] = ("F32", shape, product.astype(numpy.float32).tobytes())
    return weights


class JudgeTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.tensors = read_tensors(FIXTURE)
        self.weights = decoded(self.tensors)
        self.config = json.loads((FIXTURE / "config.json").read_text())

    def case(self, writer="writer", name="llama-w8a8", **record):
        """Writes the case as fixtures/make/run leaves one."""
        folder, truth = self.scratch / writer / name, self.scratch / writer / ".truth" / name
        for path, tensors in ((folder, self.tensors), (truth, self.weights)):
            path.mkdir(parents=True)
            (path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        (folder / "config.json").write_text(json.dumps(self.config))
        self.config.pop("quantization_config", None)
        (truth / "config.json").write_text(json.dumps(self.config))
        made = self.scratch / writer / ".made" / (name + ".json")
        made.parent.mkdir(parents=True)
        architecture, _, scheme = name.rpartition("-")
        made.write_text(json.dumps(
            {"architecture": architecture, "scheme": scheme, "status": "made", "versions": {"writer": "1.0"}, **record}))

    def judge(self, *options):
        """(exit code, the row of the only case, text, summary)"""
        report, summary = self.scratch / "report.json", self.scratch / "summary.md"
        done = subprocess.run(
            [sys.executable, ROOT / "fixtures/make/judge", self.scratch, "--prepack", TOOL, "--json", report,
             "--markdown", summary, *options], capture_output=True, text=True, check=False)
        self.assertEqual("", done.stderr)
        (row,) = json.loads(report.read_text())["rows"]
        return done.returncode, row, done.stdout, summary.read_text()

    def expect(self, outcome, code, text=""):
        found, row, output, summary = self.judge("--read-only")
        self.assertEqual((outcome, code), (row["outcome"], found), output)
        self.assertIn(text, output)
        return summary

    def a_module(self):
        return next(iter(self.weights))

    def test_the_writers_weights_are_read_converted_and_verified(self):
        self.case()
        code, row, output, summary = self.judge()
        self.assertEqual(("read", 0, 7), (row["outcome"], code, row["modules"]), output)
        self.assertIn("1 architectures", summary)
        self.assertIn("| writer 1.0 | w8a8 | 1 |", summary)

    def test_other_weights_are_wrong(self):
        dtype, shape, data = self.weights[self.a_module()]
        self.weights[self.a_module()] = (dtype, shape, (2 * numpy.frombuffer(data, numpy.float32)).tobytes())
        self.case()
        self.expect("wrong", 1, "other weights than the writer decodes: 1 of 7")

    def test_a_module_that_is_not_read_is_wrong(self):
        self.weights["model.extra.weight"] = self.weights[self.a_module()]
        self.case()
        self.expect("wrong", 1, "passed over: 1 of 8, first model.extra")

    def test_called_malformed_is_wrong(self):
        del self.tensors[self.a_module() + "_scale"]
        self.case()
        self.expect("wrong", 1, "tensor-missing")

    def test_a_refusal_by_name_is_none(self):
        self.config["quantization_config"] = {"quant_method": "hqq"}
        self.case()
        self.assertIn("`method-unsupported`", self.expect("refused", 0, "method-unsupported"))

    def test_a_warning_is_a_false_alarm(self):
        self.tensors[self.a_module().removesuffix("weight") + "unheard_of"] = ("F32", [1], b"\0\0\0\0")
        self.case()
        self.expect("false alarm", 1, "tensor-unknown")

    def test_damage_by_the_writer_has_to_be_found(self):
        self.case("gptqmodel", "granite-moe-w4")
        self.expect("wrong", 1, "expert-missing was not found")

    def test_damage_that_comes_and_goes_need_not_be_found(self):
        self.case("transformers", "falcon-h1-fp8-block")
        self.expect("read", 0)

    def test_damage_that_comes_and_goes_is_no_alarm(self):
        dtype, shape, data = self.tensors["model.norm.weight"]
        self.tensors["model.norm.weight"] = (dtype, shape, b"\xc0\x7f" + data[2:])  # NaN
        self.case("transformers", "falcon-h1-fp8-block")
        self.expect("damaged", 0)

    def test_what_a_writer_could_not_make_is_counted(self):
        self.case(status="writer-failed", reason="ValueError: no such architecture")
        self.expect("writer failed", 0, "no such architecture")

    def test_nothing_to_judge_is_no_success(self):
        done = subprocess.run([sys.executable, ROOT / "fixtures/make/judge", self.scratch, "--prepack", TOOL],
                              capture_output=True, check=False)
        self.assertEqual(1, done.returncode)


if __name__ == "__main__":
    unittest.main()
