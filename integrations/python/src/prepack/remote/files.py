"""Whole files of a model that is somewhere else, one by one: for `prepack convert --fetch`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Union

from prepack.errors import CancelledError, MalformedError, SystemFailedError, UsageError
from prepack.remote import source_record
from prepack.remote.entry import Entry, check_name
from prepack.remote.headers import CONNECTIONS
from prepack.remote.parallel import run_all
from prepack.remote.http_ranges import changed_error
from prepack.remote.places import Place, place_of

_PIECE = 16 << 20  # bytes of a request


def _never() -> bool:
    return False


def _copy(place: Place, name: str, entry: Entry, fd: int, stopped: Callable[[], bool], begin: int) -> None:
    if stopped():
        raise CancelledError("stopped on request", where=name)
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


def _check_version(name: str, entry: Entry, record: Optional[Dict[str, Any]], url: str) -> None:
    if record is None or not url.startswith(f"{record['url']}/") or name not in record["files"]:
        return
    expected = {name: record["files"][name]}
    if source_record.first_difference(source_record.files_of({name: entry}), expected) is not None:
        size, version, _ = record["files"][name]
        raise changed_error(url, f"{entry.size} bytes, version {entry.version}", f"{size} bytes, version {version}")


def get(url: str, path: Union[str, "os.PathLike[str]"], *, connections: int = CONNECTIONS,
        stopped: Callable[[], bool] = _never) -> None:
    """Downloads one file, which appears whole or not at all, in parallel ranges of one version. Into a folder of
    headers (`headers(..., into=)`), it must be of the version that these are of; there, its name is enough."""
    record = source_record.record_in(Path(path).absolute().parent)
    if "://" not in url and record is not None:
        url = f"{record['url']}/{url}"
    folder, _, name = url.rpartition("/")
    check_name(name, url)
    if connections < 1:
        raise UsageError("at least one connection", where="connections", found=connections)
    place = place_of(url if url.endswith((".safetensors", ".gguf")) else folder)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.prepack-download")
    entry = place.find(name)
    _check_version(name, entry, record, url)
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            run_all(connections, _copy,
                    ((place, name, entry, fd, stopped, begin) for begin in range(0, entry.size, _PIECE)))
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
