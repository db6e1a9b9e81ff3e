"""A step of training beside PyTorch's eager one: forward, backward and AdamW of the paper's base encoder and decoder, 8 items of 128
tokens each, float32, no dropout.  Both take turns.

    python training_speed.py [--rounds N] [--repeat N] [--case NAME] [--least RATIO]

With --least the exit status is 1 if PyTorch's time by ours is below it, or our memory above PyTorch's.  The program is
$TRAINING_RUN (training_run.c), PyTorch's threads are the processor's cores."""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tool"))
from command_support import write_safetensors  # noqa: E402

CASES = {"base": dict(layers=6, d_model=512, heads=8, d_ff=2048, vocabulary=512, batch=8, length=128),
         "tiny": dict(layers=3, d_model=256, heads=4, d_ff=1024, vocabulary=8000, batch=32, length=32)}


class Model(torch.nn.Module):
    def __init__(self, layers, d_model, heads, d_ff, vocabulary, **_):
        super().__init__()
        self.source = torch.nn.Embedding(vocabulary, d_model)
        self.target = torch.nn.Embedding(vocabulary, d_model)
        self.layers = torch.nn.Transformer(d_model, heads, layers, layers, d_ff, dropout=0, batch_first=True)
        for stack in (self.layers.encoder, self.layers.decoder):
            stack.norm = None  # the paper's: post-norm

    def forward(self, source, target, causal):
        x = self.layers(self.source(source), self.target(target), tgt_mask=causal, tgt_is_causal=True)
        return torch.nn.functional.linear(x, self.target.weight)


def canonical(state, layers, d):
    """PyTorch's parameters by clattn's names."""
    made = {"encoder.tokens.weight": state["source.weight"], "decoder.tokens.weight": state["target.weight"]}
    for side in ("encoder", "decoder"):
        for n in range(layers):
            old, new = f"layers.{side}.layers.{n}", f"{side}.layers.{n}"
            parts = {"self_attn": "self", "multihead_attn": "cross"} if side == "decoder" else {"self_attn": "self"}
            for norm, (theirs, ours) in enumerate(parts.items(), 1):
                for kind in ("weight", "bias"):
                    whole = state[f"{old}.{theirs}.in_proj_{kind}"]
                    for i, name in enumerate(("query", "key", "value")):
                        made[f"{new}.{ours}.{name}.{kind}"] = whole[i * d:(i + 1) * d]
                    made[f"{new}.{ours}.output.{kind}"] = state[f"{old}.{theirs}.out_proj.{kind}"]
                    made[f"{new}.{ours}.norm.{kind}"] = state[f"{old}.norm{norm}.{kind}"]
            for kind in ("weight", "bias"):
                made[f"{new}.feed_forward.in.{kind}"] = state[f"{old}.linear1.{kind}"]
                made[f"{new}.feed_forward.out.{kind}"] = state[f"{old}.linear2.{kind}"]
                made[f"{new}.feed_forward.norm.{kind}"] = state[f"{old}.norm{len(parts) + 1}.{kind}"]
    return {name: np.ascontiguousarray(array) for name, array in made.items()}


def measure(name, case, options):
    torch.manual_seed(1)
    model, random = Model(**case), np.random.default_rng(1)
    arrays = {what: random.integers(0, case["vocabulary"], (case["batch"], case["length"])).astype(np.int32)
              for what in ("source", "target", "labels")}
    state = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    source, target, labels = (torch.from_numpy(array).long() for array in arrays.values())
    causal = torch.nn.Transformer.generate_square_subsequent_mask(case["length"])

    def step():
        began = time.perf_counter()
        optimizer.zero_grad()
        logits = model(source, target, causal)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return (time.perf_counter() - began) * 1e3

    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "weights.safetensors"), canonical(state, case["layers"], case["d_model"]))
        for what, array in arrays.items():
            np.save(os.path.join(folder, what + "_0.npy"), array)
        command = [os.environ["TRAINING_RUN"], folder, "output=2", "activation=1", "rate=1e-4", "clip=1", "causal=1",
                   "source_vocabulary=%d" % case["vocabulary"], "repeat=%d" % options.repeat,
                   "encoder=%d" % case["layers"], "decoder=%d" % case["layers"]]
        command += ["%s=%d" % (key, case[key]) for key in ("d_model", "heads", "d_ff", "vocabulary")]
        ours, theirs = [], []
        step()
        for _ in range(options.rounds):
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            *times, memory = map(float, done.stdout.split())
            ours += times
            theirs += [step() for _ in range(options.repeat)]
            print("# %s: clattn %.0f ms, PyTorch %.0f ms" % (name, statistics.median(ours), statistics.median(theirs)),
                  flush=True)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return statistics.median(ours), statistics.median(theirs), memory / 1024, own / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--least", type=float, default=0)
    options = parser.parse_args()
    short = False
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    print("| model | clattn, ms | PyTorch, ms | its time / ours | most memory, clattn's and PyTorch's, MB |\n| --- | --- | --- | --- | --- |")
    for name, case in CASES.items():
        if options.case in (None, name):
            ours, theirs, own, other = measure(name, case, options)
            print("| %s | %.0f | %.0f | %.2f | %.0f, %.0f |" % (name, ours, theirs, theirs / ours, own, other), flush=True)
            short = short or options.least > 0 and (theirs < options.least * ours or own > other)
    return short


if __name__ == "__main__":
    sys.exit(main())
