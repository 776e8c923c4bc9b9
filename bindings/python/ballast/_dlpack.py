"""DLPack capsules of BF16 and F8, which DLPack has dtypes for and NumPy does not."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

# DLDataTypeCode of dlpack.h, 1.1.
_CODES = {
    "BF16": 4, "F8_E4M3": 10, "F8_E4M3FNUZ": 11, "F8_E5M2": 12, "F8_E5M2FNUZ": 13, "F8_E8M0": 14,
}  # fmt: skip

# The offset of dl_tensor.dtype.code in DLManagedTensor and DLManagedTensorVersioned, on 64 bits.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype = ctypes.c_char_p
_name_of.argtypes = (ctypes.py_object,)
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def capsule_of(dtype: str, values: np.ndarray[Any, Any], **options: Any) -> Any:
    """Return what __dlpack__() returns for values of a SafeTensors dtype that is not packed."""
    if dtype not in _CODES:
        return values.__dlpack__(**options)
    capsule: Any = values.view(f"u{values.itemsize}").__dlpack__(**options)
    name = _name_of(capsule)
    address = _address_of(capsule, name)
    assert address is not None and name is not None
    ctypes.c_uint8.from_address(address + _OFFSETS[name]).value = _CODES[dtype]
    return capsule
