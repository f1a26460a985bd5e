"""The functions of the Python package: what they return is what the tool prints, errors come by kind,
and whatever interrupts them leaves nothing behind."""

import dataclasses
import importlib.util
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import typing
import unittest
from unittest import mock

import harness
import prepack
from harness import CHECKPOINTS, ROOT
from prepack import record, results, run

PACKAGE = ROOT / "integrations" / "python" / "src" / "prepack"
SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
MODULE = "model.layers.0.mlp.down_proj"
# Options that every function has by other means, or that a function has no use for.
NOT_OPTIONS = {"help", "json", "quiet", "color", "messages", "progress", "verbose"}


def schema_objects(document, part, path=()):
    """(names from the document down, properties, required) of every object of a schema."""
    if "$ref" in part:
        part = document["$defs"][part["$ref"].rsplit("/", 1)[1]]
    for choice in ("anyOf", "oneOf"):
        for member in part.get(choice, ()):
            yield from schema_objects(document, member, path)
    if "properties" in part:
        yield path, part["properties"], set(part.get("required", ()))
        for name, member in part["properties"].items():
            yield from schema_objects(document, member, (*path, name))
    if isinstance(part.get("additionalProperties"), dict):
        yield from schema_objects(document, part["additionalProperties"], path)
    if "items" in part:
        yield from schema_objects(document, part["items"], path)


def record_at(cls, path):
    """The class that a field of a field … of a class holds."""
    for name in path:
        cls = innermost(typing.get_type_hints(cls)[name])
    return cls


def innermost(kind):
    if dataclasses.is_dataclass(kind):
        return kind
    for argument in typing.get_args(kind):
        found = innermost(argument)
        if found is not None:
            return found
    return None


def plain(value):
    """A result as JSON has it, without what is absent."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def without_absent(value, optional=True):
    if isinstance(value, dict):
        return {k: without_absent(v) for k, v in value.items() if not (optional and v is None)}
    return [without_absent(item) for item in value] if isinstance(value, list) else value


class Schemas(unittest.TestCase):
    def test_results_are_what_the_schemas_give(self):
        tool = ROOT / "tools" / "python_results" / "python_results.py"
        done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_property_has_a_field_and_every_field_a_property(self):
        """Not by the generator's code: a mistake in it would be on both sides."""
        seen = set()
        for path in sorted((ROOT / "schemas").glob("*.schema.json")):
            if path.name in ("manifest.schema.json", "part_report.schema.json"):
                continue
            document = json.loads(path.read_text())
            for member in document.get("oneOf", [document]):
                top = document["$defs"][member["$ref"].rsplit("/", 1)[1]] if "$ref" in member else member
                cls = results.DOCUMENTS[top["properties"]["kind"]["const"]]
                for place, properties, required in schema_objects(document, top):
                    found = record_at(cls, place)
                    fields = {field.name: field for field in dataclasses.fields(found)}
                    self.assertEqual(set(fields), set(properties), f"{path.name}: {place}")
                    demanded = {n for n, f in fields.items() if f.default is dataclasses.MISSING}
                    self.assertEqual(demanded, required, f"{path.name}: {place}")
                    seen.add(found)
        records = {c for c in vars(results).values() if inspect.isclass(c) and dataclasses.is_dataclass(c)}
        self.assertEqual(seen, records)
        self.assertGreater(len(seen), 50)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types(self):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull,
             "--follow-imports=silent", PACKAGE, ROOT / "integrations" / "python" / "examples" / "tour.py"],
            capture_output=True, text=True, check=False,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertTrue((PACKAGE / "py.typed").exists())


class Functions(harness.ToolTest):
    def same(self, result, *args):
        """The result is the document that the tool prints; exit code and all."""
        done = self.run_tool(*args, "--json")
        self.assertEqual(without_absent(plain(result)), without_absent(json.loads(done.stdout)))
        self.assertEqual(result.returncode, done.returncode)
        self.assertEqual(result.ok, done.returncode == 0)
        return result

    def packed(self):
        prepack.convert(SOURCE, self.scratch / "packed", target="vllm-cpu")
        return self.scratch / "packed"

    def test_plan(self):
        plan = self.same(prepack.plan(SOURCE, target="vllm-cpu"), "plan", SOURCE, "-t", "vllm-cpu")
        self.assertEqual((plan.packed_modules, plan.choices[plan.modules[0].choice].scheme.group_size), (7, 32))
        options = {"target": "vllm-cpu", "fuse": True, "dtype": "f32", "scheme": {"mlp": "w4a8"}}
        self.same(prepack.plan(SOURCE, **options),
                  "plan", SOURCE, "-t", "vllm-cpu", "--fuse", "--dtype", "f32", "--scheme", "mlp=w4a8")
        self.same(prepack.plan(SOURCE, target="vllm-cpu", scheme="w4a8"),
                  "plan", SOURCE, "-t", "vllm-cpu", "--scheme", "w4a8")
        refused = prepack.plan(SOURCE, target="fp8")
        self.assertEqual((refused.returncode, refused.ok), (5, False))
        with self.assertRaises(prepack.UnsupportedError):
            refused.raise_if_bad()

    def test_convert_and_verify(self):
        done = prepack.convert(SOURCE, self.scratch / "packed", target="vllm-cpu", jobs=1, memory_limit=10**9)
        self.assertEqual(done.layouts, {"vllm-cpu/wna16": 7})
        self.assertEqual(pathlib.Path(done.output), self.scratch / "packed")
        packed = self.scratch / "packed"
        verified = self.same(prepack.verify(packed, engine="reference"), "verify", packed, "--engine", "reference")
        self.assertIs(verified.raise_if_bad(), verified)
        self.assertEqual((verified.verdict, verified.levels.gemm.state), ("passed", "passed"))
        self.assertGreater(verified.modules[0].gemm.inputs[0].kernel.sqnr_db, 48)
        skipped = prepack.verify(packed, skip=["gemm", "exactness"])
        self.assertEqual((skipped.returncode, skipped.verdict), (6, "not run"))
        with self.assertRaises(prepack.UnavailableError) as caught:
            skipped.raise_if_bad()
        self.assertIn("the verdict of verify is: not run; exactness not run: skipped on request (--skip exactness); "
                      "gemm not run: skipped", str(caught.exception))
        harness.flip_weight(packed, MODULE)
        failed = prepack.verify(packed, engine="reference", min_sqnr={"mlp": 30, "attn": 31})
        self.assertEqual((failed.ok, failed.verdict, failed.levels.integrity.state), (False, "failed", "failed"))
        with self.assertRaises(prepack.CheckFailedError) as caught:
            failed.raise_if_bad()
        self.assertRegex(str(caught.exception), f"integrity failed: .*{MODULE}")

    def test_parts_and_merge(self):
        out = self.scratch / "out"
        for i in (1, 2):
            done = prepack.convert(SOURCE, out, target="zentorch", part=(i, 2), trust_source=True)
            self.assertEqual(done.part, f"{i}/2")
        merged = prepack.merge(out, keep_parts=True)
        self.assertEqual((merged.parts, merged.packed_modules), (2, 7))
        self.assertTrue(harness.part_name(out, 1, 2).exists())

    def test_parts(self):
        reports = [self.scratch / f"{index}.json" for index in (1, 2)]
        folder = self.packed()
        for index, report in enumerate(reports, 1):
            self.same(prepack.check_part(SOURCE, report, part=(index, 2)),
                      "check", SOURCE, "--part", f"{index}/2", "--report", report)
        self.assertEqual(prepack.check(SOURCE, merge=reports), prepack.check(SOURCE))
        for index, report in enumerate(reports, 1):
            part = prepack.verify_part(folder, report, part=f"{index}/2", source=SOURCE, skip="gemm")
            self.assertEqual((part.command, part.part, part.report), ("verify", f"{index}/2", str(report)))
            self.assertGreater(part.measured, 10)
        merged = prepack.verify(folder, source=SOURCE, skip="gemm", merge=reports)
        self.assertEqual(merged, prepack.verify(folder, source=SOURCE, skip="gemm"))

    def test_check_and_diff(self):
        mixed = CHECKPOINTS / "ct-mixed"
        checked = self.same(prepack.check(mixed), "check", mixed)
        self.assertEqual(checked.findings[0].id, "module-siblings-differ")
        self.assertEqual(prepack.check(mixed, strict=True).exit_code, 1)
        self.assertIsNone(prepack.check(mixed, headers=True).modules[0].statistics)
        same = self.same(prepack.diff(SOURCE, SOURCE), "diff", SOURCE, SOURCE)
        self.assertTrue(same.same and same.ok)
        other = self.copy_checkpoint(SOURCE.name)
        header, start = harness.read_header(other / "model.safetensors")
        harness.flip(other / "model.safetensors",
                     start + header[MODULE + ".weight_packed"]["data_offsets"][0], 0)
        found = prepack.diff(SOURCE, other, module=MODULE)
        self.assertEqual((found.returncode, found.modules[0].verdict, found.modules[0].differing), (1, "different", 1))
        self.assertEqual(abs(found.modules[0].worst[0].a.code - found.modules[0].worst[0].b.code), 1)

    def test_inspect_and_targets(self):
        self.same(prepack.inspect(SOURCE), "inspect", SOURCE)
        one = self.same(prepack.inspect(SOURCE, module=MODULE), "inspect", SOURCE, "--module", MODULE)
        self.assertEqual(one.statistics.codes_used, 16)
        packed = self.packed()
        self.same(prepack.inspect_find(packed, MODULE, 17, 101), "inspect", packed, "--find", MODULE, 17, 101)
        self.same(prepack.inspect_at(packed, "model.safetensors", 17192),
                  "inspect", packed, "--at", "model.safetensors:17192")
        self.same(prepack.inspect_layout(packed, MODULE), "inspect", packed, "--layout", MODULE)
        self.same(prepack.inspect_values(packed, MODULE, rows=(1, 3), cols=(4, 6), codes=True),
                  "inspect", packed, "--values", MODULE, "--rows", "1:3", "--cols", "4:6", "--codes")
        listed = self.same(prepack.targets(), "targets")
        self.assertLessEqual(set(harness.TARGETS), {row.target for row in listed.targets})

    def test_tune(self):
        output = self.scratch / "tuned.txt"
        tuned = prepack.tune(SOURCE, target=["onednn"], batch=[1, 2], threads=1, layers=1, time=0.1,
                             goal="size", min_sqnr=20, output=output)
        self.assertEqual((tuned.batches, tuned.goal, tuned.min_sqnr_db), ((1, 2), "size", 20))
        self.assertEqual([runtime.target for runtime in tuned.runtimes], ["onednn"])
        self.assertEqual(tuned.ok, tuned.choice is not None)
        if tuned.choice is None:
            return  # built without oneDNN
        choice = tuned.choice
        plan = prepack.plan(SOURCE, target=choice.total.target, scheme=choice.schemes)
        self.assertEqual(plan.packed_modules, 7)
        self.same(prepack.plan(SOURCE, target=choice.total.target, scheme=f"@{output}"),
                  "plan", SOURCE, "-t", choice.total.target, "--scheme", f"@{output}")

    def help_options(self, subcommand):
        text = self.run_ok(subcommand, "--help").stdout
        return set(re.findall(r"^  (?:-\w,)?--([a-z-]+)", text, re.MULTILINE))

    def test_every_option_has_a_parameter(self):
        for name, more in (("plan", ()), ("convert", ("verify",)), ("merge", ()), ("verify", ()),
                           ("check", ()), ("diff", ()), ("targets", ()), ("tune", ("for",))):
            options = {option.replace("-", "_") for option in self.help_options(name)}
            functions = [f for n, f in vars(prepack).items() if n in (name, f"{name}_part")]
            parameters = {p for f in functions for p in inspect.signature(f).parameters}
            missing = options - parameters - NOT_OPTIONS - set(more)
            # convert's --verify is the function verify, and `for` no name that Python allows.
            self.assertEqual(missing, set(), name)
        functions = [f for n, f in vars(prepack).items() if n.startswith("inspect")]
        parameters = {p for f in functions for p in inspect.signature(f).parameters}
        options = {option.replace("-", "_") for option in self.help_options("inspect")}
        # Functions of their own (inspect_find …; arrays), or what --json always has.
        others = {"find", "at", "layout", "values", "arrays", "into", "modules", "tensors"}
        self.assertEqual(options - parameters - NOT_OPTIONS - others, set())

    def test_a_path_that_looks_like_an_option(self):
        folder = self.scratch / "--target=x"
        (self.scratch / "s").symlink_to(SOURCE)
        folder.symlink_to(SOURCE)
        here = os.getcwd()
        os.chdir(self.scratch)
        self.addCleanup(os.chdir, here)
        self.assertEqual(prepack.plan("--target=x", target="vllm-cpu").packed_modules, 7)
        self.assertEqual(prepack.convert("--target=x", "-o", target="vllm-cpu").packed_modules, 7)
        self.assertTrue((self.scratch / "-o" / "prepack.json").exists())

    def test_notes(self):
        source = self.copy_checkpoint()
        (source / "more").mkdir()
        done = prepack.convert(source, self.scratch / "out", target="vllm-cpu")
        self.assertIn("not copied: more", done.messages[0])


class Errors(harness.ToolTest):
    def test_kinds(self):
        cut = self.copy_checkpoint()
        (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:100000])
        out = self.scratch / "out"
        out.mkdir()
        (out / "file").touch()
        for kind, call in (
            (prepack.UsageError, lambda: prepack.plan(SOURCE, target="vlm-cpu")),
            (prepack.UsageError, lambda: prepack.convert(SOURCE, out, target="vllm-cpu")),
            (prepack.MalformedError, lambda: prepack.convert(cut, self.scratch / "o", target="vllm-cpu")),
            (prepack.SystemFailedError, lambda: prepack.check(self.scratch / "nowhere")),
            (prepack.UnsupportedError, lambda: prepack.convert(SOURCE, self.scratch / "o", target="fp8")),
        ):
            with self.assertRaises(kind) as caught:
                call()
            self.assertIs(type(caught.exception), kind)
            self.assertTrue(caught.exception.where)
        error = self.assert_raised(prepack.UsageError, lambda: prepack.plan(SOURCE, target="vlm-cpu"))
        self.assertEqual(error.found, "vlm-cpu")
        self.assertIn("zentorch", error.expected)
        self.assertEqual(error.hint, "Did you mean vllm-cpu?")
        self.assertEqual((error.where, error.exit_code), ("--target", 2))
        told = self.run_tool("plan", SOURCE, "-t", "vlm-cpu").stderr
        self.assertEqual(f"error: {error}\n", told)
        self.assertIsInstance(error, ValueError)
        # Readers of folders raise them, too.
        error = self.assert_raised(prepack.MalformedError, lambda: prepack.open(SOURCE))
        self.assertIsInstance(error, prepack.FolderError)

    def assert_raised(self, kind, call):
        with self.assertRaises(kind) as caught:
            call()
        return caught.exception

    def tool_that(self, script):
        path = self.scratch / "prepack"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return mock.patch.dict(os.environ, {"PREPACK_TOOL": str(path)})

    def test_a_tool_that_is_killed(self):
        with self.tool_that("kill -9 $$\n"):
            error = self.assert_raised(prepack.CrashedError, prepack.targets)
        self.assertEqual((error.signal, error.exit_code), (9, 4))
        self.assertIn("out of memory", error.hint)

    def test_a_tool_that_does_not_run(self):
        with self.tool_that("echo libfmt.so.9: no such file >&2; exit 127\n"):
            error = self.assert_raised(prepack.SystemFailedError, prepack.targets)
        self.assertIn("libfmt.so.9", str(error))
        with self.tool_that("exit 2\n"):
            self.assertIn("said nothing", str(self.assert_raised(prepack.UsageError, prepack.targets)))
        with mock.patch.dict(os.environ, {"PREPACK_TOOL": str(self.scratch / "none")}):
            self.assert_raised(OSError, prepack.targets)
        with mock.patch.dict(os.environ, {"PREPACK_TOOL": "", "PATH": ""}), \
                mock.patch("sysconfig.get_path", return_value="/nowhere"):
            error = self.assert_raised(prepack.SystemFailedError, prepack.tool_path)
        self.assertIn("Install the wheel", error.hint)

    def test_an_answer_of_another_version(self):
        document = json.loads(self.run_ok("targets", "--json").stdout)
        document["new"] = 1
        self.assertEqual(record.record_from(results.Targets, document).kind, "prepack-targets")
        del document["targets"][0]["runtime"]
        error = self.assert_raised(prepack.Error, lambda: record.record_from(results.Targets, document))
        self.assertIn("runtime", str(error))


class Interruptions(harness.ToolTest):
    """A source of 4 GB of holes, whose conversion takes seconds."""

    def setUp(self):
        super().setUp()
        self.source = self.scratch / "source"
        harness.sparse_checkpoint(self.source, 1, 4, 16384, 1 << 17)
        self.children = []
        popen = subprocess.Popen

        def recorded(*args, **kwargs):
            self.children.append(popen(*args, **kwargs))
            return self.children[-1]

        patch = mock.patch.object(run.subprocess, "Popen", recorded)
        patch.start()
        self.addCleanup(patch.stop)

    def convert(self, **options):
        return prepack.convert(self.source, self.scratch / "out", target="vllm-cpu", **options)

    def check_nothing_is_left(self):
        self.assertEqual([child.poll() is None for child in self.children], [False])
        self.assertEqual([path.name for path in self.scratch.iterdir()], ["source"])

    def test_ctrl_c(self):
        interrupted = []

        def interrupt(progress):
            if progress.stage == "packing" and progress.done > 0 and not interrupted:
                interrupted.append(progress)
                self.assertTrue(any(p.name.startswith(".out") for p in self.scratch.iterdir()))
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.convert(progress=interrupt)
        self.check_nothing_is_left()

    def test_ctrl_c_without_progress(self):
        """While this thread waits for the tool."""
        def later():
            while not any(path.name.startswith(".out") for path in self.scratch.iterdir()):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=later)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            self.convert()
        thread.join()
        self.check_nothing_is_left()

    def test_ctrl_c_while_the_tool_is_started(self):
        popen = run.subprocess.Popen

        def interrupted(*args, **kwargs):
            os.kill(os.getpid(), signal.SIGINT)
            return popen(*args, **kwargs)

        with mock.patch.object(run.subprocess, "Popen", interrupted), self.assertRaises(KeyboardInterrupt):
            self.convert()
        self.check_nothing_is_left()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_an_event_that_is_set_already(self):
        cancel = threading.Event()
        cancel.set()
        with mock.patch.object(run.subprocess, "Popen") as started, self.assertRaises(prepack.CancelledError):
            self.convert(cancel=cancel)
        started.assert_not_called()

    def test_an_event_from_another_thread(self):
        cancel = threading.Event()
        errors = []

        def work():
            try:
                self.convert(cancel=cancel)
            except prepack.CancelledError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        while not any(path.name.startswith(".out") for path in self.scratch.iterdir()):
            time.sleep(0.01)
        cancel.set()
        thread.join(60)
        self.assertEqual([error.exit_code for error in errors], [130])
        self.check_nothing_is_left()

    def test_an_error_of_the_callback(self):
        def fail(progress):
            raise ZeroDivisionError(progress.stage)

        with self.assertRaises(ZeroDivisionError):
            self.convert(progress=fail)
        self.check_nothing_is_left()

    def test_the_tool_is_asked_to_end_by_somebody_else(self):
        def stop(progress):
            if progress.done > 0 and self.children[-1].poll() is None:
                self.children[-1].send_signal(signal.SIGTERM)

        calls = []
        with self.assertRaises(prepack.CancelledError):
            self.convert(progress=lambda progress: calls.append(1) or (len(calls) == 2 and stop(progress)))
        self.check_nothing_is_left()

    def test_other_threads_go_on(self):
        """Waiting for the tool holds no lock of the interpreter."""
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        cancel = threading.Event()
        threading.Timer(0.5, cancel.set).start()
        with self.assertRaises(prepack.CancelledError):
            self.convert(cancel=cancel)
        done.set()
        thread.join()
        self.assertGreater(counted[0], 50)


class Progress(harness.ToolTest):
    def test_callback(self):
        seen = []
        prepack.convert(SOURCE, self.scratch / "out", target="vllm-cpu", progress=seen.append)
        self.assertIn("packing", [progress.stage for progress in seen])
        for progress in seen:
            self.assertIsInstance(progress, prepack.Progress)
            self.assertTrue(progress.total == 0 or progress.done <= progress.total)
        prepack.verify(self.scratch / "out", engine="reference", progress=seen.append)

    def test_bar(self):
        bars = []

        class Bar:
            def __init__(self, total, desc, **_):
                self.total, self.n, self.desc, self.closed = total, 0, desc, False
                bars.append(self)

            def update(self, count):
                self.n += count

            def close(self):
                self.closed = True

        with mock.patch.dict(sys.modules, {"tqdm": mock.Mock(tqdm=Bar)}):
            prepack.convert(SOURCE, self.scratch / "out", target="vllm-cpu", progress=True)
        packing = [bar for bar in bars if bar.desc == "packing"]
        self.assertEqual(len(packing), 1)
        self.assertTrue(all(bar.closed for bar in bars))
        self.assertTrue(0 < packing[0].n <= packing[0].total)

    def test_line_without_tqdm(self):
        with mock.patch.dict(sys.modules, {"tqdm": None}), \
                mock.patch("sys.stderr") as stderr:
            prepack.convert(SOURCE, self.scratch / "out", target="vllm-cpu", progress=True)
        text = "".join(call.args[0] for call in stderr.write.call_args_list)
        self.assertIn("packing", text)
        self.assertTrue(text.endswith("\n"))


class Notebooks(harness.ToolTest):
    def test_tables(self):
        source = self.copy_checkpoint(SOURCE.name)
        html = prepack.plan(source, target="vllm-cpu")._repr_html_()
        self.assertIn("<b>Plan</b>", html)
        self.assertIn(f"<td>{MODULE}</td>", html)
        self.assertIn("<th>layout</th>", html)
        self.assertIn("<td>384 × 1536</td>", html)
        self.assertIn("<td>w4a16</td>", html)
        plain = results.Finding("id", "error", "<script>", "a & b", "", 0)._repr_html_()
        self.assertIn("&lt;script&gt;", plain)
        self.assertNotIn("<script>", plain)
        many = results.Check(
            "prepack-check", 1, "0", "s", None, False, "gptq", 0, 0, "bad values", 1,
            tuple(results.Finding(f"id-{i}", "error", "w", "m", "", 0) for i in range(150)), (),
        )._repr_html_()
        self.assertIn("and 50 more", many)
        self.assertNotIn("id-100", many)

    def test_pages(self):
        checked = prepack.check(CHECKPOINTS / "ct-mixed", html=True)
        self.assertTrue(checked.page.html.startswith("<!DOCTYPE html>"))
        shown = checked.page._repr_html_()
        self.assertIn("srcdoc=", shown)
        self.assertIn('sandbox="allow-scripts"', shown)
        checked.page.save(self.scratch / "saved.html")
        self.assertEqual((self.scratch / "saved.html").read_text(), checked.page.html)
        path = self.scratch / "page.html"
        self.assertEqual(prepack.diff(SOURCE, SOURCE, html=path).page.html, path.read_text())
        self.assertIn("ct-w4a16-g32-asym", prepack.inspect(SOURCE, html=True).page.html)
        self.assertIsNone(prepack.check(SOURCE).page)


if __name__ == "__main__":
    unittest.main()
