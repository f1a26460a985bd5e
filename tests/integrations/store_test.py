"""From one object store into another, in parts: what is there in the end is what one machine makes, and whatever
stops a part or spoils its source, nothing is there that looks whole."""

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
import urllib.request
from unittest import mock

import harness
from harness import CHECKPOINTS
from remote_test import has

from prepack.remote import command

SHARDED = "ct-w4a16-g128-sharded"
PARTS = 2


def busy(status, after=None):
    def answer(environ, start_response):
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{status} Slow Down", [("Content-Length", "0"), *([("Retry-After", after)] if after else [])])
        return [b""]

    return answer


def break_connection(environ):
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def reset(environ, start_response):
    """The connection breaks before an answer."""
    break_connection(environ)


def short(environ, start_response):
    """Less comes than was said."""
    start_response("206 Partial Content", [("Content-Length", "100000"), ("Content-Range", "bytes 0-99999/100000")])

    def pieces():
        yield b"x" * 1000
        break_connection(environ)

    return pieces()


@unittest.skipUnless(has("fsspec"), "fsspec is not installed")
class StoreTest(harness.ToolTest):
    """A folder stands for the store: file:// is what fsspec reads and writes like any other."""

    def setUp(self):
        super().setUp()
        self.bucket = self.scratch / "bucket"
        self.bucket.mkdir()
        self.model = shutil.copytree(CHECKPOINTS / SHARDED, self.bucket / "model")
        (self.model / "tokenizer.json").write_text("{}")
        self.jobs = self.scratch / "jobs"
        self.url = f"file://{self.bucket}"
        environment = {"PREPACK_REMOTE_CACHE": str(self.scratch / "cache"), "PREPACK_TOOL": harness.TOOL}
        patched = mock.patch.dict(os.environ, environment)
        patched.start()
        self.addCleanup(patched.stop)

    def remote(self, *args, code=0):
        """In this process: s3fs takes a second to import."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = command.main([str(arg) for arg in args])
        self.assertEqual(found, code, out.getvalue() + err.getvalue())
        return out.getvalue() + err.getvalue()

    def arguments(self, part, *more):
        return ["convert", f"{self.url}/model", "-o", f"{self.url}/packed", "-t", "vllm-cpu", "--part", f"{part}/{PARTS}",
                "--scratch", str(self.jobs), "-q", *more]

    def part(self, part, *more, code=0):
        return self.remote(*self.arguments(part, *more), code=code)

    def folder_of(self, part):
        return harness.part_name(self.bucket / "packed", part, PARTS)

    def same_as_one_machine(self, folder):
        """Every tensor, and all files but those that the cut into parts decides."""
        whole = self.scratch / "whole"
        if not whole.exists():
            self.run_ok("convert", self.model, "-o", whole, "-t", "vllm-cpu")
        self.assertEqual(harness.read_tensors(folder), harness.read_tensors(whole))
        self.assertEqual(harness.hashes(folder), harness.hashes(whole))
        for name in ("config.json", "tokenizer.json"):
            self.assertEqual((folder / name).read_bytes(), (whole / name).read_bytes())
        parts = self.scratch / "of-parts" / "packed"
        if not parts.exists():
            parts.parent.mkdir()
            for part in range(1, PARTS + 1):
                self.run_ok("convert", self.model, "-o", parts, "-t", "vllm-cpu", "--part", f"{part}/{PARTS}")
            self.run_ok("merge", parts)
        found, expected = harness.contents(folder), harness.contents(parts)
        del found["prepack.json"], expected["prepack.json"]
        self.assertEqual(found, expected)
        manifests = [harness.manifest(one) for one in (folder, parts)]
        for manifest in manifests:  # where the source was
            del manifest["source"]["path"], manifest["manifest_xxh3_128"]
        self.assertEqual(*manifests)


class Jobs(StoreTest):
    def test_parts_are_merged_and_verified(self):
        for part in (2, 1):
            self.part(part)
            self.assertEqual(list(self.jobs.iterdir()), [])  # nothing stays on this disk
        report = json.loads(self.remote("merge", f"{self.url}/packed", "--json"))
        self.assertEqual((report["parts"], report["output"]), (PARTS, f"{self.url}/packed"))
        self.assertEqual(sorted(os.listdir(self.bucket)), ["model", "packed"])
        self.assertEqual(harness.manifest(self.bucket / "packed")["source"]["path"], f"{self.url}/model")
        self.same_as_one_machine(self.bucket / "packed")
        verify = ["verify", f"{self.url}/packed", "--source", f"{self.url}/model", "--scratch", self.jobs]
        for part in (1, 2, 3):
            self.remote(*verify, "--part", f"{part}/3", "--report", f"{self.url}/reports/{part}.json", "-q")
            self.assertEqual(list(self.jobs.iterdir()), [])
        self.remote(*verify, "--merge", f"{self.url}/reports", "-q")


    def test_gguf_files_are_made_by_prepack_alone(self):
        for target in (["-t", "gguf"], ["--target=gguf"]):
            said = self.remote("convert", f"{self.url}/model", "-o", f"{self.url}/packed", *target, code=2)
            self.assertIn("--fetch and --done", said)
        self.assertEqual(sorted(os.listdir(self.bucket)), ["model"])

    def test_it_is_done_once(self):
        self.part(1)
        self.assertIn("is complete already", self.part(1))
        self.assertIn("with other options", self.part(1, "--scales", "exact", code=2))
        self.part(1, "--scales", "exact", "--force")
        # What is replaced is not whole meanwhile.
        with mock.patch.dict(os.environ, {"PREPACK_TOOL": "/bin/false"}):
            self.part(1, "--force", code=1)
        self.assertNotIn("prepack-part.json", os.listdir(self.folder_of(1)))

    def test_a_whole_model(self):
        self.remote("convert", f"{self.url}/model", "-o", f"{self.url}/packed", "-t", "vllm-cpu", "--scratch", self.jobs,
                    "--verify", "-q")
        self.assertEqual(harness.read_tensors(self.bucket / "packed"),
                         harness.read_tensors(self.convert(self.model, "vllm-cpu")))
        self.run_ok("verify", self.bucket / "packed", "--source", self.model)

    def test_mistakes(self):
        self.assertIn("no argument is an address", self.remote("convert", "model", "-o", f"{self.url}/p", code=2))
        self.assertIn("--output: it is no address", self.remote("convert", f"{self.url}/model", "-o", "packed", code=2))
        self.assertIn("--part: not a part", self.part("0", code=2))
        self.assertIn("nothing can be written", self.remote("convert", f"{self.url}/model", "-o", "hf://a/b", code=2))
        self.assertIn("-o: it needs a value", self.remote("convert", f"{self.url}/model", "-o", code=2))
        self.assertIn("no parts found", self.remote("merge", f"{self.url}/packed", code=2))
        self.assertIn("there is no such file", self.remote("put", self.scratch / "nothing", f"{self.url}/x", code=2))
        self.assertEqual(os.listdir(self.bucket), ["model"])

    def test_parts_that_are_missing_or_there_already(self):
        self.part(1)
        before = harness.snapshot(self.folder_of(1))
        said = self.remote("merge", f"{self.url}/packed", code=2)
        self.assertIn(f"{self.url}/packed: parts are missing (found 1 of 2, expected also 2)", said)
        self.assertEqual(harness.snapshot(self.folder_of(1)), before)
        self.part(2)
        self.remote("merge", f"{self.url}/packed", "--keep-parts")
        self.assertIn("already exists", self.remote("merge", f"{self.url}/packed", code=2))
        self.remote("merge", f"{self.url}/packed", "--force")
        self.assertEqual(sorted(os.listdir(self.bucket)), ["model", "packed"])


class Faults(StoreTest):
    def change_a_shard(self):
        """Another version with the same headers, as of a fine-tune."""
        path = self.model / "model-00003-of-00003.safetensors"
        header, start = harness.read_header(path)
        name = next(name for name in header if name.endswith("weight_packed"))
        harness.flip(path, start + header[name]["data_offsets"][0], 0)
        os.utime(path, (1, 1))

    def test_parts_of_two_versions(self):
        self.part(1)
        self.change_a_shard()
        self.part(2)
        said = self.remote("merge", f"{self.url}/packed", code=3)
        self.assertIn("another version of the source", said)
        self.assertIn("model-00003-of-00003.safetensors", said)
        self.assertEqual(sorted(os.listdir(self.bucket)), ["model", *(self.folder_of(part).name for part in (1, 2))])
        # Nor is a record believed that is none.
        record = self.folder_of(2) / ".prepack-source.json"
        for text in ("", "{}", '{"url": 1, "files": {}}', '{"url": "x", "files": {"a": 7}}', "[" * 100_000):
            record.write_text(text)
            self.assertIn("not a record of a source", self.remote("merge", f"{self.url}/packed", code=3))
        record.unlink()
        self.assertIn("does not say what it was made of", self.remote("merge", f"{self.url}/packed", code=2))
        self.part(1, "--force")
        self.part(2, "--force")
        self.remote("merge", f"{self.url}/packed")
        self.same_as_one_machine(self.bucket / "packed")

    def test_a_source_that_changes_before_its_shards_come(self):
        """Between the headers and the shards: the tool is run later than they are fetched."""
        tool = self.scratch / "tool"
        tool.write_text(f"#!/bin/sh\ntest $1 != convert || touch -d @1 {self.model}/model-0000*\nexec {harness.TOOL} \"$@\"\n")
        tool.chmod(0o755)
        with mock.patch.dict(os.environ, {"PREPACK_TOOL": str(tool)}):
            process = subprocess.run([sys.executable, "-m", "prepack.remote.command", *self.arguments(1)],
                                     capture_output=True, text=True, check=False)
        self.assertEqual(process.returncode, 4)
        self.assertIn("has changed since it was listed", process.stderr)
        self.assertEqual(os.listdir(self.folder_of(1)), [".prepack-source.json"])
        self.assertEqual(list(self.jobs.glob("*/source/*.safetensors")), [])
        # The same headers would never do.
        self.assertIn("Remove", self.part(1, code=3))
        shutil.rmtree(self.jobs)
        self.part(1)

    def test_a_full_disk(self):
        limited = ["bash", "-c", 'ulimit -f 60; exec "$@"', "-", sys.executable, "-m", "prepack.remote.command"]
        done = subprocess.run([*limited, *self.arguments(1)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertNotIn("prepack-part.json", os.listdir(self.folder_of(1)))
        self.part(1)

    def test_one_process_for_one_part(self):
        def meanwhile(command):
            self.assertIn("another process makes it", self.part(1, code=2))
            return 7

        with mock.patch("prepack.remote.jobs.run_tool", side_effect=meanwhile):
            self.part(1, code=7)


@unittest.skipUnless(has("fsspec", "s3fs", "moto", "flask"), "fsspec, s3fs or moto[server] is not installed")
class S3(StoreTest):
    """A real protocol, and a server that fails as it is told."""

    def setUp(self):
        super().setUp()
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        import boto3
        import s3fs

        self.faults = []  # (method, what the path has, what it does with environ and start_response)
        self.app = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, self.answer, threaded=True,
                             request_handler=type("Quiet", (WSGIRequestHandler,), {"log": lambda *_: None}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        patched = mock.patch.dict(os.environ, {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2"})
        patched.start()
        self.addCleanup(patched.stop)
        s3fs.S3FileSystem.clear_instance_cache()
        # What the server keeps is of the process.
        urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset", data=b"").close()
        self.client = boto3.client("s3")
        self.client.create_bucket(Bucket="models")
        for path in self.model.iterdir():
            self.client.upload_file(str(path), "models", f"a/model/{path.name}")
        self.url = "s3://models/a"

    def answer(self, environ, start_response):
        for fault in self.faults:
            method, within, work = fault
            if environ["REQUEST_METHOD"] == method and within in environ["PATH_INFO"]:
                self.faults.remove(fault)
                answer = work(environ, start_response)
                if answer is not None:
                    return answer
        return self.app(environ, start_response)

    def keys(self, prefix):
        found = self.client.list_objects_v2(Bucket="models", Prefix=f"a/{prefix}").get("Contents", [])
        return sorted(item["Key"].removeprefix("a/") for item in found)

    def download(self, name):
        folder = self.scratch / "downloaded" / name
        folder.mkdir(parents=True)
        for key in self.keys(name + "/"):
            self.client.download_file("models", f"a/{key}", str(folder / key.rpartition("/")[2]))
        return folder

    def kill_when(self, method, within, *arguments):
        """A process that is killed, with all that it has started, when it asks for that."""
        asked, over = threading.Event(), threading.Event()
        self.addCleanup(over.set)
        self.faults.append((method, within, lambda *_: asked.set() or over.wait(60) and None))
        process = subprocess.Popen([sys.executable, "-m", "prepack.remote.command", *arguments], start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertTrue(asked.wait(60))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        over.set()

    def test_a_part_is_killed_and_run_again(self):
        """The example of docs/scale.md, on a small model."""
        self.part(1)
        part = self.folder_of(2).name
        self.kill_when("GET", "model-00003-of-00003", *self.arguments(2))  # while a shard comes
        self.assertNotIn(f"{part}/prepack-part.json", self.keys(part))
        self.kill_when("PUT", f"{part}/model.safetensors", *self.arguments(2))  # while one goes up
        self.assertNotIn(f"{part}/prepack-part.json", self.keys(part))
        self.assertIn("prepack-part.json", self.remote("merge", f"{self.url}/packed", code=2))
        self.part(2)
        self.assertIn(f"{part}/prepack-part.json", self.keys(part))
        self.remote("merge", f"{self.url}/packed")
        self.assertEqual(self.keys("packed.part"), [])
        self.same_as_one_machine(self.download("packed"))
        verify = ["verify", f"{self.url}/packed", "--source", f"{self.url}/model", "-q"]
        for part in (1, 2):
            self.remote(*verify, "--part", f"{part}/2", "--report", f"{self.url}/reports/{part}.json")
        self.remote(*verify, "--merge", f"{self.url}/reports")

    def test_what_passes(self):
        """The answer of another attempt is the one that counts."""
        for fault in (busy(503, "1"), reset, short):
            self.faults = [("GET", "model-00003-of-00003", fault)]
            if fault is not short:
                self.faults.append(("PUT", "/model.safetensors", fault))
            self.part(1, "--force")
            self.assertEqual(self.faults, [])
            (key,) = (key for key in self.keys(self.folder_of(1).name) if key.endswith("/model.safetensors"))
            found = self.client.get_object(Bucket="models", Key=f"a/{key}")["Body"].read()
            parts = self.scratch / "here"
            if not parts.exists():
                parts.mkdir()
                self.run_ok("convert", self.model, "-o", parts / "packed", "-t", "vllm-cpu", "--part", f"1/{PARTS}")
            self.assertEqual(found, (harness.part_name(parts / "packed", 1, PARTS) / "model.safetensors").read_bytes())

    def test_what_does_not_pass(self):
        """It ends, what is in the store does not look whole, and the next run goes on."""
        part = self.folder_of(1).name
        for method, within, status, said in (("GET", "model-00003-of-00003", 403, "cannot read it"),
                                             ("PUT", "/model.safetensors", 503, "cannot write it"),
                                             ("PUT", "prepack-part.json", 403, "cannot write it")):
            self.faults = [(method, within, busy(status))] * 100
            done = subprocess.run([sys.executable, "-m", "prepack.remote.command", *self.arguments(1)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 4, (within, len(self.faults), done.stdout, done.stderr))
            self.assertIn(said, done.stderr)
            self.assertIn(within, done.stderr)
            self.assertNotIn(f"{part}/prepack-part.json", self.keys(part))
        self.faults = []
        self.part(1)
        self.part(2)
        self.faults = [("PUT", "packed/model-00002", busy(403))] * 100
        self.assertIn("cannot write it", self.remote("merge", f"{self.url}/packed", code=4))
        self.assertNotIn("packed/prepack.json", self.keys("packed/"))
        self.faults = []
        self.remote("merge", f"{self.url}/packed")
        self.same_as_one_machine(self.download("packed"))

    def test_a_shard_that_changes_under_way(self):
        """After its first bytes have come: another ETag, the same size and header."""
        name = "model-00003-of-00003.safetensors"
        data = bytearray((self.model / name).read_bytes())
        data[-1] ^= 1

        def change(environ, start_response):
            self.client.put_object(Bucket="models", Key=f"a/model/{name}", Body=bytes(data))

        self.faults = [("HEAD", "packed.part", lambda *_: None), ("GET", name, change)]
        self.part(1, code=3)  # while the headers come
        self.client.upload_file(str(self.model / name), "models", f"a/model/{name}")
        self.part(1)


if __name__ == "__main__":
    unittest.main()
