"""Files NAME.headers: some ranges of a file NAME that is somewhere else, the header first.

    the bytes of the ranges, one after the other; the first range begins at 0
    for each range: u64 offset in NAME, u64 bytes
    "PREPACKH", u64 the number of ranges, u64 the size of NAME

The tool reads them in place of NAME (libconvert/prepack/io/file.h). Ranges are ascending and do not
touch.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Dict, List, Tuple

SUFFIX = ".headers"
_MARK = b"PREPACKH"
_TRAILER = struct.Struct("<8sQQ")
_RANGE = struct.Struct("<QQ")


def read_ranges(path: Path) -> Dict[int, bytes]:
    """Offset → bytes. The file must be one that this module has written."""
    data = path.read_bytes()
    end = len(data) - _TRAILER.size
    _, count, _ = _TRAILER.unpack_from(data, end)
    ranges = {}
    place = 0
    for offset, size in _RANGE.iter_unpack(data[end - count * _RANGE.size : end]):
        ranges[offset] = data[place : place + size]
        place += size
    return ranges


def _merged(ranges: Dict[int, bytes]) -> List[Tuple[int, bytes]]:
    merged: List[Tuple[int, bytes]] = []
    for offset, data in sorted(ranges.items()):
        if merged and offset <= merged[-1][0] + len(merged[-1][1]):
            start, before = merged[-1]
            merged[-1] = (start, before + data[start + len(before) - offset :])
        else:
            merged.append((offset, data))
    return merged


def write_ranges(path: Path, ranges: Dict[int, bytes], size: int) -> None:
    """Replaces a file that is there, whole or not at all."""
    merged = _merged(ranges)
    partial = path.with_name(f".{path.name}.{os.getpid()}.prepack-partial")
    try:
        with open(partial, "xb") as file:
            file.writelines(data for _, data in merged)
            file.writelines(_RANGE.pack(offset, len(data)) for offset, data in merged)
            file.write(_TRAILER.pack(_MARK, len(merged), size))
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
