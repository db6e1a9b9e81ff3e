"""Plans, and questions about what a call would do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from clattn._call import Answer, asked
from clattn._handle import Closing, Handle
from clattn._library import check, ffi, lib, text_of
from clattn.context import Context


def _ask(function: Callable[..., Any], arguments: Any, more: Any, question: Callable[..., None]) -> Any:
    """Calls one of this package's functions with something to do in place of its computation."""
    token = asked.set(question)
    try:
        return function(*arguments, **more)
    finally:
        asked.reset(token)


def supports(function: Callable[..., Any], *arguments: Any, **more: Any) -> tuple[bool, str]:
    """Whether function(*arguments, **more) can be computed on its device, and why not. Nothing is compiled or run.

    >>> import numpy as np
    >>> from clattn import scaled_dot_product_attention
    >>> x = np.ones((1, 1, 4, 8), np.float32)
    >>> supports(scaled_dot_product_attention, x, x, x)
    (True, '')
    """
    answer = None

    def question(call: Any, key: Any, context: Context, handle: Any, scalars: Any, arrays: Any) -> None:
        nonlocal answer
        reason = ffi.new("const char **")
        status = getattr(lib, f"clattn_{call.operator}_supports")(handle, call.desc, reason)
        answer = (status == 0, text_of(reason[0]))
        raise Answer

    try:
        _ask(function, arguments, more, question)
    except Answer:
        pass
    if answer is None:
        raise TypeError(f"{function!r} is no function of clattn's that plans")
    return answer


def explain(function: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    """Which solver function(*arguments, **more) takes on its device, and why no other: text of several lines."""
    with Plan(function, *arguments, **more) as plan:
        return plan.explanation


class Plan(Closing):
    """function(*arguments, **more), compiled: for calls of the same shapes and options, which then never compile.

    `function` is one of this package's, such as scaled_dot_product_attention. `solver` names the solver; without it the best one
    is chosen. Calling the plan is calling the function: with the arguments of before wherever there are none now.

    >>> import numpy as np
    >>> from clattn import softmax
    >>> with Plan(softmax, np.zeros((2, 4), np.float32), solver="generic") as plan:
    ...     plan.solver, plan(np.zeros((2, 4), np.float32))[0].tolist()
    ('generic', [0.25, 0.25, 0.25, 0.25])
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, solver: str | None = None, **more: Any) -> None:
        self._function, self._signature = function, inspect.signature(function)
        self._given: dict[str, Any] = self._signature.bind(*arguments, **more).arguments
        self._key: Any = None
        holder = ffi.new("clattn_plan **")

        def question(call: Any, key: Any, context: Context, handle: Any, scalars: Any, arrays: Any) -> None:
            options = ffi.new("clattn_plan_options *")
            lib.clattn_plan_options_init(options)
            name = ffi.NULL if solver is None else ffi.new("char[]", solver.encode())
            options.solver = name
            create = getattr(lib, f"clattn_{call.operator}_plan_create")
            check(create(handle, call.desc, options, holder), handle)
            self._key, self._context = key, context
            raise Answer

        try:
            _ask(function, arguments, more, question)
        except Answer:
            pass
        if self._key is None:
            raise TypeError(f"{function!r} is no function of clattn's that plans")
        self._handle: Handle = Handle("plan", holder, lib.clattn_plan_release)
        self.solver: str = text_of(lib.clattn_plan_solver(holder[0]))
        self.explanation: str = text_of(lib.clattn_plan_explain(holder[0]))

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """What function(*arguments, **more) gives, with the arguments of before wherever there are none now."""

        def question(call: Any, key: Any, context: Context, handle: Any, scalars: Any, arrays: Any) -> None:
            if key != self._key:
                raise ValueError(f"the plan is of {_described(self._key)}, and was given {_described(key)}")
            if context is not self._context:
                raise ValueError("the plan is of another context")
            with self._handle as plan:
                call.run(handle, scalars, arrays, plan)

        given = {**self._given, **self._signature.bind_partial(*arguments, **more).arguments}
        return _ask(self._function, (), given, question)

    def close(self) -> None:
        """Releases the plan, after the calls of other threads that are at work; further calls do nothing."""
        self._handle.close()


def _described(key: Any) -> str:
    """What a call is of, as far as it matters to a plan."""
    fields = [f"{path} {value}" for path, value in key[1]]
    arrays = [
        f"{path} {shape} of type {text_of(lib.clattn_dtype_name(dtype))}, strides {strides}"
        for path, dtype, shape, strides, _ in key[3:]
    ]
    return "; ".join(arrays + fields)
