#!/usr/bin/env python3
"""The same model trained by PyTorch with the same first weights, batches, order and steps as `clattn train` had, and what both
translate the test set to, by BLEU.

    python3 examples/translation/peer.py CORPUS MODEL FIRST [--language de] [--steps N] [--lines N] [--out FOLDER]

MODEL is the folder that `clattn train` has made with --dropout 0 and otherwise the defaults; FIRST one that it has made with the
same options but --steps 1 --learning-rate 0.  README.md beside this file has the commands.  Needs PyTorch, sentencepiece and sacrebleu of PyPI, and
the command as $CLATTN."""
import argparse
import json
import math
import os
import pathlib
import struct
import subprocess
import time

import numpy as np
import sacrebleu
import sentencepiece
import torch
from torch.nn import functional

import order

PAD, BEGIN, END, IGNORED = 0, 2, 3, -100
SMOOTHING, CLIP, WARMUP, FACTOR, TOKENS = 0.1, 1.0, 400, 0.5, 2048  # the defaults of `clattn train`


# ---- the data ----

class Batches:
    """The batches of one epoch after the other."""

    def __init__(self, pairs, longest, seed):
        self.pairs, self.longest, self.seed, self.epoch, self.left = pairs, longest, seed, 0, []

    def next(self):
        if not self.left:
            sizes = [max(len(source), len(target) - 1) for source, target in self.pairs]
            self.left = order.batches(sizes, TOKENS, self.longest, self.seed, self.epoch)[::-1]
            self.epoch += 1
        length, items = self.left.pop()
        source, target, labels = (np.full((len(items), length), fill) for fill in (PAD, PAD, IGNORED))
        for row, i in enumerate(items):
            ids, text = self.pairs[i]
            source[row, :len(ids)] = ids
            target[row, :len(text) - 1] = text[:-1]
            labels[row, :len(text) - 1] = text[1:]
        lengths = np.array([len(self.pairs[i][0]) for i in items])
        return tuple(map(torch.from_numpy, (source, target, labels, lengths)))


def read_pairs(corpus, language, vocabulary, longest):
    sides = [(corpus / f"train.{name}").read_text(encoding="utf-8").split("\n")[:-1] for name in ("en", language)]
    pairs = []
    for n, (source, target) in enumerate(zip(*sides)):
        pair = vocabulary.encode(source) + [END], [BEGIN] + vocabulary.encode(target) + [END]
        if n % 100 != 99 and len(pair[0]) <= longest and len(pair[1]) - 1 <= longest:
            pairs.append(pair)
    return pairs


# ---- the model ----

def read_safetensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]),
                                   dtype=torch.float32).reshape(t["shape"]).clone() for name, t in header.items()}


def sinusoids(length, size):
    angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, size, 2) / size)
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, size)


class Model:
    """A pre-norm Transformer of a model's tensors by their names."""

    def __init__(self, parameters, heads):
        self.p, self.heads = parameters, heads
        self.size = parameters["encoder.tokens.weight"].shape[1]
        self.layers = {stack: 1 + max(int(name.split(".")[2]) for name in parameters if name.startswith(stack + ".layers."))
                       for stack in ("encoder", "decoder")}

    def linear(self, x, name):
        return functional.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def norm(self, x, name):
        return functional.layer_norm(x, (self.size,), self.p[name + ".weight"], self.p[name + ".bias"], 1e-5)

    def attention(self, x, memory, name, mask, causal=False):
        query, key, value = (self.linear(y, f"{name}.{part}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for y, part in ((x, "query"), (memory, "key"), (memory, "value")))
        y = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        return self.linear(y.transpose(1, 2).flatten(2), f"{name}.output")

    def embed(self, ids, stack):
        return functional.embedding(ids, self.p[stack + ".tokens.weight"]) * math.sqrt(self.size) + sinusoids(ids.shape[1], self.size)

    def feed_forward(self, x, at):
        y = self.norm(x, f"{at}.feed_forward.norm")
        return x + self.linear(functional.relu(self.linear(y, f"{at}.feed_forward.in")), f"{at}.feed_forward.out")

    def encode(self, ids, lengths):
        x, mask = self.embed(ids, "encoder"), (torch.arange(ids.shape[1]) < lengths[:, None])[:, None, None, :]
        for n in range(self.layers["encoder"]):
            at = f"encoder.layers.{n}"
            y = self.norm(x, f"{at}.self.norm")
            x = self.feed_forward(x + self.attention(y, y, f"{at}.self", mask), at)
        return self.norm(x, "encoder.norm"), mask

    def decode(self, ids, memory, mask):
        x = self.embed(ids, "decoder")
        for n in range(self.layers["decoder"]):
            at = f"decoder.layers.{n}"
            y = self.norm(x, f"{at}.self.norm")
            x = x + self.attention(y, y, f"{at}.self", None, causal=True)
            x = x + self.attention(self.norm(x, f"{at}.cross.norm"), memory, f"{at}.cross", mask)
            x = self.feed_forward(x, at)
        return functional.linear(self.norm(x, "decoder.norm"), self.p["decoder.tokens.weight"])


def train(model, batches, steps):
    for tensor in model.p.values():
        tensor.requires_grad_()
    optimizer = torch.optim.AdamW(model.p.values(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0)
    began, losses = time.monotonic(), []
    for step in range(1, steps + 1):
        source, target, labels, lengths = batches.next()
        for group in optimizer.param_groups:
            group["lr"] = FACTOR * model.size ** -0.5 * min(step ** -0.5, step * WARMUP ** -1.5)
        optimizer.zero_grad()
        logits = model.decode(target, *model.encode(source, lengths))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.p.values(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print("step %d: loss %.4f, %.0f s" % (step, np.mean(losses[-50:]), time.monotonic() - began), flush=True)
    return losses, time.monotonic() - began


@torch.no_grad()
def translate(model, vocabulary, lines, longest):
    """Greedily, 32 lines of like length at a time."""
    made, order = [""] * len(lines), sorted(range(len(lines)), key=lambda i: len(lines[i]))
    for first in range(0, len(order), 32):
        chosen = order[first:first + 32]
        ids = [vocabulary.encode(lines[i])[:longest - 1] + [END] for i in chosen]
        lengths = torch.tensor([len(one) for one in ids])
        source = torch.tensor([one + [PAD] * (int(lengths.max()) - len(one)) for one in ids])
        memory, mask = model.encode(source, lengths)
        text = torch.full((len(ids), 1), BEGIN)
        while text.shape[1] < longest and not (text == END).any(1).all():
            text = torch.cat([text, model.decode(text, memory, mask)[:, -1:].argmax(-1)], 1)
        for i, row in zip(chosen, text.tolist()):
            made[i] = vocabulary.decode(row[1:row.index(END)] if END in row else row[1:])
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("first", type=pathlib.Path)
    parser.add_argument("--language", default="de")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, help="how many lines of the test set; default all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    config = json.loads((options.model / "config.json").read_text())
    vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(options.model / "vocabulary.model"))
    longest, heads = config["source_length"], config["heads"]
    pairs = read_pairs(options.corpus, options.language, vocabulary, longest)
    batches = Batches(pairs, longest, options.seed)
    print("%d pairs" % len(pairs), flush=True)
    model = Model(read_safetensors(options.first / "model.safetensors"), heads)
    losses, seconds = train(model, batches, options.steps)
    np.savetxt(options.out / "peer-losses.txt", losses, fmt="%.6f")
    sources, references = ((options.corpus / f"test.{side}").read_text(encoding="utf-8").splitlines()[:options.lines]
                           for side in ("en", options.language))
    theirs = translate(model, vocabulary, sources, longest)
    ours = subprocess.run([os.environ.get("CLATTN", "clattn"), "translate", options.model], input="\n".join(sources) + "\n",
                          stdout=subprocess.PIPE, text=True, check=True, encoding="utf-8").stdout.splitlines()
    for name, lines in (("clattn", ours), ("PyTorch", theirs)):
        (options.out / f"test.{name.lower()}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print("%s: %s" % (name, sacrebleu.corpus_bleu(lines, [references])))
    print("PyTorch: loss %.4f of the last 50 steps, %.0f s" % (np.mean(losses[-50:]), seconds))


if __name__ == "__main__":
    main()
