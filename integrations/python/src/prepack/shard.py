"""One safetensors file of a packed folder: its checked header, and its bytes mapped into memory."""

from __future__ import annotations

import mmap
import threading
from pathlib import Path
from typing import Dict, NamedTuple, Tuple

import safetensors

from prepack.errors import FolderError
from prepack.fields import Fields, parse_json

_LENGTH_BYTES = 8  # of the header, in front of it


class Entry(NamedTuple):
    """A tensor in the header of a file."""

    dtype: str
    shape: Tuple[int, ...]
    offset: int  # from the start of the file
    end: int


class Shard:
    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise FolderError(path, "there is no such file, or it is no plain one")
        try:
            # The library's parser refuses tensors that overlap, leave holes or end behind the file.
            with safetensors.safe_open(str(path), framework="numpy"):
                pass
        except safetensors.SafetensorError as error:
            raise FolderError(path, f"it is no sound safetensors file: {error}") from error
        self.bytes = path.stat().st_size
        self.entries = self._read_header()
        self._lock = threading.Lock()
        self._maps: Dict[int, mmap.mmap] = {}
        self._closed = False

    def _read_header(self) -> Dict[str, Entry]:
        with open(self.path, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = parse_json(file.read(length), self.path)
        header.pop("__metadata__", None)
        fields = Fields(header, self.path)
        start = _LENGTH_BYTES + length
        entries = {}
        for name in header:
            entry = fields.object(name)
            begin, end = entry.integers("data_offsets", least=0)
            entries[name] = Entry(
                entry.dtype("dtype"), entry.integers("shape", least=0), start + begin, start + end
            )
        return entries

    def _map(self, access: int) -> mmap.mmap:
        """Mapped when first asked for, once for all threads."""
        with self._lock:
            if self._closed:
                raise FolderError(self.path, "the folder was closed", hint="Open it again with prepack.open")
            if access not in self._maps:
                with open(self.path, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=access)
                if len(mapped) != self.bytes:
                    raise FolderError(self.path, "its size has changed since it was opened",
                                      found=len(mapped), expected=self.bytes)
                self._maps[access] = mapped
            return self._maps[access]

    def close(self) -> None:
        """Lets go of the mappings. They are not unmapped here but with the last array that looks at them: some
        libraries keep the address alone, and would read from nowhere."""
        with self._lock:
            self._closed = True
            self._maps.clear()

    @property
    def read_only(self) -> mmap.mmap:
        return self._map(mmap.ACCESS_READ)

    @property
    def private(self) -> mmap.mmap:
        """The same bytes for those who want memory that can be written to, as torch does: what is
        written goes to a page of this process's own, never to the file."""
        return self._map(mmap.ACCESS_COPY)
