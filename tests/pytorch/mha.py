"""nn.MultiheadAttention: its state dict, self and cross attention, masks of both kinds, and the weights it returns."""
import math

import numpy as np
import torch

from judge import EXACT_ZERO, disagreement, naive_product, naive_weights
from command_support import write_safetensors  # of tests/tool, to which draw.py has made the way

ALLOWED = 2e-5  # of any output, besides the rule


class Mha:
    def __init__(self, draw):
        self.draw = draw
        self.heads, size = draw.whole(1, 8), draw.pick(draw.whole(1, 24), 8, 16, 32, 64)
        self.d_model = self.heads * size
        self.batch, self.queries = draw.whole(1, 3), draw.pick(draw.whole(1, 40), draw.whole(1, 100))
        self.cross = draw.chance(0.5)
        self.keys = draw.whole(1, 100) if self.cross else self.queries
        # PyTorch keeps the three weights apart if keys and values have another width than the queries.
        self.d_context = draw.whole(1, 100) if self.cross and draw.chance(0.5) else self.d_model
        self.bias = draw.chance(0.7)
        draw.note("%d heads of %d, %dx%d/%d, context %d%s", self.heads, size, self.batch, self.queries, self.keys,
                  self.d_context, ", biases" if self.bias else "")
        self.x = draw.normal(self.batch, self.queries, self.d_model)
        draw.option("mha", "--heads", str(self.heads), "-x", draw.save("x.npy", self.x))
        self.context = self.x
        if self.cross:
            self.context = draw.normal(self.batch, self.keys, self.d_context)
            draw.option("--context", draw.save("context.npy", self.context))
        self.make_weights()
        draw.result("o", "-o")
        draw.option("--solver", draw.solver)
        self.draw_masks()
        self.weights = draw.pick(None, "each", "mean")
        if self.weights:
            draw.result("p", "--attention-weights")
            draw.note("weights %s", self.weights)
        if self.weights == "mean":
            draw.option("--average")

    def make_weights(self):
        """A module with weights that are floats, in double precision, and its state dict in a file."""
        draw = self.draw
        other = {} if self.d_context == self.d_model else {"kdim": self.d_context, "vdim": self.d_context}
        self.module = torch.nn.MultiheadAttention(self.d_model, self.heads, bias=self.bias, batch_first=True,
                                                  dtype=torch.float64, **other).eval()
        state = {name: draw.normal(*tensor.shape) / np.float32(math.sqrt(tensor.shape[-1]) if tensor.ndim > 1 else 1)
                 for name, tensor in self.module.state_dict().items()}
        self.module.load_state_dict({name: torch.from_numpy(array.astype(np.float64)) for name, array in state.items()})
        write_safetensors(draw.path("weights.safetensors"), state)
        draw.option("--weights", draw.path("weights.safetensors"))
        if "in_proj_weight" in state:
            self.projections = np.split(state["in_proj_weight"], 3)
        else:
            self.projections = [state[name + "_proj_weight"] for name in "qkv"]
        self.biases = np.split(state["in_proj_bias"], 3) if self.bias else [np.zeros(self.d_model, np.float32)] * 3
        self.w_o = state["out_proj.weight"]
        self.b_o = state["out_proj.bias"] if self.bias else np.zeros(self.d_model, np.float32)

    def draw_masks(self):
        """PyTorch's masks: true = do not attend.  Ours is one, true = attend, and joins the two of PyTorch's."""
        draw = self.draw
        shape = (self.batch, self.heads, self.queries, self.keys)
        self.mask = self.padding = None
        self.causal = draw.chance(0.4)
        if draw.chance(0.4):
            whole = draw.pick((self.queries, self.keys), (self.batch * self.heads, self.queries, self.keys))
            self.mask = draw.random.random(whole) < draw.pick(0.1, 0.5)
            if draw.chance(0.5):
                self.mask = np.where(self.mask & draw.chance(0.5), np.float32(-np.inf), draw.normal(*whole))
            draw.note("attn_mask %s %s", self.mask.dtype, "x".join(map(str, whole)))
        if draw.chance(0.4):
            lengths = draw.random.integers(0, self.keys + 1, self.batch)
            self.padding = np.arange(self.keys) >= lengths[:, None]
            draw.note("padded to %s", list(map(int, lengths)))
        self.added, self.attended = np.zeros((1, 1, 1, 1), np.float32), np.ones(shape, bool)
        ours = None
        if self.mask is not None:
            split = self.mask.reshape((-1 if self.mask.ndim == 3 else 1, self.heads if self.mask.ndim == 3 else 1) +
                                      self.mask.shape[-2:])
            ours = ~split if split.dtype == np.bool_ else split
        if self.padding is not None:
            kept = ~self.padding[:, None, None, :]
            ours = kept if ours is None else ours & kept if ours.dtype == np.bool_ else np.where(kept, ours, -np.inf)
        if ours is not None:
            ours = ours if ours.dtype == np.bool_ else ours.astype(np.float32)
            draw.option("--mask", draw.save("mask.npy", np.ascontiguousarray(ours)))
            if ours.dtype == np.bool_:
                self.attended &= ours
            else:
                self.attended &= ours != -np.inf
                self.added = np.where(ours == -np.inf, np.float32(0), ours)
        if self.causal:
            self.attended &= np.arange(self.keys) <= np.arange(self.queries)[:, None]
            draw.option("--causal")
            draw.note("causal")

    # ---- PyTorch ----

    def torch_mask(self):
        """Causality is part of the mask there."""
        mask = None if self.mask is None else torch.from_numpy(
            self.mask if self.mask.dtype == np.bool_ else self.mask.astype(np.float64))
        if not self.causal:
            return mask
        later = torch.ones(self.queries, self.keys, dtype=torch.bool).triu(1)
        if mask is None:
            return later
        return mask | later if mask.dtype == torch.bool else torch.where(later, -torch.inf, mask)

    def reference(self):
        x, context = (torch.from_numpy(a.astype(np.float64)) for a in (self.x, self.context))
        mask = self.torch_mask()
        padding = None if self.padding is None else torch.from_numpy(self.padding)
        if mask is not None and padding is not None and mask.dtype != torch.bool:
            padding = torch.zeros(padding.shape, dtype=torch.float64).masked_fill(padding, -torch.inf)
        more = {"attn_mask": mask, "key_padding_mask": padding}
        # Rows without a key are NaN if the weights are asked for, otherwise 0 before the last projection.
        output, _ = self.module(x, context, context, need_weights=False, **more)
        _, weights = self.module(x, context, context, average_attn_weights=False, **more)
        weights = np.where(self.attended.any(-1, keepdims=True), weights.numpy(), 0.0)
        return output.numpy(), weights.mean(1) if self.weights == "mean" else weights

    # ---- the rule ----

    def split(self, y):
        return y.reshape(self.batch, y.shape[1], self.heads, -1).transpose(0, 2, 1, 3)

    def projected(self, product, precision):
        """Queries, keys and values of each head."""
        for rows, weight, bias in zip((self.x, self.context, self.context), self.projections, self.biases):
            yield self.split(product(rows.astype(precision), weight.astype(precision)) + bias)

    def naive(self):
        q, k, v = self.projected(naive_product, np.float32)
        scale = np.float32(1 / math.sqrt(q.shape[-1]))
        weights, _ = naive_weights(scale * naive_product(q, k) + self.added, self.attended)
        joined = naive_product(weights, np.swapaxes(v, 2, 3)).transpose(0, 2, 1, 3)
        output = naive_product(joined.reshape(self.batch, self.queries, -1), self.w_o) + self.b_o
        return output, weights.mean(1, dtype=np.float32) if self.weights == "mean" else weights

    def magnitudes(self):
        """M of the output, and the sizes of the weights: a probability counts multiplied by the condition of its scores."""
        q, k, v = self.projected(lambda a, w: a @ w.T, np.float64)
        scale = 1 / math.sqrt(q.shape[-1])
        scores = np.where(self.attended, scale * (q @ np.swapaxes(k, 2, 3)) + self.added, -np.inf)
        top = scores.max(-1, keepdims=True)
        terms = np.exp(scores - np.where(top == -np.inf, 0, top))
        total = terms.sum(-1, keepdims=True)
        weights = np.divide(terms, total, out=np.zeros_like(terms), where=total > 0)
        sizes = np.where(self.attended, scale * (np.abs(q) @ np.swapaxes(np.abs(k), 2, 3)), 0)
        condition = 1 + sizes.max(-1, keepdims=True)
        joined = (condition * (weights @ np.abs(v))).transpose(0, 2, 1, 3).reshape(self.batch, self.queries, -1)
        output = joined @ np.abs(self.w_o.astype(np.float64)).T + np.abs(self.b_o)
        weights = np.where(self.attended, condition * weights, EXACT_ZERO)
        if self.weights == "mean":
            weights = np.where((weights == EXACT_ZERO).all(1), EXACT_ZERO, np.maximum(weights, 0).mean(1))
        return output, weights

    def check(self):
        output, weights = self.reference()
        naive_output, naive_p = self.naive()
        output_size, weights_size = self.magnitudes()
        wrong = disagreement("o", self.draw.load("o"), output, naive_output, output_size)
        worst = np.abs(self.draw.load("o").astype(np.float64) - output).max(initial=0)
        if wrong is None and worst > ALLOWED:
            wrong = "o is off by %.3g" % worst
        if wrong is None and self.weights:
            wrong = disagreement("p", self.draw.load("p"), weights, naive_p, weights_size)
        return wrong
