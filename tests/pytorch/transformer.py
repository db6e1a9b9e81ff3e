"""Random Transformers of torch.nn, computed by the library (transformer_run.c) and by PyTorch in float32: no number
differs by more than 2e-5.

    python transformer.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The program is $TRANSFORMER_RUN.  Prints TAP, as property.py does."""
import functools
import math

import numpy as np
import torch

import property
from command_support import write_safetensors  # of tests/tool, to which draw.py has made the way

KINDS = ("encoder_layer", "encoder", "decoder_layer", "decoder", "transformer")
FORMATS = {"transformer": 1, "encoder": 2, "decoder": 3, "encoder_layer": 4, "decoder_layer": 5}  # clattn_name_format
SOLVERS = ("any", "cpu", "generic", "any", "tile")
ALLOWED = 2e-5
ACTIVATIONS = ("relu", "gelu", functools.partial(torch.nn.functional.gelu, approximate="tanh"), torch.nn.functional.silu)


class Padding:
    """Keys of each item that nobody attends, as PyTorch has them (true = padding, or numbers to add), and `lengths` where
    the library is told these instead."""

    def __init__(self, array=None, lengths=None):
        self.array, self.lengths = array, lengths

    def __bool__(self):
        return self.array is not None


class Transformer:
    def __init__(self, draw):
        self.draw = draw
        self.has_encoder, self.has_decoder = "decoder" not in draw.kind, "encoder" not in draw.kind
        self.alone = draw.kind.endswith("layer")
        self.draw_sizes()
        self.make_module()
        self.fast = draw.chance(0.5)  # PyTorch's own fused path for encoders
        self.batch_first = self.fast or draw.chance(0.7)
        self.masks, self.paddings, self.causal = {}, {}, {}
        sides = ("source", "target", "memory") if self.has_decoder else ("source",)
        for side in sides[not self.has_encoder:]:
            self.draw_masks(side)
        # The order is that in which the modules take them.
        names = ("target", "memory") if not self.has_encoder else ("source", "target") if self.has_decoder else ("source",)
        self.inputs = {name: draw.normal(self.batch, self.keys[name], self.d_model) for name in names}
        for name, x in self.inputs.items():
            draw.save(name + ".npy", x)
        if self.has_decoder and self.causal["target"] and "target" not in self.masks and "memory" not in self.masks \
                and draw.chance(0.5):
            piece = draw.whole(1, self.queries["target"])
            draw.option("piece=%d" % piece)
            draw.note("%d at a time", piece)

    def draw_sizes(self):
        draw = self.draw
        self.heads, size = draw.whole(1, 8), draw.pick(draw.whole(1, 24), 8, 16, 32)
        self.d_ff = draw.pick(draw.whole(1, 200), 64, 128, 256)
        if draw.chance(0.06):  # the paper's
            self.heads, size, self.d_ff = 8, 64, 2048
        self.d_model = self.heads * size
        self.layers = 1 if self.alone else draw.whole(1, 3)
        self.decoder_layers = draw.whole(1, 3) if draw.kind == "transformer" else self.layers
        self.batch = draw.whole(1, 3)
        source, target = draw.pick(draw.whole(1, 20), draw.whole(1, 80)), draw.pick(draw.whole(1, 20), draw.whole(1, 60))
        self.queries = {"source": source, "target": target, "memory": target}
        self.keys = {"source": source, "target": target, "memory": source}
        draw.note("%dx%d/%d, %d heads of %d, d_ff %d", self.batch, target, source, self.heads, size, self.d_ff)

    def make_module(self):
        draw = self.draw
        activation, pre, bias = draw.whole(0, 3), draw.chance(0.5), draw.chance(0.7)
        epsilon = draw.pick(1e-5, 1e-5, 1e-12, 1e-3)
        final = draw.kind == "transformer" or (not self.alone and draw.chance(0.5))
        draw.note("%s-norm, %s%s%s", "pre" if pre else "post", ("ReLU", "GELU", "GELU by tanh", "SiLU")[activation],
                  ", biases" if bias else "", ", final norm" if final else "")
        self.plain = activation < 2
        draw.option(draw.folder, "format=%d" % FORMATS[draw.kind], "encoder=%d" % (self.layers * self.has_encoder),
                    "decoder=%d" % (self.decoder_layers * self.has_decoder), "d_model=%d" % self.d_model,
                    "heads=%d" % self.heads, "d_ff=%d" % self.d_ff, "activation=%d" % (1 + activation), "pre=%d" % pre,
                    "bias=%d" % bias, "epsilon=%g" % epsilon, "final_norm=%d" % final)
        if draw.solver != "any":
            draw.option("solver=" + draw.solver)
        self.options = {"d_model": self.d_model, "nhead": self.heads, "dim_feedforward": self.d_ff,
                        "activation": ACTIVATIONS[activation], "layer_norm_eps": epsilon, "norm_first": pre, "bias": bias}
        self.norm = functools.partial(torch.nn.LayerNorm, self.d_model, eps=epsilon, bias=bias) if final else lambda: None
        self.state = {name: self.random_weight(name, tensor.shape)
                      for name, tensor in self.module(True).state_dict().items()}
        write_safetensors(draw.path("weights.safetensors"), self.state)

    def random_weight(self, name, shape):
        x = self.draw.normal(*shape)
        if len(shape) > 1:
            return x / np.float32(math.sqrt(shape[-1]))
        return np.float32(0.2) * x + np.float32("norm" in name and name.endswith("weight"))

    def module(self, batch_first):
        options = dict(self.options, batch_first=batch_first)
        if self.draw.kind == "transformer":
            return torch.nn.Transformer(num_encoder_layers=self.layers, num_decoder_layers=self.decoder_layers,
                                        **options).eval()
        if self.has_encoder:
            layer = torch.nn.TransformerEncoderLayer(**options)
            return (layer if self.alone else torch.nn.TransformerEncoder(layer, self.layers, norm=self.norm())).eval()
        layer = torch.nn.TransformerDecoderLayer(**options)
        return (layer if self.alone else torch.nn.TransformerDecoder(layer, self.layers, norm=self.norm())).eval()

    # ---- masks: every query attends the first key at least; PyTorch gives NaN for a query that attends none ----

    def draw_masks(self, side):
        draw, queries, keys = self.draw, self.queries[side], self.keys[side]
        self.causal[side] = side != "memory" and draw.chance(0.7 if side == "target" else 0.3)
        if self.causal[side]:
            draw.option("causal=1" if side == "source" else "target_causal=1")
            draw.note("%s causal", side)
        if draw.chance(0.4):
            shape = draw.pick((queries, keys), (self.batch * self.heads, queries, keys))
            mask = draw.random.random(shape) < draw.pick(0.1, 0.5)
            mask[..., 0] = False
            if draw.chance(0.5):
                mask = np.where(mask & draw.chance(0.5), np.float32(-np.inf), draw.normal(*shape))
                self.fast = False  # it takes numbers other than 0 for "do not attend"
            self.masks[side] = mask
            draw.save(side + "_mask.npy", mask)
            draw.note("%s mask %s %s", side, mask.dtype, "x".join(map(str, shape)))
        # What is padding for the encoder is for the decoder.
        shared = side == "memory" and self.paddings.get("source")
        self.paddings[side] = shared or self.draw_padding(side, keys)
        padding = self.paddings[side]
        if padding.lengths is not None:
            draw.save(side + "_lengths.npy", padding.lengths)
        elif padding:
            draw.save(side + "_padding.npy", padding.array)

    def draw_padding(self, side, keys):
        draw = self.draw
        how = draw.pick(None, None, "lengths", "trailing", "any", "added")
        if how is None:
            return Padding()
        # No keys at all: only if no query has to attend one, and if PyTorch takes it.
        least = 0 if how == "lengths" and (side == "target" or (not self.has_decoder and not self.fast)) else 1
        lengths = draw.random.integers(least, keys + 1, self.batch).astype(np.int32)
        draw.note("%s padding %s", side, how if how in ("any", "added") else "%s %s" % (how, list(map(int, lengths))))
        array = np.arange(keys) >= lengths[:, None]
        if how in ("any", "added"):
            array = draw.random.random((self.batch, keys)) < 0.3
            array[:, 0] = False
        if how == "added":
            array = np.where(array, np.float32(-np.inf), draw.normal(self.batch, keys))
            self.fast = False
        return Padding(array, lengths if how == "lengths" else None)

    # ---- PyTorch ----

    def torch_mask(self, side):
        """Causality is part of the mask there."""
        mask = torch.from_numpy(self.masks[side]) if side in self.masks else None
        if not self.causal[side]:
            return mask
        if mask is None:
            return torch.nn.Transformer.generate_square_subsequent_mask(self.queries[side])
        later = torch.ones(mask.shape[-2:], dtype=torch.bool).triu(1)
        return mask | later if mask.dtype == torch.bool else torch.where(later, -torch.inf, mask)

    def reference(self):
        module = self.module(self.batch_first)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in self.state.items()})
        torch.backends.mha.set_fastpath_enabled(self.fast)
        more, inputs = {}, [torch.from_numpy(x) for x in self.inputs.values()]
        if not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        for side, padding in self.paddings.items():
            # An encoder's layers have no names for "source"; its stack has not for the mask.
            short = {"source": "src", "target": "tgt", "memory": "memory"}[side]
            mask = self.torch_mask(side)
            more["mask" if side == "source" and self.draw.kind == "encoder" else short + "_mask"] = mask
            more[short + "_key_padding_mask"] = torch.from_numpy(padding.array) if padding else None
        y = module(*inputs, **more)
        return (y if self.batch_first else y.transpose(0, 1)).numpy()

    def check(self):
        reference, value = self.reference(), np.load(self.draw.path("output.npy"))
        side = "target" if self.has_decoder else "source"
        padding = self.paddings[side]
        counts = np.ones((self.batch, self.queries[side]), bool)
        if padding.lengths is not None or (self.fast and padding and not self.has_decoder):
            counts = ~padding.array  # neither library says anything about the rest
        # The fast path leaves out what is padding for all items.
        counts = counts[:, :reference.shape[1]]
        error = np.abs(value[:, :reference.shape[1]].astype(np.float64) - reference)[counts]
        assert not np.isnan(reference[counts]).any(), "PyTorch has a NaN that nothing drawn explains"
        worst = error.max(initial=0)
        self.draw.note("difference %.2g", worst)
        if value.shape[:2] != (self.batch, self.queries[side]) or not worst <= ALLOWED:
            return "%d of %d numbers differ by more than %g, the worst by %.3g" % (
                (~(error <= ALLOWED)).sum(), error.size, ALLOWED, worst)
        return None


if __name__ == "__main__":
    property.main({kind: Transformer for kind in KINDS}, KINDS, SOLVERS, "TRANSFORMER_RUN", 60)
