"""Changes checkpoints and packed folders so that they lie: in headers, data, configs, the index, the manifest, names.

A mutation takes a folder, a random.Random and other folders to steal from, and says what it did, or None where there
was nothing to do. They know what the files consist of, but not what prepack checks.
"""

import copy
import json
import shutil
import struct

import raw

ODD = [
    -1, 0, 1, 2, 3, 8, 16, 31, 33, 64, 2**31, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**30, 0.5, 1.0, 32.0, 1e300, -0.0,
    None, True, False, "", "32", "true", "\u0000", "\ud800", "..", "../x", "a" * 5000, [], {}, [[]], [1], {"a": 1},
]  # fmt: skip


def shards(folder):
    return sorted(p for p in folder.iterdir() if p.name.endswith(".safetensors") and p.is_file())


def _open(folder, random):
    """A file that can be taken apart, and its path."""
    found = shards(folder)
    for path in random.sample(found, len(found)):
        try:
            file = raw.File.read(path)
        except (ValueError, TypeError, struct.error):
            continue
        if file.entries:
            return file, path
    return None, None


def pick(random, values, other):
    """One of the values; `other` where there are none."""
    return random.choice(values) if values else other


def _number(random, value):
    around = [value + 1, value - 1, value * 2, value // 2, -value, value + 64, value * 1.0, str(value), value + 2**32]
    return random.choice(around + ODD) if random.random() < 0.9 else value


# --- headers ---------------------------------------------------------------------------------------------------


def change_dtype(file, entry, random):
    same = [one for one, bits in raw.SIZES.items() if bits == raw.SIZES.get(entry.dtype) and one != entry.dtype]
    wild = [*raw.SIZES, "f32", "I128", "", 5, None, ["F32"], "BF16 "]
    entry.fields["dtype"] = random.choice(same if same and random.random() < 0.7 else wild)


def change_shape(file, entry, random):
    shape = list(entry.shape) if isinstance(entry.shape, list) else [1]
    way = random.randrange(9)
    if way == 0:
        random.shuffle(shape)
    elif way == 1 and shape:
        at = random.randrange(len(shape))
        shape[at] = _number(random, shape[at]) if type(shape[at]) is int else random.choice(ODD)
    elif way == 2:
        shape.insert(random.randrange(len(shape) + 1), random.choice((0, 1, 2)))
    elif way == 3 and shape:
        shape.pop(random.randrange(len(shape)))
    elif way == 4 and len(shape) == 2 and all(type(one) is int for one in shape):
        shape = random.choice(([shape[0] * 2, shape[1] // 2], [shape[0] // 2, shape[1] * 2], [shape[0] * shape[1]]))
    elif way == 5:
        shape = random.choice(ODD)
    elif way == 6:
        shape = [2**32, 2**32, *shape]
    elif way == 7:
        shape = [1] * random.choice((9, 70)) + shape
    else:
        shape = shape[::-1]
    entry.fields["shape"] = shape


def change_offsets(file, entry, random):
    offsets = list(entry.offsets) if isinstance(entry.offsets, list) else [0, 0]
    way = random.randrange(7)
    if way == 0:
        shift = random.choice((1, -1, 2, 64, -64, 2**40))
        offsets = [one + shift for one in offsets if type(one) is int]
    elif way == 1 and offsets:
        at = random.randrange(len(offsets))
        offsets[at] = _number(random, offsets[at]) if type(offsets[at]) is int else random.choice(ODD)
    elif way == 2:
        other = random.choice(file.entries)
        entry.fields["data_offsets"], other.fields["data_offsets"] = other.offsets, entry.offsets
        return
    elif way == 3:
        offsets = list(random.choice(file.entries).offsets or [0, 0])
    elif way == 4:
        offsets = random.choice(ODD)
    elif way == 5:
        offsets = offsets[::-1]
    else:
        offsets = [*offsets, 0]
    entry.fields["data_offsets"] = offsets


def change_name(file, entry, random):
    name = entry.name
    other = random.choice(file.entries)
    way = random.randrange(6)
    if way == 0:
        entry.name, other.name = other.name, name
    elif way == 1:
        entry.name = other.name
    elif way == 2:
        old = random.choice(("q_proj", "k_proj", "up_proj", "layers.0", "layers.1", "weight", "model."))
        new = random.choice(("k_proj", "v_proj", "gate_proj", "layers.1", "layers.2", "weight_scale", "w", "qkv_proj", ""))
        entry.name = name.replace(old, new)
    elif way == 3:
        entry.name = random.choice((name + " ", name.upper(), name + "\u0000", "", "__metadata__", name + "\u0301", "é"))
    elif way == 4:
        entry.name = random.choice(("language_model.", "model.", "transformer.")) + name
    else:
        at = random.randrange(len(name) + 1)
        entry.name = name[:at] + random.choice(("x", ".", "/", "\\", "\x1b[2J", "\u202e")) + name[at:]


def change_fields(file, entry, random):
    way = random.randrange(3 if len(file.entries) == 1 else 4)
    if way == 0 and entry.fields:
        entry.fields.pop(random.choice(list(entry.fields)))
    elif way == 1:
        entry.fields[random.choice(("offset", "quantized", "dtype ", "Shape"))] = random.choice(ODD)
    elif way == 2:
        file.entries.append(copy.deepcopy(entry))
    else:
        file.entries.remove(entry)


def reorder(file, entry, random):
    """Another order of the data: sound as such."""
    random.shuffle(file.entries)
    data = bytearray()
    for one in file.entries:
        if not isinstance(one.offsets, list) or len(one.offsets) != 2 or not all(type(o) is int for o in one.offsets):
            return
        piece = file.data[one.offsets[0] : one.offsets[1]]
        one.fields["data_offsets"] = [len(data), len(data) + len(piece)]
        data += piece
    file.data = data


def change_frame(file, entry, random):
    way = random.randrange(9)
    if way == 0:
        file.length_lie = random.choice((-1, 1, 8, -8, 4096, 2**31, 2**40, 2**63))
    elif way == 1:
        file.tail = random.choice((b"\0", b" " * 64, b"<html>"))
    elif way == 2 and file.data:
        del file.data[-random.choice((1, 2, 64, len(file.data))) :]
    elif way == 3:
        file.metadata = random.choice((False, {"format": "tf"}, {"format": 5}, {"a": None}, [], "pt", {"x": {"y": 1}}))
    elif way == 4:
        file.pad_to = random.choice((1, 2, 3, 64, 100000))
    elif way == 5:
        file.header_text = file.header().rstrip(b" ") + random.choice((b"", b"\n", b"\0", b"}", b"{}"))
    elif way == 6:
        text = bytearray(file.header())
        text[random.randrange(len(text))] ^= 1 << random.randrange(8)
        file.header_text = bytes(text)
    elif way == 7:
        text = file.header().replace(b"16", random.choice((b"16.0", b"1.6e1", b"016", b"+16", b"0x10")), 1)
        file.header_text = text
    else:
        file.header_text = random.choice((b"\xef\xbb\xbf", b" ", b"[", b"//\n")) + file.header()


HEADER = [change_dtype, change_shape, change_offsets, change_name, change_fields, reorder, change_frame]


def change_header(folder, random, others):
    file, path = _open(folder, random)
    if file is None:
        return None
    change = random.choice(HEADER)
    entry = random.choice(file.entries)
    name = entry.name
    change(file, entry, random)
    file.write(path)
    return f"{change.__name__} of {name} in {path.name}"


# --- data ------------------------------------------------------------------------------------------------------


def change_data(folder, random, others):
    file, path = _open(folder, random)
    if file is None:
        return None
    entry = random.choice(file.entries)
    try:
        begin, end = entry.offsets
        data = file.data[begin:end]
        what = _overwrite(data, entry, random)
        file.data[begin:end] = data
    except (TypeError, ValueError):
        return None
    file.write(path)
    return f"{what} in {entry.name} of {path.name}"


def _overwrite(data, entry, random):
    if not data:
        return "nothing"
    way = random.randrange(6)
    if way == 0:
        at = random.randrange(len(data))
        data[at] ^= 1 << random.randrange(8)
        return f"bit of byte {at}"
    if way == 1:
        data[:] = bytes(len(data))
        return "zeros"
    if way == 2:
        data[:] = random.randbytes(len(data))
        return "noise"
    if way == 3:
        half = len(data) // 2 // 8 * 8
        data[:] = data[half:] + data[:half]
        return "halves exchanged"
    width = raw.SIZES.get(entry.dtype, 8) // 8 or 1
    at = random.randrange(max(1, len(data) // width)) * width
    odd = {
        "BF16": ("0x7fc0", "0x7f80", "0xff80", "0", "0x8000", "0x0001", "0xbf80", "0x7f7f"),
        "F16": ("0x7e00", "0x7c00", "0xfc00", "0", "0x8000", "0x0001", "0xbc00", "0x7bff"),
        "F32": ("0x7fc00000", "0x7f800000", "0", "0x00000001", "0xbf800000"),
        "I32": ("0xffffffff", "0x80000000", "0", "1", "0x7fffffff", "0x88888888"),
        "I64": ("0", "1", "0xffffffffffffffff", "0x8000000000000000", "64", "96", "32"),
    }.get(entry.dtype, ("0", "0xff", "0x80", "0x7f"))
    value = int(random.choice(odd), 0).to_bytes(width, "little")
    if way == 4:
        data[at : at + width] = value
        return f"{value.hex()} at {at}"
    data[:] = (value * (len(data) // width + 1))[: len(data)]
    return f"{value.hex()} everywhere"


def move_tensor(folder, random, others):
    """The bytes of one tensor in place of another's of its size, of this model or of another one."""
    file, path = _open(folder, random)
    giver, giver_path = _open(random.choice([folder, *others]), random)
    if file is None or giver is None:
        return None
    target = random.choice(file.entries)
    try:
        size = target.offsets[1] - target.offsets[0]
        fitting = [e for e in giver.entries if e.offsets[1] - e.offsets[0] == size and e.name != target.name]
        same = [e for e in giver.entries if e.name == target.name]
        source = random.choice(fitting + same)
        file.data[target.offsets[0] : target.offsets[1]] = giver.data[source.offsets[0] : source.offsets[1]]
    except (TypeError, IndexError):
        return None
    file.write(path)
    return f"{target.name} has the bytes of {source.name} of {giver_path.parent.name}"


def add_tensor(folder, random, others):
    file, path = _open(folder, random)
    if file is None:
        return None
    entry = copy.deepcopy(random.choice(file.entries))
    try:
        data = bytes(file.data[entry.offsets[0] : entry.offsets[1]])
    except (TypeError, ValueError):
        return None
    module, _, suffix = entry.name.rpartition(".")
    endings = ("bias", "weight", "weight_scale", "weight_zero_point", "weight_g_idx", "g_idx", "qzeros", "scales",
               "input_scale", "input_order", "k_scale", "weight_packed", "azp_adj", "lora_A.weight")  # fmt: skip
    module = random.choice((module, module.replace("layers.0", "layers.1"), module.replace("q_proj", "qkv_proj")))
    entry.name = f"{module}.{random.choice(endings)}"
    entry.fields["data_offsets"] = [len(file.data), len(file.data) + len(data)]
    file.entries.append(entry)
    file.data += data
    file.write(path)
    return f"{entry.name} added to {path.name}"


# --- JSON ------------------------------------------------------------------------------------------------------


def paths_of(value, path=()):
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        yield from paths_of(one, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def change_json(document, random, others=()):
    """One place of a document becomes something else; says what, or None."""
    places = [path for path in paths_of(document) if path]
    if not places:
        return None
    path = random.choice(places)
    parent, key = at(document, path[:-1]), path[-1]
    value = parent[key]
    way = random.randrange(8)
    if way == 0:
        del parent[key]
        return f"{path} left out"
    if way == 1 and isinstance(parent, dict):
        parent[random.choice((f"{key} ", f"{key}2", str(key).upper(), pick(random, list(parent), "")))] = parent.pop(key)
        return f"{path} renamed"
    if way == 2:
        source = random.choice([document, *others])
        other = random.choice([one for one in paths_of(source) if one] or [path])
        same_key = [one for one in paths_of(source) if one and one[-1] == key]
        other = random.choice(same_key) if same_key and random.random() < 0.7 else other
        parent[key] = copy.deepcopy(at(source, other)) if other else None
        return f"{path} is {other}"
    if way == 3 and isinstance(parent, list):
        parent.append(copy.deepcopy(value))
        return f"{path} twice"
    if type(value) is int:
        parent[key] = _number(random, value)
    elif type(value) is bool:
        parent[key] = not value if random.random() < 0.6 else random.choice(ODD)
    elif isinstance(value, str):
        words = ("group", "channel", "tensor", "int", "float", "w4a16", "w4a8", "w8a8", "gptq", "gptq_v2", "gemm", "gemv",
                 "pack-quantized", "int-quantized", "U8", "F16", "BF16", "vllm-cpu/wna16", "vllm-cpu/int4-w4a8",
                 "model.safetensors", "re:.*", "Linear", value.upper(), value + " ", value[:-1])  # fmt: skip
        parent[key] = random.choice(words) if random.random() < 0.7 else random.choice(ODD)
    else:
        parent[key] = copy.deepcopy(random.choice(ODD))
    return f"{path}: {str(value)[:40]} became {str(parent[key])[:40]}"


def write_json(path, document):
    path.write_bytes(json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _change_json_file(name):
    def change(folder, random, others):
        path = folder / name
        try:
            document = json.loads(path.read_text())
            more = [json.loads((o / name).read_text()) for o in others[:1] if (o / name).exists()]
        except (OSError, ValueError):
            return None
        if random.random() < 0.1:
            return _twice(path, random)
        what = change_json(document, random, more)
        if what is None:
            return None
        write_json(path, document)
        return f"{name}: {what}"

    change.__name__ = f"change {name}"
    return change


def _twice(path, random):
    """A key of a JSON file twice, with two values."""
    text = path.read_text()
    places = [i for i, c in enumerate(text) if c == '"' and ":" in text[i:].split(",")[0].split("\n")[0]]
    if not places:
        return None
    place = random.choice(places)
    key = text[place : text.index('"', place + 1) + 1]
    value = random.choice(("null", "8", '"x"', "{}", "true"))
    path.write_text(f"{text[:place]}{key}: {value}, {text[place:]}")
    return f"{path.name}: {key} twice"


QUANTIZATION = (
    ("ignore", ["re:.*"]), ("modules_to_not_convert", ["q_proj"]), ("desc_act", True), ("checkpoint_format", "gptq_v2"),
    ("sym", False), ("bits", 8), ("zero_point", False), ("version", "gemv"), ("group_size", 64), ("group_size", -1),
    ("dynamic", {"-:.*q_proj": {}}), ("dynamic", {".*": {"bits": 8}}), ("lm_head", True), ("format", "marlin-24"),
    ("static_groups", True), ("true_sequential", False), ("is_marlin_format", True), ("data_type", "fp"),
    ("kv_cache_scheme", {"num_bits": 8}), ("weight_block_size", [128, 128]), ("quant_method", "gptq"),
    ("extra_config", {"model.layers.0.mlp.up_proj": {"bits": 16}}), ("transform_config", {"config_groups": {"a": {}}}),
    ("scale_fmt", "ue8m0"), ("weight_scale_semantics", "inverse"), ("backend", "exllama"), ("pack_dtype", "int16"),
)  # fmt: skip


def add_setting(folder, random, others):
    """A setting that quantizers know, in config.json or in a file of its own."""
    try:
        document = json.loads((folder / "config.json").read_text())
        quantization = document["quantization_config"]
        key, value = random.choice(QUANTIZATION)
        copied = {**quantization, key: value}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    way = random.randrange(4)
    if way < 2:
        document["quantization_config"] = copied
        write_json(folder / "config.json", document)
        return f"{key} = {value} in config.json"
    name = random.choice(("quantize_config.json", "quant_config.json", "quantization_config.json"))
    write_json(folder / name, copied)
    if way == 3:
        del document["quantization_config"]
        write_json(folder / "config.json", document)
    return f"{key} = {value} in {name}"


# --- files -----------------------------------------------------------------------------------------------------

EXTRA = (
    "consolidated.safetensors", ".hidden.safetensors", "model-00001-of-00001.safetensors", "extra.safetensors",
    "model.safetensors.index.json", "pytorch_model.bin", "adapter_model.safetensors", "params.json",
    "quantize_config.json", "model-00002-of-00002.safetensors", "chat_template.jinja", "a\nb.json", "prepack.json",
)  # fmt: skip


def change_files(folder, random, others):
    files = sorted(p for p in folder.iterdir() if p.is_file())
    if not files:
        return None
    path = random.choice(files)
    way = random.randrange(9)
    name = path.name
    if way == 0:
        path.unlink()
        return f"{name} removed"
    if way == 1:
        other = random.choice(EXTRA)
        path.rename(folder / other)
        return f"{name} renamed to {other!r}"
    if way == 2:
        other = random.choice(EXTRA)
        if other == name:
            return None
        shutil.copyfile(path, folder / other)
        return f"{name} copied to {other!r}"
    if way == 3 and others:
        given = random.choice(others) / name
        if not given.is_file():
            return None
        shutil.copyfile(given, path)
        return f"{name} of {given.parent.name}"
    if way == 4:
        data = path.read_bytes()
        path.write_bytes(data[: random.choice((0, 1, 7, 8, 9, len(data) // 2, max(0, len(data) - 1)))])
        return f"{name} cut"
    if way == 5:
        data = path.read_bytes()
        path.write_bytes(data + random.choice((b"\0", b"\n", b" ", b"}", data)))
        return f"{name} grown"
    if way == 6:
        target = random.choice(files)
        if target == path:
            return None
        first, second = path.read_bytes(), target.read_bytes()
        path.write_bytes(second)
        target.write_bytes(first)
        return f"{name} and {target.name} exchanged"
    if way == 7:
        path.unlink()
        random.choice((lambda: path.mkdir(), lambda: path.symlink_to("/etc/hostname"), lambda: path.symlink_to(name)))()
        return f"{name} is no file"
    data = bytearray(path.read_bytes())
    if not data:
        return None
    for _ in range(random.choice((1, 1, 4, 64))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(bytes(data))
    return f"bits of {name}"


SOURCE = [
    (8, change_header), (7, change_data), (3, move_tensor), (2, add_tensor), (4, _change_json_file("config.json")),
    (4, add_setting), (2, _change_json_file(raw.INDEX)), (2, change_files),
]  # fmt: skip
PACKED = [
    (4, change_header), (4, change_data), (4, move_tensor), (3, add_tensor), (3, _change_json_file("config.json")),
    (2, _change_json_file(raw.INDEX)), (2, change_files), (9, _change_json_file(raw.MANIFEST)),
]  # fmt: skip

PART = [
    (3, change_header), (3, change_data), (3, move_tensor), (1, add_tensor), (2, change_files),
    (4, _change_json_file("prepack-part.json")), (4, _change_json_file("prepack-part-manifest.json")),
]  # fmt: skip


def mutate(folder, random, others, table, count):
    """What was done, of up to `count` changes."""
    done = []
    weights = [weight for weight, _ in table]
    for _ in range(count * 3):
        if len(done) == count:
            break
        [(_, change)] = random.choices(table, weights)
        what = change(folder, random, others)
        if what is not None:
            done.append(what)
    return done
