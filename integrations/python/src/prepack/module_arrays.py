"""The numbers of a quantized module as numpy arrays, wherever they lie.

Codes [N, K], scales [N, G] and zero points [N, G] mean, for input channel j of the codes,

    W[n, input_order[j]] = (codes[n, j] - zero_points[n, j // group_size]) * scales[n, j // group_size]

where input_order[j] is j unless the quantizer reordered the input channels (activation order).
"""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import numpy
from numpy.typing import NDArray

from prepack.commands import PathLike, _Arguments
from prepack.dtypes import DTYPES
from prepack.results import InspectArrays, InspectArraysArray, Scheme
from prepack.run import run

_FP4 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=numpy.float32)


def _fp8_values() -> "NDArray[numpy.float32]":
    """What each of the 256 bytes is in E4M3 without infinities."""
    bits = numpy.arange(256)
    exponent, mantissa = (bits >> 3) & 15, (bits & 7) / 8
    values = numpy.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7.0))
    values[(bits & 127) == 127] = numpy.nan
    signed: NDArray[numpy.float32] = numpy.where(bits >= 128, -values, values).astype(numpy.float32)
    return signed


@dataclass(frozen=True)
class Arrays:
    """A quantized module. Arrays are read-only. Those in `in_place` are views of the folder's own
    files, mapped into memory: nothing was copied, and nothing is read before it is used."""

    module: str
    form: str  # the format of the source, or the layout
    scheme: Scheme
    shape: Tuple[int, int]  # (N, K): output channels, input channels
    # As they are stored: codes of 4 bits two per byte, the even input channel in the low half.
    stored_codes: "NDArray[Any]" = field(repr=False)
    scales: "Optional[NDArray[numpy.float32]]" = field(repr=False)  # None if the codes are bf16 weights
    zero_points: "Optional[NDArray[numpy.uint8]]" = field(repr=False)  # None if symmetric
    input_order: "Optional[NDArray[numpy.uint32]]" = field(repr=False)  # None if it is the natural one
    in_place: Tuple[str, ...]

    @property
    def codes(self) -> "NDArray[Any]":
        """[N, K]: int8 for signed codes, uint16 for the bits of bf16, else uint8, with the bits of FP8
        and FP4 codes. The stored array itself if a code takes a byte."""
        if self.scheme.code not in ("u4", "f4e2m1"):
            return self.stored_codes
        n, k = self.shape
        codes = numpy.empty((n, 2 * self.stored_codes.shape[1]), dtype=numpy.uint8)
        codes[:, 0::2] = self.stored_codes & 15
        codes[:, 1::2] = self.stored_codes >> 4
        return codes[:, :k]

    @property
    def zero_point(self) -> int:
        """What all zero points are if the scheme is symmetric: there are no zero_points then."""
        return 1 << (self.scheme.bits - 1) if self.scheme.code in ("u4", "u8") else 0

    def weights(self) -> "NDArray[numpy.float32]":
        """[N, K] in f32, in the order of the model's input channels, as decoders compute them."""
        if self.scheme.code == "bf16":
            bits: Any = self.codes.astype(numpy.uint32) << 16
            plain: NDArray[numpy.float32] = bits.view(numpy.float32)
            return plain
        zero_points: Any = numpy.float32(self.zero_point)
        if self.zero_points is not None:
            zero_points = self._per_channel(self.zero_points).astype(numpy.float32)
        assert self.scales is not None
        weights: NDArray[numpy.float32] = (self._values() - zero_points) * self._per_channel(self.scales)
        if self.input_order is None:
            return weights
        ordered = numpy.empty_like(weights)
        ordered[:, self.input_order] = weights
        return ordered

    def _values(self) -> "NDArray[numpy.float32]":
        values: NDArray[numpy.float32]
        if self.scheme.code == "f8e4m3":
            values = _fp8_values()[self.codes]
        elif self.scheme.code == "f4e2m1":
            values = numpy.concatenate([_FP4, -_FP4])[self.codes]
        else:
            values = self.codes.astype(numpy.float32)
        return values

    def _per_channel(self, groups: "NDArray[Any]") -> "NDArray[Any]":
        """[N, G] → [N, K]; the last group may be short."""
        k = self.shape[1]
        if groups.shape[1] == 1:
            return groups
        return numpy.repeat(groups, self.scheme.group_size, axis=1)[:, :k]


def _view(array: InspectArraysArray, maps: Dict[str, mmap.mmap]) -> "NDArray[Any]":
    name = DTYPES[array.dtype].numpy
    assert name is not None
    dtype = numpy.dtype(name)
    if 0 in array.shape:
        return numpy.empty(array.shape, dtype=dtype)
    if array.file not in maps:
        with open(array.file, "rb") as file:
            maps[array.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    count = 1
    for size in array.shape:
        count *= size
    flat = numpy.frombuffer(maps[array.file], dtype, count=count, offset=array.offset)
    return flat.reshape(array.shape)


def arrays(path: PathLike, module: str) -> Arrays:
    """The codes, scales, zero points and weights of a quantized module of a checkpoint or a packed
    folder. What the folder does not hold in this form is decoded into a temporary file, which is gone
    from the disk as soon as it is mapped."""
    with tempfile.TemporaryDirectory(prefix="prepack-") as folder:
        into = Path(folder) / "arrays.safetensors"
        arguments = _Arguments("inspect").path(path).value("--arrays", module).value("--into", into)
        found = run(InspectArrays, arguments.all())
        maps: Dict[str, mmap.mmap] = {}
        views = {array.array: _view(array, maps) for array in found.arrays}
    return Arrays(
        module=found.module,
        form=found.form,
        scheme=found.scheme,
        shape=found.shape,
        stored_codes=views["codes"],
        scales=views.get("scales"),
        zero_points=views.get("zero_points"),
        input_order=views.get("input_order"),
        in_place=tuple(array.array for array in found.arrays if array.in_place),
    )
