#!/usr/bin/env python3
"""`clattn transcribe` by a small made-up model: what it prints, and what it refuses.

tests/speech/test_transcribe.py has a real model and what it hears.

    CLATTN=build/src/clattn python3 tests/tool/test_command_transcribe.py [-k PATTERN ...]"""
import json
import wave

import numpy as np

from command_support import CommandTest, main, slow
from small.whisper import INTEGER, SIZE, Model


class TranscribeTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.made = 0

    def sound(self, seconds=0.5, rate=16000):
        path = self.path(f"sound-{seconds}-{rate}.wav")
        with wave.open(path, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((9000 * np.sin(np.arange(int(seconds * rate)) / 7)).astype("<i2").tobytes())
        return path

    def model(self, **changes):
        """Writes a model with other members than the plain one's; returns its folder."""
        made = Model()
        for name, value in changes.items():
            assert hasattr(made, name)
            setattr(made, name, value)
        return self.write_model(made)

    def write_model(self, made):
        self.made += 1
        return made.write(self.path(f"model-{self.made}"))


class Results(TranscribeTest):
    """All of a model's kernels are compiled."""

    def hear(self, *arguments):
        # What a small model hears is improbable, and would be sampled anew.
        return self.succeed("transcribe", *arguments, "--no-fallback")

    @slow
    def test_text_words_and_json_agree(self):
        model, sound = self.model(), self.sound()
        text = self.hear(model, sound).out
        words = [line.split(" ", 2) for line in self.hear(model, sound, "--words").out.splitlines()]
        found = self.hear(model, sound, "--words", "--json").json()
        self.assertTrue(text.strip())
        self.assertEqual(found["text"].strip(), text.strip())
        self.assertEqual("".join(word[2] for word in words), text.replace(" ", "").strip())
        self.assertEqual([word["word"].strip() for segment in found["segments"] for word in segment["words"]],
                         [word[2] for word in words])
        self.assertAlmostEqual(found["duration"], 0.5)
        self.assertEqual((found["sample_rate"], found["channels"], found["dtype"]), (16000, 1, "float32"))
        self.assertGreater(found["weight_bytes"], 4 * SIZE * 1500)
        self.assertGreater(found["work_bytes"], 0)

    @slow
    def test_a_vocabulary_of_either_kind(self):
        sound = self.sound()
        lines, array = self.model(), self.model(vocabulary="vocabulary.json")
        self.assertEqual(self.hear(lines, sound).out, self.hear(array, sound).out)

    @slow
    def test_beams(self):
        model, sound = self.model(), self.sound()
        found = self.hear(model, sound, "--beams", 3, "--json").json()
        self.assertTrue(found["text"].strip())

    @slow
    def test_other_rates(self):
        """A sound of another rate is resampled, and lasts as long."""
        found = self.hear(self.model(), self.sound(rate=8000), "--json").json()
        self.assertEqual(found["sample_rate"], 8000)
        self.assertAlmostEqual(found["duration"], 0.5)


class BadModels(TranscribeTest):
    def refuses(self, model, *words):
        self.refuse(2, "transcribe", model, self.plain, saying=words)

    def setUp(self):
        super().setUp()
        self.plain = self.sound()

    def test_tensors(self):
        """The model's sizes are those of its tensors."""
        for name, extent, word in (("decoder/embeddings/weight", None, "which is not there"),
                                   ("encoder/conv1/weight", None, "has no"),
                                   ("encoder/layer_0/ffn/linear_0/weight", None, "has no"),
                                   ("encoder/position_encodings/encodings", None, "has no"),
                                   ("decoder/position_encodings/encodings", None, "has no"),
                                   ("encoder/conv1/weight", (SIZE, 80), "rank 2, expected 3"),
                                   ("decoder/embeddings/weight", (20, SIZE, 1), "rank 3, expected 2"),
                                   ("encoder/position_encodings/encodings", (1499, SIZE), "1499 and 448 positions"),
                                   ("decoder/position_encodings/encodings", (447, SIZE), "1500 and 447 positions"),
                                   ("decoder/embeddings/weight", (19, SIZE), "embeds 19 tokens")):
            with self.subTest(name, extent=extent):
                made = Model()
                if extent:
                    made.floats(name, np.zeros(extent))
                else:
                    del made.variables[name]
                self.refuses(self.write_model(made), "model.bin", word)

    def test_heads_and_layers(self):
        for heads, word in (((2, 0), "2 and 0 heads"), ((1, 2), "1 and 2 heads"), ((3, 3), "3 and 3 heads for 8"),
                            ((-1, -1), "-1 and -1 heads")):
            with self.subTest(heads=heads):
                made = Model()
                made.integer("encoder/num_heads", heads[0])
                made.integer("decoder/num_heads", heads[1])
                self.refuses(self.write_model(made), word)
        made = Model()
        made.layer("decoder", 1)
        self.refuses(self.write_model(made), "has 1 layers in its encoder and 2 in its decoder")
        self.refuses(self.model(spec="TransformerSpec"), "is a 'TransformerSpec' model")
        self.refuses(self.model(config={**Model().config, "alignment_heads": [[0, 2]]}), "has no head 2 in layer 0")
        self.refuses(self.model(config={**Model().config, "alignment_heads": [[1, 0]]}), "has no head 0 in layer 1")

    def test_vocabulary(self):
        tokens = Model().tokens
        for changed, word in ((["a", "", *tokens[2:]], "for many languages"),
                              (["a\u00ad", *tokens[1:]], "U+00AD, which stands for no byte"),
                              (["\u4e00", *tokens[1:]], "U+4E00, which stands for no byte"),
                              (["\u0144", *tokens[1:]], "U+0144, which stands for no byte"),
                              ([*tokens[:6], "x", *tokens[7:]], "has no token <|nospeech|>"),
                              ([*tokens[:3], tokens[4], tokens[3], *tokens[5:]], "in no order that is known"),
                              ([*tokens[:4], *tokens[7:], *tokens[4:7]], "in no order that is known"),
                              (tokens[:8], "in no order that is known"),
                              (["x"] * 1000001, "has 1000001 tokens, expected at most")):
            with self.subTest(word):
                self.refuses(self.model(tokens=changed), "vocabulary.txt", word)
        for changed, word in (({}, "is not a JSON array"), ([*tokens[:2], 3], "token 2 is not a string")):
            with self.subTest(word):
                self.refuses(self.model(tokens=changed, vocabulary="vocabulary.json"), "vocabulary.json", word)
        self.refuses(self.model(tokens=None), "vocabulary.txt")

    def test_config(self):
        good = Model().config
        for config, word in (("[]", "is not a JSON object"), ("{", "is not a JSON object"),
                             ({**good, "suppress_ids": 3}, "has no list suppress_ids"),
                             ({**good, "suppress_ids": [1] * 100001}, "has no list suppress_ids"),
                             ({**good, "suppress_ids": [1, "a"]}, "number 1 of suppress_ids is not valid"),
                             ({**good, "suppress_ids": [-1]}, "number 0 of suppress_ids is not valid"),
                             ({**good, "suppress_ids_begin": [20]}, "number 0 of suppress_ids_begin is not valid"),
                             ({**good, "alignment_heads": [[0, 0]] * 100001}, "has 100001 alignment_heads"),
                             ({**good, "alignment_heads": [[0]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [["a", 0]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[0, 0.5]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[-1, 0]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[0, -1]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[1000000, 0]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[0, 1000000]]}, "pair 0 of alignment_heads is not"),
                             ({**good, "alignment_heads": [[0, 1], [0, 1]]}, "pair 1 of alignment_heads has been")):
            with self.subTest(word, config=json.dumps(config)[:60]):
                self.refuses(self.model(config=config), "config.json", word)
        self.refuses("x" * 5000, "this name is too long for a folder")

    def test_numbers_that_are_none(self):
        """A weight that is NaN leaves no probabilities."""
        made = Model()
        made.floats("decoder/layer_norm/gamma", np.full(SIZE, np.nan))
        self.refuses(self.write_model(made), "finite")

    def test_integers_for_floats(self):
        made = Model()
        made.variables["decoder/layer_norm/gamma"] = ((SIZE,), INTEGER, bytes(2 * SIZE))
        self.refuses(self.write_model(made), "decoder/layer_norm/gamma")


if __name__ == "__main__":
    main()
