"""Folders of an object store that are written: what parts of a conversion are put into, and merged in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List, Union

from prepack.errors import SystemFailedError, UsageError
from prepack.remote.entry import check_name
from prepack.remote.places import FsspecPlace, Known, Listing, failed


# Where a file needs a folder that is there; an object store would make a bucket of it.
_WITH_FOLDERS = ("file", "local", "sftp", "ssh", "smb", "hdfs")


class Store(FsspecPlace):
    """A folder, which need not exist. Files appear whole or not at all, as far as the store does that."""

    def __init__(self, url: str) -> None:
        protocol, separator, rest = url.partition("://")
        if not separator or not rest or not url.isprintable() or "{" in url:
            raise UsageError("not the address of a folder", where=url, expected="s3://BUCKET/FOLDER")
        if protocol in ("http", "https", "hf"):
            raise UsageError("nothing can be written there", where=url, expected="s3://…, gs://…, az://…")
        super().__init__(url.rstrip("/"), None)

    def list(self, side_files: bool = True, known: Known = lambda name, entry: None) -> Listing:
        """The files; none if there is no such folder."""
        try:
            self._fs.invalidate_cache()
            if not self._fs.exists(self._path):
                return {}
        except Exception as error:
            raise failed(error, self.url) from error
        return super().list(side_files, known)

    def siblings(self, prefix: str) -> List[str]:
        """The names of folders beside this one that begin so."""
        parent = self._path.rpartition("/")[0]
        try:
            self._fs.invalidate_cache()
            found = self._fs.ls(parent, detail=True)
        except Exception as error:
            raise failed(error, self.url) from error
        names = [str(item["name"]).rstrip("/").rpartition("/")[2] for item in found if item.get("type") == "directory"]
        return sorted(name for name in names if name.startswith(prefix))

    def sibling(self, name: str) -> "Store":
        return Store(f"{self.url.rpartition('/')[0]}/{name}")

    def _do(self, name: str, work: Any, *arguments: Any, **more: Any) -> None:
        try:
            work(*arguments, **more)
        except FileNotFoundError as error:
            raise SystemFailedError("there is no such file", where=self.where(name), found=str(error)) from error
        except Exception as error:
            raise failed(error, self.where(name), "cannot write it") from error

    def put(self, path: Union[str, "os.PathLike[str]"], name: str) -> None:
        size = Path(path).stat().st_size
        self._make_folder()
        self._do(name, self._fs.put_file, os.fspath(path), f"{self._path}/{name}")
        self._check_size(name, size)

    def copy_from(self, other: "Store", name: str, to: str) -> None:
        """Within the store: no byte comes here."""
        self._make_folder()
        self._do(to, self._fs.copy, f"{other._path}/{name}", f"{self._path}/{to}")
        self._check_size(to, other.find(name).size)

    def _make_folder(self) -> None:
        protocols = self._fs.protocol if isinstance(self._fs.protocol, (tuple, list)) else (self._fs.protocol,)
        if set(_WITH_FOLDERS).intersection(protocols):
            self._do("", self._fs.makedirs, self._path, exist_ok=True)

    def _check_size(self, name: str, expected: int) -> None:
        found = self.find(name).size
        if found != expected:
            raise SystemFailedError("the store has another size than was written", where=self.where(name),
                                    found=found, expected=expected)

    def remove(self, name: str) -> None:
        self._do(name, self._fs.rm_file, f"{self._path}/{name}")

    def remove_all(self) -> None:
        self._do("", self._fs.rm, self._path, recursive=True)


def put(path: Union[str, "os.PathLike[str]"], url: str) -> None:
    """Uploads one file: for `prepack convert --done`."""
    folder, _, name = url.rpartition("/")
    if not Path(path).is_file():
        raise UsageError("there is no such file", where=str(path))
    Store(folder).put(path, check_name(name, url) if not name.startswith(".") else name)
