"""Devices and contexts."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from clattn._handle import Closing, Handle
from clattn._library import check, ffi, lib, text_of


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of this machine, as `clattn devices` lists it."""

    name: str
    platform: str
    vendor: str
    driver: str
    kind: str  #: "gpu", "accelerator", "cpu", "pocl" or "software"
    memory: int  #: bytes of global memory
    unified_memory: bool  #: the device and the host share their memory
    has_fp16: bool  #: kernels may compute in float16
    has_fp64: bool  #: kernels may compute in float64


KINDS = ("gpu", "accelerator", "cpu", "pocl", "software")


def _device(info: Any) -> Device:
    return Device(
        name=text_of(info.name),
        platform=text_of(info.platform),
        vendor=text_of(info.vendor),
        driver=text_of(info.driver),
        kind=KINDS[info.device_class],
        memory=info.global_memory,
        unified_memory=bool(info.unified_memory),
        has_fp16=bool(info.has_fp16),
        has_fp64=bool(info.has_fp64),
    )


def _new_info() -> Any:
    info = ffi.new("clattn_device_info *")
    info.size = ffi.sizeof("clattn_device_info")
    return info


def devices() -> list[Device]:
    """All devices, the best first: `devices()[2]` is that of `Context(2)`.

    >>> all(device.kind in ("gpu", "accelerator", "cpu", "pocl", "software") for device in devices())
    True
    """
    handle = ffi.new("clattn_devices **")
    check(lib.clattn_devices_create(ffi.NULL, handle))
    try:
        found = []
        for index in range(lib.clattn_devices_count(handle[0])):
            info = _new_info()
            check(lib.clattn_devices_info(handle[0], index, info))
            found.append(_device(info))
        return found
    finally:
        lib.clattn_devices_release(handle)


class Context(Closing):
    """A device, its queue, and what is compiled for it. Any thread may use it at any time, and close it while others use it.

    `device` is what `clattn --device` takes: "gpu", "cpu", "pocl", a number of `devices()`, or "PLATFORM:NAME" with parts of
    both names. Without it, CLATTN_DEVICE and then the best device decide. Compiled programs are kept in ~/.cache/clattn
    unless `cache` is False.

    `queue`, a pyopencl.CommandQueue, makes it the context of that queue; `device` is then None. Calls with arrays of PyOpenCL's
    need none: they run on the arrays' own queue.

    >>> with Context("pocl") as context:
    ...     context.device.kind
    'pocl'
    """

    def __init__(self, device: str | int | None = None, *, queue: Any = None, cache: bool | None = None) -> None:
        holder, params = ffi.new("clattn_context **"), ffi.new("clattn_context_params *")
        lib.clattn_context_params_init(params)
        name = ffi.NULL if device is None else ffi.new("char[]", str(device).encode())
        params.device = name
        if queue is not None:
            params.opencl_context = ffi.cast("cl_context", queue.context.int_ptr)
            params.opencl_device = ffi.cast("cl_device_id", queue.device.int_ptr)
            params.queue = ffi.cast("cl_command_queue", queue.int_ptr)
        if cache is not None:
            params.cache_mode = lib.CLATTN_CACHE_MODE_ON if cache else lib.CLATTN_CACHE_MODE_OFF
        check(lib.clattn_context_create(params, holder))
        self.handle = Handle("context", holder, lib.clattn_context_release)
        info = _new_info()
        check(lib.clattn_context_device_info(holder[0], info))
        self.device = _device(info)
        self.calls: dict[Any, Any] = {}  # of _call.py, with this lock
        self.lock = threading.RLock()
        #: Whether arrays of the host are the device's own memory.
        self.shares_memory = self.device.unified_memory and self.device.kind in ("cpu", "pocl", "software")

    @property
    def closed(self) -> bool:
        """Whether it is closed; calls are then refused."""
        return self.handle.closed

    def close(self) -> None:
        """Releases the context, after the calls of other threads that are at work; further calls do nothing."""
        self.handle.close()

    def __repr__(self) -> str:
        return f"<clattn.Context of {self.device.name} ({self.device.platform})>"


_lock = threading.RLock()  # a signal handler may come in between
_kept: dict[Any, Context] = {}


def _context_of(key: Any, queue: Any) -> Context:
    """The context that is kept for a key. It is made without a lock, which would last while drivers are loaded."""
    context = _kept.get(key)
    if context is None or context.closed:
        made = Context(queue=queue)
        with _lock:
            context = _kept.get(key)
            if context is None or context.closed:
                context = _kept[key] = made
        if context is not made:
            made.close()
    return context


def default_context() -> Context:
    """The context of calls that are given none; the first such call makes it, and the first after it was closed another."""
    return _context_of(None, None)


def context_of_queue(queue: Any) -> Context:
    """The context of the OpenCL context and device of a pyopencl.CommandQueue, kept from the first call with them."""
    return _context_of((queue.context.int_ptr, queue.device.int_ptr), queue)
