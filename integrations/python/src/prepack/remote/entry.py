"""What is known of a file before it is read, and the names that files may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from prepack.errors import MalformedError

_LONGEST_NAME = 255  # bytes


@dataclass(frozen=True)
class Entry:
    size: int
    # Of these bytes and no others; None: nobody can tell whether the file has changed.
    version: Optional[str]
    # What the server is to say with each of them; None: it was not asked.
    sent: Optional[str] = None
    sha256: Optional[str] = None


def check_name(name: str, where: str) -> str:
    """A plain name of a file: what comes from a server must not lead out of a folder."""
    bad = (
        not name or name.startswith((".", "-")) or "/" in name or "\\" in name or not name.isprintable()
        or len(name.encode("utf-8", "replace")) > _LONGEST_NAME
    )
    if bad:
        raise MalformedError("not the plain name of a file", where=where, found=name)
    return name
