"""flex_attention, uncompiled: score and mask functions, as our options, as arrays, or as OpenCL C.

A draw is a list of score functions and one of mask functions, written once in Python with operators that PyTorch's vmap
(reference) and whole tensors (naive computation) both take; queries and keys are an item's own, p is where the query stands."""
import numpy as np
import torch
import torch.nn.attention.flex_attention as flex

from draw import Heads
from judge import exact_magnitude, judge_lse, judge_output, naive_attention

# Otherwise flex_attention is traced before it is computed, even if nothing is compiled, which takes seconds a draw.
flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True

SCORE = "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n{\n%s    return score;\n}\n"
MASK = "int mask_mod(int batch, int head, int query, int key, user_data user)\n{\n    return %s;\n}\n"


class Snippets:
    """What a draw compiles into the kernels, and the buffers and numbers that it reads."""

    def __init__(self, draw):
        self.draw, self.lines, self.conditions, self.buffers, self.scalars = draw, [], [], 0, 0

    def room(self, buffers=0, scalars=0):
        return self.buffers + buffers <= 4 and self.scalars + scalars <= 4

    def buffer(self, array):
        name = "user%d.npy" % self.buffers
        self.draw.option("--user", "%d:%s" % (self.buffers, self.draw.save(name, array)))
        self.buffers += 1
        return "user.buffer%d" % (self.buffers - 1)

    def scalar(self, value):
        self.draw.option("--user-scalar", "%d:%.9g" % (self.scalars, value))
        self.scalars += 1
        return "user.scalar%d" % (self.scalars - 1)

    def write(self):
        if self.lines:
            self.draw.option("--score-mod", self.draw.text("score.cl", SCORE % "".join("    %s\n" % n for n in self.lines)))
        if self.conditions:
            self.draw.option("--mask-mod", self.draw.text("mask.cl", MASK % " && ".join("(%s)" % n for n in self.conditions)))


class Flex:
    def __init__(self, draw):
        self.draw = draw
        self.packed = draw.chance(0.12)
        if self.packed:
            items = draw.whole(1, 4)
            self.query_lengths = draw.random.integers(1, 30, items)
            self.key_lengths = draw.random.integers(1, 60, items)
            self.heads = h = Heads(draw, batch=1, queries=int(self.query_lengths.sum()), keys=int(self.key_lengths.sum()))
        else:
            self.heads = h = Heads(draw)
            items = h.batch
            self.query_lengths, self.key_lengths = np.full(items, h.queries), np.full(items, h.keys)
        self.items = items
        h.draw_scale()
        self.snippets = Snippets(draw)
        self.scores, self.masks = [], []  # functions (score, b, h, i, j, p, tables) and (b, h, i, j, p, tables)
        self.tables = {}  # what they read: NumPy arrays
        self.softcapped = False
        self.draw_lengths()
        self.draw_position()
        self.draw_scores()
        self.draw_masks()
        self.snippets.write()
        # The command refuses an alignment that nothing depends on.
        if "bottom-right" in draw.notes and {"--causal", "--window", "--alibi", "--score-mod",
                                             "--mask-mod"}.intersection(draw.arguments):
            draw.option("--align", "bottom-right")
        self.sink = None
        if draw.chance(0.15):
            self.sink = draw.normal(h.heads)
            draw.option("--sinks", draw.save("sinks.npy", self.sink))
            draw.note("sinks")
        self.lse = not self.packed and draw.chance(0.6)
        if self.lse:
            draw.result("lse", "--lse")
            draw.note("lse")

    # ---- what is drawn ----

    def draw_lengths(self):
        draw, h = self.draw, self.heads
        if self.packed:
            for name, lengths in (("query", self.query_lengths), ("key", self.key_lengths)):
                starts = np.concatenate([[0], np.cumsum(lengths)])
                draw.option("--%s-starts" % name, draw.save(name + "_starts.npy", starts.astype(np.int32)))
                self.tables[name + "_item"] = np.repeat(np.arange(self.items), lengths)
                self.tables[name + "_start"] = starts[:-1]
            draw.note("packed %s/%s", list(map(int, self.query_lengths)), list(map(int, self.key_lengths)))
            return
        h.draw_pages()
        if draw.chance(0.2):
            self.key_lengths = draw.random.integers(0, h.keys + 1, h.batch)
            self.tables["key_lengths"] = self.key_lengths
            self.masks.append(lambda b, h, i, j, p, t: j < t["key_lengths"][b])
            draw.option("--kv-lengths", draw.save("lengths.npy", self.key_lengths.astype(draw.pick(np.int32, np.int64))))
            draw.note("lengths %s", list(map(int, self.key_lengths)))

    def draw_position(self):
        """Where query 0 of each item stands."""
        draw = self.draw
        self.position = np.zeros(self.items, np.int64)
        kind = draw.pick("", "", "bottom-right", "offsets")
        if kind == "bottom-right":
            self.position = self.key_lengths - self.query_lengths
        elif kind:
            self.position = draw.random.integers(-10, self.key_lengths + 10, self.items)
            draw.option("--query-offset", draw.save("offset.npy", self.position.astype(np.int32)))
        if kind:
            draw.note(kind)

    def draw_scores(self):
        draw, h, snippets = self.draw, self.heads, self.snippets
        if draw.chance(0.25):
            self.add_softcap(draw.number_between(0.5, 30), False)
        for feature in draw.random.permutation(["softcap", "alibi", "relative", "parity"]):
            if draw.chance(0.16) and snippets.room(1, 2):
                if feature == "softcap":
                    self.add_softcap(draw.number_between(0.5, 30), True)
                elif feature == "alibi":
                    self.add_alibi(True)
                elif feature == "relative":
                    self.add_relative(True)
                else:
                    self.add_parity()
        # The order is that in which clattn adds them.
        if not self.packed and draw.chance(0.15):
            self.add_relative(False)
        if draw.chance(0.2):
            self.add_alibi(False)

    def add_softcap(self, cap, snippet):
        self.softcapped = True
        self.scores.append(lambda s, b, h, i, j, p, t: cap * torch.tanh(s / cap))
        if snippet:
            name = self.snippets.scalar(cap)
            self.snippets.lines.append("score = %s * tanh(score / %s);" % (name, name))
        else:
            self.draw.option("--softcap", cap)
        self.draw.note("%ssoftcap %.3g", "own " if snippet else "", cap)

    def add_alibi(self, snippet):
        draw, heads = self.draw, self.heads.heads
        by_item = draw.chance(0.3)
        slopes = np.abs(draw.normal(*((self.items, heads) if by_item else (heads,)))) * np.float32(0.2)
        name = "own_slopes" if snippet else "slopes"
        self.tables[name] = np.broadcast_to(slopes, (self.items, heads)).copy()
        self.scores.append(lambda s, b, h, i, j, p, t: s - t[name][b, h] * (p - j).abs())
        if snippet:
            at = "batch * %d + head" % heads if by_item else "head"
            self.snippets.lines.append("score -= %s[%s] * (float)abs((int)(query + user.position - key));"
                                       % (self.snippets.buffer(slopes), at))
        else:
            draw.option("--alibi", draw.save("slopes.npy", slopes))
        draw.note("%salibi", "own " if snippet else "")

    def add_relative(self, snippet):
        """A number for each head and distance, as T5 has it; as an array, it is added where keys are queries apart."""
        draw, h = self.draw, self.heads
        width = h.queries + h.keys - 1
        table = draw.normal(h.heads, width)
        name = "own_relative" if snippet else "relative"
        keys = h.keys
        self.tables[name] = table
        self.scores.append(lambda s, b, h, i, j, p, t: s + t[name][h, i - j + (keys - 1)])
        if snippet:
            self.snippets.lines.append("score += %s[head * %d + query - key + %d];"
                                       % (self.snippets.buffer(table), width, keys - 1))
        else:
            i, j = np.arange(h.queries)[:, None], np.arange(h.keys)[None]
            dense = np.ascontiguousarray(table[:, i - j + keys - 1])
            draw.option(draw.pick("--bias", "--mask") if not draw.chance(0.2) else "--bias", draw.save("bias.npy", dense))
        draw.note("%srelative bias", "own " if snippet else "")

    def add_parity(self):
        odd, even = self.draw.number_between(0.5, 1.5), self.draw.number_between(0.5, 1.5)
        self.scores.append(lambda s, b, h, i, j, p, t: torch.where((i + j + h) % 2 == 1, s * odd, s * even))
        self.snippets.lines.append("score *= (query + key + head & 1) ? %s : %s;"
                                   % (self.snippets.scalar(odd), self.snippets.scalar(even)))
        self.draw.note("parity")

    def draw_masks(self):
        draw = self.draw
        if draw.chance(0.4):
            self.add_causal()
        if draw.chance(0.3):
            self.add_window()
        if not self.packed and draw.chance(0.2) and self.snippets.room(1):
            self.add_prefix()
        if not self.packed and draw.chance(0.25) and self.snippets.room(2):
            self.add_documents()

    def add_causal(self):
        self.masks.append(lambda b, h, i, j, p, t: j <= p)
        snippet = self.draw.chance(0.3)
        if snippet:
            self.snippets.conditions.append("key <= query + user.position")
        else:
            self.draw.option("--causal")
        self.draw.note("%scausal", "own " if snippet else "")

    def add_window(self):
        draw = self.draw
        left, right = draw.pick(-1, draw.whole(0, 40)), draw.pick(-1, 0, draw.whole(0, 20))
        if left >= 0:
            self.masks.append(lambda b, h, i, j, p, t: j >= p - left)
        if right >= 0:
            self.masks.append(lambda b, h, i, j, p, t: j <= p + right)
        snippet = draw.chance(0.3) and left >= 0
        if snippet:
            self.snippets.conditions.append("key >= query + user.position - %d" % left)
            if right >= 0:
                self.snippets.conditions.append("key <= query + user.position + %d" % right)
        else:
            draw.option("--window", "%d,%d" % (left, right))
        draw.note("%swindow %d,%d", "own " if snippet else "", left, right)

    def add_prefix(self):
        """Prefix language model: an item's first keys for all, the others causally."""
        draw, h = self.draw, self.heads
        prefix = draw.random.integers(0, h.keys + 1, h.batch).astype(np.int32)
        self.tables["prefix"] = prefix
        self.add_selected("prefix", lambda b, h, i, j, p, t: (j < t["prefix"][b]) | (j <= i),
                          lambda: "key < %s[batch] || key <= query" % self.snippets.buffer(prefix))

    def add_documents(self):
        draw, h = self.draw, self.heads
        count = draw.whole(1, 4)
        for name, length in (("query_document", h.queries), ("key_document", h.keys)):
            self.tables[name] = np.sort(draw.random.integers(0, count, (h.batch, length)), axis=1).astype(np.int32)
        self.add_selected("documents", lambda b, h, i, j, p, t: t["query_document"][b, i] == t["key_document"][b, j],
                          lambda: "%s[batch * %d + query] == %s[batch * %d + key]" % (
                              self.snippets.buffer(self.tables["query_document"]), h.queries,
                              self.snippets.buffer(self.tables["key_document"]), h.keys))

    def add_selected(self, name, function, condition):
        """A mask function as OpenCL C or, if no mask is given yet, as an array."""
        self.masks.append(function)
        snippet = "--mask" in self.draw.arguments or self.draw.chance(0.6)
        if snippet:
            self.snippets.conditions.append(condition())
        else:
            self.draw.option("--mask", self.draw.save("selected.npy", np.ascontiguousarray(self.grid(function))))
        self.draw.note("%s%s", "own " if snippet else "", name)

    # ---- what it means ----

    def local(self, b, i, j, t):
        """The item, its own indices, and the position of the query."""
        if self.packed:
            item = t["query_item"][i]
            i, j = i - t["query_start"][item], j - t["key_start"][t["key_item"][j]]
            b = item
        return b, i, j, i + t["position"][b]

    def torch_tables(self, dtype):
        tables = {name: torch.from_numpy(np.ascontiguousarray(table)) for name, table in self.tables.items()}
        tables["position"] = torch.from_numpy(self.position.astype(np.int64))
        return {name: t.to(dtype if t.is_floating_point() else torch.int64) for name, t in tables.items()}

    def score_function(self, dtype):
        tables = self.torch_tables(dtype)

        def score_mod(s, b, h, i, j):
            b, i, j, p = self.local(b, i, j, tables)
            for function in self.scores:
                s = function(s, b, h, i, j, p, tables)
            return s
        return score_mod

    def mask_function(self):
        tables = self.torch_tables(torch.float64)

        def mask_mod(b, h, i, j):
            selected = (i >= 0) & (j >= 0)
            if self.packed:
                selected = selected & (tables["query_item"][i] == tables["key_item"][j])
            b, i, j, p = self.local(b, i, j, tables)
            for function in self.masks:
                selected = selected & function(b, h, i, j, p, tables)
            return selected
        return mask_mod

    def indices(self):
        h = self.heads
        shape = (h.batch, h.heads, h.queries, h.keys)
        return [torch.arange(extent).reshape([-1 if d == at else 1 for d in range(4)]) for at, extent in enumerate(shape)]

    def grid(self, function):
        """One mask function of a batch that is not packed, for all pairs."""
        tables = self.torch_tables(torch.float64)
        b, h, i, j = self.indices()
        selected = function(b, h, i, j, i + tables["position"][b], tables)
        return selected.numpy()

    def score(self, s):
        dtype = torch.float32 if s.dtype == np.float32 else torch.float64
        return self.score_function(dtype)(torch.from_numpy(s), *self.indices()).numpy()

    def reference(self):
        h = self.heads
        q, k, v = (torch.from_numpy(a) for a in h.wide())
        block = flex.create_block_mask(self.mask_function(), h.batch, h.heads, h.queries, h.keys, device="cpu")
        output, lse = flex.flex_attention(q, k, v, score_mod=self.score_function(torch.float64), block_mask=block,
                                          scale=h.scale, enable_gqa=h.group > 1, return_lse=True)
        return output.numpy(), lse.numpy()

    def check(self):
        h = self.heads
        q, k, v = h.wide()
        shape = (h.batch, h.heads, h.queries, h.keys)
        attended = np.broadcast_to(self.mask_function()(*self.indices()).numpy(), shape)
        scale = 1 / np.sqrt(h.d_k) if h.scale is None else h.scale
        sink = None if self.sink is None else np.broadcast_to(self.sink.astype(np.float64)[None, :, None], shape[:3])
        reference, lse = self.reference()
        some = attended.any(-1)
        reference, lse = np.where(some[..., None], reference, 0.0), np.where(some, lse, -np.inf)
        if sink is not None:  # one more logit without a value
            total = np.logaddexp(lse, sink)
            reference, lse = reference * np.exp(lse - total)[..., None], total
        naive, naive_lse = naive_attention(q, k, v, scale, self.score, attended, h.dtype, sink)
        magnitude = exact_magnitude(q, k, v, scale, self.score, attended, sink)
        wrong = judge_output(h, reference, naive, magnitude, self.softcapped)
        if wrong is None and self.lse:
            wrong = judge_lse(self.draw.load("lse").astype(np.float64), lse, naive_lse)
        return wrong
