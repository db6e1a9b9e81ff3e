"""Random descriptions of attention's backward direction, computed by the library (backward_run.c) and by PyTorch's autograd in
float64, compared by the accuracy rule.

    python backward.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The program is $BACKWARD_RUN.  Prints TAP, as property.py does.

Everything is computed dense: (items, heads, queries, keys), of which `attended` says which pairs count.  The loss is the sum of the
output times d_output and of the log-sum-exp times d_lse, over the rows within each item's lengths."""
import numpy as np
import torch

import property
from draw import rounded, store, widen
from judge import EXACT_ZERO, disagreement, judge_lse
from sdpa import draw_added, draw_extents, draw_selection

KINDS = ("batch", "packed", "additive")
ORDER = ("batch", "packed", "batch", "additive", "batch")
SOLVERS = ("cpu", "cpu-amx", "generic", "tile", "emulated-mma")
ALIGNMENTS = ("top-left", "bottom-right", "explicit")
PAIRS = ("mask", "bias")
OPERANDS = ("query", "key", "value", "d_output")  # of the products
INTEGERS = (np.int32, np.int64)

# A score function and its derivative, which Backward.bent and bent_slope compute, too.
BENT = ("float %s(float score, int batch, int head, int query, int key, user_data user) "
        "{ const float bend = %.3ff, tilt = 1 + 0.25f * (key %% 3), t = tanh(tilt * score / bend); return %s; }")
SCORE_MOD = "bend * t + 0.5f * tilt * score + 0.1f * (head - query % 2)"
SCORE_MOD_GRAD = "tilt * (1.5f - t * t)"


class Side:
    """The queries' or the keys' lengths: `stored` rows of an array, `dense` rows of a dense one, of which item b owns `rows[b]`, and
    `lengths[b]` count."""

    def __init__(self, draw, name, items, packed, length):
        self.items, self.starts, self.name = items, None, name
        self.rows = np.full(items, length)
        self.stored = self.dense = length
        if packed:
            self.rows = draw.random.integers(0, length + 1, items)
            self.starts = draw.pick(0, draw.whole(0, 3)) + np.concatenate([[0], np.cumsum(self.rows)])
            self.stored = self.dense = max(1, int(self.starts[-1]) + draw.pick(0, draw.whole(0, 3)))
            draw.save(name + "_starts.npy", self.starts.astype(draw.pick(*INTEGERS)))
            if name == "query" and draw.chance(0.7):
                self.dense = min(self.stored, max(1, int(self.rows.max())) + draw.pick(0, 0, 3))
                draw.option("longest=%d" % self.dense)
            draw.note("%s starts %s", name, list(map(int, self.starts)))
        self.lengths = self.rows
        if draw.chance(0.3):
            given = draw.random.integers(0, self.rows + 1, items)
            if draw.chance(0.3):  # out of range: the library clamps
                given[draw.whole(0, items - 1)] = draw.pick(-3, self.dense + 5)
            draw.save(name + "_lengths.npy", given.astype(draw.pick(*INTEGERS)))
            self.lengths = np.clip(given, 0, self.rows)
            draw.note("%s lengths %s", name, list(map(int, given)))

    def batch(self):
        return self.items if self.starts is None else 1

    def counts(self):
        return np.arange(self.dense) < self.lengths[:, None]

    def places(self):
        """(batch index, row) of each item's rows in a stored array."""
        for b in range(self.items):
            first = 0 if self.starts is None else int(self.starts[b])
            yield (b if self.starts is None else 0), slice(first, first + int(self.rows[b]))

    def dense_of(self, stored):
        """(batch, heads, stored rows, ...) as (items, heads, dense rows, ...), with zeros behind an item's rows."""
        dense = np.zeros((self.items, stored.shape[1], self.dense) + stored.shape[3:], stored.dtype)
        for b, (at, rows) in enumerate(self.places()):
            dense[b, :, :rows.stop - rows.start] = stored[at, :, rows]
        return dense

    def owned(self):
        """(batch, 1, stored rows): the rows that some item owns."""
        owned = np.zeros((self.batch(), 1, self.stored), bool)
        for at, rows in self.places():
            owned[at, 0, rows] = True
        return owned


# ---- where an array lies in its file ----

class Place:
    def __init__(self, draw, rank):
        self.order, self.gap = list(range(rank)), 0
        if rank == 4 and draw.chance(0.6):
            self.order = draw.pick([0, 2, 1, 3], [0, 2, 1, 3], [2, 0, 1, 3], [int(n) for n in draw.random.permutation(4)])
        elif rank > 1 and draw.chance(0.15):
            self.order = [int(n) for n in draw.random.permutation(rank)]
        if draw.chance(0.2):
            self.gap = draw.whole(1, 5)

    def text(self):
        return "".join(map(str, self.order)) + ("+%d" % self.gap if self.gap else "")

    def file(self, array):
        """What lies in the gap has all bits set: a NaN, in every type."""
        x = np.ascontiguousarray(array.transpose(self.order))
        gap = np.full(x.shape[:-1] + (self.gap * x.itemsize,), 0xff, np.uint8)
        if x.dtype == np.bool_:
            gap[:] = 1
        return np.concatenate([gap.view(x.dtype), x], axis=-1)

    def array(self, file):
        return file[..., self.gap:].transpose(np.argsort(self.order))

    def gap_is_untouched(self, file):
        return untouched(file[..., :self.gap])


def untouched(x):
    """Whether all bits are set, as they were before the library wrote."""
    return bool((np.ascontiguousarray(x).view(np.uint8) == 0xff).all())


def spoil(stored, where):
    """`stored` with NaN in the rows that `where`, (batch, heads, rows), names."""
    stored = stored.copy()
    stored[np.broadcast_to(where, stored.shape[:3])] = 0xffff if stored.dtype == np.uint16 else np.nan
    return stored


# ---- softmax of rows of which some number is finite, and its log-sum-exp ----

def nearest(x, dtype):
    return x.to(torch.float16 if dtype == "f16" else torch.bfloat16).to(x.dtype)


def softmax(s):
    return torch.softmax(s, -1), torch.logsumexp(s, -1)


def naive_softmax(s):
    """One term after another, as judge.naive_weights has it."""
    top = s.detach().amax(-1)
    terms = torch.exp(s - top[..., None])
    total = torch.zeros_like(top)
    for term in terms.unbind(-1):
        total = total + term
    return terms / total[..., None], top + torch.log(total)


# ---- a draw ----

class Backward:
    def __init__(self, draw):
        self.draw = draw
        draw.option(draw.folder)
        self.additive = draw.kind == "additive" or (draw.kind == "packed" and draw.chance(0.1))
        self.wide = draw.solver == "generic" and draw.chance(0.5)  # float64
        self.draw_sizes()
        self.draw_positions()
        self.draw_scoring()
        self.masks = {name: self.draw_mask(name) for name in PAIRS}
        self.attended = self.find_attended()
        self.draw_dropout()
        self.draw_results()
        self.draw_rows()

    def shape(self):
        return self.queries.items, self.heads, self.queries.dense, self.keys.dense

    def draw_sizes(self):
        draw, packed = self.draw, self.draw.kind == "packed"
        which = draw.pick("query", "key", "both", "both") if packed else ""
        self.kv_heads, group = draw.whole(1, 3), draw.pick(1, 1, 2, 3)
        # The most queries and keys; 64 queries are a block of the solver cpu, 48 keys a tile.
        queries, keys = draw.pick((20, 40), (70, 110), (130, 100), (130, 300), (9, 300))
        self.d_k, self.d_v = draw.pick(draw.whole(1, 40), 8, 16, 32, 64, 80), draw.pick(0, 0, draw.whole(1, 70), 16, 64)
        if self.additive:
            queries, keys, group = min(queries, 66), min(keys, 70), min(group, 2)
            self.d_k = min(self.d_k, 20)
        self.d_v = self.d_v or self.d_k
        self.heads = self.kv_heads * group
        items = draw.whole(1, 3)
        if packed:
            queries, keys = queries if which == "key" else queries // 2, keys if which == "query" else keys // 3
        longest = draw.chance(0.3)
        self.queries = Side(draw, "query", items, which in ("query", "both"), queries if longest else draw.whole(1, queries))
        self.keys = Side(draw, "key", items, which in ("key", "both"), keys if longest else draw.whole(1, keys))
        draw.note("%dx%d/%dx%dx%d, %d/%d", items, self.heads, self.kv_heads, self.queries.stored, self.keys.stored, self.d_k,
                  self.d_v)

    def draw_positions(self):
        draw, items = self.draw, self.queries.items
        self.causal = draw.chance(0.4)
        self.left = draw.whole(0, 40) if draw.chance(0.2) else None
        self.right = draw.pick(0, draw.whole(0, 20)) if draw.chance(0.2) else None
        self.alignment = draw.whole(0, 2)
        self.position = np.zeros(items, np.int64)
        if self.causal:
            draw.option("causal=1")
            draw.note("causal")
        for name, value in (("left", self.left), ("right", self.right)):
            if value is not None:
                draw.option("%s=%d" % (name, value))
                draw.note("%s %d", name, value)
        draw.option("alignment=%d" % self.alignment)
        draw.note(ALIGNMENTS[self.alignment])
        if self.alignment == 1:
            self.position = self.keys.lengths - self.queries.lengths
        elif self.alignment == 2:
            if draw.chance(0.5):
                start = draw.whole(-10, self.keys.dense)
                draw.option("position=%d" % start)
                self.position = self.position + start
            if draw.chance(0.6):
                positions = draw.random.integers(-10, self.keys.lengths + 10, items)
                draw.save("positions.npy", positions.astype(draw.pick(*INTEGERS)))
                self.position = self.position + positions

    def draw_scoring(self):
        draw = self.draw
        self.scale = 1.0 if self.additive else 1 / np.sqrt(self.d_k)
        if draw.chance(0.4):
            self.scale = draw.pick(draw.number_between(0.02, 0.6), 0.0, draw.number_between(-0.3, -0.02))
            draw.option("scale=%.9g" % self.scale)
            draw.note("scale %.3g", self.scale)
        self.softcap = draw.number_between(0.5, 30) if draw.chance(0.3) else 0.0
        if self.softcap:
            draw.option("softcap=%.9g" % self.softcap)
            draw.note("softcap %.3g", self.softcap)
        # Users' functions compute in float32.
        self.bend = round(draw.number_between(0.5, 8), 3) if draw.chance(0.25) and not self.wide else 0.0
        if self.bend:
            draw.option("score_mod=" + BENT % ("score_mod", self.bend, SCORE_MOD),
                        "score_mod_grad=" + BENT % ("score_mod_grad", self.bend, SCORE_MOD_GRAD))
            draw.note("score_mod %.3g", self.bend)
        self.per_head = {}
        if self.additive:
            draw.option("additive=1")
            self.per_head["vector"] = draw.normal(draw.pick(1, self.heads), self.d_k)
        if draw.chance(0.3):
            extent = draw.pick((), (), (1,), (self.queries.items,)) + (self.heads,)
            self.per_head["alibi"] = np.abs(draw.normal(*extent)) * np.float32(0.2)
        if draw.chance(0.3):
            self.per_head["sinks"] = draw.normal(self.heads)
        for name, array in self.per_head.items():
            self.give(name, array)
            draw.note("%s %s", name, "x".join(map(str, array.shape)))

    def draw_mask(self, name):
        """The array as it is stored, or None."""
        draw = self.draw
        if not draw.chance(0.45 if name == "mask" else 0.25):
            return None
        extents = draw_extents(draw, self.shape())
        keys = self.keys.dense
        if keys > 3 and extents[-1] == keys and draw.chance(0.08 if self.keys.starts is None else 0.6):
            extents = extents[:-1] + (draw.whole(2, keys - 1),)
            if "short_mask=1" not in draw.arguments:
                draw.option("short_mask=1")
        boolean = name == "mask" and draw.chance(0.35)
        array = draw_selection(draw, extents) if boolean else draw_added(draw, extents, "f64" if self.wide else "bf16")
        draw.note("%s %s %s", name, array.dtype, "x".join(map(str, extents)))
        self.give(name, array)
        return array

    def draw_dropout(self):
        draw = self.draw
        self.dropout = draw.number_between(0.05, 0.8) if draw.chance(0.2) else 0.0
        if self.dropout:
            draw.option("dropout=%.9g" % self.dropout, "seed=%d" % draw.whole(0, 2 ** 62), "offset=%d" % draw.whole(0, 2 ** 31))
            draw.note("dropout %.3g", self.dropout)

    def draw_results(self):
        """Which gradients there are, of which type.  The solver cpu has none of masks, biases, slopes and vectors; generic alone has
        vectors."""
        draw = self.draw
        differentiable = [name for name in PAIRS if self.masks[name] is not None and self.masks[name].dtype != np.bool_]
        differentiable += self.per_head
        if draw.solver != "generic" and (self.additive or (draw.solver.startswith("cpu") and draw.chance(0.2))):
            draw.solver = "any"
        if draw.solver.startswith("cpu"):
            differentiable = [name for name in differentiable if name == "sinks"]
        if draw.solver != "any":
            draw.option("solver=" + draw.solver)
        common = "f64" if self.wide else draw.pick("f32", "f32", "f16", "bf16") if draw.chance(0.7) else None
        self.types = {name: common or draw.pick("f32", "f16", "bf16")
                      for name in OPERANDS + ("output", "d_query", "d_key", "d_value")}
        if self.wide:
            self.types.update(d_mask="f64", d_bias="f64")
        elif draw.solver == "emulated-mma":
            self.types.update(dict.fromkeys(OPERANDS, draw.pick("f16", "bf16")))
        wanted = [name for name in ["query", "key", "value"] + differentiable if draw.chance(0.75)] or [
            draw.pick("query", "key", "value", *differentiable)]
        self.results = {}
        for name in ["output", "lse"] + ["d_" + name for name in wanted]:
            rank = {"lse": 3, "d_mask": 0, "d_bias": 0, "d_vector": 2, "d_alibi": 0, "d_sinks": 1}.get(name, 4)
            if rank == 0:
                rank = (self.masks[name[2:]] if name[2:] in PAIRS else self.per_head[name[2:]]).ndim
            place = self.results[name] = Place(draw, rank)
            draw.option("%s=%s:%s" % (name, self.types.get(name, "f32"), place.text()))
        self.wanted = wanted
        self.has_d_lse = draw.chance(0.4)
        types = list(self.types.values())
        draw.note("%s to %s%s", types[0] if len(set(types)) == 1 else " ".join(types), " ".join(wanted),
                  " from lse, too" if self.has_d_lse else "")

    def draw_rows(self):
        """Arrays of queries and keys.  In the files there is NaN where nothing may be read: in rows that no item owns or that are
        behind its length, and in some keys that nobody attends; here there are zeros."""
        draw, q, k = self.draw, self.queries, self.keys
        self.rows = {}
        group = self.heads // self.kv_heads
        unattended = ~self.attended.reshape(q.items, self.kv_heads, group * q.dense, k.dense).any(2)
        unattended &= np.arange(k.dense) < k.rows[:, None, None]
        forget = draw.chance(0.4)
        for name, side, heads, width in (("query", q, self.heads, self.d_k), ("key", k, self.kv_heads, self.d_k),
                                         ("value", k, self.kv_heads, self.d_v), ("d_output", q, self.heads, self.d_v),
                                         ("d_lse", q, self.heads, 0)):
            if name == "d_lse" and not self.has_d_lse:
                continue
            shape = (side.batch(), heads, side.stored) + ((width,) if width else ())
            drawn = draw.random.standard_normal(shape) if self.wide else draw.normal(*shape)
            stored = store(drawn, self.types.get(name, "f32"))
            hidden = np.ones(shape[:3], bool)
            for b, (at, rows) in enumerate(side.places()):
                hidden[at, :, rows.start:rows.start + int(side.lengths[b])] = False
                if name == "key" and forget:
                    hidden[at, :, rows] |= unattended[b, :, :rows.stop - rows.start]
            dense = side.dense_of(widen(spoil(stored, hidden)))
            self.rows[name] = np.where(np.isnan(dense), 0, dense)
            self.give(name, spoil(stored, hidden))

    def give(self, name, array):
        place = Place(self.draw, array.ndim)
        self.draw.save(name + ".npy", place.file(array))
        self.draw.option("%s=%s" % (name, place.text()))

    def load(self, name):
        return self.results[name].array(np.load(self.draw.path(name + ".npy")))

    # ---- what it means ----

    def distances(self):
        """p - j: (items, 1, queries, keys)."""
        i, j = np.arange(self.queries.dense)[:, None], np.arange(self.keys.dense)
        return i - j + self.position[:, None, None, None]

    def pad(self, array, missing):
        """A mask or bias whose keys end early, with `missing` for the others."""
        short = self.keys.dense - array.shape[-1] if array.shape[-1] != 1 else 0
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, short)], constant_values=missing)

    def find_attended(self):
        distance = self.distances()
        attended = (self.queries.counts()[:, None, :, None] & self.keys.counts()[:, None, None, :])
        if self.causal:
            attended = attended & (distance >= 0)
        if self.left is not None:
            attended = attended & (distance <= self.left)
        if self.right is not None:
            attended = attended & (-distance <= self.right)
        for mask in self.masks.values():
            if mask is not None:
                selected = mask if mask.dtype == np.bool_ else widen(mask) != -np.inf
                attended = attended & self.pad(selected, False)
        return np.broadcast_to(attended, self.shape())

    def leaves(self, dtype):
        """What has a derivative, as tensors."""
        arrays = {name: self.rows[name] for name in ("query", "key", "value")}
        arrays.update(self.per_head)
        for name, mask in self.masks.items():
            if mask is not None and mask.dtype != np.bool_:
                wide = widen(mask)
                arrays[name] = np.where(wide == -np.inf, 0, wide)
        return {name: torch.tensor(array, dtype=dtype, requires_grad=True) for name, array in arrays.items()}

    def tilt(self):
        return 1 + 0.25 * (torch.arange(self.keys.dense) % 3)

    def bent(self, s):
        tilt, head, query = self.tilt().to(s.dtype), torch.arange(self.heads)[:, None, None], torch.arange(self.queries.dense)
        return self.bend * torch.tanh(tilt * s / self.bend) + 0.5 * tilt * s + 0.1 * (head - query[:, None] % 2)

    def bent_slope(self, s):
        tilt = self.tilt().to(s.dtype)
        return tilt * (1.5 - torch.tanh(tilt * s / self.bend) ** 2)

    def capped(self, leaf):
        group = self.heads // self.kv_heads
        q, k = leaf["query"], leaf["key"].repeat_interleave(group, 1)
        if self.additive:
            s = self.scale * (torch.tanh(q[:, :, :, None] + k[:, :, None]) * leaf["vector"][:, None, None]).sum(-1)
        else:
            s = self.scale * (q @ k.transpose(2, 3))
            if self.rounds(s):
                s.register_hook(lambda x: nearest(x, self.types["query"]))
        if self.softcap:
            s = self.softcap * torch.tanh(s / self.softcap)
        return s

    def scores(self, leaf):
        s = self.capped(leaf)
        if self.bend:
            s = self.bent(s)
        if "bias" in leaf:
            s = s + self.padded(leaf["bias"])
        if "alibi" in leaf:
            s = s - leaf["alibi"][..., None, None] * torch.from_numpy(np.abs(self.distances())).to(s.dtype)
        if "mask" in leaf:
            s = s + self.padded(leaf["mask"])
        return s

    def padded(self, x):
        return torch.nn.functional.pad(x, (0, self.keys.dense - x.shape[-1])) if x.shape[-1] != 1 else x

    def forward(self, leaf, kept, naive):
        """Output, log-sum-exp (0 where it is none), and P before dropout."""
        s = self.scores(leaf)
        attended, alive = torch.from_numpy(self.attended.copy()), torch.from_numpy(self.alive())
        s = torch.where(attended, s, -torch.inf)
        if "sinks" in leaf:
            s = torch.cat([s, leaf["sinks"][:, None, None].expand(s.shape[:3] + (1,))], -1)
        s = torch.where(alive[..., None], s, 0)  # a row of -inf alone has no softmax
        weights, lse = naive_softmax(s) if naive else softmax(s)
        weights, lse = torch.where(attended, weights[..., :self.keys.dense], 0), torch.where(alive, lse, 0)
        value = leaf["value"].repeat_interleave(self.heads // self.kv_heads, 1)
        kept_weights = weights * kept.to(s.dtype)
        output = kept_weights @ value
        if self.rounds(s):
            by_value = nearest(kept_weights.detach(), self.types["query"]) @ value
            output = kept_weights @ value.detach() + by_value - by_value.detach()
        return output, lse, weights

    def rounds(self, s):
        """Whether this is the naive computation for a solver that rounds P and dS to the type of its operands: the matrix engine, or
        cpu-bf16, which the library may choose."""
        chosen = self.draw.solver == "any" and {self.types[name] for name in OPERANDS} == {"bf16"}
        return s.dtype == torch.float32 and (chosen or self.draw.solver == "emulated-mma")

    def alive(self):
        """The rows that have a log-sum-exp: (items, heads, queries)."""
        if "sinks" in self.per_head:
            return np.broadcast_to(self.queries.counts()[:, None], self.shape()[:3]).copy()
        return self.attended.any(-1)

    def gradients(self, dtype, kept, stored, naive):
        """Forward's results and the gradients, by autograd.

        The library takes delta = d_output . output from the output as it was stored, and so do the reference and the naive
        computation: to replace autograd's delta is to subtract d_output . (stored - output) from d_lse."""
        with torch.enable_grad():
            leaf = self.leaves(dtype)
            output, lse, weights = self.forward(leaf, kept, naive)
            d_output = torch.from_numpy(self.rows["d_output"])
            shift = (d_output * (torch.from_numpy(stored) - output.detach())).sum(-1)
            by_lse = (torch.from_numpy(self.d_lse()) - shift).to(dtype)
            loss = (output * d_output.to(dtype)).sum() + (lse * by_lse).sum()
            loss.backward()
        found = {name: (torch.zeros_like(x) if x.grad is None else x.grad).numpy() for name, x in leaf.items()}
        return output.detach(), lse.detach(), weights.detach(), found

    def d_lse(self):
        return self.rows["d_lse"] if self.has_d_lse else np.zeros(self.shape()[:3])

    # ---- what the sums are made of, as tests/support/attention/backward.c has it ----

    def magnitudes(self, kept, weights, lse, output):
        """Of each gradient, and how many terms it has; `output` is the stored one."""
        d_output, value = np.abs(self.rows["d_output"]), np.abs(self.rows["value"])
        group = self.heads // self.kv_heads
        delta = (d_output * np.abs(output)).sum(-1) + np.abs(self.d_lse())
        by_output = d_output @ np.repeat(value, group, 1).swapaxes(2, 3) * kept
        pair = weights * (by_output + delta[..., None])
        made = {"value": self.grouped((weights * kept).swapaxes(2, 3) @ d_output), "mask": pair, "bias": pair,
                "alibi": (pair * np.abs(self.distances())).sum((2, 3))}
        terms = {"query": self.attended.sum(-1)[..., None], "mask": self.attended, "bias": self.attended,
                 "alibi": self.attended.sum((2, 3)), "vector": np.repeat(self.attended.sum((0, 2, 3))[:, None], self.d_k, 1)}
        terms["key"] = terms["value"] = self.grouped(self.attended.sum(2))[..., None]
        scaled = pair * abs(self.scale)
        if self.bend:
            scaled = scaled * self.bent_slope(self.capped(self.leaves(torch.float64))).detach().numpy()
        query, key = self.rows["query"], np.repeat(self.rows["key"], group, 1)
        if self.additive:
            t = np.tanh(query[:, :, :, None] + key[:, :, None])
            vector = np.abs(np.broadcast_to(self.per_head["vector"], (self.heads, self.d_k)).astype(np.float64))
            # 1 - t^2 cancels where t is near 1.
            by_sum = scaled[..., None] * vector[:, None, None] * (2 - t * t)
            made.update(query=by_sum.sum(3), key=self.grouped(by_sum.sum(2)))
            made["vector"] = (scaled[..., None] * np.abs(t)).sum((0, 2, 3))
        else:
            made.update(query=scaled @ np.abs(key), key=self.grouped(scaled.swapaxes(2, 3) @ np.abs(query)))
        if "sinks" in self.per_head:
            sink = np.exp(self.per_head["sinks"].astype(np.float64)[:, None] - lse) * self.alive()
            made["sinks"] = (sink * (1 + np.abs(lse)) * delta).sum((0, 2))
            terms["sinks"] = self.alive().sum((0, 2))
        return {name: self.marked(name, made[name], terms[name]) for name in self.wanted}

    def grouped(self, x):
        """The sum over the heads that share one of keys."""
        return x.reshape(x.shape[:1] + (self.kv_heads, -1) + x.shape[2:]).sum(2)

    def marked(self, name, magnitude, terms):
        """The magnitude of an array that may broadcast; where no pair adds to it, it is +0."""
        array = self.masks.get(name) if name in PAIRS else self.per_head.get(name)
        if array is not None:
            keys = array.shape[-1] if name in PAIRS and array.shape[-1] != 1 else None
            magnitude, terms = (torch.from_numpy(np.ascontiguousarray(x[..., :keys])).to(torch.float64).sum_to_size(array.shape)
                                .numpy() for x in (magnitude, terms))
        return np.where(np.broadcast_to(terms, magnitude.shape) == 0, EXACT_ZERO, magnitude)

    # ---- the verdict ----

    def check(self):
        wrong = [line for name in self.results for line in [self.check_untouched(name)] if line]
        kept = np.float64(1)
        if self.dropout:
            keep = np.load(self.draw.path("keep.npy"))
            kept = keep / (1 - np.float64(self.dropout))
            wrong += self.check_share(keep)
        kept_tensor = torch.from_numpy(np.broadcast_to(kept, self.shape()).copy())
        stored = np.where(self.alive()[..., None], self.queries.dense_of(widen(self.load("output"))), 0)
        reference = self.gradients(torch.float64, kept_tensor, stored, False)
        naive = self.gradients(torch.float64 if self.wide else torch.float32, kept_tensor, stored, True)
        wrong += self.check_forward(reference, naive, kept)
        magnitudes = self.magnitudes(np.broadcast_to(kept, self.shape()), reference[2].numpy(), reference[1].numpy(), stored)
        for name in self.wanted:
            value = widen(self.load("d_" + name))
            if name in ("query", "key", "value"):
                value = (self.queries if name == "query" else self.keys).dense_of(value)
            wrong.append(disagreement("d_" + name, value, reference[3][name], naive[3][name], magnitudes[name],
                                      self.types.get("d_" + name, "f32")))
        return "\n".join(filter(None, wrong)) or None

    def check_untouched(self, name):
        """Rows that no item owns, and gaps, keep what they held."""
        if not self.results[name].gap_is_untouched(np.load(self.draw.path(name + ".npy"))):
            return "%s: written beside the array" % name
        side = {"output": self.queries, "lse": self.queries, "d_query": self.queries, "d_key": self.keys,
                "d_value": self.keys}.get(name)
        if side is None:
            return None
        x = self.load(name)
        free = np.broadcast_to(~side.owned(), x.shape[:3])
        return None if untouched(x[free]) else "%s: rows that no item owns are written" % name

    def check_share(self, keep):
        """That what is kept is about its share: 6 standard deviations."""
        share, expected = keep.mean(), 1 - self.dropout
        far = 6 * np.sqrt(expected * self.dropout / keep.size)
        return [] if abs(share - expected) <= far else ["dropout keeps %g, expected %g" % (share, expected)]

    def check_forward(self, reference, naive, kept):
        """Forward's results, without which backward's mean nothing: property.py holds them to more."""
        alive = self.alive()
        storage = [self.types[name] for name in ("value", "output")]
        weights = naive[2] * torch.from_numpy(np.broadcast_to(kept, self.shape()).astype(naive[2].numpy().dtype))
        if storage not in (["f32", "f32"], ["f64", "f64"]):  # as matrix engines round it
            weights = torch.from_numpy(rounded(weights.numpy(), self.types["value"]))
        value = torch.from_numpy(np.repeat(self.rows["value"], self.heads // self.kv_heads, 1)).to(weights.dtype)
        plain = widen(store((weights @ value).numpy(), self.types["output"]))
        magnitude = reference[2].numpy() * kept @ np.abs(value.numpy().astype(np.float64))
        magnitude = np.where(self.attended.any(-1)[..., None], magnitude, EXACT_ZERO)
        given = self.queries.dense_of(widen(self.load("output")))
        lse = np.where(alive, self.queries.dense_of(self.load("lse")), 0)
        return [disagreement("output", given, reference[0].numpy(), plain, magnitude, self.types["output"]),
                judge_lse(lse, reference[1].numpy(), naive[1].numpy())]


if __name__ == "__main__":
    property.main({kind: Backward for kind in KINDS}, ORDER, SOLVERS, "BACKWARD_RUN", 500)
