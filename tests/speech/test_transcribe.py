"""Compares speech recognition by a real model, Whisper tiny.en, with faster-whisper's stored results (expected.json) and,
if FASTER_WHISPER is 1, with its results today.

WHISPER_MODEL is the model's folder, WHISPER_HOST the build's tests/whisper_host, a plain C implementation of the model
behind the command's own code."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tool"))

import clips
import command_support
import heatmap_picture
import peer
from command_support import FULL, main
from heatmap_page import MapTest

command_support.TIMEOUT = 900  # all of a model's kernels, on a machine with other work

MODEL = os.environ.get("WHISPER_MODEL", "")
HOST = os.environ.get("WHISPER_HOST", "")
LIVE = bool(os.environ.get("FASTER_WHISPER"))
EXPECTED = json.loads((pathlib.Path(__file__).resolve().parent / "expected.json").read_text())
CLEAR = -0.42  # average logarithm of a clip that is heard clearly
TOLERANCE = 1e-3


class Recordings(MapTest):
    @classmethod
    def setUpClass(cls):
        import shutil
        import tempfile
        cls.sounds = tempfile.mkdtemp(prefix="clattn-speech-")
        cls.addClassCleanup(shutil.rmtree, cls.sounds)
        cls.clips = clips.clips(cls.sounds)
        cls.peer = peer.load(MODEL) if LIVE else None

    def assert_same(self, name, found, expected, words=False):
        self.assertEqual([s["tokens"] for s in found], [s["tokens"] for s in expected], name)
        self.assertEqual("".join(s["text"] for s in found), "".join(s["text"] for s in expected), name)
        for ours, theirs in zip(found, expected):
            for field, within in (("avg_logprob", TOLERANCE), ("no_speech_prob", TOLERANCE), ("start", 0.021),
                                  ("end", 0.021), ("compression_ratio", 1e-4)):
                self.assertAlmostEqual(ours[field], theirs[field], delta=within, msg="%s: %s" % (name, field))
            if words:
                self.assertEqual([w["word"] for w in ours["words"]], [w["word"] for w in theirs["words"]], name)
                for mine, other in zip(ours["words"], theirs["words"]):
                    for field, within in (("start", 0.021), ("end", 0.021), ("probability", 5e-3)):
                        self.assertAlmostEqual(mine[field], other[field], delta=within,
                                               msg="%s: %s of %r" % (name, field, mine["word"]))

    def expected(self, name, words, beams=1):
        """Returns faster-whisper's result for a clip, or None if the clip differs from the one that the result was
        stored for."""
        if LIVE:
            return peer.hear(self.peer, self.clips[name], words, beam_size=beams)
        if EXPECTED[name]["sha256"] != peer.digest(self.clips[name]):
            return None
        return EXPECTED[name]["beams" if beams > 1 else "segments" if words else "plain"]

    def compare(self, names, hear, words, beams=1):
        """Returns how many clips were compared with faster-whisper's results, and how many of those are clear."""
        held, clear = 0, 0
        for name in names:
            wanted = self.expected(name, words, beams) if name in self.clips else None
            if wanted is None:
                continue
            with self.subTest(name, words=words, beams=beams):
                self.assert_same(name, hear(self.clips[name], words), wanted, words)
            held += 1
            clear += bool(wanted) and all(s["avg_logprob"] > CLEAR for s in wanted)
        return held, clear


@unittest.skipUnless(HOST, "WHISPER_HOST is not set")
class Host(Recordings):
    def hear(self, path, words=False, *more):
        done = subprocess.run([HOST, MODEL, path] + (["words"] if words else []) + list(more), stdout=subprocess.PIPE,
                              check=True)
        return json.loads(done.stdout)["segments"]

    def test_same_as_faster_whisper(self):
        names = sorted(EXPECTED) if FULL or LIVE else ["door", "sense-0930"]
        held, _ = self.compare(names, self.hear, True)
        if held == 0:
            self.skipTest("none of the clips is as it was")
        self.compare(["sense-0880"], self.hear, False)

    def test_beams(self):
        held, _ = self.compare(peer.BEAMED if FULL or LIVE else ["cards-005"],
                               lambda path, words: self.hear(path, words, "beams", str(peer.BEAMS)), False, peer.BEAMS)
        if held == 0:
            self.skipTest("none of the clips is as it was")

    @unittest.skipUnless(LIVE, "faster-whisper is not here")
    def test_suppressed_tokens(self):
        """The list in config.json is the one that faster-whisper makes of the tokenizer."""
        from faster_whisper.tokenizer import Tokenizer
        from faster_whisper.transcribe import get_suppressed_tokens
        made = get_suppressed_tokens(Tokenizer(self.peer.hf_tokenizer, False), [-1])
        with open(os.path.join(MODEL, "config.json")) as file:
            self.assertEqual(sorted(json.load(file)["suppress_ids"]), list(made))


class Command(Recordings):
    def hear(self, path, words=False, *more):
        result = self.succeed("transcribe", MODEL, path, "--json", *(["--words"] if words else []), *more)
        return result.json()["segments"]

    def test_same_as_faster_whisper(self):
        held, clear = self.compare(sorted(EXPECTED), self.hear, False)
        if held == 0:
            self.skipTest("none of the clips is as it was")
        print("%d recordings, %d of them heard clearly" % (held, clear), end=" ")
        if len(self.clips) == len(EXPECTED):
            self.assertGreaterEqual(clear, 10)

    def test_words_same_as_faster_whisper(self):
        names = sorted(EXPECTED) if FULL or LIVE else ["door", "long", "sense-0930"]
        self.compare(names, self.hear, True)

    def test_beams_same_as_faster_whisper(self):
        """The search by beams changes the text of all these clips except one."""
        held, _ = self.compare(peer.BEAMED, lambda path, words: self.hear(path, words, "--beams", peer.BEAMS), False,
                               peer.BEAMS)
        if held == 0:
            self.skipTest("none of the clips is as it was")

    def test_16_bits(self):
        """The words are those of float32.  In bfloat16 those of sense-0890 are not: "old-sposed" for "ill-disposed"."""
        for dtype in ("f16", "bf16") if FULL or LIVE else ("bf16",):
            for name in sorted(set(EXPECTED) - {"sense-0890" if dtype == "bf16" else ""}) if FULL or LIVE else ["door", "long"]:
                wanted = self.expected(name, False) if name in self.clips else None
                if wanted is None:
                    continue
                with self.subTest(name, dtype=dtype):
                    found = self.hear(self.clips[name], False, "--dtype", dtype)
                    self.assertEqual("".join(s["text"] for s in found), "".join(s["text"] for s in wanted))

    def test_text_words_and_beams(self):
        path = self.clips.get("sense-0930") or self.skipTest("no recordings")
        text = self.succeed("transcribe", MODEL, path).out
        self.assertEqual(text, "He might even have been made amiable himself.\n")
        lines = [line.split(" ") for line in self.succeed("transcribe", MODEL, path, "--words").out.splitlines()]
        self.assertEqual(" ".join(line[2] for line in lines), text.strip())
        times = [float(time) for line in lines for time in line[:2]]
        self.assertEqual(times, sorted(times))
        beams = self.succeed("transcribe", MODEL, path, "--beams", 5, "--json").json()
        self.assertEqual(beams["text"], text.strip())
        self.assertEqual(beams["windows"], 1)
        self.assertGreater(beams["weight_bytes"], 1 << 20)

    @unittest.skipUnless(HOST, "WHISPER_HOST is not set")
    def test_attention(self):
        """The heat map's numbers and pixels against the host's implementation; its text and times."""
        import numpy as np
        path = self.clips.get("sense-0930") or self.skipTest("no recordings")
        html, png = self.path("map.html"), self.path("map.png")
        out = self.succeed("transcribe", MODEL, path, "--words", "--attention", html, "--attention", png).out
        page = self.page()
        self.assertEqual(page.about["title"], "Cross-attention of " + path)
        done = subprocess.run([HOST, MODEL, path, "attention"], stdout=subprocess.PIPE, check=True)
        expected = json.loads(done.stdout)["attention"]
        self.assertEqual(len(page.about["parts"]), len(expected))
        shapes = [tuple(wanted[name] for name in ("layers", "heads", "tokens", "columns")) for wanted in expected]
        cells = [np.reshape(wanted["cells"], shape) for wanted, shape in zip(expected, shapes)]
        heatmap_picture.check(self, png, cells, 1e-4)
        for part, (wanted, shape) in enumerate(zip(expected, shapes)):
            about = page.about["parts"][part]
            self.same(page, cells[part], part, 1e-4)
            self.assertEqual(about["query"]["labels"], wanted["labels"])
            self.assertEqual((about["key"]["first"], about["key"]["step"], about["key"]["unit"]), (0, 0.02, " s"))
            for layer in range(shape[0]):
                for head in range(shape[1]):
                    self.assertLessEqual(np.max(page.cells(part, layer, head)[0].sum(1)), 1 + 1e-3)
        labels = [label for about in page.about["parts"] for label in about["query"]["labels"]]
        self.assertEqual(labels[-1], "<|endoftext|>")
        self.assertEqual("".join(labels[:-1]).strip(), " ".join(line.split(" ")[2] for line in out.splitlines()))
        # The heads that follow the speech attend a word when it is said, measured by the mean of their rows' largest
        # columns.
        with open(os.path.join(MODEL, "config.json")) as file:
            heads = json.load(file)["alignment_heads"]
        rows = np.mean([page.cells(0, layer, head)[0] for layer, head in heads], axis=0).argmax(1) * 0.02
        last = float(out.splitlines()[-1].split(" ")[1])
        self.assertLess(rows[0], 0.5 * last)
        self.assertGreater(rows[-3], 0.5 * last)
        self.assertLess(rows[-3], last + 0.5)

    def test_attention_refused(self):
        path = self.sound("silent.wav", [0] * 3200)
        self.refuse(2, "transcribe", MODEL, path, "--attention", self.path("map.gif"), saying=("map.gif", ".html"))
        self.refuse(2, "transcribe", MODEL, path, "--attention", self.path("none/map.html"), saying="an existing directory")
        self.refuse(2, "transcribe", MODEL, path, "--attention", self.path("a.html"), "--attention", self.path("a.html"),
                    saying="two outputs")
        named = self.sound("sound.html", [0] * 3200)
        self.refuse(2, "transcribe", MODEL, named, "--attention", named, saying="is the input")
        # Without text there is nothing to draw.
        result = self.run_clattn("transcribe", MODEL, self.sound("none.wav", []), "--attention", self.path("map.html"))
        self.assertEqual((result.status, result.out), (2, "\n"))
        self.assertIn("there is no text", result.errors[0])
        self.assertFalse(os.path.exists(self.path("map.html")))

    def sound(self, name, *arguments, **more):
        return clips.write(self.path(name), *arguments, **more)

    def test_other_sounds(self):
        """The text is the same at other rates and in other sample formats, and silence has none."""
        import numpy as np
        path = self.clips.get("sense-0930") or self.skipTest("no recordings")
        samples = clips.read(path)[0].astype(np.int64)
        text = self.hear(path)[0]["text"]

        def between(factor):
            return np.rint(np.interp(np.arange(factor * len(samples)) / factor, np.arange(len(samples)), samples))
        for sound in (self.sound("stereo.wav", np.repeat(samples, 2), channels=2),
                      self.sound("wide.wav", samples << 8, width=3),
                      self.sound("narrow.wav", (samples >> 8) + 128, width=1),
                      self.sound("fast.wav", between(2), rate=32000),
                      self.sound("fastest.wav", between(6), rate=96000),
                      self.sound("clipped.wav", np.clip(4 * samples, -32768, 32767))):
            self.assertEqual(self.hear(sound)[0]["text"], text, sound)
        # A file that ends before its header's count of samples is read up to its end.
        whole = self.read(path)
        cut = self.hear(self.write("cut.wav", whole[:len(whole) * 2 // 3]))[0]["text"]
        self.assertEqual(cut.split()[:4], text.split()[:4])
        self.assertLess(len(cut), len(text))
        self.assertEqual(self.succeed("transcribe", MODEL, self.sound("none.wav", samples[:0])).out, "\n")
        silent = self.succeed("transcribe", MODEL, self.clips["silent"], "--json").json()
        self.assertEqual((silent["text"], silent["segments"], silent["windows"]), ("", self.expected("silent", False), 1))

    def test_bad_input(self):
        path = self.sound("short.wav", [0] * 3200)
        self.refuse(2, "transcribe", MODEL, self.path("none.wav"), saying="there is no such file")
        self.refuse(2, "transcribe", MODEL, os.path.join(MODEL, "config.json"), saying="is not a WAV file")
        self.refuse(2, "transcribe", self.path("nowhere"), path, saying="vocabulary.txt: cannot be opened")
        self.refuse(2, "transcribe", MODEL, path, "--beams", "9", saying="--beams")
        # A vocabulary for many languages has one more token, an empty one before the special ones.
        folder = self.path("languages")
        os.mkdir(folder)
        os.symlink(os.path.join(MODEL, "config.json"), os.path.join(folder, "config.json"))
        vocabulary = self.read(os.path.join(MODEL, "vocabulary.txt"))
        self.write("languages/vocabulary.txt", vocabulary.replace(b"<|endoftext|>", b"\n<|endoftext|>", 1))
        self.refuse(2, "transcribe", folder, path,
                    saying=("vocabulary.txt", "the vocabulary of a model for many languages, expected one for English"))
        folder = self.path("model")
        os.mkdir(folder)
        for name in ("vocabulary.txt", "config.json"):
            os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
        self.refuse(2, "transcribe", folder, path, saying="model.bin: cannot be opened")
        data = self.read(os.path.join(MODEL, "model.bin"))

        def broken(content, *saying):
            self.write("model/model.bin", content)
            self.refuse(2, "transcribe", folder, path, saying=saying)
        broken(data[:1000000], "cut short")
        # A weight under another name counts as missing; one of another shape is named with both shapes.
        name = b"decoder/layer_1/ffn/linear_1/bias"
        broken(data.replace(name, name.replace(b"layer_1", b"layer_9")), "decoder/layer_1/ffn/linear_1/bias")
        place = data.index(b"encoder/layer_norm/gamma\0") + len(b"encoder/layer_norm/gamma\0")
        wrong = bytearray(data)
        wrong[place:place + 10] = b"\2" + (2).to_bytes(4, "little") + (192).to_bytes(4, "little") + b"\4"
        broken(bytes(wrong[:place + 10]) + data[place + 6:], "384", "192")


if __name__ == "__main__":
    if not MODEL:
        sys.exit("WHISPER_MODEL is not set")
    main()
