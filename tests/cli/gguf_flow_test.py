"""--target gguf with shards of the source that come while it is written and go when they are done with: the file is
that of the whole model, few shards are on the disk at a time, and whatever stops a run, nothing is lost but what was to
be consumed. A stand-in answers for llama.cpp's converter (gguf_stand_in.py)."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import unittest

import harness
from gguf_harness import GgufTest, checkpoint
from harness import ROOT, contents

sys.path.insert(0, str(ROOT / "integrations" / "python" / "src"))
sys.path.insert(0, str(ROOT / "tests" / "integrations"))
from prepack.remote.headers_file import write_ranges  # noqa: E402
from range_server import RangeServer  # noqa: E402

SHARDS = 4
# Where experts are stacked they lie in several shards; of widths, planning reads all scales.
CASES = ("ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-int8-moe", "gpt-oss-mxfp4", "ct-widths", "ct-nvfp4")


def write_shards(folder, parts):
    """The safetensors files of a model, and their index."""
    weight_map = {}
    for number, tensors in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        (folder / name).write_bytes(harness.safetensors_bytes(tensors))
        weight_map.update(dict.fromkeys(tensors, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def cut(source, folder, shards=SHARDS):
    """The same model in shards of about the same size: modules lie across their ends."""
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    tensors = harness.read_tensors(source)
    each = sum(len(data) for _, _, data in tensors.values()) / shards
    parts, before = [{} for _ in range(shards)], 0
    for name in sorted(tensors):
        parts[min(int(before / each), shards - 1)][name] = tensors[name]
        before += len(tensors[name][2])
    write_shards(folder, [part for part in parts if part])
    return folder


class GgufFlowTest(GgufTest):
    def setUp(self):
        super().setUp()
        self.disk = self.scratch / "disk"
        self.disk.mkdir()
        self.source = self.disk / "source"
        self.output = self.disk / "model.gguf"
        self.model = self.scratch / "model"
        self.log = self.scratch / "log"
        self.answers = self.scratch / "answers"
        self.answers.mkdir()
        os.environ["PREPACK_TEST_ANSWERS"] = str(self.answers)
        self.addCleanup(os.environ.pop, "PREPACK_TEST_ANSWERS", None)

    def take(self, name, shards=SHARDS):
        """Cuts a checkpoint for which there is an answer."""
        for path in (self.model, self.source):
            shutil.rmtree(path, ignore_errors=True)
        cut(checkpoint(name), self.model, shards)
        for place in (self.model, self.source):
            shutil.copy(ROOT / "fixtures" / "gguf" / "answers" / f"{name}.json", self.answers / f"{place.name}.json")
        self.expected = self.scratch / "expected.gguf"
        self.convert("--force", "--resume", source=self.model, output=self.expected)

    def leave_headers(self):
        """A folder as any program could make it: nothing but headers."""
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir()
        for path in self.model.iterdir():
            if path.suffix == ".safetensors":
                data = path.read_bytes()
                write_ranges(self.source / f"{path.name}.headers", {0: data[: harness.read_header(path)[1]]}, len(data))
            else:
                shutil.copy(path, self.source)
        return self.source

    def copy_all(self):
        shutil.rmtree(self.source, ignore_errors=True)
        return shutil.copytree(self.model, self.source)

    def fetch(self, before="true"):
        """Copies a shard, and notes how many are there then, and how many bytes."""
        return (f"{before}; cp {self.model}/{{file}} {{path}}; "
                f"echo {{file}} $(ls -A {self.source} | grep -Ec 'safetensors$|partial$') $(du -sb {self.disk} | cut -f1) >> {self.log}")

    def fetched(self):
        """(shard, how many were here, bytes on the disk) of each."""
        lines = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
        return [(name, int(here), int(size)) for name, here, size in map(str.split, lines)]

    def convert(self, *options, source=None, output=None, code=0):
        given = self.options("ct-w4a16-g128-sym", "-o", output or self.output, "--fallback", "dequantize", *options)
        done = self.run_tool("convert", source or self.source, *given[1:])
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def flow(self, *options, **more):
        return self.convert("--fetch", self.fetch(), "--consume", "--resume", *options, **more)

    def manifest(self, path):
        """What does not depend on where the source was. Its fingerprint is there with --resume only."""
        manifest = json.loads(pathlib.Path(f"{path}.prepack.json").read_text())
        fingerprint = manifest.pop("source_fingerprint", None)
        return {key: value for key, value in manifest.items() if key not in ("source", "run")}, fingerprint

    def same_output(self):
        ours, theirs = self.manifest(self.output), self.manifest(self.expected)
        self.assertEqual(ours[0], theirs[0])
        self.assertIn(ours[1], (None, theirs[1]))
        of_manifest = len("0" * 32)
        ours, theirs = self.output.read_bytes(), self.expected.read_bytes()
        self.assertEqual(len(ours), len(theirs))
        at = ours.index(b"general.prepack.manifest") + len("general.prepack.manifest") + 12
        self.assertEqual((ours[:at], ours[at + of_manifest :]), (theirs[:at], theirs[at + of_manifest :]))
        self.assertEqual(self.files(), ["model.gguf", "model.gguf.prepack.json", "source"])

    def files(self):
        """On the disk, but for what is nothing of the model."""
        passing = (".model.gguf.prepack-delivered", ".model.gguf.prepack-lock")
        return sorted(name for name in os.listdir(self.disk) if name not in passing)

    def shards_here(self):
        return sorted(path.name for path in self.source.glob("*.safetensors"))

    def remove_output(self):
        self.output.unlink()
        pathlib.Path(f"{self.output}.prepack.json").unlink()
        self.log.unlink(missing_ok=True)


class Fetch(GgufFlowTest):
    def test_the_file_is_that_of_the_whole_model(self):
        for name in CASES:
            with self.subTest(name):
                self.take(name)
                self.leave_headers()
                self.flow()
                self.same_output()
                self.assertEqual(self.shards_here(), [])
                self.run_ok("verify", self.output, "--source", self.model)
                self.assertIn("complete already", self.convert("--resume").stdout)
                self.remove_output()

    def test_little_is_on_the_disk(self):
        """Beside the output N + 1 shards, or two for what lies in two of them; and headers, the journal and the
        manifest."""
        for name in ("ct-w4a16-g128-sym", "ct-int8-moe"):
            self.take(name, shards=8)
            self.assertGreater(len(list(self.model.glob("*.safetensors"))), 4)
            largest = max(path.stat().st_size for path in self.model.glob("*.safetensors"))
            for ahead in (0, 1, 3):
                self.leave_headers()
                side = sum(path.stat().st_size for path in self.source.iterdir())
                self.flow("--ahead", ahead, "--jobs", 2)
                self.same_output()
                most = max(2, ahead + 1)
                self.assertLessEqual(max(here for _, here, _ in self.fetched()), most)
                bound = self.output.stat().st_size + most * largest + 2 * side + (64 << 10)
                self.assertLessEqual(max(size for _, _, size in self.fetched()), bound)
                self.remove_output()

    def test_planning_brings_what_it_reads_once(self):
        """Shapes, then norms, and of widths the scales: the shards come once for each, and their headers keep it."""
        self.take("ct-widths")
        self.leave_headers()
        seen = self.scratch / "seen.json"
        os.environ["PREPACK_TEST_SEEN"] = str(seen)
        self.addCleanup(os.environ.pop, "PREPACK_TEST_SEEN", None)
        self.flow()
        names = [name for name, _, _ in self.fetched()]
        self.assertLessEqual(max(names.count(name) for name in names), 3)
        tensors = harness.read_tensors(self.model)
        given = json.loads(seen.read_text())
        self.assertIn("model.norm.weight", given)
        for name, found in given.items():
            self.assertEqual(bytes.fromhex(found), tensors[name][2], name)
        self.remove_output()
        # Without a shard, all of that is still known.
        planned = self.run_ok("plan", self.source, *self.options("ct-widths", "--fallback", "dequantize", "--json")[1:])
        whole = self.run_ok("plan", self.model, *self.options("ct-widths", "--fallback", "dequantize", "--json")[1:])
        self.assertEqual(json.loads(planned.stdout)["tensors"], json.loads(whole.stdout)["tensors"])
        self.flow()
        self.same_output()
        self.assertEqual(len(self.fetched()), len(list(self.model.glob("*.safetensors"))))

    def test_headers_with_what_planning_reads(self):
        """prepack-remote brings ranges, so that no shard comes twice."""
        server = RangeServer(self.scratch)
        self.addCleanup(server.stop)
        for name in ("ct-widths", "ct-w4a16-g32-asym"):
            self.take(name)
            plan = self.options(name, "--fallback", "dequantize")[1:]
            command = [sys.executable, "-m", "prepack.remote.command", "headers", f"{server.url}/model", "--into",
                       self.source, "--side-files", "--plan", *plan]
            paths = f"{ROOT / 'integrations' / 'python' / 'src'}:{os.environ.get('PYTHONPATH', '')}"
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={
                **os.environ, "PYTHONPATH": paths, "PREPACK_TOOL": harness.TOOL,
                "PREPACK_REMOTE_CACHE": str(self.scratch / "cache")})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.flow()
            self.same_output()
            self.assertEqual(len(self.fetched()), len(list(self.model.glob("*.safetensors"))))
            self.remove_output()
            shutil.rmtree(self.source)

    def test_shards_stay_without_consume(self):
        self.take("ct-w4a16-g128-sym")
        self.leave_headers()
        self.convert("--fetch", self.fetch())
        self.same_output()
        shards = len(list(self.model.glob("*.safetensors")))
        self.assertEqual((len(self.fetched()), len(self.shards_here())), (shards, shards))
        self.convert("--fetch", "false {file}", "--force")
        self.same_output()

    def test_in_several_files(self):
        self.take("ct-w4a16-g128-sym")
        self.leave_headers()
        folder, whole = self.disk / "parts", self.scratch / "parts"
        self.flow("--shard-size", "400K", output=folder)
        self.convert("--shard-size", "400K", source=self.model, output=whole)
        ours, theirs = contents(folder), contents(whole)
        self.assertGreater(len(ours), 3)
        self.assertEqual(sorted(ours), sorted(theirs))
        later = [name for name in ours if name.endswith(".gguf") and "-00001-of-" not in name]
        self.assertEqual([ours[name] for name in later], [theirs[name] for name in later])
        first = next(name for name in ours if "-00001-of-" in name)
        self.run_ok("verify", folder / first, "--source", self.model)
        self.assertIn("complete already", self.flow("--shard-size", "400K", output=folder).stdout)
        self.assertEqual(sorted(os.listdir(self.disk)), ["parts", "source"])

    def test_what_arrives_must_be_what_was_planned(self):
        self.take("ct-w4a16-g128-sym")
        self.leave_headers()
        bad = "model-00003-of-00004.safetensors"
        cuts = f"test {{file}} = {bad} && head -c 5000 {self.model}/{bad} > {{path}} || cp {self.model}/{{file}} {{path}}"
        done = self.convert("--fetch", cuts, "--resume", code=3)
        self.assertIn(bad, done.stderr)
        self.assertNotIn(bad, self.shards_here())
        self.assertFalse(self.output.exists())
        self.assertIn("exit code 7", self.convert("--fetch", "exit 7 # {file}", code=4).stderr)


class Killed(GgufFlowTest):
    def test_at_every_shard(self):
        """And at moments between them; the next run goes on, and the file is that of one that was never stopped."""
        self.take("ct-int8-moe", shards=5)
        for number, ahead in ((signal.SIGTERM, 1), (signal.SIGKILL, 0), (signal.SIGKILL, 2)):
            self.leave_headers()
            for kill in range(16):
                # The n-th fetch of this run ends it, or a moment after.
                count, delay = self.scratch / "count", 0.02 * (kill % 4)
                before = (f"echo >> {count}; if test $(wc -l < {count}) -ge {1 + kill // 4}; "
                          f"then {harness.end_the_tool(number, delay)}; fi")
                given = self.options("ct-int8-moe", "-o", self.output, "--fallback", "dequantize", "--consume", "--resume",
                                     "--ahead", ahead, "--jobs", 2, "--fetch", self.fetch(before))
                done = self.run_tool("convert", self.source, *given[1:])
                self.assertIn(done.returncode, (0, 143, -9, -15), done.stderr)
                count.unlink(missing_ok=True)
                for shard in self.model.glob("*.safetensors"):
                    here = self.source / shard.name
                    self.assertTrue((self.source / f"{shard.name}.headers").exists())
                    self.assertTrue(not here.exists() or here.read_bytes() == shard.read_bytes())
                if done.returncode == 0:
                    break
                self.assertFalse(self.output.exists())
            self.flow("--ahead", ahead)
            self.same_output()
            self.assertEqual(self.shards_here(), [])
            self.assertIn("complete already", self.convert("--resume", "--consume", "--fetch", "false {file}").stdout)
            self.remove_output()

    def kill_half_way(self, *options):
        """A run that is killed when it asks for the fourth shard; two have been consumed by then."""
        self.leave_headers()
        self.convert("--fetch", self.fetch(), source=self.source)  # planning has what it reads
        self.remove_output()
        for shard in self.shards_here():
            (self.source / shard).unlink()
        kill = f"touch {self.log}; test $(wc -l < {self.log}) -lt 3 || {{ {harness.end_the_tool(signal.SIGKILL)}; }}"
        self.convert("--consume", "--resume", "--ahead", 0, *options, "--fetch", self.fetch(kill), code=-9)
        self.log.unlink()

    def test_and_verified(self):
        """The verdict is that of one run that was never killed."""
        for name in ("ct-w4a16-g128-sym", "ct-int8-moe"):
            self.take(name, shards=5)
            self.kill_half_way("--verify")
            done = self.flow("--verify").stdout
            self.assertLess(len(self.fetched()), 5)
            self.assertIn("were there from the interrupted run", done)
            self.same_output()
            later = self.run_ok("verify", self.output, "--source", self.model).stdout
            self.assertIn("passed", later)
            self.assertEqual(done[done.index("module  ") :], later)
            self.remove_output()

    def test_consumed_and_never_judged(self):
        self.take("ct-w4a16-g128-sym", shards=5)
        self.kill_half_way()
        refused = self.flow("--verify", code=2).stderr
        self.assertIn("an earlier run has consumed what some tensors were made of", refused)
        self.flow()
        self.same_output()

    def test_another_conversion_is_not_continued(self):
        self.take("ct-w4a16-g128-sym", shards=5)
        self.kill_half_way()
        left = self.files()
        self.assertIn(".model.gguf.prepack-journal", left)
        self.assertIn("other options", self.flow("--exact", code=2).stderr)
        # Without --resume it would begin anew, and what it was made of is gone.
        self.assertIn("headers only", self.convert(code=5).stderr)
        self.assertEqual(self.files(), left)
        self.flow()
        self.same_output()


class Resume(GgufFlowTest):
    """Of a model that is here as a whole."""

    def test_what_was_finished_is_kept(self):
        self.take("ct-w4a16-g128-sym")
        self.copy_all()
        self.convert("--resume", "--done", "exit 1 # {file}", code=4)  # complete, but for that
        self.assertIn("complete already", self.convert("--resume").stdout)
        self.same_output()
        # Another model under the same name.
        shard = self.source / self.shards_here()[1]
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        self.assertIn("another source", self.convert("--resume", code=2).stderr)
        self.convert("--resume", "--force")

    def test_nothing_goes_without_consume(self):
        self.take("ct-w4a16-g128-sym")
        self.copy_all()
        before = harness.snapshot(self.source)
        self.convert("--resume")
        self.assertEqual(harness.snapshot(self.source), before)
        for options, said in ((["--consume"], "expected --resume on the same line"),
                              (["--consume", "--resume", "--no-flush"], "--no-flush"),
                              (["--part", "1/2"], "not for --target gguf")):
            self.assertIn(said, self.convert("--force", *options, code=2).stderr)
        self.assertEqual(harness.snapshot(self.source), before)

    def test_consumed(self):
        """Of all formats, the next run can plan from what stays."""
        for name in CASES:
            with self.subTest(name):
                self.take(name)
                self.copy_all()
                self.convert("--consume", "--resume")
                self.same_output()
                self.assertEqual(self.shards_here(), [])
                self.assertIn("complete already", self.convert("--consume", "--resume").stdout)
                self.remove_output()

    def test_verified(self):
        for name in CASES:
            with self.subTest(name):
                self.take(name)
                self.copy_all()
                done = self.convert("--consume", "--resume", "--verify")
                self.assertEqual(self.shards_here(), [])
                later = self.run_ok("verify", self.output, "--source", self.model).stdout
                self.assertEqual(done.stdout[done.stdout.index("module  ") :], later)
                report = json.loads(self.convert("--force", "--verify", "--json", source=self.model).stdout)
                self.assertEqual(report["verification"]["verdict"], "passed")
                self.remove_output()

    def test_what_fails_verification_stays(self):
        """Of an unquantized tensor that is no number nobody can say that it is the same."""
        self.take("ct-w4a16-g128-sym")
        self.copy_all()
        name = "model.embed_tokens.weight"
        path = next(path for path in self.source.glob("*.safetensors") if name in harness.read_header(path)[0])
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[name]["data_offsets"][0]
        data[at : at + 2] = struct.pack("<H", 0x7FC0)
        path.write_bytes(data)
        before = harness.snapshot(path.parent)
        done = self.convert("--consume", "--resume", "--verify", code=1)
        self.assertIn("token_embd.weight: 1 weights are not those of the source", done.stderr)
        self.assertIn("have not been removed", done.stderr)
        self.assertEqual(harness.snapshot(path.parent)[path.name], before[path.name])
        self.assertFalse(self.output.exists())


class Done(GgufFlowTest):
    def test_files_go_when_the_model_is_complete(self):
        self.take("ct-w4a16-g128-sym")
        there = self.scratch / "there"
        there.mkdir()
        carry = f"cp {{path}} {there}/{{file}} && echo {{file}} >> {self.log}"
        stops = f"case {{file}} in *.json) exit 1;; esac; {carry}"
        self.leave_headers()
        fetch = f"cp {self.model}/{{file}} {{path}}"
        self.convert("--fetch", fetch, "--resume", "--consume", "--done", stops, code=4)
        self.convert("--fetch", fetch, "--resume", "--consume", "--done", carry)
        self.assertEqual(self.log.read_text().split(), ["model.gguf", "model.gguf.prepack.json"])
        self.assertEqual((there / "model.gguf").read_bytes(), self.output.read_bytes())
        folder = self.disk / "parts"
        self.log.unlink()
        self.convert("--shard-size", "400K", "--done", carry, source=self.model, output=folder)
        names = self.log.read_text().split()
        self.assertEqual(sorted(names), sorted(os.listdir(folder)))
        self.assertEqual(names[-1], "parts.gguf.prepack.json")


if __name__ == "__main__":
    unittest.main()
