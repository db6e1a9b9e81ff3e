"""The C library of this package, and OpenCL's loader."""

from __future__ import annotations

import functools
import pathlib
import sys
from typing import Any

from clattn._declarations import ffi as _ffi
from clattn.errors import NoDeviceError, error_of

NAME = {"win32": "_clattn.dll", "darwin": "_clattn.dylib"}.get(sys.platform, "_clattn.so")
LOADERS = {
    "win32": ["OpenCL.dll"],
    "darwin": ["/System/Library/Frameworks/OpenCL.framework/OpenCL"],
}.get(sys.platform, ["libOpenCL.so.1", "libOpenCL.so"])

ffi: Any = _ffi
lib: Any = ffi.dlopen(str(pathlib.Path(__file__).with_name(NAME)))
if lib.clattn_version() != lib.C_CLATTN_VERSION:
    raise ImportError(f"{NAME} is of version {lib.clattn_version()}, and this package of {lib.C_CLATTN_VERSION}")
STATUS: dict[int, str] = {
    value: name.removeprefix("CLATTN_").removeprefix("ERROR_") for value, name in ffi.typeof("clattn_status").elements.items()
}


@functools.cache
def opencl() -> Any:
    """The loader's functions."""
    for name in LOADERS:
        try:
            return ffi.dlopen(name)
        except OSError:
            pass
    raise NoDeviceError("NO_OPENCL", f"{LOADERS[0]} is not installed: on Debian and Ubuntu it is in ocl-icd-libopencl1")


def text_of(pointer: Any) -> str:
    """A C string as Python's."""
    return "" if pointer == ffi.NULL else str(ffi.string(pointer), "utf-8", "replace")


def check(status: int, context: Any = ffi.NULL) -> None:
    """Raises what a status of clattn means, with the message of the calling thread's failure."""
    if status == 0:
        return
    length = lib.clattn_context_message(context, ffi.NULL, 0)
    buffer = ffi.new("char[]", length + 1)
    lib.clattn_context_message(context, buffer, length + 1)
    raise error_of(STATUS.get(status, str(status)), text_of(buffer) or text_of(lib.clattn_status_string(status)))


def check_opencl(code: int, call: str) -> None:
    """Raises what a code of OpenCL's means."""
    if code != 0:
        raise error_of("OUT_OF_MEMORY" if code in (-4, -5, -6) else "OPENCL", f"{call} returned {code}")
