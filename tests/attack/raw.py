"""Safetensors files and the hashes of a manifest, read and written by hand.

Nothing here comes from the rest of the project: the attacks must not share its mistakes. A file is kept as what it is
made of, so that every piece can lie: the length, the entries of the header (as text, in order, also twice), the data.
"""

import ctypes
import ctypes.util
import json
import struct

SIZES = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "F4": 4, "C64": 64,
}  # fmt: skip
INDEX = "model.safetensors.index.json"
MANIFEST = "prepack.json"


class Entry:
    """A tensor in the header of a file: a name and its fields, which may be anything that JSON has."""

    def __init__(self, name, dtype, shape, begin, end):
        self.name = name
        self.fields = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    @property
    def dtype(self):
        return self.fields.get("dtype")

    @property
    def shape(self):
        return self.fields.get("shape")

    @property
    def offsets(self):
        return self.fields.get("data_offsets")

    def bytes(self):
        """Size by dtype and shape; None where these are no such thing."""
        bits = SIZES.get(self.dtype) if isinstance(self.dtype, str) else None
        if bits is None or not isinstance(self.shape, list):
            return None
        for size in self.shape:
            if type(size) is not int or size < 0:
                return None
            bits *= size
        return bits // 8


class File:
    """A safetensors file that can be taken apart and put together again."""

    def __init__(self, entries=(), data=b"", metadata=None, pad_to=8):
        self.entries = list(entries)
        self.data = bytearray(data)
        self.metadata = {"format": "pt"} if metadata is None else metadata
        self.pad_to = pad_to
        self.length_lie = 0  # added to the length of the header
        self.tail = b""
        self.header_text = None  # in place of what the entries say

    @classmethod
    def read(cls, path):
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        pairs = json.loads(raw[8 : 8 + length], object_pairs_hook=list)
        file = cls(data=raw[8 + length :], metadata=False, pad_to=4096 if (8 + length) % 4096 == 0 else 8)
        for name, fields in pairs:
            if name == "__metadata__":
                file.metadata = dict(fields)
                continue
            entry = Entry(name, None, None, 0, 0)
            entry.fields = dict(fields)
            file.entries.append(entry)
        return file

    def find(self, name):
        return next((entry for entry in self.entries if entry.name == name), None)

    def tensor(self, name):
        begin, end = self.find(name).offsets
        return bytes(self.data[begin:end])

    def put(self, name, data):
        begin, end = self.find(name).offsets
        assert end - begin == len(data)
        self.data[begin:end] = data

    def header(self):
        if self.header_text is not None:
            return self.header_text
        tight = (",", ":")
        members = [] if self.metadata is False else [f'"__metadata__":{json.dumps(self.metadata, separators=tight)}']
        for entry in self.entries:
            name, fields = json.dumps(entry.name, ensure_ascii=False), json.dumps(entry.fields, separators=tight)
            members.append(f"{name}:{fields}")
        text = ("{" + ",".join(members) + "}").encode("utf-8", "surrogatepass")
        return text + b" " * (-(8 + len(text)) % self.pad_to)

    def text(self):
        header = self.header()
        length = max(0, len(header) + self.length_lie) % 2**64
        return struct.pack("<Q", length) + header + bytes(self.data) + self.tail

    def write(self, path):
        path.write_bytes(self.text())


def pack_file(tensors, pad_to=8):
    """A sound file of {name: (dtype, shape, bytes)}."""
    entries, data = [], bytearray()
    for name, (dtype, shape, value) in tensors.items():
        entries.append(Entry(name, dtype, list(shape), len(data), len(data) + len(value)))
        data += value
    return File(entries, data, pad_to=pad_to)


class _Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _library():
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"
    library = ctypes.CDLL(name)
    library.XXH3_128bits.restype = _Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


_XXHASH = _library()


def xxh3(data):
    data = bytes(data)
    value = _XXHASH.XXH3_128bits(data, len(data))
    return f"{value.high:016x}{value.low:016x}"


def shard_hash(raw):
    """Of a shard: the hash of the lines of hashes of its header and its tensors, in the order of the file."""
    length = struct.unpack("<Q", raw[:8])[0]
    begin = 8 + length
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    lines = [xxh3(raw[:begin])]
    for fields in sorted(header.values(), key=lambda one: tuple(one["data_offsets"])):
        first, last = fields["data_offsets"]
        lines.append(xxh3(raw[begin + first : begin + last]))
    return xxh3("".join(line + "\n" for line in lines).encode())


def write_manifest(folder, document, name=MANIFEST, member="manifest_xxh3_128"):
    """As prepack does: the last member is the hash of the text before it."""
    document = {key: value for key, value in document.items() if key != member}
    text = json.dumps(document, indent=2, ensure_ascii=False)[: -len("\n}")]
    digest = xxh3(text.encode("utf-8", "surrogatepass"))
    whole = f'{text},\n  "{member}": "{digest}"\n}}\n'
    (folder / name).write_bytes(whole.encode("utf-8", "surrogatepass"))


def records(document):
    """Every entry of the manifest that describes a tensor."""
    found = []
    modules = document.get("modules")
    for module in modules.values() if isinstance(modules, dict) else ():
        parts = module.get("parts") if isinstance(module, dict) else None
        found += [one for one in parts.values() if isinstance(one, dict)] if isinstance(parts, dict) else []
    tensors = document.get("tensors")
    return found + [one for one in tensors if isinstance(one, dict)] if isinstance(tensors, list) else found


def seal(folder, document=None, places=True):
    """Makes every hash and size of the manifest true of the files as they are now, as far as there is a truth.

    With `places`, the offsets, dtypes and shapes of its entries become those of the files, too.
    """
    document = json.loads((folder / MANIFEST).read_text()) if document is None else document
    raws = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    headers = {name: _header(raw) for name, raw in raws.items() if name.endswith(".safetensors")}
    for record in records(document):
        _seal_record(record, raws, headers, places)
    files = document.get("files")
    for name, entry in files.items() if isinstance(files, dict) else ():
        if name in raws and isinstance(entry, dict):
            entry["bytes"] = len(raws[name])
            entry["xxh3_128"] = _file_hash(name, raws[name])
    write_manifest(folder, document)


def _seal_record(record, raws, headers, places):
    file, name = record.get("file"), record.get("tensor")
    begin, header = headers.get(file, (0, {})) if isinstance(file, str) else (0, {})
    fields = header.get(name) if isinstance(name, str) else None
    if not isinstance(fields, dict):
        return
    try:
        first, last = fields["data_offsets"]
        data = raws[file][begin + first : begin + last]
    except (KeyError, TypeError, ValueError):
        return
    if places:
        record.update(offset=begin + first, dtype=fields.get("dtype"), shape=fields.get("shape"))
    record["xxh3_128"] = xxh3(data)


def _header(raw):
    try:
        length = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8 : 8 + length])
        return (8 + length, header) if isinstance(header, dict) else (0, {})
    except (ValueError, struct.error):
        return 0, {}


def _file_hash(name, raw):
    if name.endswith(".safetensors"):
        try:
            return shard_hash(raw)
        except (ValueError, KeyError, TypeError, AttributeError, struct.error):
            pass
    return xxh3(raw)
