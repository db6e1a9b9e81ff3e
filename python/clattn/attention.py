"""Attention, and its derivatives for PyTorch's autograd."""

from __future__ import annotations

import functools
import math
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from clattn._arrays import Kind, Operand, is_torch, kind_of, number, operand
from clattn._call import compute
from clattn._library import lib
from clattn.context import Context

ALIGNMENTS = {
    "top_left": lib.CLATTN_ALIGNMENT_TOP_LEFT,
    "bottom_right": lib.CLATTN_ALIGNMENT_BOTTOM_RIGHT,
    "explicit": lib.CLATTN_ALIGNMENT_EXPLICIT,
}
SCORES = {
    "raw": lib.CLATTN_SCORES_MODE_RAW,
    "capped": lib.CLATTN_SCORES_MODE_CAPPED,
    "biased": lib.CLATTN_SCORES_MODE_BIASED,
    "probabilities": lib.CLATTN_SCORES_MODE_PROBABILITIES,
}
# The members of the description that arguments are.
MEMBERS = {
    "query": "query",
    "key": "key",
    "value": "value",
    "attn_mask": "mask",
    "bias": "bias",
    "alibi_slopes": "scoring.alibi",
    "sinks": "scoring.sinks",
    "vector": "scoring.vector",
    "query_lengths": "lengths.query",
    "key_lengths": "lengths.key",
    "positions": "lengths.positions",
    "query_starts": "lengths.query_starts",
    "key_starts": "lengths.key_starts",
    "block_table": "cache.block_table",
    "key_scale": "cache.key_scale",
    "value_scale": "cache.value_scale",
}
BUFFERS = {f"user_buffers[{n}]": f"snippets.buffer.{n}" for n in range(lib.C_CLATTN_USER_BUFFERS)}
MEMBERS |= BUFFERS
HAVE_GRADIENTS = ("query", "key", "value", "attn_mask", "bias", "alibi_slopes", "sinks", "vector")


def _four(array: Operand) -> Operand:
    """An array of four dimensions or more, with all before the last three as one."""
    values = array.values
    if values.ndim == 4:
        return array
    return array.reshaped(math.prod(values.shape[:-3]), *values.shape[-3:])


def _heads(array: Operand) -> Operand:
    """(..., heads, length, size) as (batch, heads, length, size)."""
    values = array.values
    if values.ndim < 4:
        return array.view(values[(np.newaxis,) * (4 - values.ndim)])
    return _four(array)


def _mask(array: Operand, batch: tuple[int, ...]) -> Operand:
    """A mask that broadcasts to (*batch, heads, L, S), with what stands before the heads as one."""
    if array.values.ndim == 0:
        array = array.view(array.values[np.newaxis, np.newaxis])
    if array.values.ndim < 4 or (len(batch) == 1 and array.values.ndim == 4):
        return array
    return _four(array.view(np.broadcast_to(array.values, batch + array.values.shape[-3:])))


def _operands(arrays: dict[str, Any], enable_gqa: bool) -> tuple[dict[str, Operand], tuple[int, ...]]:
    """The arguments that are arrays, by their names: query, key and value of four dimensions, and of shapes that belong together.
    Also the shape that the query had."""
    made = {name: operand(value, name) for name, value in arrays.items()}
    shape = made["query"].values.shape
    starts, is_apart = made.get("query_starts"), "query_starts" in made or "key_starts" in made or "block_table" in made
    batch = shape[:-3] if starts is None else (starts.values.size - 1,)
    for name in ("query", "key", "value"):
        other = made[name].values.shape
        if len(other) < 2:
            raise ValueError(f"{name} has the shape {other}, and (..., length, size) is needed")
        if not is_apart and (other[:-3] != shape[:-3] or len(other) != len(shape)):
            raise ValueError(f"query has the shape {shape} and {name} {other}: what is before the heads differs")
        if len(other) != 4:
            made[name] = _heads(made[name])
    for name in ("key_scale", "value_scale"):
        if name in made:
            made[name] = _heads(made[name])
    for name in ("attn_mask", "bias"):
        if name in made:
            made[name] = _mask(made[name], batch)
    for name in BUFFERS:
        if name in made:
            made[name] = made[name].contiguous().reshaped(-1)
    heads, kv_heads = made["query"].values.shape[1], made["key"].values.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(f"query has {heads} heads and key {kv_heads}, which enable_gqa=True allows")
    return made, shape


def _fields(
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    window: tuple[int | None, int | None] | None,
    alignment: str,
    softcap: float,
) -> dict[str, Any]:
    """Members of the description that are no arrays."""
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment is {alignment!r}, not one of {', '.join(ALIGNMENTS)}")
    fields: dict[str, Any] = {}
    if is_causal:
        fields["causal"] = 1
    if alignment != "top_left":
        fields["alignment"] = ALIGNMENTS[alignment]
    softcap, dropout_p = number(softcap, "softcap"), number(dropout_p, "dropout_p")
    if softcap:
        fields["scoring.softcap"] = softcap
    if scale is not None:
        fields |= {"scoring.explicit_scale": 1, "scoring.scale": number(scale, "scale")}
    if window is not None:
        left, right = window
        for side, limit in (("left", left), ("right", right)):
            if limit is not None:
                fields |= {f"window.explicit_{side}": 1, f"window.{side}": limit}
    if dropout_p:
        fields["dropout.probability"] = dropout_p
    return fields


def _snippets(**texts: str | None) -> dict[str, Any]:
    """Members of the description that are the caller's own functions."""
    fields = {}
    for name, text in texts.items():
        if text is not None:
            if not isinstance(text, str):
                raise TypeError(f"{name} is {text!r}, no text")
            if "\0" in text:
                raise ValueError(f"{name} has a NUL, at which C's text would end")
            fields[f"snippets.{name}"] = text
    return fields


def _user_buffers(arrays: Sequence[Any]) -> dict[str, Any]:
    """The arrays that the caller's own functions read, by their names."""
    if not isinstance(arrays, list | tuple):
        raise TypeError("user_buffers is no list or tuple of arrays")
    if len(arrays) > lib.C_CLATTN_USER_BUFFERS:
        raise ValueError(f"there are {len(arrays)} user_buffers, and there may be {lib.C_CLATTN_USER_BUFFERS}")
    return dict(zip(BUFFERS, arrays, strict=False))


def _user_scalars(values: Sequence[float]) -> dict[str, Any]:
    """Members of the arguments that the caller's own functions read, of which those without a value are 0."""
    count = lib.C_CLATTN_USER_BUFFERS
    if len(values) > count:
        raise ValueError(f"there are {len(values)} user_scalars, and there may be {count}")
    numbers = [number(value, "user_scalars") for value in values]
    return {f"snippets.scalar.{n}": value for n, value in enumerate(numbers + [0.0] * (count - len(numbers)))}


def _forward(
    arrays: dict[str, Operand],
    shape: tuple[int, ...],
    fields: dict[str, Any],
    scalars: dict[str, Any],
    kind: Kind,
    more: Sequence[str],
    context: Context | None,
) -> list[Operand]:
    """The output and `more` results, such as "outputs.lse", for a query of such a shape."""
    query, columns = arrays["query"], arrays["value"].values.shape[3]
    rows = query.values.shape[:3]
    keys = arrays["key"].values.shape[2]
    if "block_table" in arrays:
        keys *= arrays["block_table"].values.shape[-1]
    is_packed = "query_starts" in arrays  # and there may be rows that no item owns, which attend nothing
    outputs = [("output", kind.new(query, (*rows, columns), fill=0 if is_packed else None))]
    for path in more:
        size = (keys,) if path == "outputs.scores" else ()
        nothing = -math.inf if path == "outputs.lse" else 0
        outputs.append((path, kind.new(query, (*rows, *size), lib.CLATTN_DTYPE_F32, nothing if is_packed else None)))
    inputs = [(MEMBERS[name], array) for name, array in arrays.items()]
    compute("attention", context or kind.context(), fields, inputs, outputs, scalars)
    results = [array for _, array in outputs]
    return results if len(shape) == 4 else [array.reshaped(*shape[:-1], *array.values.shape[3:]) for array in results]


def _gradients(
    options: Any, needed: Sequence[bool], tensors: list[Any], output: Any, lse: Any, d_output: Any, d_lse: Any
) -> list[Any]:
    """The gradients of PyTorch's tensors that are needed, and None for the others."""
    names, fields, scalars, enable_gqa, context = options
    arrays, _ = _operands(dict(zip(names, tensors, strict=True)), enable_gqa)
    d_output = sys.modules["torch"].zeros_like(output) if d_output is None else d_output
    rows = arrays["query"].values.shape[:3]
    inputs = [(MEMBERS[name], array) for name, array in arrays.items()]
    inputs += [(path, _heads(operand(array, path))) for path, array in (("output", output), ("gradients.output", d_output))]
    inputs.append(("outputs.lse", operand(lse, "lse").reshaped(*rows)))
    if d_lse is not None:
        inputs.append(("gradients.lse", operand(d_lse.float(), "the gradient of lse").reshaped(*rows)))
    kind = kind_of(tensors[0])
    wanted: dict[str, Operand] = {}
    fill = 0 if "query_starts" in arrays or "key_starts" in arrays else None
    for name, is_needed in zip(names, needed, strict=True):
        if is_needed:
            array = arrays[name]
            exact = name in ("query", "key", "value") or array.dtype == lib.CLATTN_DTYPE_F64
            wanted[name] = kind.new(array, array.values.shape, None if exact else lib.CLATTN_DTYPE_F32, fill)
    outputs = [(f"gradients.{MEMBERS[name].split('.')[-1]}", gradient) for name, gradient in wanted.items()]
    directed = {**fields, "direction": lib.CLATTN_DIRECTION_BACKWARD}
    compute("attention", context or kind.context(), directed, inputs, outputs, scalars)
    return [
        kind.result(wanted[name]).reshape(tensor.shape).to(tensor.dtype) if name in wanted else None
        for name, tensor in zip(names, tensors, strict=True)
    ]


@functools.cache
def _autograd() -> Any:
    """Attention as one of PyTorch's functions: apply((names of arrays, fields, scalars, enable_gqa, context), array, ...)."""
    torch = sys.modules["torch"]

    class Attention(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, options: Any, *tensors: Any) -> tuple[Any, Any]:
            names, fields, scalars, enable_gqa, context = options
            arrays, shape = _operands(dict(zip(names, tensors, strict=True)), enable_gqa)
            kind = kind_of(tensors[0])
            output, lse = _forward(arrays, shape, fields, scalars, kind, ["outputs.lse"], context)
            made = kind.result(output), kind.result(lse)
            ctx.options = options
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors, *made)
            return made

        @staticmethod
        def backward(ctx: Any, d_output: Any, d_lse: Any) -> tuple[Any, ...]:
            *tensors, output, lse = ctx.saved_tensors
            with torch.no_grad():
                gradients = _gradients(ctx.options, ctx.needs_input_grad[1:], tensors, output, lse, d_output, d_lse)
            if torch.is_grad_enabled():  # somebody may ask for derivatives of these
                there = [gradient for gradient in gradients if gradient is not None]
                refusing = iter(Once.apply(len(there), *there, *tensors))
                gradients = [None if gradient is None else next(refusing) for gradient in gradients]
            return None, *gradients

    class Once(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Gradients as they are, which refuse to be differentiated: they depend on the arrays, and nobody knows how."""

        @staticmethod
        def forward(ctx: Any, count: int, *tensors: Any) -> tuple[Any, ...]:
            return tuple(tensor.clone() for tensor in tensors[:count])

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise RuntimeError("clattn's attention has no second derivatives")

    return Attention


def _new_seed(like: Any) -> int:
    """A seed of dropout, for PyTorch's tensors by its own generator."""
    if is_torch(like):
        return int(sys.modules["torch"].randint(0, 2**63 - 1, ()))
    return secrets.randbits(64)


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
    position: int = 0,
    positions: Any = None,
    vector: Any = None,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    sinks: Any = None,
    score_mod: str | None = None,
    mask_mod: str | None = None,
    score_mod_grad: str | None = None,
    user_buffers: Sequence[Any] = (),
    user_scalars: Sequence[float] = (),
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_starts: Any = None,
    key_starts: Any = None,
    longest_query: int = 0,
    short_mask: bool = False,
    is_ring: bool = False,
    block_table: Any = None,
    key_scale: Any = None,
    value_scale: Any = None,
    seed: int | None = None,
    dropout_offset: int = 0,
    return_lse: bool = False,
    return_entropy: bool = False,
    return_scores: str | None = None,
    context: Context | None = None,
) -> Any:
    """Every query takes the mean of the values, weighted by the softmax of its scores, which are dot products with the keys.

    The arguments before `*` mean what they mean in torch.nn.functional.scaled_dot_product_attention: `query` is (..., heads, L, E),
    `key` (..., heads, S, E), `value` (..., heads, S, Ev), and the result (..., heads, L, Ev) in the type of `query`. With
    `enable_gqa` keys and values may have fewer heads, of which each serves several of the queries'. `attn_mask` is boolean (True:
    attend) or added to the scores. `scale` is 1 / sqrt(E) if it is None. Unlike there, a mask and `is_causal` go together, and a row
    that attends nothing is 0. Below, batch is the product of all that stands before the heads.

    bias           added to the scores besides the mask
    window         (left, right): key j is attended if p - left <= j <= p + right; None is no limit
    alignment      where query 0 stands for `is_causal`, `window` and `alibi_slopes`: "top_left", p = i; or "bottom_right",
                   p = i + S - L with the S and L of each item, if there are lengths; or "explicit", p = i + position + positions[b]
    position       where query 0 stands if the alignment is explicit
    positions      (batch,) integers, added to `position` in each item
    vector         (heads or 1, E) float32: scores are additive (Bahdanau's), scale * sum of vector * tanh(query + key) over E, and
                   `scale` is 1 if it is None
    softcap        scores become softcap * tanh(score / softcap)
    alibi_slopes   (heads,) or (batch, heads) float32: slope * |p - j| is subtracted from the scores
    sinks          (heads,) float32: one more logit in the softmax of each row, without a value
    score_mod      text in OpenCL C that defines a function, which changes each score after the softcap and before biases and masks:
                   float score_mod(float score, int batch, int head, int query, int key, user_data user)
    mask_mod       the same for a function that gives 0 for "do not attend":
                   int mask_mod(int batch, int head, int query, int key, user_data user)
    score_mod_grad the same for the derivative of score_mod by `score`, of its arguments; only gradients need it
    user_buffers   up to four arrays, which these functions read as user.buffer0 ... user.buffer3 in C order: float32 is float there,
                   int32 int, int64 long, boolean uchar, float16 what vload_half reads
    user_scalars   up to four numbers, which they read as user.scalar0 ... user.scalar3
    query_lengths  (batch,) integers: rows of queries beyond are 0
    key_lengths    (batch,) integers: keys beyond are not attended
    query_starts   (items + 1,) integers: packed queries, which are (heads, L, E). Item b owns rows query_starts[b] ...
                   query_starts[b + 1] - 1; rows that no item owns attend nothing. Batch is the number of items then
    key_starts     the same for packed keys and values, (heads, S, E) and (heads, S, Ev)
    longest_query  the most rows that an item has, if queries are packed, and then also the L of masks; 0 is all rows
    short_mask     a mask or bias may have fewer than S keys, and those beyond are not attended
    is_ring        keys and values are rings: key j lies in row j modulo S, key_lengths counts all keys that there ever were, and the
                   last S of them are there
    block_table    (batch, blocks) integers: `key` and `value` are pools of pages, (pages, heads, page size, E and Ev), and the table
                   says which pages are an item's. S is blocks * page size then
    key_scale      (..., heads, S, groups) float32 or float16, if `key` is int8: each number is multiplied by the scale of its group, of
                   E / groups elements that stand together. It is indexed as `key`, pages included
    value_scale    the same for `value`
    seed           of dropout; None draws one, for PyTorch's tensors by torch's own generator
    dropout_offset which of the seed's masks dropout takes, from 0: what is dropped depends on both and on the place alone
    return_lse     gives (result, log-sum-exp of each row's scores), the latter (..., heads, L) in float32
    return_entropy gives the entropy of each row's probabilities in nats, too, after the log-sum-exp and of its shape
    return_scores  gives the scores, too, as the last result, (..., heads, L, S) in float32: "raw" ones, scaled; "capped" ones, after
                   the softcap; "biased" ones, after all that is added and with -inf where a key is not attended; or "probabilities",
                   before dropout. Not of packed sequences

    The texts are trusted: they run on the device with the kernel's rights, and can read and write whatever the kernel can. Their
    `user` has more (user.position, user.key_length): docs/attention.md of the source says what, and what a text must not have.

    The result of PyTorch's tensors has a gradient by query, key, value, masks and biases that are added, slopes, sinks and the
    vector.

    >>> import numpy as np
    >>> q = k = v = np.eye(4, dtype=np.float32)
    >>> scaled_dot_product_attention(q, k, v, is_causal=True)[0].tolist()
    [1.0, 0.0, 0.0, 0.0]
    >>> scaled_dot_product_attention(q, k, v, query_starts=[0, 1, 4], key_starts=[0, 1, 4])[0].tolist()
    [1.0, 0.0, 0.0, 0.0]
    >>> output, weights = scaled_dot_product_attention(q, k, v, is_causal=True, return_scores="probabilities")
    >>> weights[0].tolist()
    [1.0, 0.0, 0.0, 0.0]
    >>> same = "int mask_mod(int batch, int head, int query, int key, user_data user) { return key == query; }"
    >>> scaled_dot_product_attention(q, k, v, mask_mod=same)[2].tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    arrays = {"query": query, "key": key, "value": value}
    for name, array in (
        ("attn_mask", attn_mask),
        ("bias", bias),
        ("alibi_slopes", alibi_slopes),
        ("sinks", sinks),
        ("vector", vector),
        ("query_lengths", query_lengths),
        ("key_lengths", key_lengths),
        ("positions", positions),
        ("query_starts", query_starts),
        ("key_starts", key_starts),
        ("block_table", block_table),
        ("key_scale", key_scale),
        ("value_scale", value_scale),
    ):
        if array is not None:
            arrays[name] = array
    fields, scalars = _fields(dropout_p, is_causal, scale, window, alignment, softcap), {}
    if longest_query:
        fields["lengths.longest_query"] = longest_query
    if vector is not None:
        fields["scoring.kind"] = lib.CLATTN_SCORE_ADDITIVE
    more = []
    if return_lse:
        more.append("outputs.lse")
    if return_entropy:
        more.append("outputs.entropy")
    if return_scores is not None:
        if return_scores not in SCORES:
            raise ValueError(f"return_scores is {return_scores!r}, not one of {', '.join(SCORES)}")
        more.append("outputs.scores")
        fields["outputs.scores_mode"] = SCORES[return_scores]
    if is_ring:
        fields["cache.kind"] = lib.CLATTN_CACHE_KIND_RING
    if block_table is not None:
        fields["cache.kind"] = lib.CLATTN_CACHE_KIND_PAGED
    if short_mask:
        fields["short_mask"] = 1
    if dropout_p:
        scalars["dropout.seed"] = _new_seed(query) if seed is None else seed
        scalars["dropout.offset"] = dropout_offset
    if alignment == "explicit":
        scalars["position"] = position
    elif position:
        raise ValueError(f"position is {position}, which counts with the alignment 'explicit'")
    if score_mod is not None or mask_mod is not None or score_mod_grad is not None or len(user_buffers):
        fields |= _snippets(score_mod=score_mod, mask_mod=mask_mod, score_mod_grad=score_mod_grad)
        scalars |= _user_scalars(user_scalars)
        arrays |= _user_buffers(user_buffers)
    if is_torch(query) and sys.modules["torch"].is_grad_enabled():
        needed = [name for name, array in arrays.items() if getattr(array, "requires_grad", False)]
        if needed:
            for name in needed:
                if name not in HAVE_GRADIENTS:
                    raise ValueError(f"{name} requires a gradient, which there is not: use .detach()")
            without = {"return_entropy": return_entropy, "return_scores": return_scores, "is_ring": is_ring}
            for name in ("block_table", "key_scale", "value_scale"):
                without[name] = name in arrays
            for name, is_there in without.items():
                if is_there:
                    raise ValueError(f"attention with {name} has no gradient: use torch.no_grad()")
            if score_mod is not None and score_mod_grad is None:
                raise ValueError("score_mod has a gradient if there is a score_mod_grad: give it, or use torch.no_grad()")
            arrays = {name: sys.modules["torch"].as_tensor(array) for name, array in arrays.items()}
            for name in ("attn_mask", "bias"):  # whose gradient is then expand's to add up
                if name in needed and query_starts is None and query.ndim > 4 and arrays[name].ndim > 3:
                    arrays[name] = arrays[name].expand(*query.shape[:-3], *arrays[name].shape[-3:])
            options = (tuple(arrays), fields, scalars, enable_gqa, context)
            pair = _autograd().apply(options, *arrays.values())
            return pair if return_lse else pair[0]
    (made, shape), kind = _operands(arrays, enable_gqa), kind_of(query)
    results = [kind.result(array) for array in _forward(made, shape, fields, scalars, kind, more, context)]
    return tuple(results) if more else results[0]


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    out_proj_weight: Any,
    out_proj_bias: Any = None,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    need_weights: bool = False,
    average_attn_weights: bool = True,
    *,
    context: Context | None = None,
) -> Any:
    """Attention between projections, by the weights of torch.nn.MultiheadAttention, whose batch comes first.

    `query` is (batch, L, d), `key` and `value` are (batch, S, d), or the same object as `query`. `in_proj_weight` is (3 d, d) for
    query, key and value, `in_proj_bias` (3 d,) or None, `out_proj_weight` (d, d). `attn_mask` is that of
    scaled_dot_product_attention (True: attend, unlike in that module), (batch, heads, L, S) or what broadcasts to it. The result is
    (batch, L, d); with `need_weights` it is (result, probabilities), which are (batch, L, S), or (batch, heads, L, S) unless
    `average_attn_weights`.

    >>> import numpy as np
    >>> x, one = np.ones((1, 2, 4), np.float32), np.eye(4, dtype=np.float32)
    >>> multi_head_attention(x, x, x, 2, np.concatenate([one] * 3), None, one)[0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    named = {"x": query}
    if key is not query or value is not query:
        named["context"] = key
        if value is not key:
            named["context_value"] = value
    named |= {"w_in": in_proj_weight, "b_in": in_proj_bias, "w_o": out_proj_weight, "b_o": out_proj_bias}
    inputs = [(name, operand(array, name).contiguous()) for name, array in named.items() if array is not None]
    arrays = {name: array.values for name, array in inputs}
    x = inputs[0][1]
    if x.values.ndim != 3 or any(arrays[name].ndim != 3 for name in ("context", "context_value") if name in arrays):
        raise ValueError(
            f"query, key and value have the shapes {[a.shape for a in arrays.values()][:3]}, not (batch, length, d)"
        )
    batch, rows, d = x.values.shape
    keys = arrays["context"].shape[1] if "context" in arrays else rows
    expected = {"context": (batch, keys, d), "context_value": (batch, keys, d), "w_in": (3 * d, d), "b_in": (3 * d,)}
    expected |= {"w_o": (d, d), "b_o": (d,)}
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape:
            raise ValueError(f"{name} has the shape {arrays[name].shape}, expected {shape}")
        if name in arrays and dict(inputs)[name].dtype != x.dtype:
            raise TypeError(f"{name} is of another type than query")
    fields: dict[str, Any] = {"dtype": x.dtype, "packed_weights": 1, "heads": num_heads, "batch": batch, "query_length": rows}
    fields |= {"d_model": d, "causal": int(is_causal), "bias_in": int("b_in" in arrays), "bias_out": int("b_o" in arrays)}
    if "context" in arrays:
        fields |= {"cross": 1, "key_length": keys, "d_context": d}
    if "context_value" in arrays:
        fields["d_context_value"] = d
    if scale is not None:
        fields |= {"explicit_scale": 1, "scale": number(scale, "scale")}
    if attn_mask is not None:
        inputs.append(("mask", operand(attn_mask, "attn_mask")))
    kind = kind_of(query)
    outputs = [("y", kind.new(x, (batch, rows, d)))]
    if need_weights:
        fields["weights"] = lib.CLATTN_WEIGHTS_OUTPUT_AVERAGE if average_attn_weights else lib.CLATTN_WEIGHTS_OUTPUT_PER_HEAD
        shape = (batch, rows, keys) if average_attn_weights else (batch, num_heads, rows, keys)
        outputs.append(("weights", kind.new(x, shape, lib.CLATTN_DTYPE_F32)))
    compute("mha", context or kind.context(), fields, inputs, outputs)
    results = tuple(kind.result(array) for _, array in outputs)
    return results if need_weights else results[0]
