#!/usr/bin/env python3
"""clattn translate and generate from outside: small models of random numbers against NumPy's float64, and hostile folders.

    CLATTN=build/src/clattn TEXT_PIECES=build/tests/text/text_pieces python3 tests/text/test_translate.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tool"))

import heatmap_picture
from command_support import QUICK, main, slow, write_safetensors
from small.text import BEGIN, END, TEXTS, TextTest

CLOSE = 1e-4  # choices that are nearer than that may be made otherwise in float32


class Results(TextTest):
    def agree(self, texts, results):
        """Fails unless the results are the peer's greedy ones."""
        compared = 0
        self.assertEqual(len(results), len(texts))
        for text, result in zip(texts, results):
            ids = self.ids(text)
            made, score, close = self.peer.greedy(ids)
            if close < CLOSE:
                continue
            compared += 1
            prompt = ids if self.config["kind"] == "text" else []
            self.assertEqual(result["text"], self.text(prompt + made), text)
            self.assertEqual(result["tokens"], len(made))
            self.assertAlmostEqual(result["score"], score, delta=1e-3)
        self.assertGreaterEqual(compared, max(1, len(texts) // 2))

    def translate(self, *arguments, **more):
        return self.succeed("translate", self.model, "--json", *arguments, **more).json()

    def test_greedy(self):
        for changed in ({}, {"norm_place": "post", "encoder_layers": 3, "decoder_layers": 1, "heads": 2}):
            with self.subTest(**changed):
                self.make(**changed)
                report = self.translate("--", *TEXTS)
                self.agree(TEXTS, report["translations"])
                self.assertEqual([result["source"] for result in report["translations"]], TEXTS)
                self.assertEqual((report["texts"], report["beams"], report["dtype"]), (len(TEXTS), 1, "float32"))
                self.assertEqual(report["input_tokens"], sum(len(self.ids(text)) for text in TEXTS))
                self.assertEqual(report["tokens"], sum(result["tokens"] for result in report["translations"]))

    def test_lines(self):
        """Lines come back in their order, and empty ones as empty ones, whatever their ends."""
        self.make()
        lines = TEXTS[:3] + [""] + TEXTS[3:5] + ["  "]
        wanted = [result["text"] for result in self.translate("--", *lines)["translations"]]
        self.assertEqual((wanted[3], wanted[6]), ("", ""))
        for end in ("\n", "\r\n"):
            found = self.succeed("translate", self.model, input=(end.join(lines) + end).encode())
            self.assertEqual(found.out, "".join(text + "\n" for text in wanted))
        self.assertEqual(self.succeed("translate", self.model, input=b"").out, "")
        self.assertEqual(self.succeed("translate", self.model, input=b"\n").out, "\n")
        self.assertEqual(self.translate(input=b"\n")["translations"], [{"source": "", "text": "", "tokens": 0, "score": 0}])

    @slow
    def test_many_lines_of_many_lengths(self):
        """More lines than a portion and a batch hold: each is translated as if it were alone."""
        self.make(decoder_layers=1, encoder_layers=1)
        words = " ".join(TEXTS[:6]).split()
        lines = [" ".join(self.random.choice(words, int(self.random.integers(1, 6)))) for _ in range(60)]
        lines = [line for line in lines if len(self.ids(line)) <= 40]
        found = self.succeed("translate", self.model, "--json", input="".join(line + "\n" for line in lines * 30).encode()).json()
        results = found["translations"]
        self.assertEqual([result["source"] for result in results], lines * 30)
        self.agree(lines, results[:len(lines)])
        different = sum(results[i]["text"] != results[i % len(lines)]["text"] for i in range(len(results)))
        self.assertLessEqual(different, len(results) // 50)

    def test_beams(self):
        """Beam search finds what the peer's search finds, with the paper's rule for lengths."""
        self.make()
        for beams in (2, 5)[:1 if QUICK else 2]:
            results = self.translate("--beams", beams, "--", *TEXTS)["translations"]
            for text, result in zip(TEXTS, results):
                ids = self.ids(text)
                found, score = self.search(ids, beams)
                self.assertAlmostEqual(score, self.peer.score(ids, found), delta=1e-9)
                self.assertAlmostEqual(result["score"], score, delta=1e-3)
                self.assertEqual(result["text"], self.text(found))
            alone = self.translate("--beams", beams, "--", TEXTS[1])["translations"][0]
            self.assertEqual(alone["text"], results[1]["text"])

    def search(self, ids, beams):
        """Beam search as docs/transformer.md describes it.  Returns the output and its score."""
        memory, begin, most = self.peer.limits(ids)
        rule = lambda score, made: score / ((5 + len(made)) / 6) ** 0.6
        alive, finished = [(0.0, [])], []
        while alive and len(finished) < beams:
            grown = []
            for score, made in alive:
                log = self.peer.decode(begin + made, memory)[-1]
                grown += [(score + log[piece], made + [int(piece)]) for piece in np.argsort(-log)[:2 * beams]]
            grown.sort(key=lambda entry: -entry[0])
            alive = []
            for rank, (score, made) in enumerate(grown[:2 * beams]):
                if len(alive) == beams:
                    break
                if made[-1] != END and len(made) < most:
                    alive.append((score, made))
                elif made[-1] != END or rank < beams:
                    finished.append((rule(score, made), made))
        score, made = max(finished, key=lambda entry: entry[0])
        return made, score

    def test_generate(self):
        for changed in ({"kind": "text"}, {"kind": "text", "norm_place": "post"})[:1 if QUICK else 2]:
            self.make(**changed, target_length=40)
            for prompt in TEXTS[:4]:
                report = self.succeed("generate", self.model, "--json", "--", prompt).json()
                self.agree([prompt], report["texts"])
                self.assertEqual(report["texts"][0]["prompt"], prompt)
            plain = self.succeed("generate", self.model, "--", TEXTS[3]).out
            self.assertEqual(plain, report["texts"][0]["text"] + "\n")
            found = self.succeed("generate", self.model, "--json").json()["texts"][0]
            self.agree([""], [found])

    @slow
    def test_generate_with_beams(self):
        self.make(kind="text", target_length=30)
        for prompt in TEXTS[:3]:
            result = self.succeed("generate", self.model, "--beams", 3, "--json", "--", prompt).json()["texts"][0]
            ids = self.ids(prompt)
            found, score = self.search(ids, 3)
            self.assertEqual(result["text"], self.text(ids + found))
            self.assertAlmostEqual(result["score"], score, delta=1e-3)

    def test_a_prompt_as_long_as_the_model_takes(self):
        """One more piece fits behind it."""
        self.make(kind="text")
        prompt = TEXTS[0]
        self.make(kind="text", target_length=len(self.ids(prompt)))
        result = self.succeed("generate", self.model, "--json", prompt).json()["texts"][0]
        self.assertEqual(result["tokens"], 1)
        self.agree([prompt], [result])

    def test_16_bits(self):
        self.make()
        for dtype, name in (("bf16", "bfloat16"), ("f16", "float16"))[:1 if QUICK else 2]:
            report = self.translate("--dtype", dtype, "--", *TEXTS)
            self.assertEqual(report["dtype"], name)
            for text, result in zip(TEXTS, report["translations"]):
                self.assertAlmostEqual(result["score"], self.peer.greedy(self.ids(text))[1], delta=3.0)

    def test_solver_by_name(self):
        self.make()
        self.agree(TEXTS[:1], self.translate("--solver", "generic", "--", *TEXTS[:1])["translations"])
        self.refuse(2, "translate", self.model, "a", "--solver", "nobody", saying="nobody")


class Maps(TextTest):
    def names(self, ids):
        pieces = self.pieces("list")
        return [pieces[i] for i in ids]

    def holds(self, page, part, reads, rows, columns, memory):
        """Fails unless a part of the page is the attention of a decoder that reads these numbers."""
        about = page.about["parts"][part]
        self.peer.decode(reads, memory)
        self.same(page, np.array(self.peer.probabilities), part, error=1e-5)
        self.assertEqual(about["query"]["labels"], self.names(rows))
        self.assertEqual(about["key"]["labels"], self.names(columns))

    def test_translations(self):
        self.make()
        texts = [text for text in TEXTS if self.peer.greedy(self.ids(text))[2] > CLOSE][:1 if QUICK else 4]
        result = self.succeed("translate", self.model, "--attention", self.path("map.html"), "--", *texts, "")
        page = self.page()
        self.assertEqual([part["name"] for part in page.about["parts"]], ["text %d" % (i + 1) for i in range(len(texts))])
        self.assertEqual(page.about["title"], "Cross-attention of " + self.model)
        for part, text in enumerate(texts):
            ids = self.ids(text)
            made = self.peer.greedy(ids)[0]
            self.assertEqual(result.out.split("\n")[part], self.text(made))
            self.holds(page, part, [BEGIN] + made[:-1], made, ids, self.peer.encode(ids))

    def test_generated(self):
        self.make(kind="text", target_length=40)
        prompt = next(text for text in TEXTS if self.peer.greedy(self.ids(text))[2] > CLOSE)
        self.succeed("generate", self.model, prompt, "--attention", self.path("map.html"))
        ids = self.ids(prompt)
        reads = ids + self.peer.greedy(ids)[0][:-1]
        page = self.page()
        self.assertEqual(page.about["title"], "Self-attention of " + self.model)
        self.holds(page, 0, reads, reads, reads, None)

    @slow
    def test_picture(self):
        self.make()
        text = next(text for text in TEXTS if self.peer.greedy(self.ids(text))[2] > CLOSE)
        result = self.run_clattn("translate", self.model, "--attention", self.path("map.png"), "--attention", self.path("map.html"),
                                 "--json", "--", text)
        if result.status == 2 and "libpng" in result.errors[0]:
            self.skipTest("built without libpng")
        self.assertEqual(result.status, 0, result)
        ids = self.ids(text)
        made = self.peer.greedy(ids)[0]
        self.peer.decode([BEGIN] + made[:-1], self.peer.encode(ids))
        heatmap_picture.check(self, self.path("map.png"), [np.array(self.peer.probabilities)], 1e-5)

    def test_refusals(self):
        self.make()
        html = self.path("map.html")
        self.refuse(2, "translate", self.model, "--attention", html, input=b"a\n",
                    saying="--attention draws what is given as TEXT, found none")
        self.refuse(2, "translate", self.model, "a", "--attention", self.path("map.gif"), saying=("map.gif", ".html", ".png"))
        self.refuse(2, "translate", self.model, "", "--attention", html, saying="nothing has come of the texts")
        self.assertFalse(os.path.exists(html))


class Devices(TextTest):
    """--device 0,1: each batch of texts goes to whichever device has none."""

    def test_as_one(self):
        self.two_devices()
        self.make(decoder_layers=1, encoder_layers=1)
        words = " ".join(TEXTS[:6]).split()
        lines = [" ".join(self.random.choice(words, int(self.random.integers(1, 4)))) for _ in range(300)]
        lines[7] = ""
        text = "".join(line + "\n" for line in lines).encode()
        for options in ((), ("--beams", "2"))[:1 if QUICK else 2]:
            one, two = (self.succeed("translate", self.model, "--device", device, "--json", *options, input=text).json()
                        for device in ("0", "0,1"))
            self.assertEqual(two["translations"], one["translations"])
            self.assertEqual((len(two["devices"]), len(two["shares"])), (2, 2))
            self.assertGreater(min(two["shares"]), 0)
            self.assertNotIn("devices", one)
        few = ("--device", "0,1", "--json", "--attention", self.path("map.html"), "--", *TEXTS[:2])
        found = self.succeed("translate", self.model, *few).json()
        self.assertEqual(found["translations"], self.succeed("translate", self.model, "--json", "--", *TEXTS[:2]).json()["translations"])
        self.assertEqual(sum(found["shares"]), 1)
        self.assertEqual([part["name"] for part in self.page().about["parts"]], ["text 1", "text 2"])

    def test_refusals(self):
        self.two_devices()
        self.make()
        self.refuse(2, "translate", self.model, "a", "--device", "0,0", saying="translate: --device '0,0' has device 0 twice")
        self.refuse(3, "translate", self.model, "a", "--device", "0,99", saying='no device matches "99"')
        self.make(kind="text")
        one, two = (self.succeed("generate", self.model, "--device", device).out for device in ("0", "0,1"))
        self.assertEqual(two, one)
        self.refuse(2, "generate", self.model, "--device", "0,1", "--solver", "nobody", saying=("clattn: device ", "nobody"))


class Usage(TextTest):
    def test_help(self):
        self.assertIn("usage: clattn translate MODEL_DIR [TEXT ...]", self.succeed("translate", "--help").out)
        self.assertIn("usage: clattn generate MODEL_DIR [PROMPT]", self.succeed("generate", "--help").out)

    def test_arguments(self):
        for command in ("translate", "generate"):
            self.refuse(2, command, saying="missing argument, expected MODEL_DIR")
        self.make()
        self.refuse(2, "translate", self.model, "a", "--dance", saying="--dance")
        self.refuse(2, "translate", self.model, "a", "--beams", "33", saying=("--beams", "33", "32"))
        self.refuse(2, "translate", self.model, "a", "--dtype", "f64", saying=("f64", "f32 or f16 or bf16"))
        self.refuse(3, "translate", self.model, "a", "--device", "nowhere:nothing", saying="nowhere:nothing")
        self.refuse(2, "generate", self.model, "a", saying=(self.model, "is a model for 'clattn translate'"))
        self.make(kind="text")
        self.refuse(2, "translate", self.model, "a", saying=(self.model, "is a model for 'clattn generate'"))
        self.refuse(2, "generate", self.model, "a", "b", saying="unexpected argument 'b', expected one PROMPT")

    def test_too_long(self):
        self.make(source_length=8)
        long = "The file is not there, and the folder is empty. " * 3
        length = len(self.ids(long))
        saying = (str(length), "expected at most 8", "the longest source of " + self.model)
        self.refuse(2, "translate", self.model, "a", long, "--device", "nowhere:nothing", saying=("text 2 has",) + saying)
        self.refuse(2, "translate", self.model, input=b"a\n\n" + long.encode(), saying=("text 3 has",) + saying)
        self.make(kind="text", target_length=8)
        self.refuse(2, "generate", self.model, long, saying=(str(length), "expected at most 8", "longest prompt of"))

    def test_text_of_any_kind(self):
        """Bytes that are not UTF-8 and characters that the vocabulary lacks are unknown pieces."""
        self.make()
        found = self.succeed("translate", self.model, input=b"\xff\n\xe6\xbc\xa2\na\0b\n\x1b[31m\n")
        self.assertEqual(found.out.count("\n"), 4)
        self.assertNotIn("\x1b", found.out)


class BadFiles(TextTest):
    def bad(self, *saying, status=2):
        self.refuse(status, "translate", self.model, "a file", saying=saying)

    def test_folders(self):
        self.model = self.path("none")
        self.bad(self.model, "is no folder", "vocabulary.model")
        self.make()
        for name in ("config.json", "vocabulary.model", "model.safetensors"):
            os.rename(self.path("model/" + name), self.path("kept"))
            self.bad("model/" + name, "cannot be opened")
            os.rename(self.path("kept"), self.path("model/" + name))

    def test_config(self):
        self.make()
        for changed, saying in (({"clattn_text": 2}, "clattn_text is 2, expected 1"),
                                ({"kind": "sound"}, 'kind is "sound"'),
                                ({"heads": 5}, "d_model is 32, expected a multiple of heads, 5"),
                                ({"d_ff": None}, "d_ff is nothing"),
                                ({"source_length": 0}, "source_length is 0"),
                                ({"vocabulary": 8000}, "expected config.json's vocabulary, 8000")):
            with self.subTest(saying):
                self.write_config(**changed)
                self.bad(saying)
        self.write_config(d_ff=1 << 20, decoder_layers=1024)
        self.bad("model.safetensors", "feed_forward.in", "48 x 32", "1048576 x 32")

    def test_tensors(self):
        self.make()
        names = sorted(self.weights)
        for name in names[::20] + ["decoder.tokens.weight"]:
            with self.subTest(name):
                write_safetensors(self.path("model/model.safetensors"),
                                  {other: tensor for other, tensor in self.weights.items() if other != name})
                self.bad("model.safetensors", name)
        write_safetensors(self.path("model/model.safetensors"),
                          {**self.weights, "decoder.tokens.weight": np.zeros((7, 32), np.float32)})
        self.bad("decoder.tokens.weight", "7 x 32", "%d x 32" % self.config["vocabulary"])

    def test_numbers_that_are_none(self):
        self.make()
        for value in (np.nan, np.inf):
            write_safetensors(self.path("model/model.safetensors"),
                              {name: np.full_like(tensor, value) for name, tensor in self.weights.items()})
            for beams in (1, 3):
                self.refuse(2, "translate", self.model, "a file", "--beams", beams, "--json",
                            saying=(self.model, "probabilities that are no numbers"))

    def test_damage_anywhere(self):
        self.make()
        for name in ("config.json", "vocabulary.model", "model.safetensors"):
            path = "model/" + name
            good = self.read(path)
            for _ in range(2 if QUICK else 6):
                data = bytearray(good)
                at = int(self.random.integers(0, min(len(data), 4000)))
                data[at] ^= 1 << int(self.random.integers(0, 8))
                self.write(path, bytes(data))
                result = self.run_clattn("translate", self.model, "a file")
                self.assertIn(result.status, (0, 2), result)
                self.assertEqual(len(result.errors), 1 if result.status else 0, result)
            self.write(path, good[:len(good) // 2])
            self.refuse(2, "translate", self.model, "a file")
            self.write(path, good)


if __name__ == "__main__":
    main()
