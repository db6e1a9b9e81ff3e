"""Arrays of the caller's, as calls need them, and results in the caller's kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from clattn._library import lib
from clattn.context import Context, context_of_queue, default_context

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


def _in_place(values: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape; raises an exception if that takes a copy."""
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        return values.reshape(shape, copy=False)
    values = values.view()
    values.shape = shape  # what newer versions deprecate
    return values


class Operand:
    """An array of a call. `values` has its elements, bfloat16 as uint16 where NumPy has no such type.

    If there is an `owner`, it is an array of PyOpenCL's, and `values` says how its elements lie in the buffer: it may be reshaped
    and transposed, but nobody may read it."""

    __slots__ = ("dtype", "is_outside", "origin", "owner", "values")

    def __init__(self, values: Array, dtype: int, owner: Any = None, origin: int = 0) -> None:
        self.values, self.dtype, self.owner, self.origin = values, dtype, owner, origin
        #: Whether its elements are in a buffer of PyOpenCL's, which has none without elements.
        self.is_outside = owner is not None and values.size > 0

    def view(self, values: Array) -> Operand:
        """The same elements, otherwise arranged."""
        return Operand(values, self.dtype, self.owner, self.origin)

    def reshaped(self, *shape: int) -> Operand:
        """The same elements in another shape: those of the host are copied if they lie too far apart for it."""
        if self.owner is None:
            return self.view(self.values.reshape(shape))
        try:
            values = _in_place(self.values, shape)
        except (AttributeError, ValueError):
            raise ValueError(f"an array of shape {self.values.shape} has gaps, and cannot be one of shape {shape}") from None
        return self.view(values)

    def contiguous(self) -> Operand:
        """The array in C order: a copy, if it lies otherwise in the host's memory."""
        if self.owner is not None or self.values.flags.c_contiguous:
            return self
        return self.view(np.ascontiguousarray(self.values))

    def byte_offset(self) -> int:
        """Where the first element lies in the owner's buffer."""
        return int(self.values.ctypes.data) - self.origin


def is_torch(value: Any) -> bool:
    """Whether it is PyTorch's; a module of that name that has no tensors, or none yet, is another."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def _has_derivative(tensor: Any, torch: Any) -> bool:
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        return True
    return bool(tensor.requires_grad and torch.is_grad_enabled())


def number(value: Any, name: str) -> float:
    """An argument that is a number, as one of Python's own."""
    if is_torch(value) and _has_derivative(value, sys.modules["torch"]):
        raise ValueError(f"{name} requires a gradient, which there is not: use {name}.item()")
    return float(value)


def is_pyopencl(value: Any) -> bool:
    return isinstance(value, getattr(sys.modules.get("pyopencl.array"), "Array", ()))


def operand(value: Any, name: str) -> Operand:
    """NumPy's array, PyOpenCL's, or anything on the CPU that speaks DLPack, without a copy; lists and numbers with one."""
    if type(value) is np.ndarray:  # what most arguments are
        known, flags = _KNOWN.get(value.dtype), value.flags
        if known is not None and flags.c_contiguous and flags.aligned:
            return Operand(value, known)
    if is_pyopencl(value):
        return _of_pyopencl(value, name)
    if is_torch(value):
        torch = sys.modules["torch"]
        if value.device.type != "cpu":
            raise TypeError(f"{name} is on {value.device}, and only arrays on the CPU can be read")
        if _has_derivative(value, torch):
            raise ValueError(
                f"{name} requires a gradient, which this call does not have: use torch.no_grad() or {name}.detach()"
            )
        value = value.detach()
        if value.dtype == torch.bfloat16:
            return Operand(value.view(torch.int16).numpy().view(np.uint16), lib.CLATTN_DTYPE_BF16)
        values = value.numpy()
    elif isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would not count")
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
    return _with_whole_strides(values, _dtype_of(values.dtype, name))


def _dtype_of(dtype: Any, name: str) -> int:
    if dtype.name not in DTYPES:
        raise TypeError(f"{name} is of type {dtype}, not one of {', '.join(DTYPES)}")
    return int(DTYPES[dtype.name])


def _with_whole_strides(values: Array, dtype: int) -> Operand:
    """The array itself if its elements are apart by whole elements, otherwise a copy."""
    size = values.itemsize
    for stride in values.strides:
        if stride % size:
            return Operand(values.copy(), dtype)
    return Operand(values, dtype)


def _of_pyopencl(array: Any, name: str) -> Operand:
    dtype, size = _dtype_of(array.dtype, name), array.dtype.itemsize
    if not array.dtype.isnative:
        raise TypeError(f"{name} has the other byte order")
    if array.size and not hasattr(array.base_data, "int_ptr"):
        raise TypeError(f"{name} is no array in a buffer: {type(array.base_data).__name__}")
    if array.offset % size or any(stride % size for stride in array.strides):
        raise ValueError(f"{name} begins or goes on between two elements: offset {array.offset}, strides {array.strides}")
    nowhere = np.empty(1, array.dtype)
    values = np.lib.stride_tricks.as_strided(nowhere, array.shape, array.strides, writeable=False)
    return Operand(values, dtype, array, int(nowhere.ctypes.data) - array.offset)


class Kind:
    """The kind of arrays that an argument is of, and results are to be of."""

    def new(self, like: Operand, shape: tuple[int, ...], dtype: int | None = None, fill: float | None = None) -> Operand:
        """A result to be, of another array's type or of float32; `fill` is what it has where nothing is written."""
        if dtype is None or dtype == like.dtype:
            made = Operand(np.empty(shape, like.values.dtype), like.dtype)
        else:
            made = Operand(np.empty(shape, np.float32), lib.CLATTN_DTYPE_F32)
        if fill is not None:
            made.values.fill(fill)
        return made

    def result(self, array: Operand) -> Any:
        """What the caller gets."""
        return array.values

    def context(self) -> Context:
        """Where the call runs if the caller names none."""
        return default_context()


class _Torch(Kind):
    def result(self, array: Operand) -> Any:
        torch = sys.modules["torch"]
        if array.dtype == lib.CLATTN_DTYPE_BF16:
            return torch.from_numpy(array.values.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array.values)


class _PyOpenCL(Kind):
    def __init__(self, array: Any) -> None:
        self.queue = array.queue
        if self.queue is None:
            raise ValueError("an array of PyOpenCL's without a queue: use array.with_queue(queue)")

    def new(self, like: Operand, shape: tuple[int, ...], dtype: int | None = None, fill: float | None = None) -> Operand:
        plain = super().new(like, (), dtype)
        array = sys.modules["pyopencl.array"].empty(self.queue, shape, plain.values.dtype)
        if fill is not None and array.size:
            array.fill(fill)
        return _of_pyopencl(array, "result")

    def result(self, array: Operand) -> Any:
        return array.owner.reshape(array.values.shape)

    def context(self) -> Context:
        return context_of_queue(self.queue)


_NUMPY = Kind()


def kind_of(value: Any) -> Kind:
    """The kind of an argument."""
    if type(value) is np.ndarray:
        return _NUMPY
    if is_torch(value):
        return _Torch()
    return _PyOpenCL(value) if is_pyopencl(value) else _NUMPY
