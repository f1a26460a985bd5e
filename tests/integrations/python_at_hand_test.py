"""integrations/python as people use it: `with`, DLPack, what a notebook shows, threads, names by tab, and a page of
examples that runs and that type checkers accept. Runs with numpy alone; what needs torch is left out without it."""

import ctypes
import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import types
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy

import harness
import prepack
from harness import CHECKPOINTS, ROOT
from prepack.shown import readable_bytes

try:
    import torch
except ImportError:
    torch = None

PACKAGE = ROOT / "integrations" / "python"
TOUR = PACKAGE / "examples" / "tour.py"
SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
MODULE = "model.layers.0.mlp.down_proj"


class Opened(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.convert(SOURCE, "vllm-cpu")

    def mapped(self):
        """How often the files of the folder are mapped into this process."""
        maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
        return sum(line.endswith(f"{self.out}/model.safetensors") for line in maps.splitlines())

    def test_with(self):
        with prepack.open(self.out) as folder:
            part = folder[MODULE].parts["weight"]
            array = part.numpy()
            total = int(array.view(numpy.uint8).astype(numpy.int64).sum())
            self.assertEqual(self.mapped(), 1)
        with self.assertRaisesRegex(prepack.FolderError, "the folder was closed. Open it again"):
            part.numpy()
        # What was taken stays, and the mapping with it; then it goes.
        self.assertEqual(int(array.view(numpy.uint8).astype(numpy.int64).sum()), total)
        del array
        gc.collect()
        self.assertEqual(self.mapped(), 0)
        folder.close()  # again
        self.assertEqual(folder[MODULE].shape, (384, 1536))  # what it says needs no file

    def test_an_error_inside_closes_it(self):
        with self.assertRaises(ZeroDivisionError), prepack.open(self.out) as folder:
            raise ZeroDivisionError
        with self.assertRaises(prepack.FolderError):
            folder[MODULE].as_numpy()

    def test_repr(self):
        folder = prepack.open(self.out)
        self.assertEqual(repr(folder), f"<prepack.Folder {str(self.out)!r} for vllm-cpu: 7 × vllm-cpu/wna16, 1.1 MB>")
        text = repr(folder[MODULE])
        self.assertTrue(text.startswith(f"<prepack.Module '{MODULE}': vllm-cpu/wna16, w4a16, N 384, K 1536, group 128, "))
        self.assertIn("weight I32 [24, 3072]", text)
        self.assertEqual(list(map(readable_bytes, (0, 999, 1000, 999_949, 999_950, 5 * 10**12))),
                         ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "5000.0 GB"])

    def test_html(self):
        folder = prepack.open(self.out)
        html = folder._repr_html_()
        self.assertEqual(html.count("<tr>"), 1 + 7)
        self.assertIn(f"<td>{MODULE}</td><td>vllm-cpu/wna16</td><td>w4a16</td><td>384</td><td>1536</td><td>128</td>", html)
        self.assertIn("<td>weight</td><td>I32</td><td>24 × 3072</td>", folder[MODULE]._repr_html_())
        with mock.patch("prepack.shown.MOST_ROWS", 3):
            self.assertIn("and 4 more", folder._repr_html_())
        object.__setattr__(folder[MODULE], "name", "<script>")
        self.assertNotIn("<script>", folder._repr_html_() + folder[MODULE]._repr_html_())

    def test_names_by_tab(self):
        folder = prepack.open(self.out)
        self.assertEqual(folder._ipython_key_completions_(), list(folder))
        self.assertIn("open", dir(prepack))  # though it is imported when it is first used

    def test_threads(self):
        folder = prepack.open(self.out)
        names = list(folder) * 20

        def look(name):
            return sum(int(array.view(numpy.uint8).astype(numpy.int64).sum())
                       for array in folder[name].as_numpy().values())

        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(look, names))
        self.assertEqual(found, [look(name) for name in names])
        self.assertEqual(self.mapped(), 1)

        def work(index):
            out = self.scratch / f"by-thread-{index}"
            prepack.convert(SOURCE, out, target="zentorch", jobs=1)
            return prepack.verify(out, source=SOURCE, jobs=1).verdict

        with ThreadPoolExecutor(4) as threads:
            self.assertEqual(list(threads.map(work, range(4))), ["passed"] * 4)


def held(folder, tensors):
    """A folder of tensors that passed through: {name: (dtype, shape, bytes)}."""
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    from python_package_test import hand_made  # its name is of that file's tests

    return prepack.open(hand_made(folder, tensors))


class DLPack(harness.ToolTest):
    # dtype → (code, bits) as dlpack.h numbers them, bytes of an element.
    KINDS = {
        "I8": (0, 8), "I32": (0, 32), "U8": (1, 8), "U16": (1, 16), "F16": (2, 16), "F32": (2, 32), "F64": (2, 64),
        "BF16": (4, 16), "C64": (5, 64), "BOOL": (6, 8), "F8_E4M3": (10, 8), "F8_E4M3FNUZ": (11, 8),
        "F8_E5M2": (12, 8), "F8_E5M2FNUZ": (13, 8), "F8_E8M0": (14, 8),
    }

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
            ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
            ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
            ("byte_offset", ctypes.c_uint64),
        ]

    def setUp(self):
        super().setUp()
        self.data = {dtype: bytes(range(1, 1 + 6 * bits // 8)) for dtype, (_, bits) in self.KINDS.items()}
        self.data["BOOL"] = bytes([1, 0, 1, 1, 0, 0])
        self.folder = held(self.scratch / "held", {
            f"t.{dtype}": (dtype, [2, 3], data) for dtype, data in self.data.items()
        })

    def described(self, capsule, name, at):
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        return self.Tensor.from_address(pointer(capsule, name) + at)

    def test_the_capsule_says_what_the_bytes_are(self):
        versioned = tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)
        for dtype, kind in self.KINDS.items():
            part = self.folder.tensors[f"t.{dtype}"]
            self.assertEqual(part.__dlpack_device__(), (1, 0))
            asked = [(part.__dlpack__(), b"dltensor", 0)]
            if versioned:
                asked.append((part.__dlpack__(max_version=(1, 1)), b"dltensor_versioned", 32))
            for capsule, name, at in asked:
                with self.subTest(dtype=dtype, name=name):
                    tensor = self.described(capsule, name, at)
                    self.assertEqual((tensor.code, tensor.bits, tensor.lanes, tensor.device), (*kind, 1, 1))
                    self.assertEqual(tensor.shape[: tensor.ndim], [2, 3])
                    self.assertEqual(ctypes.string_at(tensor.data + tensor.byte_offset, len(self.data[dtype])),
                                     self.data[dtype])

    def test_numpy_takes_it(self):
        for dtype in ("I32", "F32", "U8", "F64"):
            array = numpy.from_dlpack(self.folder.tensors[f"t.{dtype}"])
            self.assertEqual(array.tobytes(), self.data[dtype])
        self.folder.close()
        gc.collect()
        self.assertEqual(array.tobytes(), self.data["F64"])  # the mapping lives with it

    def test_what_is_written_stays_here(self):
        array = numpy.from_dlpack(self.folder.tensors["t.I32"])
        if array.flags.writeable:  # numpy 2.1 and newer
            array[:] = 0
        self.assertEqual(self.folder.tensors["t.I32"].numpy().tobytes(), self.data["I32"])

    def test_no_stream(self):
        with self.assertRaisesRegex(prepack.FolderError, "memory of the CPU has no stream"):
            self.folder.tensors["t.I8"].__dlpack__(stream=1)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_takes_it(self):
        refused = set()
        for dtype, data in self.data.items():
            part = self.folder.tensors[f"t.{dtype}"]
            try:
                tensor = torch.from_dlpack(part)
            except (RuntimeError, BufferError, TypeError):
                refused.add(dtype)  # torch knows FP8 in capsules since 2.10 only
                continue
            self.assertEqual(tensor.dtype, part.torch().dtype, dtype)
            self.assertEqual(bytes(tensor.view(torch.uint8).flatten().tolist()), data)
        self.assertLessEqual(refused, {name for name in self.KINDS if name.startswith("F8")})


class Shown:
    """What IPython.display.display returns with display_id=True."""

    def __init__(self, log, html):
        self.log = log
        log.append(html)

    def update(self, html):
        self.log.append(html)


class Bars(harness.ToolTest):
    def test_in_a_notebook(self):
        log, displayed = [], []

        def display(html, display_id):
            displayed.append(display_id)
            return Shown(log, html)

        shell = types.SimpleNamespace(kernel=object())
        ipython = types.SimpleNamespace(get_ipython=lambda: shell)
        module = types.SimpleNamespace(display=display, HTML=str)
        with mock.patch.dict(sys.modules, {"IPython": ipython, "IPython.display": module}), \
                mock.patch("sys.stderr") as stderr:
            prepack.convert(SOURCE, self.scratch / "out", target="vllm-cpu", progress=True)
        self.assertEqual(displayed, [True])  # one output that changes
        self.assertFalse(stderr.write.called)
        self.assertIn("packing <progress value='", "".join(log))
        self.assertEqual(len(log), len([text for text, next_ in zip(log, [*log[1:], ""]) if text != next_]))
        self.assertFalse(any("\x1b" in text or "\r" in text for text in log))

    def test_ipython_in_a_terminal_is_none(self):
        for shell in (None, types.SimpleNamespace()):
            ipython = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
            with mock.patch.dict(sys.modules, {"IPython": ipython, "tqdm": None}), mock.patch("sys.stderr") as stderr:
                prepack.convert(SOURCE, self.scratch / f"out{shell is None}", target="vllm-cpu", progress=True)
            self.assertTrue(stderr.write.called)


class Tour(harness.ToolTest):
    def test_it_runs(self):
        done = subprocess.run([sys.executable, TOUR, SOURCE, self.scratch / "packed"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "{'vllm-cpu/wna16': 7}")
        self.assertRegex(lines[1], r"^5\d\.\d dB$")
        self.assertIn(f"{MODULE} 24 3072", lines)
        wrong = subprocess.run([sys.executable, TOUR, SOURCE, self.scratch / "packed"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(wrong.returncode, 2)  # the output is there already
        self.assertIn("packed", wrong.stderr)

    @unittest.skipUnless(importlib.util.find_spec("basedpyright"), "basedpyright is not installed")
    def test_pyright_accepts_it(self):
        config = self.scratch / "pyrightconfig.json"
        config.write_text('{"typeCheckingMode": "strict", "pythonVersion": "3.9", "include": ["%s"], '
                          '"extraPaths": ["%s"]}' % (TOUR, PACKAGE / "src"))
        done = subprocess.run(
            [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", config],
            capture_output=True, text=True, check=False, cwd=self.scratch,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
        self.assertIn("0 errors", done.stdout, done.stdout + done.stderr)
        # It would say so of a wrong name.
        wrong = self.scratch / "wrong.py"
        wrong.write_text(TOUR.read_text().replace("converted.layouts", "converted.no_such_name"))
        config.write_text(config.read_text().replace(str(TOUR), str(wrong)))
        done = subprocess.run([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", config],
                              capture_output=True, text=True, check=False, cwd=self.scratch)
        self.assertIn("no_such_name", done.stdout)


if __name__ == "__main__":
    unittest.main()
