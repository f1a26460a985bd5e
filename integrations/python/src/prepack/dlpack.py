"""Tensors for other libraries, without a copy: DLPack capsules that say bf16 and FP8.

numpy makes the capsule, of an array with the same bits, and keeps the array for as long as the capsule's taker wants
it. What numpy has no dtype for is then written into the capsule's own description.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple

# (code, bits) of DLPack 1.1's DLDataType, for what numpy's arrays of bits would be misread as.
_DTYPES: Dict[str, Tuple[int, int]] = {
    "BF16": (4, 16),
    "F8_E4M3": (10, 8),
    "F8_E4M3FNUZ": (11, 8),
    "F8_E5M2": (12, 8),
    "F8_E5M2FNUZ": (13, 8),
    "F8_E8M0": (14, 8),
}

# Where a DLTensor has its dtype: behind the pointer to the data, the device and the number of dimensions.
_DTYPE_AT = 20
# Where each kind of capsule has its DLTensor.
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.argtypes, _name_of.restype = [ctypes.py_object], ctypes.c_char_p
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

CPU = (1, 0)  # kDLCPU, and which


def capsule_of(array: Any, dtype: str, wishes: Dict[str, Any]) -> Any:
    """The capsule of a writable array that holds the bits of a tensor of safetensors' `dtype`. `wishes` are the
    keywords of `__dlpack__`; a numpy that is older than they are gives what it has."""
    try:
        capsule = array.__dlpack__(**wishes)
    except TypeError:  # numpy below 2.1
        capsule = array.__dlpack__()
    if dtype in _DTYPES:
        name = _name_of(capsule)
        at = _pointer_of(capsule, name) + _TENSOR_AT[name] + _DTYPE_AT
        described = (ctypes.c_uint8 * 2).from_address(at)
        described[0], described[1] = _DTYPES[dtype]
    return capsule
