"""A folder with the headers of a model that is somewhere else, for the tool to read.

Configs are there as they are. Of a file NAME of weights there is NAME.headers: the bytes of its
header, and the size of the whole file, so that nothing takes it for the model (prepack.remote.headers_file). Folders
are kept in a cache, under the versions of all files; a folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from prepack.errors import Error, MalformedError, SystemFailedError, UsageError
from prepack.progress import ProgressOption, observer_for
from prepack.remote import gguf, source_record
from prepack.remote.entry import Entry, check_name
from prepack.remote.headers_file import SUFFIX, read_ranges, write_ranges
from prepack.remote.parallel import run_all
from prepack.remote.places import Listing, Place, place_of, wanted_files
from prepack.results import Progress
from prepack.tool import tool_path

CONNECTIONS = 8
_FIRST_BYTES = 1 << 16  # that are asked for: most headers fit
_MOST_HEADER = 100_000_000  # bytes, the limit of safetensors itself
_MOST_SMALL = 128 << 20  # bytes of a config, index or tokenizer
_MOST_TOGETHER = 4 << 30  # bytes that are fetched for a model
_RECORD = "listing.json"
_NEAR = 4096  # bytes between two ranges that are fetched as one
_MOST_ROUNDS = 4  # of asking a command what it wants


class _Fetched:
    """Counts what is fetched, and tells of it. From any thread."""

    def __init__(self, place: Place, files: int, observer: Optional[Callable[[Progress], Any]]) -> None:
        self.bytes = 0
        self._place = place
        self._files, self._done = files, 0
        self._observer = observer
        self._start = time.monotonic()
        self._lock = Lock()

    def read(self, name: str, begin: int, end: int, entry: Entry) -> bytes:
        with self._lock:
            self.bytes += end - begin
            if self.bytes > _MOST_TOGETHER:
                raise MalformedError("the headers are larger than those of any model", where=self._place.url,
                                     found=f"{self.bytes} bytes", expected=f"at most {_MOST_TOGETHER}")
        return self._place.read(name, begin, end, entry)

    def finish(self, name: str) -> None:
        with self._lock:
            self._done += 1
            if self._observer is not None:
                seconds = time.monotonic() - self._start
                self._observer(Progress(kind="prepack-progress", version=1, stage="fetching headers",
                                        done=self._done, total=self._files, seconds=seconds, item=name))


def _safetensors_header(name: str, entry: Entry, fetched: _Fetched, where: str) -> bytes:
    start = fetched.read(name, 0, min(_FIRST_BYTES, entry.size), entry)
    if len(start) < 8:
        raise MalformedError("too short for a safetensors file", where=where, found=f"{entry.size} bytes")
    (length,) = struct.unpack("<Q", start[:8])
    if length > min(_MOST_HEADER, entry.size - 8):
        raise MalformedError("the header is longer than the file, or than any header", where=where,
                             found=f"{length} bytes", expected=f"at most {min(_MOST_HEADER, entry.size - 8)}")
    if len(start) < 8 + length:
        start += fetched.read(name, len(start), 8 + length, entry)
    return start[: 8 + length]


def _gguf_header(name: str, entry: Entry, fetched: _Fetched, where: str) -> bytes:
    data = b""
    wanted = _FIRST_BYTES
    while True:
        wanted = min(wanted, entry.size, _MOST_HEADER)
        data += fetched.read(name, len(data), wanted, entry)
        end = gguf.header_end(data, entry.size, where)
        if end is not None:
            return data[:end]
        if len(data) == min(entry.size, _MOST_HEADER):
            raise MalformedError("the header does not end", where=where, found=f"{len(data)} bytes")
        wanted = 2 * len(data)


@contextmanager
def _saying_where(path: Path) -> Iterator[None]:
    """A disk that is full, or a cache that cannot be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise SystemFailedError("cannot keep the headers", where=str(path), found=str(error),
                                hint="Make room, or name another folder in PREPACK_REMOTE_CACHE") from error


def _wanted_by(command: List[str]) -> Dict[str, List[Any]]:
    """File → [offset, bytes] of what a command wants to read and cannot."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "wanted.json"
        subprocess.run(
            [str(tool_path()), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False, env={**os.environ, "PREPACK_WANTED_RANGES": str(answer)},
        )
        try:
            return dict(json.loads(answer.read_text())["ranges"])
        except FileNotFoundError:
            return {}  # it has other reasons to fail, and will say so


def _joined(ranges: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Ranges that are near each other as one, since a request costs more than some bytes."""
    joined: List[Tuple[int, int]] = []
    for offset, size in sorted(ranges):
        if joined and offset <= joined[-1][0] + joined[-1][1] + _NEAR:
            start, length = joined[-1]
            joined[-1] = (start, max(length, offset + size - start))
        else:
            joined.append((offset, size))
    return joined


def _fetch_file(name: str, is_weights: bool, place: Place, listing: Listing, fetched: _Fetched, into: Path) -> None:
    entry, where = listing[name], place.where(name)
    if is_weights:
        read = _gguf_header if name.endswith(".gguf") else _safetensors_header
        header = read(name, entry, fetched, where)
        write_ranges(into / (name + SUFFIX), {0: header}, entry.size)
    else:
        if entry.size > _MOST_SMALL:
            raise MalformedError("the file is too large", where=where, found=f"{entry.size} bytes",
                                 expected=f"at most {_MOST_SMALL}")
        (into / name).write_bytes(fetched.read(name, 0, entry.size, entry))
    fetched.finish(name)


def cache() -> Path:
    named = os.environ.get("PREPACK_REMOTE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prepack" / "remote"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


class _Shelf:
    """What the cache has of one URL: folders, each named after the versions of its files."""

    def __init__(self, place: Place) -> None:
        last = re.sub(r"[^\w.-]", "_", place.url.rpartition("/")[2])[:60].lstrip(".")
        self.path = cache() / f"{last}-{_digest([place.url, place.file])}"
        self._record: Dict[str, List[Any]] = {}
        self._folder: Optional[Path] = None
        try:
            record = json.loads((self.path / _RECORD).read_text())
            self._record = dict(record["files"])
            self._folder = self.path / Path(record["folder"]).name
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nothing is known

    def path_of(self, name: str, entry: Entry, is_weights: bool) -> Optional[Path]:
        """The file of an earlier question, if the version is still the same."""
        if self._folder is None or entry.version is None or self._record.get(name) != [entry.size, entry.version]:
            return None
        path = self._folder / (name + SUFFIX if is_weights else name)
        return path if path.is_file() else None

    def known(self, name: str, entry: Entry) -> Optional[bytes]:
        path = self.path_of(name, entry, False)
        return None if path is None else path.read_bytes()

    def keep(self, folder: Path, files: Dict[str, List[Any]]) -> None:
        """Notes the newest folder, and removes the others."""
        text = json.dumps({"folder": folder.name, "files": files})
        with tempfile.NamedTemporaryFile("w", dir=self.path, prefix=".", delete=False) as file:
            file.write(text)
        os.replace(file.name, self.path / _RECORD)
        for other in self.path.iterdir():
            if other.is_dir() and other != folder and not other.name.startswith("."):
                shutil.rmtree(other, ignore_errors=True)


def _fill(scratch: Path, place: Place, listing: Listing, weights: List[str], small: List[str],
          shelf: _Shelf, connections: int, observer: Optional[Callable[[Progress], Any]]) -> None:
    fetched = _Fetched(place, len(weights) + len(small), observer)
    missing = []
    for name in [*small, *weights]:
        known = shelf.path_of(name, listing[name], name in weights)
        if known is None:
            missing.append(name)
            continue
        shutil.copyfile(known, scratch / known.name)
        fetched.finish(name)
    run_all(connections, _fetch_file,
            ((name, name in weights, place, listing, fetched, scratch) for name in missing))


def _place_folder(scratch: Path, folder: Path) -> None:
    try:
        os.rename(scratch, folder)
    except OSError:
        if not folder.is_dir():  # somebody else was faster
            raise


def headers(
    url: str,
    into: Union[None, str, "os.PathLike[str]"] = None,
    *,
    side_files: bool = False,
    plan: Sequence[str] = (),
    connections: int = CONNECTIONS,
    progress: ProgressOption = None,
) -> Path:
    """The headers of a model that is somewhere else; returns what to give to `plan`, `inspect`, `check`
    and `diff` (with headers=True) and `doctor`: a folder, or of a URL of a file its place in one.

    Without `into`, the folder is in the cache, and nothing is fetched again until the model changes. A
    folder `into` must not exist; `side_files` adds the tokenizer and what else `convert` copies, and `plan`
    what `prepack plan` with these options reads of the data.
    """
    model = RemoteModel(url, into, side_files, connections, progress)
    if plan:
        model.fetch_wanted(["plan", str(model.path), *plan])
    return model.path


def headers_of_folder(place: Place, into: Path, connections: int) -> Listing:
    """Of whatever a folder has, into one that is there: headers of weights, and the small files whole."""
    listing = {check_name(name, place.url): entry for name, entry in place.list(True, lambda name, entry: None).items()
               if not name.startswith(".")}
    weights = [name for name in listing if name.endswith(".safetensors")]
    small = [name for name in listing if name not in weights]
    with _saying_where(into):
        _fill(into, place, listing, weights, small, _Shelf(place), connections, None)
    return listing


class RemoteModel:
    """A model of which the headers are here."""

    def __init__(self, url: str, into: Union[None, str, "os.PathLike[str]"] = None, side_files: bool = False,
                 connections: int = CONNECTIONS, progress: ProgressOption = None) -> None:
        if connections < 1:
            raise UsageError("at least one connection", where="connections", found=connections)
        self._place = place_of(url)
        self._connections = connections
        target = None if into is None else Path(into)
        if target is not None and os.path.lexists(target):
            raise UsageError("it exists already", where=str(target), hint="Name a folder that does not exist")
        shelf = _Shelf(self._place)
        with _saying_where(target or shelf.path):
            self._listing = self._place.list(side_files, shelf.known)
            self._weights, self._small = wanted_files(self._place, self._listing, side_files)
            files = {name: [entry.size, entry.version] for name, entry in self._fetched_files().items()}
            is_fixed = all(version is not None for _, version in files.values())
            self._folder = target or shelf.path / _digest(files if is_fixed else [files, time.time_ns(), os.getpid()])
            if not self._folder.is_dir():
                self._make(shelf, progress)
            if target is None:
                shelf.keep(self._folder, files)
        self.path = self._in(self._folder)

    def _in(self, folder: Path) -> Path:
        return folder if self._place.file is None else folder / self._place.file

    def _make(self, shelf: _Shelf, progress: ProgressOption) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with observer_for(progress) as observer, tempfile.TemporaryDirectory(
            dir=self._folder.parent, prefix=".prepack-partial-", ignore_cleanup_errors=True
        ) as scratch:
            inside = Path(scratch) / "model"
            inside.mkdir()
            _fill(inside, self._place, self._listing, self._weights, self._small, shelf, self._connections, observer)
            self._fetch_wanted(["inspect", str(self._in(inside))], inside)
            (inside / source_record.NAME).write_text(source_record.text_of(self._place.url, self._fetched_files()))
            _place_folder(inside, self._folder)

    def _fetched_files(self) -> Listing:
        return {name: self._listing[name] for name in [*self._weights, *self._small]}

    def fetch_wanted(self, command: List[str]) -> None:
        """Fetches what a command reads beside headers: a few bytes of some modules, such as a shape that
        a tensor states, or the first zero points. What asks for more is refused by the command itself."""
        with _saying_where(self._folder):
            self._fetch_wanted(command, self._folder)

    def _fetch_wanted(self, command: List[str], folder: Path) -> None:
        for _ in range(_MOST_ROUNDS):
            wanted = _wanted_by(command)
            ranges = {Path(path).name: found for path, found in wanted.items() if Path(path).parent == folder}
            if not ranges:
                return
            with ThreadPoolExecutor(self._connections) as pool:
                for name, pairs in ranges.items():
                    self._add_ranges(folder / (name + SUFFIX), self._listing[name], pairs, pool)

    def _add_ranges(self, path: Path, entry: Entry, pairs: List[Any], pool: ThreadPoolExecutor) -> None:
        name = path.name[: -len(SUFFIX)]
        known = read_ranges(path)
        wanted = _joined([(int(offset), int(size)) for offset, size in pairs])
        data = pool.map(lambda one: self._place.read(name, one[0], one[0] + one[1], entry), wanted)
        for (offset, _), piece in zip(wanted, data):
            known[offset] = piece
        write_ranges(path, known, entry.size)
