"""One checkpoint in many equivalent forms: the packed bytes and the verdicts do not depend on which of them it is.

Every bundled checkpoint is written anew by hand (raw.py): headers and data in another order, padded headers, other
metadata, other shards, configs with their keys the other way round or with escapes, the other name of the dtype, files
beside it, and GPTQ's zero points in the other version and its 3-bit codes in bit planes. `check` must find the same in
each, `convert` must write the same bytes, and `verify` must pass. In a build with sanitizers a checkpoint gets a few of
the forms only, those that the fewest checkpoints had before it.

    python tests/attack/forms_test.py [CHECKPOINT...]
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import raw
from tool import run

CHECKPOINTS = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints"
CONFIGS = ("config.json", "hf_quant_config.json", "quantize_config.json", "quantization_config.json", "quant_config.json")


class Form:
    """A checkpoint taken apart: its tensors (not those of a second copy) in the order of the files, its JSON."""

    def __init__(self, folder):
        self.tensors = {}
        for path in sorted(folder.glob("model*.safetensors")):
            file = raw.File.read(path)
            for entry in file.entries:
                self.tensors[entry.name] = (entry.dtype, entry.shape, file.tensor(entry.name))
        self.configs = {name: json.loads((folder / name).read_text()) for name in CONFIGS if (folder / name).exists()}
        self.dump = {}  # arguments of json.dumps
        self.metadata = {"format": "pt"}
        self.pad_to = 8
        self.shards = 1
        self.entries = lambda entries: entries
        self.side_files = {}

    def quantization(self):
        """Every copy of the quantizer's config."""
        for name, config in self.configs.items():
            if name != "config.json":
                yield config
            elif "quantization_config" in config:
                yield config["quantization_config"]

    def write(self, folder):
        folder.mkdir()
        names = list(self.tensors)
        parts = [names[i :: self.shards] for i in range(self.shards)]
        index = {}
        for number, part in enumerate(parts):
            name = f"model-{number + 1:05}-of-{self.shards:05}.safetensors" if self.shards > 1 else "model.safetensors"
            file = raw.pack_file({tensor: self.tensors[tensor] for tensor in part}, self.pad_to)
            file.metadata = self.metadata
            file.entries = self.entries(file.entries)
            file.write(folder / name)
            index.update(dict.fromkeys(part, name))
        if self.shards > 1:
            size = sum(len(data) for _, _, data in self.tensors.values())
            document = {"metadata": {"total_size": size}, "weight_map": index}
            (folder / raw.INDEX).write_text(json.dumps(document))
        for name, config in self.configs.items():
            (folder / name).write_text(json.dumps(config, **self.dump))
        for name, text in self.side_files.items():
            (folder / name).write_text(text)


def backwards(value):
    if isinstance(value, dict):
        # Patterns of `dynamic` and `extra_config`, groups of compressed-tensors: the first that fits may decide.
        ordered = {"dynamic", "extra_config", "config_groups"}
        items = [(key, one if key in ordered else backwards(one)) for key, one in value.items()]
        return dict(reversed(items))
    return value


def as_written(form):
    pass


def headers_backwards(form):
    form.entries = lambda entries: entries[::-1]


def data_backwards(form):
    form.tensors = dict(reversed(form.tensors.items()))


def padded_headers(form):
    form.pad_to = 4096


def no_metadata(form):
    form.metadata = False


def five_shards(form):
    form.shards = 5


def configs_backwards(form):
    form.configs = {name: backwards(config) for name, config in form.configs.items()}
    form.dump = {"indent": "\t"}


def other_dtype_name(form):
    config = form.configs["config.json"]
    names = ("torch_dtype", "dtype")
    given = next((name for name in names if name in config), None)
    if given is None or all(name in config for name in names):
        return False
    form.configs["config.json"] = {names[1 - names.index(key)] if key == given else key: value
                                   for key, value in config.items()}  # fmt: skip


def files_beside(form):
    form.side_files = {"README.md": "# a model\n", "generation_config.json": "{}", "tokenizer.json": "{}"}


def unpack_words(words, bits, axis):
    """Codes of GPTQ's dense words: 32 codes in `bits` words along the axis, lowest bits first."""
    words = np.moveaxis(words, axis, -1).astype(np.uint64)
    groups = words.reshape(*words.shape[:-1], -1, bits)
    stream = sum(groups[..., i].astype(object) << (32 * i) for i in range(bits))
    codes = np.stack([(stream >> (bits * k)) & ((1 << bits) - 1) for k in range(32)], axis=-1)
    return codes.reshape(*codes.shape[:-2], -1).astype(np.uint64)


def pack_words(codes, bits):
    """The words of codes along the last axis."""
    groups = codes.reshape(*codes.shape[:-1], -1, 32).astype(object)
    stream = sum(groups[..., k] << (bits * k) for k in range(32))
    words = np.stack([(stream >> (32 * i)) & 0xFFFFFFFF for i in range(bits)], axis=-1)
    return words.reshape(*words.shape[:-2], -1).astype(np.uint32)


def other_zero_points(form):
    """GPTQ's v1 stores z - 1, its v2 z. Only for files of one width, which say which of them they are."""
    declared = list(form.quantization())
    formats = {config.get("checkpoint_format") for config in declared}
    mixed = any(config.get("dynamic") or config.get("lm_head") for config in declared)
    if mixed or formats not in ({"gptq"}, {"gptq_v2"}):
        return False
    step = 1 if formats == {"gptq"} else -1
    bits = declared[0]["bits"]
    for name, (dtype, shape, data) in form.tensors.items():
        if name.endswith(".qzeros"):
            words = np.frombuffer(data, np.uint32).reshape(shape)
            zeros = (unpack_words(words, bits, 1).astype(np.int64) + step) % (1 << bits)
            form.tensors[name] = dtype, shape, pack_words(zeros, bits).tobytes()
    for config in declared:
        for key in ("checkpoint_format", "format"):
            if key in config:
                config[key] = "gptq_v2" if step == 1 else "gptq"


def planes(codes):
    """3-bit codes along the last axis in blocks of 32: two words of their low two bits, one of their high bit."""
    groups = codes.reshape(*codes.shape[:-1], -1, 32).astype(np.uint64)
    words = [sum((groups[..., 16 * half + k] & 3) << (2 * k) for k in range(16)) for half in (0, 1)]
    words.append(sum((groups[..., k] >> 2) << k for k in range(32)))
    stacked = np.stack(words, axis=-1)
    return stacked.reshape(*stacked.shape[:-2], -1).astype(np.uint32)


def bit_planes(form):
    """GPTQModel's gptq_p, which stores z, in place of its dense 3-bit words."""
    declared = list(form.quantization())
    if any(config.get("checkpoint_format") != "gptq" or config["bits"] != 3 for config in declared):
        return False
    for name, (dtype, shape, data) in form.tensors.items():
        words = np.frombuffer(data, np.uint32).reshape(shape) if name.endswith((".qweight", ".qzeros")) else None
        if name.endswith(".qweight"):
            packed = planes(unpack_words(words, 3, 0)).T
            form.tensors[name] = dtype, shape, np.ascontiguousarray(packed).tobytes()
        elif name.endswith(".qzeros"):
            packed = planes((unpack_words(words, 3, 1) + 1) % 8)
            form.tensors[name] = dtype, shape, packed.tobytes()
    for config in declared:
        config.update(checkpoint_format="gptq_p", format="gptq_p")


FORMS = (as_written, headers_backwards, data_backwards, padded_headers, no_metadata, five_shards, configs_backwards,
         other_dtype_name, files_beside, other_zero_points, bit_planes)  # fmt: skip
MOST_FORMS = 4 if os.environ.get("PREPACK_SANITIZERS") else len(FORMS)  # of a checkpoint


def packed_hashes(folder):
    """{tensor: hash of its bytes} of a packed folder."""
    document = json.loads((folder / raw.MANIFEST).read_text())
    return {record["tensor"]: record["xxh3_128"] for record in raw.records(document)}


class Forms(unittest.TestCase):
    def outcome(self, source, packed):
        check = run("check", source, "--json")
        self.assertEqual(check.wrong, [])
        findings = sorted((one["id"], one["severity"]) for one in json.loads(check.out)["findings"])
        options = ["--target", "vllm-cpu", "--fallback", "dequantize", "--no-flush", "-q"]
        convert = run("convert", source, "-o", packed, *options)
        self.assertEqual((convert.code, convert.wrong), (0, []), convert.err)
        verify = run("verify", packed, "--source", source, "--sample", "0.2", "--engine", "reference")
        self.assertEqual((verify.code, verify.wrong), (0, []), verify.out + verify.err)
        return check.code, findings, packed_hashes(packed)

    def test_every_form_of_every_checkpoint(self):
        chosen = sys.argv[1:] or sorted(path.name for path in CHECKPOINTS.iterdir())
        tried = dict.fromkeys(FORMS, 0)
        for name in chosen:
            expected, written = None, 0
            for write in [as_written, *sorted(FORMS[1:], key=tried.get)]:
                form = Form(CHECKPOINTS / name)
                if written == MOST_FORMS or write(form) is False:
                    continue
                written += 1
                with self.subTest(checkpoint=name, form=write.__name__), tempfile.TemporaryDirectory() as place:
                    place = pathlib.Path(place)
                    form.write(place / "source")
                    found = self.outcome(place / "source", place / "packed")
                    expected = expected or found
                    self.assertEqual(found, expected)
                    tried[write] += 1
        if not sys.argv[1:]:
            for write, count in tried.items():
                self.assertGreaterEqual(count, 1 if write is bit_planes else 5, write.__name__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
