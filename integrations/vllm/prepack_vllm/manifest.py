"""prepack.json, the manifest of a packed folder: read, checked and turned into objects."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.strict_json import parse

FILE_NAME = "prepack.json"
VERSION = 2
_HASH_MEMBER = re.compile(r',\s*"manifest_xxh3_128"\s*:\s*"[0-9a-f]{32}"\s*\}\s*\Z')
_COPY_HINT = "Copy the folder again, or pack the checkpoint again"
_MAX_BYTES = 1 << 30  # no manifest is that long: 47,000 modules take 60 MB


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as the manifest describes it."""

    name: str
    file: str
    offset: int  # from the start of the file
    dtype: str
    shape: tuple[int, ...]
    xxh3_128: str


@dataclass(frozen=True)
class Activations:
    """How a kernel is to quantize activations."""

    kind: str  # "int" or "float"
    symmetric: bool
    dynamic: bool


@dataclass(frozen=True)
class PackedModule:
    name: str
    layout: str
    n: int
    k: int
    code: str
    granularity: str
    group_size: int  # input channels per scale
    scale_rows: int  # output channels per scale
    symmetric: bool
    activations: Activations | None
    fused: tuple[str, ...]  # the layers that it holds, in their order; empty: one
    experts: int  # of a mixture, stacked along the first dimension of every part; 0: no stack
    parts: Mapping[str, TensorEntry]

    @property
    def groups(self) -> int:
        return -(-self.k // self.group_size)

    @property
    def recut(self) -> bool:
        """Is it no module of the checkpoint, but made of several? Models do not know its name."""
        return bool(self.fused)


@dataclass(frozen=True)
class LayoutEntry:
    version: int
    fingerprint: str


@dataclass(frozen=True)
class Manifest:
    folder: Path
    target: str
    activation_dtype: str
    layouts: Mapping[str, LayoutEntry]
    modules: Mapping[str, PackedModule]
    kept: Mapping[str, str]
    tensors: tuple[TensorEntry, ...]  # that passed through
    source_quantization: Mapping[str, Any] = field(repr=False)
    source_path: str | None
    # Modules of the checkpoint that the plug-in loads itself all the same.
    past_the_model: frozenset[str] = frozenset()

    def is_own(self, module: PackedModule) -> bool:
        return module.recut or module.name in self.past_the_model

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Of the tensors that the plug-in loads itself (own_tensors.py)."""
        own = [module for module in self.modules.values() if self.is_own(module)]
        return frozenset(part.name for module in own for part in module.parts.values())

    def all_tensors(self) -> list[TensorEntry]:
        packed = [part for module in self.modules.values() for part in module.parts.values()]
        return packed + list(self.tensors)

    def rebuild_hint(self, target: str | None = None) -> str:
        """What to do when the folder cannot be used: it can always be made again."""
        source = "SOURCE"
        if self.source_path is not None:
            path = os.path.normpath(self.folder / self.source_path)
            source = path if os.path.isdir(path) else source
        return (
            f"Pack it again: prepack convert {source} -o {self.folder} "
            f"--target {target or self.target} --force"
        )


def read_manifest(folder: Path) -> Manifest:
    where = str(folder / FILE_NAME)
    text = _read_text(folder / FILE_NAME)
    try:
        document = parse(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(where, f"this is no JSON: {error}") from error
    top = _Object(document, where)
    version = top.integer("manifest_version")
    if version != VERSION:
        raise Unsupported(
            where,
            "the manifest is of another version",
            found=version,
            expected=VERSION,
            hint="Pack the checkpoint again with a prepack that suits this plugin, or the reverse",
        )
    _check_own_hash(text, top.string("manifest_xxh3_128"), where)
    source = top.object("source")
    return Manifest(
        folder=folder,
        target=top.string("target"),
        activation_dtype=top.string("activation_dtype"),
        layouts={
            name: LayoutEntry(entry.integer("version"), entry.string("fingerprint"))
            for name, entry in top.object("layouts").objects()
        },
        modules={name: _module(name, entry) for name, entry in top.object("modules").objects()},
        kept=top.object("kept").value,
        tensors=tuple(_tensor(entry) for entry in top.list("tensors")),
        source_quantization=source.object("quantization_config").value,
        source_path=source.string("path") if "path" in source.value else None,
    )


def _read_text(path: Path) -> str:
    if not path.parent.is_dir():
        raise Unsupported(
            str(path.parent),
            "packed folders are loaded from a local folder, and this is none",
            hint="Download it first, and name the folder",
        )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Malformed(str(path), "the file is too large", expected=f"at most {_MAX_BYTES}")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Malformed(
            str(path),
            "the manifest is missing",
            hint="A packed folder needs it; copy the folder again, or pack the checkpoint again",
        ) from error
    except UnicodeDecodeError as error:
        raise Malformed(str(path), f"this is no UTF-8: {error}") from error


def _check_own_hash(text: str, stated: str, where: str) -> None:
    """The last member is the hash of the text up to the comma in front of it."""
    member = _HASH_MEMBER.search(text)
    if member is None:
        raise Malformed(where, "its hash is not its last member", hint=_COPY_HINT)
    actual = xxhash.xxh3_128_hexdigest(text[: member.start()].encode())
    if actual != stated:
        raise Malformed(
            where,
            "the manifest was changed after it was written",
            found=f"hash {actual}",
            expected=stated,
            hint=_COPY_HINT,
        )


class _Object:
    """A JSON object whose members are asked for by type."""

    def __init__(self, value: object, where: str):
        if not isinstance(value, dict):
            raise Malformed(where, "this is no JSON object")
        self.value: dict[str, Any] = value
        self.where = where

    def _member(self, key: str, kind: type) -> Any:
        value = self.value.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Malformed(
                self.where, f'"{key}" is missing or of another type', expected=kind.__name__
            )
        return value

    def string(self, key: str) -> str:
        return self._member(key, str)

    def boolean(self, key: str) -> bool:
        return self._member(key, bool)

    def integer(self, key: str, least: int = 0) -> int:
        value = self._member(key, int)
        if value < least:
            raise Malformed(self.where, f'"{key}" is too small', found=value, expected=least)
        return value

    def object(self, key: str) -> "_Object":
        return _Object(self._member(key, dict), f"{self.where}: {key}")

    def objects(self) -> list[tuple[str, "_Object"]]:
        return [(key, _Object(one, f"{self.where}: {key}")) for key, one in self.value.items()]

    def list(self, key: str) -> list["_Object"]:
        return [_Object(one, f"{self.where}: {key}") for one in self._member(key, list)]

    def shape(self, key: str) -> tuple[int, ...]:
        values = self._member(key, list)
        if not all(
            isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in values
        ):
            raise Malformed(self.where, f'"{key}" is no list of sizes', found=values)
        return tuple(values)


def _tensor(entry: _Object) -> TensorEntry:
    file = entry.string("file")
    if file in ("", ".", "..") or "/" in file or "\\" in file:
        raise Malformed(entry.where, "this is no plain file name", found=file)
    return TensorEntry(
        name=entry.string("tensor"),
        file=file,
        offset=entry.integer("offset"),
        dtype=entry.string("dtype"),
        shape=entry.shape("shape"),
        xxh3_128=entry.string("xxh3_128"),
    )


def _activations(numbers: _Object) -> Activations | None:
    if numbers.value.get("activations") is None:
        return None
    entry = numbers.object("activations")
    return Activations(entry.string("type"), entry.boolean("symmetric"), entry.boolean("dynamic"))


def _experts(entry: _Object, n: int, layers: int) -> int:
    if "experts" not in entry.value:
        return 0
    experts = entry.integer("experts", 2)
    if n % experts != 0 or layers == 0 or layers % experts != 0:
        raise Malformed(
            entry.where,
            '"experts" is not the number of experts that "fused" lists',
            found=f"{experts} experts of {layers} layers with {n} output channels",
        )
    return experts


def _module(name: str, entry: _Object) -> PackedModule:
    shape = entry.shape("shape")
    if len(shape) != 2 or 0 in shape:
        raise Malformed(entry.where, "the shape is not [N, K]", found=list(shape))
    numbers = entry.object("numbers")
    fused = entry.list("fused") if "fused" in entry.value else []
    for key in ("group_size", "symmetric"):  # other readers take these
        if entry.value.get(key) != numbers.value.get(key):
            raise Malformed(
                entry.where,
                f'"{key}" and the one in "numbers" differ',
                found=entry.value.get(key),
                expected=numbers.value.get(key),
            )
    return PackedModule(
        name=name,
        layout=entry.string("layout"),
        n=shape[0],
        k=shape[1],
        code=numbers.string("code"),
        granularity=numbers.string("granularity"),
        group_size=numbers.integer("group_size", 1),
        scale_rows=numbers.integer("scale_rows", 1),
        symmetric=numbers.boolean("symmetric"),
        activations=_activations(numbers),
        fused=tuple(one.string("module") for one in fused),
        experts=_experts(entry, shape[0], len(fused)),
        parts={part: _tensor(one) for part, one in entry.object("parts").objects()},
    )
