"""Names of the hub: what the real huggingface_hub has put into its cache is found, by every verb.

The hub is a server on this machine that answers as the real one does, so the cache is what the library makes of a
download: refs, links, blobs, lists of files, and what an interrupted download leaves.
"""

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import unittest

import harness
from harness import CHECKPOINTS, manifest

SHARDED = "ct-w4a16-g128-sharded"
SINGLE = "ct-w4a16-g128-sym"
OLD, NEW = "a1" * 20, "a2" * 20
# The models of the hub: name → commit → folder with its files. `main` is the last commit.
MODELS = {
    "acme/Sharded-W4A16": {OLD: CHECKPOINTS / SINGLE, NEW: CHECKPOINTS / SHARDED},
    "acme/single.w4_a16": {"b7" * 20: CHECKPOINTS / SINGLE},
    "alone": {"c9" * 20: CHECKPOINTS / SINGLE},
    "acme/float": {"d1" * 20: CHECKPOINTS.parent / "float-bf16"},
}
REFS = {"acme/Sharded-W4A16": {"main": NEW, "v1.0": OLD, "refs/pr/7": OLD}}


def commit_of(name, revision):
    commits = MODELS[name]
    return REFS.get(name, {}).get(revision, revision if revision in commits else [*commits][-1])


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stalls = ""  # a file that begins, but does not end

    def log_message(self, *args):
        pass

    def answer(self, body, headers=()):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0].strip("/").replace("%2F", "/")
        if path.startswith("api/models/"):
            rest = path.removeprefix("api/models/")
            name = next(name for name in MODELS if rest.startswith(name + "/"))
            what, _, revision = rest.removeprefix(name + "/").partition("/")
            commit = commit_of(name, revision)
            files = sorted(p for p in MODELS[name][commit].iterdir() if p.is_file())
            if what == "tree":
                body = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size,
                     "oid": hashlib.sha1(f.read_bytes()).hexdigest()}
                    for f in files
                ]
            else:
                body = {"id": name, "modelId": name, "sha": commit, "private": False, "tags": [],
                        "downloads": 0, "likes": 0, "siblings": [{"rfilename": f.name} for f in files]}
            self.answer(json.dumps(body).encode(), [("Content-Type", "application/json")])
            return
        name, _, rest = path.partition("/resolve/")
        revision, _, file = rest.rpartition("/")
        commit = commit_of(name, revision)
        data = (MODELS[name][commit] / file).read_bytes()
        headers = [("ETag", f'"{hashlib.sha1(data).hexdigest()}"'), ("X-Repo-Commit", commit),
                   ("Accept-Ranges", "bytes")]
        if file == Hub.stalls and self.command == "GET":
            self.send_response(200)
            for header in (*headers, ("Content-Length", str(len(data)))):
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            time.sleep(60)
            return
        self.answer(data, headers)


DOWNLOAD = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], revision=sys.argv[2] or None, local_files_only=sys.argv[3] == "1"))
"""


class HubTest(harness.ToolTest):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        cls.server.daemon_threads = True
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def setUp(self):
        super().setUp()
        self.home = self.scratch / "hf"
        self.work = self.scratch / "work"
        self.work.mkdir()
        Hub.stalls = ""

    def environment(self, **more):
        names = ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_HUB_OFFLINE")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        url = f"http://127.0.0.1:{self.server.server_port}"
        return {**kept, "HF_HOME": str(self.home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", **more}

    def download(self, name, revision="", local=False, **environment):
        """What the real library downloads, or finds."""
        return pathlib.Path(
            subprocess.run(
                [sys.executable, "-c", DOWNLOAD, name, revision, "1" if local else "0"],
                env=self.environment(**environment), check=True, capture_output=True, text=True,
                timeout=120,
            ).stdout.strip()
        )

    def run_tool(self, *args, env=None, **kwargs):
        """In a folder without models, with the environment of the library."""
        return subprocess.run(
            [harness.TOOL, *map(str, args)], capture_output=True, text=True, check=False, timeout=300,
            env=self.environment(**(env or {})), cwd=kwargs.pop("cwd", self.work), **kwargs,
        )

    def resolved(self, name, **env):
        """The folder that a name means to prepack."""
        return pathlib.Path(json.loads(self.run_ok("inspect", name, "--json", env=env).stdout)["path"])

    def model_folder(self, name, hub=None):
        return (hub or self.home / "hub") / ("models--" + name.replace("/", "--"))

    def test_revisions_are_those_of_the_library(self):
        name = "acme/Sharded-W4A16"
        new = self.download(name)
        old = self.download(name, "v1.0")
        self.download(name, "refs/pr/7")
        self.assertEqual((new.name, old.name), (NEW, OLD))
        for revision, folder in (("", new), ("main", new), ("v1.0", old), ("refs/pr/7", old),
                                 (OLD, old), (NEW, new)):
            self.assertEqual(self.download(name, revision, local=True), folder)
            self.assertEqual(self.resolved(f"{name}@{revision}" if revision else name), folder)
        # Beginnings of commits, which the library does not know.
        self.assertEqual(self.resolved(f"{name}@a1a1"), old)
        self.assertEqual(self.resolved(f"{name}@A2A2A2"), new)
        self.assert_fails(4, [f"{name}@a1a", "does not have this revision"], "inspect", f"{name}@a1a")
        twin = "a1a1" + "b" * 36
        shutil.copytree(old, old.parent / twin, symlinks=True)
        self.assert_fails(2, ["several commits", OLD, twin], "inspect", f"{name}@a1a1")

    def test_caches_are_found_where_the_library_finds_them(self):
        caches = {
            "hub": {"HF_HUB_CACHE": str(self.scratch / "elsewhere")},
            "home": {"HF_HOME": str(self.scratch / "home")},
            "xdg": {"HF_HOME": "", "XDG_CACHE_HOME": str(self.scratch / "xdg")},
            "user": {"HF_HOME": "", "HOME": str(self.scratch / "user")},
            "tilde": {"HF_HOME": "~/mine", "HOME": str(self.scratch / "user2")},
        }
        for kind, env in caches.items():
            with self.subTest(kind):
                unset = {key: value for key, value in env.items() if value}
                library = self.environment(**unset)
                if env.get("HF_HOME") == "":
                    del library["HF_HOME"]
                found = subprocess.run(
                    [sys.executable, "-c", DOWNLOAD, "alone", "", "0"], env=library, check=True,
                    capture_output=True, text=True, timeout=120,
                ).stdout.strip()
                self.assertEqual(str(self.resolved("alone", **env)), found)

    def test_every_verb_takes_names(self):
        name = "acme/Sharded-W4A16"
        snapshot = self.download(name)
        self.download("acme/float")
        before = harness.snapshot(self.home)
        self.run_ok("plan", name, "-t", "vllm-cpu")
        self.run_ok("check", name)
        compared = self.run_tool("check", name, "--baseline", "acme/float", "--json")
        self.assertTrue(json.loads(compared.stdout)["baseline"].endswith("d1" * 20))
        self.run_ok("diff", name, f"{name}@{NEW}")
        self.run_ok("inspect", name)
        self.run_ok("convert", name, "-o", "packed", "-t", "vllm-cpu", "--verify")
        self.run_ok("verify", "packed", "--source", name)
        module = next(iter(manifest(self.work / "packed")["modules"]))
        self.run_ok("inspect", "packed", "--find", module, 1, 2, "--source", name)
        self.assertEqual(harness.snapshot(self.home), before)
        # As if the snapshot were copied: links make no difference.
        plain = self.scratch / "plain"
        shutil.copytree(snapshot, plain)
        self.run_ok("convert", plain, "-o", "from-plain", "-t", "vllm-cpu")
        ours, theirs = self.work / "packed", self.work / "from-plain"
        self.assertEqual(harness.read_tensors(ours), harness.read_tensors(theirs))
        source = manifest(ours)["source"]
        self.assertEqual(source["fingerprint"], manifest(theirs)["source"]["fingerprint"])
        self.assertEqual(source["hub"], {"name": name, "commit": NEW})
        self.assertNotIn("hub", manifest(theirs)["source"])
        self.checked_json((ours / "prepack.json").read_text(), "manifest")
        self.assertEqual(sorted(p.name for p in ours.iterdir()), sorted(p.name for p in theirs.iterdir()))

    def test_side_files_are_carried_as_files(self):
        self.download("acme/single.w4_a16")
        self.run_ok("convert", "acme/single.w4_a16", "-o", "packed", "-t", "gptq")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            copy = self.work / "packed" / file
            self.assertFalse(copy.is_symlink())
            self.assertEqual(copy.read_bytes(), (CHECKPOINTS / SINGLE / file).read_bytes())

    def test_outputs_know_their_model(self):
        name = "acme/single.w4_a16"
        commit = [*MODELS[name]][0]
        self.download(name)
        self.run_ok("convert", name, "-o", "packed", "-t", "vllm-cpu")
        self.assertIn(f"the source is {name}@{commit}\n", self.run_ok("inspect", "packed").stdout)
        report = self.checked_json(self.run_ok("inspect", "packed", "--json").stdout, "inspect")
        self.assertEqual(report["origin"]["source_hub"], {"name": name, "commit": commit})
        self.run_ok("inspect", "packed", "--html", "page.html")
        self.assertIn(f"{name}@{commit}", (self.work / "page.html").read_text())
        # Of parts, too; and by the path of a snapshot as well as by the name.
        snapshot = self.model_folder(name) / "snapshots" / commit
        for part in ("1/2", "2/2"):
            self.run_ok("convert", snapshot, "-o", "parts", "-t", "vllm-cpu", "--part", part)
        self.run_ok("merge", "parts")
        self.assertEqual(manifest(self.work / "parts")["source"]["hub"]["name"], name)
        # The cache has moved, and so has the folder: the path in the manifest leads nowhere.
        other = self.scratch / "other"
        shutil.move(self.home, other)
        shutil.move(self.work / "packed", self.scratch / "moved")
        lost = self.run_tool("verify", self.scratch / "moved")
        self.assertEqual(lost.returncode, 6)
        found = self.run_ok("verify", self.scratch / "moved", env={"HF_HOME": str(other)})
        self.assertIn("exactness   passed", found.stdout)

    def test_a_path_wins(self):
        name = "acme/single.w4_a16"
        self.download(name)
        self.download("alone")
        shutil.copytree(CHECKPOINTS / SHARDED, self.work / name)
        shutil.copytree(CHECKPOINTS / SHARDED, self.work / "alone")
        for one in (name, "alone"):
            report = json.loads(self.run_ok("inspect", one, "--json").stdout)
            self.assertEqual(report["path"], one)
            self.assertEqual(len(report["files"]), 3)
        # Even one that is no checkpoint.
        (self.work / "empty").mkdir()
        shutil.rmtree(self.work / "alone")
        os.symlink("nowhere", self.work / "alone")
        self.assertNotIn("hf download", self.run_tool("inspect", "alone").stderr)

    def test_what_is_not_there(self):
        name = "acme/single.w4_a16"
        cache = str(self.home / "hub")
        self.assert_fails(
            4, [name, "no model of this name", cache, f"`hf download {name}` fetches it"],
            "check", name,
        )
        self.assert_fails(4, [f"`hf download {name} --revision v2` fetches it"], "check", name + "@v2")
        self.download(name)
        self.assert_fails(
            4, ["does not have this revision", f"`hf download {name} --revision v2` fetches it"],
            "convert", name + "@v2", "-o", "out", "-t", "vllm-cpu",
        )
        self.assert_fails(4, ["hf download acme/other"], "verify", "acme/other")
        # More likely paths than names.
        (self.work / "models").mkdir()
        for path in ("models/missing", "missing", "./missing", "missing/", str(self.work / "missing")):
            self.assertNotIn("hub", self.assert_fails(4, [], "check", path).stderr)
        # Only a commit was downloaded: there is no branch.
        (self.model_folder(name) / "refs" / "main").unlink()
        self.assert_fails(4, ["does not have revision main"], "check", name)
        (self.model_folder(name) / "refs" / "main").write_text("../../../..")
        self.assert_fails(3, ["not the commit of a revision"], "check", name)

    def test_an_interrupted_download(self):
        name = "acme/Sharded-W4A16"
        Hub.stalls = "model-00002-of-00003.safetensors"
        blobs = self.model_folder(name) / "blobs"
        process = subprocess.Popen(
            [sys.executable, "-c", DOWNLOAD, name, "", "0"], env=self.environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        snapshot = self.model_folder(name) / "snapshots" / NEW
        while time.monotonic() < until:
            names = {p.name for p in snapshot.glob("*")}
            if [*blobs.glob("*.incomplete")] and len(names) == 5 - 1:
                break
            time.sleep(0.1)
        process.kill()
        process.wait()
        partial = [*blobs.glob("*.incomplete")]
        self.assertTrue(partial)
        fetch = f"`hf download {name}` fetches it"
        missing = ["its download is not complete", "no model-00002-of-00003.safetensors", fetch]
        self.assert_fails(3, missing, "check", name)
        # Without the list of files, as older libraries leave it, the index tells.
        shutil.rmtree(self.model_folder(name) / "trees")
        self.assert_fails(3, missing, "check", name)
        (snapshot / "model.safetensors.index.json").unlink()
        self.assert_fails(3, ["its download is not complete", ".incomplete", fetch], "check", name)
        # The command that the error names mends it.
        Hub.stalls = ""
        self.assertEqual(self.download(name), snapshot)
        self.run_ok("check", name)

    def test_what_another_download_left(self):
        name = "acme/single.w4_a16"
        snapshot = self.download(name)
        (self.model_folder(name) / "blobs" / "0123.incomplete").write_text("x")
        self.run_ok("check", name)  # the list of files says that this one is complete
        shutil.rmtree(self.model_folder(name) / "trees")
        self.assert_fails(
            3, ["not complete", "0123.incomplete", "left from another download, remove it"], "check", name
        )
        (self.model_folder(name) / "blobs" / "0123.incomplete").unlink()
        (snapshot / "config.json").rename(snapshot / "other.json")
        self.assert_fails(3, ["not complete", "no config.json"], "check", name)
        (snapshot / "other.json").rename(snapshot / "config.json")
        (snapshot / "model.safetensors").resolve().unlink()
        self.assert_fails(3, ["not complete", "links without a file: model.safetensors"], "check", name)

    def test_names_that_the_hub_does_not_allow_are_paths(self):
        for name in ("a//b", "a/b/c", "../a", "a/..", ".a/b", "a/b-", "a--b/c", "a/b.git", "a/b@",
                     "a/b@../x", "a/b@/x", "a/b@x/./y", "a/" + "b" * 97, "a b/c", "ä/b"):
            self.assertNotIn("hf download", self.run_tool("inspect", name).stderr, name)
            self.assertEqual(self.run_tool("inspect", name).returncode, 4, name)

    def test_no_connection_is_opened(self):
        """Not even with a name that is not there; strace would be the proof, a dead endpoint is the next best."""
        env = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        self.assertEqual(self.run_tool("check", "acme/other", env=env).returncode, 4)
        symbols = subprocess.run(
            ["nm", "-D", "--undefined-only", harness.TOOL], capture_output=True, text=True, check=True
        ).stdout
        for call in ("connect", "socket", "getaddrinfo", "gethostbyname"):
            self.assertNotRegex(symbols, rf"\b{call}(@|\b)")


if __name__ == "__main__":
    unittest.main()
