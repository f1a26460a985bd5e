"""What goes wrong outside: kills, full disks, read-only places, folders that exist."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import CHECKPOINTS, TOOL

SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"


class Existing(harness.ToolTest):
    def test_existing_output_needs_force(self):
        out = self.convert(SOURCE, "vllm-cpu")
        before = harness.snapshot(out)
        args = ("convert", SOURCE, "-o", out, "-t", "zentorch")
        self.assert_fails(2, [str(out), "exists", "--force"], *args)
        self.assertEqual(harness.snapshot(out), before)
        self.run_ok(*args, "--force")
        self.assertEqual(json.loads((out / "prepack.json").read_text())["target"], "zentorch")
        self.assertEqual([p.name for p in self.scratch.iterdir()], [out.name])

    def test_force_never_destroys_what_is_not_ours(self):
        precious = self.scratch / "precious"
        precious.mkdir()
        (precious / "thesis.txt").write_text("years")
        self.assert_fails(
            2, ["precious"], "convert", SOURCE, "-o", precious, "-t", "vllm-cpu", "--force"
        )
        file = self.scratch / "file"
        file.write_text("x")
        self.assert_fails(2, ["file"], "convert", SOURCE, "-o", file, "-t", "vllm-cpu", "--force")
        self.assertEqual((precious / "thesis.txt").read_text(), "years")
        self.assertEqual(file.read_text(), "x")

    def test_output_must_not_touch_the_source(self):
        source = self.copy_checkpoint()
        before = harness.snapshot(source)
        for out in (source, source / "packed", self.scratch, f"{source}/"):
            self.assert_fails(
                2, ["source"], "convert", source, "-o", out, "-t", "vllm-cpu", "--force"
            )
        self.assertEqual(harness.snapshot(source), before)

    def test_failed_conversion_keeps_the_old_output(self):
        out = self.convert(SOURCE, "vllm-cpu", name="out")
        before = harness.snapshot(out)
        source = self.copy_checkpoint()
        data = bytearray((source / "model.safetensors").read_bytes())
        header, start = harness.read_header(source / "model.safetensors")
        begin = start + header["model.layers.0.mlp.up_proj.weight_scale"]["data_offsets"][0]
        data[begin : begin + 2] = b"\xc0\x7f"  # NaN in bf16
        (source / "model.safetensors").write_bytes(data)
        self.assert_fails(
            3, ["model.safetensors", "up_proj.weight_scale", "NaN"],
            *("convert", source, "-o", out, "-t", "zentorch", "--force"),
        )
        self.assertEqual(harness.snapshot(out), before)
        self.assertEqual({p.name for p in self.scratch.iterdir()}, {"out", source.name})


class Killed(harness.ToolTest):
    def start_and_signal(self, source, out, number):
        """Starts a conversion and signals it once its hidden folder is there."""
        process = subprocess.Popen(
            [TOOL, "convert", source, "-o", out, "-t", "vllm-cpu", "--jobs", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        hidden = out.parent / f".{out.name}.prepack-partial"
        while process.poll() is None and not (hidden / "model.safetensors").exists():
            time.sleep(0.0005)
        process.send_signal(number)
        stderr = process.communicate()[1]
        return process.returncode, stderr, hidden

    def test_killed_conversion_is_invisible_and_can_be_repeated(self):
        source = harness.large_checkpoint(self.scratch / "large", layers=16)
        out = self.scratch / "out"
        code, _, hidden = self.start_and_signal(source, out, signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertFalse(out.exists())
        self.assertTrue(hidden.exists())  # nothing could clean up: the next run does
        self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu")
        self.assertEqual({p.name for p in self.scratch.iterdir()}, {"large", "out"})
        self.run_ok("verify", out)  # finds its source

    def test_interrupted_conversion_cleans_up(self):
        source = harness.large_checkpoint(self.scratch / "large", layers=16)
        out = self.scratch / "out"
        for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            code, stderr, _ = self.start_and_signal(source, out, number)
            self.assertEqual(code, expected, stderr)
            self.assertEqual(len(stderr.splitlines()), 1, stderr)
            self.assertIn("stopped on request", stderr)
            self.assertEqual([p.name for p in self.scratch.iterdir()], ["large"])


class Conversion(harness.ToolTest):
    """A conversion to be disturbed: with a seed (tools/soak), of any model and with any options."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(harness.SEED or 9)
        self.source, self.out = self.scratch / "source", self.scratch / "out"
        self.options, part = ["-t", "vllm-cpu"], ()
        if harness.SEED is None:
            harness.large_checkpoint(self.source, layers=4, n=2048)
        else:
            _, shape = harness.random_checkpoint(self.source, self.random)
            self.options = harness.random_options(self.random)
            if self.random.random() < 0.5:
                count = self.random.randint(2, 4)
                part = (self.random.randint(1, count), count)
                self.options += ["--part", f"{part[0]}/{part[1]}"]
            print(f"seed {harness.SEED}: {shape} {' '.join(self.options)}", file=sys.stderr)
        undisturbed = self.scratch / "undisturbed"
        began = time.monotonic()
        self.run_ok("convert", self.source, "-o", undisturbed, *self.options)
        self.seconds = time.monotonic() - began
        # What is made: the output, or a part of it.
        made = [harness.part_name(p, *part) if part else p for p in (self.out, undisturbed)]
        self.made, self.expected = made[0], harness.contents(made[1])
        self.known = {p.name for p in self.scratch.iterdir()} | {self.made.name}

    def start(self, *more, stderr=subprocess.DEVNULL):
        args = ("convert", self.source, "-o", self.out, *self.options, *more)
        return subprocess.Popen(
            [TOOL, *map(str, args)], stdout=subprocess.DEVNULL, stderr=stderr, text=True
        )

    def finish(self, *more):
        self.run_ok("convert", self.source, "-o", self.out, *self.options, *more)

    def unknown(self):
        return {p.name for p in self.scratch.iterdir()} - self.known


class KilledAtAnyInstant(Conversion):
    KILLS = 50

    def kill_after(self, seconds):
        process = self.start("--resume")
        time.sleep(seconds)
        process.kill()
        process.wait()

    def test_resuming_makes_the_bytes_of_an_undisturbed_run(self):
        unfinished = 0
        for _ in range(self.KILLS):
            for _ in range(self.random.choice((1, 1, 2))):
                self.kill_after(self.random.uniform(0, 1.1 * self.seconds))
                if self.made.exists():
                    break
            else:
                unfinished += 1
                self.finish("--resume")
            self.assertEqual(harness.contents(self.made), self.expected)
            if names := self.unknown():
                # Killed when the output was in place: the lock is removed last.
                self.finish("--force")
                self.assertEqual(self.unknown() & names, set())
            shutil.rmtree(self.made)
        self.assertGreater(unfinished, 0)


class TwoAtOnce(Conversion):
    def test_one_of_two_conversions_wins_and_the_other_says_why(self):
        for _ in range(10):
            both = [self.start(stderr=subprocess.PIPE) for _ in range(2)]
            ends = sorted((one.communicate()[1], one.returncode) for one in both)
            self.assertEqual(sorted(code for _, code in ends), [0, 2], ends)
            refusal = next(text for text, code in ends if code == 2)
            self.assertRegex(refusal, "another prepack is writing this output|already exists")
            self.assertEqual(harness.contents(self.made), self.expected)
            self.assertEqual(self.unknown(), set())
            shutil.rmtree(self.made)


class Permissions(harness.ToolTest):
    def test_outputs_follow_the_umask_and_the_source_stays_as_it_was(self):
        source = self.copy_checkpoint()
        for path in (source, *source.iterdir()):
            os.utime(path, ns=(10**18, 10**18))
            path.chmod(0o755 if path.is_dir() else 0o640)
        before = {p: self.metadata(p) for p in (source, *source.iterdir())}
        for umask, folder_mode, file_mode in ((0o022, 0o755, 0o644), (0o077, 0o700, 0o600)):
            out = self.scratch / f"out-{umask:o}"
            args = ("convert", source, "-o", out, "-t", "vllm-cpu")
            self.run_ok(*args, preexec_fn=lambda umask=umask: os.umask(umask))
            self.assertEqual(out.stat().st_mode & 0o7777, folder_mode)
            for path in out.iterdir():
                self.assertEqual(path.stat().st_mode & 0o7777, file_mode, path)
            self.run_ok("verify", out)
        self.assertEqual({p: self.metadata(p) for p in before}, before)

    def metadata(self, path):
        """All but the time of the last access, which the system may note."""
        stat = path.stat()
        return stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


class NoRoom(harness.ToolTest):
    def assert_nothing_left(self, parent, known=()):
        self.assertEqual({p.name for p in parent.iterdir()}, set(known))

    def test_file_size_limit(self):
        out = self.scratch / "out"
        self.assert_fails(
            4, ["model.safetensors", "File too large"],
            *("convert", SOURCE, "-o", out, "-t", "vllm-cpu"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        )
        self.assert_nothing_left(self.scratch)

    @unittest.skipUnless(os.geteuid() == 0, "mounting a tiny file system needs root")
    def test_full_disk(self):
        disk = self.scratch / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("this machine does not let root mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", str(disk)], check=True)
        self.assert_fails(
            4, [str(disk), "No space left on device", "Free some space"],
            *("convert", SOURCE, "-o", disk / "out", "-t", "vllm-cpu"),
        )
        self.assert_nothing_left(disk)

    def test_place_that_cannot_be_written(self):
        if os.geteuid() == 0:  # root ignores permissions, but not those of the kernel's folders
            place = "/sys/kernel/out"
        else:
            folder = self.scratch / "readonly"
            folder.mkdir(mode=0o555)
            place = folder / "out"
        self.assert_fails(4, [str(place)[:11]], "convert", SOURCE, "-o", place, "-t", "vllm-cpu")

    def test_missing_parent(self):
        out = self.scratch / "no" / "such" / "out"
        result = self.run_tool("convert", SOURCE, "-o", out, "-t", "vllm-cpu")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn(str(self.scratch / "no" / "such"), result.stderr)
        self.assert_nothing_left(self.scratch)

    @harness.not_with_sanitizers("they map terabytes themselves")
    def test_memory_is_bounded(self):
        """135 MB of weights are converted inside 64 MiB + 8 MiB per thread, stacks not counted."""
        source = harness.large_checkpoint(self.scratch / "large", layers=16)
        threads, stack = 2, 8 << 20
        most = (64 << 20) + threads * ((8 << 20) + stack)

        def limit():  # of private memory that can be written, which is what no file is behind
            resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

        for target in harness.TARGETS:
            self.run_ok(
                "convert", source, "-o", self.scratch / f"out-{target}", "-t", target,
                "--jobs", threads, "-q", preexec_fn=limit,
            )
        # The limit is one that is felt.
        self.assert_fails(
            4, ["out of memory"],
            "convert", source, "-o", self.scratch / "out", "-t", "onednn", "--jobs", 2, "-q",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (9 << 20, 9 << 20)),
        )


if __name__ == "__main__":
    sys.exit(unittest.main())
