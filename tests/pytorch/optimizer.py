"""A hundred steps of Adam and AdamW on random gradients, by the library (optimizer_run.c) and by torch.optim, with clip_grad_norm_.

    python optimizer.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The program is $OPTIMIZER_RUN.  Prints TAP, as property.py does.

After each step no parameter may be further from PyTorch's in float64 than twice what PyTorch's in float32 are, plus eight
roundings of float32 of what the parameter is the sum of."""
import numpy as np
import torch

import property
from draw import store, widen

KINDS = ("adam", "adamw")
SOLVERS = ("generic",)
STEPS = 100
EPSILON = 2.0 ** -23


class Optimizer:
    def __init__(self, draw):
        self.draw = draw
        draw.option(draw.folder)
        self.decoupled = draw.kind == "adamw"
        sizes = [draw.pick(1, 17, 64, draw.whole(1, 3000), 40000) for _ in range(draw.whole(1, 4))]
        self.parameters = [draw.normal(size) for size in sizes]
        self.gradients = []
        for n, size in enumerate(sizes):
            dtype = draw.pick("f32", "f32", "f16", "bf16")
            # A gradient that wanders, of sizes that differ by parameter and by step.
            drift = draw.normal(1, size) * np.float32(draw.number_between(0, 1))
            gradient = (drift + draw.normal(STEPS, size)) * np.exp(draw.normal(1, size)) * np.exp(draw.normal(STEPS, 1))
            stored = store(gradient.astype(np.float32) * np.float32(draw.pick(1, 1e-3)), dtype)
            self.gradients.append(widen(stored))
            draw.save("parameter%d.npy" % n, self.parameters[n])
            draw.save("gradient%d.npy" % n, stored)
            draw.note("%d %s", size, dtype)
        self.rate = draw.pick(1e-3, 1e-2, 3e-4)
        self.betas = draw.pick((0.9, 0.999), (0.9, 0.999), (0.9, 0.95), (0.3, 0.7), (0.0, 0.99))
        self.epsilon = draw.pick(1e-8, 1e-8, 1e-6, 1e-3)
        self.decay = draw.pick(0.0, 1e-2, 0.1)
        self.scale = draw.pick(1.0, 1.0, 1.0 / 1024)
        self.clip = draw.pick(0.0, 1.0, 30.0, 1e4) * self.scale
        numbers = {"rate": self.rate, "beta1": self.betas[0], "beta2": self.betas[1], "epsilon": self.epsilon,
                   "decay": self.decay, "scale": self.scale, "clip": self.clip}
        draw.option("arrays=%d" % len(sizes), "decoupled=%d" % self.decoupled,
                    *("%s=%r" % number for number in numbers.items()))
        draw.note(", ".join("%s %g" % number for number in numbers.items()))

    def by_pytorch(self, dtype):
        """The parameters after each step."""
        parameters = [torch.nn.Parameter(torch.tensor(p, dtype=dtype)) for p in self.parameters]
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        optimizer = kind(parameters, lr=self.rate, betas=self.betas, eps=self.epsilon, weight_decay=self.decay, foreach=False)
        after = [np.empty((STEPS, len(p))) for p in self.parameters]
        for step in range(STEPS):
            for p, gradient in zip(parameters, self.gradients):
                p.grad = torch.tensor(gradient[step]).to(dtype) * self.scale
            if self.clip:
                torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            optimizer.step()
            for n, p in enumerate(parameters):
                after[n][step] = p.numpy()
        return after

    def check(self):
        exact, plain = self.by_pytorch(torch.float64), self.by_pytorch(torch.float32)
        for n in range(len(self.parameters)):
            found = np.load(self.draw.path("after%d.npy" % n)).astype(np.float64)
            allowed = 2 * np.abs(plain[n] - exact[n]).max(1, keepdims=True) + 8 * EPSILON * (np.abs(exact[n]) + self.rate)
            wrong = ~(np.abs(found - exact[n]) <= allowed)
            if wrong.any():
                step, i = np.argwhere(wrong)[0]
                return "parameter%d[%d] after step %d is %.9g, not %.9g (PyTorch in float32: %.9g); off by %.3g, allowed %.3g" % (
                    n, i, step + 1, found[step, i], exact[n][step, i], plain[n][step, i],
                    abs(found[step, i] - exact[n][step, i]), allowed[step, i])
        return None


if __name__ == "__main__":
    property.main({kind: Optimizer for kind in KINDS}, KINDS, SOLVERS, "OPTIMIZER_RUN", 100)
