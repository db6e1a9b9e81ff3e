#!/usr/bin/env python3
"""clattn train from outside: a few steps on a corpus of made-up sentences, what is the same in every bit, and bad input.

    CLATTN=build/src/clattn TEXT_PIECES=build/tests/text/text_pieces python3 tests/text/test_train.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import json
import math
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys

import numpy as np

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "tool"), str(TESTS.parent / "examples" / "translation")]

from command_support import CLATTN, TIMEOUT, CommandTest, main, slow, write_safetensors
from order import batches
from small.text import BEGIN, END, PIECES, Peer

WORDS = {"the": "der", "a": "ein", "file": "Ordner", "window": "Rahmen", "name": "Titel", "old": "alte", "new": "neue",
         "cannot": "kann nicht", "be": "werden", "read": "gelesen", "written": "geschrieben", "opened": "geoeffnet"}
USUAL = {"--layers": 1, "--d-model": 32, "--heads": 2, "--d-ff": 64, "--vocabulary": 60, "--length": 24, "--batch-tokens": 192,
         "--warmup": 20, "--learning-rate": 1, "--validate-every": 5}
FILES = ("checkpoint.safetensors", "model.safetensors", "vocabulary.model", "config.json", "loss.svg")


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    return {name: np.frombuffer(data[slice(*about["data_offsets"])], {"F32": "<f4", "U8": "u1"}[about["dtype"]])
            .reshape(about["shape"]) for name, about in header.items()}


class TrainTest(CommandTest):
    def setUp(self):
        super().setUp()
        lines = [[str(word) for word in self.random.choice(list(WORDS), self.random.integers(2, 6))] for _ in range(300)]
        self.source = self.write("a.txt", "".join(" ".join(line) + "\n" for line in lines))
        self.target = self.write("b.txt", "".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))
        self.pair = ["--source", self.source, "--target", self.target]

    def command(self, model, *options, data=None):
        usual = [part for option, value in USUAL.items() if option not in options for part in (option, value)]
        return ["train", *(data or self.pair), "--out", self.path(model), *usual, *options]

    def train(self, model, *options, data=None):
        return self.succeed(*self.command(model, "--json", *options, data=data)).json()

    def files(self, model):
        return {name: self.read(os.path.join(model, name)) for name in FILES}

    def checkpoint(self, model):
        return read_safetensors(self.path(os.path.join(model, "checkpoint.safetensors")))

    def change(self, **changes):
        """Writes the checkpoint with other tensors; None leaves one out."""
        self.tensors = {**self.checkpoint("m"), **changes}
        header, data = {}, b""
        for name, tensor in self.tensors.items():
            if tensor is not None:
                part = np.ascontiguousarray(tensor).tobytes()
                header[name] = {"dtype": "U8" if tensor.dtype == np.uint8 else "F32", "shape": list(tensor.shape),
                                "data_offsets": [len(data), len(data) + len(part)]}
                data += part
        text = json.dumps(header).encode()
        self.write("m/checkpoint.safetensors", struct.pack("<Q", len(text)) + text + data)

    def same_files(self, left, right):
        left, right = self.files(left), self.files(right)
        for name in FILES:
            self.assertTrue(left[name] == right[name], name)


class Steps(TrainTest):
    def test_ten_steps(self):
        """The loss falls, the report tells it, and the model translates."""
        report = self.train("m", "--steps", 10)
        losses = self.checkpoint("m")["state.losses"]
        self.assertEqual(len(losses), 10)
        self.assertLess(losses[-1], losses[0] - 0.3)
        self.assertAlmostEqual(report["loss"], float(losses[-1]), places=5)
        self.assertEqual((report["steps"], report["ended_by"], report["texts"], report["left_out"]), (10, "steps", 297, 0))
        self.assertGreater(report["tokens_per_s"], 0)
        # Each parameter with its gradient and two moments, and a workspace with at least the logits of half a batch.
        self.assertGreater(report["device_bytes"], 16 * report["parameters"] + 4 * 60 * 96)
        self.assertLess(report["device_bytes"], 16 * report["parameters"] + (16 << 20))
        self.assertLess(report["validation_loss"], math.log(60) + 0.5)
        self.assertIn(report["best_step"], (5, 10))
        self.assertTrue(self.read("m/loss.svg").startswith(b"<svg "))
        self.succeed("translate", self.path("m"), "the old file")

    def encode(self, path):
        with open(path, "rb") as file:
            done = subprocess.run([PIECES, "encode", self.path("m/vocabulary.model")], check=True, stdin=file,
                                  stdout=subprocess.PIPE)
        return [[int(i) for i in line.split()] for line in done.stdout.decode().splitlines()]

    def test_losses(self):
        """Two epochs of a model that does not change: each step has the loss of the reference, over the batch of order.py."""
        self.train("m", "--steps", 30, "--learning-rate", 0, "--dropout", 0, "--label-smoothing", 0, "--seed", 1 << 40,
                   "--valid-source", self.source, "--valid-target", self.target)
        sources, targets = self.encode(self.source), self.encode(self.target)
        peer = Peer(json.loads(self.read("m/config.json")), read_safetensors(self.path("m/model.safetensors")))
        sizes = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets)]
        order = [batch for epoch in range(3) for batch in batches(sizes, 192, 24, 1 << 40, epoch)]
        losses = self.checkpoint("m")["state.losses"]
        epoch = len(order) // 3
        for step in 0, 1, epoch - 1, epoch, epoch + 1, 29:
            terms = []
            for item in order[step][1]:
                log = peer.decode([BEGIN] + targets[item], peer.encode(sources[item] + [END]))
                terms += [-log[i, piece] for i, piece in enumerate(targets[item] + [END])]
            self.assertAlmostEqual(float(losses[step]), float(np.mean(terms)), places=4)

    def test_the_first_weights(self):
        """Matrices are uniform up to sqrt(6 / (rows + columns)), tables normal, biases 0 and norms 1."""
        self.train("m", "--steps", 1, "--learning-rate", 0)
        tensors = read_safetensors(self.path("m/model.safetensors"))
        for name, tensor in tensors.items():
            if name.endswith("tokens.weight"):
                self.assertAlmostEqual(float(tensor.std()), 32 ** -0.5, delta=0.02)
            elif tensor.ndim == 2:
                limit = math.sqrt(6 / sum(tensor.shape))
                self.assertLessEqual(np.abs(tensor).max(), limit)
                self.assertAlmostEqual(float(tensor.std()), limit / math.sqrt(3), delta=0.05 * limit)
            else:
                self.assertTrue((tensor == name.endswith(".weight")).all(), name)
        self.assertEqual(len({tensor.tobytes() for tensor in tensors.values() if tensor.ndim == 2}),
                         sum(tensor.ndim == 2 for tensor in tensors.values()))

    def test_texts(self):
        """A decoder alone learns lines; lines that are too long are cut, and empty ones skipped."""
        text = self.write("t.txt", "\n" + self.read("b.txt").decode() + "\n" + "werden " * 60 + "\n")
        self.train("m", "--steps", 7, data=["--text", text])
        self.train("whole", "--steps", 10, data=["--text", text])
        losses = self.checkpoint("whole")["state.losses"]
        self.assertLess(losses[-1], losses[0] - 0.3)
        self.train("m", "--steps", 10, "--resume", data=["--text", text])
        self.assertEqual(self.read("m/checkpoint.safetensors"), self.read("whole/checkpoint.safetensors"))
        self.succeed("generate", self.path("m"), "der")

    def test_ways_to_train(self):
        """Each changes the losses, and none makes them worse than nothing."""
        seen = set()
        for options in ([], ["--accumulate", 2], ["--schedule", "cosine", "--warmup", 2], ["--dtype", "bf16"],
                        ["--preset", "base"], ["--dropout", 0, "--label-smoothing", 0], ["--weight-decay", 1],
                        ["--clip", 0.01]):
            with self.subTest(options):
                report = self.train("m", "--steps", 5, *options)
                self.assertLess(report["validation_loss"], math.log(60) + 0.5)
                seen.add(report["validation_loss"])
                shutil.rmtree(self.path("m"))
        self.assertEqual(len(seen), 8)

    def test_ends(self):
        """Time, and validations that find nothing better."""
        self.assertEqual(self.train("m", "--minutes", "0.0001")["ended_by"], "minutes")
        report = self.train("p", "--learning-rate", 0, "--patience", 2)
        self.assertEqual((report["ended_by"], report["steps"], report["best_step"]), ("patience", 15, 5))

    def test_own_validation(self):
        """Files for validation are read, and then all pairs are trained with; pairs that are too long are left out."""
        report = self.train("m", "--steps", 1, "--length", 6, "--valid-source", self.source, "--valid-target", self.target)
        self.assertGreater(report["left_out"], 0)
        self.assertEqual(2 * report["texts"] + report["left_out"], 600)

    def test_too_few_for_validation(self):
        few = self.write("few.txt", b"".join(self.read("a.txt").splitlines(keepends=True)[:99]))
        result = self.succeed(*self.command("m", "--json", "--steps", 1, data=["--text", few]))
        self.assertIn("nothing is for validation", "".join(result.errors))
        self.assertEqual(result.json()["texts"], 99)


class Again(TrainTest):
    def test_seeds(self):
        """The same seed makes the same files, another one others."""
        for name, seed in ("m", 7), ("again", 7), ("other", 8):
            self.train(name, "--steps", 6, "--seed", seed)
        self.same_files("m", "again")
        self.assertNotEqual(self.read("m/checkpoint.safetensors"), self.read("other/checkpoint.safetensors"))

    def test_resume(self):
        """Training that ended between validations goes on as if it had not, over the end of an epoch."""
        self.train("whole", "--steps", 25)
        self.train("m", "--steps", 8)
        self.assertEqual(self.train("m", "--steps", 25, "--resume")["steps"], 25)
        self.same_files("whole", "m")

    def test_progress(self):
        """A terminal has a line of the loss, the speed and the time left, which is erased at the end."""
        line = r"\rtraining .* \d+ %.*loss \d+\.\d+, \d+ tokens/s, 1 min left"
        status, shown = self.on_a_terminal(*self.command("m", "--steps", 1000000, "--minutes", 1), until=line)
        self.assertEqual(status, -signal.SIGINT, shown)
        self.assertRegex(shown, line)
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown[-80:]))

    def test_interrupt(self):
        """A signal ends training after the step, with a checkpoint that goes on as if it had not come."""
        with subprocess.Popen([CLATTN] + [str(a) for a in self.command("m", "--json", "--steps", 1000000)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=TIMEOUT)
        self.assertTrue(first.startswith(b"step 5: loss "), first)
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        report = json.loads(out.splitlines()[-1])
        self.assertEqual(report["ended_by"], "signal")
        steps = report["steps"] + 3
        self.train("m", "--steps", steps, "--resume")
        self.train("whole", "--steps", steps)
        self.assertEqual(self.read("m/checkpoint.safetensors"), self.read("whole/checkpoint.safetensors"))

    @slow
    def test_resume_otherwise(self):
        """The same of bfloat16, and of steps of several batches."""
        for name, options in ("b", ["--dtype", "bf16"]), ("p", ["--accumulate", 3]), ("r", ["--recompute"]):
            with self.subTest(options):
                self.train(name + "whole", "--steps", 8, *options)
                self.train(name, "--steps", 3, *options)
                self.train(name, "--steps", 8, "--resume", *options)
                self.same_files(name + "whole", name)


class BadInput(TrainTest):
    def refused(self, status, *options, saying, data=None, model="m"):
        self.refuse(status, *self.command(model, *options, data=data), saying=saying)

    def test_options(self):
        one = ["--source", self.source]
        for data, saying in ((one, "expected --source and --target, or --text alone"),
                             (one + ["--text", self.source], "or --text alone"),
                             (self.pair + ["--valid-source", self.source], "are given together"),
                             (self.pair + ["--valid-text", self.source], "--valid-text is for --text"),
                             (self.pair + ["--dropout", "1"], ("--dropout '1'", "less than 1")),
                             (self.pair + ["--label-smoothing", "-0.5"], "--label-smoothing '-0.5'"),
                             (self.pair + ["--minutes", "0"], "--minutes '0'"),
                             (self.pair + ["--schedule", "cosine"], "needs --steps"),
                             (self.pair + ["--dtype", "f16"], "--dtype 'f16'"),
                             (self.pair + ["--preset", "huge"], "--preset 'huge'")):
            with self.subTest(data):
                self.refused(2, data=data, saying=saying)
        self.refuse(2, "train", *self.pair, "--out", self.path("m"), "--d-model", 30, "--heads", 4,
                    saying=("--d-model is 30", "--heads, 4"))
        self.refuse(2, "train", *self.pair, saying="--out")
        self.refused(3, "--device", "no such device", saying="no such device")
        self.assertFalse(os.path.exists(self.path("m")))

    def test_another_shape(self):
        self.train("m", "--steps", 1)
        before = self.files("m")
        for name in ("--layers", "--d-model", "--d-ff", "--heads", "--length"):
            self.refused(2, "--resume", name, 2 * USUAL[name],
                         saying=("%s %d" % (name, USUAL[name]), "found %s %d" % (name, 2 * USUAL[name])))
        self.assertEqual(self.files("m"), before)

    def test_texts(self):
        empty, short = self.write("empty.txt", ""), self.write("short.txt", "one\ntwo\n")
        gap = self.write("gap.txt", "one\n \t\n")
        for source, target, saying in (
                (self.source, short, (self.source + " has 300 lines", short + " has 2")),
                (gap, short, (gap + ": line 2 is empty",)), (short, gap, (gap + ": line 2 is empty",)),
                (empty, empty, (empty + ": has no text",)), (self.path("nothing"), short, ("nothing: cannot be opened",)),
                (self.folder, short, (self.folder,)), (os.devnull, short, (os.devnull + ": is a pipe or a device",))):
            with self.subTest(saying):
                self.refused(2, data=["--source", source, "--target", target], saying=saying)
        self.refused(2, data=["--text", self.write("blank.txt", "\n \n")], saying="has no text")
        self.assertFalse(os.path.exists(self.path("m")))

    def test_vocabulary(self):
        """A text of too many characters for so few pieces."""
        self.refused(2, "--vocabulary", 5, saying=("no vocabulary of 5 pieces", self.target))

    def test_too_long(self):
        self.refused(2, "--length", 2, saying=("all pairs have more pieces than the model takes, 2",))

    def test_folders(self):
        self.refused(2, model="nowhere/m", saying=("nowhere/m: the folder cannot be made", "No such file"))
        self.refused(2, model="a.txt", saying="a.txt: the folder cannot be made")
        self.refused(2, "--resume", saying=("m/checkpoint.safetensors", "No such file"))

    def test_a_model_is_there(self):
        self.train("m", "--steps", 1)
        before = self.files("m")
        self.refused(2, saying=("m: has a model already", "--resume"))
        for options, saying in ((["--seed", 1], ("has seed 0", "--seed 1")), (["--accumulate", 2], "--accumulate 1"),
                                (["--batch-tokens", 100], "--batch-tokens 192")):
            self.refused(2, "--resume", *options, saying=saying)
        self.refused(2, "--resume", data=["--source", self.target, "--target", self.source], saying="with other texts")
        self.refused(2, "--resume", "--valid-source", self.source, "--valid-target", self.target, saying="with other texts")
        self.refused(2, "--resume", data=["--text", self.source], saying=("m: is a model of translations",))
        self.assertEqual(self.files("m"), before)

    def test_checkpoints(self):
        """Damaged ones, and those of other versions and models."""
        self.train("m", "--steps", 2)
        whole = self.read("m/checkpoint.safetensors")
        state = json.loads(self.checkpoint("m")["state"].tobytes())

        def changed(**values):
            return np.frombuffer(json.dumps({**state, **values}).encode(), np.uint8)

        name = "decoder.layers.0.self.query.weight"
        for changes, saying in (({"state": changed(clattn_checkpoint=2)}, "is a checkpoint of version 2, expected 1"),
                                ({"state": changed(clattn_checkpoint=None)}, "has no version"),
                                ({"state": changed(position="x")}, '"position"'),
                                ({"state": changed(step=3)}, "has 2 losses of 3 steps"),
                                ({"state": changed(best=None)}, "damaged"),
                                ({"state": changed(parts=0)}, "damaged"),
                                ({"state": changed(parts=65536)}, "has taken 2 batches in 2 steps of 65536"),
                                ({"state": changed(position=3)}, "has taken 3 batches in 2 steps of 1"),
                                ({"state": np.zeros(3, np.uint8)}, "has no version"),
                                ({"state": None}, "has no state"), ({"state": np.zeros(3, np.float32)}, "has no state"),
                                ({"state.losses": np.zeros((2, 1), np.float32)}, "state.losses"),
                                ({"state.losses": np.full(2, np.nan, np.float32)}, "not finite"),
                                ({"state.checks": np.zeros(3, np.float32)}, "losses"),
                                ({"first_moment." + name: None}, "first_moment." + name),
                                ({"second_moment." + name: np.zeros((32, 31), np.float32)}, "second_moment." + name),
                                ({name: np.zeros((32, 31), np.float32)}, (name, "31", "32"))):
            with self.subTest(saying):
                self.change(**changes)
                self.refused(2, "--resume", saying=saying)
                self.write("m/checkpoint.safetensors", whole)
        self.write("m/checkpoint.safetensors", whole[:-1])
        self.refused(2, "--resume", saying="checkpoint.safetensors")
        write_safetensors(self.path("m/checkpoint.safetensors"), {"x": np.zeros(1, np.float32)})
        self.refused(2, "--resume", saying="has no state")

    def test_a_vocabulary_of_another_model(self):
        self.train("m", "--steps", 1)
        config = json.loads(self.read("m/config.json"))
        self.write("m/config.json", json.dumps({**config, "vocabulary": 61}))
        self.refused(2, "--resume", saying=("vocabulary.model", "61"))

    def test_a_loss_that_is_not_finite(self):
        """Training ends and says at which step; the files stay."""
        self.train("m", "--steps", 2)
        self.change(**{"decoder.norm.weight": np.full(32, np.nan, np.float32)})
        before = self.files("m")
        self.refused(1, "--resume", "--steps", 9, saying=("the loss of step 3 is", "nan", "stays"))
        self.assertEqual(self.files("m"), before)

    def test_a_full_disk(self):
        """A checkpoint that has no room leaves the one before."""
        large = ["--d-model", 128, "--d-ff", 512]  # drivers compile to files, which are smaller
        self.train("m", "--steps", 2, *large)
        before = self.files("m")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["checkpoint.safetensors"]) // 2,) * 2)

        self.refuse(1, *self.command("m", "--resume", "--steps", 3, *large), preexec_fn=limit,
                    saying=("m/checkpoint.safetensors: cannot be written", "File too large"))
        self.assertEqual(self.files("m"), before)
        self.assertEqual(sorted(os.listdir(self.path("m"))), sorted(FILES))


if __name__ == "__main__":
    main()
