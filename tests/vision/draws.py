"""What compare.py and embed_image.py have in common: random numbers, and one draw after another as TAP."""
import argparse
import os
import shutil
import sys
import tempfile

import numpy as np
import torch


class Case:
    """A draw: its random numbers, a folder, the program's options, and what it consists of."""

    def __init__(self, number, seed):
        self.random = np.random.default_rng([seed, number])
        torch.manual_seed(int(self.random.integers(1 << 31)))
        self.folder = tempfile.mkdtemp(prefix="vision-")
        self.options, self.note = {}, []

    def whole(self, low, high):
        return int(self.random.integers(low, high + 1))

    def pick(self, *values):
        return values[self.whole(0, len(values) - 1)]


def randomise(module, case):
    """Weights as large as those of trained models, so that the layers change what passes through them."""
    for name, tensor in module.named_parameters():
        x = torch.tensor(case.random.standard_normal(tuple(tensor.shape)).astype(np.float32))
        if "norm" in name.split(".")[-2:][0] and name.endswith("weight"):
            x = 1 + 0.2 * x
        elif "lambda" in name or "gamma" in name:
            x = 0.5 + 0.3 * x
        elif tensor.dim() > 1 and "token" not in name and "pos" not in name and "embedding.weight" not in name:
            x = x / float(np.sqrt(np.prod(tensor.shape[1:])))
        else:
            x = 0.3 * x
        with torch.no_grad():
            tensor.copy_(x)
    return module.eval()


def compare(got, expected):
    """The largest difference relative to numbers above 1; not a number, or another shape, is an infinite one."""
    if got.shape != expected.shape or not np.all(np.isfinite(got)):
        return float("inf")
    return float(np.max(np.abs(got - expected) / np.maximum(1, np.abs(expected)), initial=0.0))


def main(case_class, kinds, judge):
    """Judges draws of all kinds in turn; judge(make, case) returns what is wrong, or "", and what to say of the draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CLATTN_TEST_SEED", "1")))
    parser.add_argument("--only", default="")
    parser.add_argument("--kinds", default=",".join(kinds))
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    wanted = given.kinds.split(",")
    numbers = [int(n) for n in given.only.split(",") if n] or range(1, given.draws + 1)
    torch.set_num_threads(2)
    failed = 0
    for number in numbers:
        kind, case = wanted[number % len(wanted)], case_class(number, given.seed)
        with torch.no_grad():
            wrong, said = judge(kinds[kind], case)
        text = "%s %d: %s" % (kind, number, ", ".join(case.note))
        print("not ok %d - %s\n# %s\n# %s" % (number, text, wrong, said) if wrong else "ok %d - %s (%s)" % (number, text, said))
        sys.stdout.flush()
        failed += bool(wrong)
        if not given.keep and not wrong:
            shutil.rmtree(case.folder)
    print("1..%d" % len(numbers))
    return 1 if failed else 0
