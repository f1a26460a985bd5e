"""prepack verify on packed folders of every kind of kernel, as a user calls it."""

import json
import shutil
import struct
import unittest
import xml.etree.ElementTree

import harness
from harness import CHECKPOINTS

SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
MODULE = "model.layers.0.self_attn.k_proj"


def read_junit(path):
    """The root of a JUnit file, of which the structure and all counts are as they must be."""
    root = xml.etree.ElementTree.parse(path).getroot()
    test = unittest.TestCase()
    test.assertEqual((root.tag, set(root.attrib)), ("testsuites", {"tests", "failures", "errors"}))
    names, total, all_failed = set(), 0, 0
    for suite in root:
        test.assertEqual(suite.tag, "testsuite")
        test.assertEqual(set(suite.attrib), {"name", "tests", "failures", "errors", "skipped"})
        failed = skipped = 0
        for case in suite:
            test.assertEqual((case.tag, set(case.attrib)), ("testcase", {"classname", "name"}))
            names.add((case.get("classname"), case.get("name")))
            tags = [child.tag for child in case]
            test.assertLessEqual(set(tags), {"failure", "skipped", "system-out"})
            test.assertEqual(len(tags), len(set(tags)))
            test.assertFalse({"failure", "skipped"} <= set(tags))
            test.assertTrue(all(len(child) == 0 for child in case))
            failed += "failure" in tags
            skipped += "skipped" in tags
        test.assertEqual(suite.get("tests"), str(len(suite)))
        test.assertEqual(suite.get("failures"), str(failed))
        test.assertEqual(suite.get("skipped"), str(skipped))
        test.assertEqual(suite.get("errors"), "0")
        total += len(suite)
        all_failed += failed
    test.assertEqual((root.get("tests"), root.get("failures")), (str(total), str(all_failed)))
    test.assertEqual(len(names), total)
    return root


def classes_that_failed(root):
    return {c.get("classname") for c in root.iter("testcase") if c.find("failure") is not None}


class Verify(harness.ToolTest):
    def pack(self, name, target, *options):
        out = self.scratch / f"{name}-{target}"
        self.run_ok(
            "convert", CHECKPOINTS / name, "-o", out, "-t", target, "--fallback", "dequantize", *options
        )
        return out

    def report(self, name, out, *options):
        result = self.run_ok("verify", out, "--source", CHECKPOINTS / name, "--json", *options)
        return self.checked_json(result.stdout, "verify")

    def test_kernels_that_are_no_engine_are_modelled(self):
        cases = [
            ("ct-w8a8-dynamic", "vllm-cpu", "vllm-cpu/int8-vnni", 35),
            ("ct-w8a8-static", "onednn", "onednn/w8a8", 35),
            ("ct-w4a8", "zentorch", "zentorch/da8w4", 35),
            ("ct-fp8-block", "vllm-cpu", "vllm-cpu/fp8-vnni", 40),
            ("ct-w8a16-g128-sym", "zentorch", "plain/bf16", 40),
        ]
        for name, target, layout, bar in cases:
            with self.subTest(checkpoint=name, target=target):
                report = self.report(name, self.pack(name, target), "--engine", "reference")
                self.assertEqual(report["verdict"], "passed")
                self.assertEqual(report["engine"], "reference")
                for module in report["modules"]:
                    self.assertEqual(module["layout"], layout)
                    self.assertEqual(module["gemm"]["implementation"], f"model of {layout}")
                    self.assertEqual(harness.gaussian(module)["end_to_end_bar_db"], bar)
                    self.assertGreaterEqual(harness.sqnr_db(module, "kernel"), 52)

    def test_fp8_activations_have_a_bar_of_their_own(self):
        name = "ct-fp8-dynamic"
        report = self.report(name, self.pack(name, "vllm-cpu", "--scheme", "w8a8"))
        bars = {harness.gaussian(module)["end_to_end_bar_db"] for module in report["modules"]}
        self.assertEqual(bars, {28})

    def test_activation_order(self):
        name = "gptqmodel-w4-actorder-g128"
        out = self.pack(name, "vllm-cpu", "--dtype", "bf16")
        self.assertTrue(self.report(name, out)["engine"].startswith("onednn"))
        self.assertEqual(self.report(name, out, "--engine", "reference")["engine"], "reference")

    def test_a_bar_that_is_given_is_for_all_modules(self):
        name = "ct-w8a8-dynamic"
        out = self.pack(name, "zentorch")
        result = self.run_tool("verify", out, "--source", CHECKPOINTS / name, "--min-sqnr", "43")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("expected at least 43.0 dB", result.stdout)


class PackedTest(harness.ToolTest):
    """A test of a packed folder and its source."""

    def setUp(self):
        super().setUp()
        self.out = self.convert(SOURCE, "vllm-cpu", name="packed")

    def verify(self, code, *args):
        result = self.run_tool("verify", self.out, "--source", SOURCE, *args)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result


class Reports(PackedTest):
    """The files that verify writes, and what it prints."""

    def test_text_ends_with_the_verdict(self):
        lines = self.verify(0).stdout.splitlines()
        self.assertEqual(lines[-1], "passed")
        self.assertEqual(len([line for line in lines if "vllm-cpu/wna16" in line]), 7)
        self.assertEqual(lines[0].split()[:3], ["module", "layout", "exact"])
        harness.flip_weight(self.out, MODULE)
        lines = self.verify(1).stdout.splitlines()
        self.assertRegex(lines[-1], "^failed: integrity, exactness")

    def test_quiet_says_why_in_one_line(self):
        self.assertEqual(self.verify(0, "-q").stderr, "")
        harness.flip_weight(self.out, MODULE)
        result = self.verify(1, "-q")
        self.assertEqual((result.stdout, len(result.stderr.splitlines())), ("", 1))
        self.assertIn("the verification failed", result.stderr)

    def files(self):
        paths = [self.scratch / name for name in ("v.xml", "v.html", "v.md")]
        return paths, ["--junit", paths[0], "--html", paths[1], "--markdown", paths[2]]

    def test_files_are_written_whatever_the_verdict(self):
        (junit, html, markdown), options = self.files()
        self.verify(0, *options)
        root = read_junit(junit)
        self.assertEqual(root.get("tests"), "24")  # (7 modules and the folder) x 3 levels
        self.assertEqual(classes_that_failed(root), set())
        self.assertIn("<span class=\"good\">passed</span>", html.read_text())
        self.assertTrue(markdown.read_text().startswith("## ✅ passed prepack verify "))
        self.assertEqual(xml.etree.ElementTree.fromstring(html.read_text()).tag, "html")

        harness.flip_weight(self.out, MODULE)
        self.verify(1, *options)
        failed = classes_that_failed(read_junit(junit))
        self.assertLessEqual({"prepack.verify.integrity", "prepack.verify.exactness"}, failed)
        self.assertIn(MODULE, junit.read_text())
        self.assertIn("<span class=\"bad\">failed: integrity, exactness", html.read_text())
        self.assertTrue(markdown.read_text().startswith("## ❌ failed prepack verify "))
        self.assertEqual(list(self.scratch.glob(".*")), [])

    def lose_source(self):
        """A packed folder whose source is no longer there."""
        source = self.copy_checkpoint()
        self.out = self.convert(source, "vllm-cpu", name="orphan")
        shutil.rmtree(source)

    def test_not_run_is_skipped(self):
        self.lose_source()
        (junit, _, markdown), options = self.files()
        result = self.run_tool("verify", self.out, *options)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "not run: exactness, gemm")
        root = read_junit(junit)
        skipped = [c for c in root.iter("testcase") if c.find("skipped") is not None]
        levels = {c.get("classname") for c in skipped}
        self.assertLessEqual({"prepack.verify.exactness", "prepack.verify.gemm"}, levels)
        self.assertTrue(all(c.find("skipped").get("message") for c in skipped))
        self.assertIn("| gemm | ⚠️ not run | this level needs the source checkpoint", markdown.read_text())
        self.assertIn(
            "some of the verification could not run", self.run_tool("verify", self.out, "-q").stderr
        )

    def test_reports_never_replace_what_is_verified(self):
        """Not even a source that nobody has named."""
        source = self.copy_checkpoint()
        out = self.convert(source, "vllm-cpu", name="beside")
        before = harness.snapshot(source)
        self.assert_fails(
            2, ["--html", "the source"], "verify", out, "--html", source / "model.safetensors"
        )
        folder = self.scratch / "activations"
        folder.mkdir()
        self.assert_fails(
            2,
            ["--junit", "--activations"],
            "verify",
            out,
            "--activations",
            folder,
            "--junit",
            folder / "model.safetensors",
        )
        self.assertEqual(harness.snapshot(source), before)

    def recorded(self, tensors):
        path = self.scratch / "x.safetensors"
        path.write_bytes(harness.safetensors_bytes(tensors))
        return path

    def test_recorded_activations(self):
        x = struct.pack("<1152f", *[(i % 13) - 6 for i in range(1152)])
        path = self.recorded({MODULE: ("F32", [3, 384], x)})
        report = self.checked_json(
            self.verify(0, "--activations", path, "--json").stdout, "verify"
        )
        recorded = {
            module["module"]: [i for i in module["gemm"]["inputs"] if i["input"] == "recorded"]
            for module in report["modules"]
        }
        self.assertEqual([i["rows"] for i in recorded.pop(MODULE)], [3])
        self.assertTrue(all(inputs == [] for inputs in recorded.values()))
        # Not everything that is recorded is in every sample.
        for seed in range(8):
            report = json.loads(
                self.verify(
                    0, "--activations", path, "--sample", "0.01", "--seed", seed, "--json"
                ).stdout
            )
            looked_at = {m["module"] for m in report["modules"] if m["looked_at"]}
            notes = [n["message"] for n in report["levels"]["gemm"]["notes"]]
            self.assertEqual(
                notes,
                []
                if MODULE in looked_at
                else ["1 of its 1 tensors belong to modules outside the sample"],
            )

    def test_recorded_activations_that_are_of_no_use(self):
        nan = struct.pack("<384f", *[float("nan")] * 384)
        for tensors, text in (
            ({}, "holds no recorded activations"),
            ({"lm_head": ("F32", [1, 384], nan)}, "no module of this name"),
            ({MODULE: ("F32", [1, 384], nan)}, "not a finite number"),
            ({MODULE: ("F32", [3, 128], nan)}, "do not fit the module"),
        ):
            with self.subTest(text=text):
                self.assert_fails(
                    2, [text], "verify", self.out, "--source", SOURCE, "--activations",
                    self.recorded(tensors),
                )

    def test_empty_values_are_refused(self):
        for option in ("--source", "--baseline", "--activations", "--against", "--junit", "--sample"):
            with self.subTest(option=option):
                self.assertEqual(self.run_tool("verify", self.out, option, "").returncode, 2)

    def test_bars_for_no_module_are_noticed_whatever_the_sample(self):
        options = ["--sample", "0.01", "--min-sqnr", "q_proj=30", "--min-sqnr", "up_proj=30"]
        self.run_ok("verify", self.out, *options)
        self.assert_fails(
            2, ["experts=30", "no packed module"], "verify", self.out, "--skip", "gemm",
            "--min-sqnr", "experts=30"
        )

    def test_levels_that_are_skipped_are_not_run(self):
        self.lose_source()
        result = self.run_tool("verify", self.out, "--skip", "exactness,gemm", "--json")
        self.assertEqual(result.returncode, 6, result.stderr)
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["verdict"], "not run")
        self.assertEqual(report["levels"]["integrity"]["state"], "passed")
        for level in ("exactness", "gemm"):
            self.assertEqual(report["levels"][level]["state"], "not run")
        result = self.run_tool("verify", self.out, "--skip", "exactness", "--skip", "gemm")
        self.assertIn("gemm        not run  skipped on request (--skip gemm)\n", result.stdout)

    def test_a_sample_says_so_everywhere(self):
        (junit, html, markdown), options = self.files()
        sample = ["--sample", "0.3", "--seed", "5"]
        report = self.checked_json(self.verify(0, "--json", *sample, *options).stdout, "verify")
        looked_at = [m["module"] for m in report["modules"] if m["looked_at"]]
        self.assertEqual(report["sample"], {"fraction": 0.3, "seed": 5, "modules": len(looked_at)})
        self.assertTrue(0 < len(looked_at) < 7)
        sentence = f"checked {len(looked_at)} of 7 modules (--sample 0.3, seed 5)"
        text = self.verify(0, *sample).stdout
        self.assertIn(sentence + "\n", text)
        self.assertEqual(text.count("vllm-cpu/wna16  "), len(looked_at))
        for page in (html, markdown):
            self.assertIn(sentence, page.read_text())
        skipped = {
            case.get("name") for case in read_junit(junit).iter("testcase")
            if case.find("skipped") is not None
            and case.find("skipped").get("message") == "not in the sample"
        }
        self.assertEqual(skipped, {m["module"] for m in report["modules"]} - set(looked_at))

    def test_nothing_is_written_when_verify_itself_fails(self):
        paths, options = self.files()
        (self.out / "prepack.json").write_text("{}")
        self.assert_fails(3, ["prepack.json"], "verify", self.out, *options)
        self.assertEqual([path for path in paths if path.exists()], [])

    def test_files_that_cannot_be_written(self):
        _, options = self.files()
        nowhere = self.scratch / "none" / "v.xml"
        self.assert_fails(
            4, ["--junit", "its folder cannot be opened"], "verify", self.out, "--junit", nowhere
        )
        cases = [
            (["--junit", self.out / "config.json"], "written into the packed folder"),
            (["--html", self.out / "new.html"], "written into the packed folder"),
            (["--markdown", self.scratch], "not the name of a file"),
            (["--junit", self.scratch / "v", "--html", self.scratch / "v"], "--junit is the same file"),
            (["--markdown", self.scratch / "v.xml", *options[:2]], "--junit is the same file"),
        ]
        for args, text in cases:
            with self.subTest(args=args):
                self.assert_fails(2, [text], "verify", self.out, *args)
        self.assert_fails(
            2, ["written into the source"],
            *("verify", self.out, "--source", SOURCE, "--junit", SOURCE / "v.xml"),
        )
        self.assertFalse((SOURCE / "v.xml").exists())
        baseline = self.copy_checkpoint()
        self.assert_fails(
            2, ["written into the baseline"],
            *("verify", self.out, "--baseline", baseline, "--junit", baseline / "v.xml"),
        )
        recorded = self.scratch / "x.safetensors"
        self.assert_fails(
            2, ["--activations is the same file"],
            *("verify", self.out, "--activations", recorded, "--junit", recorded),
        )

    def test_options_that_make_no_sense(self):
        cases = [
            (["--skip", "gem"], ["--skip", "unknown level", "Did you mean gemm?"]),
            (["--skip", "gemm,"], ["--skip", "unknown level"]),
            (["--skip", "integrity,exactness", "--skip", "gemm,quality"], ["nothing is left"]),
            (["--skip", "integrity,exactness,gemm"], ["nothing is left"]),
            (["--sample", "0"], ["--sample", "above 0"]),
            (["--sample", "1.5"], ["--sample", "found 1.5"]),
            (["--sample", "nan"], ["--sample"]),
            (["--sample", "0.1x"], ["--sample"]),
            (["--seed", "1"], ["--sample"]),
            (["--sample", "1", "--seed", "-1"], ["--seed"]),
            (["--tolerance", "1"], ["--against"]),
            (["--against", "r.json", "--tolerance", "-1"], ["--tolerance", "found -1"]),
            (["--against", "r.json", "--tolerance", "inf"], ["--tolerance"]),
            (["--engine", "mkl"], ["--engine"]),
            (["--min-sqnr", "x=y"], ["--min-sqnr"]),
        ]
        for args, texts in cases:
            with self.subTest(args=args):
                self.assert_fails(2, texts, "verify", self.out, *args)

    def test_options_take_one_value_each(self):
        """The folder may stand behind an option that can be repeated."""
        result = self.run_tool("verify", "--min-sqnr", "30", self.out, "--source", SOURCE)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_help_says_what_everything_is_for(self):
        text = self.run_ok("verify", "--help").stdout
        for word in ("--against", "--markdown", "Exit codes: 0", "Examples:", "integrity  every"):
            self.assertIn(word, text)


class Against(PackedTest):
    """Comparison with an earlier report."""

    def setUp(self):
        super().setUp()
        self.earlier = self.scratch / "earlier.json"
        self.document = self.checked_json(self.verify(0, "--json").stdout, "verify")
        self.save()

    def save(self):
        self.earlier.write_text(json.dumps(self.document))

    def compare(self, code, *args):
        result = self.verify(code, "--against", self.earlier, "--json", *args)
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["regression"]["against"], str(self.earlier))
        return report["regression"]

    def test_the_same_is_no_regression(self):
        regression = self.compare(0, "--tolerance", "0")
        self.assertEqual((regression["state"], regression["problems"]), ("passed", []))
        self.assertEqual(regression["notes"], [])
        self.assertIn("regression  passed   against ", self.verify(0, "--against", self.earlier).stdout)

    def test_a_figure_that_fell_fails(self):
        kernel = harness.gaussian(self.document["modules"][0])["kernel"]
        kernel["sqnr_db"] += 3
        self.save()
        regression = self.compare(1)
        self.assertEqual([p["module"] for p in regression["problems"]], [self.document["modules"][0]["module"]])
        self.assertIn("the kernel SQNR on gaussian activations (M = 64) fell from", regression["problems"][0]["message"])
        self.compare(0, "--tolerance", "3.1")
        junit = self.scratch / "v.xml"
        self.compare(1, "--junit", junit)
        self.assertEqual(classes_that_failed(read_junit(junit)), {"prepack.verify.regression"})
        kernel["sqnr_db"] = "infinite"
        self.save()
        self.assertIn("fell from inf dB", self.compare(1)["problems"][0]["message"])

    def test_what_is_gone_fails_and_what_is_new_is_noted(self):
        gone = json.loads(json.dumps(self.document["modules"][0]))
        gone["module"] = "model.layers.0.gone"
        new = self.document["modules"].pop()
        self.document["modules"].insert(0, gone)
        self.save()
        regression = self.compare(1)
        self.assertEqual([p["module"] for p in regression["problems"]], ["model.layers.0.gone"])
        self.assertEqual([n["module"] for n in regression["notes"]], [new["module"]])

    def test_nothing_in_common_is_not_run(self):
        self.document["modules"] = []
        self.save()
        regression = self.compare(6)
        self.assertEqual(regression["state"], "not run")
        self.assertIn("no figure", regression["reason"])

    def test_reports_that_cannot_be_read(self):
        missing = self.scratch / "missing.json"
        self.assert_fails(4, ["missing.json"], "verify", self.out, "--against", missing)
        self.earlier.write_text("{")
        self.assert_fails(3, ["earlier.json"], "verify", self.out, "--against", self.earlier)
        self.document["version"] = 1
        self.save()
        self.assert_fails(
            5, ["found 1, expected 2", "Verify the earlier folder again"],
            *("verify", self.out, "--against", self.earlier),
        )
        self.document["version"] = 2
        self.document["modules"][3]["gemm"]["inputs"][0]["kernel"]["sqnr_db"] = "high"
        self.save()
        self.assert_fails(
            3, ["modules[3]: gemm: inputs[0]: kernel", "sqnr_db"],
            *("verify", self.out, "--against", self.earlier),
        )
        self.assert_fails(
            2, ["--against is the same file"],
            *("verify", self.out, "--against", self.earlier, "--junit", self.earlier),
        )


if __name__ == "__main__":
    unittest.main()
