"""A packed folder: module → layout and parts, as its manifest says and its files hold.

Everything in the manifest is checked against the headers of the files before `open_folder` returns,
so that no part can point anywhere else than to its own bytes. Hashes are not looked at, which would
mean to read the whole model: that is what `prepack verify` does.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from numpy.typing import NDArray

from prepack.dtypes import tensor_bytes
from prepack.errors import FolderError
from prepack.fields import Fields, parse_json
from prepack.part import Part
from prepack.shard import Shard
from prepack.shown import folder_html, module_html, readable_bytes

FolderType = TypeVar("FolderType", bound="Folder")

MANIFEST = "prepack.json"
MANIFEST_VERSION = 2
LARGEST_MANIFEST = 1 << 30  # bytes; no model comes near
MOST_DIMENSIONS = 8  # as prepack itself; numpy has a limit, too
_REBUILD = "Pack it again: prepack convert SOURCE -o FOLDER --target TARGET"


@dataclass(frozen=True)
class Hub:
    """A model of the Hugging Face hub; a hint only, like the path."""

    name: str  # ORG/NAME
    commit: str


@dataclass(frozen=True)
class Source:
    """What the folder was made from."""

    format: str
    fingerprint: str
    path: Optional[str]  # from the folder; a hint only
    hub: Optional[Hub]  # None: the source did not lie in a cache of the hub
    quantization_config: Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    version: int
    fingerprint: str  # of what the layout makes of a fixed module


@dataclass(frozen=True, repr=False)
class Module:
    """A packed linear layer. `scheme` is its short name, as w4a16; `record` is all that the manifest
    says of it, with what only some layouts have (activations, memory descriptors)."""

    name: str
    layout: str
    layout_version: int
    scheme: str
    shape: Tuple[int, int]  # (N, K): output channels, input channels
    group_size: int  # input channels per scale
    symmetric: bool
    parts: Mapping[str, Part]
    record: Mapping[str, Any] = field(repr=False)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {part.dtype} {list(part.shape)}" for name, part in self.parts.items())
        return (f"<prepack.Module {self.name!r}: {self.layout}, {self.scheme}, N {self.shape[0]}, K {self.shape[1]}, "
                f"group {self.group_size}, {readable_bytes(self.nbytes)}: {parts}>")

    def _repr_html_(self) -> str:
        return module_html(self)

    def as_numpy(self) -> Dict[str, NDArray[Any]]:
        """part name → read-only view of the mapped file."""
        return {name: part.numpy() for name, part in self.parts.items()}

    def as_torch(self) -> Dict[str, Any]:
        """part name → tensor on the mapped file."""
        return {name: part.torch() for name, part in self.parts.items()}


class Folder(Mapping[str, Module]):
    """module name → Module. Made by `prepack.open`. What it says never changes, and any thread may ask.

    At the end of `with`, or after `close`, it gives no more arrays. Those that there are stay as they
    are, and keep the file mapped for as long as they live.
    """

    def __init__(self, path: Path, manifest: Fields) -> None:
        shards = self._shards = _Shards(path, manifest)
        self.path = path
        self.target = manifest.string("target")
        self.prepack_version = manifest.string("prepack_version")
        self.activation_dtype = manifest.dtype("activation_dtype")
        self.source = _read_source(manifest.object("source"))
        self.layouts = MappingProxyType(_read_layouts(manifest.object("layouts")))
        # Modules that are left as the quantizer stored them, or dequantized → why.
        self.kept = MappingProxyType(manifest.strings("kept"))
        self.dequantized = MappingProxyType(manifest.strings("dequantized"))
        self._modules = _read_modules(manifest.object("modules"), self.layouts, shards)
        # Tensors that passed through as they were, by name.
        self.tensors = MappingProxyType(_read_tensors(manifest, shards))

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def close(self) -> None:
        self._shards.close()

    def __enter__(self: FolderType) -> FolderType:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        kinds = Counter(module.layout for module in self.values())
        named = ", ".join(f"{count} × {layout}" for layout, count in sorted(kinds.items()))
        size = readable_bytes(sum(module.nbytes for module in self.values()))
        return f"<prepack.Folder {str(self.path)!r} for {self.target}: {named or 'no modules'}, {size}>"

    def _repr_html_(self) -> str:
        return folder_html(self)

    def _ipython_key_completions_(self) -> List[str]:
        return list(self)


def open_folder(path: Union[str, "os.PathLike[str]"], target: Optional[str] = None) -> Folder:
    """Opens and checks a packed folder. With `target`, one for another runtime is refused.

    Raises FolderError where the folder is not what its manifest says.
    """
    path = Path(path)
    file = path / MANIFEST
    if not file.is_file():
        raise FolderError(path, f"this is no packed folder: it has no {MANIFEST}",
                          hint="`prepack convert` makes one from a quantized checkpoint")
    if file.stat().st_size > LARGEST_MANIFEST:
        raise FolderError(file, "too large for a manifest", found=file.stat().st_size,
                          expected=f"at most {LARGEST_MANIFEST}")
    manifest = Fields(parse_json(file.read_bytes(), file), file)
    version = manifest.integer("manifest_version", least=1)
    if version != MANIFEST_VERSION:
        raise manifest.error("manifest_version", "this package does not know it", found=version,
                             expected=MANIFEST_VERSION, hint=_REBUILD)
    if target is not None and manifest.string("target") != target:
        raise manifest.error("target", "the folder is for another runtime",
                             found=manifest.string("target"), expected=target, hint=_REBUILD)
    return Folder(path, manifest)


class _Shards:
    """The files of the folder, each opened once and held against the size in the manifest."""

    def __init__(self, path: Path, manifest: Fields) -> None:
        self._path = path
        self._files = manifest.object("files")
        self._open: Dict[str, Shard] = {}

    def get(self, name: str, fields: Fields) -> Shard:
        if name in self._open:
            return self._open[name]
        if name not in self._files:
            raise fields.error("file", 'not listed under "files"', found=name)
        shard = Shard(self._path / name)
        expected = self._files.object(name).integer("bytes", least=0)
        if shard.bytes != expected:
            raise FolderError(shard.path, "it has another size than the manifest says",
                              found=shard.bytes, expected=expected)
        return self._open.setdefault(name, shard)

    def close(self) -> None:
        for shard in self._open.values():
            shard.close()


def _read_hub(fields: Fields) -> Hub:
    return Hub(name=fields.string("name"), commit=fields.string("commit"))


def _read_source(fields: Fields) -> Source:
    return Source(
        format=fields.string("format"),
        fingerprint=fields.string("fingerprint"),
        path=fields.string("path") if "path" in fields else None,
        hub=_read_hub(fields.object("hub")) if "hub" in fields else None,
        quantization_config=MappingProxyType(fields.plain_object("quantization_config")),
    )


def _read_layouts(fields: Fields) -> Dict[str, Layout]:
    layouts = {}
    for layout_id in fields.values:
        layout = fields.object(layout_id)
        layouts[layout_id] = Layout(layout.integer("version", least=1), layout.string("fingerprint"))
    return layouts


def _read_modules(
    fields: Fields, layouts: Mapping[str, Layout], shards: _Shards
) -> Dict[str, Module]:
    return {
        name: _read_module(name, fields.object(name, module=name), layouts, shards)
        for name in fields.values
    }


def _read_module(
    name: str, fields: Fields, layouts: Mapping[str, Layout], shards: _Shards
) -> Module:
    layout = fields.string("layout")
    if layout not in layouts:
        raise fields.error("layout", 'not listed under "layouts"', found=layout)
    shape = fields.integers("shape", least=1)
    if len(shape) != 2:
        raise fields.error("shape", "not [N, K]", found=list(shape))
    numbers = fields.plain_object("numbers")
    group_size, symmetric = fields.integer("group_size", least=1), fields.boolean("symmetric")
    for key, value in (("group_size", group_size), ("symmetric", symmetric)):  # twice, for readers of either
        if value != numbers.get(key):
            raise fields.error(key, 'it is another one under "numbers"', found=value,
                               expected=numbers.get(key))
    parts = fields.object("parts")
    return Module(
        name=name,
        layout=layout,
        layout_version=layouts[layout].version,
        scheme=fields.string("scheme"),
        shape=(shape[0], shape[1]),
        group_size=group_size,
        symmetric=symmetric,
        parts=MappingProxyType({part: _read_named_part(name, part, parts.object(part), shards)
                                for part in parts.values}),
        record=MappingProxyType(fields.values),
    )


def _read_named_part(module: str, name: str, fields: Fields, shards: _Shards) -> Part:
    expected = f"{module}.{name}"
    if fields.string("tensor") != expected:
        raise fields.error("tensor", "it is not the one of this module and part",
                           found=fields.string("tensor"), expected=expected)
    return _read_part(fields, shards)


def _read_tensors(manifest: Fields, shards: _Shards) -> Dict[str, Part]:
    tensors = {}
    for i, values in enumerate(manifest.array("tensors")):
        if not isinstance(values, dict):
            raise manifest.error(f"tensors[{i}]", "wrong type", expected="object")
        part = _read_part(Fields(values, manifest.file, prefix=f"tensors[{i}]."), shards)
        tensors[part.tensor] = part
    return tensors


def _read_part(fields: Fields, shards: _Shards) -> Part:
    """A tensor of the manifest, which its file must hold just so."""
    tensor = fields.string("tensor")
    shard = shards.get(fields.file_name("file"), fields)
    if tensor not in shard.entries:
        raise fields.error("tensor", f"{shard.path.name} has no such tensor", found=tensor)
    entry = shard.entries[tensor]
    if len(entry.shape) > MOST_DIMENSIONS:
        raise fields.error("shape", "too many dimensions", found=len(entry.shape),
                           expected=f"at most {MOST_DIMENSIONS}")
    for key, found, expected in (
        ("dtype", entry.dtype, fields.dtype("dtype")),
        ("shape", list(entry.shape), list(fields.integers("shape", least=0))),
        ("offset", entry.offset, fields.integer("offset", least=0)),
    ):
        if found != expected:
            raise fields.error(key, f"{shard.path.name} has it differently", found=found,
                               expected=expected)
    nbytes = tensor_bytes(entry.dtype, entry.shape)
    if nbytes is None or entry.offset + nbytes != entry.end or entry.end > shard.bytes:
        raise fields.error("shape", f"not the bytes that {shard.path.name} has for it",
                           found=entry.end - entry.offset, expected=nbytes)
    return Part(tensor, shard.path, entry.dtype, entry.shape, entry.offset, nbytes, shard)
