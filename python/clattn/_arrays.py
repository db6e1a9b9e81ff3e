"""Arrays of the caller's as NumPy sees them: their types, and how results become arrays of the caller's kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from clattn._library import lib

Array = npt.NDArray[Any]

DTYPES = {
    "float32": lib.CLATTN_DTYPE_F32,
    "float16": lib.CLATTN_DTYPE_F16,
    "float64": lib.CLATTN_DTYPE_F64,
    "bool": lib.CLATTN_DTYPE_BOOL,
    "int32": lib.CLATTN_DTYPE_I32,
    "int64": lib.CLATTN_DTYPE_I64,
    "uint8": lib.CLATTN_DTYPE_U8,
    "int8": lib.CLATTN_DTYPE_I8,
    "bfloat16": lib.CLATTN_DTYPE_BF16,  # ml_dtypes has it
}
_KNOWN = {np.dtype(name): value for name, value in DTYPES.items() if name != "bfloat16"}


class HostArray:
    """An array in host memory: `values` has its elements, bfloat16 as uint16 where NumPy has no such type."""

    __slots__ = ("dtype", "values")

    def __init__(self, values: Array, dtype: int) -> None:
        self.values, self.dtype = values, dtype

    def like(self, shape: tuple[int, ...], dtype: int | None = None) -> HostArray:
        """A new array of this one's type, or of another."""
        if dtype is None or dtype == self.dtype:
            return HostArray(np.empty(shape, self.values.dtype), self.dtype)
        return HostArray(np.empty(shape, np.float32), lib.CLATTN_DTYPE_F32)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def host_array(value: Any, name: str) -> HostArray:
    """NumPy's array, or anything on the CPU that speaks DLPack, without a copy; lists and numbers with one."""
    if type(value) is np.ndarray and value.flags.aligned:
        known = _KNOWN.get(value.dtype)
        if known is not None:
            return _with_whole_strides(value, known)
    if _is_torch(value):
        if value.device.type != "cpu":
            raise TypeError(f"{name} is on {value.device}, and only arrays on the CPU can be read")
        value, torch = value.detach(), sys.modules["torch"]
        if value.dtype == torch.bfloat16:
            return HostArray(value.view(torch.int16).numpy().view(np.uint16), lib.CLATTN_DTYPE_BF16)
        values = value.numpy()
    elif isinstance(value, np.ndarray):
        values = value if value.flags.aligned else value.copy()
    elif hasattr(value, "__dlpack__"):
        values = np.from_dlpack(value)
    else:
        values = np.asarray(value)
        if values.dtype == np.float64:  # what Python's numbers become
            values = values.astype(np.float32)
    if not values.dtype.isnative:
        raise TypeError(f"{name} has the other byte order: use {name}.astype({name}.dtype.newbyteorder('='))")
    if values.dtype.name not in DTYPES:
        raise TypeError(f"{name} is of type {values.dtype}, not one of {', '.join(DTYPES)}")
    return _with_whole_strides(values, DTYPES[values.dtype.name])


def _with_whole_strides(values: Array, dtype: int) -> HostArray:
    """The array itself if its elements are apart by whole elements, otherwise a copy."""
    size = values.itemsize
    for stride in values.strides:
        if stride % size:
            return HostArray(values.copy(), dtype)
    return HostArray(values, dtype)


def returner(value: Any) -> Callable[[HostArray], Any]:
    """What makes of a result an array of the kind that `value` is."""
    if _is_torch(value):
        torch = sys.modules["torch"]

        def to_torch(array: HostArray) -> Any:
            if array.dtype == lib.CLATTN_DTYPE_BF16:
                return torch.from_numpy(array.values.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(array.values)

        return to_torch
    return lambda array: array.values
