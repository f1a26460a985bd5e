"""Lies in several fields that agree with each other, made of two valid folders.

What describes one thing is taken from another folder all together: tensors, their entries in the manifest, hashes,
config.json, the source. Then all is sealed again. The other folder is a twin (another model of the same headers) or
another conversion of the same source. A lie may be the truth after all; `lies` says whether it is.
"""

import copy
import json
import shutil

import raw
import unpack
from attacked import Folder

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
# What `prepack verify` believes, as docs/reliability.md says; where tensors lie is held against the files.
BELIEVED = ("prepack_version", "run", "accepted", "manifest_xxh3_128", "files")


class Pair:
    """A folder that lies, and another one to take from."""

    def __init__(self, path, source, giver):
        self.folder = Folder(path, source, giver)
        self.giver = Folder(giver, source, giver)

    def write(self):
        self.folder.save()


def some(random, values):
    """A few of them, at least one."""
    values = sorted(values)
    return random.sample(values, random.choice((1, 1, 2, len(values))) if len(values) > 1 else 1)


def put(folder, name, dtype, shape, data):
    """A tensor in place of the one of this name, or at the end."""
    if folder.file.find(name) is not None:
        folder.drop(name)
    at = len(folder.file.data)
    folder.file.entries.append(raw.Entry(name, dtype, list(shape), at, at + len(data)))
    folder.file.data += data


def give_module(pair, name):
    """All that the giver has of a module: its tensors, and its entry with all that it says."""
    giver, folder = pair.giver, pair.folder
    for old in folder.manifest["modules"].pop(name, {"parts": {}})["parts"].values():
        if folder.file.find(old["tensor"]) is not None:  # an earlier change may have renamed it in the manifest
            folder.drop(old["tensor"])
    record = copy.deepcopy(giver.module(name))
    for part in record["parts"].values():
        entry = giver.file.find(part["tensor"])
        put(folder, entry.name, entry.dtype, entry.shape, giver.file.tensor(entry.name))
        part["file"] = "model.safetensors"
    folder.manifest["modules"][name] = record
    for layout, entry in giver.manifest["layouts"].items():
        folder.manifest["layouts"].setdefault(layout, entry)


def modules(pair, random):
    names = some(random, set(pair.giver.manifest["modules"]) & set(pair.folder.manifest["modules"]))
    for name in names:
        give_module(pair, name)
    return f"modules {names}"


def tensors_without_entries(pair, random):
    """The entries go on describing what was there, and only hashes follow."""
    fitting = [
        entry.name for entry in pair.folder.file.entries
        if (other := pair.giver.file.find(entry.name)) and (other.dtype, other.shape) == (entry.dtype, entry.shape)
    ]  # fmt: skip
    if not fitting:
        return None
    names = some(random, fitting)
    for name in names:
        pair.folder.file.put(name, pair.giver.file.tensor(name))
    return f"tensors {names}"


def fields_of_entries(pair, random):
    """Fields of the entry of one module, from an entry of the giver or of this folder."""
    folder = pair.folder
    name = random.choice(sorted(folder.manifest["modules"]))
    document = random.choice((folder.manifest, pair.giver.manifest))
    other = document["modules"][random.choice(sorted(document["modules"]))]
    keys = some(random, set(other) - {"parts"})
    for key in keys:
        folder.module(name)[key] = copy.deepcopy(other[key])
    return f"{keys} of the entry of {name}"


def entries_without_tensors(pair, random):
    names = some(random, set(pair.giver.manifest["modules"]) & set(pair.folder.manifest["modules"]))
    for name in names:
        record = copy.deepcopy(pair.giver.module(name))
        record["parts"] = pair.folder.module(name)["parts"]
        pair.folder.manifest["modules"][name] = record
    return f"entries of {names}"


def source_description(pair, random):
    keys = some(random, pair.giver.manifest["source"])
    for key in keys:
        pair.folder.manifest["source"][key] = copy.deepcopy(pair.giver.manifest["source"][key])
    return f"source {keys}"


def top_of_manifest(pair, random):
    keys = some(random, set(pair.giver.manifest) - {"modules", "tensors", "files", "manifest_xxh3_128"})
    for key in keys:
        pair.folder.manifest[key] = copy.deepcopy(pair.giver.manifest[key])
    return f"{keys} of the manifest"


def whole_manifest(pair, random):
    pair.folder.manifest = copy.deepcopy(pair.giver.manifest)
    return "the whole manifest"


def files(pair, random):
    names = some(random, {"config.json", "generation_config.json"})
    for name in names:
        shutil.copyfile(pair.giver.path / name, pair.folder.path / name)
    return f"files {names}"


def exchange_layers(pair, random):
    """All or some modules of two layers, by name: tensors, entries and with them offsets."""
    folder = pair.folder
    first = [name for name in folder.manifest["modules"] if ".layers.0." in name]
    chosen = some(random, first)
    names = {}
    for name in chosen:
        other = name.replace(".layers.0.", ".layers.1.")
        names |= {name: other, other: name}
    if not set(names) <= set(folder.manifest["modules"]):
        return None
    records = {new: folder.manifest["modules"][old] for old, new in names.items()}
    for name, record in records.items():
        for part in record["parts"].values():
            part["tensor"] = f"{name}.{part['tensor'].rpartition('.')[2]}"
    folder.manifest["modules"].update(records)
    for entry in folder.file.entries:
        module, _, part = entry.name.rpartition(".")
        entry.name = f"{names.get(module, module)}.{part}"
    _swap_fused(records, folder)
    return f"layers 0 and 1 exchanged: {chosen}"


def _swap_fused(records, folder):
    for name, record in records.items():
        layer = name.split(".")[2]
        for member in record.get("fused", []):
            parts = member["module"].split(".")
            member["module"] = ".".join((*parts[:2], layer, *parts[3:]))


def alike(folder, first, second):
    """Have two modules the same parts, of the same sizes? Not where one came from another conversion."""
    sizes = []
    for module in (first, second):
        entries = {part: folder.file.find(f"{module}.{part}") for part in folder.module(module)["parts"]}
        sizes.append({part: entry and (entry.dtype, entry.shape) for part, entry in entries.items()})
    return sizes[0] == sizes[1] and None not in sizes[0].values()


def exchange_siblings(pair, random):
    """Two modules of one shape within a layer: content, entries, or a fused module's order in both."""
    folder = pair.folder
    for names in (("self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")):
        first, second = (f"model.layers.{random.randrange(2)}.{name}" for name in names)
        first = second.rsplit(".", 2)[0] + "." + names[0]
        if {first, second} <= set(folder.manifest["modules"]):
            parts = folder.module(first)["parts"]
            if not alike(folder, first, second):
                continue
            for part in parts:
                folder.exchange(f"{first}.{part}", f"{second}.{part}")
            if random.random() < 0.7:
                records = folder.manifest["modules"]
                records[first], records[second] = records[second], records[first]
                for name in (first, second):
                    for part, record in records[name]["parts"].items():
                        record["tensor"] = f"{name}.{part}"
            return f"{first} and {second} exchanged"
    return None


TAKE = (modules, modules, tensors_without_entries, fields_of_entries, fields_of_entries, entries_without_tensors,
        source_description, top_of_manifest, whole_manifest, files, exchange_layers, exchange_siblings)  # fmt: skip


def take(path, source, giver, random):
    """Makes a folder lie in one to four ways, and seals it; says how."""
    pair = Pair(path, source, giver)
    said = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        said.append(random.choice(TAKE)(pair, random))
    pair.write()
    return [one for one in said if one is not None]


def take_shard(path, source, giver, random):
    """Both folders in two shards, of which one comes from the giver with its entries."""
    pair = Pair(path, source, giver)
    shard = random.choice(SHARDS)
    other = path.parent / "giver"
    shutil.copytree(giver, other)
    pair.giver = Folder(other, source, giver)
    for folder in (pair.folder, pair.giver):
        folder.in_two_shards()
    shutil.copyfile(other / shard, path / shard)
    if random.random() < 0.5:
        shutil.copyfile(other / raw.INDEX, path / raw.INDEX)
    if random.random() < 0.5 and shard == SHARDS[0]:
        pair.folder.manifest["modules"] = copy.deepcopy(pair.giver.manifest["modules"])
    pair.folder.seal()
    return [f"shard {shard} of the giver"]


def exchange_shards(path, source, giver, random):
    """The two shards of a folder under each other's names; index and manifest follow, or the index does not."""
    folder = Folder(path, source, giver)
    folder.in_two_shards()
    first, second = ((path / name).read_bytes() for name in SHARDS)
    (path / SHARDS[0]).write_bytes(second)
    (path / SHARDS[1]).write_bytes(first)
    for record in raw.records(folder.manifest):
        record["file"] = SHARDS[1 - SHARDS.index(record["file"])]
    if random.random() < 0.5:
        folder.write_index()
    folder.seal()
    return ["shards exchanged"]


def believed(document):
    """A manifest without what nobody can check, and without places, which follow the files."""
    document = copy.deepcopy(document)
    for key in BELIEVED:
        document.pop(key, None)
    document["source"].pop("path", None)
    for key in ("kept", "dequantized"):
        document[key] = sorted(document[key])
    for record in raw.records(document):
        record.pop("offset")
        record.pop("file")
    document["tensors"] = sorted(document["tensors"], key=lambda one: one["tensor"])
    return document


def lies(path, sound, model, same_conversion):
    """What is not true of a folder, held against the sound one and the meaning of the source."""
    try:
        wrong = unpack.differences(path, model)
    except Exception as error:  # noqa: BLE001  whoever loads it fails, too
        return [f"cannot be loaded: {type(error).__name__}: {error}"]
    own, true = (json.loads((one / "config.json").read_text()) for one in (path, sound))
    wrong += ["config.json"] * (own != true and same_conversion)
    if same_conversion:
        documents = [json.loads((one / raw.MANIFEST).read_text()) for one in (path, sound)]
        wrong += ["the manifest"] * (believed(documents[0]) != believed(documents[1]))
    return wrong
