"""Shards of the source that come while a conversion runs and go when it has done with them: the output is that
of a conversion of the whole model, few shards are on the disk at a time, and whatever stops a run, nothing is lost
but what was to be consumed."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

import harness
from harness import CHECKPOINTS, ROOT, contents

sys.path.insert(0, str(ROOT / "integrations" / "python" / "src"))
from prepack.remote.headers_file import write_ranges  # noqa: E402

SHARDED = "ct-w4a16-g128-sharded"
LIKE_A_SHARD = 4096  # bytes of a tensor that is no scalar or shape


def leave_headers(model, folder):
    """What `prepack-remote headers --side-files` makes of a model."""
    folder.mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
            continue
        header, start = harness.read_header(path)
        data = path.read_bytes()
        ranges = {0: data[:start]}
        for info in header.values():
            begin, end = info["data_offsets"]
            if end - begin < LIKE_A_SHARD:
                ranges[start + begin] = data[start + begin : start + end]
        write_ranges(folder / f"{path.name}.headers", ranges, len(data))
    return folder


def layered_checkpoint(folder, shards, modules=2, n=1024, k=1024):
    """A W4A16 checkpoint with some modules in each shard, and one whose tensors lie in two of them."""
    single = harness.large_checkpoint(folder.with_name(folder.name + "-single"), shards * modules, n, k)
    header, start = harness.read_header(single / "model.safetensors")
    data = (single / "model.safetensors").read_bytes()[start:]
    weight_map, parts = {}, [{} for _ in range(shards)]
    for name, info in header.items():
        layer = int(name.split(".")[2])
        shard = layer // modules
        if name.endswith("weight_scale") and layer % modules == modules - 1 and shard + 1 < shards:
            shard += 1
        begin, end = info["data_offsets"]
        parts[shard][name] = (info["dtype"], info["shape"], data[begin:end])
        weight_map[name] = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
    folder.mkdir()
    shutil.copy(single / "config.json", folder)
    for shard, tensors in enumerate(parts):
        (folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors").write_bytes(harness.safetensors_bytes(tensors))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    shutil.rmtree(single)
    return folder


class FlowTest(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.model = CHECKPOINTS / SHARDED
        self.source = self.scratch / "source"
        self.out = self.scratch / "out"
        self.log = self.scratch / "log"

    def fetch(self, before="true"):
        """Copies a shard, and notes which ones are there then, complete or on their way."""
        return (f"{before}; ls -A {self.source} | grep -Ec 'safetensors$|partial$' >> {self.log}; "
                f"cp {self.model}/{{file}} {{path}}")

    def convert(self, *options, source=None, target="vllm-cpu", code=0):
        if "--consume" in options and "--resume" not in options:
            options = (*options, "--resume")
        done = self.run_tool("convert", source or self.source, "-o", self.out, "-t", target, *options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def expected(self, target="vllm-cpu", *options):
        """The output for the whole model, but for where it was."""
        folder = self.scratch / f"expected-{target}"
        if not folder.exists():
            self.run_ok("convert", self.model, "-o", folder, "-t", target, *options)
        return folder

    def same_output(self, target="vllm-cpu"):
        for name, found in contents(self.expected(target)).items():
            if name == "prepack.json":
                continue
            self.assertEqual(contents(self.out).get(name), found, name)
        ours, theirs = harness.manifest(self.out), harness.manifest(self.expected(target))
        for manifest in (ours, theirs):
            manifest["source"].pop("path", None)
            manifest.pop("manifest_xxh3_128")
        self.assertEqual(ours, theirs)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(os.listdir(self.expected(target))))

    def shards_here(self):
        return sorted(path.name for path in self.source.glob("*.safetensors"))

    def most_at_once(self):
        """How many shards were there at most when one more began to come, with that one."""
        return 1 + max(map(int, self.log.read_text().split()))


class Fetch(FlowTest):
    def test_the_output_is_that_of_the_whole_model(self):
        for target in ("vllm-cpu", "zentorch", "compressed-tensors", "bf16"):
            leave_headers(self.model, self.source)
            self.convert("--fetch", self.fetch(), "--consume", target=target)
            self.same_output(target)
            self.assertEqual(self.shards_here(), [])
            shutil.rmtree(self.source)
            shutil.rmtree(self.out)

    def test_few_shards_are_here_at_a_time(self):
        self.model = layered_checkpoint(self.scratch / "model", shards=8)
        for ahead in (0, 1, 3):
            leave_headers(self.model, self.source)
            self.convert("--fetch", self.fetch(), "--ahead", ahead, "--consume", "--jobs", 2)
            self.same_output()
            # A module between two shards needs both.
            self.assertLessEqual(self.most_at_once(), max(2, ahead + 1))
            self.assertEqual(self.shards_here(), [])
            for path in (self.source, self.out):
                shutil.rmtree(path)
            self.log.unlink()

    def test_shards_stay_without_consume(self):
        leave_headers(self.model, self.source)
        self.convert("--fetch", self.fetch())
        self.same_output()
        self.assertEqual(self.shards_here(), sorted(p.name for p in self.model.glob("*.safetensors")))
        # Nothing is fetched that is here.
        self.convert("--fetch", "false {file}", "--force")
        self.same_output()

    def test_verified_on_the_way(self):
        self.model = layered_checkpoint(self.scratch / "model", shards=3)
        leave_headers(self.model, self.source)
        done = self.convert("--fetch", self.fetch(), "--consume", "--verify")
        self.assertIn("passed", done.stdout)
        self.same_output()
        self.assertEqual(self.shards_here(), [])

    def test_what_arrives_must_be_what_was_planned(self):
        shard = "model-00003-of-00003.safetensors"
        data = (self.model / shard).read_bytes()
        cases = {"cut": data[:-1], "longer": data + b"x", "another header": data.replace(b"I32", b"U32", 1), "empty": b""}
        for name, wrong in cases.items():
            leave_headers(self.model, self.source)
            bad = self.scratch / "bad"
            bad.write_bytes(wrong)
            done = self.convert("--fetch", f"test {{file}} = {shard} && cp {bad} {{path}} || cp {self.model}/{{file}} {{path}}",
                                code=3)
            self.assertIn(shard, done.stderr, name)
            self.assertNotIn(shard, self.shards_here())
            self.assertFalse(self.out.exists())
            shutil.rmtree(self.source)

    def test_commands_that_fail(self):
        leave_headers(self.model, self.source)
        done = self.convert("--fetch", "exit 7 # {file}", code=4)
        self.assertIn("exit code 7", done.stderr)
        self.assertIn("has not brought the file", self.convert("--fetch", "true {file}", code=4).stderr)
        self.assertIn("does not say which file", self.convert("--fetch", "true", code=2).stderr)
        self.assertEqual((self.shards_here(), self.out.exists()), ([], False))
        # Names are words, whatever they hold.
        self.convert("--fetch", f"set -- {{file}} {{path}}; test $# = 2 && cp {self.model}/\"$1\" \"$2\"")
        self.same_output()

    def test_a_disk_that_is_full(self):
        leave_headers(self.model, self.source)
        done = self.convert("--fetch", "head -c 100 /dev/zero > {path}; echo No space left >&2; exit 1 # {file}", code=4)
        self.assertIn("No space left", done.stderr)
        self.assertEqual(self.shards_here(), [])

    def test_without_fetch_the_data_is_refused(self):
        leave_headers(self.model, self.source)
        self.assertIn("headers only", self.convert(code=5).stderr)
        self.assertFalse(self.out.exists())

    def test_parts(self):
        for part in (1, 2):
            source = leave_headers(self.model, self.scratch / f"source-{part}")
            options = ["--part", f"{part}/2", "--fetch", f"cp {self.model}/{{file}} {{path}}", "--consume"]
            self.assertIn("--trust-source", self.convert(*options, source=source, code=2).stderr)
            self.convert(*options, "--trust-source", source=source)
            self.assertEqual(list(source.glob("*.safetensors")), [])
        self.run_ok("merge", self.out)
        self.assertEqual(harness.hashes(self.out), harness.hashes(self.expected()))
        self.run_ok("verify", self.out, "--source", self.model)

    def headers_of_parts(self, count=2):
        """The parts of an output without their data, beside `away/out`; returns their folders."""
        (self.scratch / "away").mkdir()
        parts = []
        for part in range(1, count + 1):
            self.run_ok("convert", self.model, "-o", self.out, "-t", "vllm-cpu", "--part", f"{part}/{count}")
            parts.append(harness.part_name(self.out, part, count))
            leave_headers(parts[-1], self.scratch / "away" / parts[-1].name)
        return parts

    def test_parts_are_merged_by_their_headers(self):
        parts = self.headers_of_parts()
        away = self.scratch / "away" / "out"
        report = self.checked_json(self.run_ok("merge", away, "--json").stdout, "merge")
        self.run_ok("merge", self.out, "--keep-parts")
        # All but the data is there, and of it what says where it is.
        self.assertEqual(sorted(os.listdir(away)), sorted(f"{name}.headers" if name in report["files"] else name
                                                          for name in os.listdir(self.out)))
        for name in os.listdir(self.out):
            if name in report["files"]:
                of_part = self.scratch / report["files"][name]
                self.assertEqual((self.out / name).read_bytes(), of_part.read_bytes())
                self.assertIn(of_part.parent, parts)
            else:
                self.assertEqual((away / name).read_bytes(), (self.out / name).read_bytes(), name)

    def test_headers_of_another_part_are_not_merged(self):
        parts = self.headers_of_parts()
        (shard,) = (self.scratch / "away" / parts[0].name).glob("*.headers")
        self.assertIn(b'"I32"', shard.read_bytes())
        shard.write_bytes(shard.read_bytes().replace(b'"I32"', b'"U32"', 1))
        self.assert_fails(3, ["not what was written"], "merge", self.scratch / "away" / "out")
        self.assertFalse((self.scratch / "away" / "out").exists())

    def verify_away(self, source, folder, *args, code=0):
        self.log.unlink(missing_ok=True)
        fetch = f"echo {{path}} >> {self.log}; cp $(dirname {{path}} | sed s/away-//)/{{file}} {{path}}"
        return self.run_tool("verify", folder, "--source", source, "--fetch", fetch, *args)

    def test_verified_in_parts_that_bring_what_they_read(self):
        self.model = layered_checkpoint(self.scratch / "model", shards=4)
        for part in (1, 2, 3):
            self.convert("--part", f"{part}/3", source=self.model)
        self.run_ok("merge", self.out)
        source = leave_headers(self.model, self.scratch / "away-model")
        folder = leave_headers(self.out, self.scratch / "away-out")
        shards = len(list(self.model.glob("*.safetensors"))) + len(list(self.out.glob("*.safetensors")))
        for part in (1, 2, 3):
            done = self.verify_away(source, folder, "--part", f"{part}/3", "--report", self.scratch / f"{part}.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            brought = self.log.read_text().split()
            self.assertLess(len(brought), shards)
            self.assertEqual(len(brought), len(set(brought)))
            for path in (*source.glob("*.safetensors"), *folder.glob("*.safetensors")):
                path.unlink()
        merge = ("--merge", *(self.scratch / f"{part}.json" for part in (1, 2, 3)))
        away = self.run_ok("verify", folder, "--source", source, *merge).stdout
        self.assertEqual(away, self.run_ok("verify", self.out, "--source", self.model).stdout)

    def test_what_verify_brings_must_be_what_its_headers_say(self):
        self.model = shutil.copytree(self.model, self.scratch / "model")
        self.convert(source=self.model)
        source = leave_headers(self.model, self.scratch / "away-model")
        folder = leave_headers(self.out, self.scratch / "away-out")
        whole = self.run_ok("verify", self.out, "--source", self.model).stdout
        before = harness.snapshot(self.scratch / "away-model")
        args = ("verify", folder, "--source", source, "--fetch")
        for command, code, said in (("exit 9; {file}", 4, "exit code 9"), ("true {file}", 4, "cannot open it"),
                                    (f"head -c 5000 {self.model}/config.json > {{path}} # {{file}}", 3, "another file"),
                                    ("true", 2, "does not say which file")):
            done = self.run_tool(*args, command)
            self.assertIn(said, done.stdout + done.stderr)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(harness.snapshot(self.scratch / "away-model"), before)
        self.assertEqual(self.verify_away(source, folder).stdout, whole)

    def test_another_run_with_the_same_source(self):
        leave_headers(self.model, self.source)
        waits = f"while ! test -e {self.scratch}/go; do sleep 0.05; done; cp {self.model}/{{file}} {{path}}"
        first = self.start("convert", self.source, "-o", self.out, "-t", "vllm-cpu", "--fetch", f"touch {self.log}; {waits}")
        self.wait_for(self.log.exists)
        done = self.run_tool("convert", self.source, "-o", self.scratch / "other", "-t", "zentorch", "--fetch", waits)
        self.assertEqual(done.returncode, 2)
        self.assertIn("another prepack fetches or removes its shards", done.stderr)
        (self.scratch / "go").touch()
        self.assertEqual(first.wait(), 0)

    def start(self, *args):
        child = subprocess.Popen([harness.TOOL, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_stopped_and_killed(self):
        """At every shard, and at moments between them; the next run goes on, and fetches nothing twice that was
        consumed with all that it was for."""
        self.model = layered_checkpoint(self.scratch / "model", shards=5)
        for number, ahead in ((signal.SIGTERM, 1), (signal.SIGKILL, 0), (signal.SIGKILL, 2)):
            leave_headers(self.model, self.source)
            options = ["--resume", "--consume", "--ahead", ahead, "--jobs", 2]
            for kill in range(12):
                # The n-th fetch of this run ends it, or a moment after.
                count, delay = self.scratch / "count", 0.03 * (kill % 4)
                before = (f"echo >> {count}; if test $(wc -l < {count}) -ge {1 + kill // 4}; "
                          f"then {harness.end_the_tool(number, delay)}; fi")
                done = self.run_tool("convert", self.source, "-o", self.out, "-t", "vllm-cpu", *options,
                                     "--fetch", self.fetch(before))
                self.assertIn(done.returncode, (0, 143, -9, -15), done.stderr)
                count.unlink(missing_ok=True)
                # Each shard is here, or its headers are.
                for shard in self.model.glob("*.safetensors"):
                    self.assertTrue((self.source / f"{shard.name}.headers").exists())
                    if (self.source / shard.name).exists():
                        self.assertEqual((self.source / shard.name).read_bytes(), shard.read_bytes())
                if done.returncode == 0:
                    break
            self.convert(*options, "--fetch", self.fetch())
            self.same_output()
            self.assertEqual(self.shards_here(), [])
            # And again: there is nothing to do.
            self.assertIn("complete already", self.convert(*options, "--fetch", "false {file}").stdout)
            for path in (self.source, self.out):
                shutil.rmtree(path)

    def kill_half_way(self, *options, target="vllm-cpu"):
        """A run that is killed when it asks for the fourth shard; two have been consumed by then."""
        leave_headers(self.model, self.source)
        kill = f"touch {self.log}; test $(wc -l < {self.log}) -lt 3 || {{ {harness.end_the_tool(signal.SIGKILL)}; }}"
        self.convert("--consume", "--ahead", 0, *options, "--fetch", self.fetch(kill), target=target, code=-9)
        self.log.unlink()

    def test_killed_and_verified(self):
        """The verdict is that of one run that was never killed."""
        self.model = layered_checkpoint(self.scratch / "model", shards=5)
        for target in ("vllm-cpu", "gptq-v2"):
            whole = self.convert("--verify", source=self.model, target=target).stdout
            shutil.rmtree(self.out)
            self.kill_half_way("--verify", target=target)
            done = self.convert("--consume", "--verify", "--fetch", self.fetch(), target=target).stdout
            self.assertLess(len(self.log.read_text().split()), 5)
            self.assertEqual(self.shards_here(), [])
            self.same_output(target)
            self.assertIn("were there from the interrupted run", done)
            self.assertEqual(*(text[text.index("module  ") :] for text in (done, whole)))
            for path in (self.source, self.out):
                shutil.rmtree(path)
            self.log.unlink()

    def test_consumed_and_never_judged(self):
        self.model = layered_checkpoint(self.scratch / "model", shards=5)
        self.kill_half_way()
        refused = self.convert("--consume", "--verify", "--fetch", self.fetch(), code=2).stderr
        self.assertIn("an earlier run has consumed what some modules were made of", refused)
        self.convert("--consume", "--fetch", self.fetch())
        self.same_output()


class Consume(FlowTest):
    """Of a model that is here as a whole."""

    def test_all_formats_can_go_on_from_what_stays(self):
        for name in (SHARDED, "ct-w8a8-static", "ar-gptq-w4-sym", "gptqmodel-w4-sym-g128", "awq-gemm-g128", "quark-awq"):
            for target in ("vllm-cpu", "gptq-v2"):
                shutil.copytree(CHECKPOINTS / name, self.source)
                planned = self.run_tool("plan", self.source, "-t", target, "--json")
                if planned.returncode == 0:
                    self.convert("--consume", "--resume", target=target)
                    self.assertEqual(self.shards_here(), [], name)
                    again = self.run_tool("plan", self.source, "-t", target, "--json")
                    self.assertEqual(json.loads(again.stdout), json.loads(planned.stdout), (name, target))
                    self.assertIn("complete already", self.convert("--consume", "--resume", target=target).stdout)
                    self.run_ok("verify", self.out, "--source", CHECKPOINTS / name)
                    shutil.rmtree(self.out)
                shutil.rmtree(self.source)

    def test_nothing_goes_without_it(self):
        shutil.copytree(self.model, self.source)
        before = harness.snapshot(self.source)
        self.convert("--resume")
        self.assertEqual(harness.snapshot(self.source), before)

    def test_nothing_goes_that_is_not_on_the_disk(self):
        shutil.copytree(self.model, self.source)
        before = harness.snapshot(self.source)
        for options, said in ((["--no-flush"], "--no-flush"), (["--part", "1/2"], "other parts need the shards"),
                              (["--part", "1/2", "--trust-source"], "other parts need the shards")):
            self.assertIn(said, self.convert("--consume", *options, code=2).stderr)
        # A limit on the size of files stands for a full disk.
        limited = f"ulimit -f 400; exec {harness.TOOL} convert {self.source} -o {self.out} -t vllm-cpu --consume --resume"
        done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(harness.snapshot(self.source), before)

    def test_what_was_made_of_consumed_shards_stays(self):
        """Until a run with --resume goes on with it."""
        self.model = layered_checkpoint(self.scratch / "model", shards=3)
        shutil.copytree(self.model, self.source)
        done = self.run_tool("convert", self.source, "-o", self.out, "-t", "vllm-cpu", "--consume")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected --resume on the same line", done.stderr)
        self.convert("--consume", "--done", "exit 1; true {file}", code=4)
        left = sorted(path.name for path in self.scratch.glob(".out.prepack-*"))
        self.assertIn(".out.prepack-partial", left)
        gone = [path.name for path in self.model.glob("*.safetensors") if not (self.source / path.name).exists()]
        self.assertTrue(gone)
        self.assertIn("headers only", self.convert(code=5).stderr)
        self.assertEqual(sorted(path.name for path in self.scratch.glob(".out.prepack-*")), left)
        self.convert("--resume", "--consume")
        self.same_output()

    def test_links_stay(self):
        shutil.copytree(self.model, self.source)
        shard = "model-00001-of-00003.safetensors"
        (self.source / shard).rename(self.source / "there.bin")
        (self.source / shard).symlink_to("there.bin")
        self.assertIn("this is a link", self.convert("--consume", code=2).stderr)
        self.assertTrue((self.source / "there.bin").exists())

    def test_what_cannot_be_packed_stays(self):
        """A scale that is no number. What fails verification is tests/verify/conversion_check_test.cpp."""
        shutil.copytree(self.model, self.source)
        path, name = next((path, name) for path in sorted(self.source.glob("*.safetensors"))
                          for name in harness.read_header(path)[0] if name.endswith("weight_scale"))
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        at = start + header[name]["data_offsets"][0]
        data[at : at + 2] = struct.pack("<H", 0x7FC0)
        path.write_bytes(data)
        done = self.run_tool("convert", self.source, "-o", self.out, "-t", "vllm-cpu", "--consume", "--resume",
                             "--verify")
        self.assertEqual(done.returncode, 3)
        self.assertIn("is not a finite number", done.stderr)
        self.assertIn(path.name, self.shards_here())

    def test_the_manifest_has_the_address_of_what_goes(self):
        """As prepack-remote leaves it beside the headers; without a login."""
        record = ".prepack-source.json"
        for options, url, path in ((["--consume"], "s3://bucket/models/a", "s3://bucket/models/a"),
                                   (["--consume"], "https://me:secret@host/a@b", "https://host/a@b"),
                                   (["--consume"], "/home/me", "../source"), (["--consume"], "x\n://y", "../source"),
                                   ([], "s3://bucket/models/a", "../source")):
            shutil.copytree(self.model, self.source)
            (self.source / record).write_text(json.dumps({"url": url}))
            self.convert(*options)
            self.assertEqual(harness.manifest(self.out)["source"]["path"], path)
            self.run_ok("verify", self.out, "--source", CHECKPOINTS / SHARDED)
            for place in (self.source, self.out):
                shutil.rmtree(place)
        for broken in ("", "[]", "{\"url\": 1}"):
            shutil.copytree(self.model, self.source)
            (self.source / record).write_text(broken)
            self.convert("--consume")
            self.assertEqual(harness.manifest(self.out)["source"]["path"], "../source")
            for place in (self.source, self.out):
                shutil.rmtree(place)

    def test_checkpoints_are_verified_on_the_way(self):
        """All levels, and what the verdict says is what a later verification says."""
        for name, target in ((SHARDED, "compressed-tensors"), (SHARDED, "gptq-v2"), (SHARDED, "bf16"),
                             ("awq-gemm-g128", "compressed-tensors"), ("ct-w4a16-g32-asym", "awq")):
            shutil.copytree(CHECKPOINTS / name, self.source)
            done = self.convert("--consume", "--verify", target=target)
            self.assertEqual(self.shards_here(), [], (name, target))
            later = self.run_ok("verify", self.out, "--source", CHECKPOINTS / name).stdout
            start = done.stdout.index("module  ")
            self.assertEqual(done.stdout[start:], later, (name, target))
            for path in (self.source, self.out):
                shutil.rmtree(path)

    def test_a_memory_limit_would_verify_too_late(self):
        shutil.copytree(self.model, self.source)
        before = harness.snapshot(self.source)
        done = self.convert("--consume", "--verify", "--memory-limit", "4GB", code=2)
        self.assertIn("verified when its source is gone", done.stderr)
        self.assertEqual(harness.snapshot(self.source), before)

    def test_it_cannot_be_verified_later(self):
        """A packed folder is compared with a checkpoint that is complete."""
        packed = self.scratch / "packed"
        self.run_ok("convert", self.model, "-o", packed, "-t", "vllm-cpu")
        shutil.copytree(packed, self.source)
        before = harness.snapshot(self.source)
        done = self.convert("--consume", "--verify", target="compressed-tensors", code=2)
        self.assertIn("only be verified when it is complete", done.stderr)
        self.assertEqual(harness.snapshot(self.source), before)


class Done(FlowTest):
    def setUp(self):
        super().setUp()
        self.there = self.scratch / "there"
        self.there.mkdir()
        self.take = f"cp {{path}} {self.there}/{{file}} && echo {{file}} >> {self.log}"

    def test_every_file_once_and_the_manifest_last(self):
        shutil.copytree(self.model, self.source)
        (self.source / "tokenizer.json").write_text("{}")
        self.convert("--done", self.take, "--resume")
        self.assertEqual(contents(self.there), contents(self.out))
        names = self.log.read_text().split()
        self.assertEqual(names[-1], "prepack.json")
        self.assertEqual(sorted(names), sorted(os.listdir(self.out)))
        # Another run has nothing to do.
        self.convert("--done", "false {file}", "--resume")

    def test_it_goes_on_where_it_failed(self):
        shutil.copytree(self.model, self.source)
        for failing in ("model.safetensors", "config.json", "prepack.json"):
            stops = f"test {{file}} != {failing} && {self.take}"
            done = self.convert("--done", stops, "--resume", code=4)
            self.assertIn(f"--done: {failing}", done.stderr)
            self.assertNotIn("prepack.json", os.listdir(self.there))
        self.convert("--done", self.take, "--resume")
        self.assertEqual(contents(self.there), contents(self.out))
        names = self.log.read_text().split()
        self.assertEqual(len(names), len(set(names)))  # nothing twice

    def test_it_is_refused(self):
        self.assertIn("--no-flush", self.convert("--done", self.take, "--no-flush", source=self.model, code=2).stderr)
        self.assertEqual(os.listdir(self.there), [])


if __name__ == "__main__":
    unittest.main()
