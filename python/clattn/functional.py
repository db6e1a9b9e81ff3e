"""Operators as functions, with the meaning that PyTorch's functions of the same names have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clattn._arrays import Operand, kind_of, number, operand
from clattn._call import Operands, compute
from clattn._library import lib
from clattn.context import Context

ACTIVATIONS = {
    "relu": lib.CLATTN_ACTIVATION_RELU,
    "leaky_relu": lib.CLATTN_ACTIVATION_LEAKY_RELU,
    "gelu": lib.CLATTN_ACTIVATION_GELU,
    "gelu_tanh": lib.CLATTN_ACTIVATION_GELU_TANH,
    "silu": lib.CLATTN_ACTIVATION_SWISH,
}


def _given(*arrays: tuple[str, str, Any]) -> Operands:
    """Those arrays that are there, from (member of the description, argument's name, argument)."""
    return [(path, operand(value, name)) for path, name, value in arrays if value is not None]


def softmax(input: Any, dim: int = -1, *, mask: Any = None, scale: float = 1.0, context: Context | None = None) -> Any:
    """exp(scale * input) by its sum along `dim`. `mask` is boolean (True: counts) or added; a row of nothing is 0.

    >>> import numpy as np
    >>> softmax(np.zeros((1, 4), np.float32)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    x = operand(input, "input")
    if not -x.values.ndim <= dim < x.values.ndim:
        raise ValueError(f"dim is {dim}, and input has {x.values.ndim} dimensions")

    def last(array: Operand) -> Operand:
        return array.view(np.moveaxis(array.values, dim, -1))

    inputs, kind = [("x", last(x))], kind_of(input)
    if mask is not None:
        allowed = operand(mask, "mask")
        inputs.append(("mask", last(allowed.view(np.broadcast_to(allowed.values, x.values.shape)))))
    output = kind.new(x, x.values.shape)
    scale = number(scale, "scale")
    fields = {} if scale == 1.0 else {"explicit_scale": 1, "scale": scale}
    compute("softmax", context or kind.context(), fields, inputs, [("y", last(output))])
    return kind.result(output)


def _norm(
    input: Any, normalized_shape: int | Sequence[int], weight: Any, bias: Any, eps: float, norm: int, context: Context | None
) -> Any:
    x = operand(input, "input")
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.values.shape[-len(shape) :] != shape:
        raise ValueError(f"input has the shape {x.values.shape}, which does not end with normalized_shape, {shape}")
    fields = {"kind": norm, "axes": len(shape), "explicit_epsilon": 1, "epsilon": number(eps, "eps")}
    inputs = [("x", x), *_given(("scale", "weight", weight), ("bias", "bias", bias))]
    kind = kind_of(input)
    output = kind.new(x, x.values.shape)
    compute("norm", context or kind.context(), fields, inputs, [("y", output)])
    return kind.result(output)


def layer_norm(
    input: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    context: Context | None = None,
) -> Any:
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, which are `normalized_shape`.

    >>> import numpy as np
    >>> layer_norm(np.array([[1, 3]], np.float32), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    return _norm(input, normalized_shape, weight, bias, eps, lib.CLATTN_NORM_KIND_LAYER, context)


def rms_norm(
    input: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    eps: float | None = None,
    *,
    context: Context | None = None,
) -> Any:
    """input / sqrt(mean of squares + eps) * weight over the last dimensions. Without `eps` it is that of the input's type.

    >>> import numpy as np
    >>> rms_norm(np.array([[2, 2]], np.float32), (2,), eps=0.0).tolist()
    [[1.0, 1.0]]
    """
    if eps is None:
        eps = {lib.CLATTN_DTYPE_F16: 2.0**-10, lib.CLATTN_DTYPE_BF16: 2.0**-7}.get(operand(input, "input").dtype, 2.0**-23)
    return _norm(input, normalized_shape, weight, None, eps, lib.CLATTN_NORM_KIND_RMS, context)


def rope(
    input: Any,
    *,
    base: float = 10000.0,
    position: int = 0,
    positions: Any = None,
    interleaved: bool = False,
    rotary_size: int = 0,
    context: Context | None = None,
) -> Any:
    """Rotates pairs of elements of (batch, heads, length, size) by their positions (rotary position embedding).

    Element s stands at `position` + s, or at `position` + positions[b, s]. Pairs are i and i + n of the first 2 n = `rotary_size`
    elements (all, if it is 0), or 2 i and 2 i + 1 if they are `interleaved`; pair i turns by position / base^(i / n).

    >>> import numpy as np
    >>> rope(np.ones((1, 1, 1, 2), np.float32)).tolist()
    [[[[1.0, 1.0]]]]
    """
    x = operand(input, "input")
    pairing = lib.CLATTN_ROPE_PAIRING_INTERLEAVED if interleaved else lib.CLATTN_ROPE_PAIRING_HALVES
    fields = {"base": number(base, "base"), "rotary_size": rotary_size, "pairing": pairing}
    inputs = [("x", x), *_given(("positions", "positions", positions))]
    kind = kind_of(input)
    output = kind.new(x, x.values.shape)
    compute("rope", context or kind.context(), fields, inputs, [("y", output)], {"position": position})
    return kind.result(output)


def linear(input: Any, weight: Any, bias: Any = None, *, activation: str | None = None, context: Context | None = None) -> Any:
    """activation(input @ weight.T + bias): `input` is (..., k), `weight` (n, k), `bias` (n,), and the result (..., n).

    `activation` is None, "relu", "leaky_relu", "gelu", "gelu_tanh" or "silu".

    >>> import numpy as np
    >>> linear(np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)).tolist()
    [[11.0]]
    """
    x, w = operand(input, "input"), operand(weight, "weight")
    if w.values.ndim != 2 or x.values.shape[-1:] != w.values.shape[1:]:
        raise ValueError(f"input has the shape {x.values.shape} and weight {w.values.shape}, not (..., k) and (n, k)")
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}, not one of {', '.join(ACTIVATIONS)}")
    fields = {} if activation is None else {"activation": ACTIVATIONS[activation]}
    kind, rows = kind_of(input), x.reshaped(math.prod(x.values.shape[:-1]), w.values.shape[1])
    inputs = [("a", rows), ("b", w.view(w.values.T)), *_given(("bias", "bias", bias))]
    output = kind.new(x, (rows.values.shape[0], w.values.shape[0]))
    compute("matmul", context or kind.context(), fields, inputs, [("c", output)])
    return kind.result(output.reshaped(*x.values.shape[:-1], w.values.shape[0]))
