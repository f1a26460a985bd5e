"""integrations/python: what the package reads is what the files hold, where they hold it, and a
folder that is not what its manifest says is refused. Runs with numpy alone; what needs torch is left
out without it."""

import copy
import gc
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import numpy
from safetensors.numpy import load_file

import harness
import prepack
from harness import CHECKPOINTS, ROOT

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "torch is not installed")
PACKAGE = ROOT / "integrations" / "python"
EXAMPLE = PACKAGE / "examples" / "zentorch_linear.py"
W4A16 = CHECKPOINTS / "ct-w4a16-g128-sym"
MODULE = "model.layers.0.mlp.down_proj"
SHARD = "model.safetensors"

# Every dtype that numpy has a way to hold: (bytes of an element, dtype in numpy, in torch).
HELD = {
    "BOOL": (1, "bool", "bool"), "U8": (1, "uint8", "uint8"), "I8": (1, "int8", "int8"),
    "F8_E5M2": (1, "uint8", "float8_e5m2"), "F8_E4M3": (1, "uint8", "float8_e4m3fn"),
    "F8_E8M0": (1, "uint8", "float8_e8m0fnu"), "I16": (2, "int16", "int16"),
    "U16": (2, "uint16", "uint16"), "F16": (2, "float16", "float16"),
    "BF16": (2, "uint16", "bfloat16"), "I32": (4, "int32", "int32"), "U32": (4, "uint32", "uint32"),
    "F32": (4, "float32", "float32"), "F64": (8, "float64", "float64"), "I64": (8, "int64", "int64"),
    "U64": (8, "uint64", "uint64"), "C64": (8, "complex64", "complex64"),
}


def file_position(address):
    """(file, offset) of what is mapped at an address of this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end, _, offset, _, _, path = re.match(
                r"(\w+)-(\w+) (\S+) (\w+) (\S+) (\d+)\s*(.*)", line
            ).groups()
            if int(begin, 16) <= address < int(end, 16):
                return path, address - int(begin, 16) + int(offset, 16)
    raise AssertionError("nothing is mapped there")


def hand_made(folder, tensors):
    """A packed folder without modules, of {name: (dtype, shape, bytes)} that passed through."""
    folder.mkdir()
    (folder / SHARD).write_bytes(harness.safetensors_bytes(tensors))
    header, start = harness.read_header(folder / SHARD)
    listed = [
        {"tensor": name, "file": SHARD, "offset": start + entry["data_offsets"][0],
         "dtype": entry["dtype"], "shape": entry["shape"], "xxh3_128": "0" * 32}
        for name, entry in header.items()
    ]
    manifest = {
        "manifest_version": 2, "prepack_version": "0", "target": "vllm-cpu",
        "activation_dtype": "BF16", "layouts": {}, "modules": {}, "kept": {}, "dequantized": {},
        "source": {"format": "gptq", "fingerprint": "0" * 32, "quantization_config": {}},
        "tensors": listed, "files": {SHARD: {"bytes": (folder / SHARD).stat().st_size}},
    }
    (folder / "prepack.json").write_text(json.dumps(manifest))
    return folder


class Reading(harness.ToolTest):
    def test_a_model_of_the_hub(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        self.assertIsNone(prepack.open(out).source.hub)
        manifest = harness.manifest(out)
        manifest["source"]["hub"] = {"name": "Qwen/Qwen3-8B-AWQ", "commit": "4d" * 20}
        (out / "prepack.json").write_text(json.dumps(manifest))
        self.assertEqual(prepack.open(out).source.hub, prepack.Hub("Qwen/Qwen3-8B-AWQ", "4d" * 20))

    def check_folder(self, out, target):
        """All that the manifest says, and every byte of every tensor."""
        folder, manifest = prepack.open(out), harness.manifest(out)
        stored = harness.read_tensors(out)
        self.assertEqual(folder.target, target)
        self.assertEqual(folder.source.fingerprint, manifest["source"]["fingerprint"])
        self.assertEqual(folder.source.format, manifest["source"]["format"])
        self.assertEqual(folder.source.path, manifest["source"]["path"])
        self.assertEqual(
            folder.source.quantization_config, manifest["source"]["quantization_config"]
        )
        self.assertEqual(dict(folder.kept), manifest["kept"])
        self.assertEqual(set(folder), set(manifest["modules"]))
        seen = dict(folder.tensors)
        for name, module in folder.items():
            record = manifest["modules"][name]
            layout = manifest["layouts"][record["layout"]]
            self.assertEqual((module.layout, module.layout_version, module.name, module.scheme),
                             (record["layout"], layout["version"], name, record["scheme"]))
            self.assertEqual(folder.layouts[module.layout].fingerprint, layout["fingerprint"])
            self.assertEqual((list(module.shape), module.group_size, module.symmetric),
                             (record["shape"], record["group_size"], record["symmetric"]))
            self.assertEqual(module.record, record)
            self.assertEqual(set(module.parts), set(record["parts"]))
            self.assertEqual(set(module.as_numpy()), set(record["parts"]))
            seen.update({part.tensor: part for part in module.parts.values()})
        self.assertEqual(set(seen), set(stored))
        for name, (dtype, shape, data) in stored.items():
            part = seen[name]
            self.assertEqual((part.tensor, part.dtype, list(part.shape)), (name, dtype, shape))
            self.assertEqual(part.nbytes, len(data))
            array = part.numpy()
            self.assertEqual((list(array.shape), array.tobytes()), (shape, data), name)
        return folder

    def test_every_target(self):
        for source, target, *options in (
            ("ct-w4a16-g32-asym", "vllm-cpu"), ("ct-w4a16-g32-asym", "zentorch"),
            ("ct-w4a16-g32-asym", "onednn"), ("ct-w8a8-asym-act", "onednn"),
            ("ct-fp8-block", "vllm-cpu"), ("gptqmodel-w4-actorder-g128", "onednn"),
            ("ct-mixed", "zentorch"), ("ct-fp8-dynamic", "zentorch", "--fallback", "dequantize"),
        ):
            with self.subTest(source=source, target=target):
                out = self.convert(CHECKPOINTS / source, target, *options)
                self.assertTrue(self.check_folder(out, target))

    def test_kept_and_dequantized_modules_say_why(self):
        folder = prepack.open(self.convert(CHECKPOINTS / "gptqmodel-dynamic", "onednn"))
        self.assertEqual((len(folder), len(folder.kept)), (5, 1))
        self.assertTrue(all(reason for reason in folder.kept.values()))
        out = self.convert(CHECKPOINTS / "ct-fp8-dynamic", "zentorch", "--fallback", "dequantize")
        folder = prepack.open(out)
        self.assertEqual(set(folder.dequantized), set(folder))
        self.assertEqual({module.layout for module in folder.values()}, {"plain/bf16"})

    def test_several_files(self):
        out = self.scratch / "merged"
        for part in ("1/3", "2/3", "3/3"):
            self.run_ok("convert", W4A16, "-o", out, "--target", "zentorch", "--part", part)
        self.run_ok("merge", out)
        folder = self.check_folder(out, "zentorch")
        files = {part.file for module in folder.values() for part in module.parts.values()}
        self.assertGreater(len(files), 1)

    def test_is_a_mapping_of_modules(self):
        folder = prepack.open(self.convert(W4A16, "zentorch"), target="zentorch")
        self.assertEqual(len(folder), 7)
        self.assertIn(MODULE, folder)
        self.assertIs(folder.get("no.such.module"), None)
        self.assertIn("for zentorch: 7 × zentorch/woq", repr(folder))
        with self.assertRaises(KeyError):
            folder["no.such.module"]

    def test_opens_in_place_by_a_relative_path(self):
        out = self.convert(W4A16, "zentorch")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(out.parent)
        self.assertEqual(len(prepack.open(out.name)), 7)


class ZeroCopy(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.convert(W4A16, "zentorch")
        self.folder = prepack.open(self.out)

    def parts(self):
        for module in self.folder.values():
            yield from module.parts.values()
        yield from self.folder.tensors.values()

    def test_arrays_lie_in_the_mapped_file(self):
        for part in self.parts():
            path, offset = file_position(part.numpy().__array_interface__["data"][0])
            self.assertEqual((path, offset), (str(self.out / SHARD), part.offset), part.tensor)

    @needs_torch
    def test_tensors_lie_in_the_mapped_file(self):
        for part in self.parts():
            path, offset = file_position(part.torch().data_ptr())
            self.assertEqual((path, offset), (str(self.out / SHARD), part.offset), part.tensor)

    def test_arrays_are_read_only(self):
        array = self.folder[MODULE].parts["weight"].numpy()
        with self.assertRaises(ValueError):
            array[0, 0] = 1
        with self.assertRaises(ValueError):
            array.flags.writeable = True

    @needs_torch
    def test_writing_to_a_tensor_does_not_change_the_file(self):
        before = (self.out / SHARD).read_bytes()
        part = self.folder[MODULE].parts["weight"]
        stored = part.numpy()[0, 0]
        part.torch().fill_(int(stored) + 1)
        self.assertEqual(part.numpy()[0, 0], stored)
        self.assertEqual((self.out / SHARD).read_bytes(), before)

    def test_arrays_outlive_the_folder_and_the_file(self):
        array = self.folder[MODULE].parts["weight"].numpy()
        stored = array.tobytes()
        del self.folder
        gc.collect()
        shutil.rmtree(self.out)
        self.assertEqual(array.tobytes(), stored)


class DTypes(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.data = bytes(range(64))
        tensors = {name: (name, [64 // size], self.data) for name, (size, _, _) in HELD.items()}
        tensors["scalar"] = ("F32", [], self.data[:4])
        tensors["empty"] = ("F32", [0, 4], b"")
        tensors["F4"] = ("F4", [2, 8], self.data[:8])
        self.folder = prepack.open(hand_made(self.scratch / "packed", tensors))

    def test_numpy_holds_them(self):
        for name, (size, dtype, _) in HELD.items():
            array = self.folder.tensors[name].numpy()
            self.assertEqual((array.dtype, array.shape), (numpy.dtype(dtype), (64 // size,)), name)
            self.assertEqual(array.tobytes(), self.data, name)
            self.assertEqual(self.folder.tensors[name].dtype, name)

    @needs_torch
    def test_torch_holds_them(self):
        for name, (size, _, dtype) in HELD.items():
            if name == "BOOL":
                continue  # bytes that are no booleans
            tensor = self.folder.tensors[name].torch()
            self.assertEqual((tensor.dtype, tuple(tensor.shape)),
                             (getattr(torch, dtype), (64 // size,)), name)
            self.assertEqual(bytes(tensor.view(torch.uint8).tolist()), self.data, name)

    def test_scalars_and_empty_tensors(self):
        self.assertEqual(self.folder.tensors["scalar"].numpy().tobytes(), self.data[:4])
        self.assertEqual(self.folder.tensors["scalar"].numpy().shape, ())
        self.assertEqual(self.folder.tensors["empty"].numpy().shape, (0, 4))
        if torch:
            self.assertEqual(self.folder.tensors["scalar"].torch().shape, ())
            self.assertEqual(tuple(self.folder.tensors["empty"].torch().shape), (0, 4))

    def test_what_cannot_be_held_is_refused_by_name(self):
        part = self.folder.tensors["F4"]
        self.assertEqual((part.dtype, part.nbytes), ("F4", 8))
        with self.assertRaises(prepack.FolderError) as raised:
            part.numpy()
        self.assertEqual((raised.exception.field, raised.exception.found), ("F4", "F4"))
        self.assertIn("numpy has no such dtype", str(raised.exception))


def at(*keys):
    """The object under `keys` of a manifest."""

    def find(manifest):
        for key in keys:
            manifest = manifest[key]
        return manifest

    return find


WEIGHT = at("modules", MODULE, "parts", "weight")
LAYER = at("modules", MODULE)
NONE = object()  # the field is taken out

# (where, field, value, what the error says: field, and text). Every one is refused; the manifest
# without the change is not.
DEFECTS = [
    (at(), "manifest_version", 3, "manifest_version", "found 3, expected 2). Pack it again"),
    (at(), "manifest_version", "2", "manifest_version", "found string, expected integer"),
    (at(), "manifest_version", True, "manifest_version", "found boolean, expected integer"),
    (at(), "target", None, "target", "found null, expected string"),
    (at(), "modules", [], "modules", "found array, expected object"),
    (at(), "kept", {"a": 1}, "kept.a", "found integer, expected string"),
    (at(), "activation_dtype", "F12", "activation_dtype", "found F12"),
    (at(), "tensors", {}, "tensors", "found object, expected array"),
    (at("tensors"), 0, 7, "tensors[0]", "expected object"),
    (at("tensors", 0), "file", "../" + SHARD, "tensors[0].file", "no plain file name"),
    (at("tensors", 0), "tensor", "none", "tensors[0].tensor",
     f"{SHARD} has no such tensor (found none)"),
    (at("source"), "quantization_config", 1, "source.quantization_config", "found integer"),
    (at("source"), "path", 1, "source.path", "found integer"),
    (at("source"), "hub", "Qwen/Qwen3-8B-AWQ", "source.hub", "found string, expected object"),
    (at("source"), "hub", {"name": "Qwen/Qwen3-8B-AWQ"}, "source.hub.commit", "it is missing"),
    (at("layouts", "zentorch/woq"), "version", 0, "layouts.zentorch/woq.version", "1 or more"),
    (at("files", SHARD), "bytes", 5, None, "another size than the manifest says"),
    (LAYER, "layout", "zentorch/none", "layout", 'not listed under "layouts"'),
    (LAYER, "shape", [384], "shape", "not [N, K] (found [384])"),
    (LAYER, "shape", [384, 0], "shape", "expected integers of 1 or more"),
    (LAYER, "shape", [384.0, 1536], "shape", "found 384.0"),
    (LAYER, "group_size", -1, "group_size", "found -1, expected 1 or more"),
    (LAYER, "symmetric", 1, "symmetric", "found integer, expected boolean"),
    (LAYER, "group_size", 64, "group_size", 'it is another one under "numbers" (found 64, expected 128)'),
    (LAYER, "symmetric", False, "symmetric", 'it is another one under "numbers" (found False'),
    (LAYER, "scheme", NONE, "scheme", "it is missing (expected string)"),
    (LAYER, "parts", NONE, "parts", "it is missing (expected object)"),
    (WEIGHT, "file", "/etc/passwd", "parts.weight.file", "no plain file name (found /etc/passwd"),
    (WEIGHT, "file", "..", "parts.weight.file", "no plain file name"),
    (WEIGHT, "file", "a\\b", "parts.weight.file", "no plain file name"),
    (WEIGHT, "file", "a\0b", "parts.weight.file", "found a\\x00b"),
    (WEIGHT, "file", "", "parts.weight.file", "no plain file name"),
    (WEIGHT, "file", "other.safetensors", "parts.weight.file", 'not listed under "files"'),
    (WEIGHT, "tensor", "model.norm.weight", "parts.weight.tensor",
     f"found model.norm.weight, expected {MODULE}.weight"),
    (WEIGHT, "dtype", "I64", "parts.weight.dtype", "found I32, expected I64"),
    (WEIGHT, "dtype", "int32", "parts.weight.dtype", "unknown dtype (found int32"),
    (WEIGHT, "shape", [192, 384], "parts.weight.shape", "found [384, 192], expected [192, 384]"),
    (WEIGHT, "shape", [384, -192], "parts.weight.shape", "found -192"),
    (WEIGHT, "shape", "384", "parts.weight.shape", "found string, expected array"),
    (WEIGHT, "offset", 1 << 40, "parts.weight.offset", "expected 1099511627776"),
    (WEIGHT, "offset", 8192, "parts.weight.offset", "found 4096, expected 8192"),
    (WEIGHT, "offset", -4096, "parts.weight.offset", "found -4096, expected 0 or more"),
    (WEIGHT, "offset", 4096.0, "parts.weight.offset", "found float, expected integer"),
]

# Text in place of the manifest → what the error says.
BROKEN_TEXTS = [
    ("", "this is no usable JSON"),
    ("[]", "found array, expected object"),
    ('{"a": NaN}', "NaN is no JSON"),
    ('{"a": 1, "a": 2}', "the key a is there twice"),
    ("[" * 100000, "this is no usable JSON"),
    ('{"manifest_version": ' + "9" * 5000 + "}", "prepack.json"),
]


class Hostile(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.convert(W4A16, "zentorch", name="packed")
        self.manifest = harness.manifest(self.out)

    def write(self, manifest):
        (self.out / "prepack.json").write_text(json.dumps(manifest))

    def refusal(self, **options):
        with self.assertRaises(prepack.FolderError) as raised:
            prepack.open(self.out, **options)
        return raised.exception

    def test_a_sound_manifest_opens(self):
        self.write(self.manifest)
        self.assertEqual(len(prepack.open(self.out)), 7)

    def test_defects_of_the_manifest(self):
        for find, key, value, field, text in DEFECTS:
            with self.subTest(key=key, value=str(value)):
                manifest = copy.deepcopy(self.manifest)
                if value is NONE:
                    del find(manifest)[key]
                else:
                    find(manifest)[key] = value
                self.write(manifest)
                error = self.refusal()
                self.assertEqual(error.field, field)
                self.assertIn(text, str(error))
                self.assertEqual(error.module, MODULE if find in (LAYER, WEIGHT) else None)
                place = self.out / (SHARD if key == "bytes" else "prepack.json")
                self.assertTrue(str(error).startswith(str(place)), error)

    def test_more_dimensions_than_numpy_has(self):
        shape = [1] * 70 + [2]
        folder = hand_made(self.scratch / "deep", {"a": ("U8", shape, b"ab")})
        with self.assertRaisesRegex(prepack.FolderError, "too many dimensions .found 71, expected at most 8"):
            prepack.open(folder)

    def test_texts_that_are_no_manifest(self):
        for text, expected in BROKEN_TEXTS:
            with self.subTest(text=text[:30]):
                (self.out / "prepack.json").write_text(text)
                self.assertIn(expected, str(self.refusal()))
        (self.out / "prepack.json").write_bytes(b'{"a": "\xff"}')
        self.assertIn("this is no usable JSON", str(self.refusal()))

    def test_another_target(self):
        error = self.refusal(target="vllm-cpu")
        self.assertEqual((error.field, error.found, error.expected),
                         ("target", "zentorch", "vllm-cpu"))
        self.assertIn("prepack convert", error.hint)

    def test_no_packed_folder(self):
        (self.out / "prepack.json").unlink()
        self.assertIn("it has no prepack.json", str(self.refusal()))
        (self.out / "prepack.json").mkdir()
        self.assertIn("it has no prepack.json", str(self.refusal()))

    def test_files_that_are_not_there_or_not_whole(self):
        data = (self.out / SHARD).read_bytes()
        for size in (0, 7, 8, 1000, 4096, len(data) - 1):
            (self.out / SHARD).write_bytes(data[:size])
            self.assertIn("no sound safetensors file", str(self.refusal()))
        (self.out / SHARD).write_bytes(data + b"\0")
        self.assertIn("no sound safetensors file", str(self.refusal()))
        (self.out / SHARD).unlink()
        self.assertIn("there is no such file", str(self.refusal()))
        os.mkfifo(self.out / SHARD)
        self.assertIn("no plain one", str(self.refusal()))

    def test_a_header_with_equal_keys(self):
        data = (self.out / SHARD).read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + length].rstrip()
        entry = json.loads(header)["model.norm.weight"]
        twice = header[:-1] + b',"model.norm.weight":' + json.dumps(entry).encode() + b"}"
        self.assertLessEqual(len(twice), length)
        (self.out / SHARD).write_bytes(data[:8] + twice.ljust(length) + data[8 + length :])
        self.assertIn("the key model.norm.weight is there twice", str(self.refusal()))

    def test_a_file_that_is_shortened_after_it_was_opened(self):
        folder = prepack.open(self.out)
        os.truncate(self.out / SHARD, 4096)
        with self.assertRaises(prepack.FolderError) as raised:
            folder[MODULE].parts["weight"].numpy()
        self.assertIn("its size has changed", str(raised.exception))

    def test_messages_are_one_printable_line(self):
        manifest = copy.deepcopy(self.manifest)
        WEIGHT(manifest)["tensor"] = "\x1b[31m\n" + "x" * 5000
        self.write(manifest)
        message = str(self.refusal())
        self.assertTrue(message.isprintable())
        self.assertLess(len(message), 1000)


def example():
    spec = importlib.util.spec_from_file_location("zentorch_linear", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_model_order(module, weights):
    """Weights whose inputs are in the order of the checkpoint."""
    if "input_order" not in module.parts:
        return weights
    ordered = numpy.empty_like(weights)
    ordered[:, module.parts["input_order"].numpy()] = weights
    return ordered


class ZentorchExample(harness.ToolTest):
    def run_example(self, *args):
        return subprocess.run(
            [sys.executable, EXAMPLE, *args], capture_output=True, text=True, check=False
        )

    def test_its_reference_is_the_truth(self):
        """The weights by its formulas, against those that another implementation dequantized."""
        zentorch_linear = example()
        for source, layout, *options in (
            ("ct-w4a16-g128-sym", "zentorch/woq"), ("ct-w4a16-g32-asym", "zentorch/woq"),
            ("ct-w4a16-g128-sym", "zentorch/da8w4", "--scheme", "w4a8"),
            ("ct-w8a8-dynamic", "zentorch/int8"), ("gptqmodel-w4-actorder-g128", "zentorch/woq"),
        ):
            folder = prepack.open(self.convert(CHECKPOINTS / source, "zentorch", *options,
                                               name=layout.replace("/", "-") + source))
            truth = load_file(ROOT / "fixtures" / "truth" / f"{source}.safetensors")
            for name, module in folder.items():
                self.assertEqual(module.layout, layout)
                weights = in_model_order(module, zentorch_linear.dequantize(module))
                for rows, found in (("first16", weights[:16]), ("last16", weights[-16:])):
                    # GPTQ's library dequantizes in bf16.
                    numpy.testing.assert_allclose(
                        found.astype(numpy.float32), truth[f"{name}.rows_{rows}"],
                        rtol=2**-8 if source.startswith("gptq") else 0, err_msg=f"{source} {name}",
                    )

    @unittest.skipIf(torch and importlib.util.find_spec("zentorch"), "zentorch may be able to")
    def test_without_zentorch_it_says_so(self):
        result = self.run_example(self.convert(W4A16, "zentorch"))
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("not run: No module named", result.stderr)

    @needs_torch
    def test_with_torch_it_runs_or_says_why_not(self):
        result = self.run_example(self.convert(W4A16, "zentorch"))
        self.assertIn(result.returncode, (0, 6), result.stderr)
        self.assertIn("not run: " if result.returncode else " dB", result.stderr + result.stdout)

    @needs_torch
    def test_the_op_gets_its_operands_as_it_wants_them(self):
        """With an op in zentorch's place that computes what zentorch's does, from its arguments."""
        zentorch_linear = example()
        folder = prepack.open(self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "zentorch"))
        module = folder[MODULE]
        n, k = module.shape

        def woq(x, weight, scales, zero_points, bias):
            self.assertEqual((tuple(weight.shape), weight.stride()), ((k // 8, n), (1, k // 8)))
            self.assertIsNone(bias)
            shifts = torch.arange(0, 32, 4, dtype=torch.int32)
            codes = (weight.t().unsqueeze(-1) >> shifts & 15).reshape(n, k).float()
            repeated = [
                t.float().repeat_interleave(module.group_size, 0).t() for t in (zero_points, scales)
            ]
            return (x.float() @ ((codes - repeated[0]) * repeated[1]).t()).bfloat16()

        zentorch_linear.load_op = lambda layout: (torch, woq)
        self.assertGreater(zentorch_linear.check(module), 45)
        zentorch_linear.load_op = lambda layout: (torch, lambda *args: woq(*args).roll(1, dims=1))
        self.assertLess(zentorch_linear.check(module), 5)

    def test_what_it_refuses(self):
        folder = self.convert(W4A16, "vllm-cpu")
        result = self.run_example(folder)
        self.assertEqual(result.returncode, 3)
        self.assertIn("found vllm-cpu, expected zentorch", result.stderr)
        result = self.run_example(self.convert(W4A16, "zentorch"), "no.such.module")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no.such.module", result.stderr)


if __name__ == "__main__":
    unittest.main()
