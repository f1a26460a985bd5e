"""Packed weights by their closed forms (docs/layouts/): codes to bytes and back, in numpy.

Slow and simple. The check reads packed bytes with it, and the tests pack with it; converting is the
business of prepack itself.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


def _indices(n: int, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.arange(n)[:, None], np.arange(k)[None, :]


def _bytes(packed: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(packed).view(np.uint8).reshape(-1)


def _read_nibbles(packed: Array, place: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Nibble p is in byte p / 2, the low half when p is even."""
    byte = _bytes(packed)[place // 2]
    return (byte >> (4 * (place % 2)).astype(np.uint8)) & 15


def wna16_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    return ((i // 16) * k + j) * 16 + i % 16


def int4_w4a8_nibble(n: int, k: int, block: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    begin = ((i // 32) * (k // block) + j // block) * (16 * block + 128)
    byte = begin + (j % block // 4) * 64 + (i % 32 // 16) * 32 + (i % 8) * 4 + j % 4
    return 2 * byte + (i // 8) % 2


def arm_int4_nibble(n: int, k: int, group_size: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    groups = k // group_size
    group = -(-group_size // 32) * 128 + (16 if groups > 1 else 0)
    record = groups * group + (64 if groups > 1 else 96)
    in_group = j % group_size
    byte = (i // 8) * record + j // group_size * group + in_group // 32 * 128
    byte = byte + in_group % 16 // 8 * 64 + (i % 8) * 8 + in_group % 8
    return 2 * byte + in_group % 32 // 16


def row_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    return i * k + j


def mxfp4_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    byte = (i // 32) * 16 * k + (j // 2) * 32 + (i % 16) * 2 + j % 2
    return 2 * byte + (i // 16) % 2


def int8_vnni_byte(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    return (i // 32) * 32 * (k + 4) + (j // 4) * 128 + (i % 32) * 4 + j % 4


def pairs_element(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    return (i // 32) * 32 * k + (j // 2) * 64 + (i % 32) * 2 + j % 2


def neon_element(n: int, k: int, inputs: int) -> npt.NDArray[np.int64]:
    i, j = _indices(n, k)
    return (i // 8) * 8 * k + (j // inputs) * 8 * inputs + (i % 8) * inputs + j % inputs


def read_nibbles(packed: Array, place: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return _read_nibbles(packed, place)


def read_elements(packed: Array, place: npt.NDArray[np.int64], dtype: npt.DTypeLike) -> Array:
    return _bytes(packed).view(dtype)[place]


def bf16_to_f64(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def e2m1_to_f64(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """1 sign, 2 exponent and 1 mantissa bit, bias 1, with one subnormal."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return np.concatenate([magnitudes, -magnitudes])[codes]


def e8m0_to_f64(exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    return np.ldexp(1.0, exponents.astype(np.int64) - 127)


def e4m3_to_f64(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Finite codes: 1 sign, 4 exponent and 3 mantissa bits, bias 7, with subnormals."""
    exponent = (codes >> 3 & 15).astype(np.int64)
    mantissa = (codes & 7).astype(np.float64)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    value = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    return np.where(codes >> 7 == 1, -value, value)
