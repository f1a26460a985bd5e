"""Strict JSON, and fields of it that must be there and of the right type.

Files are hostile input: an object with two equal keys, a number that is none and a field of another
type than expected are errors, never guesses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from prepack.dtypes import DTYPES
from prepack.errors import FolderError, printable

_NAMES = {dict: "object", list: "array", str: "string", int: "integer", bool: "boolean"}


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    result: Dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {printable(key)} is there twice")
        result[key] = value
    return result


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def parse_json(data: bytes, file: Path) -> Dict[str, Any]:
    """The object that `data`, bytes, is the text of."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise FolderError(file, f"this is no usable JSON: {error}") from error
    if not isinstance(value, dict):
        raise FolderError(file, "this is no JSON object", found=_name(value), expected="object")
    return value


def _name(value: Any) -> str:
    if value is None:
        return "null"
    return _NAMES.get(type(value), type(value).__name__)


class Fields:
    """An object of a JSON file, which knows where it stands in it."""

    def __init__(
        self, values: Dict[str, Any], file: Path, module: Optional[str] = None, prefix: str = ""
    ) -> None:
        self.values = values
        self.file = file
        self.module = module
        self.prefix = prefix

    def error(self, key: str, what: str, **facts: Any) -> FolderError:
        return FolderError(self.file, what, module=self.module, field=self.prefix + key, **facts)

    def _get(self, key: str, kind: type) -> Any:
        if key not in self.values:
            raise self.error(key, "it is missing", expected=_NAMES[kind])
        value = self.values[key]
        if type(value) is not kind:  # not isinstance: a bool is an int there
            raise self.error(key, "wrong type", found=_name(value), expected=_NAMES[kind])
        return value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def string(self, key: str) -> str:
        return str(self._get(key, str))

    def boolean(self, key: str) -> bool:
        return bool(self._get(key, bool))

    def array(self, key: str) -> List[Any]:
        values: List[Any] = self._get(key, list)
        return values

    def plain_object(self, key: str) -> Dict[str, Any]:
        values: Dict[str, Any] = self._get(key, dict)
        return values

    def object(self, key: str, module: Optional[str] = None) -> "Fields":
        """The object under `key`; with `module`, one that describes that module."""
        values = self._get(key, dict)
        if module is not None:
            return Fields(values, self.file, module)
        return Fields(values, self.file, self.module, f"{self.prefix}{key}.")

    def integer(self, key: str, least: int) -> int:
        value = int(self._get(key, int))
        if value < least:
            raise self.error(key, "out of range", found=value, expected=f"{least} or more")
        return value

    def integers(self, key: str, least: int) -> Tuple[int, ...]:
        values = self.array(key)
        for value in values:
            if type(value) is not int or value < least:
                raise self.error(key, "it holds something else than sizes", found=value,
                                 expected=f"integers of {least} or more")
        return tuple(values)

    def strings(self, key: str) -> Dict[str, str]:
        """An object of strings."""
        fields = self.object(key)
        return {name: fields.string(name) for name in fields.values}

    def dtype(self, key: str) -> str:
        name = self.string(key)
        if name not in DTYPES:
            raise self.error(key, "unknown dtype", found=name, expected="a dtype of safetensors")
        return name

    def file_name(self, key: str) -> str:
        """A name that cannot lead out of the folder, on any system."""
        name = self.string(key)
        if name in ("", ".", "..") or any(character in name for character in "/\\:\0"):
            raise self.error(key, "no plain file name", found=name,
                             expected="a name without a path")
        return name
