"""Attention with all its options in NumPy's float64, as docs/numerics.md defines it, and the storage types that NumPy
lacks.

Written from the documents alone, and not from the library's code."""
import numpy as np


# ---- storage ----

def to_bf16(x):
    """Rounds float32 to the upper half of its bits, to nearest even, as uint16."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def quantised(x, bits, group=None):
    """Returns x after a round trip through groups of `group` integers with a float32 scale each."""
    x = x.astype(np.float64)
    limit = 2 ** (bits - 1) - 1
    group = group or x.shape[-1]
    parts = x.reshape(x.shape[:-1] + (x.shape[-1] // group, group))
    scale = (np.max(np.abs(parts), axis=-1, keepdims=True) / limit).astype(np.float32).astype(np.float64)
    integers = np.clip(np.rint(np.divide(parts, scale, out=np.zeros_like(parts), where=scale > 0)), -limit, limit)
    return (integers * scale).reshape(x.shape)


# ---- dropout: Philox4x32-10 ----

def kept(dropout, seed, offset, batch, head, heads, queries, keys):
    """Which probabilities of (queries, keys) of one head dropout keeps."""
    i, block = np.meshgrid(np.arange(queries, dtype=np.uint64), np.arange((keys + 3) // 4, dtype=np.uint64), indexing="ij")
    low = np.uint64(0xffffffff)
    c = [block, i, np.full_like(i, batch * heads + head), np.full_like(i, offset)]
    k0, k1 = np.uint64(seed & 0xffffffff), np.uint64(seed >> 32)
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(second >> np.uint64(32)) ^ c[1] ^ k0, second & low, (first >> np.uint64(32)) ^ c[3] ^ k1, first & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    words = np.stack(c, axis=-1).reshape(queries, 4 * block.shape[1])[:, :keys]
    return words.astype(np.float64) >= float(np.float32(dropout)) * 2.0 ** 32


# ---- masks and probabilities of any rank ----

def softmax(scores, attended):
    """Softmax over the last axis: rows that attend nothing are 0; NaN and +inf in attended places make a row NaN."""
    with np.errstate(all="ignore"):
        kept = np.where(attended, scores, -np.inf)
        top = np.max(kept, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.where(attended, np.exp(kept - top), 0.0)
        total = np.sum(weights, axis=-1, keepdims=True)
        any_key = np.any(attended, axis=-1, keepdims=True)
        lse = np.where(any_key, top + np.log(total), -np.inf)[..., 0]
        return np.where(any_key, weights / total, 0.0), lse


def mask_terms(mask, shape):
    """Returns what a mask adds and which pairs may attend; short masks are extended with "do not attend"."""
    added, attended = np.zeros(shape), np.ones(shape, bool)
    if mask is None:
        return added, attended
    mask = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape)
    keys = mask.shape[-1]
    if 1 < keys < shape[-1]:
        attended[..., keys:] = False
        part = shape[:-1] + (keys,)
    else:
        part = shape
    whole = np.broadcast_to(mask, part)
    if mask.dtype == np.bool_:
        attended[..., :part[-1]] &= whole
    else:
        attended[..., :part[-1]] &= whole != -np.inf
        added[..., :part[-1]] = np.where(whole == -np.inf, 0.0, whole)
    return added, attended


# ---- one head of one item ----

def raw_scores(q, k, scale, vector, h):
    if vector is None:
        return (1.0 / np.sqrt(q.shape[-1]) if scale is None else scale) * (q @ k.T)
    vector = np.atleast_2d(vector)
    weights = vector[h if len(vector) > 1 else 0]
    return (1.0 if scale is None else scale) * (np.tanh(q[:, None] + k[None]) @ weights)


def one_head(q, k, v, b, h, heads, position, first_key, masks, o):
    """Returns output, lse, entropy and the four kinds of scores of one head; positions and lengths are the item's.  `masks`
    are the mask_terms of mask and bias."""
    queries, keys = len(q), len(k)
    i, j = np.arange(queries)[:, None], np.arange(keys)[None]
    p = i + position
    raw = raw_scores(q, k, o.get("scale"), o.get("vector"), h)
    cap = o.get("softcap")
    capped = cap * np.tanh(raw / cap) if cap else raw
    s = capped
    if o.get("score_mod"):
        s = o["score_mod"](s, b, h, i, j)
    attended = np.broadcast_to(j >= first_key, (queries, keys)).copy()
    if o.get("causal"):
        attended &= j <= p
    if o.get("window"):
        left, right = o["window"]
        attended &= (left < 0) | (j >= p - left)
        attended &= (right < 0) | (j <= p + right)
    if o.get("mask_mod"):
        attended &= np.broadcast_to(o["mask_mod"](b, h, i, j), (queries, keys)) != 0
    for added, selected in masks:
        s, attended = s + added[b, h, :queries, :keys], attended & selected[b, h, :queries, :keys]
    if o.get("alibi") is not None:
        slopes = np.atleast_2d(o["alibi"]).astype(np.float64)
        s = s - slopes[b if len(slopes) > 1 else 0, h] * np.abs(p - j)
    biased = np.where(attended, s, -np.inf)
    sink = -np.inf if o.get("sinks") is None else float(o["sinks"][h])
    top = np.maximum(np.max(biased, axis=1, keepdims=True, initial=-np.inf), sink)
    safe = np.where(top == -np.inf, 0.0, top)
    weights = np.where(attended, np.exp(biased - safe), 0.0)
    total = np.sum(weights, axis=1, keepdims=True) + np.exp(sink - safe)
    probabilities = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    lse = np.where(total == 0, -np.inf, safe + np.log(np.where(total == 0, 1.0, total)))[:, 0]
    entropy = -np.sum(probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0)), axis=1)
    used = probabilities
    if o.get("dropout"):
        rate, seed, offset = o["dropout"]
        used = np.where(kept(rate, seed, offset, b, h, heads, queries, keys), probabilities / (1.0 - np.float32(rate)), 0.0)
    return {"output": used @ v, "lse": lse, "entropy": entropy, "raw": raw, "softcap": capped, "bias": biased,
            "probabilities": probabilities}


# ---- a whole problem ----

def attend(q, k, v, **o):
    """q (batch, heads, S_q, d_k), k and v with as many key heads, all widened to float64.  Options as the command's:
    mask, bias, causal, bottom_right, offsets (batch), window, scale, softcap, vector, alibi, sinks, kv_lengths,
    query_lengths, dropout (rate, seed, offset), ring, score_mod(s, b, h, i, j), mask_mod(b, h, i, j).  Without finite V
    at keys that are not attended the result is NaN, which is not what is tested."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    batch, heads, queries, _ = q.shape
    rows = k.shape[2]
    group = heads // k.shape[1]
    result = {"output": np.zeros(q.shape[:3] + (v.shape[3],)), "lse": np.full(q.shape[:3], -np.inf),
              "entropy": np.zeros(q.shape[:3])}
    for name, outside in (("raw", 0.0), ("softcap", 0.0), ("bias", -np.inf), ("probabilities", 0.0)):
        result[name] = np.full(q.shape[:3] + (rows,), outside)
    if o.get("sinks") is not None:
        result["lse"][:] = np.asarray(o["sinks"], np.float64)[None, :, None]
    columns = max([rows] if o.get("kv_lengths") is None else [rows, *o["kv_lengths"]])  # a ring has more than rows
    masks = [mask_terms(o.get(name), (batch, heads, queries, columns)) for name in ("mask", "bias")]
    for b in range(batch):
        n_q = queries if o.get("query_lengths") is None else int(o["query_lengths"][b])
        n_k = rows if o.get("kv_lengths") is None else int(o["kv_lengths"][b])
        position = n_k - n_q if o.get("bottom_right") else 0 if o.get("offsets") is None else int(o["offsets"][b])
        place = np.arange(n_k) % rows if rows else np.arange(0)
        for h in range(heads):
            head = one_head(q[b, h, :n_q], k[b, h // group, place], v[b, h // group, place], b, h, heads, position,
                            max(0, n_k - rows) if o.get("ring") else 0, masks, o)
            for name, value in head.items():
                if value.ndim == 1 or name == "output":
                    result[name][b, h, :n_q] = value
                elif not o.get("ring"):
                    result[name][b, h, :n_q, :n_k] = value
    return result


def attention(q, k, v, mask=None, **o):
    """Returns output, lse and probabilities."""
    found = attend(q, k, v, mask=mask, **o)
    return found["output"], found["lse"], found["probabilities"]
