"""What calls raise: a status of the C library, as an exception that Python's own handlers know, too."""

from __future__ import annotations


class ClattnError(RuntimeError):
    """A call of the C library has failed. `status` is its name there, such as "UNSUPPORTED"."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[ClattnError], tuple[str, str]]:
        return type(self), (self.status, str(self))


class InvalidArgumentError(ClattnError, ValueError):
    """An argument, a shape or a stride that the operator does not take."""


class UnsupportedError(ClattnError, NotImplementedError):
    """No solver takes the problem on this device; the message says why."""


class OutOfMemoryError(ClattnError, MemoryError):
    """The host or the device has no memory left."""


class NoDeviceError(ClattnError):
    """There is no OpenCL loader, platform or device; the message says what to install."""


_CLASSES: dict[str, type[ClattnError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "INVALID_LAYOUT": InvalidArgumentError,
    "OVERFLOW": InvalidArgumentError,
    "UNSUPPORTED": UnsupportedError,
    "OUT_OF_MEMORY": OutOfMemoryError,
    "NO_OPENCL": NoDeviceError,
    "NO_DEVICE": NoDeviceError,
}


def error_of(status: str, message: str) -> ClattnError:
    """The exception of a status."""
    return _CLASSES.get(status, ClattnError)(status, message)
