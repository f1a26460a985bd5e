"""Whole files of a model that is somewhere else, one by one: for `prepack convert --fetch`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Union

from prepack.errors import MalformedError, SystemFailedError, UsageError
from prepack.remote.entry import Entry, check_name
from prepack.remote.headers import CONNECTIONS
from prepack.remote.parallel import run_all
from prepack.remote.places import Place, place_of

_PIECE = 16 << 20  # bytes of a request


def _copy(place: Place, name: str, entry: Entry, fd: int, begin: int) -> None:
    data = place.read(name, begin, min(begin + _PIECE, entry.size), entry)
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], begin + written)


def _check_sha256(path: Path, entry: Entry, where: str) -> None:
    if entry.sha256 is None:
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            piece = file.read(1 << 20)
            if not piece:
                break
            digest.update(piece)
    if digest.hexdigest() != entry.sha256:
        raise MalformedError("the file is not what the hub lists", where=where,
                             found=f"SHA-256 {digest.hexdigest()}", expected=entry.sha256)


def get(url: str, path: Union[str, "os.PathLike[str]"], *, connections: int = CONNECTIONS) -> None:
    """Downloads one file, which appears whole or not at all, in parallel ranges of one version."""
    folder, _, name = url.rpartition("/")
    check_name(name, url)
    if connections < 1:
        raise UsageError("at least one connection", where="connections", found=connections)
    place = place_of(url if url.endswith((".safetensors", ".gguf")) else folder)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.prepack-download")
    entry = place.find(name)
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            run_all(connections, _copy,
                    ((place, name, entry, fd, begin) for begin in range(0, entry.size, _PIECE)))
            os.fsync(fd)
        finally:
            os.close(fd)
        _check_sha256(partial, entry, place.where(name))
        os.rename(partial, target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, SystemFailedError):
            raise SystemFailedError("cannot write the file", where=str(target), found=str(error)) from error
        raise
