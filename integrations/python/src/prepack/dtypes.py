"""The dtypes of safetensors, and how numpy and torch hold their bits.

numpy has no bf16 and no FP8: their bits come as uint16 and uint8, and `Part.dtype` says what they
are. torch has them all, but for those that no version of it has.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


class DType(NamedTuple):
    bits: int
    numpy: Optional[str]
    torch: Optional[str]


DTYPES = {
    "BOOL": DType(8, "bool", "bool"),
    "F4": DType(4, None, None),
    "F6_E2M3": DType(6, None, None),
    "F6_E3M2": DType(6, None, None),
    "U8": DType(8, "uint8", "uint8"),
    "I8": DType(8, "int8", "int8"),
    "F8_E5M2": DType(8, "uint8", "float8_e5m2"),
    "F8_E4M3": DType(8, "uint8", "float8_e4m3fn"),
    "F8_E8M0": DType(8, "uint8", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": DType(8, "uint8", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": DType(8, "uint8", "float8_e5m2fnuz"),
    "I16": DType(16, "<i2", "int16"),
    "U16": DType(16, "<u2", "uint16"),
    "F16": DType(16, "<f2", "float16"),
    "BF16": DType(16, "<u2", "bfloat16"),
    "I32": DType(32, "<i4", "int32"),
    "U32": DType(32, "<u4", "uint32"),
    "F32": DType(32, "<f4", "float32"),
    "C64": DType(64, "<c8", "complex64"),
    "F64": DType(64, "<f8", "float64"),
    "I64": DType(64, "<i8", "int64"),
    "U64": DType(64, "<u8", "uint64"),
}


def tensor_bytes(dtype: str, shape: Sequence[int]) -> Optional[int]:
    """Size of a tensor in bytes; None where its elements do not fill whole bytes."""
    bits = DTYPES[dtype].bits
    for size in shape:
        bits *= size
    return None if bits % 8 else bits // 8
