"""Random Transformers whose losses and gradients are computed by the library (training_run.c) and by PyTorch's autograd in
float64: each gradient is within twice the largest error that PyTorch makes of it in float32, or bfloat16 if the model is.

    python training.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The program is $TRAINING_RUN.  Prints TAP, as property.py does."""
import math

import numpy as np
import torch

import property
from draw import rounded
from command_support import write_safetensors  # of tests/tool, to which draw.py has made the way

KINDS = ("translation", "text", "encoder")
ACTIVATIONS = (torch.nn.functional.relu, torch.nn.functional.gelu,
               lambda x: torch.nn.functional.gelu(x, approximate="tanh"), torch.nn.functional.silu)
IGNORED = -100


class Stack:
    """One stack's numbers, the names of its parameters with their shapes, and what it computes of them."""

    def __init__(self, model, name, layers, vocabulary, cross):
        self.model, self.name, self.layers, self.vocabulary, self.cross = model, name, layers, vocabulary, cross

    def shapes(self):
        m, d = self.model, self.model.d_model
        norms = ["norm"] if m.final_norm else []
        yield f"{self.name}.tokens.weight", (self.vocabulary, d)
        if m.positions == 2:
            yield f"{self.name}.positions.weight", (m.position_count, d)
        if m.input_norm:
            norms.append("input_norm")
        for layer in range(self.layers):
            at = f"layers.{layer}"
            for part in ["self"] + ["cross"] * self.cross:
                for kind, rows, columns in (("query", d, d), ("key", m.inner_kv, d), ("value", m.inner_kv, d), ("output", d, d)):
                    yield from self.linear(f"{at}.{part}.{kind}", rows, columns)
                norms.append(f"{at}.{part}.norm")
            yield from self.linear(f"{at}.feed_forward.in", m.d_ff, d)
            if m.gated:
                yield from self.linear(f"{at}.feed_forward.gate", m.d_ff, d)
            yield from self.linear(f"{at}.feed_forward.out", d, m.d_ff)
            norms.append(f"{at}.feed_forward.norm")
        for norm in norms:
            yield f"{self.name}.{norm}.weight", (d,)
            if m.biases and not m.rms:
                yield f"{self.name}.{norm}.bias", (d,)

    def linear(self, name, rows, columns):
        yield f"{self.name}.{name}.weight", (rows, columns)
        if self.model.biases:
            yield f"{self.name}.{name}.bias", (rows,)

    # ---- the way forward, by PyTorch ----

    def product(self, x, name):
        return self.model.product(x, f"{self.name}.{name}")

    def norm(self, x, name):
        p, size = self.model.parameters, (self.model.d_model,)
        weight = p[f"{self.name}.{name}.weight"]
        if self.model.rms:
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight
        return torch.nn.functional.layer_norm(x, size, weight, p.get(f"{self.name}.{name}.bias"), 1e-5)

    def heads(self, x, name, count, rotated):
        y = self.product(x, name)
        y = y.reshape(y.shape[0], y.shape[1], count, -1).transpose(1, 2)
        return rotate(y, self.model.rotary) if rotated else y

    def attention(self, x, memory, name, lengths, own):
        m = self.model
        rotated = own and m.rotary
        query = self.heads(x, f"{name}.query", m.heads, rotated)
        key = self.heads(memory, f"{name}.key", m.kv_heads, rotated)
        value = self.heads(memory, f"{name}.value", m.kv_heads, False)
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
            m.note(f"{self.name}.{name}.query", terms @ key.detach().abs(), x)
            m.note(f"{self.name}.{name}.key", of_key, memory)

        y.register_hook(note)
        return self.product(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), f"{name}.output")

    def hidden(self, x, at):
        y = self.product(x, f"{at}.feed_forward.in")
        if self.model.gated:
            return self.model.activation(self.product(x, f"{at}.feed_forward.gate")) * y
        return self.model.activation(y)

    def sublayer(self, x, name, compute):
        if self.model.pre:
            return x + compute(self.norm(x, f"{name}.norm"))
        return self.norm(x + compute(x), f"{name}.norm")

    def run(self, ids, lengths, memory=None, memory_lengths=None):
        m, p = self.model, self.model.parameters
        x = p[f"{self.name}.tokens.weight"][torch.from_numpy(ids).long()]
        if m.scaled:
            x = x * math.sqrt(m.d_model)
        if m.positions == 1:
            x = x + sinusoids(ids.shape[1], m.d_model).to(x.dtype)
        if m.positions == 2:
            x = x + p[f"{self.name}.positions.weight"][:ids.shape[1]]
        if m.input_norm:
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


class Training:
    def __init__(self, draw):
        self.draw = draw
        self.translates, self.decodes = draw.kind != "text", draw.kind != "encoder"
        self.draw_model()
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
        self.pre, self.rms, self.biases = draw.chance(0.5), draw.chance(0.2), draw.chance(0.7)
        self.final_norm, self.input_norm = draw.chance(0.6), draw.chance(0.2)
        self.positions, self.scaled = draw.whole(0, 2), draw.chance(0.5)
        self.rotary = draw.pick(0, 0, 1, 2)
        self.reach, self.softcap = draw.pick(0, 0, draw.whole(1, 12)), draw.pick(0.0, 0.0, 5.0)
        self.vocabulary, self.source_vocabulary = draw.whole(2, 300), draw.whole(1, 200)
        self.output = draw.whole(1, 2)
        self.output_bias = self.output == 1 and draw.chance(0.5)
        self.position_count = 64 if self.positions == 2 else 0
        self.smoothing = draw.pick(0.0, 0.1)
        activation = draw.whole(0, 3)
        self.activation = ACTIVATIONS[activation]
        layers, decoder_layers = draw.whole(1, 3), draw.whole(1, 3)
        self.stacks = [Stack(self, "encoder", layers, self.source_vocabulary, False)] if self.translates else []
        if self.decodes:
            self.stacks.append(Stack(self, "decoder", decoder_layers, self.vocabulary, self.translates))
        self.gated = draw.chance(0.25)
        recompute, self.narrow = draw.chance(0.4), self.decodes and draw.chance(0.2)
        draw.option(draw.folder, "encoder=%d" % (layers * self.translates), "decoder=%d" % (decoder_layers * self.decodes),
                    "vocabulary=%d" % self.vocabulary, "source_vocabulary=%d" % self.source_vocabulary,
                    "d_model=%d" % self.d_model, "heads=%d" % self.heads, "kv_heads=%d" % self.kv_heads,
                    "d_ff=%d" % self.d_ff, "activation=%d" % (1 + activation), "norm=%d" % self.rms, "pre=%d" % self.pre,
                    "without_bias=%d" % (0 if self.biases else 63), "final_norm=%d" % self.final_norm,
                    "positions=%d" % self.positions, "position_count=%d" % self.position_count, "rotary=%d" % self.rotary,
                    "reach=%d" % self.reach, "softcap=%g" % self.softcap, "scaled=%d" % self.scaled,
                    "input_norm=%d" % self.input_norm, "output=%d" % (self.output * self.decodes), "output_bias=%d" % (self.output_bias and self.decodes),
                    "smoothing=%g" % self.smoothing, "recompute=%d" % recompute, "bf16=%d" % self.narrow, "gated=%d" % self.gated)
        draw.note("%d heads of %d (%d), d_ff %d, %s-norm, %s%s%s%s%s%s", self.heads, self.d_model // self.heads, self.kv_heads,
                  self.d_ff, "pre" if self.pre else "post", "RMS" if self.rms else "layer", ", biases" if self.biases else "",
                  ", tied" if self.output == 2 else "", ", positions %d" % self.positions if self.positions else "",
                  ", rotary" if self.rotary else "", ", recompute" if recompute else "")
        draw.note("%s%s", "bfloat16" if self.narrow else "float32", ", gated" if self.gated else "")

    def draw_batch(self):
        draw = self.draw
        self.batch = draw.whole(1, 4)
        source, target = draw.whole(1, 40), draw.whole(1, 40)
        self.source = draw.random.integers(0, self.source_vocabulary, (self.batch, source)).astype(np.int32)
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
            return x / np.float32(math.sqrt(shape[-1]))
        return np.float32(0.2) * x + np.float32("norm" in name and name.endswith("weight"))

    def product(self, x, name, weight=None):
        """Notes the sizes of the terms that its gradients are sums of."""
        p, weight = self.parameters, weight or name + ".weight"
        y = torch.nn.functional.linear(x, p[weight], p.get(name + ".bias"))

        y.register_hook(lambda gradient: self.note(name, gradient.detach().abs()[:, None], x, weight))
        return y

    def note(self, name, terms, x, weight=None):
        """Notes the sizes of the terms of a product's gradients; `terms` are those of its output's, (batch, heads, length, size)."""
        rows, weight = terms.transpose(1, 2).flatten(2).flatten(0, 1), weight or name + ".weight"
        for parameter, size in ((weight, rows.T @ x.detach().abs().flatten(0, -2)), (name + ".bias", rows.sum(0))):
            self.terms[parameter] = max(self.terms.get(parameter, 0), float(size.max()))
        self.before = max(self.before, float((rows @ self.parameters[weight].detach().abs()).sum(0).max()))

    def compute(self, dtype):
        """Losses and gradients, by PyTorch."""
        self.terms, self.before = {}, 0
        with torch.enable_grad():
            self.parameters = {name: torch.from_numpy(array).to(dtype).requires_grad_() for name, array in self.state.items()}
            memory = self.stacks[0].run(self.source, self.source_lengths) if self.translates else None
            if not self.decodes:
                (memory * torch.from_numpy(self.gradient).to(dtype)).sum().backward()
                return {"output_0": memory.detach().double().numpy() * ~self.padding[:, :, None], **self.gradients()}
            x = self.stacks[-1].run(self.target, self.target_lengths, memory, self.source_lengths)
            p = self.parameters
            logits = self.product(x, "output", "output.weight" if self.output == 1 else "decoder.tokens.weight")
            losses = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), torch.from_numpy(self.labels).long(), reduction="none", ignore_index=IGNORED,
                label_smoothing=self.smoothing)
            (losses.sum() / max(1, (self.labels != IGNORED).sum())).backward()
        return {"losses_0": losses.detach().double().numpy(), **self.gradients()}

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


if __name__ == "__main__":
    property.main({kind: Training for kind in KINDS}, KINDS, ("any",), "TRAINING_RUN", 100)
