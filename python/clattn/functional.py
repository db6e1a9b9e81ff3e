"""The operators as functions, with the meaning that PyTorch's functions of the same names have."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np

from clattn._arrays import HostArray, host_array, returner
from clattn._call import Arrays, compute
from clattn._library import lib
from clattn.context import Context, default_context

ALIGNMENTS = {"top_left": lib.CLATTN_ALIGNMENT_TOP_LEFT, "bottom_right": lib.CLATTN_ALIGNMENT_BOTTOM_RIGHT}
ACTIVATIONS = {
    "relu": lib.CLATTN_ACTIVATION_RELU,
    "leaky_relu": lib.CLATTN_ACTIVATION_LEAKY_RELU,
    "gelu": lib.CLATTN_ACTIVATION_GELU,
    "gelu_tanh": lib.CLATTN_ACTIVATION_GELU_TANH,
    "silu": lib.CLATTN_ACTIVATION_SWISH,
}


def _given(*arrays: tuple[str, str, Any]) -> Arrays:
    """Those arrays that are there, from (member of the description, argument's name, argument)."""
    return [(path, host_array(value, name)) for path, name, value in arrays if value is not None]


def _four(array: HostArray) -> HostArray:
    """An array of four dimensions or more, with all before the last three as one."""
    values = array.values
    if values.ndim == 4:
        return array
    return HostArray(values.reshape(math.prod(values.shape[:-3]), *values.shape[-3:]), array.dtype)


def _heads(array: HostArray, name: str) -> HostArray:
    """(..., heads, length, size) as (batch, heads, length, size)."""
    values = array.values
    if values.ndim < 2:
        raise ValueError(f"{name} has the shape {values.shape}, and (..., length, size) is needed")
    if values.ndim < 4:
        return HostArray(values[(np.newaxis,) * (4 - values.ndim)], array.dtype)
    return _four(array)


def _mask(value: Any, name: str, batch: tuple[int, ...]) -> HostArray:
    """A mask of up to four dimensions; more are batches, which the call has as one."""
    array = host_array(value, name)
    if array.values.ndim < 5:
        return array
    return _four(HostArray(np.broadcast_to(array.values, batch + array.values.shape[-3:]), array.dtype))


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    bias: Any = None,
    window: tuple[int | None, int | None] | None = None,
    alignment: str = "top_left",
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    sinks: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    seed: int | None = None,
    return_lse: bool = False,
    context: Context | None = None,
) -> Any:
    """Every query takes the mean of the values, weighted by the softmax of its dot products with the keys.

    The arguments before `*` mean what they mean in torch.nn.functional.scaled_dot_product_attention: `query` is (..., heads, L, E),
    `key` (..., heads, S, E), `value` (..., heads, S, Ev), and the result (..., heads, L, Ev) in the type of `query`. With
    `enable_gqa` keys and values may have fewer heads, of which each serves several of the queries'. `attn_mask` is boolean (True:
    attend) or added to the scores. Unlike there, a mask and `is_causal` go together, and a row that attends nothing is 0.

    bias           added to the scores besides the mask
    window         (left, right): key j is attended if p - left <= j <= p + right; None is no limit
    alignment      where query 0 stands for `is_causal`, `window` and `alibi_slopes`: p = i, or "bottom_right", p = i + S - L
    softcap        scores become softcap * tanh(score / softcap)
    alibi_slopes   (heads,) or (batch, heads): slope * |p - j| is subtracted from the scores
    sinks          (heads,): one more logit in the softmax of each row, without a value
    query_lengths  (batch,) integers: rows of queries beyond are 0
    key_lengths    (batch,) integers: keys beyond are not attended
    seed           of dropout; None draws one
    return_lse     gives (result, log-sum-exp of each row's scores), the latter (..., heads, L) in float32

    >>> import numpy as np
    >>> q = k = v = np.eye(4, dtype=np.float32)
    >>> scaled_dot_product_attention(q, k, v, is_causal=True)[0].tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    arrays = [host_array(array, name) for array, name in ((query, "query"), (key, "key"), (value, "value"))]
    shape = arrays[0].values.shape
    q, k, v = (_heads(array, name) for array, name in zip(arrays, ("query", "key", "value"), strict=True))
    for array, name in ((arrays[1], "key"), (arrays[2], "value")):
        if array.values.shape[:-3] != shape[:-3] or array.values.ndim != len(shape):
            raise ValueError(f"query has the shape {shape} and {name} {array.values.shape}: what is before the heads differs")
    heads, kv_heads = q.values.shape[1], k.values.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(f"query has {heads} heads and key {kv_heads}, which enable_gqa=True allows")
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment is {alignment!r}, not one of {', '.join(ALIGNMENTS)}")
    fields: dict[str, Any] = {}
    if is_causal:
        fields["causal"] = 1
    if alignment != "top_left":
        fields["alignment"] = ALIGNMENTS[alignment]
    if softcap:
        fields["scoring.softcap"] = softcap
    if scale is not None:
        fields |= {"scoring.explicit_scale": 1, "scoring.scale": scale}
    for side, limit in zip(("left", "right"), window or (), strict=False):
        if limit is not None:
            fields |= {f"window.explicit_{side}": 1, f"window.{side}": limit}
    scalars = {}
    if dropout_p:
        fields["dropout.probability"] = dropout_p
        scalars["dropout.seed"] = secrets.randbits(64) if seed is None else seed
    inputs = [("query", q), ("key", k), ("value", v)]
    if attn_mask is not None:
        inputs.append(("mask", _mask(attn_mask, "attn_mask", shape[:-3])))
    if bias is not None:
        inputs.append(("bias", _mask(bias, "bias", shape[:-3])))
    inputs += _given(
        ("scoring.alibi", "alibi_slopes", alibi_slopes),
        ("scoring.sinks", "sinks", sinks),
        ("lengths.query", "query_lengths", query_lengths),
        ("lengths.key", "key_lengths", key_lengths),
    )
    rows = q.values.shape[:3]
    output = q.like((*rows, v.values.shape[3]))
    outputs = [("output", output)]
    if return_lse:
        outputs.append(("outputs.lse", q.like(rows, lib.CLATTN_DTYPE_F32)))
    compute("attention", context or default_context(), fields, inputs, outputs, scalars)
    made = returner(query)
    if len(shape) != 4:
        output.values = output.values.reshape(*shape[:-1], v.values.shape[3])
    if not return_lse:
        return made(output)
    lse = outputs[1][1]
    lse.values = lse.values.reshape(shape[:-1])
    return made(output), made(lse)


def softmax(input: Any, dim: int = -1, *, mask: Any = None, scale: float = 1.0, context: Context | None = None) -> Any:
    """exp(scale * input) by its sum along `dim`. `mask` is boolean (True: counts) or added; a row of nothing is 0.

    >>> import numpy as np
    >>> softmax(np.zeros((1, 4), np.float32)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    x = host_array(input, "input")
    if not -x.values.ndim <= dim < x.values.ndim:
        raise ValueError(f"dim is {dim}, and input has {x.values.ndim} dimensions")

    def last(array: HostArray) -> HostArray:
        return HostArray(np.moveaxis(array.values, dim, -1), array.dtype)

    inputs = [("x", last(x))]
    if mask is not None:
        allowed = host_array(mask, "mask")
        inputs.append(("mask", last(HostArray(np.broadcast_to(allowed.values, x.values.shape), allowed.dtype))))
    output = x.like(x.values.shape)
    fields = {} if scale == 1.0 else {"explicit_scale": 1, "scale": scale}
    compute("softmax", context or default_context(), fields, inputs, [("y", last(output))])
    return returner(input)(output)


def _norm(
    input: Any, normalized_shape: tuple[int, ...], weight: Any, bias: Any, eps: float, kind: int, context: Context | None
) -> Any:
    x, shape = host_array(input, "input"), tuple(normalized_shape)
    if not shape or x.values.shape[-len(shape) :] != shape:
        raise ValueError(f"input has the shape {x.values.shape}, which does not end with normalized_shape, {shape}")
    fields = {"kind": kind, "axes": len(shape), "explicit_epsilon": 1, "epsilon": eps}
    inputs = [("x", x), *_given(("scale", "weight", weight), ("bias", "bias", bias))]
    output = x.like(x.values.shape)
    compute("norm", context or default_context(), fields, inputs, [("y", output)])
    return returner(input)(output)


def layer_norm(
    input: Any,
    normalized_shape: tuple[int, ...],
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
    normalized_shape: tuple[int, ...],
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
        eps = {lib.CLATTN_DTYPE_F16: 2.0**-10, lib.CLATTN_DTYPE_BF16: 2.0**-7}.get(host_array(input, "input").dtype, 2.0**-23)
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
    x = host_array(input, "input")
    pairing = lib.CLATTN_ROPE_PAIRING_INTERLEAVED if interleaved else lib.CLATTN_ROPE_PAIRING_HALVES
    fields = {"base": base, "rotary_size": rotary_size, "pairing": pairing}
    inputs = [("x", x), *_given(("positions", "positions", positions))]
    output = x.like(x.values.shape)
    compute("rope", context or default_context(), fields, inputs, [("y", output)], {"position": position})
    return returner(input)(output)


def linear(input: Any, weight: Any, bias: Any = None, *, activation: str | None = None, context: Context | None = None) -> Any:
    """activation(input @ weight.T + bias): `input` is (..., k), `weight` (n, k), `bias` (n,), and the result (..., n).

    `activation` is None, "relu", "leaky_relu", "gelu", "gelu_tanh" or "silu".

    >>> import numpy as np
    >>> linear(np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)).tolist()
    [[11.0]]
    """
    x, w = host_array(input, "input"), host_array(weight, "weight")
    if w.values.ndim != 2 or x.values.shape[-1:] != w.values.shape[1:]:
        raise ValueError(f"input has the shape {x.values.shape} and weight {w.values.shape}, not (..., k) and (n, k)")
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}, not one of {', '.join(ACTIVATIONS)}")
    fields = {} if activation is None else {"activation": ACTIVATIONS[activation]}
    rows = HostArray(x.values.reshape(math.prod(x.values.shape[:-1]), w.values.shape[1]), x.dtype)
    inputs = [("a", rows), ("b", HostArray(w.values.T, w.dtype)), *_given(("bias", "bias", bias))]
    output = x.like((rows.values.shape[0], w.values.shape[0]))
    compute("matmul", context or default_context(), fields, inputs, [("c", output)])
    output.values = output.values.reshape(*x.values.shape[:-1], w.values.shape[0])
    return returner(input)(output)
