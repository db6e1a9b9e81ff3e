#!/usr/bin/env python3
"""clattn embed from outside: a small model of random numbers against BERT in NumPy's float64, hostile folders; and,
where
CLATTN_MINILM names its folder, all-MiniLM-L6-v2 against PyTorch's vectors in tests/embed.

    CLATTN=build/src/clattn [CLATTN_MINILM=FOLDER] python3 tests/tool/test_command_embed.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import json
import math
import os
import pathlib
import shutil
import unittest

import numpy as np

import heatmap_picture
from command_support import QUICK, CommandTest, main, slow, write_safetensors
from heatmap_page import MapTest

HERE = pathlib.Path(__file__).resolve().parent.parent
MINILM = os.environ.get("CLATTN_MINILM")
CONFIG = {"model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 64, "layer_norm_eps": 1e-12, "vocab_size": 1398, "max_position_embeddings": 40,
          "type_vocab_size": 2, "position_embedding_type": "absolute"}
CLS, SEP = 2, 3


def cases():
    """Returns (text, its numbers) from PyPI's tokenizers for texts that can be an argument and a line."""
    for line in (HERE / "wordpiece" / "cases.txt").read_text(encoding="ascii").splitlines():
        text, *ids = line.split()
        text = b"" if text == "-" else bytes.fromhex(text)
        if len(text) > 1 and not set(b"\0\r\n") & set(text):
            yield text.decode("utf-8"), [int(i) for i in ids]


def norm(x, tensors, name, epsilon):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * tensors[name + ".weight"] + tensors[name + ".bias"]


ACTIVATIONS = {"gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
               "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
               "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x), "relu": lambda x: np.maximum(x, 0),
               "silu": lambda x: x / (1 + np.exp(-x))}


def bert(tensors, config, ids, first=False, probabilities=None):
    """Returns the unit vector of one text and appends each layer's attention, (heads, tokens, tokens), to
    `probabilities`."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]

    def linear(x, name):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    x = (tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.position_embeddings.weight"][:len(ids)]
         + tensors["embeddings.token_type_embeddings.weight"][0])
    x = norm(x, tensors, "embeddings.LayerNorm", epsilon)
    for layer in range(config["num_hidden_layers"]):
        name = "encoder.layer.%d." % layer
        q, k, v = (linear(x, name + "attention.self." + part).reshape(len(ids), heads, -1).swapaxes(0, 1)
                   for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        if probabilities is not None:
            probabilities.append(p)
        mixed = (p @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(x + linear(mixed, name + "attention.output.dense"), tensors, name + "attention.output.LayerNorm", epsilon)
        inner = ACTIVATIONS[config["hidden_act"]](linear(x, name + "intermediate.dense"))
        x = norm(x + linear(inner, name + "output.dense"), tensors, name + "output.LayerNorm", epsilon)
    mean = x[0] if first else x.mean(0)
    return mean / np.linalg.norm(mean)


class EmbedTest(CommandTest):
    def tensors(self, config):
        size, inner = config["hidden_size"], config["intermediate_size"]

        def linear(name, rows, columns):
            return {name + ".weight": self.normal(rows, columns) * np.float32(1.5 / math.sqrt(columns)),
                    name + ".bias": self.normal(rows) * np.float32(0.1)}

        def scale(name):
            return {name + ".weight": 1 + self.normal(size) * np.float32(0.1),
                    name + ".bias": self.normal(size) * np.float32(0.1)}

        made = {"embeddings.word_embeddings.weight": self.normal(config["vocab_size"], size),
                "embeddings.position_embeddings.weight": self.normal(config["max_position_embeddings"], size),
                "embeddings.token_type_embeddings.weight": self.normal(config["type_vocab_size"], size),
                **scale("embeddings.LayerNorm")}
        for layer in range(config["num_hidden_layers"]):
            name = "encoder.layer.%d." % layer
            for part in ("query", "key", "value"):
                made.update(linear(name + "attention.self." + part, size, size))
            made.update(linear(name + "attention.output.dense", size, size))
            made.update(scale(name + "attention.output.LayerNorm"))
            made.update(linear(name + "intermediate.dense", inner, size))
            made.update(linear(name + "output.dense", size, inner))
            made.update(scale(name + "output.LayerNorm"))
        return made

    def write_model(self, name, contents):
        path = os.path.join(self.model, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.write(path, contents if isinstance(contents, str) else json.dumps(contents))

    def make(self, tensors=None, prefix="", **changed):
        """A model's folder: self.model, self.config, self.weights."""
        self.model = self.path("model")
        self.config = {**CONFIG, **changed}
        self.weights = tensors if tensors is not None else self.tensors(self.config)
        self.write_model("config.json", {name: value for name, value in self.config.items() if value is not None})
        shutil.copy(HERE / "wordpiece" / "vocab.txt", self.model)
        write_safetensors(os.path.join(self.model, "model.safetensors"),
                          {prefix + name: tensor for name, tensor in self.weights.items()})

    def wanted(self, ids, most=None, **more):
        most = most or self.config["max_position_embeddings"]
        return bert(self.weights, self.config, ids if len(ids) <= most else ids[:most - 1] + [SEP], **more)

    def embed(self, *arguments, **more):
        result = self.succeed("embed", self.model, *arguments, **more)
        return np.array([[float(x) for x in line.split(" ")] for line in result.out.splitlines()]), result.errors

    def agree(self, chosen):
        """Fails unless the vectors of these cases are BERT's; returns what is complained of."""
        found, errors = self.embed("--", *[text for text, _ in chosen])
        self.near(found, [self.wanted(ids) for _, ids in chosen])
        return errors

    def like(self, actual, expected, least_cosine):
        """Fails unless the vectors are as alike as those of models in 16 bits must be, and are not those in float32."""
        expected = np.array(expected)
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, rtol=0, atol=1e-5)
        cosines = np.sum(actual * expected, axis=1) / np.linalg.norm(expected, axis=1)
        self.assertGreaterEqual(np.min(cosines), least_cosine)
        self.assertGreater(np.max(np.abs(actual - expected)), 1e-4)

    def near(self, actual, expected):
        expected = np.array(expected)
        self.assertEqual(actual.shape, expected.shape)
        self.assertLessEqual(np.max(np.abs(actual - expected)), 1e-5)
        cosines = np.sum(actual * expected, axis=1) / np.linalg.norm(actual, axis=1) / np.linalg.norm(expected, axis=1)
        self.assertGreaterEqual(np.min(cosines), 0.99999)


class Results(EmbedTest):
    def test_texts_of_many_lengths(self):
        self.make()
        chosen = list(cases())[::9]
        errors = self.agree(chosen)
        cut = sum(len(ids) > 40 for _, ids in chosen)
        self.assertGreater(cut, 2)
        self.assertEqual(len(errors), 1)
        self.assertRegex(errors[0], r"^clattn: warning: %d of %d texts have more than 40 tokens \(text \d+ has \d+\)"
                         % (cut, len(chosen)))

    def test_lines_of_standard_input(self):
        self.make()
        chosen = list(cases())[:700:5]
        text = "".join(text + "\n" for text, _ in chosen).encode()
        found, _ = self.embed(input=text)
        self.near(found, [self.wanted(ids) for _, ids in chosen])
        again, _ = self.embed(input=text[:-1])
        np.testing.assert_array_equal(found, again)
        windows, _ = self.embed(input=text.replace(b"\n", b"\r\n"))
        np.testing.assert_array_equal(found, windows)

    def test_more_lines_than_a_portion(self):
        self.make()
        chosen = [case for case in list(cases()) if len(case[1]) < 20][:300]
        expected = [self.wanted(ids) for _, ids in chosen]
        found, _ = self.embed(input="".join(text + "\n" for text, _ in chosen * 8).encode())
        self.near(found, expected * 8)

    def test_text_of_any_kind(self):
        """Empty texts, spaces and dropped characters give [CLS] [SEP]; bytes that are no UTF-8 are dropped."""
        self.make()
        ids = dict(cases())["Attention is all you need; don't you agree?"]
        empty = self.wanted([CLS, SEP])
        found, errors = self.embed("", " \t", "\u200b\ufffd", "Attention is all you need; don't you agree?")
        self.near(found, [empty, empty, empty, self.wanted(ids)])
        self.assertEqual(errors, [])
        found, _ = self.embed(input=b"\n\0\nAttention is all\xff you\xed\xa0\x80 need; don't you agree?")
        self.near(found, [empty, empty, self.wanted(ids)])
        found, _ = self.embed(input=b"")
        self.assertEqual(found.size, 0)

    @slow
    def test_limits_of_tokens(self):
        self.make()
        text, ids = max((case for case in cases() if len(case[1]) > 60 and "[" not in case[0]), key=lambda case: len(case[0]))
        self.near(self.embed(text)[0], [self.wanted(ids)])
        for most in (2, 3, 17, 40):
            found, errors = self.embed(text, "--max-tokens", most)
            self.near(found, [self.wanted(ids, most)])
            self.assertEqual(errors, ["clattn: warning: 1 of 1 texts have more than %d tokens (text 1 has %d): "
                                      "only their beginnings count" % (most, len(ids))])
        self.write_model("sentence_bert_config.json", {"max_seq_length": 5, "do_lower_case": False})
        self.near(self.embed(text)[0], [self.wanted(ids, 5)])
        self.near(self.embed(text, "--max-tokens", 9)[0], [self.wanted(ids, 9)])

    @slow
    def test_shapes_and_activations(self):
        for number, changed in enumerate(({"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40,
                                           "hidden_act": "leaky_relu"},
                                          {"hidden_act": "gelu_new", "num_hidden_layers": 1, "type_vocab_size": 1},
                                          {"hidden_act": "relu", "layer_norm_eps": 1e-5, "position_embedding_type": None},
                                          {"hidden_act": "silu", "num_hidden_layers": 3, "max_position_embeddings": 100})):
            with self.subTest(**changed):
                self.make(**changed)
                self.agree(list(cases())[number::70])

    def test_pooling(self):
        self.make()
        modes = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": False}
        self.write_model("1_Pooling/config.json", modes)
        text, ids = list(cases())[20]
        found, _ = self.embed(text)
        self.near(found, [self.wanted(ids, first=True)])

    def test_a_prefix_of_names(self):
        self.make(prefix="bert.")
        self.agree(list(cases())[21:22])

    def test_tokenizer_json_comes_first(self):
        self.make()
        special = [{"id": i, "special": True, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                    "normalized": False} for i, name in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))]
        tokens = (HERE / "wordpiece" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
        self.write_model("tokenizer.json", {
            "added_tokens": special, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                           "lowercase": True},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", SEP], "cls": ["[CLS]", CLS]},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {token: i for i, token in enumerate(tokens)}}})
        self.write_model("vocab.txt", "not looked at\n")
        self.agree(list(cases())[22:23])

    def test_report(self):
        self.make()
        chosen = list(cases())[30:34]
        report = self.succeed("embed", self.model, "--json", "--repeat", "2", "--", *[text for text, _ in chosen]).json()
        self.near(np.array(report["embeddings"]), [self.wanted(ids) for _, ids in chosen])
        self.assertEqual((report["size"], report["texts"], report["runs"]), (32, 4, 2))
        self.assertEqual(report["tokens"], sum(min(len(ids), 40) for _, ids in chosen))
        self.assertGreater(report["seconds_median"], 0)
        for key in ("device", "platform", "solver"):
            self.assertTrue(report[key])

    def test_16_bits(self):
        self.make()
        chosen = list(cases())[3::45]
        wanted = [self.wanted(ids) for _, ids in chosen]
        for dtype, name, least in (("bf16", "bfloat16", 0.9995), ("f16", "float16", 0.99999))[:1 if QUICK else 2]:
            with self.subTest(dtype):
                report = self.succeed("embed", self.model, "--dtype", dtype, "--json", "--", *[text for text, _ in chosen]).json()
                self.assertEqual(report["dtype"], name)
                self.like(np.array(report["embeddings"]), wanted, least)
        self.refuse(2, "embed", self.model, "a", "--dtype", "f64", saying=("f64", "f32 or f16 or bf16"))

    def test_solver_by_name(self):
        self.make()
        text, ids = list(cases())[40]
        self.near(self.embed(text, "--solver", "generic")[0], [self.wanted(ids)])
        self.refuse(2, "embed", self.model, text, "--solver", "nobody", saying="nobody")


class Search(EmbedTest):
    def setUp(self):
        super().setUp()
        self.make()
        self.chosen = [case for case in list(cases())[::4] if case[0].strip() and len(case[0]) > 3][:120]
        self.file = self.write("lines.txt", "\n \t\n" + "\n\n".join(text for text, _ in self.chosen) + "\r\n\n")
        query, self.query_ids = self.chosen[7]
        self.query = query
        vectors = np.array([self.wanted(ids) for _, ids in self.chosen])
        self.scores = vectors @ self.wanted(self.query_ids)

    def test_order(self):
        out = self.succeed("embed", self.model, "--search", self.file, "--", self.query).out
        lines = [line.split("\t", 1) for line in out.split("\n")[:-1]]
        self.assertEqual(sorted(text for _, text in lines), sorted(text for text, _ in self.chosen))
        self.assertEqual(lines[0][1], self.query)
        self.assertAlmostEqual(float(lines[0][0]), 1.0, delta=2e-6)
        found = [float(score) for score, _ in lines]
        self.assertEqual(found, sorted(found, reverse=True))
        of = {text: score for (text, _), score in zip(self.chosen, self.scores)}
        for score, text in lines:
            self.assertAlmostEqual(float(score), of[text], delta=1e-5)

    def test_report_and_top(self):
        report = self.succeed("embed", self.model, "--search", self.file, "--top", "3", "--json", "--", self.query).json()
        best = np.argsort(-self.scores, kind="stable")[:3]
        self.assertEqual([line["text"] for line in report["lines"]], [self.chosen[i][0] for i in best])
        self.assertEqual([line["line"] for line in report["lines"]], [3 + 2 * int(i) for i in best])
        self.assertEqual(report["texts"], len(self.chosen) + 1)
        self.assertEqual(len(self.succeed("embed", self.model, "--search", self.file, "--top", "1000", "--",
                                          self.query).out.split("\n")) - 1, len(self.chosen))

    def test_no_lines(self):
        self.assertEqual(self.succeed("embed", self.model, "--search", os.devnull, "x").out, "")

    def test_usage(self):
        self.refuse(2, "embed", self.model, "--search", self.file, saying="--search takes one TEXT, found none")
        self.refuse(2, "embed", self.model, "--search", self.file, "a", "b", saying="found more")
        self.refuse(2, "embed", self.model, "--top", "3", "a", saying="--top is for --search")
        self.refuse(2, "embed", self.model, "--search", self.path("none"), "a", saying=self.path("none"))
        self.refuse(2, "embed", self.model, "--search", self.folder, "a", saying=self.folder + ": cannot be read")


class Maps(MapTest, EmbedTest):
    def names(self, ids):
        tokens = (HERE / "wordpiece" / "vocab.txt").read_text(encoding="utf-8").split("\n")
        return [tokens[i] for i in ids]

    def attention(self, ids):
        """Returns the attention (layers, heads, tokens, tokens) of the text with these numbers."""
        probabilities = []
        bert(self.weights, self.config, ids, probabilities=probabilities)
        return np.array(probabilities)

    def holds(self, page, part, ids):
        """Fails unless a part of the page is the attention of the text with these numbers."""
        about = page.about["parts"][part]
        self.same(page, self.attention(ids), part)
        self.assertEqual(about["layerName"], "layer")
        for axis in ("query", "key"):
            self.assertEqual(about[axis]["labels"], self.names(ids))
        for layer in range(about["layers"]):
            for head in range(about["heads"]):
                self.assertLessEqual(np.max(np.abs(page.cells(part, layer, head)[0].sum(1) - 1)), 1e-3)

    @slow
    def test_texts(self):
        """The page has a part for each text, whatever their lengths, and the vectors stay the same."""
        self.make(num_hidden_layers=3)
        chosen = [case for case in list(cases())[::23] if len(case[1]) <= 40][:9]
        found, _ = self.embed("--attention", self.path("map.html"), "--", *[text for text, _ in chosen])
        self.near(found, [self.wanted(ids) for _, ids in chosen])
        page = self.page()
        self.assertEqual([part["name"] for part in page.about["parts"]], ["text %d" % (i + 1) for i in range(len(chosen))])
        self.assertEqual(page.about["title"], "Self-attention of " + self.model)
        for part, (_, ids) in enumerate(chosen):
            self.holds(page, part, ids)

    @slow
    def test_empty_cut_and_hostile(self):
        self.make()
        long, ids = max((case for case in cases() if "[" not in case[0]), key=lambda case: len(case[1]))
        found, _ = self.embed("", long, "</script><b>", "--max-tokens", "17", "--attention", self.path("map.html"))
        self.assertEqual(len(found), 3)
        page = self.page()
        self.holds(page, 0, [CLS, SEP])
        self.holds(page, 1, ids[:16] + [SEP])
        self.assertIn("<", page.about["parts"][2]["key"]["labels"])

    @slow
    def test_picture_and_solver(self):
        """Pictures show texts of several lengths one above the other, and the heads of a single layer in a square."""
        for layers, lengths in ((3, (5, 17, 2)), (1, (9,))):
            self.make(num_hidden_layers=layers)
            chosen = [next(case for case in cases() if len(case[1]) == length) for length in lengths]
            result = self.run_clattn("embed", self.model, "--attention", self.path("map.png"), "--attention",
                                     self.path("map.html"), "--solver", "generic", "--json", "--repeat", "1", "--",
                                     *[text for text, _ in chosen])
            if result.status == 2 and "libpng" in result.errors[0]:
                self.skipTest("built without libpng")
            self.assertEqual(result.status, 0, result)
            self.assertEqual(len(result.json()["embeddings"]), len(chosen))
            heatmap_picture.check(self, self.path("map.png"), [self.attention(ids) for _, ids in chosen], 1e-5)
            self.assertEqual(len(self.page().about["parts"]), len(chosen))

    def test_refusals(self):
        self.make()
        html = self.path("map.html")
        self.refuse(2, "embed", self.model, "--attention", html, input=b"a text\n",
                    saying=("--attention draws what is given as TEXT", "found none"))
        self.refuse(2, "embed", self.model, "a", "--search", os.devnull, "--attention", html, saying="found --search")
        self.refuse(2, "embed", self.model, "a", "--attention", self.path("map.gif"), saying=("map.gif", ".html", ".png"))
        self.refuse(2, "embed", self.model, "a", "--attention", self.path("none/map.html"),
                    saying=("none/map.html", "an existing directory"))
        self.refuse(2, "embed", self.model, "a", "--attention", html, "--attention", html, saying="two outputs")
        os.mkdir(self.path("folder.html"))
        self.refuse(2, "embed", self.model, "a", "--attention", self.path("folder.html"), saying="is a directory")
        self.assertFalse(os.path.exists(html))

    def test_too_much_is_refused_before_the_work(self):
        self.make(num_hidden_layers=1, max_position_embeddings=2100)
        self.refuse(2, "embed", self.model, "a " * 2100, "--attention", self.path("map.html"), "--device", "nowhere:nothing",
                    saying=("1 x 4 matrices of 2100 x 2100", "16777216"))
        self.make(num_hidden_layers=65)
        self.refuse(2, "embed", self.model, "a", "--attention", self.path("map.html"), saying=("65 layers", "at most 64"))


class Devices(EmbedTest):
    """--device 0,1: batches of texts go to whichever device has none."""

    def setUp(self):
        super().setUp()
        self.two_devices()
        self.make()

    def test_as_one(self):
        """The vectors of several portions, and of texts of the command line, are those of one device, bit by bit."""
        chosen = [text for text, _ in cases()] * (2 if QUICK else 6)
        lines = "".join(text + "\n" for text in chosen).encode()
        one = self.succeed("embed", self.model, "--device", "0", "--json", input=lines).json()
        two = self.succeed("embed", self.model, "--device", "0,1", "--json", input=lines).json()
        self.assertEqual(two["embeddings"], one["embeddings"])
        self.assertEqual((len(two["devices"]), len(two["shares"])), (2, 2))
        self.assertGreater(min(two["shares"]), 0)
        for name in ("texts", "tokens", "unknown_words", "cut_texts", "solver"):
            self.assertEqual(two[name], one[name])
        self.assertNotIn("devices", one)
        few = chosen[:3]
        one = self.succeed("embed", self.model, "--device", "0", "--", *few).out
        self.assertEqual(self.succeed("embed", self.model, "--device", "0,1", "--", *few).out, one)

    def test_search_and_maps(self):
        file = self.write("lines.txt", "\n".join(text for text, _ in list(cases())[::4]))
        options = ("--search", file, "--repeat", "2", "--json", "--", "a text")
        one = self.succeed("embed", self.model, "--device", "0", *options).json()
        two = self.succeed("embed", self.model, "--device", "0,1", *options).json()
        self.assertEqual((two["lines"], two["runs"]), (one["lines"], 2))
        for device in ("0", "0,1"):
            self.succeed("embed", self.model, "a", "b c", "--device", device, "--attention", self.path(device + ".html"))
        self.assertEqual(self.read("0,1.html"), self.read("0.html"))

    def test_no_texts(self):
        self.assertEqual(self.succeed("embed", self.model, "--device", "0,1", input=b"").out, "")

    def test_refusals(self):
        def refuse(status, device, *saying):
            self.refuse(status, "embed", self.model, "a", "--device", device, saying=saying)

        refuse(2, "1,1", "embed: --device '1,1' has device 1 twice")
        refuse(2, "0,1,00", "has device 00 twice")
        refuse(3, "0,99", 'no device matches "99"')
        refuse(3, "0,", '"0,"')
        refuse(2, "0," + "9" * 40, "9" * 40, "is not valid")
        refuse(2, ",".join(str(i) for i in range(17)), "17 devices", "at most 16")
        self.refuse(2, "embed", self.model, "a", "--device", "0,1", "--solver", "nobody",
                    saying=("clattn: device ", "nobody"))


@unittest.skipUnless("RUSTICL_ENABLE" in os.environ, "needs rusticl beside PoCL")
class Drivers(EmbedTest):
    """PoCL and rusticl on one machine, whose ICDs the environment names."""

    def test_two_drivers(self):
        self.make(num_hidden_layers=1)
        chosen = [case for case in cases() if len(case[1]) < 20][:150]
        report = self.succeed("embed", self.model, "--device", "0,1", "--json", "--", *[text for text, _ in chosen],
                              env={"CLATTN_DEVICE": None}).json()
        self.near(np.array(report["embeddings"]), [self.wanted(ids) for _, ids in chosen])
        self.assertEqual(len(set(report["devices"])), 2)
        self.assertGreater(min(report["shares"]), 0)


class Usage(EmbedTest):
    def test_help(self):
        self.assertIn("usage: clattn embed MODEL_DIR [TEXT ...]", self.succeed("embed", "--help").out)

    def test_arguments(self):
        self.refuse(2, "embed", saying="missing argument, expected MODEL_DIR")
        self.make()
        self.refuse(2, "embed", self.model, "a", "--dance", saying="--dance")
        self.refuse(2, "embed", self.model, "a", "--max-tokens", "1", saying="expected 2 or more")
        self.refuse(2, "embed", self.model, "a", "--max-tokens", "41", saying=("41", "the model's 40 positions"))
        self.refuse(3, "embed", self.model, "a", "--device", "nowhere:nothing", saying="nowhere:nothing")


class BadFiles(EmbedTest):
    def bad(self, *saying):
        self.refuse(2, "embed", self.model, "some text", saying=saying)

    def test_folders(self):
        self.model = self.path("none")
        self.bad(self.model, "is no folder")
        self.model = self.path("empty")
        os.mkdir(self.model)
        self.bad("config.json", "cannot be opened")
        self.make()
        os.remove(self.path("model/vocab.txt"))
        self.bad(self.model, "has neither tokenizer.json nor vocab.txt")
        self.make()
        os.remove(self.path("model/model.safetensors"))
        self.bad("model.safetensors", "cannot be opened")

    def test_config(self):
        for changed, saying in (({"model_type": "gpt2"}, 'model_type is "gpt2", expected "bert"'),
                                ({"hidden_size": 0}, "hidden_size is 0, expected a whole number from 1 to 65536"),
                                ({"hidden_size": 34}, "hidden_size is 34, expected a multiple of num_attention_heads, 4"),
                                ({"num_hidden_layers": None}, "num_hidden_layers is nothing"),
                                ({"intermediate_size": "64"}, 'intermediate_size is "64"'),
                                ({"hidden_act": "tanh"}, 'hidden_act is "tanh", expected gelu'),
                                ({"layer_norm_eps": -1}, "layer_norm_eps is -1"),
                                ({"max_position_embeddings": 1}, "max_position_embeddings is 1, expected 2 or more"),
                                ({"position_embedding_type": "relative_key"}, 'is "relative_key", expected "absolute"'),
                                ({"vocab_size": 1000}, "expected fewer than config.json's vocab_size, 1000")):
            with self.subTest(saying):
                self.make(tensors={"a": np.zeros(1, np.float32)}, **changed)
                self.bad(saying)
        self.make()
        for name, text, saying in (("config.json", "{", "config.json: is not JSON"),
                                   ("sentence_bert_config.json", "{}", "max_seq_length is nothing"),
                                   ("sentence_bert_config.json", {"max_seq_length": 41}, "2 to the model's 40 positions"),
                                   ("1_Pooling/config.json", {"pooling_mode_max_tokens": True},
                                    "pooling_mode_max_tokens is true"),
                                   ("1_Pooling/config.json", {}, "neither is"),
                                   ("vocab.txt", "[UNK]\n[CLS]\n", "vocab.txt: its vocabulary lacks the token '[SEP]'"),
                                   ("tokenizer.json", "[]", "tokenizer.json: its model is not one"),
                                   ("model.safetensors", "12345678", "model.safetensors")):
            with self.subTest(saying):
                before = shutil.copytree(self.model, self.path("before"))
                self.write_model(name, text)
                self.bad(saying)
                shutil.rmtree(self.model)
                os.rename(before, self.model)

    def test_missing_tensors_are_named(self):
        self.make()
        names = sorted(self.weights)
        for name in names[::5] + ["embeddings.word_embeddings.weight"]:
            with self.subTest(name):
                write_safetensors(self.path("model/model.safetensors"),
                                  {other: tensor for other, tensor in self.weights.items() if other != name})
                self.bad("model.safetensors", name)

    def test_wrong_shapes_are_both_named(self):
        self.make()
        for name, shape, found, expected in (("encoder.layer.1.attention.self.key.weight", (32, 31), "32 x 31", "32 x 32"),
                                             ("embeddings.word_embeddings.weight", (1397, 32), "1397 x 32", "1398 x 32"),
                                             ("encoder.layer.0.intermediate.dense.weight", (32, 64), "32 x 64", "64 x 32"),
                                             ("encoder.layer.0.output.LayerNorm.bias", (31,), "31", "32")):
            with self.subTest(name):
                write_safetensors(self.path("model/model.safetensors"), {**self.weights, name: np.zeros(shape, np.float32)})
                self.bad(name, found, expected)

    def test_sizes_that_the_tensors_contradict(self):
        """If config.json describes terabytes and the file of tensors is small, the first contradicting tensor is
        named."""
        self.make()
        self.write_model("config.json", {**self.config, "intermediate_size": 1 << 20, "num_hidden_layers": 1024})
        self.bad("encoder.layer.0.intermediate.dense.weight", "64 x 32", "1048576 x 32")

    def test_damage_anywhere(self):
        self.make()
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            path = os.path.join(self.model, name)
            good = self.read(path)
            for _ in range(2 if QUICK else 6):
                data = bytearray(good)
                at = int(self.random.integers(0, min(len(data), 4000)))
                data[at] ^= 1 << int(self.random.integers(0, 8))
                self.write(path, bytes(data))
                result = self.run_clattn("embed", self.model, "some text")
                self.assertIn(result.status, (0, 2), result)
                self.assertEqual(len(result.errors), 1 if result.status else 0, result)
            self.write(path, good[:len(good) // 2])
            self.refuse(2, "embed", self.model, "some text")
            self.write(path, good)


@unittest.skipUnless(MINILM, "CLATTN_MINILM names no folder with all-MiniLM-L6-v2 (sh examples/models.sh minilm FOLDER)")
class MiniLM(EmbedTest):
    def setUp(self):
        super().setUp()
        self.model = MINILM
        self.texts = (HERE / "embed" / "sentences.txt").read_text(encoding="utf-8").split("\n")[:-1]
        self.texts.append(("word and another " * 300).strip())
        self.vectors = np.load(HERE / "embed" / "vectors.npy").astype(np.float64)

    def test_vectors(self):
        found, errors = self.embed(input="\n".join(self.texts).encode())
        self.near(found, self.vectors)
        self.assertEqual(errors, ["clattn: warning: 1 of 27 texts have more than 256 tokens (text 27 has 902): "
                                  "only their beginnings count"])

    def test_16_bits(self):
        for dtype in ("f16", "bf16"):
            with self.subTest(dtype):
                found, _ = self.embed("--dtype", dtype, input="\n".join(self.texts).encode())
                self.like(found, self.vectors, 0.9999)

    def test_one_alone_is_the_same(self):
        for i in (0, 8, 12):
            self.near(self.embed("--", self.texts[i])[0], self.vectors[i:i + 1])

    def test_search(self):
        out = self.succeed("embed", self.model, "--search", HERE / "embed" / "sentences.txt", "--top", "2",
                           "somebody has a meal").out.splitlines()
        self.assertEqual([line.split("\t")[1] for line in out], self.texts[:2])


if __name__ == "__main__":
    main()
