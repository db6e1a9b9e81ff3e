"""The accuracy rule of docs/numerics.md, and the naive computation that it is relative to, in NumPy."""
import numpy as np

from draw import rounded

UNIT = 2.0 ** -23
UNIT_OF_DOUBLES = 2.0 ** -52
EXACT_ZERO = -1.0  # as a magnitude: nothing was summed, and the result is +0 to the bit


# ---- the naive computation: one rounding an operation, one term after the other ----

def naive_product(a, b):
    """(..., m, k) times (..., n, k), over the last dimension."""
    total = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-2]), np.float32)
    for d in range(a.shape[-1]):
        total += a[..., :, None, d] * b[..., None, :, d]
    return total


def naive_weights(scores, attended, sink=None):
    """Probabilities and log-sum-exp of float32 scores; `sink` broadcasts to a row."""
    scores = np.where(attended, scores, np.float32(-np.inf))
    top = np.max(scores, axis=-1, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink.astype(np.float32))
    safe = np.where(top == -np.inf, np.float32(0), top).astype(np.float32)
    terms = np.exp(scores - safe[..., None])
    total = np.zeros_like(safe) if sink is None else np.exp(sink.astype(np.float32) - safe)
    for j in range(scores.shape[-1]):
        total = total + terms[..., j]
    some = total > 0
    with np.errstate(divide="ignore"):
        lse = np.where(some, safe + np.log(total), np.float32(-np.inf))
    return np.divide(terms, total[..., None], out=np.zeros_like(terms), where=some[..., None]), lse


def naive_attention(q, k, v, scale, score, attended, dtype, sink=None):
    """Output (rounded to its storage) and log-sum-exp with float32 state, and probabilities rounded to the storage type.

    `score` bends float32 scores (batch, heads, queries, keys); `attended` says which count."""
    group = q.shape[1] // max(1, k.shape[1])
    q, k, v = q.astype(np.float32), np.repeat(k, group, 1).astype(np.float32), np.repeat(v, group, 1).astype(np.float32)
    scores = score(np.float32(scale) * naive_product(q, k))
    weights, lse = naive_weights(scores, attended, sink)
    output = naive_product(rounded(weights, dtype), np.swapaxes(v, 2, 3))
    return rounded(output, dtype), lse


def exact_magnitude(q, k, v, scale, score, attended, sink=None):
    """M, the sum of p |v|, in float64; EXACT_ZERO where a row attends nothing."""
    group = q.shape[1] // max(1, k.shape[1])
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.where(attended, score(scale * (q @ np.swapaxes(k, 2, 3))), -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink[..., None])
    terms = np.exp(scores - np.where(top == -np.inf, 0.0, top))
    total = terms.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink[..., None] - top)
    weights = np.divide(terms, total, out=np.zeros_like(terms), where=total > 0)
    return np.where(attended.any(-1, keepdims=True), weights @ np.abs(v), EXACT_ZERO)


# ---- the rule ----

def rounding(dtype, value):
    """Half a unit in the last place of a 16-bit type at the value; the state's own is part of the rule otherwise."""
    if dtype in ("f32", "f64"):
        return np.zeros_like(value)
    digits, lowest = (11, -24) if dtype == "f16" else (8, -133)
    exponent = np.frexp(value)[1]
    return np.ldexp(0.5, np.maximum(exponent - digits, lowest))


def disagreement(what, value, reference, naive, magnitude, dtype="f32", mean=None):
    """None if value obeys the rule against the reference, or a line that says where it does not, and by how much.

    float32 and float64: |o - r| <= 2 max|n - r| + 8 u M.  16 bits: two roundings more, and on average `mean` times the naive."""
    value, reference, naive, magnitude = (np.asarray(a, np.float64) for a in (value, reference, naive, magnitude))
    if value.shape != reference.shape:
        return "%s has the shape %s, expected %s" % (what, value.shape, reference.shape)
    if value.size == 0:
        return None
    assert not np.isnan(reference).any(), "the reference has a NaN that nothing drawn explains"
    finite = np.isfinite(reference) & np.isfinite(naive)
    naive_error = np.abs(naive - reference, where=finite, out=np.zeros_like(reference))
    slack = 8 * (UNIT_OF_DOUBLES if dtype == "f64" else UNIT) * np.maximum(magnitude, 0)
    allowed = 2 * naive_error.max() + slack + 2 * rounding(dtype, np.where(finite, reference, 0))
    with np.errstate(invalid="ignore"):
        error = np.abs(value - reference)
        good = np.where(np.isfinite(reference), error <= allowed, value == reference)
    good = np.where(magnitude == EXACT_ZERO, (value == 0) & ~np.signbit(value), good)
    if not good.all():
        at = tuple(int(n) for n in np.unravel_index(np.argmin(good), good.shape))
        return "%s%s is %.9g, expected %.17g (naive %.9g)%s; off by %.3g, allowed %.3g; %d of %d are wrong" % (
            what, list(at), value[at], reference[at], naive[at],
            ", +0 exactly" if magnitude[at] == EXACT_ZERO else "", error[at], allowed[at], (~good).sum(), good.size)
    if mean is not None and finite.any():
        own, other = error[finite].mean(), naive_error[finite].mean()
        if own > mean * other + slack[finite].mean():
            return "%s is off by %.3g on average, the naive computation by %.3g" % (what, own, other)
    return None


def judge_output(heads, reference, naive, magnitude, softcapped=False):
    """The output of a draw of SDPA or flex_attention."""
    mean = None if heads.dtype == "f32" else 3.0 if softcapped else 1.5
    return disagreement("o", heads.output(), reference, naive, magnitude, heads.dtype, mean)


def judge_lse(value, reference, naive):
    size = np.where(np.isfinite(reference), np.maximum(1, np.abs(reference)), 1)
    return disagreement("lse", value, reference, naive, size)
