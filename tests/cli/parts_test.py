"""check and verify that are cut into parts: --part, --report, --merge. Whatever one machine says, the parts
together say, in every form."""

import json
import os
import struct
import tempfile
import unittest
from pathlib import Path

import damage
import harness
from harness import CHECKPOINTS

SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
FLOAT = harness.ROOT / "fixtures" / "float-bf16"
MODULE = "model.layers.0.mlp.up_proj"
# Rows of words, words along the input channels, and decoders that were trained as a whole.
DAMAGED = ["ct-w4a16-g128-sym", "gptqmodel-w4-actorder-g128", "ct-smollm2-w4a16-gptq-g64", "ar-model-free-w4-asym"]


class PartsTest(harness.ToolTest):
    def reports(self, count, *args, results=()):
        """The reports of all parts of `args`, which are those of `check` or `verify`."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        for index in range(1, count + 1):
            self.run_ok(*args, "--part", f"{index}/{count}", "--report", folder / f"{index}.json", "-q")
        return folder

    def assert_same(self, reports, *args, pages=("--junit", "--html")):
        """One run and the merge of `reports` print and write the same; the first of them."""
        first = None
        for form in ((), ("--json",), ("-q",)):
            one, other = self.run_tool(*args, *form), self.run_tool(*args, *form, "--merge", reports)
            self.assertEqual(other.stdout, one.stdout)
            self.assertEqual((other.stderr, other.returncode), (one.stderr, one.returncode))
            first = first or one
        files = [(self.scratch / f"one{page}", self.scratch / f"merged{page}") for page in pages]
        self.run_tool(*args, *(w for p, f in zip(pages, files) for w in (p, f[0])))
        self.run_tool(*args, "--merge", reports, *(w for p, f in zip(pages, files) for w in (p, f[1])))
        for one, other in files:
            self.assertEqual(one.exists(), other.exists())
            if one.exists():
                self.assertEqual(one.read_text(), other.read_text())
        return first


class Check(PartsTest):
    def same(self, count, source, *args, **kwargs):
        return self.assert_same(self.reports(count, "check", source, *args), "check", source, *args, **kwargs)

    def test_real_checkpoints(self):
        for source in sorted(CHECKPOINTS.iterdir()):
            with self.subTest(source=source.name):
                reports = self.reports(3, "check", source)
                for report in reports.iterdir():
                    self.checked_json(report.read_text(), "part_report")
                one = self.run_tool("check", source, "--json")
                merged = self.run_tool("check", source, "--json", "--merge", reports)
                self.assertEqual((merged.stdout, merged.returncode), (one.stdout, one.returncode))

    def test_every_form_of_a_report(self):
        for source in ("ct-mixed", "ct-smollm2-w8a16-g64"):
            self.same(2, CHECKPOINTS / source)
            self.same(2, CHECKPOINTS / source, "--strict")

    def test_a_baseline(self):
        result = self.same(3, SOURCE, "--baseline", FLOAT)
        self.assertIn("against", result.stdout)
        self.same(3, CHECKPOINTS / "gptqmodel-w4-actorder-g128", "--baseline", FLOAT)

    def test_damaged_checkpoints(self):
        for name in DAMAGED:
            for kind, (_, apply) in damage.KINDS.items():
                model = damage.Model(CHECKPOINTS / name)
                if apply(model) is False or model.config is None:
                    continue
                with self.subTest(checkpoint=name, kind=kind), tempfile.TemporaryDirectory() as folder:
                    model.write(Path(folder) / "damaged")
                    args = ("check", Path(folder) / "damaged", "--json")
                    one = self.run_tool(*args)
                    merged = self.run_tool(*args, "--merge", self.reports(2, *args[:2]))
                    self.assertEqual((merged.stdout, merged.returncode), (one.stdout, one.returncode))

    def test_zero_scales_that_are_accepted(self):
        source = self.copy_checkpoint("ct-w4a16-g32-asym")
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[MODULE + ".weight_scale"]["data_offsets"][0]
        data[at : at + 2] = bytes(2)
        path.write_bytes(data)
        self.assertIn("scale-zero", self.same(2, source).stdout)
        accepted = self.same(2, source, "--accept", "scale-zero=up_proj", "--accept", "norm-size")
        self.assertIn("accepted [scale-zero]", accepted.stdout)
        self.assertIn("--accept norm-size", accepted.stdout)
        self.assertNotIn("--accept scale-zero", accepted.stdout)


class Verify(PartsTest):
    def test_every_form_of_a_report(self):
        for target in ("vllm-cpu", "zentorch", "onednn", "compressed-tensors"):
            with self.subTest(target=target):
                out = self.convert(SOURCE, target)
                args = ("verify", out, "--source", SOURCE)
                reports = self.reports(3, *args)
                for report in reports.iterdir():
                    self.checked_json(report.read_text(), "part_report")
                result = self.assert_same(reports, *args, pages=("--junit", "--html", "--markdown"))
                self.assertEqual(result.returncode, 0)

    def test_quality_and_recorded_activations(self):
        out = self.convert(SOURCE, "vllm-cpu")
        recorded = self.scratch / "x.safetensors"
        x = struct.pack("<1152f", *[(i % 13) - 6 for i in range(1152)])
        recorded.write_bytes(harness.safetensors_bytes({MODULE: ("F32", [3, 384], x)}))
        args = ("verify", out, "--source", SOURCE, "--baseline", FLOAT, "--activations", recorded)
        reports = self.reports(2, *args)
        for report in reports.iterdir():
            self.checked_json(report.read_text(), "part_report")
        self.assert_same(reports, *args)
        self.assert_fails(
            2, ["comes from other recorded activations"], "verify", out, "--source", SOURCE, "--baseline", FLOAT,
            "--merge", reports,
        )

    def test_damage_is_told_by_the_merge(self):
        out = self.convert(SOURCE, "vllm-cpu")
        header, start = harness.read_header(out / "model.safetensors")
        harness.flip(out / "model.safetensors", start + header[MODULE + ".weight"]["data_offsets"][0], 0)
        args = ("verify", out, "--source", SOURCE)
        reports = self.reports(3, *args)
        result = self.assert_same(reports, *args)
        self.assertEqual(result.returncode, 1)
        earlier = self.scratch / "earlier.json"
        earlier.write_text(self.run_tool(*args, "--json").stdout)
        self.assertIn("regression", self.run_tool(*args, "--merge", reports, "--against", earlier).stdout)

    def test_bars_and_strictness_are_those_of_the_merge(self):
        out = self.convert(SOURCE, "vllm-cpu")
        args = ("verify", out, "--source", SOURCE)
        reports = self.reports(2, *args)
        self.assert_same(reports, *args, "--min-sqnr", "100", "--strict")


class Options(PartsTest):
    def test_a_part_says_what_it_has_written(self):
        report = self.scratch / "part.json"
        result = self.run_ok("check", SOURCE, "--part", "1/2", "--report", report)
        count = len(json.loads(report.read_text())["measured"])
        self.assertEqual(result.stdout, f"part 1/2: {count} measurements in {report}\n")
        result = self.run_ok("check", SOURCE, "--part", "2/2", "--report", report, "--json")
        self.assertEqual(self.checked_json(result.stdout, "measured")["part"], "2/2")
        self.assertEqual(json.loads(report.read_text())["part"], "2/2")
        self.assertEqual(self.run_ok("check", SOURCE, "--part", "1/2", "--report", report, "-q").stdout, "")

    def test_options_that_do_not_go_together(self):
        report = self.scratch / "part.json"
        out = self.convert(SOURCE, "vllm-cpu")
        for args in (
            ("--part", "1/2"),
            ("--report", report),
            ("--part", "1/2", "--report", report, "--merge", report),
            ("--part", "1/2", "--report", report, "--junit", self.scratch / "x.xml"),
            ("--part", "3/2", "--report", report),
            ("--merge",),
        ):
            with self.subTest(args=args):
                self.assertEqual(self.run_tool("check", SOURCE, *args).returncode, 2)
                self.assertEqual(self.run_tool("verify", out, *args).returncode, 2)
        self.assert_fails(4, ["nowhere"], "check", SOURCE, "--merge", self.scratch / "nowhere")
        (self.scratch / "empty").mkdir()
        self.assert_fails(2, ["there is no report", "empty"], "check", SOURCE, "--merge", self.scratch / "empty")
        self.assertFalse(report.exists())

    def test_where_a_report_may_be_written(self):
        out = self.convert(SOURCE, "vllm-cpu")
        source = self.copy_checkpoint("ct-w4a16-g32-asym")
        self.assert_fails(
            2, ["--report", "written into the packed folder"], "verify", out, "--part", "1/2", "--report",
            out / "part.json",
        )
        self.assert_fails(
            2, ["--report", "written into the checkpoint"], "check", source, "--part", "1/2", "--report",
            source / "part.json",
        )
        self.assert_fails(
            4, ["nowhere"], "check", source, "--part", "1/2", "--report", self.scratch / "nowhere" / "part.json"
        )

    def test_the_reports_of_a_folder(self):
        reports = self.reports(2, "check", SOURCE)
        (reports / ".hidden.json").write_text("x")
        (reports / "log.txt").write_text("x")
        self.run_ok("check", SOURCE, "--merge", reports)
        self.run_ok("check", SOURCE, "--merge", reports / "1.json", reports / "2.json")
        os.remove(reports / "2.json")
        self.assert_fails(2, ["there is no report of some parts", "2/2"], "check", SOURCE, "--merge", reports)


if __name__ == "__main__":
    unittest.main()
