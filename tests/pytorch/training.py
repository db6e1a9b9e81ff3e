"""Random Transformers whose losses and gradients are computed by the library (training_run.c) and by PyTorch's autograd in
float64: each gradient is within twice the largest error that PyTorch makes of it in float32, or bfloat16 if the model is. The
losses of the first 200 updates of others differ from PyTorch's by at most 1e-4.

    python training.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The program is $TRAINING_RUN.  Prints TAP, as property.py does."""
import math

import numpy as np
import torch

import property
from draw import rounded
from command_support import write_safetensors  # of tests/tool, to which draw.py has made the way

KINDS = ("translation", "text", "encoder", "speech", "preset")
STEPS = 200
ACTIVATIONS = (lambda x: x, torch.nn.functional.relu, torch.nn.functional.gelu,
               lambda x: torch.nn.functional.gelu(x, approximate="tanh"), torch.nn.functional.silu)
IGNORED = -100
ORDER = 5 * KINDS + ("steps",)
QUERY, KEY, VALUE, OUTPUT, FEED_FORWARD, NORM = 1, 2, 4, 8, 16, 32  # CLATTN_WITHOUT_..._BIAS
# By clattn_preset: the models that it has, d_model, heads, d_ff, activation, and what is not as in the paper.
PAPER = {"positions": 1, "scaled": True, "output": 2}
BERT = {"positions": 2, "position_count": 512, "segments": 2, "input_norm": True, "epsilon": 1e-12}
WHISPER = {"positions": 2, "position_count": 1500, "pre": True, "final_norm": True, "without": KEY, "output": 2, "features": 80,
           "convolutions": ((3, 1, 1, 2), (3, 2, 1, 2)), "target_positions": 448}
PRESETS = ((("encoder", "decoder"), 512, 8, 2048, 1, PAPER), (("encoder", "decoder"), 1024, 16, 4096, 1, PAPER),
           (("encoder",), 768, 12, 3072, 2, BERT), (("encoder",), 384, 12, 1536, 2, BERT),
           (("encoder", "decoder"), 384, 6, 1536, 2, WHISPER))


class Stack:
    """One stack's numbers, the names of its parameters with their shapes, and what it computes of them."""

    def __init__(self, model, name, layers, vocabulary, cross):
        self.model, self.name, self.layers, self.vocabulary, self.cross = model, name, layers, vocabulary, cross
        self.listens = name == "encoder" and model.features > 0

    def shapes(self):
        m, d = self.model, self.model.d_model
        norms = ["norm"] if m.final_norm else []
        channels = m.features
        if self.listens:
            for n, (kernel, _, _, _) in enumerate(m.convolutions):
                yield f"{self.name}.convolutions.{n}.weight", (d, channels, kernel)
                yield f"{self.name}.convolutions.{n}.bias", (d,)
                channels = d
        else:
            yield f"{self.name}.tokens.weight", (self.vocabulary, d)
        if m.positions == 2:
            yield f"{self.name}.positions.weight", (m.position_count if self.name == "encoder" else m.target_positions, d)
        if m.segments and not self.listens:
            yield f"{self.name}.segments.weight", (m.segments, d)
        if m.input_norm and not self.listens:
            norms.append("input_norm")
        for layer in range(self.layers):
            at = f"layers.{layer}"
            for part in ["self"] + ["cross"] * self.cross:
                for kind, rows, columns, without in (("query", d, d, QUERY), ("key", m.inner_kv, d, KEY),
                                                     ("value", m.inner_kv, d, VALUE), ("output", d, d, OUTPUT)):
                    yield from self.linear(f"{at}.{part}.{kind}", rows, columns, without)
                norms.append(f"{at}.{part}.norm")
            yield from self.linear(f"{at}.feed_forward.in", m.d_ff, d, FEED_FORWARD)
            if m.gated:
                yield from self.linear(f"{at}.feed_forward.gate", m.d_ff, d, FEED_FORWARD)
            yield from self.linear(f"{at}.feed_forward.out", d, m.d_ff, FEED_FORWARD)
            norms.append(f"{at}.feed_forward.norm")
        sizes = {norm: d for norm in norms}
        if m.head_norms:
            sizes.update((f"layers.{layer}.self.{part}_norm", d // m.heads) for layer in range(self.layers)
                         for part in ("query", "key"))
        for norm, size in sizes.items():
            yield f"{self.name}.{norm}.weight", (size,)
            if not m.without & NORM and not m.rms:
                yield f"{self.name}.{norm}.bias", (size,)

    def linear(self, name, rows, columns, without):
        yield f"{self.name}.{name}.weight", (rows, columns)
        if not self.model.without & without:
            yield f"{self.name}.{name}.bias", (rows,)

    # ---- the way forward, by PyTorch ----

    def product(self, x, name):
        return self.model.product(x, f"{self.name}.{name}")

    def norm(self, x, name):
        p, size = self.model.parameters, x.shape[-1:]
        weight = p[f"{self.name}.{name}.weight"]
        if self.model.rms:
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.model.epsilon) * weight
        return torch.nn.functional.layer_norm(x, size, weight, p.get(f"{self.name}.{name}.bias"), self.model.epsilon)

    def heads(self, x, name, count, own):
        y = self.product(x, name)
        y = y.reshape(y.shape[0], y.shape[1], count, -1).transpose(1, 2)
        if own and self.model.head_norms and not name.endswith("value"):
            y = self.norm(y, name + "_norm")
        return rotate(y, self.model.rotary) if own and self.model.rotary and not name.endswith("value") else y

    def note_heads(self, name, terms, x, count, own):
        """Notes the terms of a product's gradient, of those of its heads, which a norm may have divided."""
        m = self.model
        if own and m.head_norms and not name.endswith("value"):
            y = torch.nn.functional.linear(*(t.detach() for t in (x, m.parameters[f"{self.name}.{name}.weight"])))
            if f"{self.name}.{name}.bias" in m.parameters:
                y = y + m.parameters[f"{self.name}.{name}.bias"].detach()
            y = y.reshape(y.shape[0], y.shape[1], count, -1).transpose(1, 2)
            mean = 0 if m.rms else y.mean(-1, keepdim=True)
            deviation = ((y - mean) ** 2).mean(-1, keepdim=True).add(m.epsilon).sqrt()
            scale = f"{self.name}.{name}_norm.weight"
            of_scale = (terms * ((y - mean) / deviation).abs()).sum((0, 1, 2))
            m.terms[scale] = max(m.terms.get(scale, 0), float(of_scale.max()))
            m.terms[scale[:-6] + "bias"] = max(m.terms.get(scale[:-6] + "bias", 0), float(terms.sum((0, 1, 2)).max()))
            terms = terms * m.parameters[scale].detach().abs()
            terms = (terms + terms.mean(-1, keepdim=True)) / deviation
        m.note(f"{self.name}.{name}", terms, x)

    def attention(self, x, memory, name, lengths, own):
        m = self.model
        query = self.heads(x, f"{name}.query", m.heads, own)
        key = self.heads(memory, f"{name}.key", m.kv_heads, own)
        value = self.heads(memory, f"{name}.value", m.kv_heads, own)
        key, value = (t.repeat_interleave(m.heads // m.kv_heads, 1) for t in (key, value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        if m.softcap:
            scores = m.softcap * torch.tanh(scores / m.softcap)
        queries, keys = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])[None, :]
        attended = torch.from_numpy(np.arange(key.shape[2]) < lengths[:, None])[:, None, None, :]
        if own and self.name == "decoder":
            attended = attended & (keys <= queries)
        if own and m.reach:
            attended = attended & ((keys - queries).abs() <= m.reach)
        weights = torch.softmax(scores.masked_fill(~attended, -torch.inf), -1).nan_to_num(0)
        y = weights @ value

        def note(gradient):
            """The gradient of a score is a difference of two terms, P dO V and P dO O."""
            g = gradient.detach().abs()
            terms = weights.detach() * (g @ value.detach().abs().transpose(2, 3) + (g * y.detach().abs()).sum(-1, keepdim=True))
            terms /= math.sqrt(query.shape[-1])
            of_key = terms.transpose(2, 3) @ query.detach().abs()
            of_key = of_key.reshape(of_key.shape[0], m.kv_heads, -1, *of_key.shape[2:]).sum(2)
            self.note_heads(f"{name}.query", terms @ key.detach().abs(), x, m.heads, own)
            self.note_heads(f"{name}.key", of_key, memory, m.kv_heads, own)

        y.register_hook(note)
        return self.product(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), f"{name}.output")

    def hidden(self, x, at):
        y = self.product(x, f"{at}.feed_forward.in")
        if self.model.gated:
            return ACTIVATIONS[self.model.activation](self.product(x, f"{at}.feed_forward.gate")) * y
        return ACTIVATIONS[self.model.activation](y)

    def sublayer(self, x, name, compute):
        if self.model.pre:
            return x + compute(self.norm(x, f"{name}.norm"))
        return self.norm(x + compute(x), f"{name}.norm")

    def convolve(self, x):
        """Each convolution as a product of windows of frames."""
        for n, (kernel, stride, padding, activation) in enumerate(self.model.convolutions):
            padded = torch.nn.functional.pad(x, (0, 0, padding, padding))
            x = ACTIVATIONS[activation](self.product(padded.unfold(1, kernel, stride).flatten(2), f"convolutions.{n}"))
        return x

    def embed(self, ids, segments):
        m, p = self.model, self.model.parameters
        x = p[f"{self.name}.tokens.weight"][torch.from_numpy(ids).long()]
        if m.scaled:
            x = x * math.sqrt(m.d_model)
        if m.segments:
            x = x + p[f"{self.name}.segments.weight"][torch.from_numpy(segments).long()]
        if m.positions == 1:
            x = x + sinusoids(ids.shape[1] + m.first, m.d_model)[m.first:].to(x.dtype)
        return x

    def run(self, ids, lengths, segments, memory=None, memory_lengths=None):
        m, p = self.model, self.model.parameters
        if self.listens:
            x = self.convolve(torch.from_numpy(ids).to(next(iter(p.values())).dtype))
        else:
            x = self.embed(ids, segments)
        if m.positions == 2:
            first = 0 if self.listens else m.first
            x = x + p[f"{self.name}.positions.weight"][first:first + x.shape[1]]
        if m.input_norm and not self.listens:
            x = self.norm(x, "input_norm")
        for layer in range(self.layers):
            at = f"layers.{layer}"
            x = self.sublayer(x, f"{at}.self", lambda y: self.attention(y, y, f"{at}.self", lengths, True))
            if self.cross:
                x = self.sublayer(x, f"{at}.cross",
                                  lambda y: self.attention(y, memory, f"{at}.cross", memory_lengths, False))
            x = self.sublayer(x, f"{at}.feed_forward", lambda y: self.product(self.hidden(y, at), f"{at}.feed_forward.out"))
        return self.norm(x, "norm") if m.final_norm else x


def sinusoids(length, size):
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, size)


def rotate(x, pairing):
    size = x.shape[-1]
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if pairing == 1:
        a, b = x[..., :size // 2], x[..., size // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def plainly_summed(logits, x, weight, bias):
    """Logits whose terms are added one after the other, as a plain computation does it: the softmax turns their errors, of logits of
    tens, into relative ones, which then are in all gradients, and PyTorch's product has smaller ones."""
    if logits.dtype == torch.float64:
        return logits
    with torch.no_grad():
        plain = torch.zeros(logits.shape)
        for term, row in zip(x.float().movedim(-1, 0), weight.float().T):
            plain.addcmul_(term[..., None], row)
        plain = (plain if bias is None else plain + bias).to(logits.dtype)
    return logits + (plain - logits).detach()


class Training:
    def __init__(self, draw):
        self.draw = draw
        self.translates, self.decodes = draw.kind != "text", draw.kind != "encoder"
        self.features, self.convolutions, self.target_positions = 0, (), 0
        self.segments, self.first, self.head_norms, self.epsilon = 0, 0, False, 1e-5
        self.draw_model()
        self.make_stacks()
        self.draw_steps()
        self.draw_batch()
        shapes = dict(shape for stack in self.stacks for shape in stack.shapes())
        if self.decodes and self.output == 1:
            shapes["output.weight"] = (self.vocabulary, self.d_model)
            if self.output_bias:
                shapes["output.bias"] = (self.vocabulary,)
        self.state = {name: self.random_weight(name, shape) for name, shape in shapes.items()}
        write_safetensors(draw.path("weights.safetensors"), self.state)

    def draw_model(self):
        draw = self.draw
        self.heads, size = draw.whole(1, 6), 2 * draw.pick(draw.whole(1, 10), 8, 16, 32)
        divisors = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
        self.kv_heads = draw.pick(self.heads, divisors[draw.whole(0, len(divisors) - 1)])
        self.d_model, self.inner_kv, self.d_ff = self.heads * size, self.kv_heads * size, draw.pick(draw.whole(1, 120), 64, 128)
        if draw.chance(0.05):
            self.heads = self.kv_heads = 8
            self.d_model, self.inner_kv, self.d_ff = 512, 512, 2048
        self.pre, self.rms = draw.chance(0.5), draw.chance(0.2)
        self.without = draw.pick(0, 0, 63, KEY, draw.whole(0, 63))
        self.final_norm, self.input_norm = draw.chance(0.6), draw.chance(0.2)
        self.positions, self.scaled = draw.whole(0, 2), draw.chance(0.5)
        self.rotary = draw.pick(0, 0, 1, 2)
        self.reach, self.softcap = draw.pick(0, 0, draw.whole(1, 12)), draw.pick(0.0, 0.0, 5.0)
        self.vocabulary, self.source_vocabulary = draw.whole(2, 300), draw.whole(1, 200)
        self.output = draw.whole(1, 2)
        self.output_bias = self.output == 1 and draw.chance(0.5)
        self.gated, self.head_norms = draw.chance(0.25), draw.chance(0.2) and size >= 8  # of two numbers it is nearly a sign
        self.segments = draw.pick(0, 0, draw.whole(1, 3))
        if self.positions:
            self.first = draw.pick(0, 0, 1, 2)
        if draw.kind == "speech":
            self.draw_features()
        self.position_count = self.target_positions = 256 if self.positions == 2 else 0
        self.activation = draw.whole(1, 4)
        self.layers, self.decoder_layers = draw.whole(1, 3), draw.whole(1, 3)
        draw.option(draw.folder, "d_model=%d" % self.d_model, "heads=%d" % self.heads, "kv_heads=%d" % self.kv_heads,
                    "d_ff=%d" % self.d_ff, "activation=%d" % self.activation, "norm=%d" % self.rms, "pre=%d" % self.pre,
                    "without_bias=%d" % self.without, "final_norm=%d" % self.final_norm,
                    "positions=%d" % self.positions, "position_count=%d" % self.position_count, "rotary=%d" % self.rotary,
                    "reach=%d" % self.reach, "softcap=%g" % self.softcap, "scaled=%d" % self.scaled,
                    "input_norm=%d" % self.input_norm, "output=%d" % (self.output * self.decodes), "output_bias=%d" % (self.output_bias and self.decodes),
                    "gated=%d" % self.gated, "head_norms=%d" % self.head_norms, "segments=%d" % self.segments, "first=%d" % self.first,
                    "features=%d" % self.features,
                    "convolutions=%s" % ",".join("%d:%d:%d:%d" % c for c in self.convolutions))
        draw.note("%d heads of %d (%d), d_ff %d, %s-norm, %s%s%s%s%s", self.heads, self.d_model // self.heads, self.kv_heads,
                  self.d_ff, "pre" if self.pre else "post", "RMS" if self.rms else "layer",
                  ", without %d" % self.without if self.without else "", ", tied" if self.output == 2 else "",
                  ", positions %d" % self.positions if self.positions else "", ", rotary" if self.rotary else "")
        draw.note("%s%s%s%s", "gated" if self.gated else "plain", ", norms of heads" if self.head_norms else "",
                  ", %d segments" % self.segments if self.segments else "", ", convolutions %s" % (self.convolutions,) if self.features else "")

    def draw_features(self):
        """Convolutions whose windows overlap or leave frames out."""
        draw = self.draw
        self.positions, self.features, convolutions = draw.pick(0, 2), draw.whole(1, 20), []
        for _ in range(draw.whole(1, 4)):
            kernel = draw.whole(1, 5)
            convolutions.append((kernel, draw.whole(1, 3), draw.whole(0, kernel - 1), draw.whole(0, 4)))
        self.convolutions = tuple(convolutions)
        if not self.positions:
            self.first = 0

    def make_stacks(self):
        self.stacks = [Stack(self, "encoder", self.layers, self.source_vocabulary, False)] if self.translates else []
        if self.decodes:
            self.stacks.append(Stack(self, "decoder", self.decoder_layers, self.vocabulary, self.translates))

    def draw_steps(self):
        draw = self.draw
        self.smoothing, recompute = draw.pick(0.0, 0.1), draw.chance(0.4)
        self.narrow = draw.kind in ("translation", "text", "speech") and draw.chance(0.2) and self.is_smooth()
        draw.option("encoder=%d" % (self.layers * self.translates), "decoder=%d" % (self.decoder_layers * self.decodes),
                    "vocabulary=%d" % self.vocabulary, "source_vocabulary=%d" % self.source_vocabulary,
                    "smoothing=%g" % self.smoothing, "recompute=%d" % recompute, "bf16=%d" % self.narrow)
        draw.note("%s%s", "bfloat16" if self.narrow else "float32", ", recompute" if recompute else "")

    def is_smooth(self):
        """Whether the roundings of bfloat16 make small differences: at ReLU's bend they choose a side."""
        return 1 not in (self.activation, *(activation for _, _, _, activation in self.convolutions))

    def positions_of(self, frames):
        for kernel, stride, padding, _ in self.convolutions:
            if not frames or frames + 2 * padding < kernel:
                return 0
            frames = (frames + 2 * padding - kernel) // stride + 1
        return frames

    def draw_batch(self):
        draw = self.draw
        self.batch = draw.whole(1, 4)
        source, target = draw.whole(1, 40), draw.whole(1, 40)
        if self.features:
            frames = next(n for n in range(draw.whole(1, 60), 200) if self.positions_of(n))
            source = self.positions_of(frames)
            self.source = draw.normal(self.batch, frames, self.features)
            self.source = rounded(self.source, "bf16") if self.narrow else self.source
        else:
            self.source = draw.random.integers(0, self.source_vocabulary, (self.batch, source)).astype(np.int32)
        self.source_segments, self.target_segments = (
            draw.random.integers(0, self.segments or 1, (self.batch, length)).astype(np.int32) for length in (source, target))
        if draw.chance(0.3):
            self.source_segments, self.target_segments = self.source_segments * 0, self.target_segments * 0
        elif self.segments:
            draw.save("source_segments_0.npy", self.source_segments)
            draw.save("target_segments_0.npy", self.target_segments)
        self.target = draw.random.integers(0, self.vocabulary, (self.batch, target)).astype(np.int32)
        self.labels = draw.random.integers(0, self.vocabulary, (self.batch, target)).astype(np.int32)
        self.source_lengths = np.full(self.batch, source, np.int32)
        self.target_lengths = np.full(self.batch, target, np.int32)
        self.padding = np.zeros((self.batch, source), bool)
        if draw.chance(0.6):
            self.source_lengths = draw.random.integers(1, source + 1, self.batch).astype(np.int32)
            self.target_lengths = draw.random.integers(1, target + 1, self.batch).astype(np.int32)
            self.padding = np.arange(source) >= self.source_lengths[:, None]
            self.labels[np.arange(target) >= self.target_lengths[:, None]] = IGNORED
            draw.save("target_lengths_0.npy", self.target_lengths)
            if self.translates:
                draw.save("source_lengths_0.npy", self.source_lengths)
        parts = draw.pick(1, 1, draw.whole(1, self.batch))
        draw.option("parts=%d" % parts)
        draw.note("%dx%d/%d in %d", self.batch, target, source, parts)
        self.gradient = np.where(self.padding[:, :, None], 0, draw.normal(self.batch, source, self.d_model)).astype(np.float32)
        if not self.decodes:
            draw.save("gradient_0.npy", self.gradient)
        draw.save("target_0.npy", self.target)
        draw.save("labels_0.npy", self.labels)
        if self.translates:
            draw.save("source_0.npy", self.source)

    def random_weight(self, name, shape):
        x = self.random_numbers(name, shape)
        return rounded(x, "bf16") if self.narrow else x

    def random_numbers(self, name, shape):
        x = self.draw.normal(*shape)
        if name.endswith("tokens.weight"):
            return x * np.float32(0.5 / math.sqrt(self.d_model) if self.scaled else 0.5)
        if len(shape) > 1:
            return x / np.float32(math.sqrt(math.prod(shape[1:])))
        return np.float32(0.2) * x + np.float32("norm" in name and name.endswith("weight"))

    def product(self, x, name, weight=None):
        """Notes the sizes of the terms that its gradients are sums of."""
        p, weight = self.parameters, weight or name + ".weight"
        y = torch.nn.functional.linear(x, p[weight].flatten(1), p.get(name + ".bias"))

        y.register_hook(lambda gradient: self.note(name, gradient.detach().abs()[:, None], x, weight))
        return y

    def note(self, name, terms, x, weight=None):
        """Notes the sizes of the terms of a product's gradients; `terms` are those of its output's, (batch, heads, length, size)."""
        rows, weight = terms.transpose(1, 2).flatten(2).flatten(0, 1), weight or name + ".weight"
        for parameter, size in ((weight, rows.T @ x.detach().abs().flatten(0, -2)), (name + ".bias", rows.sum(0))):
            self.terms[parameter] = max(self.terms.get(parameter, 0), float(size.max()))
        self.before = max(self.before, float((rows @ self.parameters[weight].detach().flatten(1).abs()).sum(0).max()))

    def compute(self, dtype):
        """Losses and gradients, by PyTorch."""
        with torch.enable_grad():
            self.parameters = {name: torch.from_numpy(array).to(dtype).requires_grad_() for name, array in self.state.items()}
        made = self.go(dtype).detach().double().numpy()
        if not self.decodes:
            made = made * ~self.padding[:, :, None]
        return {"losses_0" if self.decodes else "output_0": made, **self.gradients()}

    @torch.enable_grad()
    def go(self, dtype):
        """Forward and backward; returns the losses, or an encoder's output."""
        self.terms, self.before = {}, 0
        memory = self.stacks[0].run(self.source, self.source_lengths, self.source_segments) if self.translates else None
        if not self.decodes:
            (memory * torch.from_numpy(self.gradient).to(dtype)).sum().backward()
            return memory
        x = self.stacks[-1].run(self.target, self.target_lengths, self.target_segments, memory, self.source_lengths)
        weight = "output.weight" if self.output == 1 else "decoder.tokens.weight"
        logits = plainly_summed(self.product(x, "output", weight), x, self.parameters[weight], self.parameters.get("output.bias"))
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), torch.from_numpy(self.labels).long(), reduction="none", ignore_index=IGNORED,
            label_smoothing=self.smoothing)
        (losses.sum() / max(1, (self.labels != IGNORED).sum())).backward()
        return losses

    def gradients(self):
        return {name: (t.grad if t.grad is not None else torch.zeros_like(t)).double().numpy()
                for name, t in self.parameters.items()}

    def check(self):
        exact, naive = self.compute(torch.float64), self.compute(torch.bfloat16 if self.narrow else torch.float32)
        unit = 2 ** -8 if self.narrow else 2 ** -23
        wrong, worst = [], 0
        for name in exact:
            found = np.load(self.draw.path(name + ".npy")).astype(np.float64)
            if name == "output_0":
                found *= ~self.padding[:, :, None]  # what lies beyond an item's length means nothing
            if found.shape != exact[name].shape:
                wrong.append("%s is %s, not %s" % (name, found.shape, exact[name].shape))
                continue
            # Norms and tables have gradients of sums of what products hand back.
            size = max(np.abs(exact[name]).max(initial=0), self.terms.get(name, 0 if name.endswith("_0") else self.before))
            allowed = 2 * np.abs(naive[name] - exact[name]).max(initial=0) + 8 * unit * size
            error = np.abs(found - exact[name]).max(initial=0)
            worst = max(worst, error / allowed if allowed else 0)
            if not error <= allowed:
                wrong.append("%s: off by %.3g, allowed %.3g, of numbers up to %.3g" % (name, error, allowed, size))
        self.draw.note("%.2f of what is allowed", worst)
        return "\n".join(wrong) or None


class Preset(Training):
    """A model of clattn_transformer_preset, with fewer layers and tokens."""

    def draw_model(self):
        draw = self.draw
        which = draw.number // len(KINDS) % len(PRESETS)
        stacks, self.d_model, self.heads, self.d_ff, self.activation, others = PRESETS[which]
        self.kv_heads, self.inner_kv = self.heads, self.d_model
        self.translates, self.decodes = ("encoder" in stacks), ("decoder" in stacks)
        self.pre = self.rms = self.final_norm = self.input_norm = self.scaled = self.gated = self.output_bias = False
        self.rotary = self.reach = self.softcap = self.without = self.output = self.position_count = 0
        for name, value in others.items():
            setattr(self, name, value)
        self.layers, self.decoder_layers = draw.whole(1, 2), draw.whole(1, 2)
        self.vocabulary, self.source_vocabulary = draw.whole(2, 300), draw.whole(1, 200)
        draw.option(draw.folder, "preset=%d" % which)
        draw.note("preset %d", which)


class Steps(Training):
    """Updates by AdamW or Adam, of batches of random tokens that stay the same in every tenth step."""

    def draw_batch(self):
        draw = self.draw
        super().draw_batch()
        self.batches = [(self.source, self.target, self.labels)]
        for _ in range(9):
            self.batches.append(tuple(draw.random.permutation(array.ravel()).reshape(array.shape).astype(np.int32)
                                      for array in self.batches[0][:2]) + (self.labels,))
        for step in range(STEPS):
            for name, array in zip(("source", "target", "labels"), self.batches[step % 10]):
                draw.save("%s_%d.npy" % (name, step), array)
            if self.segments:
                draw.save("source_segments_%d.npy" % step, self.source_segments)
                draw.save("target_segments_%d.npy" % step, self.target_segments)
            draw.save("source_lengths_%d.npy" % step, self.source_lengths)
            draw.save("target_lengths_%d.npy" % step, self.target_lengths)
        self.rate, self.coupled, self.decay = 3e-4, draw.chance(0.5), draw.pick(0.0, 0.01)
        draw.option("steps=%d" % STEPS, "rate=%g" % self.rate, "clip=1", "coupled=%d" % self.coupled, "decay=%g" % self.decay)
        draw.note("%d steps of Adam%s", STEPS, "" if self.coupled else "W")

    def check(self):
        with torch.enable_grad():
            self.parameters = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in self.state.items()}
        kind = torch.optim.Adam if self.coupled else torch.optim.AdamW
        optimizer = kind(self.parameters.values(), lr=self.rate, weight_decay=self.decay)
        worst = 0
        for step in range(STEPS):
            self.source, self.target, self.labels = self.batches[step % 10]
            optimizer.zero_grad()
            losses = self.go(torch.float32)
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
            optimizer.step()
            expected = losses.detach().double().sum()
            found = np.load(self.draw.path("losses_%d.npy" % step)).astype(np.float64).sum()
            worst = max(worst, abs(found / expected - 1))
            if not worst <= 1e-4:
                return "step %d: the losses' sum is %.7g, PyTorch's %.7g" % (step, found, expected)
        self.draw.note("the losses differ by %.2g", worst)
        return None


if __name__ == "__main__":
    property.main({**{kind: Training for kind in KINDS}, "preset": Preset, "steps": Steps}, ORDER, ("any",), "TRAINING_RUN", 104)  # 4 of them are steps
