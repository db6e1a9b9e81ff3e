"""A small model of texts with random numbers, in a folder as `clattn train` makes one, and what NumPy's float64 makes of it."""
import json
import math
import os
import subprocess

import numpy as np

from command_support import write_safetensors
from heatmap_page import MapTest

PIECES = os.environ.get("TEXT_PIECES")
BEGIN, END = 2, 3
TEXTS = ["The file is there.", "The file is not there, and the folder is empty.", "Is a file in the folder?",
         "Die Datei ist da.", "Die Datei fehlt, und der Ordner ist leer.", "Ist eine Datei im Ordner?",
         "größer als der Ordner", "The folder is larger than all files", "a", "No such file or folder: the end"]
CONFIG = {"clattn_text": 1, "kind": "translation", "norm_place": "pre", "encoder_layers": 2, "decoder_layers": 3, "d_model": 32,
          "heads": 4, "d_ff": 48, "source_length": 40, "target_length": 20}


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Peer:
    """The model in float64."""

    def __init__(self, config, tensors):
        self.config = config
        self.tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self.probabilities = []  # of the last call of `decode`: each layer's cross-attention, or self-attention

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def sublayer(self, x, name, function):
        if self.config["norm_place"] == "post":
            return self.norm(x + function(x), name + ".norm")
        return x + function(self.norm(x, name + ".norm"))

    def embed(self, ids, stack):
        size = self.config["d_model"]
        angles = np.arange(len(ids))[:, None] / 10000 ** (np.arange(0, size, 2) / size)
        positions = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(ids), size)
        return self.tensors[stack + ".tokens.weight"][ids] * math.sqrt(size) + positions

    def attention(self, x, memory, name, causal, kept):
        heads = self.config["heads"]
        split = lambda y: y.reshape(len(y), heads, -1).swapaxes(0, 1)
        q, k, v = (split(self.linear(y, f"{name}.{part}")) for y, part in ((x, "query"), (memory, "key"), (memory, "value")))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tri(len(x), len(memory), dtype=bool), scores, -np.inf)
        p = softmax(scores)
        if kept:
            self.probabilities.append(p)
        return self.linear((p @ v).swapaxes(0, 1).reshape(len(x), -1), name + ".output")

    def layers(self, x, stack, memory=None):
        causal = stack == "decoder"
        translation = self.config["kind"] == "translation"
        for layer in range(self.config[stack + "_layers"]):
            name = f"{stack}.layers.{layer}."
            x = self.sublayer(x, name + "self",
                              lambda y: self.attention(y, y, name + "self", causal, causal and not translation))
            if memory is not None:
                x = self.sublayer(x, name + "cross", lambda y: self.attention(y, memory, name + "cross", False, True))
            x = self.sublayer(x, name + "feed_forward", lambda y: self.linear(
                np.maximum(self.linear(y, name + "feed_forward.in"), 0), name + "feed_forward.out"))
        return self.norm(x, stack + ".norm") if self.config["norm_place"] == "pre" else x

    def encode(self, source):
        return self.layers(self.embed(source, "encoder"), "encoder")

    def decode(self, ids, memory):
        """Returns each position's log-probabilities."""
        self.probabilities = []
        x = self.layers(self.embed(ids, "decoder"), "decoder", memory)
        return np.log(softmax(x @ self.tensors["decoder.tokens.weight"].T))

    def limits(self, ids):
        """Returns the memory, what the decoder begins with, and the most pieces of an output."""
        most = self.config["target_length"]
        if self.config["kind"] == "text":
            return None, list(ids), most + 1 - len(ids)
        return self.encode(ids), [BEGIN], min(most, len(ids) + 50)

    def greedy(self, ids):
        """Returns the output for a source with END, or for BEGIN and a prompt; its score; and how close a choice was."""
        memory, begin, most = self.limits(ids)
        made, score, close = [], 0.0, np.inf
        while len(made) < most and (not made or made[-1] != END):
            log = self.decode(begin + made, memory)[-1]
            best = np.sort(log)[-2:]
            close = min(close, best[1] - best[0])
            made.append(int(np.argmax(log)))
            score += best[1]
        return made, score, close

    def score(self, ids, made):
        """Returns the score that beam search gives this output: Wu et al.'s rule with the paper's 0.6."""
        memory, begin, _ = self.limits(ids)
        log = self.decode(begin + made[:-1], memory)[len(begin) - 1:]
        return sum(log[i, piece] for i, piece in enumerate(made)) / ((5 + len(made)) / 6) ** 0.6


class TextTest(MapTest):
    def pieces(self, how, *arguments, lines=()):
        done = subprocess.run([PIECES, how, self.path("model/vocabulary.model"), *map(str, arguments)], check=True,
                              input="".join(line + "\n" for line in lines).encode(), stdout=subprocess.PIPE)
        return done.stdout.decode().split("\n")[:-1]

    def ids(self, text):
        """Returns what the model reads for a text."""
        ids = [int(i) for i in self.pieces("encode", lines=[text])[0].split()]
        return ids + [END] if self.config["kind"] == "translation" else [BEGIN] + ids

    def text(self, ids):
        return self.pieces("decode", lines=[" ".join(map(str, ids))])[0]

    def tensors(self, config):
        size, inner, made = config["d_model"], config["d_ff"], {}

        def linear(name, rows, columns):
            made[name + ".weight"] = self.normal(rows, columns) * np.float32(1.5 / math.sqrt(columns))
            made[name + ".bias"] = self.normal(rows) * np.float32(0.1)

        def norm(name):
            made[name + ".weight"] = 1 + self.normal(size) * np.float32(0.1)
            made[name + ".bias"] = self.normal(size) * np.float32(0.1)

        translation = config["kind"] == "translation"
        for stack in ("encoder", "decoder") if translation else ("decoder",):
            made[stack + ".tokens.weight"] = self.normal(config["vocabulary"], size) * np.float32(0.4)
            for layer in range(config[stack + "_layers"]):
                name = f"{stack}.layers.{layer}."
                for part in ("self", "cross") if translation and stack == "decoder" else ("self",):
                    for matrix in ("query", "key", "value", "output"):
                        linear(f"{name}{part}.{matrix}", size, size)
                    norm(f"{name}{part}.norm")
                linear(name + "feed_forward.in", inner, size)
                linear(name + "feed_forward.out", size, inner)
                norm(name + "feed_forward.norm")
            if config["norm_place"] == "pre":
                norm(stack + ".norm")
        return made

    def write_config(self, **changed):
        config = {name: value for name, value in {**self.config, **changed}.items() if value is not None}
        self.write("model/config.json", json.dumps(config))

    def make(self, **changed):
        """A model's folder: self.model, self.config, self.weights, self.peer."""
        self.model = self.path("model")
        os.makedirs(self.model, exist_ok=True)
        self.pieces("make", 90, self.write("texts.txt", "\n".join(TEXTS)))
        self.config = {**CONFIG, **changed, "vocabulary": len(self.pieces("list"))}
        if self.config["kind"] == "text":
            self.config["encoder_layers"] = self.config["source_length"] = None
        self.weights = self.tensors(self.config)
        self.peer = Peer(self.config, self.weights)
        self.write_config()
        write_safetensors(self.path("model/model.safetensors"), self.weights)
