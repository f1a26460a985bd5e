"""Models that are somewhere else: what their headers alone say is what the models themselves say, few bytes
are fetched for it, and whatever servers do, nothing is believed that they have not delivered.

The servers are real ones on this machine where they are installed: nginx, moto's S3, and huggingface_hub
asks a server that answers as the hub does.
"""

import datetime
import email.utils
import http.client
import importlib.util
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
from unittest import mock

import harness
import range_server
from harness import CHECKPOINTS
from range_server import RangeServer

import prepack
import prepack.remote
from prepack.remote import http_ranges
from prepack.remote.headers_file import read_ranges

SHARDED = "ct-w4a16-g128-sharded"
GGUF = harness.ROOT / "fixtures" / "gguf"
# Of each kind of format, and what readers read beside headers.
FORMATS = ["ar-gptq-w4-asym", "ar-gptq-w4-sym", "awq-gemm-g128", "ct-w4a16-g128-sym", "ct-w8a8-static", "ct-mxfp4",
           "gptqmodel-w4-sym-g128", "quark-awq"]
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def has(*packages):
    return all(importlib.util.find_spec(package) for package in packages)


def headers_size(folder):
    """Bytes of the headers of all shards."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            total += 8 + struct.unpack("<Q", file.read(8))[0]
    return total


class RemoteTest(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.models = self.scratch / "models"
        self.models.mkdir()
        self.cache = self.scratch / "cache"
        self.server = RangeServer(self.models, hub={"acme/model": "c1" * 20})
        self.addCleanup(self.server.stop)
        self.environment = {"PREPACK_REMOTE_CACHE": str(self.cache), "PREPACK_TOOL": harness.TOOL}
        patched = mock.patch.dict(os.environ, self.environment)
        patched.start()
        self.addCleanup(patched.stop)
        pauses = mock.patch.object(http_ranges, "sleep", side_effect=lambda seconds: self.pauses.append(seconds))
        self.pauses = []
        pauses.start()
        self.addCleanup(pauses.stop)

    def serve(self, name, checkpoint=None):
        """A copy of a bundled checkpoint, as the server has it."""
        shutil.copytree(CHECKPOINTS / (checkpoint or name), self.models / name)
        return f"{self.server.url}/{name}"

    def sparse(self, name, **shape):
        harness.sparse_checkpoint(self.models / name, **shape)
        return self.models / name

    def remote(self, *args, code=0, **environment):
        """The command line, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "prepack.remote.command", *map(str, args)], capture_output=True, text=True,
            check=False, env={**os.environ, **environment}, timeout=120,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def same_answer(self, url, folder, *args):
        """What a command says of the headers is what it says of the model, but for the place."""
        here = self.run_tool(*args[:1], folder, *args[1:], "--json")
        there = self.remote(*args[:1], url, *args[1:], "--json", code=here.returncode)
        place = self.place_of(there.stdout)
        told = there.stdout.replace(place, str(folder)) if place else there.stdout
        self.assertEqual(json.loads(told), json.loads(here.stdout), args)

    def place_of(self, text):
        start = text.find(str(self.cache))
        return None if start < 0 else text[start : text.index('"', start)]

    def nothing_is_left(self):
        """No folder that a command could read, and nothing half done."""
        left = [path for path in self.cache.rglob("*") if path.is_file()]
        self.assertEqual(left, [])


class Headers(RemoteTest):
    def test_commands_say_what_they_say_of_the_model(self):
        for name in FORMATS:
            with self.subTest(name):
                url = self.serve(name)
                for args in (["plan", "-t", "vllm-cpu"], ["inspect"], ["check", "--headers"]):
                    self.same_answer(url, CHECKPOINTS / name, *args)

    def test_a_checkpoint_target_is_planned_from_the_scales_that_it_needs(self):
        url = self.serve("gptq", "ct-w4a16-g32-asym")
        self.same_answer(url, CHECKPOINTS / "ct-w4a16-g32-asym", "plan", "-t", "gptq")

    def test_diff_and_doctor(self):
        a, b = self.serve("a", SHARDED), self.serve("b", "ct-smollm2-w4a16-gptq-g64")
        self.remote("diff", "--headers", a, a)
        self.remote("diff", "--headers", a, b, code=1)
        same = self.run_ok("diff", "--headers", CHECKPOINTS / SHARDED, CHECKPOINTS / "ct-w4a16-g128-sym")
        self.assertIn("quantized modules: 7 not compared", same.stdout)
        self.remote("doctor", a)

    def test_few_bytes_of_a_large_model(self):
        folder = self.sparse("large", shards=6, layers=8, n=65536, k=65536)
        whole = sum(path.stat().st_size for path in folder.iterdir())
        self.assertGreater(whole, 100e9)
        url = f"{self.server.url}/large"
        plan = json.loads(self.remote("plan", url, "-t", "vllm-cpu", "--json").stdout)
        self.assertEqual(len(plan["modules"]), 48)
        configs = sum(path.stat().st_size for path in folder.glob("*.json"))
        # The first request of each shard, and the shape that each module states.
        self.assertLessEqual(self.server.sent, configs + 6 * (1 << 16) + 48 * 512)
        self.assertGreaterEqual(self.server.sent, configs + headers_size(folder) + 48 * 16)

    def test_a_second_question_fetches_nothing(self):
        url = self.serve("model", SHARDED)
        first = prepack.remote.headers(url)
        self.server.forget()
        self.assertEqual(prepack.remote.headers(url), first)
        self.assertEqual((self.server.sent, {method for method, *_ in self.server.requests}), (0, {"HEAD"}))
        # One file changes.
        (shard,) = self.models.glob("model/model-00002*")
        header, _ = harness.read_header(shard)
        harness.flip(shard, shard.stat().st_size - 1, 0)
        second = prepack.remote.headers(url)
        self.assertNotEqual(second, first)
        self.assertEqual({path for method, path, _ in self.server.requests if method == "GET"}, {f"model/{shard.name}"})
        self.assertFalse(first.exists())
        self.assertTrue(header)

    def test_data_is_refused_by_name(self):
        url = self.serve("model", SHARDED)
        folder = prepack.remote.headers(url)
        out = self.scratch / "out"
        for args in (["check", folder], ["diff", folder, CHECKPOINTS / SHARDED],
                     ["convert", folder, "-o", out, "-t", "vllm-cpu"],
                     ["inspect", folder, "--values", "model.layers.0.mlp.up_proj"],
                     ["tune", folder, "-t", "vllm-cpu"]):
            done = self.run_tool(*args)
            self.assertIn("headers only: the data of its tensors is not here", done.stdout + done.stderr, args)
            self.assertNotEqual(done.returncode, 0)
        self.assertFalse(out.exists())
        # No other program takes it for the model.
        self.assertEqual(list(folder.glob("*.safetensors")), [])

    def test_wanted_ranges_are_no_answer(self):
        """What was computed from zeros is not said."""
        url = self.serve("model", SHARDED)
        with mock.patch.dict(os.environ, {"PREPACK_TOOL": "/bin/true"}):
            folder = prepack.remote.headers(url)
        wanted = self.scratch / "wanted.json"
        done = self.run_tool("plan", folder, "-t", "vllm-cpu", env={"PREPACK_WANTED_RANGES": str(wanted)})
        self.assertEqual(done.returncode, 6)
        self.assertTrue(json.loads(wanted.read_text())["ranges"])
        # Who writes a model is given none.
        wanted.unlink()
        self.run_tool("convert", folder, "-o", self.scratch / "o", "-t", "vllm-cpu",
                      env={"PREPACK_WANTED_RANGES": str(wanted)})
        self.assertFalse(wanted.exists())
        self.assertFalse((self.scratch / "o").exists())

    def test_damaged_headers_files(self):
        folder = prepack.remote.headers(self.serve("model", "ct-w4a16-g128-sym"))
        (path,) = folder.glob("*.headers")
        good = path.read_bytes()
        _, count, size = struct.unpack_from("<8sQQ", good, len(good) - 24)
        bad = {
            "empty": b"",
            "cut": good[:-1],
            "no mark": good[:-24] + b"PREPACKX" + good[-16:],
            "no ranges": good[:-16] + struct.pack("<QQ", 0, size),
            "too many ranges": good[:-16] + struct.pack("<QQ", 1 << 60, size),
            "smaller than its ranges": good[:-16] + struct.pack("<QQ", count, 9),
            "larger than any file": good[:-16] + struct.pack("<QQ", count, 1 << 63),
        }
        table = len(good) - 24 - 16 * count
        bad["not from the start"] = good[:table] + struct.pack("<Q", 8) + good[table + 8 :]
        bad["overlap"] = good[: table + 16] + struct.pack("<Q", 1) + good[table + 24 :]
        bad["endless"] = good[: table + 8] + struct.pack("<Q", (1 << 64) - 1) + good[table + 16 :]
        for name, data in bad.items():
            path.write_bytes(data)
            done = self.run_tool("plan", folder, "-t", "vllm-cpu")
            self.assertEqual(done.returncode, 3, name)
            self.assertIn("not a file of headers", done.stderr, name)

    def test_gguf(self):
        for name in ("model.gguf", "split-00002-of-00003.gguf"):
            shutil.copytree(GGUF, self.models / "gguf", dirs_exist_ok=True)
            self.server.forget()
            url = f"{self.server.url}/gguf/{name}"
            for args in (["inspect"], ["check", "--headers"]):
                self.same_answer(url, GGUF / name, *args)
        place = prepack.remote.headers(f"{self.server.url}/gguf/model.gguf")
        self.assertIn("headers only", self.run_tool("check", place).stderr)

    def test_gguf_that_lies(self):
        data = bytearray((GGUF / "model.gguf").read_bytes())
        for name, change in {
            "magic": lambda d: d.__setitem__(slice(0, 4), b"GGUX"),
            "values": lambda d: struct.pack_into("<Q", d, 16, 1 << 60),
            "tensors": lambda d: struct.pack_into("<Q", d, 8, 1 << 60),
            "key": lambda d: struct.pack_into("<Q", d, 24, 1 << 60),
        }.items():
            changed = bytearray(data)
            change(changed)
            (self.models / f"{name}.gguf").write_bytes(changed)
            with self.assertRaises(prepack.MalformedError, msg=name):
                prepack.remote.headers(f"{self.server.url}/{name}.gguf")
            self.nothing_is_left()

    def test_into_a_folder(self):
        url = self.serve("model", SHARDED)
        (self.models / "model" / "tokenizer.json").write_text("{}")
        folder = self.scratch / "headers"
        self.assertEqual(self.remote("headers", url, "--into", folder, "--side-files").stdout, f"{folder}\n")
        self.assertIn("tokenizer.json", os.listdir(folder))
        self.assertIn("exists already", self.remote("headers", url, "--into", folder, code=2).stderr)
        ranges = read_ranges(next(folder.glob("*00001*.headers")))
        self.assertEqual(min(ranges), 0)

    def test_urls_that_name_nothing(self):
        self.serve("model", SHARDED)
        self.assertEqual(self.remote("plan", "/model", "-t", "vllm-cpu", code=2).stdout, "")
        for url, error in {
            f"{self.server.url}/nothing": prepack.SystemFailedError,
            f"{self.server.url}/model?a=b": prepack.UsageError,
            "http://": prepack.UsageError,
            "model": prepack.UsageError,
            f"{self.server.url}/model/nothing.gguf": prepack.SystemFailedError,
        }.items():
            with self.assertRaises(error, msg=url):
                prepack.remote.headers(url)


class Faults(RemoteTest):
    def setUp(self):
        super().setUp()
        self.url = self.serve("model", SHARDED)
        self.shard = "model-00003-of-00003.safetensors"

    def test_what_passes(self):
        """The answer is the same, after another attempt."""
        expected = read_ranges(next(prepack.remote.headers(self.url).glob(self.shard + "*")))
        for fault in (range_server.reset, range_server.short, range_server.whole, range_server.busy(429),
                      range_server.busy(503), range_server.busy(500)):
            shutil.rmtree(self.cache)
            self.server.faults[self.shard] = [fault]
            folder = prepack.remote.headers(self.url)
            self.assertEqual(read_ranges(folder / (self.shard + ".headers")), expected, fault)
            self.assertEqual(self.server.faults[self.shard], [])

    def test_connections_stay_open(self):
        """One for each request at a time, however many requests there are."""
        folder = self.sparse("wide", shards=12, layers=24, n=1024, k=1024)
        prepack.remote.headers(f"{self.server.url}/wide", connections=2)
        self.assertGreater(len(self.server.requests), 50)
        self.assertLess(self.server.connections, 25)
        self.assertTrue(folder.is_dir())

    def test_what_is_left_of_an_answer_is_not_the_next_one(self):
        """After errors with bodies, and whole files in place of ranges."""
        expected = (CHECKPOINTS / SHARDED / self.shard).read_bytes()
        for fault in (range_server.whole, range_server.busy(503), range_server.short, range_server.reset):
            with mock.patch("prepack.remote.files._PIECE", 100_000):
                self.server.faults[self.shard] = [None, fault, None, fault]
                prepack.remote.get(f"{self.url}/{self.shard}", self.scratch / "got", connections=1)
            self.assertEqual((self.scratch / "got").read_bytes(), expected)

    def test_servers_are_given_the_time_that_they_ask_for(self):
        then = email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=40))
        self.server.faults[self.shard] = [range_server.busy(429, "7"), range_server.busy(503, then)]
        prepack.remote.headers(self.url)
        self.assertEqual(self.pauses[0], 7)
        self.assertTrue(30 < self.pauses[1] <= 40, self.pauses)

    def test_what_does_not_pass(self):
        for fault in (range_server.reset, range_server.busy(503), range_server.busy(429, "86400")):
            self.server.always[self.shard] = fault
            with self.assertRaises(prepack.SystemFailedError) as raised:
                prepack.remote.headers(self.url)
            self.assertIn(self.shard, str(raised.exception))
            self.nothing_is_left()

    def test_what_is_not_believed(self):
        for fault, said in ((range_server.another_range, "another range"),
                            (range_server.no_content_range, "which range"),
                            (range_server.another_total, "has changed"),
                            (range_server.zipped, "another encoding")):
            self.server.always[self.shard] = fault
            with self.assertRaises(prepack.MalformedError) as raised:
                prepack.remote.headers(self.url)
            self.assertIn(said, str(raised.exception))
            self.assertIn(self.shard, str(raised.exception))
            self.nothing_is_left()

    def test_a_shard_that_changes_under_way(self):
        folder = self.sparse("wide", shards=1, layers=400, n=8192, k=8192)
        (shard,) = folder.glob("*.safetensors")
        self.assertGreater(headers_size(folder), 1 << 16)  # two requests
        self.server.faults[shard.name] = [range_server.changes]
        with self.assertRaises(prepack.MalformedError) as raised:
            prepack.remote.headers(f"{self.server.url}/wide")
        self.assertIn("has changed since it was listed", str(raised.exception))
        self.nothing_is_left()

    def test_ignored_ranges_are_not_read_to_the_end(self):
        folder = self.sparse("wide", shards=1, layers=4, n=32768, k=32768)
        (shard,) = folder.glob("*.safetensors")
        self.server.always[shard.name] = range_server.whole
        # The shapes lie behind gigabytes of codes.
        with self.assertRaises(prepack.SystemFailedError) as raised:
            prepack.remote.headers(f"{self.server.url}/wide")
        self.assertIn("ignores ranges", str(raised.exception))
        self.assertLess(self.server.sent, 64 << 20)  # what fits into the buffers of a few connections
        self.nothing_is_left()

    def test_hostile_names_and_sizes(self):
        index = self.models / "model" / "model.safetensors.index.json"
        for name in ("../../../etc/passwd", "a/b.safetensors", ".hidden.safetensors", "-rf.safetensors", "",
                     "a\\b.safetensors", "n\nl.safetensors", "x" * 300, 7, None, ["x"]):
            index.write_text(json.dumps({"weight_map": {"t": name}}))
            with self.assertRaises(prepack.MalformedError, msg=name):
                prepack.remote.headers(self.url)
            self.nothing_is_left()
        for text in ("", "[]", "{", '{"weight_map": []}', '{"weight_map": {"t": "not-there.safetensors"}}',
                     "[" * 100_000):
            index.write_text(text)
            with self.assertRaises(prepack.MalformedError, msg=text[:40]):
                prepack.remote.headers(self.url)
            self.nothing_is_left()
        index.unlink()
        for length in (1 << 63, 200_000_000, 1000):
            (self.models / "model" / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
            with self.assertRaises(prepack.MalformedError, msg=length):
                prepack.remote.headers(self.url)
            self.nothing_is_left()

    def test_no_credentials_for_another_server(self):
        other = RangeServer(self.models)
        self.addCleanup(other.stop)
        seen = []
        self.server.always[self.shard] = range_server.redirect(f"{other.url}/model/{self.shard}")

        def look(handler, *args):
            seen.append(dict(handler.headers))

        other.always[self.shard] = look
        files = http_ranges.HttpFiles({"Authorization": "Bearer secret"})
        url = f"{self.url}/{self.shard}"
        size = (self.models / "model" / self.shard).stat().st_size
        entry = http_ranges.Entry(size, None)
        self.assertEqual(len(files.read(url, 5, 9, entry)), 4)
        self.assertEqual([headers.get("Authorization") for headers in seen], [None])
        self.server.always[self.shard] = range_server.redirect("file:///etc/passwd")
        with self.assertRaises(prepack.Error):
            files.read(url, 5, 9, entry)

    def test_a_full_disk(self):
        script = ("import resource, prepack.remote, sys\n"
                  "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
                  "try: prepack.remote.headers(sys.argv[1])\n"
                  "except prepack.SystemFailedError as error: print(error)\n")
        done = subprocess.run([sys.executable, "-c", script, self.url], capture_output=True, text=True, check=True)
        self.assertIn("cannot keep the headers", done.stdout)
        self.nothing_is_left()

    def test_interrupted(self):
        def stall(handler, *args):
            time.sleep(30)
            return True

        self.server.always[self.shard] = stall
        child = subprocess.Popen([sys.executable, "-m", "prepack.remote.command", "plan", self.url, "-t", "vllm-cpu"],
                                 stderr=subprocess.PIPE)
        with child:
            while not any(path.endswith(self.shard) and method == "GET" for method, path, _ in self.server.requests):
                time.sleep(0.01)
            child.kill()
        self.assertEqual(child.returncode, -signal.SIGKILL)
        self.assertEqual(list(self.cache.rglob("listing.json")), [])
        # Hidden leftovers are not taken for a model, and the next question is answered.
        del self.server.always[self.shard]
        self.assertTrue(prepack.remote.headers(self.url).is_dir())


class Files(RemoteTest):
    def test_whole_files(self):
        url = self.serve("model", SHARDED)
        for name in ("config.json", "model-00001-of-00003.safetensors"):
            target = self.scratch / name
            self.server.faults[name] = [range_server.short]
            self.remote("get", f"{url}/{name}", target)
            self.assertEqual(target.read_bytes(), (CHECKPOINTS / SHARDED / name).read_bytes())
        self.assertIn("no such file", self.remote("get", f"{url}/nothing.json", self.scratch / "n", code=4).stderr)
        name = "model-00003-of-00003.safetensors"
        self.server.always[name] = range_server.another_range
        self.remote("get", f"{url}/{name}", self.scratch / name, code=3)
        self.assertEqual([path.name for path in self.scratch.iterdir() if name in path.name], [])


class Servers(RemoteTest):
    """Those that people have."""

    def check_all(self, url, **environment):
        with mock.patch.dict(os.environ, environment):
            self.same_answer(url, CHECKPOINTS / SHARDED, "plan", "-t", "vllm-cpu")
            self.same_answer(url, CHECKPOINTS / SHARDED, "inspect")
            name = "model-00003-of-00003.safetensors"
            self.remote("get", f"{url}/{name}", self.scratch / name)
        self.assertEqual((self.scratch / name).read_bytes(), (CHECKPOINTS / SHARDED / name).read_bytes())

    @unittest.skipUnless(has("huggingface_hub"), "huggingface_hub is not installed")
    def test_hub(self):
        self.serve("acme/model", SHARDED)
        environment = {"HF_ENDPOINT": self.server.url, "HF_HOME": str(self.scratch / "hf"), "HF_TOKEN": "hf_secret",
                       "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
        self.check_all("hf://acme/model@main", **environment)
        self.server.forget()
        self.remote("plan", "hf://acme/model", "-t", "vllm-cpu", **environment)
        ranges = [path for method, path, _ in self.server.requests if "/resolve/" in path]
        self.assertTrue(all("c1" * 20 in path for path in ranges), ranges)  # a commit, and not a branch
        self.server.forget()
        self.remote("plan", "hf://acme/model", "-t", "vllm-cpu", **environment)
        self.assertEqual([path for _, path, _ in self.server.requests if "/resolve/" in path], [])
        self.assertIn("not a model of the hub", self.remote("plan", "hf://model", "-t", "x", code=2).stderr)

    @unittest.skipUnless(has("fsspec", "s3fs", "moto", "flask"), "fsspec, s3fs or moto[server] is not installed")
    def test_s3(self):
        import boto3
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self.addCleanup(server.stop)
        host, port = server.get_host_and_port()
        environment = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a",
                       "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        with mock.patch.dict(os.environ, environment):
            client = boto3.client("s3")
            client.create_bucket(Bucket="models")
            for path in (CHECKPOINTS / SHARDED).iterdir():
                client.upload_file(str(path), "models", f"a/{path.name}")
            self.check_all("s3://models/a")
            first = prepack.remote.headers("s3://models/a")
            with mock.patch("s3fs.S3FileSystem.cat_file", side_effect=AssertionError("fetched")):
                self.assertEqual(prepack.remote.headers("s3://models/a"), first)
            self.assertIn("cannot read it", self.remote("plan", "s3://nothing/a", "-t", "vllm-cpu", code=4).stderr)

    @unittest.skipUnless(has("fsspec"), "fsspec is not installed")
    def test_whatever_fsspec_knows(self):
        self.check_all(f"file://{CHECKPOINTS / SHARDED}")
        self.assertIn("nosuch", self.remote("plan", "nosuch://host/a", "-t", "vllm-cpu", code=4).stderr)

    @unittest.skipUnless(NGINX and shutil.which("openssl"), "nginx or openssl is not installed")
    def test_https_of_nginx(self):
        self.serve("model", SHARDED)
        key, certificate = self.scratch / "key.pem", self.scratch / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        port = free_port()
        config = self.scratch / "nginx.conf"
        config.write_text(f"""
            daemon off; pid {self.scratch}/nginx.pid; error_log {self.scratch}/error.log; worker_processes 1;
            events {{ }}
            http {{
              access_log {self.scratch}/access.log; gzip on; gzip_types *; gzip_min_length 0;
              client_body_temp_path {self.scratch}/t1; proxy_temp_path {self.scratch}/t2;
              fastcgi_temp_path {self.scratch}/t3; uwsgi_temp_path {self.scratch}/t4; scgi_temp_path {self.scratch}/t5;
              server {{
                listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};
                location / {{ root {self.models}; }}
              }}
            }}""")
        for path in (self.scratch, *self.scratch.parents):  # its workers are another user when run by root
            if path.stat().st_uid == os.getuid() and path != pathlib.Path("/"):
                path.chmod(path.stat().st_mode | 0o755)
        nginx = subprocess.Popen([NGINX, "-c", config, "-e", self.scratch / "error.log"], stderr=subprocess.DEVNULL)
        self.addCleanup(nginx.wait)
        self.addCleanup(nginx.terminate)
        while not answers(port):
            self.assertIsNone(nginx.poll())
        url = f"https://localhost:{port}/model"
        self.assertIn("certificate", self.remote("plan", url, "-t", "vllm-cpu", code=4).stderr.lower())
        self.check_all(url, SSL_CERT_FILE=str(certificate))
        log = (self.scratch / "access.log").read_text()
        self.assertIn('HTTP/1.1" 206 ', log)


def free_port():
    server = RangeServer("/")
    server.stop()
    return server.server_port


def answers(port):
    connection = http.client.HTTPConnection("localhost", port, timeout=1)
    try:
        connection.connect()
    except OSError:
        return False
    finally:
        connection.close()
    return True


if __name__ == "__main__":
    unittest.main()
