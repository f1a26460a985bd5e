"""Conversions from one object store into another, on one machine or in parts on many.

    convert   a part: headers here, shards one after the other, and the output goes up file by file
    merge     from headers and manifests alone; shards get their names within the store
    verify    a share: what is read of source and output is fetched when it is read
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from prepack.errors import MalformedError, SystemFailedError, UsageError, error_of
from prepack.remote import source_record
from prepack.remote.arguments import (
    name_of, run_tool, scratch_folder, take, take_address, take_all, take_flag,
)
from prepack.remote.carrier import Carrier
from prepack.remote.entry import Entry, check_name
from prepack.remote.headers import RemoteModel, cache, headers_of_folder
from prepack.remote.parallel import run_all
from prepack.remote.places import place_of, wanted_files
from prepack.remote.store import Store
from prepack.tool import tool_path

_MANIFEST = "prepack.json"
_PART = "prepack-part.json"
_MOST_SMALL = 1 << 30  # bytes of a record or a report
# They change nothing of what is made.
_OF_THE_RUN = ("--resume", "--consume", "--trust-source", "--verify", "--json", "--quiet", "-q", "--verbose", "-v")
_OF_THE_RUN_WITH_VALUES = ("--jobs", "-j", "--memory-limit", "--progress", "--color", "--messages", "--ahead")


def _read_whole(store: Store, name: str, entry: Entry) -> bytes:
    if entry.size > _MOST_SMALL:
        raise MalformedError("the file is too large", where=store.where(name), found=f"{entry.size} bytes",
                             expected=f"at most {_MOST_SMALL}")
    return store.read(name, 0, entry.size, entry)


def _part_name(out: str, part: str) -> str:
    index, _, count = part.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 0 < int(index) <= int(count)):
        raise UsageError("not a part", where="--part", found=part, expected="I/N")
    return out if int(count) == 1 else f"{out}.part-{int(index):05}-of-{int(count):05}"


def _options_of_the_output(arguments: List[str]) -> List[str]:
    rest = [argument for argument in arguments if argument not in _OF_THE_RUN]
    for name in _OF_THE_RUN_WITH_VALUES:
        take(rest, name)
    return rest


class _Conversion:
    """Of a whole model, or of a part."""

    def __init__(self, arguments: List[str], connections: int) -> None:
        self._rest = list(arguments)
        output = take(self._rest, "--output", "-o")
        scratch = take(self._rest, "--scratch")
        self._part = take(self._rest, "--part") or "1/1"
        self._force = take_flag(self._rest, "--force")
        self._url = take_address(self._rest, "convert")
        if take(list(self._rest), "--target", "-t") == "gguf":
            raise UsageError("it writes folders only", where="prepack-remote convert", found="--target gguf",
                             hint="prepack convert takes --fetch and --done for GGUF files: docs/gguf.md")
        if output is None or "://" not in output:
            raise UsageError("it is no address", where="--output", found=output, expected="s3://BUCKET/FOLDER",
                             hint="Into a folder: prepack convert --fetch")
        self._name = name_of(output.rstrip("/"))
        self._out = _part_name(output.rstrip("/"), self._part)
        self._connections = connections
        self._folder = scratch_folder(scratch, cache(), [self._url, self._out])
        self._is_part = not self._part.endswith("/1")
        self._mark = _PART if self._is_part else _MANIFEST

    def run(self) -> int:
        store = Store(self._out)
        record = self._record()
        if self._is_done(store, record):
            print(f"{self._out}: is complete already, from the same conversion; nothing was done")
            return 0
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._make(store, record)
        except BlockingIOError as error:
            raise UsageError("another process makes it", where=self._out, found=str(self._folder)) from error
        finally:
            os.close(lock)

    def _make(self, store: Store, record: str) -> int:
        source = self._headers(record)
        if self._mark in store.list():
            store.remove(self._mark)  # --force: what is there is not whole any more
        store.put(source / source_record.NAME, source_record.NAME)
        with Carrier(self._connections, store) as carrier:
            code = run_tool(self._command(source, carrier))
        if code == 0:
            shutil.rmtree(self._folder)
        return code

    def _record(self) -> str:
        place = place_of(self._url)
        listing = place.list(True, lambda name, entry: None)
        weights, small = wanted_files(place, listing, True)
        chosen = {name: listing[name] for name in [*weights, *small]}
        return source_record.text_of(place.url, chosen, {"options": _options_of_the_output(self._rest)})

    def _is_done(self, store: Store, record: str) -> bool:
        """Is it there, of this source and with these options?"""
        listing = {} if self._force else store.list()
        if self._mark not in listing:
            return False
        entry = listing.get(source_record.NAME)
        found = b"" if entry is None else _read_whole(store, source_record.NAME, entry)
        if found.decode("utf-8", "replace") == record:
            return True
        raise UsageError("it is complete, but was made of another source, or with other options", where=self._out,
                         hint="--force replaces it")

    def _headers(self, record: str) -> Path:
        """A folder of headers, of now or of the run that was interrupted: then of the same versions."""
        source = self._folder / "source"
        if not source.is_dir():
            RemoteModel(self._url, source, True, self._connections)
            (source / source_record.NAME).write_text(record)
        elif (source / source_record.NAME).read_text() != record:
            raise MalformedError("the source or the options have changed since this conversion began",
                                 where=self._url, hint=f"Remove {self._folder}, and begin anew")
        for left in source.glob(".*.prepack-download"):  # by a process that was killed
            left.unlink()
        return source

    def _command(self, source: Path, carrier: Carrier) -> List[str]:
        command = ["convert", str(source), "-o", str(self._folder / self._name), *self._rest,
                   "--fetch", carrier.command("get"), "--done", carrier.command("put")]
        flags = ["--resume", "--consume"]
        if self._is_part:
            command += ["--part", self._part]
            flags.append("--trust-source")
        return command + [flag for flag in flags if flag not in self._rest]


def convert(arguments: List[str], connections: int) -> int:
    return _Conversion(arguments, connections).run()


def _check_one_source(parts: Dict[str, Store]) -> None:
    """What the parts were made of must be of the same versions."""
    first: Optional[Dict[str, Any]] = None
    for name, part in parts.items():
        entry = part.list().get(source_record.NAME)
        if entry is None:
            raise UsageError("it does not say what it was made of", where=part.url, hint="Convert this part again")
        where = part.where(source_record.NAME)
        record = source_record.parse(_read_whole(part, source_record.NAME, entry).decode("utf-8", "replace"), where)
        first = first or record
        difference = source_record.first_difference(record["files"], first["files"])
        if difference is not None:
            file, found, expected = difference
            raise MalformedError("another part was made of another version of the source", where=f"{where}: {file}",
                                 found=found, expected=expected, hint="Convert the older parts again, with --force")


def _merge_here(folder: Path, rest: List[str], out: Store) -> Dict[str, Any]:
    done = subprocess.run([str(tool_path()), "merge", str(folder), "--json", *rest], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        said = done.stderr.replace(str(folder), out.url).strip()  # parts lie beside both
        raise error_of(done.returncode)("the parts cannot be merged", text=said.removeprefix("error: "))
    return dict(json.loads(done.stdout))


def merge(arguments: List[str], connections: int) -> int:
    rest = list(arguments)
    keeps, force, as_json = (take_flag(rest, flag) for flag in ("--keep-parts", "--force", "--json"))
    out = Store(take_address(rest, "merge"))
    if _MANIFEST in out.list() and not force:
        raise UsageError("already exists", where=out.url, hint="--force replaces it")
    name = name_of(out.url)
    parts = {part: out.sibling(part) for part in out.siblings(f"{name}.part-")}
    with tempfile.TemporaryDirectory(prefix="prepack-merge-") as scratch:
        listings = {}
        for part, store in parts.items():
            (Path(scratch) / part).mkdir()
            listings[part] = headers_of_folder(store, Path(scratch) / part, connections)
        folder = Path(scratch) / name
        report = _merge_here(folder, rest, out)
        _check_one_source(parts)
        _put_together(out, folder, report, parts, listings, connections)
    if not keeps:
        for store in parts.values():
            store.remove_all()
    report["output"] = out.url
    print(json.dumps(report, indent=2) if as_json else f"{out.url}: {report['parts']} parts, "
          f"{report['packed_modules']} packed modules for {report['target']}, {report['shards']} shards")
    return 0


def _put_together(out: Store, folder: Path, report: Dict[str, Any], parts: Dict[str, Store],
                  listings: Dict[str, Any], connections: int) -> None:
    """The manifest goes last: without it, the folder is none."""
    if _MANIFEST in out.list():
        out.remove(_MANIFEST)
    origins = {name: origin.split("/") for name, origin in report["files"].items()}
    run_all(connections, lambda name, part, shard: out.copy_from(parts[part], shard, name),
            ((name, part, shard) for name, (part, shard) in origins.items()))
    for part, shard in origins.values():
        if parts[part].find(shard) != listings[part][shard]:
            raise MalformedError("the shard has changed while it was merged", where=parts[part].where(shard))
    small = [path for path in sorted(folder.iterdir()) if path.name.removesuffix(".headers") not in origins]
    for path in sorted(small, key=lambda path: path.name == _MANIFEST):
        out.put(path, path.name)


def verify(arguments: List[str], connections: int) -> int:
    """Whole, or as a share; `--report` and `--merge` may be addresses, too."""
    rest = list(arguments)
    source, report = take(rest, "--source"), take(rest, "--report")
    reports = take_all(rest, "--merge")
    scratch = take(rest, "--scratch")
    url = take_address(rest, "verify")
    if scratch is not None:
        Path(scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prepack-verify-", dir=scratch) as name:
        folder = Path(name)
        command = ["verify", _headers_in(url, folder / "output", connections), *rest]
        if source is not None:
            command += ["--source", _headers_in(source, folder / "source", connections)]
        if reports:
            command += ["--merge", *(_reports_in(one, folder / "reports") for one in reports)]
        if report is not None:
            here = folder / "report.json" if "://" in report else Path(report)
            command += ["--report", str(here)]
        with Carrier(connections) as carrier:
            code = run_tool([*command, "--fetch", carrier.command("get")])
        if code == 0 and report is not None and "://" in report:
            parent, _, last = report.rpartition("/")
            Store(parent).put(here, last)
        return code


def _headers_in(url: str, into: Path, connections: int) -> str:
    return str(RemoteModel(url, into, True, connections).path) if "://" in url else url


def _reports_in(where: str, into: Path) -> str:
    if "://" not in where:
        return where
    store = Store(where)
    into.mkdir(exist_ok=True)
    listing = store.list()
    for name, entry in listing.items():
        if name.endswith(".json") and not name.startswith("."):
            (into / check_name(name, where)).write_bytes(_read_whole(store, name, entry))
    if not listing:
        raise SystemFailedError("there are no reports", where=where)
    return str(into)
