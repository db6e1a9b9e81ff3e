"""A model of Whisper's kind that is small enough to be run again and again: one layer, few tokens.  It hears three of them
in any sound, and then the end."""
import json
import os
import struct

import numpy as np

SIZE, BINS, POSITIONS, LENGTH = 8, 80, 1500, 448
FLOATS, INTEGER = 0, 2  # CTranslate2's types float32 and int16


class Model:
    """What the model's files are made of; a test may change it before `write`.

    `variables`: name -> (extents, type, bytes); `tokens`: None: there is no vocabulary."""

    def __init__(self):
        self.random = np.random.default_rng(2)
        self.spec, self.variables = "WhisperSpec", {}
        self.tokens = ["a", "b", "\u0120c", "<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|nospeech|>",
                       "<|notimestamps|>"] + [f"<|{i / 50:.2f}|>" for i in range(12)]
        self.config = {"suppress_ids": [1], "suppress_ids_begin": [3], "alignment_heads": [[0, 0], [0, 1]]}
        self.vocabulary = "vocabulary.txt"
        end = np.where(np.arange(SIZE) % 2, 1, -1).astype("<f4")  # what the end's embedding and late positions share
        for stack in ("encoder", "decoder"):
            self.integer(f"{stack}/num_heads", 2)
        self.linear("encoder/conv1", SIZE, BINS, 3)
        self.linear("encoder/conv2", SIZE, SIZE, 3)
        self.floats("encoder/position_encodings/encodings", self.drawn(POSITIONS, SIZE))
        embedding = self.drawn(len(self.tokens), SIZE)
        embedding[:3] += 0.5
        embedding[3] += end
        self.floats("decoder/embeddings/weight", embedding)
        positions = self.drawn(LENGTH, SIZE)
        positions[4:] += 20 * end
        self.floats("decoder/position_encodings/encodings", positions)
        for stack in ("encoder", "decoder"):
            self.layer(stack, 0)
            self.norm(f"{stack}/layer_norm")
        self.cross_attention(0)

    def integer(self, name, value):
        self.variables[name] = ((), INTEGER, struct.pack("<h", value))

    def floats(self, name, values):
        values = np.asarray(values, dtype="<f4")
        self.variables[name] = (values.shape, FLOATS, values.tobytes())

    def drawn(self, *extent):
        return (0.3 * self.random.standard_normal(extent)).astype("<f4")

    def linear(self, name, rows, *columns):
        self.floats(f"{name}/weight", self.drawn(rows, *columns))
        self.floats(f"{name}/bias", self.drawn(rows))

    def norm(self, name):
        self.floats(f"{name}/gamma", 1 + self.drawn(SIZE))
        self.floats(f"{name}/beta", self.drawn(SIZE))

    def layer(self, stack, number):
        layer = f"{stack}/layer_{number}"
        self.linear(f"{layer}/self_attention/linear_0", 3 * SIZE, SIZE)
        self.linear(f"{layer}/self_attention/linear_1", SIZE, SIZE)
        self.linear(f"{layer}/ffn/linear_0", 2 * SIZE, SIZE)
        self.linear(f"{layer}/ffn/linear_1", SIZE, 2 * SIZE)
        for name in ("self_attention/layer_norm", "ffn/layer_norm"):
            self.norm(f"{layer}/{name}")

    def cross_attention(self, number):
        for i in range(3):
            self.linear(f"decoder/layer_{number}/attention/linear_{i}", SIZE if i != 1 else 2 * SIZE, SIZE)
        self.norm(f"decoder/layer_{number}/attention/layer_norm")

    def write(self, folder):
        """Writes the files into a new folder; returns its name."""
        os.makedirs(folder)

        def text(value):
            return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"
        data = struct.pack("<I", 6) + text(self.spec) + struct.pack("<II", 3, len(self.variables))
        for name, (extent, kind, values) in self.variables.items():
            data += text(name) + struct.pack(f"<B{len(extent)}IBI", len(extent), *extent, kind, len(values)) + values
        data += struct.pack("<I", 1) + text("decoder/projection/weight") + text("decoder/embeddings/weight")
        with open(os.path.join(folder, "model.bin"), "wb") as file:
            file.write(data)
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write(self.config if isinstance(self.config, str) else json.dumps(self.config))
        if self.tokens is not None:
            with open(os.path.join(folder, self.vocabulary), "w", encoding="utf-8") as file:
                file.write("\n".join(self.tokens) if self.vocabulary == "vocabulary.txt" else json.dumps(self.tokens))
        return folder
