"""How long the header of a GGUF file is: what docs/gguf.md of llama.cpp's ggml calls header, metadata
and tensor infos, up to the first byte of data."""

from __future__ import annotations

import struct
from typing import Optional

from prepack.errors import MalformedError

# Bytes of a value, by its type; 8 is a text and 9 an array.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8
_MOST_DEPTH = 4
_ALIGNMENT = b"general.alignment"


class _NeedsMore(Exception):
    pass


class _Cursor:
    def __init__(self, data: bytes, size: int, where: str) -> None:
        self.at = 0
        self._data, self._size, self._where = data, size, where

    def skip(self, count: int) -> int:
        """Where what was skipped begins."""
        begin = self.at
        if count > self._size - begin:
            raise MalformedError("the header is longer than the file", where=self._where,
                                 found=f"{count} bytes at {begin}", expected=f"at most {self._size} bytes in all")
        if count > len(self._data) - begin:
            raise _NeedsMore
        self.at += count
        return begin

    def uint(self, count: int) -> int:
        begin = self.skip(count)
        return int.from_bytes(self._data[begin : begin + count], "little")

    def text(self) -> bytes:
        begin = self.skip(self.uint(8))
        return self._data[begin : self.at]

    def value(self, kind: int, depth: int = 0) -> None:
        if kind in _SCALARS:
            self.skip(_SCALARS[kind])
        elif kind == _TEXT:
            self.skip(self.uint(8))
        elif kind == _ARRAY and depth < _MOST_DEPTH:
            element, count = self.uint(4), self.uint(8)
            if element in _SCALARS:
                self.skip(count * _SCALARS[element])
                return
            for _ in range(count):
                self.value(element, depth + 1)
        else:
            raise MalformedError("not a type of a value", where=self._where, found=kind)


def header_end(data: bytes, size: int, where: str) -> Optional[int]:
    """Where the data of a file of `size` bytes begins that begins with `data`; None: too little of it."""
    cursor = _Cursor(data, size, where)
    try:
        if data[:4] != b"GGUF":
            raise MalformedError("not a GGUF file", where=where, found=data[:4].hex(), expected="GGUF")
        cursor.skip(8)  # magic and version
        tensors, values = cursor.uint(8), cursor.uint(8)
        alignment = 32
        for _ in range(values):
            key, kind = cursor.text(), cursor.uint(4)
            begin = cursor.at
            cursor.value(kind)
            if key == _ALIGNMENT and kind == 4:
                (alignment,) = struct.unpack_from("<I", data, begin)
        for _ in range(tensors):
            cursor.text()
            dimensions = cursor.uint(4)
            if dimensions > _MOST_DIMENSIONS:
                raise MalformedError("too many dimensions", where=where, found=dimensions)
            cursor.skip(8 * dimensions + 4 + 8)
        if alignment == 0:
            raise MalformedError("the alignment is zero", where=where)
        cursor.skip(min(-cursor.at % alignment, size - cursor.at))
    except _NeedsMore:
        return None
    return cursor.at
