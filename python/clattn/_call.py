"""Calls of operators: a description and arguments in C, which a later call of the same shapes finds again."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from clattn._arrays import Operand
from clattn._library import check, check_opencl, ffi, lib, opencl
from clattn.context import Context

KEPT = 128  # calls that a context keeps
READS, WRITES = lib.C_CL_MEM_READ_ONLY, lib.C_CL_MEM_READ_WRITE

# Arrays whose layouts follow from the rest of a description, which has none of them: they are contiguous.
IMPLIED = {"mha": ("x", "context", "context_value", "w_in", "b_in", "w_o", "b_o", "y", "weights")}
# Arrays of which a description has the type alone, and where: they are contiguous, too.
TYPES = {f"snippets.buffer.{n}": f"snippets.buffer_dtype.{n}" for n in range(lib.C_CLATTN_USER_BUFFERS)}
# Inputs with which rows of the outputs may stay as they are.
LEAVING = ("lengths.query_starts", "lengths.key_starts")

Operands = list[tuple[str, Operand]]


def _member(struct: Any, path: str) -> Any:
    """The member that a path such as "scoring.alibi" or "snippets.scalar.0" names."""
    for name in path.split("."):
        struct = struct[int(name)] if name.isdigit() else getattr(struct, name)
    return struct


def _set(struct: Any, path: str, value: Any) -> None:
    folder, _, name = path.rpartition(".")
    within = _member(struct, folder) if folder else struct
    if name.isdigit():
        within[int(name)] = value
    else:
        setattr(within, name, value)


def _reach(values: np.ndarray[Any, Any]) -> tuple[int, int]:
    """How many bytes an array touches before its first element, and from there on."""
    below = above = 0
    for extent, stride in zip(values.shape, values.strides, strict=True):
        reach = (extent - 1) * stride
        below, above = below - min(reach, 0), above + max(reach, 0)
    return below, above + values.itemsize


_NOTHING = ffi.new("char[64]")  # what the buffer of an array without elements has, for there are no empty ones


class _Binding:
    """One array of a call: its layout and binding, and which bytes of the host its buffer has."""

    def __init__(self, call: _Call, path: str, array: Operand, written: bool) -> None:
        values = array.values
        if not 1 <= values.ndim <= lib.C_CLATTN_MAX_RANK:
            raise ValueError(f"{path} has {values.ndim} dimensions, and there may be 1 to {lib.C_CLATTN_MAX_RANK}")
        if path in TYPES:
            _set(call.desc, TYPES[path], array.dtype)
        elif path not in call.implied:
            layout = _member(call.desc, path)
            layout.dtype, layout.rank = array.dtype, values.ndim
            layout.extent[0 : values.ndim] = values.shape
            layout.stride[0 : values.ndim] = [stride // values.itemsize for stride in values.strides]
        if (path in TYPES or path in call.implied) and not values.flags.c_contiguous:
            raise ValueError(f"{path} is not contiguous")
        self.binding, self.size = _member(call.args, path), values.itemsize
        self.empty = values.size == 0
        self.below, above = (0, 64) if self.empty else _reach(values)
        self.binding.offset, self.length = self.below // values.itemsize, self.below + above
        self.written, self.flags = written, WRITES if written else READS
        self.contiguous = values.flags.c_contiguous
        if call.shares:
            self.flags |= lib.C_CL_MEM_USE_HOST_PTR
        elif not written or not self.contiguous or call.leaves:  # other elements of an output keep what they are
            self.flags |= lib.C_CL_MEM_COPY_HOST_PTR
        self.has_host = self.flags not in (READS, WRITES)

    def first(self, values: np.ndarray[Any, Any]) -> Any:
        """The first byte of the host that the buffer has."""
        if self.contiguous and not self.empty:
            return ffi.from_buffer(values)  # faster than the address below
        if self.empty:
            return _NOTHING
        return ffi.cast("void *", values.ctypes.data - self.below)


class _Call:
    """A description and its arguments, whose buffers are those of the run that has it at the time."""

    def __init__(self, operator: str, context: Context, fields: dict[str, Any], inputs: Operands, outputs: Operands) -> None:
        self.shares = context.shares_memory
        self.desc, self.args = ffi.new(f"clattn_{operator}_desc *"), ffi.new(f"clattn_{operator}_args *")
        self.desc.size, self.args.size = ffi.sizeof(self.desc[0]), ffi.sizeof(self.args[0])
        self.operator, self.run_operator = operator, getattr(lib, f"clattn_{operator}_run")
        self.event, self.code = ffi.new("cl_event *"), ffi.new("cl_int *")
        self.implied = IMPLIED.get(operator, ())
        self.texts = []  # which the description points to
        for path, value in fields.items():
            if isinstance(value, str):
                self.texts.append(ffi.new("char[]", value.encode()))
                value = self.texts[-1]
            _set(self.desc, path, value)
        self.leaves = any(path in LEAVING for path, _ in inputs)
        self.bindings = [_Binding(self, path, array, False) for path, array in inputs]
        self.bindings += [_Binding(self, path, array, True) for path, array in outputs]

    def run(self, handle: Any, scalars: dict[str, Any], arrays: Operands, plan: Any = None) -> None:
        """Computes, by a plan of the caller's or by the context's own."""
        cl, buffers, events, outside = opencl(), [], [], []
        queue = lib.clattn_context_queue(handle)
        for path, value in scalars.items():
            _set(self.args, path, value)
        self.event[0] = ffi.NULL
        begun = False
        try:
            owner = lib.clattn_context_opencl_context(handle)
            for bound, (_, array) in zip(self.bindings, arrays, strict=True):
                if array.is_outside:
                    bound.binding.buffer = ffi.cast("cl_mem", array.owner.base_data.int_ptr)
                    bound.binding.offset = array.byte_offset() // bound.size
                    queue = ffi.cast("cl_command_queue", array.owner.queue.int_ptr)
                    events += [ffi.cast("cl_event", event.int_ptr) for event in array.owner.events]
                    outside.append(array)
                    continue
                pointer = bound.first(array.values) if bound.has_host else ffi.NULL
                buffer = cl.clCreateBuffer(owner, bound.flags, bound.length, pointer, self.code)
                check_opencl(self.code[0], "clCreateBuffer")
                buffers.append((bound, array, buffer))
                bound.binding.buffer = buffer
            waits = events or ffi.NULL
            begun = True
            if plan is None:
                status = self.run_operator(handle, queue, self.desc, self.args, len(events), waits, self.event)
            else:
                enqueue = getattr(lib, f"clattn_{self.operator}_enqueue")
                status = enqueue(plan, queue, self.args, len(events), waits, self.event)
            check(status, handle)
            if buffers and (self.shares or any(bound.written for bound, _, _ in buffers)):
                check_opencl(cl.clWaitForEvents(1, self.event), "clWaitForEvents")
                if not self.shares:
                    self._read(queue, buffers)
            if outside:
                self._promise(outside)
            begun = False
        finally:
            if begun:  # an exception, perhaps Ctrl-C's: the host's memory is the caller's again only when all is done
                cl.clFinish(queue)
            if self.event[0] != ffi.NULL:
                cl.clReleaseEvent(self.event[0])
            for _, _, buffer in buffers:
                cl.clReleaseMemObject(buffer)

    def _promise(self, arrays: list[Operand]) -> None:
        """Leaves the event with PyOpenCL's arrays: whoever uses the results waits for it, and nobody else does."""
        event = sys.modules["pyopencl"].Event.from_int_ptr(int(ffi.cast("intptr_t", self.event[0])))
        for array in arrays:
            array.owner.add_event(event)

    @staticmethod
    def _read(queue: Any, buffers: list[tuple[_Binding, Operand, Any]]) -> None:
        for bound, array, buffer in buffers:
            if bound.written and not bound.empty:
                to = bound.first(array.values)
                code = opencl().clEnqueueReadBuffer(queue, buffer, lib.C_CL_TRUE, 0, bound.length, to, 0, ffi.NULL, ffi.NULL)
                check_opencl(code, "clEnqueueReadBuffer")


class Answer(Exception):
    """Ends a function of this package that was asked about its call and not for the result."""


#: What is done with a call in place of running it: asked(call, key, context, handle, scalars, arrays).
asked: contextvars.ContextVar[Callable[..., None] | None] = contextvars.ContextVar("asked", default=None)


def compute(
    operator: str,
    context: Context,
    fields: dict[str, Any],
    inputs: Operands,
    outputs: Operands,
    scalars: dict[str, Any] | None = None,
) -> None:
    """Runs an operator. Outputs in the host's memory hold the results when it returns; other threads go on meanwhile.

    Arrays go by the names of the description's layouts, which are those of the arguments' bindings; `fields` are other members
    of the description, `scalars` of the arguments."""
    if not isinstance(context, Context):
        raise TypeError(f"context is {context!r}, no clattn.Context")
    arrays = inputs + outputs
    key = (
        operator,
        tuple(fields.items()),
        len(inputs),
        *[(path, array.dtype, array.values.shape, array.values.strides, array.is_outside) for path, array in arrays],
    )
    with context.handle as handle:
        with context.lock:
            call: _Call | None = context.calls.pop(key, None)  # nobody else has it meanwhile
        if call is None:
            call = _Call(operator, context, fields, inputs, outputs)
        instead = asked.get()
        if instead is not None:
            instead(call, key, context, handle, scalars or {}, arrays)
        else:
            call.run(handle, scalars or {}, arrays)
        with context.lock:
            if len(context.calls) >= KEPT:
                del context.calls[next(iter(context.calls))]
            context.calls[key] = call
