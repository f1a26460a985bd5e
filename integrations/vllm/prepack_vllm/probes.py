"""The fixed pseudo-random modules that packing fingerprints are made of.

The same as in libconvert/prepack/layouts/fingerprint.cpp and fingerprint.cpp: N = 96, K = 160, groups of 32,
every scheme that there is a layout for, drawn from SplitMix64.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts.layout import Layout, Probe, Scheme

N, K, GROUP = 96, 160, 32
SEED = 20240914
_ACTIVATION_DTYPES = ("BF16", "F16")  # in which order a scheme is probed

# Input channels and output channels per scale.
_SCALED = {"group": (GROUP, 1), "channel": (K, 1), "block": (128, 32), "tensor": (K, N)}


class SplitMix64:
    """Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", many at a time."""

    def __init__(self, seed: int):
        self._seed = np.uint64(seed)
        self._drawn = 0

    def below(self, bounds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """One number below each bound (of at most 32 bits), in order."""
        steps = np.arange(self._drawn + 1, self._drawn + 1 + len(bounds), dtype=np.uint64)
        self._drawn += len(bounds)
        z = self._seed + steps * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        return ((z >> np.uint64(32)) * bounds) >> np.uint64(32)

    def give_back(self, count: int) -> None:
        """The last `count` numbers are drawn again next time."""
        self._drawn -= count


def _geometry(scheme: Scheme, activation_dtype: str) -> Geometry:
    return Geometry(
        N, K, scheme.granularity, *_SCALED[scheme.granularity], scheme.symmetric,
        scheme.activations, activation_dtype,
    )  # fmt: skip


def probes_of(layout: Layout) -> Iterator[Probe]:
    """The modules that are hashed for the layout's fingerprint, in order."""
    for scheme in layout.schemes:
        for dtype in _ACTIVATION_DTYPES:
            if dtype in layout.activation_dtypes or (dtype == "F16" and scheme.f16):
                yield make_probe(scheme.code, _geometry(scheme, dtype))


def _full(count: int, bound: int) -> npt.NDArray[np.uint64]:
    return np.full(count, bound, dtype=np.uint64)


def _draw_codes(code: str, random: SplitMix64) -> npt.NDArray[np.generic]:
    if code in ("u4", "f4e2m1"):
        pairs = random.below(_full(N * K // 2, 256)).astype(np.uint8).reshape(N, K // 2)
        return np.stack([pairs & 15, pairs >> 4], axis=2).reshape(N, K)
    if code == "bf16":
        bits = random.below(_full(N * K, 1 << 16))
        return ((bits & np.uint64(0xBFFF)) | np.uint64(0x2000)).astype(np.uint16).reshape(N, K)
    if code == "s8":
        return random.below(_full(N * K, 256)).astype(np.uint8).view(np.int8).reshape(N, K)
    # f8e4m3: a NaN is drawn again, so some more are needed than there are codes.
    drawn = random.below(_full(N * K + N * K // 16, 256)).astype(np.uint8)
    good = np.flatnonzero((drawn & 0x7F) != 0x7F)
    random.give_back(len(drawn) - int(good[N * K - 1]) - 1)
    return drawn[good[: N * K]].reshape(N, K)


def _draw_parameters(
    geometry: Geometry, count: int, random: SplitMix64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """For every row and group; the first two zero points are the extremes."""
    # For each: magnitude, sign, and, but for the first two, the zero point.
    bounds = np.tile(np.array([1 << 20, 4, 16], dtype=np.uint64), count)
    bounds = np.delete(bounds, [2, 5])
    drawn = random.below(bounds)
    magnitudes = np.concatenate([drawn[[0, 2]], drawn[4::3]]).astype(np.float32)
    signs = np.concatenate([drawn[[1, 3]], drawn[5::3]])
    zeros = np.concatenate([np.array([0, 15], dtype=np.uint64), drawn[6::3]])
    scales = (magnitudes + 1) * np.float32(2.0**-24)
    scales = np.where(signs == 0, -scales, scales).astype(np.float32)
    groups = geometry.groups
    # Output channels that share a scale have the same.
    first = np.arange(N) // geometry.scale_rows * geometry.scale_rows
    return scales.reshape(N, groups)[first], zeros.astype(np.uint8).reshape(N, groups)


def _draw_powers(count: int, random: SplitMix64) -> npt.NDArray[np.float32]:
    """Scales that suit every code of MXFP4. Zero points are drawn, too, and not used."""
    bounds = np.delete(np.tile(np.array([251, 16], dtype=np.uint64), count), [1, 3])
    drawn = random.below(bounds)
    exponents = np.concatenate([drawn[:2], drawn[2::2]]).astype(np.int64) - 125
    return np.ldexp(np.float32(1), exponents)


def make_probe(code: str, geometry: Geometry) -> Probe:
    random = SplitMix64(SEED)
    with np.errstate(over="ignore"):  # it is arithmetic modulo 2^64
        codes = _draw_codes(code, random)
        if code == "f4e2m1":
            scales = _draw_powers(N * geometry.groups, random).reshape(N, geometry.groups)
            return Probe(geometry, code, codes, scales, np.zeros(scales.shape, np.uint8))
        scales, zero_points = _draw_parameters(geometry, N * geometry.groups, random)
    if geometry.symmetric:
        zero_points = np.full_like(zero_points, 8)
    return Probe(geometry, code, codes, scales, zero_points)
