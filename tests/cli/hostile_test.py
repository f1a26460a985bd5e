"""What a user would not expect in a checkpoint's folder, and signals at any time."""

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import unittest

import harness
from harness import CHECKPOINTS, SANITIZERS, TOOL

SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
COMMANDS = ["convert", "plan", "inspect", "check", "diff"]


class Folder(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.source = self.copy_checkpoint()
        self.out = self.scratch / "out"
        self.convert_args = ("convert", self.source, "-o", self.out, "-t", "vllm-cpu")

    def arguments(self, command):
        return {
            "convert": self.convert_args,
            "plan": ("plan", self.source, "-t", "vllm-cpu"),
            "diff": ("diff", self.source, SOURCE),
        }.get(command, (command, self.source))


class NotCopied(Folder):
    def test_what_is_not_copied_is_said_once(self):
        (self.source / "onnx").mkdir()
        (self.source / "onnx" / "model.onnx").write_text("x")
        (self.source / ".cache").mkdir()
        (self.source / "pytorch_model.bin").write_text("x")
        (self.source / "notes.txt").write_text("kept")
        result = self.run_ok(*self.convert_args, "--json")
        self.assertEqual(
            result.stderr,
            "note: not copied: onnx/, pytorch_model.bin. Subfolders and weights in other formats "
            "stay with the source\n",
        )
        report = self.checked_json(result.stdout, "convert")
        self.assertEqual(report["not_copied"], ["onnx/", "pytorch_model.bin"])
        self.assertEqual((self.out / "notes.txt").read_text(), "kept")
        self.assertFalse({"onnx", "pytorch_model.bin"} & {p.name for p in self.out.iterdir()})
        self.run_ok("verify", self.out)
        self.assertEqual(self.run_ok(*self.convert_args, "-q", "--force").stderr, "")

    def test_a_name_that_no_manifest_could_say(self):
        for name in (b"a\xff", "a\u202eb".encode(), b"a\nb"):
            path = os.fsencode(self.source) + b"/" + name
            with open(path, "w"):
                pass
            self.assert_fails(3, ["its name is not valid UTF-8", "Rename it"], *self.convert_args)
            os.unlink(path)
        self.run_ok(*self.convert_args)

    def test_of_many_the_first_are_named_and_nothing_is_said_of_none(self):
        self.assertEqual(self.run_ok(*self.convert_args).stderr, "")
        for number in range(7):
            (self.source / f"{number}\x1b").mkdir()
        stderr = self.run_ok(*self.convert_args, "--force").stderr
        self.assertIn(r"not copied: 0\x1b/, 1\x1b/, 2\x1b/, 3\x1b/, 4\x1b/ and 2 more. ", stderr)

    def test_parts_say_it_with_the_first(self):
        (self.source / "onnx").mkdir()
        notes = [self.run_ok(*self.convert_args, "--part", f"{i}/2").stderr for i in (1, 2)]
        self.assertIn("onnx/", notes[0])
        self.assertEqual(notes[1], "")


class NoFiles(Folder):
    """FIFOs that nobody writes to, sockets, devices and folders in place of files."""

    def put(self, kind, path):
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        elif kind == "a folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")

    def test_they_are_named_by_every_command_before_anything_is_read(self):
        for name in ("notes.txt", "config.json", "model.safetensors"):
            for kind in ("a FIFO", "a socket", "a folder", "a device"):
                if (name, kind) == ("notes.txt", "a folder"):
                    continue  # that is left out
                path = self.source / name
                backup = path.read_bytes() if path.exists() else None
                path.unlink(missing_ok=True)
                self.put(kind, path)
                for command in COMMANDS:
                    with self.subTest(name=name, kind=kind, command=command):
                        result = self.run_tool(*self.arguments(command))
                        self.assertEqual(result.returncode, 3)
                        # What check finds stands in its report.
                        text = result.stdout if command == "check" else result.stderr
                        self.assertIn(f"/{name}: not a regular file (found {kind}", text)
                if kind == "a folder":
                    path.rmdir()
                else:
                    path.unlink()
                if backup is not None:
                    path.write_bytes(backup)
        self.run_ok(*self.convert_args)

    def test_in_a_packed_folder_they_are_found_too(self):
        self.run_ok(*self.convert_args)
        for name in ("prepack.json", "config.json", "model.safetensors", "tokenizer.json"):
            path = self.out / name
            backup = path.read_bytes()
            for kind in ("a FIFO", "a folder"):
                path.unlink()
                self.put(kind, path)
                for command in ("verify", "inspect"):
                    with self.subTest(name=name, kind=kind, command=command):
                        result = self.run_tool(command, self.out)
                        if (name, kind, command) == ("tokenizer.json", "a folder", "inspect"):
                            self.assertEqual(result.returncode, 0)
                            continue
                        self.assertIn(result.returncode, (1, 3), result.stdout)
                        self.assertIn(name, result.stderr + result.stdout)
                        self.assertIn(kind, result.stderr + result.stdout)
                path.rmdir() if kind == "a folder" else path.unlink()
                path.write_bytes(backup)
        self.run_ok("verify", self.out)

    def test_an_earlier_report_that_is_no_file(self):
        self.run_ok(*self.convert_args)
        os.mkfifo(self.scratch / "report")
        self.assert_fails(
            3, ["report: not a regular file (found a FIFO"],
            *("verify", self.out, "--against", self.scratch / "report"),
        )
        with open(self.scratch / "large", "wb") as file:
            file.truncate((256 << 20) + 1)
        self.assert_fails(
            3, ["large: the file is too large", "--sample 0.1"],
            *("verify", self.out, "--against", self.scratch / "large"),
        )


class UnknownWords(Folder):
    def test_they_are_named(self):
        self.assert_fails(2, ["unknown subcommand (found nosuch"], "help", "nosuch")
        self.assert_fails(
            2, ["--scheme: unknown scheme (found w3a3"], *self.convert_args, "--scheme", "w3a3"
        )


class FullDevice(Folder):
    def test_a_report_that_cannot_be_written(self):
        self.run_ok(*self.convert_args)
        for command in (("check", self.source), ("diff", self.source, SOURCE), ("verify", self.out)):
            with self.subTest(command[0]):
                self.assert_fails(
                    4, ["/dev/full: cannot write to it"], *command, "--html", "/dev/full"
                )


class Bombs(Folder):
    """Small files that would take much memory or time. Measured is what the process used, not how
    long it took."""

    MB = 1 << 20

    def limited(self, memory=256 * MB, cpu_seconds=60, files=None):
        def limit():
            if not SANITIZERS:  # these map terabytes themselves
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, files)

        return limit

    def write_header(self, text, data_bytes=0):
        # What the header has are modules, and no model.
        config = json.loads((self.source / "config.json").read_text())
        config.pop("architectures", None)
        (self.source / "config.json").write_text(json.dumps(config))
        with open(self.source / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + data_bytes)

    def assert_refused(self, texts, **limits):
        self.assert_fails(3, texts, *self.arguments("plan"), preexec_fn=self.limited(**limits))

    def test_a_header_of_the_largest_size(self):
        self.write_header(b"{" + b" " * (100_000_000 - 2) + b"}")
        self.assert_refused(["no tensor is one"], memory=400 * self.MB)
        self.write_header(b"{" + b" " * (100_000_000 - 1) + b"}")
        self.assert_refused(["the header is longer than the format allows"])

    def test_shapes_without_end(self):
        info = b'{"a":{"dtype":"U8","shape":[' + b"1," * 2_000_000 + b'1],"data_offsets":[0,1]}}'
        self.write_header(info, 1)
        self.assert_refused(["tensor a: shape: too many dimensions"])

    def test_json_without_end(self):
        config = self.source / "config.json"
        start = config.read_text().rstrip()[:-1]
        for more, text in (
            ("[" * 8_000_000, "nested more than 32 levels deep"),
            ("[" + "0," * 4_000_001 + "0]", "too many values"),
            ('"' + "x" * (17 * self.MB) + '"', "the file is too large"),
        ):
            config.write_text(f'{start},"x":{more}}}')
            self.assert_refused([text], memory=400 * self.MB)
        # A number that nobody asks for is text that passes through, however long.
        config.write_text(f'{start},"x":{"9" * 10_000_000}}}')
        self.run_ok(*self.arguments("plan"), preexec_fn=self.limited(memory=400 * self.MB))

    def test_weights_of_a_terabyte(self):
        n = k = 1 << 20
        header, end = {}, 0
        for part, dtype, shape, size in (
            ("weight_packed", "I32", [n, k // 8], n * k // 2),
            ("weight_scale", "BF16", [n, k // 128], n * k // 64),
            ("weight_shape", "I64", [2], 16),
        ):
            header[f"model.layers.0.mlp.up_proj.{part}"] = {
                "dtype": dtype, "shape": shape, "data_offsets": [end, end + size]
            }
            end += size
        text = json.dumps(header).encode()
        self.write_header(text, end)
        with open(self.source / "model.safetensors", "r+b") as file:
            file.seek(8 + len(text) + end - 16)
            file.write(struct.pack("<qq", n, k))
        for command in ("plan", "inspect"):
            self.run_ok(*self.arguments(command), preexec_fn=self.limited())
        room = shutil.disk_usage(self.scratch).free
        if room < end:
            self.assert_fails(
                4, ["not enough space", f"{room}"[:1]],
                *self.convert_args, preexec_fn=self.limited(),
            )

    def test_a_side_file_larger_than_the_disk(self):
        with open(self.source / "tokenizer.model", "wb") as file:
            file.truncate(1 << 42)
        self.assert_fails(
            4, ["not enough space", "Free some space"],
            *self.convert_args, preexec_fn=self.limited(),
        )
        self.assertFalse(self.out.exists())

    @harness.not_with_sanitizers("they open files themselves")
    def test_more_shards_than_files_may_be_open(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sharded"
        few = self.limited(memory=1 << 40, files=(5, 5))
        self.assert_fails(
            4, ["Too many open files", "ulimit -n"],
            "plan", source, "-t", "vllm-cpu", preexec_fn=few,
        )
        # Where more are allowed, they are asked for.
        allowed = self.limited(memory=1 << 40, files=(5, 64))
        self.run_ok("plan", source, "-t", "vllm-cpu", preexec_fn=allowed)


class DamagedParts(Folder):
    """Parts that merge, each with one defect."""

    def setUp(self):
        super().setUp()
        self.parts = [self.scratch / f"out.part-0000{i}-of-00002" for i in (1, 2)]
        for part in ("1/2", "2/2"):
            self.run_ok(*self.convert_args, "--part", part)
        self.record = self.parts[0] / "prepack-part.json"
        self.sound = self.record.read_text()

    def assert_refused(self, texts):
        before = harness.snapshot(self.scratch)
        self.assert_fails(3, texts, "merge", self.out)
        self.assertEqual(harness.snapshot(self.scratch), before)

    def tearDown(self):
        self.run_ok("merge", self.out)  # mended: the defects were all that was wrong
        self.run_ok("verify", self.out)

    def test_records(self):
        def put(key, value):
            return lambda record: record.update({key: value})

        defects = [
            (put("part", "x"), 'field "part" is not a part'),
            (put("part", 1), 'field "part" has the wrong type'),
            (put("side_files", ["../x"]), '"side_files" contains an entry that is not a plain file name'),
            (put("side_files", ["."]), '"side_files" contains an entry that is not a plain file name'),
            (put("all_source_tensors", 7), "the parts do not make up the source"),
            (put("all_source_tensors", -7), 'field "all_source_tensors" has the wrong type'),
            (put("source_tensors", []), 'field "source_tensors" has the wrong type'),
            (lambda record: record["run"].pop("plan"), 'field "plan" is missing'),
        ]
        for key in json.loads(self.sound):
            defects.append((lambda record, key=key: record.pop(key), f'field "{key}" is missing'))
        for edit, text in defects:
            with self.subTest(text):
                record = json.loads(self.sound)
                edit(record)
                self.record.write_text(json.dumps(record))
                self.assert_refused([text])
        for length in range(0, len(self.sound) - 2, len(self.sound) // 40):
            self.record.write_text(self.sound[:length])
            self.assert_refused(["prepack-part.json"])
        self.record.write_text(self.sound)

    def test_records_of_another_run(self):
        record = json.loads(self.sound)
        record["run"]["source"] = "x"
        self.record.write_text(json.dumps(record))
        self.assert_fails(2, ["another source", "Convert this part again"], "merge", self.out)
        self.record.write_text(self.sound)

    def test_shards(self):
        shard = next(self.parts[1].glob("*.safetensors"))
        sound = shard.read_bytes()
        header = 8 + struct.unpack("<Q", sound[:8])[0]
        defects = [
            (sound[:-1], "its size differs"),
            (sound + b"x", "its size differs"),
            (sound[:8].replace(sound[:1], b"\xff", 1) + sound[8:], shard.name),
            (
                sound[: header - 1] + b"\n" + sound[header:],
                "the header of the shard is not what was written",
            ),
        ]
        for data, text in defects:
            shard.write_bytes(data)
            self.assert_refused([text])
        shard.write_bytes(sound)

    def test_one_part_as_two(self):
        first, second = self.parts
        second.rename(self.scratch / "aside")
        shutil.copytree(first, second)
        record = json.loads(self.sound)
        record["part"] = "2/2"
        (second / "prepack-part.json").write_text(json.dumps(record))
        self.assert_refused(["another part has it as well"])
        shutil.rmtree(second)
        (self.scratch / "aside").rename(second)


class Interrupted(Folder):
    @harness.not_with_sanitizers("signals wait there until the write that is waiting has ended", "thread")
    def test_commands_that_only_print_end_at_once(self):
        """They are caught in the middle: nobody reads what they print."""
        for command in (("plan", SOURCE, "-t", "vllm-cpu"), ("inspect", SOURCE)):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(command=command[0], signal=number):
                    read_end, write_end = os.pipe()
                    room = fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
                    process = subprocess.Popen(
                        [TOOL, *map(str, command), "--json"],
                        stdout=write_end, stderr=subprocess.PIPE, text=True,
                    )
                    os.close(write_end)
                    waiting = 0
                    while process.poll() is None and waiting < room:
                        time.sleep(0.001)
                        count = fcntl.ioctl(read_end, termios.FIONREAD, b"\0" * 4)
                        waiting = struct.unpack("i", count)[0]
                    process.send_signal(number)
                    stderr = process.communicate(timeout=60)[1]
                    os.close(read_end)
                    self.assertEqual(process.returncode, 128 + number)
                    self.assertEqual(stderr, "error: stopped on request\n")


class Complete(Folder):
    def test_resuming_what_is_complete_does_nothing(self):
        self.run_ok(*self.convert_args, "--resume")
        before = harness.snapshot(self.out)
        result = self.run_ok(*self.convert_args, "--resume")
        self.assertIn("complete already, from the same conversion; nothing was done", result.stdout)
        again = self.run_ok(*self.convert_args, "--resume", "--json")
        report = self.checked_json(again.stdout, "convert")
        self.assertIs(report["was_done"], True)
        fresh = self.run_ok(
            "convert", self.source, "-o", self.scratch / "b", "-t", "vllm-cpu", "--json"
        )
        differing = {"output": None, "was_done": None}
        self.assertEqual(report | differing, json.loads(fresh.stdout) | differing)
        self.assertEqual(harness.snapshot(self.out), before)
        self.run_ok(*self.convert_args, "--resume", "--verify")
        self.assert_fails(2, ["already exists", "--force"], *self.convert_args)

    def test_what_differs_is_named(self):
        self.run_ok(*self.convert_args)
        before = harness.snapshot(self.out)
        hint = "--force replaces it"
        other = (*self.convert_args[:-1], "zentorch", "--resume")
        self.assert_fails(2, ["it comes from other options", "--target zentorch", hint], *other)
        self.assert_fails(
            2, ["other options", "--scales exact", hint],
            *self.convert_args, "--resume", "--scales", "exact",
        )
        config = self.source / "config.json"
        text = config.read_text()
        config.write_text(text.replace("{", '{"new": 1,', 1))
        self.assert_fails(2, ["another source", hint], *self.convert_args, "--resume")
        config.write_text(text)
        # Other numbers in a file of the same form.
        harness.flip(self.source / "model.safetensors", -1000, 1)
        self.assert_fails(2, ["another source", hint], *self.convert_args, "--resume")
        self.assertEqual(harness.snapshot(self.out), before)
        self.run_ok(*other, "--force")
        self.assertEqual(harness.manifest(self.out)["target"], "zentorch")

    def test_what_is_damaged_is_not_complete(self):
        self.run_ok(*self.convert_args)
        tokenizer = self.out / "tokenizer.json"
        text = tokenizer.read_text()
        tokenizer.write_text(text + " ")
        self.assert_fails(
            3, ["tokenizer.json: the output is damaged", "--force"], *self.convert_args, "--resume"
        )
        tokenizer.unlink()
        self.assert_fails(
            3, ["tokenizer.json: the output is damaged", "no such file"],
            *self.convert_args, "--resume",
        )
        tokenizer.write_text(text)
        self.run_ok(*self.convert_args, "--resume")
        manifest = self.out / "prepack.json"
        manifest.write_bytes(manifest.read_bytes()[:-1])
        self.assert_fails(3, ["prepack.json", "hash"], *self.convert_args, "--resume")

    def test_merged_parts_are_complete(self):
        for part in ("1/2", "2/2"):
            self.run_ok(*self.convert_args, "--part", part)
        self.run_ok("merge", self.out)
        self.assertIn("is complete already", self.run_ok(*self.convert_args, "--resume").stdout)


class PythonNumbers(Folder):
    """Python writes NaN and Infinity into JSON, and reads them."""

    def setUp(self):
        super().setUp()
        config = json.loads((self.source / "config.json").read_text())
        config["rope_scaling"] = {"factor": float("inf"), "low": float("-inf")}
        config["attention_bias_scale"] = float("nan")
        (self.source / "config.json").write_text(json.dumps(config))

    def test_they_pass_through(self):
        for command in COMMANDS:
            self.run_ok(*self.arguments(command))
        self.run_ok("verify", self.out, "--source", self.source)
        self.run_ok("inspect", self.out)
        for part in ("1/2", "2/2"):
            args = (*self.convert_args[:3], self.scratch / "b", *self.convert_args[4:])
            self.run_ok(*args, "--part", part)
        self.run_ok("merge", self.scratch / "b")
        self.run_ok("verify", self.scratch / "b", "--source", self.source)
        for out in (self.out, self.scratch / "b"):
            text = (out / "config.json").read_text()
            self.assertIn('"factor": Infinity,\n    "low": -Infinity\n', text)
            self.assertIn('"attention_bias_scale": NaN', text)

    def test_where_a_number_is_read_they_are_none(self):
        config = json.loads((self.source / "config.json").read_text())
        weights = config["quantization_config"]["config_groups"]["group_0"]["weights"]
        for value in (float("inf"), float("nan")):
            weights["group_size"] = value
            (self.source / "config.json").write_text(json.dumps(config))
            self.assert_fails(3, ["group_size", "wrong type"], *self.convert_args)

    def test_manifests_have_none(self):
        """They are for readers of JSON in any language."""
        config = json.loads((self.source / "config.json").read_text())
        config["quantization_config"]["note"] = float("inf")
        (self.source / "config.json").write_text(json.dumps(config))
        self.run_ok(*self.convert_args)
        text = (self.out / "prepack.json").read_text()
        self.assertNotIn("Infinity", text)
        self.assertIsNone(json.loads(text)["source"]["quantization_config"]["note"])
        self.run_ok("verify", self.out, "--source", self.source)


if __name__ == "__main__":
    sys.exit(unittest.main())
