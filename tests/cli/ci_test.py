"""The examples of docs/ci.md: the shell script runs, and the YAML ones say what there is."""

import json
import os
import re
import subprocess
import unittest
import xml.etree.ElementTree

try:
    import yaml
except ImportError:
    yaml = None

import doc_examples
import harness
from doc_examples import commands, texts
from harness import CHECKPOINTS, ROOT, TOOL

DOCS = (ROOT / "docs" / "ci.md").read_text()
SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
MODULE = "model.layers.0.mlp.up_proj"


def blocks(language):
    return doc_examples.blocks(DOCS, language)


class Script(harness.ToolTest):
    """The shell script, with a `prepack` on its PATH."""

    def setUp(self):
        super().setUp()
        (script,) = blocks("bash")
        self.script = self.scratch / "gate"
        self.script.write_text(script)
        (self.scratch / "bin").mkdir()
        (self.scratch / "bin" / "prepack").symlink_to(TOOL)
        self.packed = self.convert(SOURCE, "vllm-cpu", name="packed")
        self.reports = self.scratch / "reports"

    def gate(self, code, source=SOURCE):
        result = subprocess.run(
            ["bash", self.script, source, self.packed, self.reports],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{self.scratch / 'bin'}:{os.environ['PATH']}"},
        )
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def report(self):
        return self.checked_json((self.reports / "verify.json").read_text(), "verify")

    def failures(self):
        root = xml.etree.ElementTree.parse(self.reports / "verify.xml").getroot()
        return [c for c in root.iter("testcase") if c.find("failure") is not None]

    def test_good_folder_passes_and_is_compared_from_then_on(self):
        self.assertEqual(self.gate(0).stderr, "")
        self.assertFalse(self.report()["regression"]["asked"])
        self.assertEqual(self.failures(), [])
        names = {path.name for path in self.reports.iterdir()}
        self.assertEqual(
            names, {"verify.xml", "verify.html", "verify.md", "verify.json", "baseline.json"}
        )
        self.gate(0)
        self.assertEqual(self.report()["regression"]["state"], "passed")

    def test_damaged_byte_stops_the_gate(self):
        self.gate(0)
        baseline = (self.reports / "baseline.json").read_bytes()
        harness.flip_weight(self.packed, MODULE)
        self.assertIn("is bad", self.gate(1).stderr)
        self.assertEqual(self.report()["verdict"], "failed")
        classes = {case.get("classname") for case in self.failures()}
        self.assertLessEqual(
            {f"prepack.verify.{level}" for level in ("integrity", "exactness", "regression")}, classes
        )
        text = "".join(case.find("failure").text for case in self.failures())
        self.assertIn(f"module {MODULE}: part weight", text)
        self.assertIn("❌", (self.reports / "verify.md").read_text())
        self.assertEqual((self.reports / "baseline.json").read_bytes(), baseline)

    def test_regression_alone_stops_the_gate(self):
        self.gate(0)
        baseline = json.loads((self.reports / "baseline.json").read_text())
        for module in baseline["modules"]:
            harness.gaussian(module)["end_to_end"]["sqnr_db"] += 1
        (self.reports / "baseline.json").write_text(json.dumps(baseline))
        self.gate(1)
        self.assertEqual(len(self.failures()), len(baseline["modules"]))

    def test_what_is_not_run_does_not_pass(self):
        self.gate(0)
        baseline = json.loads((self.reports / "baseline.json").read_text())
        baseline["modules"] = []
        (self.reports / "baseline.json").write_text(json.dumps(baseline))
        self.assertIn("not everything could be verified", self.gate(6).stderr)
        self.assertEqual(self.report()["regression"]["state"], "not run")

    def test_verification_that_fails_itself_stops_the_gate(self):
        self.assertIn("could not be verified (exit code 4)", self.gate(4, "no-such-model").stderr)
        self.assertEqual([path.name for path in self.reports.iterdir()], ["verify.json"])
        self.assertEqual((self.reports / "verify.json").read_text(), "")


class Commands(harness.ToolTest):
    def test_every_option_in_the_docs_exists(self):
        first = "\n".join(re.findall(r"^    (.*)$", DOCS.split("```")[0], re.MULTILINE))
        calls = [call for text in [first, *blocks("bash"), *blocks("yaml")] for call in commands(text)]
        self.assertEqual(len(calls), 9)
        for subcommand, options in calls:
            self.assertLessEqual(set(options), self.help_options(subcommand))
        for option in re.findall(r"`(--[a-z-]+)", DOCS):
            self.assertIn(option, self.help_options("verify"))

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_yaml_examples(self):
        github, gitlab, quick = [yaml.safe_load(block) for block in blocks("yaml") if commands(block)]
        steps = github["jobs"]["verify"]["steps"]
        verify = next(step["run"] for step in steps if step.get("name") == "Verify")
        self.assertEqual([name for name, _ in commands(verify)], ["verify"])
        summary = next(step["run"] for step in steps if step.get("name") == "Summary")
        self.assertIn('>> "$GITHUB_STEP_SUMMARY"', summary)
        upload = next(s["with"] for s in steps if s.get("uses", "").startswith("actions/upload"))
        for name in upload["path"].split():
            self.assertIn(name, verify)
        for document, job in ((gitlab, "verify"), (quick, "verify quickly")):
            script = "\n".join(document[job]["script"])
            self.assertEqual([name for name, _ in commands(script)], ["convert", "verify"])
            junit = document[job]["artifacts"]["reports"]["junit"]
            self.assertIn(f"--junit {junit}", script)
        for document in (github, gitlab, quick):
            for text in texts(document):
                for subcommand, options in commands(text):
                    self.assertLessEqual(set(options), self.help_options(subcommand))

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_shell_in_the_yaml_examples_is_shell(self):
        for block in blocks("yaml"):
            for text in texts(yaml.safe_load(block)):
                result = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, text + result.stderr)


if __name__ == "__main__":
    unittest.main()
