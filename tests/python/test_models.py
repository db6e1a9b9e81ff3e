"""Models of the Python package: Transformers against NumPy in float64, sentence vectors against PyTorch's, speech against
faster-whisper's.

CLATTN_MINILM and WHISPER_MODEL are the folders of the pretrained models."""

import contextlib
import doctest
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import threading
import unittest
import unittest.mock

import clattn
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "speech"))
import itertools

import clips
import peer

SIZES = {"layers": 2, "d_model": 16, "heads": 2, "d_ff": 24, "activation": "gelu_tanh", "epsilon": 1e-5}
DECODER = {"norm_place": "pre", "final_norm": 1, "causal": 1, "cross": 1, "input": "tokens", "positions": "table"}
VOCABULARY, POSITIONS = 40, 20


def weights_of(seed, stacks):
    """Random weights by their canonical names: of an encoder of vectors, and of a decoder with memory and tied logits."""
    random, weights = np.random.default_rng(seed), {}

    def add(name, *shape, around=0.0):
        weights[name] = (around + random.standard_normal(shape) * 0.4).astype(np.float32)

    d, f = SIZES["d_model"], SIZES["d_ff"]
    for stack in stacks:
        for n in range(SIZES["layers"]):
            for part in ("self", "cross")[: 2 if stack == "decoder" else 1]:
                for name in ("query", "key", "value", "output"):
                    add(f"{stack}.layers.{n}.{part}.{name}.weight", d, d)
                    add(f"{stack}.layers.{n}.{part}.{name}.bias", d)
            for name, shape in (("in", (f, d)), ("out", (d, f))):
                add(f"{stack}.layers.{n}.feed_forward.{name}.weight", *shape)
                add(f"{stack}.layers.{n}.feed_forward.{name}.bias", shape[0])
            for part in ("self", "cross", "feed_forward")[:: 1 if stack == "decoder" else 2]:
                add(f"{stack}.layers.{n}.{part}.norm.weight", d, around=1)
                add(f"{stack}.layers.{n}.{part}.norm.bias", d)
        if stack == "decoder":
            add("decoder.tokens.weight", VOCABULARY, d)
            add("decoder.positions.weight", POSITIONS, d)
            add("decoder.norm.weight", d, around=1)
            add("decoder.norm.bias", d)
    return weights


class Reference:
    """The same models in float64."""

    def __init__(self, weights):
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.shares = {}  # the probabilities of the last attention of each name

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + SIZES["epsilon"])
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attend(self, x, memory, name, attended):
        q, k, v = (
            self.linear(a, f"{name}.{kind}").reshape(*a.shape[:2], SIZES["heads"], -1).swapaxes(1, 2)
            for a, kind in ((x, "query"), (memory, "key"), (memory, "value"))
        )
        scores = np.where(attended, q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]), -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        self.shares[name] = shares / shares.sum(-1, keepdims=True)
        return self.linear((self.shares[name] @ v).swapaxes(1, 2).reshape(x.shape), f"{name}.output")

    def feed(self, x, name):
        x = self.linear(x, f"{name}.in")
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return self.linear(x, f"{name}.out")

    def encode(self, x, lengths):
        """Post-norm, bidirectional."""
        attended = np.arange(x.shape[1]) < np.array(lengths)[:, None, None, None]
        for n in range(SIZES["layers"]):
            name = f"encoder.layers.{n}"
            x = self.norm(x + self.attend(x, x, f"{name}.self", attended), f"{name}.self.norm")
            x = self.norm(x + self.feed(x, f"{name}.feed_forward"), f"{name}.feed_forward.norm")
        return x

    def decode(self, tokens, memory):
        """Pre-norm, causal; the logits of what follows each token."""
        table, count = self.weights["decoder.tokens.weight"], tokens.shape[1]
        x, causal = table[tokens] + self.weights["decoder.positions.weight"][:count], np.tri(count, dtype=bool)
        for n in range(SIZES["layers"]):
            name = f"decoder.layers.{n}"
            y = self.norm(x, f"{name}.self.norm")
            x = x + self.attend(y, y, f"{name}.self", causal)
            x = x + self.attend(self.norm(x, f"{name}.cross.norm"), memory, f"{name}.cross", True)
            x = x + self.feed(self.norm(x, f"{name}.feed_forward.norm"), f"{name}.feed_forward")
        return self.norm(x, "decoder.norm") @ table.T


class Transformers(unittest.TestCase):
    def setUp(self):
        self.random, self.weights = np.random.default_rng(5), weights_of(7, ("encoder", "decoder"))
        self.reference = Reference(self.weights)
        self.memory = self.random.standard_normal((3, 6, 16)).astype(np.float32)

    def model(self, weights=None, **changes):
        stacks = {"encoder": SIZES, "decoder": {**SIZES, **DECODER, "vocabulary": VOCABULARY, "position_count": POSITIONS}}
        model = clattn.Transformer(weights or self.weights, **{**stacks, "output": "tied", **changes})
        self.addCleanup(model.close)
        return model

    def test_weight_bytes(self):
        elements = sum(array.size for array in self.weights.values())
        for dtype, element in (("float32", 4), ("bfloat16", 2)):
            found = self.model(dtype=dtype).weight_bytes
            self.assertGreaterEqual(found, element * elements)
            self.assertLess(found, 1.5 * element * elements)

    def test_encoder(self):
        """Any batch and length, and what lies behind an item's length does not count."""
        for dtype, within in (("float32", 2e-5), ("float16", 2e-2), ("bfloat16", 2e-1)):
            model = self.model(dtype=dtype)
            for batch, length in ((1, 1), (3, 7), (4, 33)):
                x = self.random.standard_normal((batch, length, 16)).astype(np.float32)
                lengths = self.random.integers(1, length + 1, batch)
                expected = self.reference.encode(x, lengths)
                for n, count in enumerate(lengths):
                    x[n, count:] = np.nan
                found = model.encode(x, lengths.tolist())
                self.assertEqual((found.shape, found.dtype), (expected.shape, np.float32))
                pooled = model.encode(x, lengths.tolist(), pooling="mean", normalize=True)
                for n, count in enumerate(lengths):
                    np.testing.assert_allclose(found[n, :count], expected[n, :count], atol=within)
                    mean = expected[n, :count].mean(0)
                    np.testing.assert_allclose(pooled[n], mean / np.linalg.norm(mean), atol=within)

    def pictures(self, height, width):
        """Weights of an encoder of pictures with a class token, its description, and what goes into its first layer."""
        random, rows, columns = np.random.default_rng(3), height // 4, width // 2
        weights = {
            "encoder.patches.weight": random.standard_normal((16, 3, 4, 2)),
            "encoder.patches.bias": random.standard_normal(16),
            "encoder.class.weight": random.standard_normal(16),
            "encoder.positions.weight": random.standard_normal((1 + rows * columns, 16)),
        }
        patches = {"channels": 3, "height": 4, "width": 2, "grid_rows": rows, "grid_columns": columns, "class_token": 1}
        stack = {"input": "pictures", "positions": "table", "position_count": 1 + rows * columns, "patches": patches}

        def vectors(x):
            cut = x.reshape(len(x), 3, rows, 4, columns, 2).transpose(0, 2, 4, 1, 3, 5).reshape(len(x), rows * columns, 24)
            made = cut @ weights["encoder.patches.weight"].reshape(16, 24).T + weights["encoder.patches.bias"]
            first = np.broadcast_to(weights["encoder.class.weight"], (len(x), 1, 16))
            return np.concatenate([first, made], 1) + weights["encoder.positions.weight"]

        return {**self.weights, **{name: a.astype(np.float32) for name, a in weights.items()}}, {**SIZES, **stack}, vectors

    def test_pictures(self):
        """Class token and patches, whole or pooled."""
        weights, stack, vectors = self.pictures(8, 6)
        model, x = self.model(weights, encoder=stack), self.random.standard_normal((3, 3, 8, 6)).astype(np.float32)
        expected = self.reference.encode(vectors(x.astype(np.float64)), [7] * 3)
        np.testing.assert_allclose(model.encode(x), expected, atol=2e-5)
        for pooling, pooled in (("first", expected[:, 0]), ("mean", expected.mean(1)), ("patches", expected[:, 1:].mean(1))):
            np.testing.assert_allclose(model.encode(x[:2], pooling=pooling), pooled[:2], atol=2e-5)
        unit = expected[:, 0] / np.linalg.norm(expected[:, 0], axis=1, keepdims=True)
        np.testing.assert_allclose(model.encode(x, pooling="first", normalize=True), unit, atol=2e-5)

    def test_stages(self):
        """One stage of two layers is two of one, the second of which goes on where the first ends; one that merges has half the rows."""
        weights, stack, _ = self.pictures(12, 6)
        del weights["encoder.class.weight"]
        stack |= {"patches": {**stack["patches"], "class_token": 0}, "position_count": 9}
        weights["encoder.positions.weight"] = weights["encoder.positions.weight"][1:]
        x = self.random.standard_normal((2, 3, 12, 6)).astype(np.float32)
        weights = {name: array for name, array in weights.items() if name.startswith("encoder.")}
        staged = {name.replace("encoder.layers.1", "encoder.stages.1.layers.0"): array for name, array in weights.items()}
        first, second = {**stack, "layers": 1}, {**SIZES, "layers": 1, "input": "continued"}
        one, two = (
            clattn.Transformer(each, encoder=encoder) for each, encoder in ((weights, stack), (staged, [first, second]))
        )
        np.testing.assert_allclose(two.encode(x), one.encode(x), atol=2e-5)
        staged |= {"encoder.merge.norm.weight": np.ones(64, np.float32), "encoder.merge.norm.bias": np.zeros(64, np.float32)}
        staged["encoder.merge.weight"] = self.random.standard_normal((16, 64)).astype(np.float32)
        merged = clattn.Transformer(staged, encoder=[first, {**second, "input": "merged"}])
        self.assertEqual(merged.encode(x).shape, (2, 4, 16))
        for each in (one, two, merged):
            each.close()

    def test_restored_pictures(self):
        """A picture twice as high and wide: where all weights but the last bias are 0, it is that bias."""
        d = SIZES["d_model"]
        stack = {**SIZES, "layers": 1, "norm_place": "pre", "input": "pictures", "residual": 1}
        stack |= {"patches": {"channels": 3, "height": 1, "width": 1}, "windows": {"rows": 2, "columns": 2}}
        stack |= {"restoration": {"kind": "shuffle_once", "factor": 2}, "final_norm": 1}
        weights = {name: np.zeros_like(array) for name, array in weights_of(7, ("encoder",)).items() if ".layers.0." in name}
        shapes = {"patches.weight": (d, 3, 1, 1), "patches.bias": (d,), "norm.weight": (d,), "norm.bias": (d,)}
        for part in ("residual", "restoration.body"):
            shapes |= {f"{part}.weight": (d, d, 3, 3), f"{part}.bias": (d,)}
        shapes |= {"restoration.shuffle.0.weight": (12, d, 3, 3), "restoration.shuffle.0.bias": (12,)}
        weights |= {f"encoder.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
        weights["encoder.restoration.shuffle.0.bias"] = np.arange(12, dtype=np.float32)
        model = clattn.Transformer(weights, encoder=stack)
        self.addCleanup(model.close)
        found = model.encode(np.ones((1, 3, 3, 5), np.float32))
        expected = np.arange(12).reshape(1, 3, 1, 2, 1, 2)
        np.testing.assert_array_equal(found, np.broadcast_to(expected, (1, 3, 3, 2, 5, 2)).reshape(1, 3, 6, 10))

    def test_wrong_pictures(self):
        weights, stack, _ = self.pictures(8, 6)
        model = self.model(weights, encoder=stack)
        for shape, words in (
            ((3, 8, 6), "expected .batch, 3, height, width."),
            ((1, 4, 8, 6), "expected .batch, 3, height, width."),
            ((1, 3, 9, 6), "9 x 6 are not divisible into patches of 4 x 2"),
            ((0, 3, 8, 6), "expected .batch, 3, height, width."),
        ):
            with self.assertRaisesRegex(ValueError, words):
                model.encode(np.zeros(shape, np.float32))
        with self.assertRaisesRegex(ValueError, "pooling is 'none', not one of"):
            model.encode(np.zeros((1, 3, 8, 6), np.float32), pooling="none")
        # A stage more than the preset has is taken as one: what is wrong is told of it.
        with self.assertRaisesRegex(clattn.ClattnError, "a stage that another one follows has no"):
            clattn.Transformer(weights, preset="vit_tiny_16", encoder=[{}, {**SIZES, "d_model": 192, "input": "continued"}])
        with self.assertRaisesRegex(ValueError, "neither lengths nor segments"):
            model.encode(np.zeros((1, 3, 8, 6), np.float32), [1])
        with self.assertRaisesRegex(ValueError, "there are 65 stages, expected 1 to 64"):
            clattn.Transformer(weights, encoder=[SIZES] * 65)
        with self.assertRaisesRegex(ValueError, "is no clattn_preset|is no preset"):
            clattn.Transformer(weights, preset="vit_base_61")

    def test_decoder(self):
        """Tokens all at once, some at a time, or one by one give the same logits."""
        tokens = self.random.integers(0, VOCABULARY, (3, 9))
        expected = self.reference.decode(tokens, self.memory.astype(np.float64))
        for dtype, prepack, within in (("float32", False, 5e-5), ("float32", True, 5e-5), ("bfloat16", False, 0.5)):
            sizes = {"items": 3, "length": 9, "cache_length": 12, "memory_length": 8}
            with self.model(dtype=dtype).decoder(**sizes, prepack=prepack) as decoder:
                for pieces in ((9,), (4, 1, 2, 2), (1,) * 9):
                    decoder.begin(self.memory)
                    places = np.cumsum([0, *pieces])
                    found = [decoder.append(tokens[:, a:b]) for a, b in itertools.pairwise(places)]
                    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=within)
                    self.assertEqual(decoder.lengths, [9, 9, 9])
                decoder.begin(self.memory, memory_lengths=[6, 2, 1])
                for _ in range(2):
                    short = decoder.append(tokens)[1]
                    expected_short = self.reference.decode(tokens[1:2], self.memory[1:2, :2].astype(np.float64))[0]
                    np.testing.assert_allclose(short, expected_short, atol=within)
                    decoder.begin()  # with the same memory
                decoder.begin(self.memory)
                decoder.append(tokens[:, :6])
                decoder.truncate(4)
                self.assertIsNone(decoder.append(tokens[:, 4:5], logits=False))
                np.testing.assert_allclose(decoder.append(tokens[:, 5:9]), expected[:, 5:9], atol=within)
                with self.assertRaisesRegex(clattn.ClattnError, "cache"):
                    decoder.append(tokens[:, :4])

    def test_cross_probabilities(self):
        """Where chosen layers attend, of several tokens and of one."""
        tokens = self.random.integers(0, VOCABULARY, (3, 5))
        self.reference.decode(tokens, self.memory.astype(np.float64))
        for layers in ([1], [1, 0]):
            expected = np.stack([self.reference.shares[f"decoder.layers.{n}.cross"] for n in sorted(layers)])
            sizes = {"items": 3, "length": 4, "cache_length": 5, "memory_length": 8}
            with self.model().decoder(cross_probabilities=layers, **sizes) as decoder:
                self.assertIsNone(decoder.cross_probabilities)
                decoder.begin(self.memory)
                for first, last, logits in ((0, 3, True), (3, 4, False), (4, 5, True)):
                    decoder.append(tokens[:, first:last], logits=logits)
                    found = decoder.cross_probabilities
                    np.testing.assert_allclose(found, expected[..., first:last, :], atol=1e-5)
                decoder.begin(self.memory, memory_lengths=[6, 2, 1])
                decoder.append(tokens[:, :3])
                np.testing.assert_array_equal(decoder.cross_probabilities[:, 1, ..., 2:], 0)
                np.testing.assert_allclose(decoder.cross_probabilities.sum(-1), 1, atol=1e-5)
        for wrong in ([SIZES["layers"]], [-1]):
            with self.assertRaisesRegex(ValueError, "cross_probabilities are .* expected layers from 0 to"):
                self.model().decoder(cross_probabilities=wrong, **sizes)

    def test_beams(self):
        """Sequences that are reordered go on as those that they are copies of."""
        tokens = self.random.integers(0, VOCABULARY, (4, 3))
        with self.model().decoder(items=2, beams=2, length=3, cache_length=8, memory_length=6) as decoder:
            decoder.begin(self.memory[:2])
            decoder.append(tokens[:2])
            decoder.reorder([0, 0, 1, 1])
            decoder.append(tokens[:, :1])
            decoder.reorder([1, 1, 2, 3])
            found = decoder.append(tokens[:, 1:2])
        parents = [1, 1, 2, 3]
        rows = np.concatenate([tokens[[n // 2 for n in parents]], tokens[parents, :1], tokens[:, 1:2]], axis=1)
        expected = self.reference.decode(rows, self.memory[[0, 0, 1, 1]].astype(np.float64))
        np.testing.assert_allclose(found[:, 0], expected[:, -1], atol=5e-5)

    def greedy(self, prompt, memory, count, forbidden=()):
        tokens = list(prompt)
        for _ in range(count):
            logits = self.reference.decode(np.array([tokens]), memory[None].astype(np.float64))[0, -1]
            logits[list(forbidden)] = -np.inf
            tokens.append(int(logits.argmax()))
        return tokens[len(prompt) :]

    def test_generate(self):
        prompts = [[1, 2, 3], [4], [5, 6]]
        with self.model().decoder(items=3, beams=3, length=4, cache_length=16, memory_length=6) as decoder:
            decoder.begin(self.memory)
            found = decoder.generate(prompts, 8)
            for [each], prompt, memory in zip(found, prompts, self.memory, strict=True):
                self.assertEqual(each.tokens, self.greedy(prompt, memory, 8))
                self.assertAlmostEqual(each.score, each.log_probabilities.sum(), 4)
            arrays = [np.array(prompt) for prompt in prompts]
            self.assertEqual([each.tokens for [each] in decoder.generate(arrays, 8)], [each.tokens for [each] in found])
            stop = found[0][0].tokens[2]
            [each] = decoder.generate(prompts, 8, stop_tokens=[stop])[0]
            self.assertEqual(each.tokens, found[0][0].tokens[: found[0][0].tokens.index(stop) + 1])

            def forbid(tokens, length, logits):
                self.assertIn(tokens[:length].tolist(), prompts)
                logits[each.tokens[0]] = -np.inf

            changed = decoder.generate(prompts, 3, hook=forbid)
            self.assertEqual(changed[0][0].tokens, self.greedy(prompts[0], self.memory[0], 3, [each.tokens[0]]))
            kept = []
            decoder.generate(prompts, 3, hook=lambda tokens, _, logits: kept.append((tokens, logits)))
            for tokens, logits in kept:  # memory of their own
                tokens[:], logits[:] = 0, 0
            best = decoder.generate(prompts, 5, method="beam", results=3)
            self.assertEqual(len(decoder.lengths), 9)
            for beams, [alone] in zip(best, decoder.generate(prompts, 5), strict=True):
                self.assertEqual([beam.score for beam in beams], sorted((beam.score for beam in beams), reverse=True))
                self.assertGreaterEqual(beams[0].score, alone.score - 1e-4)
            drawn = [decoder.generate(prompts, 8, method="sample", seed=seed)[0][0].tokens for seed in (1, 1, 2)]
            self.assertEqual(drawn[0], drawn[1])
            self.assertNotEqual(drawn[0], drawn[2])

            def fail(tokens, length, logits):
                raise KeyError("mine")

            with self.assertRaisesRegex(KeyError, "mine"):
                decoder.generate(prompts, 3, hook=fail)
            with self.assertRaisesRegex(clattn.ClattnError, "no memory is bound"):
                decoder.generate(prompts, 8)
            decoder.begin(self.memory)
            self.assertEqual(decoder.generate(prompts, 8)[0][0].tokens, found[0][0].tokens)

    def test_weights(self):
        """Names by rules, prefixes, files, and other types of arrays."""
        x = self.random.standard_normal((1, 3, 16)).astype(np.float32)
        expected = self.model().encode(x)
        rules = {"{s}.layers.{n}.self.output.weight": "{s}.layers.{n}.self.output.weight"}
        weights = {"my." + name: array for name, array in self.weights.items()}
        weights["my.elsewhere"] = weights.pop("my.encoder.layers.0.self.query.bias")
        rules = {"encoder.layers.0.self.query.bias": "elsewhere"}
        np.testing.assert_array_equal(self.model(weights, prefix="my.", rules=rules).encode(x), expected)
        halves = {name: array.astype(np.float16) for name, array in self.weights.items()}
        np.testing.assert_allclose(self.model(halves).encode(x), expected, atol=0.02)
        fortran = {name: np.asfortranarray(array) for name, array in self.weights.items()}
        np.testing.assert_array_equal(self.model(fortran).encode(x), expected)
        with contextlib.suppress(ImportError):
            import pyopencl.array

            queue = pyopencl.CommandQueue(pyopencl.Context(pyopencl.get_platforms()[0].get_devices()[:1]))
            outside = {name: pyopencl.array.to_device(queue, array) for name, array in self.weights.items()}
            with self.assertRaisesRegex(TypeError, "is PyOpenCL's"):
                self.model(outside)
        self.assertLess(abs(self.model(weight_dtype="int8").encode(x) - expected).max(), 0.2)

    def test_refused(self):
        model, plain = self.model(), {"encoder": SIZES, "decoder": None, "output": None}
        cases = {
            "no member 'layer'": lambda: self.model(encoder={**SIZES, "layer": 3}),
            "'softmax' is no activation, which are": lambda: self.model(encoder={**SIZES, "activation": "softmax"}),
            "dtype is 'int8'": lambda: self.model(dtype="int8"),
            "weight_dtype is 'int4'": lambda: self.model(weight_dtype="int4"),
            "no preset": lambda: self.model(preset="gpt"),
            "encoder.layers.2.self.query.weight": lambda: self.model(encoder={**SIZES, "layers": 3}),
            "has 6 dimensions": lambda: self.model(dict.fromkeys(self.weights, np.zeros((1,) * 6, np.float32))),
            "of type complex64": lambda: self.model(dict.fromkeys(self.weights, np.zeros(1, np.complex64))),
            r"inputs are of shape \(2, 3\)": lambda: model.encode(np.zeros((2, 3))),
            r"lengths are \[4\], expected 1 from 0 to 3": lambda: model.encode(np.zeros((1, 3, 16)), [4]),
            "has a character NUL": lambda: self.model(prefix="a\0b"),
            "pooling is 'patches'": lambda: model.encode(np.zeros((1, 3, 16)), pooling="patches"),
            "of type <U1, expected numbers": lambda: model.encode([[["1"] * 16]]),
            "cache_length, items, beams": lambda: model.decoder(cache_length=4, beams=0),
            "'sum' is no pooling": lambda: model.encode(np.zeros((1, 3, 16)), pooling="sum"),
            "the model has no decoder": lambda: self.model(**plain).decoder(cache_length=4),
            "no such file|cannot be opened|There is no": lambda: self.model("/nowhere/model.safetensors"),
        }
        for words, call in cases.items():
            with self.subTest(words), self.assertRaisesRegex((ValueError, TypeError, clattn.ClattnError), words):
                call()
        with model.decoder(items=2, length=4, cache_length=4, memory_length=6) as decoder:
            cases = {
                "expected \\(0, 1 to 4\\)": lambda: decoder.append([[1]]),
                "memory is of shape": lambda: decoder.begin(np.zeros((2, 7, 16))),
                "1 memory_lengths, expected 2": lambda: decoder.begin(np.zeros((2, 6, 16)), memory_lengths=[1]),
                "a prompt of one token or more": lambda: decoder.generate([[1], []], 3),
                "3 prompts, and there are 2 items": lambda: (decoder.begin(self.memory[:2]), decoder.generate([[1]] * 3, 3)),
                "results is 0 and max_tokens 3": lambda: decoder.generate([[1], [2]], 3, results=0),
                "results is 1 and max_tokens 0": lambda: decoder.generate([[1], [2]], 0),
                "a hook cannot use": lambda: decoder.generate([[1], [2]], 3, hook=lambda *_: decoder.truncate(0)),
                "whole numbers": lambda: decoder.append([[1.5], [2]]),
                "4294967297, which are not all of 32 bits": lambda: decoder.append([[2**32 + 1], [2]]),
                "1 parents, expected": lambda: decoder.reorder([0], 2),
                "items is 1, and there are 2": lambda: decoder.begin(self.memory[:2], items=1),
                "beams is 0": lambda: decoder.begin(self.memory[:2], beams=0),
                "temperature is 0": lambda: decoder.generate([[1], [2]], 3, method="sample", temperature=0),
                "masked array": lambda: decoder.begin(np.ma.array(self.memory)),
                "no generate_method": lambda: decoder.generate([[1], [2]], 3, method="best"),
            }
            for words, call in cases.items():
                with (
                    self.subTest(words),
                    self.assertRaisesRegex((ValueError, TypeError, RuntimeError, clattn.ClattnError), words),
                ):
                    call()
        with self.assertRaisesRegex(clattn.ClattnError, "the decoder is closed"):
            decoder.begin(self.memory)
        model.close()
        with self.assertRaisesRegex(clattn.ClattnError, "closed"):
            model.encode(np.zeros((1, 3, 16)))

    def test_threads(self):
        """Threads encode by one model, each at lengths of its own, while another closes it."""
        model, failures = self.model(), []
        inputs = [self.random.standard_normal((2, 5 * n, 16)).astype(np.float32) for n in range(1, 9)]
        expected = [model.encode(x) for x in inputs]

        def work(n):
            with contextlib.suppress(clattn.ClattnError):
                for _ in range(20):
                    if not np.array_equal(model.encode(inputs[n]), expected[n]):
                        failures.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        threads[0].join()
        model.close()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


@unittest.skipIf("CLATTN_MINILM" not in os.environ, "no model here")
class Sentences(unittest.TestCase):
    def setUp(self):
        self.folder, self.expected = pathlib.Path(os.environ["CLATTN_MINILM"]), pathlib.Path(__file__).parents[1] / "embed"

    def test_vectors(self):
        """They are PyTorch's of the same model, whatever the batches are."""
        texts = (self.expected / "sentences.txt").read_text("utf-8").split("\n")[:-1] + ["word and another " * 300]
        expected = np.load(self.expected / "vectors.npy")
        with clattn.SentenceEncoder(self.folder) as encoder:
            for size in (32, 3):
                vectors = encoder.encode(texts, size)
                self.assertEqual((vectors.shape, vectors.dtype), (expected.shape, np.float32))
                np.testing.assert_allclose(vectors, expected, atol=2e-6)
            np.testing.assert_allclose(encoder.encode(texts[0]), expected[0], atol=2e-6)
            self.assertEqual(encoder.encode([]).shape, (0, encoder.dimension))
            self.assertEqual(encoder.encode("a long text " * 1000).shape, (encoder.dimension,))
        with clattn.SentenceEncoder(self.folder, dtype="bfloat16", max_tokens=64) as encoder:
            cosines = (encoder.encode(texts[:-1]) * expected[:-1]).sum(1)
            self.assertGreater(cosines.min(), 0.999)

    def test_broken(self):
        """Whatever a folder lacks or has wrong is named."""
        config = json.loads((self.folder / "config.json").read_text("utf-8"))
        changes = {
            "model_type is 'gpt2', expected 'bert'": {"model_type": "gpt2"},
            "hidden_size is '384', expected a number": {"hidden_size": "384"},
            "num_hidden_layers is 0": {"num_hidden_layers": 0},
            "hidden_act is 'maxout'": {"hidden_act": "maxout"},
            "the tokenizer has 30522 tokens, the model 100": {"vocab_size": 100},
            "has no tensor encoder.layer.6.attention.self.query.weight": {"num_hidden_layers": 7},
        }
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in ("tokenizer.json", "model.safetensors"):
                (folder / file).symlink_to(self.folder / file)
            with self.assertRaises(FileNotFoundError):
                clattn.SentenceEncoder(folder)
            for words, change in changes.items():
                (folder / "config.json").write_text(json.dumps({**config, **change}))
                with self.assertRaisesRegex((ValueError, clattn.ClattnError), words):
                    clattn.SentenceEncoder(folder)
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
            with self.assertRaisesRegex(ValueError, "models.Dense, expected a Transformer, Pooling and Normalize alone"):
                clattn.SentenceEncoder(folder)
            (folder / "modules.json").unlink()
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors").write_bytes(b"not one")
            with self.assertRaisesRegex(clattn.ClattnError, "model.safetensors"):
                clattn.SentenceEncoder(folder)


@unittest.skipIf("WHISPER_MODEL" not in os.environ, "no model here")
class Speech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.folder, cls.clips = pathlib.Path(os.environ["WHISPER_MODEL"]), clips.clips(folder)
        cls.expected = json.loads((TESTS / "speech/expected.json").read_text("utf-8"))
        cls.whisper = cls.enterClassContext(clattn.Whisper(cls.folder))

    def compare(self, kind, **how):
        """How many recordings have given faster-whisper's segments; those here that are not the stored results' are passed by."""
        held = 0
        for name, path in self.clips.items():
            if kind not in self.expected[name] or peer.digest(path) != self.expected[name]["sha256"]:
                continue
            found, expected = self.whisper.transcribe(path, **how).segments, self.expected[name][kind]
            with self.subTest(name):
                self.assertEqual([s.tokens for s in found], [s["tokens"] for s in expected])
                self.assertEqual([s.text for s in found], [s["text"] for s in expected])
                for ours, theirs in zip(found, expected, strict=True):
                    for field, within in (("avg_logprob", 1e-3), ("no_speech_prob", 1e-3), ("compression_ratio", 1e-4)):
                        self.assertAlmostEqual(getattr(ours, field), theirs[field], delta=within)
                    self.assertAlmostEqual(ours.start, theirs["start"], delta=0.021)
                    self.assertAlmostEqual(ours.end, theirs["end"], delta=0.021)
                    if "word_timestamps" not in how:
                        self.assertIsNone(ours.words)
                        continue
                    self.assertEqual([word.word for word in ours.words], [word["word"] for word in theirs["words"]])
                    for mine, other in zip(ours.words, theirs["words"], strict=True):
                        self.assertAlmostEqual(mine.start, other["start"], delta=0.021)
                        self.assertAlmostEqual(mine.end, other["end"], delta=0.021)
                        self.assertAlmostEqual(mine.probability, other["probability"], delta=5e-3)
            held += 1
        return held

    def test_recordings(self):
        self.assertGreater(self.compare("plain"), 6)

    def test_beams(self):
        self.assertGreater(self.compare("beams", beam_size=peer.BEAMS), 2)

    def test_words(self):
        """Each word's time, and segments that begin and end with their words."""
        self.assertGreater(self.compare("segments", word_timestamps=True), 6)

    def test_arrays(self):
        """Samples give what their file gives; nothing is said in silence."""
        samples, _ = clips.read(self.clips["sense-0920"])
        expected = self.whisper.transcribe(self.clips["sense-0920"])
        self.assertEqual(self.whisper.transcribe(samples), expected)
        self.assertEqual(self.whisper.transcribe(samples / 32768.0), expected)
        for silence in (np.zeros(0, np.float32), np.zeros(100, np.float32), np.zeros(16000, np.int16)):
            for timed in (False, True):
                self.assertEqual(self.whisper.transcribe(silence, word_timestamps=timed).segments, [])

    def test_random_texts(self):
        """Above temperature 0 the seed decides."""
        samples, _ = clips.read(self.clips["sense-0920"])
        found = [self.whisper.transcribe(samples, temperature=[1.0], best_of=2, seed=seed) for seed in (1, 1, 2)]
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        self.assertEqual({segment.temperature for segment in found[0].segments}, {1.0})

    def test_bad_texts(self):
        """A text that is not likely enough is replaced by the likeliest of all temperatures."""
        samples, _ = clips.read(self.clips["sense-0920"])
        [plain] = self.whisper.transcribe(samples).segments
        with unittest.mock.patch("clattn.speech.UNLIKELY", 0.0):
            [found] = self.whisper.transcribe(samples, temperature=(0.0, 0.9, 1.0), best_of=2).segments
        self.assertEqual((found.tokens, found.temperature), (plain.tokens, 1.0))

    def test_files(self):
        """The same sound in other forms of WAV files."""
        samples, _ = clips.read(self.clips["sense-0930"])
        expected = self.whisper.transcribe(samples).segments
        with tempfile.TemporaryDirectory() as folder:
            for width in (2, 3, 4):
                path = os.path.join(folder, f"{width}.wav")
                clips.write(path, np.repeat(samples.astype(np.int64) << 8 * (width - 2), 2), width=width, channels=2)
                self.assertEqual(self.whisper.transcribe(path).segments, expected)
            slow = os.path.join(folder, "slow.wav")
            clips.write(slow, samples, rate=8000)
            plain = clips.write(os.path.join(folder, "plain.wav"), samples)
            data = pathlib.Path(plain).read_bytes()
            guid = bytes.fromhex("0100000000001000800000aa00389b71")
            fmt = struct.pack("<4sIHHIIHHHHI", b"fmt ", 40, 0xFFFE, 1, 16000, 32000, 2, 16, 22, 16, 4) + guid
            odd = pathlib.Path(folder, "odd.wav")
            odd.write_bytes(data[:12] + b"LIST\3\0\0\0abc\0" + fmt + data[36:])
            self.assertEqual(self.whisper.transcribe(odd).segments, expected)
            floats = (samples / 32768).astype("<f4").tobytes()
            fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, 16000, 64000, 4, 32)
            odd.write_bytes(data[:12] + fmt + struct.pack("<4sI", b"data", 2**32 - 1) + floats)  # as streams are
            self.assertEqual(self.whisper.transcribe(odd).segments, expected)
            for end in (0, 3, 11, 20, 40):
                odd.write_bytes(data[:end])
                with self.assertRaisesRegex((ValueError, RuntimeError), "odd.wav"):
                    self.whisper.transcribe(odd)
            with contextlib.suppress(ImportError):
                import soxr  # noqa: F401

                self.skipTest("soxr is here")
            with self.assertRaisesRegex(ValueError, "8000 samples a second, not 16000: the package soxr"):
                self.whisper.transcribe(slow)
            text = pathlib.Path(folder, "text.wav")
            text.write_text("no sound")
            with self.assertRaisesRegex((ValueError, RuntimeError), "text.wav"):
                self.whisper.transcribe(text)

    def test_refused(self):
        for words, samples in {
            "one channel": np.zeros((2, 100), np.float32),
            "floats or int16": np.zeros(100, np.int32),
            "not finite": np.full(100, np.nan, np.float32),
        }.items():
            with self.subTest(words), self.assertRaisesRegex((ValueError, TypeError), words):
                self.whisper.transcribe(samples)
        with self.assertRaises(FileNotFoundError):
            self.whisper.transcribe("/nowhere.wav")
        for wrong in ({"beam_size": 0}, {"best_of": 0}, {"temperature": []}, {"temperature": -1}, {"temperature": [0, np.nan]}):
            with self.assertRaisesRegex(ValueError, "expected (1|numbers of 0) or more"):
                self.whisper.transcribe(np.zeros(100, np.float32), **wrong)

    def test_broken(self):
        """Whatever a folder lacks or has wrong is named."""
        names = ("model.bin", "config.json", "vocabulary.txt")
        words = (self.folder / "vocabulary.txt").read_text("utf-8").split("\n")
        config = json.loads((self.folder / "config.json").read_text("utf-8"))
        special = words.index("<|notimestamps|>")
        changes = {
            "no token <.notimestamps.>": ("vocabulary.txt", "\n".join(words[:special])),
            "model for many languages": ("vocabulary.txt", "\n".join(["", *words[1:]])),
            "stands for no byte": ("vocabulary.txt", "\n".join(["\u4e00", *words[1:]])),
            "the vocabulary has": ("vocabulary.txt", "\n".join([*words[:-1], "more", "and more"])),
            "suppress_ids is no list": ("config.json", json.dumps({**config, "suppress_ids": [10**6]})),
            "alignment_heads are no pairs": ("config.json", json.dumps({**config, "alignment_heads": [[1, 2, 3]]})),
            "no head 0 in layer 99": ("config.json", json.dumps({**config, "alignment_heads": [[99, 0]]})),
            "suppress_ids_begin is no list": ("config.json", json.dumps({**config, "suppress_ids_begin": None})),
            "model.bin": ("model.bin", "no model"),
        }
        for said, (name, text) in changes.items():
            with self.subTest(said), tempfile.TemporaryDirectory() as folder:
                for each in names:
                    if each == name:
                        pathlib.Path(folder, each).write_text(text, "utf-8")
                    else:
                        pathlib.Path(folder, each).symlink_to(self.folder / each)
                with self.assertRaisesRegex((ValueError, clattn.ClattnError), said):
                    clattn.Whisper(folder)
        with self.assertRaises(FileNotFoundError):
            clattn.Whisper("/nowhere")


def load_tests(loader, tests, pattern):
    """The examples of what needs a model, in a folder that has the models and a recording."""

    def enter(test):
        folder = test.globs["stack"].enter_context(tempfile.TemporaryDirectory())
        for name, variable in {"all-MiniLM-L6-v2": "CLATTN_MINILM", "whisper-tiny.en": "WHISPER_MODEL"}.items():
            os.symlink(os.environ[variable], os.path.join(folder, name))
        shutil.copy(clips.TESTDATA / clips.READ["sense-0930"], os.path.join(folder, "speech.wav"))
        test.globs["stack"].enter_context(contextlib.chdir(folder))

    if "CLATTN_MINILM" in os.environ and "WHISPER_MODEL" in os.environ:
        for module in (clattn.models, clattn.speech):
            globs = {**vars(module), "stack": contextlib.ExitStack()}
            tests.addTests(doctest.DocTestSuite(module, globs, setUp=enter, tearDown=lambda test: test.globs["stack"].close()))
    return tests


if __name__ == "__main__":
    unittest.main()
