"""One drawn description: its random numbers, its files, and the command line that computes it.

Each draw has a generator of its own, from the seed and its number, so that one can be repeated without the others."""
import os
import shlex
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tool"))
from attention_numpy import from_bf16, to_bf16  # noqa: E402


# ---- storage ----

def store(x, dtype):
    """What lies in the file: bfloat16 travels as uint16."""
    return to_bf16(x) if dtype == "bf16" else np.asarray(x, {"f64": np.float64, "f32": np.float32, "f16": np.float16}[dtype])


def widen(stored):
    """float64 of what a file holds."""
    return (from_bf16(stored) if stored.dtype == np.uint16 else stored).astype(np.float64)


def rounded(x, dtype):
    """float32 to the storage type and back, as float32."""
    return widen(store(x, dtype)).astype(np.float32)


# ---- layouts: the command's letters ----

def arrange(x, order):
    """(batch, heads, length, size) in the order of the letters; e is heads and size as one, a missing b or h has extent 1."""
    joined = order.replace("e", "hd")
    gone = tuple(n for n, letter in enumerate("bhsd") if letter not in joined)
    kept = "".join(letter for letter in "bhsd" if letter in joined)
    x = np.squeeze(x, gone).transpose([kept.index(letter) for letter in joined])
    if "e" in order:
        at = order.index("e")
        x = x.reshape(x.shape[:at] + (x.shape[at] * x.shape[at + 1],) + x.shape[at + 2:])
    return np.ascontiguousarray(x)


def restore(x, order, heads):
    """The way back: (batch, heads, length, size)."""
    if "e" in order:
        at = order.index("e")
        x = x.reshape(x.shape[:at] + (heads, x.shape[at] // heads) + x.shape[at + 1:])
    joined = order.replace("e", "hd")
    missing = [letter for letter in "bh" if letter not in joined]
    x = x.reshape((1,) * len(missing) + x.shape)
    joined = "".join(missing) + joined
    return x.transpose([joined.index(letter) for letter in "bhsd"])


# ---- a draw ----

class Draw:
    def __init__(self, seed, number, kind, solver, folder):
        self.number, self.kind, self.solver, self.folder = number, kind, solver, folder
        self.random = np.random.default_rng([seed, number])
        self.arguments, self.notes, self.results = [], [], {}

    def chance(self, probability):
        return bool(self.random.random() < probability)

    def whole(self, low, high):
        return int(self.random.integers(low, high + 1))

    def pick(self, *choices):
        return choices[self.whole(0, len(choices) - 1)]

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def number_between(self, low, high):
        """A float32, so that every precision means the same number."""
        return float(np.float32(self.random.uniform(low, high)))

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, name, array):
        np.save(self.path(name), array)
        return self.path(name)

    def text(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def option(self, *words):
        self.arguments += [word if isinstance(word, str) else "%.9g" % word for word in words]

    def note(self, text, *values):
        self.notes.append(text % values if values else text)

    def result(self, name, option, prefix=""):
        self.results[name] = self.path(name + ".npy")
        self.option(option, prefix + self.results[name])

    def load(self, name):
        return np.load(self.results[name])

    def line(self, command):
        return " ".join(shlex.quote(word) for word in [command] + self.arguments)

    def describe(self):
        return "%s on %s: %s" % (self.kind, self.solver, ", ".join(self.notes))


# ---- what scaled dot-product attention and flex_attention share ----

class Heads:
    """Queries, keys and values of a draw: as stored, widened, and on the command line."""

    def __init__(self, draw, batch=None, queries=None, keys=None):
        self.draw = draw
        self.dtype = draw.pick("f32", "f32", "f16", "bf16")
        self.kv_heads = draw.whole(1, 3)
        self.group = draw.pick(1, 1, 2, 3, 4)
        self.heads = self.kv_heads * self.group
        self.batch = draw.whole(1, 3) if batch is None else batch
        # The most queries, the fewest and the most keys; long ones, of which solvers split the keys, for few queries alone.
        longest, low, high = draw.pick((40, 1, 40), (40, 1, 40), (70, 1, 130), (4, 1, 600), (1, 1, 300), (130, 1, 9), (2, 900, 3000))
        self.queries = draw.whole(1, longest) if queries is None else queries
        self.keys = draw.whole(low, high) if keys is None else keys
        self.d_k = draw.pick(draw.whole(1, 40), 8, 16, 32, 64, 80, 128)
        self.d_v = draw.pick(self.d_k, self.d_k, draw.whole(1, 70), 16, 64)
        fused = batch is None and self.queries == self.keys
        if batch is None and draw.chance(0.06):
            fused, self.keys, self.d_v = True, self.queries, self.d_k
        self.q = store(draw.normal(self.batch, self.heads, self.queries, self.d_k), self.dtype)
        self.k = store(draw.normal(self.batch, self.kv_heads, self.keys, self.d_k), self.dtype)
        self.v = store(draw.normal(self.batch, self.kv_heads, self.keys, self.d_v), self.dtype)
        self.scale = None
        draw.note("%s, %dx%d/%dx%dx%d, %d/%d", self.dtype, self.batch, self.heads, self.kv_heads, self.queries, self.keys,
                  self.d_k, self.d_v)
        draw.option("attention")
        if fused and self.d_v == self.d_k:
            self.write_fused()
        else:
            self.write()
        draw.result("o", "-o")
        draw.option("--solver", draw.solver)
        if self.dtype == "bf16":
            draw.option("--dtype", "bf16")

    def layout(self, order):
        self.order = order
        self.draw.note(order)
        self.draw.option("--layout", order)
        if "e" in order:
            self.draw.option("--heads", "%d,%d" % (self.heads, self.kv_heads))

    def write(self):
        draw = self.draw
        self.order = "bhsd"
        if draw.chance(0.5):
            single = ["shd", "hsd"] if self.batch == 1 else []
            self.layout(draw.pick("bshd", "sbhd", "bse", "sbe", *single))
        for name in "qkv":
            draw.option("-" + name, draw.save(name + ".npy", arrange(getattr(self, name), self.order)))

    def write_fused(self):
        """One array of queries, keys and values."""
        draw, parts = self.draw, (self.q, self.k, self.v)
        if self.group == 1 and draw.chance(0.5):
            self.order = "bs3hd"
            fused = np.stack([arrange(part, "bshd") for part in parts], axis=2)
        else:
            self.order = "bse"
            fused = np.concatenate([arrange(part, "bse") for part in parts], axis=2)
        draw.option("--qkv", draw.save("qkv.npy", np.ascontiguousarray(fused)))
        draw.note("one array")
        self.layout(self.order)
        self.order = self.order.replace("3", "")

    def draw_scale(self):
        draw = self.draw
        if draw.chance(0.3):
            self.scale = draw.pick(draw.number_between(0.02, 0.6), draw.number_between(0.02, 0.6), 0.0,
                                   draw.number_between(-0.3, -0.02))
            draw.option("--scale", self.scale)
            draw.note("scale %.3g", self.scale)

    def draw_pages(self):
        if self.draw.chance(0.08):
            size = self.draw.whole(1, 20)
            self.draw.option("--page-size", size)
            self.draw.note("pages of %d", size)

    def wide(self):
        return widen(self.q), widen(self.k), widen(self.v)

    def output(self):
        return restore(widen(self.draw.load("o")), self.order, self.heads)
