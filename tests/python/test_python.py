"""The Python package, installed: what it computes against NumPy in float64 (and PyTorch, if it is there), what it refuses.

CLATTN_TEST_LEVEL=full draws 500 calls of attention in place of 12; CLATTN_TEST_SEED draws others."""

import contextlib
import doctest
import inspect
import math
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
import types
import unittest
import warnings

import clattn
import numpy as np

try:
    import pyopencl
    import pyopencl.array
except ImportError:
    pyopencl = None
try:
    import torch
except ImportError:
    torch = None

SEED = int(os.environ.get("CLATTN_TEST_SEED", "20261128"))
DRAWS = 500 if os.environ.get("CLATTN_TEST_LEVEL") == "full" else 12
EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "float64": 2.0**-52}


def item_numbers(shape, item):
    """The numbers of the items of scores, which are (..., heads, queries, keys), from `item` on."""
    return item + np.arange(math.prod(shape[:-3])).reshape(*shape[:-3], 1, 1, 1)


def dropped(shape, item, probability, seed, offset):
    """What dropout multiplies weights of a shape (..., heads, queries, keys) by, by the C library's own word for it."""
    keep, places = clattn._library.lib.clattn_dropout_keep, np.ndindex(math.prod(shape[:-3]), *shape[-3:])
    kept = [keep(seed, offset, probability, shape[-3], item + batch, *place) for batch, *place in places]
    return np.array(kept).reshape(shape) / (1 - probability)


def expected_attention(
    query,
    key,
    value,
    *,
    mask=None,
    bias=None,
    causal=False,
    scale=None,
    vector=None,
    window=None,
    shift=0,
    softcap=0.0,
    score_mod=None,
    mask_mod=None,
    slopes=None,
    sinks=None,
    query_lengths=None,
    key_lengths=None,
    dropout=None,
    item=0,
    scores=None,
):
    """Attention in float64 as docs/numerics.md defines it, and its log-sum-exp.

    Lengths and `shift` broadcast to the scores. `score_mod` and `mask_mod` are functions of arrays, `dropout` has the probability,
    the seed and the offset; `item`: the number of the first item. `scores`: a dictionary that gets the entropy and the four kinds
    of scores by their names."""
    query, key, value = (array.astype(np.float64) for array in (query, key, value))
    groups = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(array, groups, axis=-3) for array in (key, value))
    if vector is None:
        score = query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    else:
        sums = np.tanh(query[..., None, :] + key[..., None, :, :])
        score = (sums * vector[:, None, None]).sum(-1) * (1 if scale is None else scale)
    raw = score
    if softcap:
        score = softcap * np.tanh(score / softcap)
    capped = score
    index = item_numbers(score.shape, item), *np.ogrid[: score.shape[-3], : score.shape[-2], : score.shape[-1]]
    rows, keys = index[2:]
    position = rows + shift
    if score_mod is not None:
        score = score_mod(score, *index)
    if slopes is not None:
        score = score - slopes[:, None, None] * abs(position - keys)
    attended = np.ones(score.shape, bool)
    for added in (bias, mask):
        if added is not None and added.dtype == bool:
            attended &= added
        elif added is not None:
            score = score + added
    if causal:
        attended &= keys <= position
    if window is not None:
        left, right = window
        attended &= True if left is None else keys >= position - left
        attended &= True if right is None else keys <= position + right
    if mask_mod is not None:
        attended &= mask_mod(*index)
    for place, lengths in ((rows, query_lengths), (keys, key_lengths)):
        if lengths is not None:
            attended &= place < lengths
            raw, capped = (np.where(place < lengths, array, 0) for array in (raw, capped))
    score = np.where(attended, score, -np.inf)
    sink = np.full(score.shape[-3], -np.inf) if sinks is None else sinks
    sink = np.broadcast_to(sink[:, None, None], (*score.shape[:-1], 1))
    largest = np.maximum(score.max(-1, keepdims=True), sink)
    largest[np.isneginf(largest)] = 0
    weights = np.exp(score - largest)
    total = weights.sum(-1, keepdims=True) + np.exp(sink - largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights, lse = np.where(total > 0, weights / total, 0), (np.log(total) + largest)[..., 0]
    if scores is not None:
        entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)
        scores.update(raw=raw, capped=capped, biased=score, probabilities=weights, entropy=entropy)
    return (weights if dropout is None else weights * dropped(weights.shape, item, *dropout)) @ value, lse


def torch_attention(query, key, value, **meaning):
    """The same by PyTorch in float64: by its own function, with whatever is added or selected as its mask, unless scores change
    otherwise, have a sink or are dropped; then by its operations."""
    given = inspect.signature(expected_attention).bind(query, key, value, **meaning)
    given.apply_defaults()
    m = types.SimpleNamespace(**given.arguments)

    def tensor(array):
        return torch.from_numpy(np.array(array))  # a copy, which it may write to

    q, k, v = (tensor(array).double() for array in (query, key, value))
    groups, heads = q.shape[-3] // k.shape[-3], q.shape[-3]
    own = torch.nn.functional.scaled_dot_product_attention
    others = (
        m.bias,
        m.vector,
        m.window,
        m.softcap or None,
        m.score_mod,
        m.mask_mod,
        m.slopes,
        m.sinks,
        m.query_lengths,
        m.key_lengths,
        m.dropout,
    )
    is_plain = all(other is None for other in others) and (m.mask is None or not m.causal) and not np.any(m.shift)
    k, v = (array.repeat_interleave(groups, -3) for array in (k, v))
    if m.vector is None:
        score = torch.einsum("...id,...jd->...ij", q, k) * (q.shape[-1] ** -0.5 if m.scale is None else m.scale)
    else:
        factor = tensor(m.vector).double()[:, None, None] * (1 if m.scale is None else m.scale)
        score = ((q.unsqueeze(-2) + k.unsqueeze(-3)).tanh() * factor).sum(-1)
    if m.softcap:
        score = torch.tanh(score / m.softcap) * m.softcap
    index = item_numbers(score.shape, m.item), *np.ogrid[:heads, : score.shape[-2], : score.shape[-1]]
    distance = tensor(index[3] - index[2] - m.shift)
    if m.score_mod is not None:
        score = tensor(m.score_mod(score.numpy(), *index))
    added = torch.zeros(score.shape, dtype=torch.float64)
    for array in (m.mask, m.bias):
        if array is not None:
            array = tensor(array)
            added = added.masked_fill(~array, -torch.inf) if array.dtype == torch.bool else added + array.double()
    if m.slopes is not None:
        added = added - tensor(m.slopes).double()[:, None, None] * distance.abs()
    left, right = (None, None) if m.window is None else m.window
    for excluded in (
        distance > 0 if m.causal else None,
        None if left is None else distance < -left,
        None if right is None else distance > right,
        None if m.mask_mod is None else tensor(~m.mask_mod(*index)),
        None if m.query_lengths is None else tensor(index[2] >= m.query_lengths),
        None if m.key_lengths is None else tensor(index[3] >= m.key_lengths),
    ):
        if excluded is not None:
            added = added.masked_fill(excluded, -torch.inf)
    sink = torch.full((heads,), -torch.inf) if m.sinks is None else tensor(m.sinks)
    logits = torch.cat([score + added, sink.double()[:, None, None].expand(*score.shape[:-1], 1)], -1)
    lse = logits.logsumexp(-1)
    if is_plain:
        given = None if m.mask is None else tensor(m.mask)
        given = given if given is None or given.dtype == torch.bool else given.double()
        output = own(q, k, v, given, is_causal=m.causal, scale=m.scale)
    elif all(other is None for other in (m.vector, m.softcap or None, m.score_mod, m.sinks, m.dropout)):
        output = own(q, k, v, added, scale=m.scale)
    else:
        weights = logits.softmax(-1)[..., :-1].masked_fill(torch.isneginf(lse)[..., None], 0)
        output = (weights if m.dropout is None else weights * tensor(dropped(weights.shape, m.item, *m.dropout))) @ v
    return output.numpy(), lse.numpy()


def expected_packed(
    query,
    key,
    value,
    query_starts=None,
    key_starts=None,
    *,
    longest=0,
    mask=None,
    bias=None,
    shift=0,
    query_lengths=None,
    key_lengths=None,
    by=expected_attention,
    **more,
):
    """The same of packed sequences, or of sequences one of which is packed, item by item.

    Packed arrays are (heads, length, size), the others (items, heads, length, size), masks of four dimensions; `shift` is one
    for all, or of each item, or "bottom_right"."""

    def part(array, starts, b):
        return array[b] if starts is None else array[:, starts[b] : starts[b + 1]]

    items = len(key_starts if query_starts is None else query_starts) - 1
    output, lse = np.zeros((*query.shape[:-1], value.shape[-1])), np.full(query.shape[:-1], -np.inf)
    for b in range(items):
        q, k, v = part(query, query_starts, b), part(key, key_starts, b), part(value, key_starts, b)
        q = q[:, : longest or None]
        rows, keys = q.shape[1], k.shape[1]
        its_rows = rows if query_lengths is None else min(rows, query_lengths[b])
        its_keys = keys if key_lengths is None else min(keys, key_lengths[b])
        for name, array in (("mask", mask), ("bias", bias)):
            if array is not None:
                more[name] = np.broadcast_to(array, (items, *array.shape[1:]))[b, :, :rows, :keys]
        if isinstance(shift, str):
            more["shift"] = its_keys - its_rows
        else:
            more["shift"] = np.broadcast_to(shift, items)[b]
        if rows and not keys:  # nothing is attended, but the sinks are there
            part(lse, query_starts, b)[:, :rows] = more["sinks"][:, None] if more.get("sinks") is not None else -np.inf
        elif rows:
            found = by(q, k, v, query_lengths=its_rows, key_lengths=its_keys, item=b, **more)
            for whole, one in zip((output, lse), found, strict=True):
                part(whole, query_starts, b)[:, :rows] = one
    return output, lse


# Texts of functions, and what they say of arrays, with the buffers: numbers of heads, and of items.
SCORE_MODS = [
    (
        "return score + user.buffer0[head] * user.scalar0;",
        lambda score, batch, head, query, key, buffers, scalar: score + buffers[0][head] * scalar,
    ),
    (
        "return score * user.scalar0 + 0.125f * ((query + 2 * key) % 3) - user.buffer1[batch];",
        lambda score, batch, head, query, key, buffers, scalar: (
            score * scalar + 0.125 * ((query + 2 * key) % 3) - buffers[1][batch]
        ),
    ),
]
ARGUMENTS = "int batch, int head, int query, int key, user_data user"
DRAWN_SCORE_MOD = "float score_mod(float score, " + ARGUMENTS + ") { %s }"
DRAWN_MASK_MOD = "int mask_mod(" + ARGUMENTS + ") { return (query + key) % 4 != user.buffer1[batch]; }"


class Comparison(unittest.TestCase):
    def close(self, result, expected, size=1.0, what="", epsilon=0.0):
        """As far apart as rounding, of sums of a few hundred terms of about `size`, lets them be."""
        self.assertEqual(result.shape, expected.shape)
        epsilon = max(epsilon, EPSILON[result.dtype.name])
        np.testing.assert_allclose(result, expected, rtol=32 * epsilon, atol=32 * epsilon * size, err_msg=what)


class Attention(Comparison):
    def draw(self, random):
        """Arrays and arguments of a call, and those of its expectation."""
        ndim, dtype = int(random.integers(2, 6)), random.choice(["float32", "float32", "float16", "float64"])
        kv_heads, groups = (int(n) for n in random.integers(1, 4, 2)) if ndim > 2 else (1, 1)
        batch = tuple(int(n) for n in random.integers(1, 3, max(ndim - 3, 0)))
        rows, keys = (int(n) for n in random.integers(1, 40, 2))
        size, value_size = (int(n) for n in random.choice([8, 16, 33, 64], 2))

        def array(heads, length, columns):
            shape = (*batch, heads, length, columns) if ndim > 2 else (length, columns)
            form = random.integers(3)
            values = random.standard_normal(shape)
            if form == 1:  # the order (batch, length, heads, size) in memory
                values = np.moveaxis(np.ascontiguousarray(np.moveaxis(values, -2, -min(ndim, 3))), -min(ndim, 3), -2)
            if form == 2:  # backwards, with gaps
                values = np.repeat(values[..., ::-1, :], 2, axis=-1)[..., ::-1, ::2]
            return values.astype(dtype)

        heads = kv_heads * groups
        arrays = array(heads, rows, size), array(kv_heads, keys, size), array(kv_heads, keys, value_size)
        call, expected = {"enable_gqa": groups > 1}, {}

        def given(name, value, expected_name=None, expected_value=None):
            call[name] = value
            expected[expected_name or name] = value if expected_value is None else expected_value

        items, is_packed = math.prod(batch), ndim == 3 and random.random() < 0.5
        if is_packed:
            items, longest = int(random.integers(1, 4)), int(random.integers(0, rows + 1))
            given("query_starts", np.sort(random.integers(0, rows + 1, items + 1)).astype(np.int32))
            given("key_starts", np.sort(random.integers(0, keys + 1, items + 1)))
            given("longest_query", longest, "longest")

        def each(values):
            """Numbers of the items, so that they broadcast to scores."""
            return values if is_packed else values.reshape(*batch, 1, 1, 1)

        mask_shape = (random.choice([1, items]), 1, longest or rows, keys) if is_packed else (rows, keys)
        mask_dtype = np.float32 if dtype != "float64" else dtype
        if random.random() < 0.3:
            given("is_causal", True, "causal")
        if random.random() < 0.3:
            given("attn_mask", random.random(mask_shape) < 0.7, "mask")
        elif random.random() < 0.3:
            given("attn_mask", random.standard_normal(mask_shape).astype(mask_dtype), "mask")
        if "mask" in expected and keys > 2 and random.random() < 0.2:
            few = int(random.integers(2, keys))
            absent = False if expected["mask"].dtype == bool else -np.inf
            expected["mask"] = np.where(np.arange(keys) < few, expected["mask"], absent)
            call |= {"attn_mask": call["attn_mask"][..., :few], "short_mask": True}
        if random.random() < 0.2:
            given("bias", random.standard_normal(mask_shape).astype(mask_dtype))
        if random.random() < 0.2:
            given("scale", float(random.choice(np.float32([0.3, 0.0, -0.25]))))
        if random.random() < 0.1:
            given("vector", (random.standard_normal((random.choice([1, heads]), size)) / size**0.5).astype(np.float32))
        if random.random() < 0.2:
            given("window", (3, None) if random.random() < 0.5 else (None, 5))
        if random.random() < 0.2:
            given("softcap", 0.75)
        if random.random() < 0.2:
            given("alibi_slopes", random.random(heads).astype(np.float32), "slopes")
        if random.random() < 0.2:
            given("sinks", random.standard_normal(heads).astype(np.float32))
        for name, most in (("key_lengths", keys), ("query_lengths", rows)):
            if random.random() < 0.15:
                lengths = random.integers(0, most + 1, items)
                given(name, lengths, expected_value=each(lengths))
        form = random.random()
        if form < 0.2:
            shift = expected.get("key_lengths", keys) - expected.get("query_lengths", rows)  # each item's own
            given("alignment", "bottom_right", "shift", "bottom_right" if is_packed else shift)
        elif form < 0.3:
            position, positions = int(random.integers(-3, 9)), random.integers(-3, 9, items).astype(np.int32)
            given("positions", positions, "shift", position + each(positions))
            call |= {"alignment": "explicit", "position": position}
        if random.random() < 0.2:
            probability, seed, offset = (0.25, 0.5)[random.integers(2)], int(random.integers(2**63)), int(random.integers(9))
            given("dropout_p", probability, "dropout", (probability, seed, offset))
            call |= {"seed": seed, "dropout_offset": offset}
        form = random.integers(8)
        if form < 3:  # a function of scores, one of masks, or both
            buffers, scalar = (random.random(heads).astype(np.float32), random.integers(0, 4, items)), 0.75
            call |= {"user_buffers": buffers, "user_scalars": [scalar]}
            if form < 2:
                text, change = SCORE_MODS[random.integers(2)]
                given("score_mod", DRAWN_SCORE_MOD % text, None, lambda *values: change(*values, buffers, scalar))
            if form > 0:
                given("mask_mod", DRAWN_MASK_MOD, None, lambda b, head, query, key: (query + key) % 4 != buffers[1][b])
        if random.random() < 0.2:
            call["return_entropy"] = True
        if random.random() < 0.2 and not is_packed:
            call["return_scores"] = str(random.choice(["raw", "capped", "biased", "probabilities"]))
        return arrays, call, expected

    def test_draws(self):
        random = np.random.default_rng(SEED)
        for number in range(DRAWS):
            arrays, call, expected = self.draw(random)
            what = f"draw {number} of seed {SEED}: {[array.shape for array in arrays]} {arrays[0].dtype} {call}"
            # A score_mod is of floats.
            epsilon = EPSILON["float32"] if "score_mod" in call else 0.0
            result, lse, *others = clattn.scaled_dot_product_attention(*arrays, **call, return_lse=True)
            self.assertEqual((result.dtype, lse.dtype), (arrays[0].dtype, np.float32))
            if arrays[0].ndim == 2:
                arrays = [array[None] for array in arrays]
            scores = {}
            for by in (expected_attention, torch_attention) if torch else (expected_attention,):
                if "query_starts" in call:
                    output, log_sum_exp = expected_packed(*arrays, **expected, by=by)
                else:
                    output, log_sum_exp = by(*arrays, **expected, scores=scores)
                self.close(result, output.reshape(result.shape), 4, what, epsilon)
                self.close(lse, log_sum_exp.reshape(lse.shape), 16, what)
            for name in ("entropy", call.get("return_scores")):
                if name in scores and (name != "entropy" or "return_entropy" in call):
                    found = others.pop(0)
                    self.close(found, scores[name].reshape(found.shape), 16, what)

    def test_masks_of_every_shape(self):
        random = np.random.default_rng(SEED)
        q = random.standard_normal((2, 3, 2, 4, 8)).astype(np.float32)
        for shape in ((), (4,), (4, 1), (2, 4, 4), (3, 1, 4, 4), (2, 1, 1, 1, 4), (1, 3, 2, 4, 1)):
            mask = random.standard_normal(shape).astype(np.float32)
            result = clattn.scaled_dot_product_attention(q, q, q, mask)
            self.close(result, expected_attention(q, q, q, mask=mask)[0], 4, str(shape))
        with self.assertRaises(ValueError):
            clattn.scaled_dot_product_attention(q, q, q, np.ones((6, 1, 4, 4), bool))

    def test_lists(self):
        rows = [[1.0, 0.0], [0.0, 1.0]]
        result = clattn.scaled_dot_product_attention(rows, rows, rows)
        self.close(result, expected_attention(*[np.array([rows])] * 3)[0][0].astype(np.float32), 4)

    def test_nothing(self):
        q = np.ones((1, 2, 3, 4), np.float32)
        self.assertTrue((clattn.scaled_dot_product_attention(q, q[:, :, :0], q[:, :, :0]) == 0).all())
        for empty in (q[:0], q[:, :, :0]):
            self.assertEqual(clattn.scaled_dot_product_attention(empty, q[: len(empty)], q[: len(empty)]).shape, empty.shape)

    def test_dropout(self):
        q = np.random.default_rng(SEED).standard_normal((1, 2, 64, 16)).astype(np.float32)
        first, same, other = (clattn.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, same)
        self.assertTrue((first != other).any())
        for offset in (0, 3):
            found = clattn.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=1, dropout_offset=offset)
            self.close(found, expected_attention(q, q, q, dropout=(0.5, 1, offset))[0], 8)
            self.assertEqual(bool((found == first).all()), offset == 0)
        self.assertTrue((clattn.scaled_dot_product_attention(q, q, q, dropout_p=0.5) != first).any())

    def test_positions(self):
        q = np.random.default_rng(SEED).standard_normal((3, 2, 5, 8)).astype(np.float32)
        more = {"is_causal": True, "alignment": "explicit"}
        for position, positions in ((2, None), (0, None), (-1, [0, 3, -2])):
            each = 0 if positions is None else np.array(positions)[:, None, None, None]
            found = clattn.scaled_dot_product_attention(q, q, q, **more, position=position, positions=positions)
            self.close(found, expected_attention(q, q, q, causal=True, shift=position + each)[0], 4)
        with self.assertRaisesRegex(ValueError, "position is 2, which counts with"):
            clattn.scaled_dot_product_attention(q, q, q, position=2)
        with self.assertRaisesRegex(ValueError, "lengths.positions without"):
            clattn.scaled_dot_product_attention(q, q, q, positions=[1, 2, 3])
        with self.assertRaises(OverflowError):
            clattn.scaled_dot_product_attention(q, q, q, **more, position=2**70)

    def test_additive_scores(self):
        random = np.random.default_rng(SEED)
        q, k, v = (random.standard_normal((2, 2, length, 8)).astype(np.float32) for length in (5, 7, 7))
        for heads, scale in ((1, None), (2, 0.5)):
            vector = random.standard_normal((heads, 8)).astype(np.float32)
            found = clattn.scaled_dot_product_attention(q, k, v, vector=vector, scale=scale)
            self.close(found, expected_attention(q, k, v, vector=vector, scale=scale)[0], 4)
        with self.assertRaisesRegex(ValueError, "scoring.vector"):
            clattn.scaled_dot_product_attention(q, k, v, vector=vector[0])

    def test_scores(self):
        random = np.random.default_rng(SEED)
        q, k, v = (random.standard_normal((2, 3, 2, length, 8)).astype(np.float32) for length in (5, 7, 7))
        slopes, expected = np.float32([0.5, 0.25]), {}
        expected_attention(q, k, v, causal=True, softcap=1.5, slopes=slopes, scores=expected)
        more = {"is_causal": True, "softcap": 1.5, "alibi_slopes": slopes}
        for kind, place in (("raw", ()), ("capped", (1, 2)), ("biased", ()), ("probabilities", (1, 2))):
            result, lse, entropy, scores = clattn.scaled_dot_product_attention(
                *(q[place], k[place], v[place]), **more, return_lse=True, return_entropy=True, return_scores=kind
            )
            self.assertEqual((result.shape, lse.shape), (q[place].shape, q[place].shape[:-1]))
            self.close(entropy, expected["entropy"][place], 4)
            self.close(scores, expected[kind][place], 4)
        result, scores = clattn.scaled_dot_product_attention(
            *(array[0, 0, 0].astype(np.float64) for array in (q, k, v)), return_scores="raw"
        )
        self.assertEqual((result.dtype, scores.dtype), (np.float64, np.float32))
        self.close(scores, expected["raw"][0, 0, 0], 4)
        with self.assertRaisesRegex(ValueError, "return_scores is 'logits', not one of raw"):
            clattn.scaled_dot_product_attention(q, k, v, return_scores="logits")
        with self.assertRaisesRegex(NotImplementedError, "not for packed"):
            clattn.scaled_dot_product_attention(*[q[0, 0]] * 3, query_starts=[0, 5], key_starts=[0, 5], return_scores="raw")

    def test_inputs_stay(self):
        q = np.random.default_rng(SEED).standard_normal((1, 2, 5, 8)).astype(np.float32)
        q.flags.writeable, before = False, q.copy()
        clattn.scaled_dot_product_attention(q, q, q)
        np.testing.assert_array_equal(q, before)

    def test_sixteen_threads(self):
        random = np.random.default_rng(SEED)
        q, k, v = (random.standard_normal((16, 2, 9, 16)).astype(np.float32) for _ in range(3))
        expected, wrong = expected_attention(q, k, v)[0], []

        def work(n):
            for _ in range(20):
                result = clattn.scaled_dot_product_attention(q[n], k[n], v[n])
                if not np.allclose(result, expected[n], atol=1e-5):
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Packed(Comparison):
    def setUp(self):
        random = np.random.default_rng(SEED)
        self.q, self.k, self.v = (
            random.standard_normal((heads, length, 8)).astype(np.float32) for heads, length in ((4, 14), (2, 12), (2, 12))
        )
        self.mask = random.standard_normal((3, 1, 6, 12)).astype(np.float32)
        self.starts = {"query_starts": np.array([1, 4, 4, 12], np.int32), "key_starts": [0, 5, 7, 12]}

    def test_sequences(self):
        more = {"enable_gqa": True, "longest_query": 6, "return_lse": True}
        expected = expected_packed(self.q, self.k, self.v, **self.starts, longest=6, mask=self.mask)
        for context in (None, clattn.Context()):
            if context:
                context.shares_memory = False
            result = clattn.scaled_dot_product_attention(
                self.q, self.k, self.v, self.mask, **self.starts, **more, context=context
            )
            for found, other in zip(result, expected, strict=True):
                self.close(found, other, 4)
                self.assertTrue((found[:, [0, 10, 11, 12, 13]] == other[:, [0, 10, 11, 12, 13]]).all())
        result = clattn.scaled_dot_product_attention(
            self.q[None], self.k, self.v[None, None], **self.starts, **more, is_causal=True, alignment="bottom_right"
        )
        expected = expected_packed(*(self.q, self.k, self.v), **self.starts, longest=6, causal=True, shift="bottom_right")
        for found, other in zip(result, expected, strict=True):
            self.close(found.reshape(other.shape), other, 4)

    def test_one_of_both(self):
        queries, keys = self.q[:, :12].reshape(4, 3, 4, 8).swapaxes(0, 1), self.k.reshape(2, 3, 4, 8).swapaxes(0, 1)
        starts = {"key_starts": self.starts["key_starts"]}
        found = clattn.scaled_dot_product_attention(queries, self.k, self.v, **starts, enable_gqa=True)
        self.close(found, expected_packed(queries, self.k, self.v, **starts)[0], 4)
        starts = {"query_starts": self.starts["query_starts"]}
        found = clattn.scaled_dot_product_attention(self.q, keys, keys, **starts, enable_gqa=True)
        self.close(found, expected_packed(self.q, keys, keys, **starts)[0], 4)

    def test_short_mask(self):
        q = self.q[None]
        mask = self.mask[:1, :, :1, :5]
        with self.assertRaisesRegex(ValueError, "fewer keys"):
            clattn.scaled_dot_product_attention(q, q, q, mask)
        found = clattn.scaled_dot_product_attention(q, q, q, mask, short_mask=True)
        self.close(found, expected_attention(q, q[:, :, :5], q[:, :, :5], mask=mask)[0], 4)

    def test_refused(self):
        q, f = self.q, clattn.scaled_dot_product_attention
        for words, more in (
            ("batch 1", {"query_starts": [0, 1], "query": np.stack([q, q])}),
            ("query and key differ in batch", {"query_starts": [0, 1, 2]}),
            ("is above S_q", {**self.starts, "longest_query": 15}),
            ("longest_query without", {"longest_query": 2}),
            ("int32 or int64", {"query_starts": [0.0, 1.0], "key_starts": [0, 1]}),
            ("has 0 dimensions", {"query_starts": 0}),
        ):
            with self.assertRaisesRegex(ValueError, words):
                f(**{"query": q, "key": q, "value": q, **more})

    @unittest.skipIf(torch is None, "no PyTorch here")
    def test_gradients(self):
        arrays = [torch.tensor(array, requires_grad=True) for array in (self.q, self.k, self.v, self.mask)]
        result = clattn.scaled_dot_product_attention(*arrays, **self.starts, enable_gqa=True, longest_query=6)
        weights = torch.tensor(np.random.default_rng(SEED).standard_normal(result.shape))
        found = torch.autograd.grad((result * weights).sum(), arrays)
        loss, starts = 0, (self.starts["query_starts"].tolist(), self.starts["key_starts"])
        for b, (first, end, key, key_end) in enumerate(zip(*[s[n : n + 3] for s in starts for n in (0, 1)], strict=True)):
            rows = min(6, end - first)
            q, (k, v) = arrays[0][:, first : first + rows], (array[:, key:key_end] for array in arrays[1:3])
            mask = arrays[3][b, :, :rows, : key_end - key].double()
            q, k, v = q.double(), *(array.double().repeat_interleave(2, 0) for array in (k, v))
            output = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
            loss += (output * weights[:, first : first + rows]).sum()
        for one, other in zip(found, torch.autograd.grad(loss, arrays), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class Caches(Comparison):
    """Rings, pages, and keys and values that are int8."""

    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def array(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def test_ring(self):
        q, k, v = self.array(2, 2, 3, 8), self.array(2, 2, 11, 8), self.array(2, 2, 11, 8)
        rings = [np.zeros((2, 2, 6, 8), np.float32) for _ in range(2)]
        lengths = [11, 4]
        for ring, array in zip(rings, (k, v), strict=True):
            for item, length in enumerate(lengths):
                for n in range(length):
                    ring[item, :, n % 6] = array[item, :, n]
        more = {"is_causal": True, "alignment": "bottom_right"}
        found = clattn.scaled_dot_product_attention(q, *rings, **more, is_ring=True, key_lengths=lengths)
        each = np.array(lengths)[:, None, None, None]
        held = np.arange(11) >= each - 6  # the others have been overwritten
        expected = expected_attention(q, k, v, causal=True, shift=each - 3, key_lengths=each, mask=held)[0]
        self.close(found, expected, 4)

    def test_pages(self):
        q, k, v = self.array(2, 4, 3, 8), self.array(2, 2, 12, 8), self.array(2, 2, 12, 8)
        table = np.array([[5, 0, 2], [1, 4, 6]], np.int32)
        pools = [self.array(7, 2, 4, 8) for _ in range(2)]
        for pool, array in zip(pools, (k, v), strict=True):
            pool[table] = array.reshape(2, 2, 3, 4, 8).swapaxes(1, 2)
        lengths, scores = np.array([12, 5]), {}
        found, weights = clattn.scaled_dot_product_attention(
            q, *pools, enable_gqa=True, block_table=table, key_lengths=lengths, return_scores="probabilities"
        )
        expected = expected_attention(q, k, v, key_lengths=lengths[:, None, None, None], scores=scores)[0]
        self.close(found, expected, 4)
        self.close(weights, scores["probabilities"], 4)
        with self.assertRaisesRegex(ValueError, "cache.block_table"):
            clattn.scaled_dot_product_attention(q, *pools, enable_gqa=True, block_table=table[:1])

    def test_integers(self):
        for place in ((), (0, 0)):
            q, k, v = (self.array(2, 3, length, 8) for length in (4, 5, 5))
            integers = [self.random.integers(-127, 128, (2, 3, 5, 8)).astype(np.int8) for _ in range(2)]
            scales = abs(self.array(2, 3, 5, 2)) / 64, (abs(self.array(2, 3, 5, 1)) / 64).astype(np.float16)
            k, v = (
                array * scale.astype(np.float32).repeat(8 // scale.shape[-1], -1)
                for array, scale in zip(integers, scales, strict=True)
            )
            found = clattn.scaled_dot_product_attention(
                *(q[place], *(array[place] for array in integers)), key_scale=scales[0][place], value_scale=scales[1][place]
            )
            self.close(found, expected_attention(q, k, v)[0][place], 8)
        with self.assertRaisesRegex(ValueError, "cache.key_scale and cache.value_scale come with int8"):
            clattn.scaled_dot_product_attention(q, *integers)


SCORE_MOD = """
float tilt(int query, int key) { return 0.25f * ((query + 2 * key) % 3); }
float score_mod(float score, int batch, int head, int query, int key, user_data user)
{
    return score * user.scalar1 + user.buffer0[head] * vload_half(key, user.buffer2) + tilt(query, key) - user.scalar0 * batch;
}"""
SCORE_MOD_GRAD = """
float score_mod_grad(float score, int batch, int head, int query, int key, user_data user) { return user.scalar1; }"""
MASK_MOD = """
int mask_mod(int batch, int head, int query, int key, user_data user) { return user.buffer1[batch] != (query + key) % 3; }"""


class Functions(Comparison):
    """The caller's own, in OpenCL C."""

    def setUp(self):
        random = np.random.default_rng(SEED)
        self.q, self.k, self.v = (
            random.standard_normal((2, 3, heads, length, 8)).astype(np.float32) for heads, length in ((4, 5), (2, 7), (2, 7))
        )
        self.buffers = random.standard_normal(4), np.arange(6)[::-1] % 4, random.standard_normal((7, 2)).astype(np.float16)
        self.buffers = self.buffers[0].astype(np.float32), self.buffers[1], self.buffers[2][:, 0]
        self.scalars = 0.125, -0.75

    def changed(self, score, batch, head, query, key):
        """What SCORE_MOD makes of scores, in float64."""
        heads, _, keys = (array.astype(np.float64) for array in self.buffers)
        return score * self.scalars[1] + heads[head] * keys[key] + 0.25 * ((query + 2 * key) % 3) - self.scalars[0] * batch

    def call(self, q, k, v, **more):
        return clattn.scaled_dot_product_attention(
            *(q, k, v), enable_gqa=True, softcap=2.0, user_buffers=self.buffers, user_scalars=self.scalars, **more
        )

    def test_scores_and_masks(self):
        more = {"mask_mod": lambda batch, head, query, key: self.buffers[1][batch] != (query + key) % 3, "softcap": 2.0}
        expected = expected_attention(self.q, self.k, self.v, score_mod=self.changed, **more)
        found = self.call(self.q, self.k, self.v, score_mod=SCORE_MOD, mask_mod=MASK_MOD, return_lse=True)
        for one, other in zip(found, expected, strict=True):
            self.close(one, other, 4)
        only = expected_attention(self.q, self.k, self.v, **more)[0]
        self.close(self.call(self.q, self.k, self.v, mask_mod=MASK_MOD), only, 4)

    def test_scalars_are_each_calls(self):
        text = "float score_mod(float score, int batch, int head, int query, int key, user_data user) "
        text += "{ return score + user.scalar0 * key; }"
        q, k, v = self.q[0], self.k[0], self.v[0]
        for scalars in ((3.0,), (), (-1.5,)):
            slope = scalars[0] if scalars else 0
            expected, _ = expected_attention(q, k, v, score_mod=lambda s, b, h, i, j, slope=slope: s + slope * j)
            found = clattn.scaled_dot_product_attention(q, k, v, enable_gqa=True, score_mod=text, user_scalars=scalars)
            self.close(found, expected, 4)

    def test_refused(self):
        q, f = self.q[0, 0, :, :, :], clattn.scaled_dot_product_attention
        for kind, words, more in (
            (clattn.ClattnError, "score_mod:2:1: .*nowhere", {"score_mod": SCORE_MOD.replace("float tilt", "nowhere tilt")}),
            (clattn.ClattnError, "mask_mod: ", {"mask_mod": "int other(void) { return 1; }"}),
            (ValueError, "score_mod_grad without", {"score_mod_grad": SCORE_MOD_GRAD}),
            (ValueError, "buffer_dtype without", {"user_buffers": [q]}),
            (ValueError, "5 user_buffers, and there may be 4", {"mask_mod": MASK_MOD, "user_buffers": [q] * 5}),
            (ValueError, "5 user_scalars, and there may be 4", {"mask_mod": MASK_MOD, "user_scalars": [1] * 5}),
            (ValueError, "float64", {"mask_mod": MASK_MOD, "user_buffers": [q.astype(np.float64)]}),
            (TypeError, "no list or tuple", {"mask_mod": MASK_MOD, "user_buffers": q}),
            (TypeError, "mask_mod is b'int', no text", {"mask_mod": b"int"}),
            (ValueError, "mask_mod has a NUL", {"mask_mod": MASK_MOD + "\0"}),
            (ValueError, "score_mod is longer than", {"score_mod": SCORE_MOD + " " * 8192}),
        ):
            with self.assertRaisesRegex(kind, words):
                f(q, q, q, **more)

    @unittest.skipIf(torch is None, "no PyTorch here")
    def test_gradients(self):
        arrays = [
            torch.tensor(array.astype(dtype), requires_grad=True)
            for dtype in (np.float32, np.float64)
            for array in (self.q, self.k, self.v)
        ]
        texts = {"score_mod": SCORE_MOD, "mask_mod": MASK_MOD}
        result = self.call(*arrays[:3], **texts, score_mod_grad=SCORE_MOD_GRAD)
        weights = torch.tensor(np.random.default_rng(SEED).standard_normal(result.shape))
        q, k, v = arrays[3], *(array.repeat_interleave(2, 2) for array in arrays[4:])
        score = 2 * torch.tanh(q @ k.transpose(-1, -2) * 8**-0.5 / 2)
        index = np.arange(6).reshape(2, 3, 1, 1, 1), *np.ogrid[:4, :5, :7]
        score = score * self.scalars[1] + torch.tensor(self.changed(0.0, *index))
        attended = self.buffers[1][index[0]] != (index[2] + index[3]) % 3
        expected = score.masked_fill(torch.tensor(~attended), -torch.inf).softmax(-1) @ v
        found = torch.autograd.grad((result * weights).sum(), arrays[:3])
        for one, other in zip(found, torch.autograd.grad((expected * weights).sum(), arrays[3:]), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "score_mod_grad: give it"):
            self.call(*arrays[:3], **texts)
        for more in ({"return_entropy": True}, {"return_scores": "raw"}, {"is_ring": True}, {"block_table": [[0]]}):
            with self.assertRaisesRegex(ValueError, f"attention with {next(iter(more))} has no gradient"):
                self.call(*arrays[:3], **more)
        self.buffers = [arrays[0]]
        with self.assertRaisesRegex(ValueError, r"user_buffers\[0\] requires a gradient"):
            self.call(*arrays[:3], mask_mod=MASK_MOD)


class Lifetimes(unittest.TestCase):
    """What signals, other threads and closing may do meanwhile."""

    def run_apart(self, program):
        """In a process of its own, which may not crash or hang."""
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_interrupt(self):
        """Ctrl-C while a call computes: the memory is the caller's again only when the device is done with it."""
        said = self.run_apart("""
import os, signal, threading, clattn, numpy as np
q = np.ones((1, 8, 512, 64), np.float32)
clattn.scaled_dot_product_attention(q, q, q)
caught = 0
for n in range(20):
    timer = threading.Timer(0.002 * n, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True:
            clattn.scaled_dot_product_attention(q.copy(), q.copy(), q.copy())
    except KeyboardInterrupt:
        caught += 1
    timer.join()
    np.full(q.shape, 7, np.float32)
print(caught, (clattn.scaled_dot_product_attention(q, q, q) == 1).all())
""")
        self.assertEqual(said.split(), ["20", "True"])

    def test_others_run_meanwhile(self):
        """While the device computes, the interpreter is other threads'."""
        x, during = np.ones((1, 8, 4096, 64), np.float32), []
        clattn.scaled_dot_product_attention(x, x, x)

        def work():
            begun = time.monotonic()
            clattn.scaled_dot_product_attention(x, x, x)
            during.extend((begun, time.monotonic()))

        thread, ticks = threading.Thread(target=work), []
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)
            ticks.append(time.monotonic())
        self.assertGreater(sum(during[0] < tick < during[1] for tick in ticks), 10)

    def test_shared_memory(self):
        """A device that shares the host's memory reads and writes the arrays where they are."""
        context = clattn.Context()
        x = np.ones((1, 2, 5, 8), np.float32)
        clattn.scaled_dot_product_attention(x, x, x, context=context)
        (call,) = context.calls.values()
        used = [bool(bound.flags & clattn._library.lib.C_CL_MEM_USE_HOST_PTR) for bound in call.bindings]
        self.assertEqual(used, [context.shares_memory] * 4)

    def test_signal_handler(self):
        """A handler that calls the package itself, while it is at work on its first call."""
        said = self.run_apart("""
import signal, clattn, numpy as np
x, calls = np.ones((2, 4), np.float32), []
signal.signal(signal.SIGALRM, lambda *_: calls.append(clattn.softmax(x).sum()))
signal.setitimer(signal.ITIMER_REAL, 0.01)
print(clattn.softmax(x).sum())
signal.pause() if not calls else None
print(calls)
""")
        self.assertEqual(said.split()[0], "2.0")

    def test_closing_while_others_call(self):
        context = clattn.Context()
        x = np.ones((64, 64), np.float32)
        plan = clattn.Plan(clattn.softmax, x, context=context)
        ended, wrong = [], []

        def work(function):
            try:
                while True:
                    function()
            except clattn.InvalidArgumentError as error:
                ended.append(str(error))
            except (clattn.ClattnError, ValueError, KeyError) as error:
                wrong.append(error)

        kinds = [lambda: plan(x), lambda: clattn.softmax(x, context=context)]
        threads = [threading.Thread(target=work, args=(kinds[n % 2],)) for n in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        plan.close()
        context.close()
        for thread in threads:
            thread.join()
        self.assertEqual((wrong, len(ended)), ([], 4))
        self.assertTrue(all("is closed" in message for message in ended), ended)

    def test_a_new_default(self):
        clattn.default_context().close()
        self.assertEqual(clattn.softmax(np.zeros((1, 2), np.float32)).tolist(), [[0.5, 0.5]])

    def test_more_shapes_than_are_kept(self):
        context, wrong = clattn.Context(), []

        def work(first):
            for n in range(first, first + 200):
                if clattn.softmax(np.zeros((n % 170 + 1, 2), np.float32), context=context).sum() != n % 170 + 1:
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(60 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertLessEqual(len(context.calls), 128)

    def test_errors_travel(self):
        for error in (clattn.ClattnError("OPENCL", "words"), clattn.UnsupportedError("UNSUPPORTED", "words")):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.status, str(again)), (type(error), error.status, "words"))


class Others(Comparison):
    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def array(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def test_softmax(self):
        for dim in (-1, 0, 1):
            x = self.array(3, 5, 7)
            weights = np.exp(0.5 * x.astype(np.float64))
            self.close(clattn.softmax(x, dim, scale=0.5), weights / weights.sum(dim, keepdims=True))
        x, mask = self.array(3, 5), self.random.random((3, 5)) < 0.5
        mask[0] = False
        weights = np.where(mask, np.exp(x.astype(np.float64)), 0)
        self.close(clattn.softmax(x, mask=mask), weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300))

    def test_norms(self):
        for dtype in ("float32", "float16"):
            x, weight, bias = self.array(4, 3, 16, dtype=dtype), self.array(16, dtype=dtype), self.array(16, dtype=dtype)
            wide = x.astype(np.float64)
            centred = wide - wide.mean(-1, keepdims=True)
            expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias
            self.close(clattn.layer_norm(x, (16,), weight, bias), expected, 4)
            epsilon = np.finfo(dtype).eps
            expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight
            self.close(clattn.rms_norm(x, (16,), weight), expected, 4)
        x = self.array(2, 3, 4)
        expected = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.astype(np.float64).var((1, 2), keepdims=True) + 1e-5)
        self.close(clattn.layer_norm(x, (3, 4)), expected, 4)

    def test_rope(self):
        x, positions = self.array(2, 3, 5, 8), self.random.integers(0, 9, (2, 5))
        angles = (positions + 2)[:, None, :, None] / 100.0 ** (np.arange(4) / 4)
        cos, sin = np.cos(angles), np.sin(angles)
        low, high = x[..., :4].astype(np.float64), x[..., 4:].astype(np.float64)
        expected = np.concatenate([low * cos - high * sin, low * sin + high * cos], -1)
        self.close(clattn.rope(x, base=100.0, position=2, positions=positions), expected, 2)
        even, odd = x[..., ::2].astype(np.float64), x[..., 1::2].astype(np.float64)
        expected = np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)
        self.close(clattn.rope(x, base=100.0, position=2, positions=positions, interleaved=True), expected, 2)

    def test_multi_head_attention(self):
        d, heads = 12, 3
        x, memory, values = self.array(2, 5, d), self.array(2, 7, d), self.array(2, 7, d)
        w_in, b_in, w_out, b_out = self.array(3 * d, d), self.array(3 * d), self.array(d, d), self.array(d)

        def expected(query, key, value, **more):
            projected = [
                (array.astype(np.float64) @ w_in[n * d : (n + 1) * d].T + b_in[n * d : (n + 1) * d])
                .reshape(2, -1, heads, d // heads)
                .swapaxes(1, 2)
                for n, array in enumerate((query, key, value))
            ]
            return expected_attention(*projected, **more)[0].swapaxes(1, 2).reshape(query.shape) @ w_out.T + b_out

        for arrays in ((x, x, x), (x, memory, memory), (x, memory, values)):
            mask = self.random.random((5, arrays[1].shape[1])) < 0.7
            result, weights = clattn.multi_head_attention(*arrays, heads, w_in, b_in, w_out, b_out, mask, need_weights=True)
            self.close(result, expected(*arrays, mask=mask), 64)
            self.assertEqual(weights.shape, (2, 5, arrays[1].shape[1]))
            self.assertTrue((weights[:, ~mask] == 0).all())
        causal = clattn.multi_head_attention(
            x[:, ::-1], x[:, ::-1], x[:, ::-1], heads, w_in, b_in, w_out, b_out, is_causal=True
        )
        self.close(causal, expected(*[x[:, ::-1]] * 3, causal=True), 64)
        with self.assertRaisesRegex(ValueError, r"w_in has the shape \(36, 11\), expected \(36, 12\)"):
            clattn.multi_head_attention(x, x, x, heads, w_in[:, :11], b_in, w_out)
        with self.assertRaisesRegex(TypeError, "w_o is of another type"):
            clattn.multi_head_attention(x, x, x, heads, w_in, b_in, w_out.astype(np.float16))

    def test_linear(self):
        x, weight, bias = self.array(2, 5, 7), self.array(3, 7), self.array(3)
        product = x.astype(np.float64) @ weight.T + bias
        self.close(clattn.linear(x, weight, bias), product, 8)
        self.close(clattn.linear(x, weight, bias, activation="relu"), np.maximum(product, 0), 8)
        self.close(clattn.linear(x[0, 0], weight), x[0, 0].astype(np.float64) @ weight.T, 8)


class Overhead(unittest.TestCase):
    @unittest.skipUnless(DRAWS == 500, "only in the full level, on a machine that does nothing else")
    def test_a_call_takes_25_microseconds_more_than_c(self):
        """The calling thread's time, beside that of the same functions of C and OpenCL called one after another.  All threads are on
        one processor, which is then never idle: two fall asleep between calls, and what wakes them counts twice."""
        from clattn._library import ffi, lib, opencl

        context, cl, x = clattn.default_context(), opencl(), np.ones((1, 1, 4, 8), np.float32)
        clattn.scaled_dot_product_attention(x, x, x)
        call, output = list(context.calls.values())[-1], np.empty_like(x)

        def bare():
            buffers = []
            for bound, array in zip(call.bindings, (x, x, x, output)):
                host = ffi.from_buffer(array) if bound.has_host else ffi.NULL
                buffers.append(cl.clCreateBuffer(owner, bound.flags, bound.length, host, call.code))
                bound.binding.buffer = buffers[-1]
            self.assertEqual(lib.clattn_attention_run(handle, queue, call.desc, call.args, 0, ffi.NULL, call.event), 0)
            cl.clWaitForEvents(1, call.event)
            cl.clReleaseEvent(call.event[0])
            for buffer in buffers:
                cl.clReleaseMemObject(buffer)

        def free(task):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(task, processors)

        def microseconds(function):
            begun = time.thread_time()
            for _ in range(500):
                function()
            return (time.thread_time() - begun) / 500 * 1e6

        processors = os.sched_getaffinity(0)
        tasks = [int(task.name) for task in pathlib.Path("/proc/self/task").iterdir()]
        with context.handle as handle:
            for task in tasks:
                os.sched_setaffinity(task, {min(processors)})
                self.addCleanup(free, task)
            queue, owner = lib.clattn_context_queue(handle), lib.clattn_context_opencl_context(handle)
            pairs = [(microseconds(lambda: clattn.scaled_dot_product_attention(x, x, x)), microseconds(bare)) for _ in range(9)]
        ours, theirs = (min(times) for times in zip(*pairs))
        self.assertLess(ours - theirs, 25, f"a call: {ours:.1f} us, by C's functions {theirs:.1f}")


class Plans(Comparison):
    def setUp(self):
        self.arrays = [np.random.default_rng(SEED + n).standard_normal((1, 2, 5, 8)).astype(np.float32) for n in range(4)]

    def test_plan(self):
        q, k, v, other = self.arrays
        with clattn.Plan(clattn.scaled_dot_product_attention, q, q, q, is_causal=True, solver="generic") as plan:
            self.assertEqual(plan.solver, "generic")
            self.assertIn("generic", plan.explanation)
            for query in (q, other):
                self.close(plan(query, k, v), expected_attention(query, k, v, causal=True)[0], 4)
            with self.assertRaisesRegex(ValueError, r"plan is of query \(1, 2, 5, 8\).* was given query \(1, 2, 4, 8\)"):
                plan(q[:, :, :4], k, v)
            with self.assertRaisesRegex(ValueError, "another context"):
                plan(q, k, v, context=clattn.Context())
        with self.assertRaises(clattn.ClattnError):
            plan(q, k, v)
        with self.assertRaisesRegex(ValueError, 'softmax has no solver "tiled"'):
            clattn.Plan(clattn.softmax, q, solver="tiled")
        with self.assertRaisesRegex(TypeError, "is no function of clattn's"):
            clattn.Plan(sum, [1])

    def test_questions(self):
        q = self.arrays[0]
        self.assertEqual(clattn.supports(clattn.scaled_dot_product_attention, q, q, q), (True, ""))
        able, reason = clattn.supports(clattn.softmax, q.astype(np.int32))
        self.assertEqual((able, bool(reason)), (False, True))
        self.assertIn("chosen", clattn.explain(clattn.softmax, q))
        self.close(clattn.softmax(q), np.exp(q) / np.exp(q.astype(np.float64)).sum(-1, keepdims=True))


class Refused(unittest.TestCase):
    def refused(self, kind, words, function, *arguments, **more):
        with self.assertRaisesRegex(kind, words) as caught:
            function(*arguments, **more)
        return caught.exception

    def test_arguments(self):
        f, q = clattn.scaled_dot_product_attention, np.ones((1, 4, 5, 8), np.float32)
        self.refused(ValueError, "4 heads and key 2, which enable_gqa", f, q, q[:, :2], q[:, :2])
        self.refused(ValueError, "what is before the heads differs", f, q, q[0], q[0])
        self.refused(ValueError, r"\(\.\.\., length, size\) is needed", f, q[0, 0, 0], q, q)
        self.refused(ValueError, "alignment is 'left'", f, q, q, q, alignment="left")
        self.refused(TypeError, "query has the other byte order", f, q.astype(q.dtype.newbyteorder()), q, q)
        self.refused(TypeError, "key is of type complex64", f, q, q.astype(np.complex64), q)
        self.refused(TypeError, "value is of type object", f, q, q, np.array([None]))
        error = self.refused(clattn.InvalidArgumentError, "", f, q, q[..., :7], q)
        self.assertEqual(error.status, "INVALID_LAYOUT")
        self.refused(ValueError, "dropout", f, q, q, q, dropout_p=1.0)
        self.refused(OverflowError, "", f, q, q, q, window=(2**70, None))
        self.refused(ValueError, "normalized_shape", clattn.layer_norm, q, (7,))
        self.refused(ValueError, "dim is 4", clattn.softmax, q, 4)
        self.refused(ValueError, "x has 6 dimensions", clattn.softmax, q[None, None])
        self.refused(TypeError, "masked array", clattn.softmax, np.ma.array(q, mask=q > 0))
        self.refused(TypeError, "no clattn.Context", clattn.softmax, q, context="pocl")
        self.refused(TypeError, "is no function of clattn's", clattn.supports, np.sum, q)
        self.refused(ValueError, "activation is 'gelo'", clattn.linear, q, q[0, 0], activation="gelo")
        self.refused(ValueError, r"not \(\.\.\., k\) and \(n, k\)", clattn.linear, q, q)

    def test_contexts(self):
        error = self.refused(clattn.NoDeviceError, "nowhere", clattn.Context, "nowhere")
        self.assertEqual(error.status, "NO_DEVICE")
        context = clattn.Context(cache=False)
        q = np.ones((1, 1, 2, 8), np.float32)
        self.assertEqual(clattn.scaled_dot_product_attention(q, q, q, context=context).shape, q.shape)
        context.close()
        context.close()
        self.refused(clattn.ClattnError, "", clattn.scaled_dot_product_attention, q, q, q, context=context)

    def test_no_driver(self):
        """Whoever has no driver learns which package has one."""
        done = subprocess.run(
            [sys.executable, "-c", "import clattn; clattn.Context()"],
            check=False,
            capture_output=True,
            text=True,
            env=dict(os.environ, OCL_ICD_VENDORS="/nowhere", CLATTN_DEVICE=""),
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("clattn.errors.NoDeviceError", done.stderr)
        self.assertIn("pocl-opencl-icd", done.stderr)


@unittest.skipIf(torch is None, "no PyTorch here")
class Torch(unittest.TestCase):
    def test_kinds(self):
        generator = torch.Generator().manual_seed(SEED % 2**31)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            q, k, v = (torch.randn(2, 3, 7, 16, generator=generator).to(dtype) for _ in range(3))
            result = clattn.scaled_dot_product_attention(q, k, v, is_causal=True)
            self.assertEqual((type(result), result.dtype), (torch.Tensor, dtype))
            expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
            torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)

    def test_gradients(self):
        """Those of autograd through clattn are those through PyTorch's own operations, in float64 where that is the type."""
        generator = torch.Generator().manual_seed(SEED % 2**31)

        def draw(*shape, dtype):
            return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
            arrays = [draw(2, 4, 5, 8, dtype=dtype), draw(2, 2, 7, 8, dtype=dtype), draw(2, 2, 7, 6, dtype=dtype)]
            mask, slopes, sinks = draw(5, 7, dtype=dtype), draw(4, dtype=torch.float32), draw(4, dtype=torch.float32)
            every = [*arrays, mask, slopes, sinks]
            result, lse = clattn.scaled_dot_product_attention(
                *arrays, mask, is_causal=True, enable_gqa=True, softcap=2.0, alibi_slopes=slopes, sinks=sinks, return_lse=True
            )
            of_output, of_lse = torch.randn(result.shape, generator=generator), torch.randn(lse.shape, generator=generator)
            found = torch.autograd.grad((result * of_output).sum() + (lse * of_lse).sum(), every)
            q, k, v = (array.double() for array in arrays)
            k, v = (array.repeat_interleave(2, 1) for array in (k, v))
            score = 2 * torch.tanh(q @ k.transpose(-1, -2) * 8**-0.5 / 2) + mask.double()
            score = score - slopes.double()[:, None, None] * (torch.arange(5)[:, None] - torch.arange(7)).abs()
            score = score.masked_fill(torch.arange(7) > torch.arange(5)[:, None], -torch.inf)
            score = torch.cat([score, sinks.double()[:, None, None].expand(2, 4, 5, 1)], -1)
            expected = score.softmax(-1)[..., :7] @ v, score.logsumexp(-1)
            loss = (expected[0] * of_output.double()).sum() + (expected[1] * of_lse.double()).sum()
            for name, one, other in zip(
                ["query", "key", "value", "mask", "slopes", "sinks"], found, torch.autograd.grad(loss, every), strict=True
            ):
                close = max(tolerance, 1e-5 if one.dtype == torch.float32 else 0)
                torch.testing.assert_close(one, other, rtol=close, atol=close, msg=lambda text, name=name: f"{name}: {text}")

    def test_gradients_of_additive_scores(self):
        generator = torch.Generator().manual_seed(SEED % 2**31)
        q, k, v = (torch.randn(2, 2, length, 8, generator=generator, requires_grad=True) for length in (5, 7, 7))
        vector = torch.randn(2, 8, generator=generator, requires_grad=True)
        result = clattn.scaled_dot_product_attention(q, k, v, vector=vector, is_causal=True)
        weights = torch.randn(result.shape, generator=generator, dtype=torch.float64)
        score = (torch.tanh(q.double()[..., None, :] + k.double()[..., None, :, :]) * vector.double()[:, None, None]).sum(-1)
        score = score.masked_fill(torch.arange(7) > torch.arange(5)[:, None], -torch.inf)
        every, expected = (q, k, v, vector), score.softmax(-1) @ v.double()
        found = torch.autograd.grad((result * weights).sum(), every)
        for one, other in zip(found, torch.autograd.grad((expected * weights).sum(), every), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

    def test_gradients_of_batches(self):
        arrays = [torch.randn(2, 3, 1, 4, 8, requires_grad=True) for _ in range(3)]
        mask = torch.randn(3, 1, 4, 4, requires_grad=True)
        found = torch.autograd.grad(clattn.scaled_dot_product_attention(*arrays, mask[None]).sum(), [*arrays, mask])
        other = torch.nn.functional.scaled_dot_product_attention(*arrays, mask[None])
        for one, expected in zip(found, torch.autograd.grad(other.sum(), [*arrays, mask]), strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)

    def test_what_has_no_gradient_says_so(self):
        x, w = torch.ones(3, 4), torch.ones(4, 4, requires_grad=True)
        for call in (
            lambda: clattn.linear(x, w),
            lambda: clattn.softmax(w),
            lambda: clattn.layer_norm(x, 4, w[0]),
            lambda: clattn.scaled_dot_product_attention(x.numpy(), w, w),
            lambda: clattn.scaled_dot_product_attention(x, x, x, scale=w[0, 0]),
        ):
            with self.assertRaisesRegex(ValueError, "requires a gradient"):
                call()
        with torch.no_grad():
            self.assertEqual(clattn.linear(x, w).shape, (3, 4))
        with self.assertRaisesRegex(ValueError, "requires a gradient"), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            clattn.scaled_dot_product_attention(dual, x, x)

    def test_second_derivatives_are_refused(self):
        q = torch.randn(3, 4, requires_grad=True)
        loss = clattn.scaled_dot_product_attention(q, q, q).pow(2).sum() + (q**3).sum()
        (gradient,) = torch.autograd.grad(loss, q, create_graph=True)
        (plain,) = torch.autograd.grad(clattn.scaled_dot_product_attention(q, q, q).pow(2).sum() + (q**3).sum(), q)
        self.assertTrue(torch.equal(gradient, plain))
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            torch.autograd.grad(gradient.pow(2).sum(), q)

    def test_numbers_that_change(self):
        q, scale = torch.randn(3, 4), torch.tensor(1.0)
        first = clattn.scaled_dot_product_attention(q, q, q, scale=scale)
        scale.mul_(5)
        second = clattn.scaled_dot_product_attention(q, q, q, scale=scale)
        torch.testing.assert_close(second, torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=5.0))
        self.assertFalse(torch.equal(first, second))

    def test_dropout_is_drawn_by_torch(self):
        q = torch.randn(1, 2, 16, 8, requires_grad=True)
        torch.manual_seed(3)
        first = clattn.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(first, clattn.scaled_dot_product_attention(q, q, q, dropout_p=0.5)))
        weights = torch.randn(first.shape)

        def gradient(function):
            torch.manual_seed(4)
            return torch.autograd.grad((function(q) * weights).sum(), q)[0]

        plain = gradient(lambda a: clattn.scaled_dot_product_attention(a, a, a, dropout_p=0.5))
        kept = gradient(
            lambda a: torch.utils.checkpoint.checkpoint(
                lambda b: clattn.scaled_dot_product_attention(b, b, b, dropout_p=0.5), a, use_reentrant=False
            )
        )
        self.assertTrue(torch.equal(plain, kept))

    def test_other_arrays_beside_a_gradient(self):
        q = torch.randn(2, 2, 3, 4, requires_grad=True)
        mask = np.tri(3, dtype=bool)
        result = clattn.scaled_dot_product_attention(q, q, q, mask, key_lengths=[3, 3])
        (result + 1).sum().backward()
        self.assertTrue(torch.isfinite(q.grad).all())
        result = clattn.scaled_dot_product_attention(q, q, q)
        result += 1  # which the gradient has to know
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            result.sum().backward()

    def test_no_gradient(self):
        q = torch.ones(1, 1, 2, 8, requires_grad=True)
        with torch.no_grad():
            self.assertFalse(clattn.scaled_dot_product_attention(q, q, q).requires_grad)
        self.assertFalse(clattn.scaled_dot_product_attention(q.detach(), q.detach(), q.detach()).requires_grad)


@unittest.skipIf(pyopencl is None, "no PyOpenCL here")
class PyOpenCL(Comparison):
    def setUp(self):
        self.queue = pyopencl.CommandQueue(pyopencl.Context(pyopencl.get_platforms()[0].get_devices()[:1]))
        self.random = np.random.default_rng(SEED)

    def array(self, *shape):
        values = self.random.standard_normal(shape).astype(np.float32)
        return values, pyopencl.array.to_device(self.queue, values)

    def test_attention(self):
        (q, own_q), (k, own_k), (v, own_v) = self.array(2, 3, 7, 16), self.array(2, 3, 9, 16), self.array(2, 3, 9, 8)
        mask = self.random.random((7, 9)) < 0.7
        expected, lse = expected_attention(q, k, v, mask=mask)
        for given in (mask, pyopencl.array.to_device(self.queue, mask)):
            result, own_lse = clattn.scaled_dot_product_attention(own_q, own_k, own_v, given, return_lse=True)
            self.assertIsInstance(result, pyopencl.array.Array)
            self.close(result.get(), expected, 4)
            self.close(own_lse.get(), lse, 16)
        result = clattn.scaled_dot_product_attention(own_q[1:, :, 2:], own_k[1:], own_v[1:])
        self.close(result.get(), expected_attention(q[1:, :, 2:], k[1:], v[1:])[0], 4)
        flat = clattn.scaled_dot_product_attention(own_q[0, 0], own_k[0, 0], own_v[0, 0])
        self.close(flat.get(), expected_attention(q[0, :1], k[0, :1], v[0, :1])[0][0], 4)
        result, own_lse = clattn.scaled_dot_product_attention(
            *(own_q[0], own_k[0], own_v[0]), query_starts=[1, 3, 6], key_starts=[0, 4, 9], return_lse=True
        )
        expected, lse = expected_packed(q[0], k[0], v[0], [1, 3, 6], [0, 4, 9])
        self.close(result.get(), expected, 4)
        self.close(own_lse.get(), lse, 16)

    def test_buffers_of_functions(self):
        (q, own_q), (weights, own_weights) = self.array(1, 2, 5, 8), self.array(2, 5)
        text = "float score_mod(float score, int batch, int head, int query, int key, user_data user) "
        text += "{ return score + user.buffer0[head * 5 + key]; }"
        result = clattn.scaled_dot_product_attention(own_q, own_q, own_q, score_mod=text, user_buffers=[own_weights])
        self.close(result.get(), expected_attention(q, q, q, mask=weights[:, None])[0], 4)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            clattn.scaled_dot_product_attention(own_q, own_q, own_q, score_mod=text, user_buffers=[own_weights[0, ::2]])

    def test_a_chain(self):
        """Calls and PyOpenCL's own kernels follow each other without a wait."""
        x, own = self.array(5, 8)
        weight, own_weight = self.array(8, 8)
        expected = x.astype(np.float64)
        for _ in range(10):
            own = clattn.softmax(clattn.linear(own, own_weight) * 2, 0)
            expected = np.exp(expected @ weight.T * 2)
            expected /= expected.sum(0)
        self.close(own.get(), expected, 4)

    def test_host_outputs(self):
        """A result of the host is there when the call returns, also where memory is not shared."""
        x, own = self.array(2, 3)
        for shares in (True, False):
            context = clattn.Context(queue=self.queue)
            context.shares_memory = shares
            mask = pyopencl.array.to_device(self.queue, np.ones((2, 3), bool))
            result = clattn.softmax(x, mask=mask, context=context)
            self.close(result, np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(-1, keepdims=True))
        self.assertEqual(clattn.softmax(own[2:]).shape, (0, 3))

    def test_refused(self):
        _, own = self.array(2, 3, 4)
        with self.assertRaisesRegex(TypeError, "byte order"):
            clattn.softmax(pyopencl.array.to_device(self.queue, np.ones(4, ">f4")))
        with self.assertRaisesRegex(ValueError, "between two elements"):
            clattn.softmax(pyopencl.array.Array(self.queue, (2,), np.float32, data=own.base_data, offset=2))
        with self.assertRaisesRegex(ValueError, "without a queue"):
            clattn.softmax(own.with_queue(None))
        with self.assertRaisesRegex(ValueError, "has gaps"):
            clattn.linear(own[:, ::2], own[0])
        with self.assertRaises(clattn.ClattnError) as caught:
            clattn.softmax(own, context=clattn.Context())
        self.assertEqual(caught.exception.status, "WRONG_CONTEXT")


def setUpModule():
    """The package calls nothing that is deprecated."""
    warnings.filterwarnings("error", category=DeprecationWarning, module="clattn")


def load_tests(loader, tests, pattern):
    for module in (clattn, clattn.attention, clattn.context, clattn.functional, clattn.plan, clattn.transformer):
        tests.addTests(doctest.DocTestSuite(module))
    tests.addTests(doctest.DocFileSuite(str(pathlib.Path(__file__).parents[2] / "python/README.md"), module_relative=False))
    return tests


if __name__ == "__main__":
    unittest.main()
