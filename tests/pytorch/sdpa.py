"""scaled_dot_product_attention: grouped heads, scale, causality in both alignments, boolean and added masks."""
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from draw import Heads, store, widen
from judge import exact_magnitude, judge_output, naive_attention


def draw_extents(draw, whole):
    """A shape that broadcasts to `whole`, with leading dimensions left out now and then."""
    shape = [extent if draw.chance(0.6) else 1 for extent in whole]
    shape[-1] = whole[-1] if draw.chance(0.9) else 1
    while len(shape) > 1 and shape[0] == 1 and draw.chance(0.5):
        shape.pop(0)
    return tuple(shape)


def draw_selection(draw, shape):
    """True = attend; some rows attend nothing."""
    selected = draw.random.random(shape) < draw.pick(0.3, 0.7, 0.95)
    if draw.chance(0.4):
        selected &= draw.random.random(shape[:-1] + (1,)) < 0.8
    return selected


def draw_added(draw, shape, dtype):
    """What is added, and in the file: of any float type, with -inf and large finite numbers in it."""
    kind = draw.pick("f32", "f16", *([dtype] if dtype in ("bf16", "f64") else []))
    added = store(draw.normal(*shape), kind)
    if draw.chance(0.4):
        added = store(np.where(draw_selection(draw, shape), widen(added), draw.pick(-np.inf, -np.inf, -1e4)), kind)
    return added


class Sdpa:
    def __init__(self, draw):
        self.draw = draw
        # Nothing to compute is a success too.
        nothing = draw.chance(0.03)
        empty = draw.pick({"batch": 0}, {"queries": 0}, {"keys": 0}) if nothing else {}
        self.heads = h = Heads(draw, **empty)
        h.draw_scale()
        h.draw_pages()
        shape = (h.batch, h.heads, h.queries, h.keys)
        self.mask, self.causal = None, None
        if draw.chance(0.55):
            extents = draw_extents(draw, shape)
            self.mask = draw_selection(draw, extents) if draw.chance(0.5) else draw_added(draw, extents, h.dtype)
            draw.option("--mask", draw.save("mask.npy", self.mask))
            draw.note("mask %s %s", self.mask.dtype, "x".join(map(str, extents)))
        if draw.chance(0.5):
            self.causal = draw.pick("top-left", "top-left", "bottom-right")
            draw.option("--causal", "--align", self.causal)
            draw.note("causal %s", self.causal)

    def attended(self):
        h = self.heads
        attended = np.ones((h.batch, h.heads, h.queries, h.keys), bool)
        if self.causal:
            position = h.keys - h.queries if self.causal == "bottom-right" else 0
            attended &= np.arange(h.keys) <= np.arange(h.queries)[:, None] + position
        if self.mask is not None:
            attended &= self.mask if self.mask.dtype == np.bool_ else widen(self.mask) != -np.inf
        return attended

    def score(self, s):
        if self.mask is None or self.mask.dtype == np.bool_:
            return s
        added = widen(self.mask)
        return s + np.where(added == -np.inf, 0, added).astype(s.dtype)

    def reference(self):
        h = self.heads
        q, k, v = (torch.from_numpy(a) for a in h.wide())
        more = {"scale": h.scale, "enable_gqa": h.group > 1}
        mask = None if self.mask is None else torch.from_numpy(
            self.mask if self.mask.dtype == np.bool_ else widen(self.mask))
        if mask is None and self.causal == "top-left":
            more["is_causal"] = True
        elif mask is None and self.causal:
            more["attn_mask"] = causal_lower_right(h.queries, h.keys)
        elif mask is not None:
            if self.causal:  # not both at once in PyTorch: its own causal mask goes into the other
                diagonal = 0 if self.causal == "top-left" else h.keys - h.queries
                causal = torch.ones(h.queries, h.keys, dtype=torch.bool).tril(diagonal)
                mask = mask & causal if mask.dtype == torch.bool else torch.where(causal, mask, -torch.inf)
            more["attn_mask"] = torch.atleast_2d(mask)  # PyTorch takes no fewer dimensions
        # PyTorch 2.15's fused kernel for CPUs scales after is_causal has masked: a scale of 0 or
        # below makes NaN of -inf.
        fused = h.scale is None or h.scale > 0
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH] if fused else SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, **more).numpy()

    def check(self):
        h = self.heads
        q, k, v = h.wide()
        attended = self.attended()
        scale = 1 / np.sqrt(h.d_k) if h.scale is None else h.scale
        # PyTorch's rows without a key are NaN or 0, by kernel; ours are 0.
        reference = np.where(attended.any(-1, keepdims=True), self.reference(), 0.0)
        naive, _ = naive_attention(q, k, v, scale, self.score, attended, h.dtype)
        return judge_output(h, reference, naive, exact_magnitude(q, k, v, scale, self.score, attended))
