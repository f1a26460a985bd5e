"""Many machines and interrupted runs: --part, merge, --resume, --memory-limit."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

import harness
from harness import CHECKPOINTS, TOOL, hashes, manifest, part_name

SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
MODULES = 7


class Parts(harness.ToolTest):
    def make_parts(self, out, count, source=SOURCE, target="vllm-cpu", indices=None):
        for index in indices or range(count, 0, -1):
            self.run_ok("convert", source, "-o", out, "-t", target, "--part", f"{index}/{count}")

    def test_any_number_of_parts_gives_the_same_tensors(self):
        for target in harness.TARGETS:
            whole = self.convert(SOURCE, target)
            for count in (2, 3, 7, 40):
                with self.subTest(target=target, parts=count):
                    out = self.scratch / f"{target}-{count}"
                    self.make_parts(out, count, target=target)
                    self.assertFalse(out.exists())
                    result = self.run_ok("merge", out, "--json")
                    report = self.checked_json(result.stdout, "merge")
                    self.assertEqual(report["parts"], count)
                    self.assertEqual(report["packed_modules"], MODULES)
                    self.assertEqual(harness.read_tensors(out), harness.read_tensors(whole))
                    self.assertEqual(hashes(out), hashes(whole))
                    merged, direct = manifest(out), manifest(whole)
                    for field in ("source", "layouts", "kept", "dequantized", "target"):
                        self.assertEqual(merged[field], direct[field], field)
                    self.assertEqual(
                        {k: v["source_xxh3_128"] for k, v in merged["modules"].items()},
                        {k: v["source_xxh3_128"] for k, v in direct["modules"].items()},
                    )
                    self.assertEqual(
                        (out / "config.json").read_bytes(), (whole / "config.json").read_bytes()
                    )
                    self.run_ok("verify", out, "--source", SOURCE)
                    left = [p.name for p in self.scratch.iterdir() if "part" in p.name]
                    self.assertEqual(left, [])

    def test_merged_shards_are_indexed_and_not_copied(self):
        out = self.scratch / "out"
        self.make_parts(out, 3)
        parts = [part_name(out, i, 3) for i in (1, 2, 3)]
        inodes = [os.stat(part / "model.safetensors").st_ino for part in parts]
        self.run_ok("merge", out, "--keep-parts")
        names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        self.assertEqual([os.stat(out / name).st_ino for name in names], inodes)
        index = json.loads((out / "model.safetensors.index.json").read_text())
        self.assertEqual(set(index["weight_map"].values()), set(names))
        self.assertEqual(set(index["weight_map"]), set(harness.read_tensors(out)))
        self.assertTrue(all(part.is_dir() for part in parts))
        self.run_ok("verify", out, "--source", SOURCE)

    def test_side_files_come_along(self):
        source = self.scratch / "source"
        shutil.copytree(SOURCE, source)
        (source / "tokenizer.json").write_text('{"x": 1}')
        out = self.scratch / "out"
        self.make_parts(out, 2, source=source)
        self.run_ok("merge", out)
        self.assertEqual((out / "tokenizer.json").read_text(), '{"x": 1}')
        self.run_ok("verify", out, "--source", source)

    def test_a_missing_part_is_named(self):
        out = self.scratch / "out"
        self.assert_fails(2, [str(out), "no parts found next to it", "--part"], "merge", out)
        self.make_parts(out, 4, indices=(1, 4))
        self.assert_fails(
            2, ["parts are missing", "found 2 of 4", "expected also 2, 3"], "merge", out
        )
        self.assertFalse(out.exists())

    def test_parts_of_different_conversions_are_refused(self):
        out = self.scratch / "out"
        self.make_parts(out, 2, indices=(1,))
        self.make_parts(out, 3, indices=(2,))
        self.assert_fails(2, ["different conversions", "out of 2, out of 3"], "merge", out)
        shutil.rmtree(part_name(out, 2, 3))
        self.make_parts(out, 2, indices=(2,), target="zentorch")
        self.assert_fails(
            2, ["part-00002-of-00002", "other options", "--target zentorch"], "merge", out
        )
        self.run_ok(
            "convert", SOURCE, "-o", out, "-t", "vllm-cpu", "--part", "2/2", "--scales", "exact",
            "--force",
        )
        self.assert_fails(2, ["other options", "--scales exact"], "merge", out)
        self.assertTrue(part_name(out, 1, 2).is_dir())

    def test_parts_of_a_source_that_changed_are_refused(self):
        source = self.scratch / "source"
        shutil.copytree(SOURCE, source)
        out = self.scratch / "out"
        self.make_parts(out, 2, source=source, indices=(1,))
        config = json.loads((source / "config.json").read_text())
        config["_name_or_path"] = "another"
        (source / "config.json").write_text(json.dumps(config))
        self.make_parts(out, 2, source=source, indices=(2,))
        self.assert_fails(2, ["part-00002-of-00002", "another source"], "merge", out)

    def test_damaged_parts_are_refused(self):
        def truncate(part):
            path = part / "model.safetensors"
            os.truncate(path, path.stat().st_size - 1)

        def other_header(part):
            path = part / "model.safetensors"
            data = path.read_bytes()
            length = int.from_bytes(data[:8], "little")
            self.assertIn(b'"BF16"', data[8 : 8 + length])
            header = data[8 : 8 + length].replace(b'"BF16"', b'"F16" ', 1)
            path.write_bytes(data[:8] + header + data[8 + length :])

        def edit(name, old, new):
            def apply(part):
                text = (part / name).read_text()
                self.assertIn(old, text)
                (part / name).write_text(text.replace(old, new, 1))

            return apply

        cases = [
            (3, ["model.safetensors", "its size differs"], truncate),
            (3, ["model.safetensors", "the header of the shard"], other_header),
            (4, ["model.safetensors"], lambda p: (p / "model.safetensors").unlink()),
            (2, ["this folder is not a part"], lambda p: (p / "prepack-part.json").unlink()),
            (3, ["prepack-part.json"], lambda p: (p / "prepack-part.json").write_text("{")),
            (3, ["prepack-part.json", '"part"'], edit("prepack-part.json", '"part"', '"x"')),
            (3, ["prepack-part.json", "is not a part"], edit("prepack-part.json", "2/2", "9/2")),
            (3, ["its hash differs"], edit("prepack-part-manifest.json", "BF16", "F16")),
            (3, ["another part was made from another source"], None),
        ]
        for code, texts, damage in cases:
            with self.subTest(texts=texts):
                out = self.scratch / "out"
                self.make_parts(out, 2)
                part = part_name(out, 2, 2)
                if damage is None:
                    record = json.loads((part / "prepack-part.json").read_text())
                    first = json.loads((part_name(out, 1, 2) / "prepack-part.json").read_text())
                    name, line = next(iter(first["source_tensors"].items()))
                    record["source_tensors"][name] = line[:-1] + ("0" if line[-1] != "0" else "1")
                    (part / "prepack-part.json").write_text(json.dumps(record))
                else:
                    damage(part)
                self.assert_fails(code, texts, "merge", out)
                self.assertFalse(out.exists())
                self.assertTrue(part_name(out, 1, 2).is_dir())
                for folder in self.scratch.iterdir():
                    shutil.rmtree(folder)

    def test_a_renamed_part_is_refused(self):
        out = self.scratch / "out"
        self.make_parts(out, 2)
        one, two = part_name(out, 1, 2), part_name(out, 2, 2)
        one.rename(self.scratch / "aside")
        two.rename(one)
        (self.scratch / "aside").rename(two)
        self.assert_fails(2, ["the folder was renamed", "found 2/2", "expected 1/2"], "merge", out)

    def test_an_existing_output_needs_force(self):
        out = self.convert(SOURCE, "vllm-cpu", name="out")
        self.make_parts(out, 2)
        self.assert_fails(2, ["already exists", "--force"], "merge", out)
        self.assertTrue(part_name(out, 2, 2).is_dir())
        self.run_ok("merge", out, "--force")
        self.run_ok("verify", out, "--source", SOURCE)

    def test_a_part_can_be_tried_again(self):
        out = self.scratch / "out"
        self.make_parts(out, 2)
        args = ("convert", SOURCE, "-o", out, "-t", "vllm-cpu", "--part", "1/2")
        self.assert_fails(2, ["already exists"], *args)
        before = harness.snapshot(part_name(out, 1, 2))
        result = self.run_ok(*args, "--resume")
        self.assertIn("is complete already", result.stdout)
        report = self.checked_json(self.run_ok(*args, "--resume", "--json").stdout, "convert")
        self.assertIs(report["was_done"], True)
        self.assertEqual(report["part"], "1/2")
        self.assertEqual(harness.snapshot(part_name(out, 1, 2)), before)

    def test_a_part_reports_its_share_of_the_source(self):
        out = self.scratch / "out"
        args = ("convert", SOURCE, "-o", out, "-t", "vllm-cpu", "--json")
        parts = []
        for part in ("1/2", "2/2"):
            made = self.checked_json(self.run_ok(*args, "--part", part).stdout, "convert")
            again = self.run_ok(*args, "--part", part, "--resume").stdout
            parts.append(made["source_bytes"])
            self.assertEqual(self.checked_json(again, "convert")["source_bytes"], parts[-1])
        whole = self.checked_json(self.run_ok(*args).stdout, "convert")
        self.assertEqual(sum(parts), whole["source_bytes"])
        self.assertGreater(min(parts), 0)
        other = ("convert", SOURCE, "-o", out, "-t", "zentorch", "--part", "1/2")
        self.assert_fails(2, ["part-00001-of-00002", "other options", "--force"], *other, "--resume")
        self.run_ok(*other, "--force")

    def test_part_options_are_checked(self):
        out = self.scratch / "out"
        for part in ("0/2", "3/2", "x", "1", "1/2/3"):
            self.assert_fails(
                2, ["--part", part], "convert", SOURCE, "-o", out, "-t", "zentorch", "--part", part
            )
        self.assert_fails(
            2, ["--verify", "prepack merge"],
            "convert", SOURCE, "-o", out, "-t", "zentorch", "--part", "1/2", "--verify",
        )
        self.assertEqual(list(self.scratch.iterdir()), [])


def broken_copy(folder):
    """A checkpoint whose last module has a scale that is no number; and how to mend it."""
    shutil.copytree(SOURCE, folder)
    path = folder / "model.safetensors"
    header, start = harness.read_header(path)
    scales = [n for n in header if n.endswith(".weight_scale")]
    last = max(scales, key=lambda n: header[n]["data_offsets"][0])
    offset = start + header[last]["data_offsets"][0]
    sound = path.read_bytes()
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)

    def write(data):
        with open(path, "r+b") as file:
            file.write(data)
        os.utime(path, ns=times)

    write(sound[:offset] + b"\xff\x7f" + sound[offset + 2 :])
    return lambda: write(sound)


class Resume(harness.ToolTest):
    def fail_half_way(self, *options):
        """An interrupted run with its leftovers; returns (source, out, mend)."""
        source, out = self.scratch / "source", self.scratch / "out"
        mend = broken_copy(source)
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--jobs", 1, "--resume")
        self.assert_fails(3, ["weight_scale"], *args, *options)
        self.assertFalse(out.exists())
        self.assertTrue((self.scratch / ".out.prepack-partial").is_dir())
        journal = (self.scratch / ".out.prepack-journal").read_text().splitlines()
        self.assertGreater(len(journal), 3)
        return source, out, mend

    def resume(self, source, out, *options):
        result = self.run_ok(
            "convert", source, "-o", out, "-t", "vllm-cpu", "--resume", "--json", *options
        )
        return self.checked_json(result.stdout, "convert")["resumed_units"]

    def assert_done(self, out):
        whole = self.convert(SOURCE, "vllm-cpu", name="whole")
        self.assertEqual(
            {p.name: p.read_bytes() for p in out.iterdir() if p.name != "prepack.json"},
            {p.name: p.read_bytes() for p in whole.iterdir() if p.name != "prepack.json"},
        )
        done, direct = manifest(out), manifest(whole)
        for side in (done, direct):
            side["source"].pop("path")
            side.pop("manifest_xxh3_128")
        self.assertEqual(done, direct)
        hidden = [p.name for p in self.scratch.iterdir() if p.name.startswith(".")]
        self.assertEqual(hidden, [])

    def test_a_run_goes_on_with_what_is_finished(self):
        source, out, mend = self.fail_half_way()
        mend()
        self.assertGreater(self.resume(source, out), 2)
        self.assert_done(out)

    def test_without_resume_nothing_is_left(self):
        source, out = self.scratch / "source", self.scratch / "out"
        broken_copy(source)
        self.assert_fails(3, ["weight_scale"], "convert", source, "-o", out, "-t", "vllm-cpu")
        self.assertEqual([p.name for p in self.scratch.iterdir()], ["source"])

    def test_without_resume_leftovers_go(self):
        source, out, mend = self.fail_half_way()
        mend()
        result = self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu", "--json")
        self.assertEqual(self.checked_json(result.stdout, "convert")["resumed_units"], 0)
        self.assert_done(out)

    def test_what_is_not_as_it_was_written_is_done_again(self):
        source, out, mend = self.fail_half_way()
        mend()
        shard = self.scratch / ".out.prepack-partial" / "model.safetensors"
        size = shard.stat().st_size
        journal = (self.scratch / ".out.prepack-journal").read_text().splitlines()
        with open(shard, "r+b") as file:  # as if pages had never reached the disk
            file.seek(4096)
            file.write(bytes(size - 4096))
        self.assertLess(self.resume(source, out), len(journal) - 1)
        self.assert_done(out)

    def test_a_shard_that_is_not_ours_is_made_anew(self):
        def truncate(shard):
            os.truncate(shard, 5000)

        def other_header(shard):
            harness.flip(shard, 20, 1)

        def link(shard):
            shard.unlink()
            shard.symlink_to(self.scratch / "precious")

        for damage in (lambda shard: shard.unlink(), truncate, other_header, link):
            with self.subTest(damage=damage.__name__):
                (self.scratch / "precious").write_text("years")
                source, out, mend = self.fail_half_way()
                mend()
                damage(self.scratch / ".out.prepack-partial" / "model.safetensors")
                self.assertEqual(self.resume(source, out), 0)
                self.assert_done(out)
                self.assertEqual((self.scratch / "precious").read_text(), "years")
                for folder in ("source", "out", "whole"):
                    shutil.rmtree(self.scratch / folder)

    def test_strange_files_in_the_hidden_folder_do_not_get_into_the_output(self):
        source, out, mend = self.fail_half_way()
        mend()
        partial = self.scratch / ".out.prepack-partial"
        (partial / "config.json").write_text("half of i")
        (partial / "evil.py").write_text("import os")
        (partial / "folder").mkdir()
        self.resume(source, out)
        self.assert_done(out)

    def test_a_changed_source_is_refused(self):
        source, out, mend = self.fail_half_way()
        mend()
        config = source / "config.json"
        config.write_text(config.read_text().replace("{", '{"new": 1,', 1))
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--resume")
        self.assert_fails(2, ["--resume", "another source", "without --resume"], *args)
        self.assertTrue((self.scratch / ".out.prepack-partial").is_dir())

    def test_other_options_and_parts_are_refused(self):
        source, out, mend = self.fail_half_way()
        mend()
        args = ("convert", source, "-o", out, "--resume")
        self.assert_fails(2, ["other options", "--target zentorch"], *args, "-t", "zentorch")
        self.assert_fails(
            2, ["other options", "--scales exact"], *args, "-t", "vllm-cpu", "--scales", "exact"
        )
        self.assertGreater(self.resume(source, out), 0)  # refusing has destroyed nothing

    def test_a_damaged_journal_is_refused(self):
        source, out, mend = self.fail_half_way()
        mend()
        journal = self.scratch / ".out.prepack-journal"
        lines = journal.read_text().splitlines()
        journal.write_text("\n".join([lines[0], "what?", *lines[1:]]) + "\n")
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--resume")
        self.assert_fails(3, [".out.prepack-journal: byte", "without --resume"], *args)

    def test_a_part_resumes(self):
        source, out = self.scratch / "source", self.scratch / "out"
        mend = broken_copy(source)
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--resume", "--json", "--part")
        codes = {part: self.run_tool(*args, part).returncode for part in ("1/2", "2/2")}
        self.assertEqual(sorted(codes.values()), [0, 3])  # one of the two has the broken module
        mend()
        for part, code in codes.items():
            if code == 0:  # it has seen another source than the one that is there now
                self.assert_fails(2, ["another source", "weight_scale"], *args, part)
                self.run_ok(*args, part, "--force")
            else:
                report = json.loads(self.run_ok(*args, part).stdout)
                self.assertGreater(report["resumed_units"], 0)
        self.run_ok("merge", out)
        self.run_ok("verify", out, "--source", source)

    def test_a_killed_run_resumes(self):
        source = harness.large_checkpoint(self.scratch / "large", layers=12)
        whole, out = self.scratch / "whole", self.scratch / "out"
        self.run_ok("convert", source, "-o", whole, "-t", "vllm-cpu")
        journal = self.scratch / ".out.prepack-journal"
        for sent in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            args = [TOOL, "convert", source, "-o", out, "-t", "vllm-cpu", "--resume", "-q"]
            process = subprocess.Popen(list(map(str, args)), stderr=subprocess.DEVNULL)
            while process.poll() is None and not journal.exists():
                time.sleep(0.001)
            time.sleep(0.02)
            process.send_signal(sent)
            process.wait()
            if process.returncode == 0:  # it was faster
                break
            # The one of the signal itself, too: where it came before anybody waited for it.
            self.assertIn(process.returncode, (-sent, 128 + signal.SIGINT, 143))
            self.assertFalse(out.exists())
            self.assertTrue(journal.exists())
        if not out.exists():
            self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu", "--resume")
        self.assertEqual(harness.read_tensors(out), harness.read_tensors(whole))
        self.assertEqual(hashes(out), hashes(whole))


class Memory(harness.ToolTest):
    def test_a_limit_that_is_too_small_is_an_error(self):
        out = self.scratch / "out"
        args = ("convert", SOURCE, "-o", out, "-t", "vllm-cpu", "--memory-limit")
        self.assert_fails(2, ["--memory-limit", "found 1000000 bytes", "at least"], *args, "1MB")
        self.assert_fails(2, ["--memory-limit"], *args, "lots")
        self.assertEqual(list(self.scratch.iterdir()), [])
        self.run_ok(*args, "200MB")
        whole = self.convert(SOURCE, "vllm-cpu", name="whole")
        self.assertEqual(harness.read_tensors(out), harness.read_tensors(whole))

    @harness.not_with_sanitizers("they map terabytes themselves")
    def test_a_sparse_checkpoint_of_40_gb_fits_into_a_small_address_space(self):
        # 40 GB of input in 10 shards, nearly all of it holes; the output is as large: only a part
        # of it is made, but every header is read and every part planned.
        source = self.scratch / "source"
        harness.sparse_checkpoint(source, shards=10, layers=11, n=28672, k=28672)
        self.assertGreater(sum(p.stat().st_size for p in source.iterdir()), 40e9)

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        out = self.scratch / "out"
        for target in harness.TARGETS:
            self.run_ok(
                "convert", source, "-o", out, "-t", target, "--part", "55/110", "--jobs", 2,
                "--force", preexec_fn=limit,
            )
        self.run_ok("plan", source, "-t", "vllm-cpu", preexec_fn=limit)


if __name__ == "__main__":
    unittest.main()
