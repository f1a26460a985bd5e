"""A packed folder that is being made to lie: what the tables of attacks change it with, and the sound folders."""

import json
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

import raw
import seeds

LAYER = "model.layers.0"
QKV, GATE_UP, DOWN, O = (f"{LAYER}.{name}" for name in (
    "self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj", "self_attn.o_proj"))  # fmt: skip
BUNDLED = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints"
SHARD = "model.safetensors"

# Sound folders: source (a form of seeds.py, or a bundled checkpoint), what else it has, options of convert.
BASES = {
    "fused": ("ct-sym", {}, ["--fuse"]),
    "plain": ("ct-sym", {}, []),
    "asymmetric": ("ct-asym", {}, []),
    "ordered": ("gptq-order", {}, []),
    "biases": ("ct-sym", {"bias": True}, ["--fuse"]),
    "w4a8": ("ct-sym", {}, ["--scheme", "w4a8"]),
    "fp8": ("ct-fp8", {}, []),
    "dequantized": ("ar-w8-sym", {}, ["--fallback", "dequantize"]),
    "int8": ("ct-int8", {}, []),
    "real": ("ct-w4a16-g128-sym", {}, ["--fuse"]),
    "static": ("ct-w8a8-static", {}, []),
}


class Folder:
    """A packed folder that is being changed, with the source that it was made from and a folder of another model."""

    def __init__(self, path, source, twin):
        self.path = path
        self.source = source
        self.twin = twin
        self.manifest = json.loads((path / raw.MANIFEST).read_text())
        self.file = raw.File.read(path / SHARD)

    def module(self, name):
        return self.manifest["modules"][name]

    def save(self, sealed=True, places=True):
        self.file.write(self.path / SHARD)
        if sealed:
            raw.seal(self.path, self.manifest, places)

    def exchange(self, first, second):
        """The bytes of two tensors of one size."""
        data = self.file.tensor(first), self.file.tensor(second)
        self.file.put(first, data[1])
        self.file.put(second, data[0])

    def add(self, name, dtype, shape, data):
        """A tensor that passed through, as the manifest says."""
        self.file.entries.append(raw.Entry(name, dtype, list(shape), len(self.file.data), len(self.file.data) + len(data)))
        self.file.data += data
        self.manifest["tensors"].append({"tensor": name, "file": SHARD, "offset": 0, "dtype": dtype,
                                         "shape": list(shape), "xxh3_128": ""})  # fmt: skip

    def drop(self, name):
        """Takes a tensor out of the file; the manifest is left alone."""
        entry = self.file.find(name)
        begin, end = entry.offsets
        self.file.entries.remove(entry)
        for other in self.file.entries:
            if other.offsets[0] >= end:
                other.fields["data_offsets"] = [one - (end - begin) for one in other.offsets]
        del self.file.data[begin:end]

    def move(self, names, file):
        """Tensors into a file of their own, which the manifest knows."""
        moved = {n: (self.file.find(n).dtype, self.file.find(n).shape, self.file.tensor(n)) for n in names}
        for name in names:
            self.drop(name)
        raw.pack_file(moved, pad_to=4096).write(self.path / file)
        for record in raw.records(self.manifest):
            record["file"] = file if record["tensor"] in moved else record["file"]
        self.manifest["files"][file] = {"bytes": 0, "xxh3_128": ""}

    def write_index(self, only=None):
        """An index of what the manifest says; `only` of the files with these names."""
        places = {record["tensor"]: record["file"] for record in raw.records(self.manifest)}
        weight_map = {name: file for name, file in sorted(places.items()) if only is None or file in only}
        (self.path / raw.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        self.manifest["files"][raw.INDEX] = {"bytes": 0, "xxh3_128": ""}

    def rename_shard(self, name):
        """Gives the only shard another name in the manifest, and in the folder after it was written."""
        for record in raw.records(self.manifest):
            record["file"] = name if record["file"] == SHARD else record["file"]
        self.manifest["files"][name] = self.manifest["files"].pop(SHARD)
        self.file.write(self.path / SHARD)
        (self.path / SHARD).rename(self.path / name)

    def in_two_shards(self):
        """As a folder of two shards with an index, soundly: norms and embeddings in the second one."""
        rest = [record["tensor"] for record in self.manifest["tensors"]]
        self.move(rest, "model-00002-of-00002.safetensors")
        self.rename_shard("model-00001-of-00002.safetensors")
        self.write_index()

    def seal(self):
        raw.seal(self.path, self.manifest)

    def edit_config(self, change):
        document = json.loads((self.path / "config.json").read_text())
        change(document)
        (self.path / "config.json").write_text(json.dumps(document, indent=2))


@dataclass(frozen=True)
class Attack:
    name: str
    base: str
    change: object  # a function of a Folder
    # What vLLM makes of it: "refused", "the model", or "another model", which verify must fail.
    vllm: str
    verify: tuple = (1, 3)


ATTACKS = []


def attack(base, vllm, verify=(1, 3)):
    def add(function):
        name = function.__name__.replace("_", "-")
        ATTACKS.append(Attack(name, base, function, vllm, verify))
        return function

    return add


class Bases:
    """Sound folders, each made when it is first asked for: (packed, source, packed folder of a twin)."""

    def __init__(self, place, tool):
        self.place = pathlib.Path(place)
        self.tool = tool
        self.made = {}

    def get(self, name):
        if name not in self.made:
            form, more, options = BASES[name]
            packed = []
            for twin in range(2):
                source = BUNDLED / form
                if form in seeds.FORMS:
                    source = seeds.write_seed(self.place / f"{name}-source-{twin}", form, 100 + twin, **more)
                packed.append((self.place / f"{name}-{twin}", source))
                command = [self.tool, "convert", source, "-o", packed[-1][0], "-t", "vllm-cpu", "--no-flush", "-q", *options]
                subprocess.run(list(map(str, command)), check=True)
            self.made[name] = (*packed[0], packed[1][0])
        return self.made[name]

    def attacked(self, attack, place):
        """A copy of the base that is attacked, and its source."""
        packed, source, twin = self.get(attack.base)
        path = pathlib.Path(place) / attack.name
        shutil.copytree(packed, path)
        attack.change(Folder(path, source, twin))
        return path, source
