"""A tensor of a packed folder, as numpy or torch sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Optional, Tuple

import numpy
from numpy.typing import NDArray

from prepack.dlpack import CPU, capsule_of
from prepack.dtypes import DTYPES
from prepack.errors import FolderError
from prepack.shard import Shard


@dataclass(frozen=True)
class Part:
    """`dtype` is the name that safetensors gives it, whatever numpy can hold its bits in."""

    tensor: str
    file: Path
    dtype: str
    shape: Tuple[int, ...]
    offset: int  # from the start of the file
    nbytes: int
    _shard: Shard = field(repr=False, compare=False)

    def numpy(self) -> NDArray[Any]:
        """A read-only array that is a view of the mapped file. bf16 comes as uint16, FP8 as uint8."""
        return self._view(self._shard.read_only)

    def torch(self) -> Any:
        """A tensor that is a view of the mapped file, which it can never change: what is written to
        the tensor goes to memory of this process's own."""
        torch: Any = import_module("torch")  # only who asks for a tensor needs it
        name = DTYPES[self.dtype].torch
        dtype = getattr(torch, name, None) if name else None
        if dtype is None:
            raise self._no_such(f"torch {torch.__version__}")
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype)  # frombuffer takes no empty ones
        flat = torch.frombuffer(
            self._shard.private, dtype=dtype, count=self.nbytes // dtype.itemsize, offset=self.offset
        )
        return flat.reshape(self.shape)

    def __dlpack__(self, *, stream: Optional[Any] = None, **wishes: Any) -> Any:
        """For `torch.from_dlpack(part)` and its like: the same memory as `torch()`, with its true dtype."""
        if stream is not None:
            raise self._error("memory of the CPU has no stream", found=stream)
        return capsule_of(self._view(self._shard.private), self.dtype, wishes)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return CPU

    def _view(self, mapped: Any) -> NDArray[Any]:
        name = DTYPES[self.dtype].numpy
        if name is None:
            raise self._no_such("numpy")
        dtype = numpy.dtype(name)
        flat = numpy.frombuffer(mapped, dtype, count=self.nbytes // dtype.itemsize, offset=self.offset)
        return flat.reshape(self.shape)

    def _no_such(self, library: str) -> FolderError:
        return self._error(f"{library} has no such dtype", found=self.dtype)

    def _error(self, what: str, found: Any) -> FolderError:
        return FolderError(self.file, what, field=self.tensor, found=found)
