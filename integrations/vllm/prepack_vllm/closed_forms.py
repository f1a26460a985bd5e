"""What reads packed weights by closed forms (docs/layouts/), and what the forms share, in numpy.

Slow and simple. The check reads packed bytes with it, and the tests pack with it; converting is the
business of prepack itself.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.geometry import Geometry

Array = npt.NDArray[np.generic]
Weights = npt.NDArray[np.float64]


def indices(n: int, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.arange(n)[:, None], np.arange(k)[None, :]


def _bytes(packed: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(packed).view(np.uint8).reshape(-1)


def read_nibbles(packed: Array, place: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Nibble p is in byte p / 2, the low half when p is even."""
    byte = _bytes(packed)[place // 2]
    return (byte >> (4 * (place % 2)).astype(np.uint8)) & 15


def row_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    return i * k + j


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


def raw(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def f64(tensor: torch.Tensor) -> Weights:
    return tensor.double().numpy()


def per_weight(values: npt.NDArray[np.generic], g: Geometry) -> npt.NDArray[np.generic]:
    """[N, G] to [N, K]."""
    return np.repeat(values, g.group_size, axis=1)[:, : g.k]


def int8_rows(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return f64(parts["weight"]) * f64(parts["weight_scale"])[:, None]
