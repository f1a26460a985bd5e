"""tools/fixtures: what it restores is what was stored, and nobody's work is lost. And of this repository: everything in
fixtures/stored is needed and sound, and everything that belongs there is there."""

import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import ROOT, safetensors_bytes
from tool_module import load_tool

TOOL = ROOT / "tools" / "fixtures"


def random_bytes(seed, count):
    return random.Random(seed).randbytes(count)


SHARED = random_bytes(1, 40000)  # does not become smaller
ZEROS = bytes(50000)
FILES = {
    "checkpoints/one/model.safetensors": {"head": SHARED, "zeros": ZEROS, "a": b"abc"},
    "checkpoints/two/model-00001-of-00002.safetensors": {"a": b"abcd", "lm_head": SHARED},
    "checkpoints/two/model-00002-of-00002.safetensors": {"b": random_bytes(2, 100)},
    "truth/one.safetensors": {"rows": ZEROS + b"1"},
}


class Fixtures(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="prepack-fixtures-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.stored = self.scratch / "stored"
        for name, tensors in FILES.items():
            self.put(name, tensors)
        self.run_ok("store", self.scratch)
        self.original = self.files()

    def put(self, name, tensors):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(safetensors_bytes({key: ("U8", [len(data)], data) for key, data in tensors.items()}))
        return path

    def files(self):
        """Names and bytes of what is restored, and of nothing else in these folders."""
        return {str(path.relative_to(self.scratch)): path.read_bytes() for path in self.scratch.rglob("*")
                if path.is_file() and self.stored not in path.parents}

    def remove_all(self):
        for path in self.scratch.iterdir():
            if path != self.stored:
                shutil.rmtree(path)

    def start(self, *args):
        return subprocess.Popen([TOOL, "--fixtures", self.scratch, *args], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_ok(self, *args):
        process = self.start(*args)
        out, err = process.communicate()
        self.assertEqual((process.returncode, err), (0, ""))
        return out

    def assert_fails(self, *texts, args=()):
        process = self.start(*args)
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (4, ""))
        self.assertTrue(err.startswith("error: fixtures: "), err)
        self.assertEqual(err.count("error: "), 1, err)
        for text in texts:
            self.assertIn(text, err)

    def piece(self, data):
        return hashlib.sha256(data).hexdigest()[:16]

    def test_restores_what_was_stored(self):
        self.remove_all()
        self.assertEqual(self.run_ok(), "fixtures: restored 4 of 4 files\n")
        self.assertEqual(self.files(), self.original)
        self.assertFalse([path for path in self.stored.iterdir() if path.name.startswith(".")])

    def test_a_tensor_of_several_files_is_stored_once(self):
        self.assertEqual((self.stored / self.piece(SHARED)).read_bytes(), SHARED)
        lines = (self.stored / "index.txt").read_text().splitlines()
        self.assertEqual(sum(self.piece(SHARED) in line for line in lines), 2)
        self.assertLess((self.stored / f"{self.piece(ZEROS)}.xz").stat().st_size, 500)
        self.assertFalse((self.stored / self.piece(ZEROS)).exists())

    def test_restoring_again_changes_nothing(self):
        self.remove_all()
        self.run_ok()
        before = harness.snapshot(self.scratch)
        self.assertEqual(self.run_ok(), "")
        self.assertEqual(harness.snapshot(self.scratch), before)

    def test_what_is_there_is_not_read_again(self):
        for name in FILES:
            path = self.scratch / name
            time = path.stat().st_mtime_ns
            path.write_bytes(bytes(path.stat().st_size))
            os.utime(path, ns=(time, time))
        self.assertEqual(self.run_ok(), "")
        self.assertNotEqual(self.files(), self.original)

    def test_a_copy_with_another_time_is_recognised(self):
        path = self.scratch / "truth/one.safetensors"
        time = path.stat().st_mtime_ns
        os.utime(path)
        self.assertEqual(self.run_ok(), "")
        self.assertEqual(path.stat().st_mtime_ns, time)

    def test_only_what_is_missing_is_restored(self):
        (self.scratch / "truth/one.safetensors").unlink()
        self.assertEqual(self.run_ok(), "fixtures: restored 1 of 4 files\n")
        self.assertEqual(self.files(), self.original)

    def test_several_at_once(self):
        self.remove_all()
        for process in [self.start() for _ in range(6)]:
            self.assertEqual((process.communicate()[1], process.returncode), ("", 0))
        self.assertEqual(self.files(), self.original)

    def test_damaged_pieces(self):
        self.remove_all()
        for name in (self.piece(SHARED), f"{self.piece(ZEROS)}.xz"):
            path = self.stored / name
            sound = path.read_bytes()
            for damaged in (sound[:-9], b"", sound[:30] + bytes([sound[30] ^ 1]) + sound[31:]):
                path.write_bytes(damaged)
                self.assert_fails(f"{path} is damaged", f"begins with {name[:16]}")
            path.unlink()
            self.assert_fails(f"{path} is damaged", "No such file")
            path.write_bytes(sound)
            self.assertNotIn("checkpoints/one/model.safetensors", self.files())
        self.run_ok()
        self.assertEqual(self.files(), self.original)

    def test_a_damaged_index(self):
        self.remove_all()
        index = self.stored / "index.txt"
        lines = index.read_text().splitlines(keepends=True)
        digest, size, path, first, *_ = lines[0].split()
        index.write_text(f"{digest} {size} {path} {first}\n" + "".join(lines[1:]))
        self.assert_fails("index.txt is damaged", digest, path)
        self.assertNotIn(path, self.files())
        index.write_text("what\n")
        self.assert_fails("line 1 is not SHA-256, size, path and pieces")

    def test_work_is_never_overwritten(self):
        name = "checkpoints/one/model.safetensors"
        path = self.put(name, {"other": b"1"})
        mine = path.read_bytes()
        self.assert_fails(f"{path} was changed", hashlib.sha256(self.original[name]).hexdigest(), f"store {path}")
        self.assertEqual(path.read_bytes(), mine)
        self.run_ok("store", path)
        self.remove_all()
        self.run_ok()
        self.assertEqual(self.files(), {**self.original, name: mine})
        # The other file of the shared tensor keeps it; what only this one had is gone.
        self.assertTrue((self.stored / self.piece(SHARED)).exists())
        self.assertFalse((self.stored / f"{self.piece(ZEROS)}.xz").exists())

    def test_a_new_file_is_told_until_it_is_stored(self):
        path = self.put("checkpoints/three/model.safetensors", {"a": b"2"})
        process = self.start()
        self.assertEqual(process.communicate()[1], f"fixtures: {path} is not stored: tools/fixtures store {path}\n")
        self.assertEqual(process.returncode, 0)
        self.run_ok("store", path.parent)
        self.assertEqual(self.run_ok(), "")

    def test_another_index(self):
        """As when git goes to another commit and back: what was restored is ours to change and to remove."""
        pieces = {path: path.read_bytes() for path in self.stored.iterdir()}
        self.put("truth/one.safetensors", {"a": b"2"})
        self.run_ok("store", self.scratch / "truth")
        self.run_ok("remove", self.scratch / "checkpoints/two")
        self.assertEqual(sorted(self.files()), ["checkpoints/one/model.safetensors", "truth/one.safetensors"])
        other = (self.stored / "index.txt").read_text()
        for path, data in pieces.items():
            path.write_bytes(data)
        self.run_ok()
        self.assertEqual(self.files(), self.original)
        (self.stored / "index.txt").write_text(other)
        (self.scratch / "checkpoints/one/config.json").write_text("{}")
        self.assertEqual(self.run_ok(), "fixtures: restored 1 of 2 files\n")
        self.assertFalse((self.scratch / "checkpoints/two").exists())
        self.assertTrue((self.scratch / "checkpoints/one/config.json").exists())

    def test_what_cannot_be_stored(self):
        path = self.scratch / "checkpoints/one/model.safetensors"
        path.write_bytes(b"no header")
        self.assert_fails(f"{path} is no safetensors file", args=("store", path))
        path.write_bytes(self.original["checkpoints/one/model.safetensors"])
        spaced = self.put("checkpoints/a b/model.safetensors", {"a": b"2"})
        self.assert_fails("spaces", args=("store", spaced))
        self.assert_fails("does not lie in", args=("store", ROOT))
        self.assert_fails("there is no such file", args=("store", self.scratch / "golden"))
        for args in (("store",), ("restore", path), ("add", path)):
            process = self.start(*args)
            process.communicate()
            self.assertEqual(process.returncode, 2)


class Repository(unittest.TestCase):
    def test_every_file_is_stored_and_sound(self):
        store = load_tool("fixtures").Store(ROOT / "fixtures")
        entries = store.entries()
        self.assertEqual(sorted(store.files()), sorted(entries))
        for name, entry in entries.items():
            data = b"".join(map(store.read_piece, entry.pieces))
            self.assertEqual(hashlib.sha256(data).hexdigest(), entry.sha256, name)
            self.assertEqual((ROOT / "fixtures" / name).read_bytes(), data, name)

    def test_every_piece_is_needed(self):
        store = load_tool("fixtures").Store(ROOT / "fixtures")
        needed = {piece for entry in store.entries().values() for piece in entry.pieces}
        there = {path.name for path in store.folder.iterdir() if not path.name.startswith(".")}
        self.assertEqual(there, needed | {"index.txt"})


if __name__ == "__main__":
    unittest.main()
