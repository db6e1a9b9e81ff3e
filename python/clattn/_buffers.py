"""Buffers of the device for one call of a model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from clattn._library import check_opencl, ffi, lib, opencl


class Buffers:
    """What a `with` block allocates on a context's device is released at its end; enqueued work keeps what it needs."""

    def __init__(self, context: Any) -> None:
        self._owner, self._queue = lib.clattn_context_opencl_context(context), lib.clattn_context_queue(context)
        self._code, self._made = ffi.new("cl_int *"), []  # type: ignore[var-annotated]
        self.event = ffi.new("cl_event *")  #: of the call, which reads wait for

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.event[0] != ffi.NULL:
            opencl().clReleaseEvent(self.event[0])
        for buffer in self._made:
            opencl().clReleaseMemObject(buffer)

    def _make(self, flags: int, size: int, host: Any) -> Any:
        buffer = opencl().clCreateBuffer(self._owner, flags, size, host, self._code)
        check_opencl(self._code[0], "clCreateBuffer")
        self._made.append(buffer)
        return buffer

    def holding(self, array: npt.NDArray[Any]) -> Any:
        """A buffer with a copy of a contiguous array."""
        host = ffi.from_buffer(array)
        return self._make(lib.C_CL_MEM_READ_ONLY | lib.C_CL_MEM_COPY_HOST_PTR, array.nbytes, host)

    def room(self, size: int) -> Any:
        """A buffer of so many bytes."""
        return self._make(lib.C_CL_MEM_READ_WRITE, size, ffi.NULL)

    def read(self, buffer: Any, array: npt.NDArray[Any]) -> None:
        """Waits for the call, and copies the beginning of a buffer into a contiguous array."""
        to = ffi.from_buffer(array, require_writable=True)
        code = opencl().clEnqueueReadBuffer(self._queue, buffer, lib.C_CL_TRUE, 0, array.nbytes, to, 1, self.event, ffi.NULL)
        check_opencl(code, "clEnqueueReadBuffer")


FLOATS = {"float32": lib.CLATTN_DTYPE_F32, "float16": lib.CLATTN_DTYPE_F16, "bfloat16": lib.CLATTN_DTYPE_BF16}


def packed(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Numbers as a model of a type has them in memory, rounded to the nearest, ties to even; bfloat16 as uint16."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(array, dtype)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def room_of(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """An array for what a model of a type writes."""
    return np.empty(shape, np.uint16 if dtype == "bfloat16" else dtype)


def unpacked(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """What a model has written, in float32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32, copy=False)
