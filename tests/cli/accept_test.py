"""--accept: findings of the source that the user accepts."""

import json
import unittest
import xml.etree.ElementTree

import harness
from harness import CHECKPOINTS, manifest

# Checkpoint → how the tensors with scales end. Of each way to store scales one.
SCALES = {
    "ct-w4a16-g32-asym": ".weight_scale",
    "ct-w4a16-g128-sym": ".weight_scale",
    "ct-w4a8": ".weight_scale",
    "ct-w8a8-dynamic": ".weight_scale",
    "ct-fp8-block": ".weight_scale",
    "awq-gemm-g128": ".scales",
    "awq-gemv-g128": ".scales",
    "gptqmodel-w4-sym-g128": ".scales",
    "gptqmodel-w4-actorder-g128": ".scales",
    "ar-w4-sym-g128": ".scales",
}


class Accept(harness.ToolTest):
    def zero_scale(self, name):
        """A copy of the checkpoint in which the first scale of the first module is zero."""
        source = self.copy_checkpoint(name)
        path = min(source.glob("*.safetensors"))
        header, start = harness.read_header(path)
        tensor = min(t for t in header if t.endswith(SCALES[name]))
        data = bytearray(path.read_bytes())
        at = start + header[tensor]["data_offsets"][0]
        width = {"F32": 4, "F16": 2, "BF16": 2}[header[tensor]["dtype"]]
        data[at : at + width] = bytes(width)
        path.write_bytes(data)
        return source, tensor

    def test_zero_scales_of_every_format(self):
        for name in SCALES:
            source, tensor = self.zero_scale(name)
            for target in harness.TARGETS:
                with self.subTest(checkpoint=name, target=target):
                    out = self.scratch / f"{name}-{target}"
                    args = (
                        "convert", source, "-o", out, "-t", target, "--fallback", "dequantize",
                    )
                    self.assert_fails(3, [tensor, "is zero", "--accept scale-zero"], *args)
                    self.run_ok(*args, "--accept", "scale-zero", "-q")
                    self.assertEqual(manifest(out)["accepted"], ["scale-zero"])
                    self.checked_json((out / "prepack.json").read_text(), "manifest")
                    result = self.run_ok("verify", out, "--source", source)
                    self.assertIn("the user accepted these findings in the source: scale-zero", result.stdout)

    def test_what_needs_no_acceptance_is_the_same_with_it(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        plain = self.convert(source, "vllm-cpu", name="plain")
        accepting = self.convert(source, "vllm-cpu", "--accept", "scale-zero", name="accepting")
        self.assertEqual(harness.read_tensors(plain), harness.read_tensors(accepting))
        self.assertNotIn("accepted", manifest(plain))

    def test_only_some_findings_can_be_accepted(self):
        source, _ = self.zero_scale("ct-w4a16-g32-asym")
        for names in ("scale-not-finite", "scale-zero,nonsense", ""):
            for command in (("convert", source, "-o", self.scratch / "o"), ("plan", source)):
                self.assert_fails(2, ["--accept"], *command, "-t", "vllm-cpu", "--accept", names)
        self.run_ok("plan", source, "-t", "vllm-cpu", "--accept", "scale-zero")
        for refused, why in (
            ("scale-nought", ["no finding has this identifier", "scale-nought"]),
            ("scale-zerro", ["Did you mean scale-zero?"]),
            ("malformed", ["this finding cannot be accepted"]),
            ("accept-unused", ["this finding cannot be accepted"]),
            ("scale-zero=", ["the pattern after \"=\" is missing"]),
            ("scale-zero=(", ["--accept scale-zero=("]),
        ):
            self.assert_fails(2, why, "check", source, "--accept", refused)

    def test_a_scale_that_is_no_number_is_not_accepted_with_it(self):
        source, tensor = self.zero_scale("ct-w4a16-g32-asym")
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[tensor]["data_offsets"][0]
        data[at + 2 : at + 4] = b"\xff\x7f"
        path.write_bytes(data)
        self.assert_fails(
            3, [tensor, "not a finite number"],
            "convert", source, "-o", self.scratch / "o", "-t", "vllm-cpu", "--accept", "scale-zero",
        )

    def test_parts_and_later_runs_know_it(self):
        source, _ = self.zero_scale("ct-w4a16-g32-asym")
        out = self.scratch / "out"
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--accept", "scale-zero")
        for part in ("1/2", "2/2"):
            self.run_ok(*args, "--part", part)
        self.run_ok("merge", out)
        self.assertEqual(manifest(out)["accepted"], ["scale-zero"])
        self.run_ok("verify", out, "--source", source)
        self.assertIn("is complete already", self.run_ok(*args, "--resume").stdout)
        self.assert_fails(2, ["other options", "--accept scale-zero"], *args[:-2], "--resume")

    def test_parts_must_agree(self):
        source, _ = self.zero_scale("ct-w4a16-g32-asym")
        out = self.scratch / "out"
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--accept")
        self.run_ok(*args, "scale-zero", "--part", "1/2")
        self.run_ok(*args, "scale-zero=mlp", "--part", "2/2")
        self.assert_fails(2, ["other options", "--accept scale-zero=mlp"], "merge", out)

    def test_convert_reports_what_it_accepted(self):
        source, tensor = self.zero_scale("ct-w4a16-g32-asym")
        module = tensor.removesuffix(".weight_scale")
        for accepted in ("scale-zero", "scale-zero=" + module + "$", "scale-zero=weight_scale$"):
            out = self.scratch / "out"
            args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--force", "--accept", accepted)
            result = self.checked_json(self.run_ok(*args, "--json").stdout, "convert")
            (finding,) = [f for f in result["findings"] if f["id"] == "scale-zero"]
            self.assertTrue(finding["accepted"])
            self.assertEqual(finding["more"], 0)
            self.assertIn(tensor, finding["where"])
            self.assertRegex(self.run_ok(*args).stdout, r"accepted: .*scales are zero.*\[scale-zero\]")
            self.assertEqual(manifest(out)["accepted"], [accepted])
            self.checked_json((out / "prepack.json").read_text(), "manifest")
            verified = self.run_ok("verify", out, "--source", source)
            self.assertIn(f"accepted these findings in the source: {accepted}", verified.stdout)
        self.assert_fails(
            3, [tensor, "is zero"], *args[:-1], "scale-zero=no_such_module",
        )

    def test_an_acceptance_that_is_not_used_is_told(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        args = ("convert", source, "-o", self.scratch / "out", "-t", "vllm-cpu", "--accept")
        result = self.checked_json(self.run_ok(*args, "scale-zero", "--json").stdout, "convert")
        (finding,) = result["findings"]
        self.assertEqual((finding["id"], finding["where"]), ("accept-unused", "--accept scale-zero"))
        self.assertEqual(finding["severity"], "warning")
        text = self.run_ok("check", source, "--accept", "scale-zero=down_proj").stdout
        self.assertIn("warning [accept-unused]\n  --accept scale-zero=down_proj: nothing", text)
        self.assertTrue(text.endswith("1 warning\n"))
        self.assertEqual(
            self.run_tool("check", source, "--accept", "scale-zero", "--strict").returncode, 1
        )
        # Headers do not say what the data holds, and a part is not all of it.
        self.assertNotIn(
            "accept-unused", self.run_ok("check", source, "--headers", "--accept", "scale-zero").stdout
        )
        self.assertNotIn("accept-unused", self.run_ok(*args, "scale-zero", "--part", "1/2").stdout)

    def test_checkpoints_are_written_and_compared_with_it(self):
        source, tensor = self.zero_scale("gptqmodel-w4-actorder-g128")
        for target in ("gptq", "compressed-tensors-0.17"):
            out = self.scratch / target
            self.run_ok("convert", source, "-o", out, "-t", target, "--accept", "scale-zero")
            self.assert_fails(3, [tensor, "is zero"], "diff", source, source)
            same = self.run_ok("diff", source, source, "--accept", "scale-zero").stdout
            self.assertIn("identical", same)
            self.run_ok("verify", out, "--source", source)

    def test_check_reports_and_lets_pass(self):
        source, tensor = self.zero_scale("ct-w4a16-g32-asym")
        module = tensor.removesuffix(".weight_scale")
        junit, html = self.scratch / "check.xml", self.scratch / "check.html"
        self.assertEqual(self.run_tool("check", source).returncode, 1)
        args = ("check", source, "--strict", "--junit", junit, "--html", html)
        for accepted in ("scale-zero", "scale-zero=" + module):
            text = self.run_ok(*args, "--accept", accepted).stdout
            self.assertIn("\naccepted [scale-zero]\n", text)
            self.assertTrue(text.endswith("sound, 1 accepted finding\n"), text)
            result = self.run_ok(*args, "--accept", accepted, "--json").stdout
            report = self.checked_json(result, "check")
            self.assertEqual(report["verdict"], "sound")
            (finding,) = report["findings"]
            self.assertEqual(
                (finding["id"], finding["severity"], finding["accepted"]), ("scale-zero", "error", True)
            )
            suite = xml.etree.ElementTree.parse(junit).getroot()
            self.assertEqual(suite.findall(".//failure"), [])
            (output,) = [o.text for o in suite.iter("system-out") if "scale-zero" in o.text]
            self.assertIn("accepted [scale-zero]", output)
            # The module is read to its end, so it is judged like any other.
            (case,) = [c for c in suite.iter("testcase") if c.get("name") == module]
            self.assertIsNone(case.find("skipped"))
            self.assertIn(">accepted<", html.read_text())
        # Another module's finding is not accepted.
        other = self.run_tool(*args, "--accept", "scale-zero=no_such_module", "--json")
        self.assertEqual(other.returncode, 1)
        self.assertEqual(
            [(f["id"], f.get("accepted")) for f in json.loads(other.stdout)["findings"]],
            [("scale-zero", None), ("accept-unused", None)],
        )

    def test_check_accepts_findings_of_every_stage(self):
        # Of the data of a module, which cannot be read to its end then: not passed, but skipped.
        source, tensor = self.zero_scale("ct-w4a16-g32-asym")
        module = tensor.removesuffix(".weight_scale")
        path = source / "model.safetensors"
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[tensor]["data_offsets"][0]
        data[at : at + 2] = b"\xff\x7f"
        path.write_bytes(data)
        junit = self.scratch / "check.xml"
        self.assertEqual(self.run_tool("check", source).returncode, 1)
        self.run_ok("check", source, "--accept", "scale-not-finite=" + module, "--junit", junit)
        suite = xml.etree.ElementTree.parse(junit).getroot()
        (case,) = [c for c in suite.iter("testcase") if c.get("name") == module]
        self.assertIn("not read", case.find("skipped").get("message"))
        # Of a module that cannot be described.
        broken = self.copy_checkpoint("ct-w4a16-g128-sym")
        path = broken / "model.safetensors"
        tensors = harness.read_tensors(broken)
        lost = min(t for t in tensors if t.endswith(".weight_scale"))
        del tensors[lost]
        path.write_bytes(harness.safetensors_bytes(tensors))
        found = json.loads(self.run_tool("check", broken, "--json").stdout)
        self.assertEqual(found["verdict"], "malformed")
        ids = {f["id"] for f in found["findings"] if f["severity"] == "error"}
        options = [word for one in ids for word in ("--accept", one)]
        self.assertEqual(self.run_tool("check", broken, *options[2:]).returncode, 3)
        self.run_ok("check", broken, *options)
        # Warnings, for --strict.
        self.assertEqual(self.run_tool("check", CHECKPOINTS / "ct-mixed", "--strict").returncode, 1)
        self.run_ok("check", CHECKPOINTS / "ct-mixed", "--strict", "--accept", "module-siblings-differ")

    def test_what_cannot_be_read_at_all_is_not_accepted(self):
        broken = self.copy_checkpoint("ct-w4a16-g128-sym")
        config = json.loads((broken / "config.json").read_text())
        config["quantization_config"]["quant_method"] = "nonsense"
        (broken / "config.json").write_text(json.dumps(config))
        report = json.loads(self.run_tool("check", broken, "--json").stdout)
        (finding,) = report["findings"]
        result = self.run_tool("check", broken, "--accept", finding["id"])
        self.assertEqual(result.returncode, 5)
        self.assertIn(f"error [{finding['id']}]", result.stdout)


if __name__ == "__main__":
    unittest.main()
