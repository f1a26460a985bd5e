"""Which files, in which versions, the headers in a folder are of: `.prepack-source.json` in it.

What comes later must be of the same versions: shards that `get` downloads into the folder, and the sources of
all parts of a conversion, for which `convert` leaves the record beside the part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from prepack.errors import MalformedError
from prepack.remote.entry import Entry

NAME = ".prepack-source.json"
# File → [size, version, SHA-256], the latter two perhaps null.
Files = Dict[str, Any]


def files_of(listing: Dict[str, Entry]) -> Files:
    return {name: [entry.size, entry.version, entry.sha256] for name, entry in sorted(listing.items())}


def text_of(url: str, listing: Dict[str, Entry], more: Optional[Dict[str, Any]] = None) -> str:
    return json.dumps({"url": url, "files": files_of(listing), **(more or {})}, indent=1) + "\n"


def parse(text: str, where: str) -> Dict[str, Any]:
    """`url`, `files`, and what `text_of` was given besides."""
    try:
        record = json.loads(text)
        good = isinstance(record["url"], str) and all(len(known) == 3 for known in record["files"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise MalformedError("not a record of a source", where=where, hint="Fetch the headers again")
    return dict(record)


def first_difference(found: Files, expected: Files) -> Optional[Tuple[str, Any, Any]]:
    """A file that differs, and how; a version that nobody knows differs from none."""
    for name in sorted({*found, *expected}):
        one, other = found.get(name), expected.get(name)
        if one is None or other is None or one[0] != other[0] or (None not in (one[1], other[1]) and one[1] != other[1]):
            return name, one, other
    return None


def record_in(folder: Path) -> Optional[Dict[str, Any]]:
    path = folder / NAME
    return parse(path.read_text(), str(path)) if path.is_file() else None
