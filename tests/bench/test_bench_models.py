#!/usr/bin/env python3
"""bench/transcribe.py and bench/embed.py: what they run and print, with stand-ins for the command and the peers."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import wave

import numpy as np

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True

import embed

CLATTN = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
embed*) [ ! -e "$(dirname "$0")/embeddings" ] || vectors=$(cat "$(dirname "$0")/embeddings")
    echo '{"seconds_median": 0.25, "tokens": 1234, "device": "a device", "embeddings": '"${vectors-[[1.0]]}"'}' ;;
*) echo '{"seconds": 0.5, "text": "'"${SAYS- the same words}"'"}' ;;
esac
"""
FASTER_WHISPER = """
import types
class WhisperModel:
    def __init__(self, model, device, compute_type, cpu_threads):
        assert (device, compute_type, cpu_threads) == ("cpu", "float32", 3)
    def transcribe(self, path, beam_size, temperature, word_timestamps):
        assert temperature == 0
        return [types.SimpleNamespace(text=" the same"), types.SimpleNamespace(text=" words")], None
"""

# A model of one layer: a word's vector depends on its length alone, and that of padding would show in any mean.  It notes
# how many texts of how many words each batch had.
EMBED_PEERS = {
    "model.py": """
import os, sys
import numpy as np
TABLE = np.cos(np.outer(np.arange(100) + 1.0, np.arange(384))).astype(np.float32)
TABLE[-1] = 1e3
def hidden(ids, mask):
    assert ids.dtype == mask.dtype == np.int64 and ids.shape == mask.shape
    with open(os.path.join(os.path.dirname(__file__), "batches-" + sys.argv[sys.argv.index("--peer") + 1]), "a") as file:
        print(*ids.shape, file=file)
    return TABLE[np.where(mask == 1, ids, -1)]
""",
    "tokenizers.py": """
import types
class Tokenizer:
    @classmethod
    def from_file(cls, path):
        assert path == "MODEL/tokenizer.json"
        return cls()
    def enable_truncation(self, most):
        self.most = most
    def enable_padding(self):
        self.padding = True
    def encode_batch(self, texts):
        assert (self.most, self.padding) == (256, True)
        ids = [[len(word) % 97 for word in text.split()] for text in texts]
        longest = max(map(len, ids))
        return [types.SimpleNamespace(ids=(i + [0] * longest)[:longest],
                                      attention_mask=([1] * len(i) + [0] * longest)[:longest]) for i in ids]
""",
    "torch.py": """
import contextlib
import numpy as np
class Tensor(np.ndarray):
    def float(self):
        return self.astype(np.float32)
    def numpy(self):
        return np.array(self)
def from_numpy(array):
    return array.view(Tensor)
def set_num_threads(count):
    assert count == 3
inference_mode = contextlib.nullcontext
""",
    "safetensors/torch.py": """
def load_file(path):
    assert str(path) == "MODEL/model.safetensors"
    return {"a tensor": 1}
""",
    "transformers.py": """
import types
import torch, model
class BertConfig:
    @staticmethod
    def from_json_file(path):
        assert str(path) == "MODEL/config.json"
        return "a configuration"
class BertModel:
    def __init__(self, config, add_pooling_layer):
        assert (config, add_pooling_layer) == ("a configuration", False)
    def eval(self):
        return self
    def load_state_dict(self, tensors, strict):
        assert (tensors, strict) == ({"a tensor": 1}, False)
    def __call__(self, input_ids, attention_mask):
        return types.SimpleNamespace(last_hidden_state=torch.from_numpy(model.hidden(input_ids, attention_mask)))
""",
    "onnxruntime.py": """
import model
class SessionOptions:
    pass
class InferenceSession:
    def __init__(self, path, settings, providers):
        assert (path, settings.intra_op_num_threads, providers) == ("model.onnx", 3, ["CPUExecutionProvider"])
    def run(self, outputs, inputs):
        assert outputs is None and sorted(inputs) == ["attention_mask", "input_ids"]
        return [model.hidden(inputs["input_ids"], inputs["attention_mask"])]
""",
}


def words_of(texts):
    return [[len(word) % 97 for word in text.split()] for text in texts]


def embeddings():
    """What that model has for the bench's texts, each by itself."""
    means = np.array([np.cos((np.array(ids)[:, None] + 1.0) * np.arange(384)).mean(0) for ids in words_of(embed.texts())])
    return means / np.linalg.norm(means, axis=1)[:, None]


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = os.path.join(self.folder, "src", "clattn")
        os.mkdir(os.path.dirname(self.program))
        self.write(self.program, CLATTN)
        os.chmod(self.program, 0o755)
        self.sound = os.path.join(self.folder, "sound.wav")
        with wave.open(self.sound, "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(2 * 16000))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run_bench(self, script, *arguments, modules=None, **environment):
        """Only the packages in `modules`, file -> text, can be imported, beside Python's own and NumPy."""
        for name in ("torch.py", "transformers.py", "tokenizers.py", "safetensors/torch.py", "onnxruntime.py",
                     "faster_whisper.py"):
            self.write(name, "raise ImportError('no %s here')" % name[:-3])
        for name, text in (modules or {}).items():
            self.write(name, text)
        return subprocess.run([sys.executable, "-B", os.path.join(BENCH, script), self.folder, "MODEL", *arguments],
                              env={**os.environ, "PYTHONPATH": self.folder, **environment}, stdout=subprocess.PIPE,
                              text=True)

    def calls(self):
        with open(os.path.join(self.folder, "src", "calls")) as file:
            return file.read().splitlines()

    def transcribe(self, *arguments, **more):
        return self.run_bench("transcribe.py", self.sound, "--rounds", "2", "--threads", "3", *arguments, **more)

    def test_transcribe_beside_its_peer(self):
        done = self.transcribe("--markdown", modules={"faster_whisper.py": FASTER_WHISPER})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 recordings, 2.0 s of sound, 3 threads", done.stdout)
        lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        self.assertEqual([row[0] for row in rows[2:]], ["greedy", "greedy, with words", "5 beams"])
        for _, own, its, ratio, memory, other in rows[2:]:
            self.assertEqual(own, "0.250")
            self.assertLess(float(its), 0.25)
            self.assertAlmostEqual(float(ratio), float(its) / float(own), delta=0.02)
            self.assertRegex(memory + other, r"^\d+ MB\d+ MB$")
        # Three searches, the one that compiles and two rounds of each.
        self.assertEqual(len(self.calls()), 9)
        self.assertEqual(self.calls()[0], "transcribe MODEL %s --json --beams 1 --no-fallback" % self.sound)
        self.assertEqual(self.calls()[-1], "transcribe MODEL %s --json --beams 5 --no-fallback" % self.sound)
        self.assertIn("--words", self.calls()[4])

    def test_transcribe_says_where_they_differ(self):
        done = self.transcribe(modules={"faster_whisper.py": FASTER_WHISPER}, SAYS="other words")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count("different ("), 3)
        self.assertIn("other words", done.stdout)

    def test_transcribe_alone(self):
        done = self.transcribe()
        self.assertIn("(without faster-whisper: ImportError: no faster_whisper here)", done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("0.250 s a second", done.stdout)

    def test_embed_alone(self):
        done = self.run_bench("embed.py", "--rounds", "3")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("(without torch: ImportError: no tokenizers here)", done.stdout)
        self.assertIn("64 texts, 1234 tokens, a device", done.stdout)
        self.assertRegex(done.stdout, r"clattn +250\.0 ms .* over clattn 1\.00")
        self.assertEqual(len(self.calls()), 3)
        self.assertTrue(self.calls()[0].startswith("embed MODEL --json --repeat 5 -- "))

    def embed(self, vectors, *arguments, modules=EMBED_PEERS):
        self.write("src/embeddings", json.dumps(vectors.tolist()))
        return self.run_bench("embed.py", "--rounds", "2", "--threads", "3", *arguments, modules=modules)

    def batches(self, kind):
        with open(os.path.join(self.folder, "batches-" + kind)) as file:
            return [tuple(map(int, line.split())) for line in file]

    def test_embed_beside_its_peers(self):
        done = self.embed(embeddings(), "--onnx", "model.onnx", "--markdown")
        self.assertEqual(done.returncode, 0, done.stdout)
        kinds = ["torch", "torch-by-length", "onnxruntime", "onnxruntime-by-length"]
        said = re.findall(r"^(\S+): vectors differ by at most (\S+), cosines are at least 1\.0{8}$", done.stdout, re.M)
        self.assertEqual([kind for kind, _ in said], kinds)
        for _, difference in said:
            self.assertLess(float(difference), 1e-6)
        self.assertNotIn("DIFFERENT", done.stdout)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:1] == "|"]
        self.assertEqual([row[0] for row in rows], ["what", "---", "clattn", *kinds])
        self.assertEqual(rows[2][1:], ["250.0 ms", "250.0 ms", "1.00"])
        for row in rows[3:]:
            self.assertAlmostEqual(float(row[3]), float(row[1][:-3]) / 250, delta=0.01)
        # Texts as they come, or those of like length together; twice before the first round, five times in each.
        texts = embed.texts()
        lengths = [[len(ids) for ids in words_of(given)] for given in (texts, sorted(texts, key=len, reverse=True))]
        apart = [(16, max(lengths[1][i:i + 16])) for i in range(0, 64, 16)]
        for kind in kinds:
            once = apart if kind.endswith("length") else [(64, max(lengths[0]))]
            self.assertEqual(self.batches(kind), once * (2 + 2 * 5))
        self.assertEqual(self.calls(), ["embed MODEL --json --repeat 5 -- " + " ".join(texts)] * 2)

    def test_embed_beside_onnxruntime_alone(self):
        done = self.embed(embeddings(), "--onnx", "model.onnx",
                          modules={name: text for name, text in EMBED_PEERS.items() if name != "torch.py"})
        self.assertEqual(done.returncode, 0, done.stdout)
        for kind in ("torch", "torch-by-length"):
            self.assertIn("(without %s: ImportError: no torch here)" % kind, done.stdout)
        self.assertRegex(done.stdout, r"onnxruntime-by-length +\d+\.\d ms")
        self.assertNotRegex(done.stdout, r"torch +\d+\.\d ms")

    def test_embed_fails_where_vectors_are_too_different(self):
        for added, status, end in ((9e-6, 0, ""), (1.2e-5, 1, r": TOO DIFFERENT \(limits: 1e-05 and 0\.99999\)")):
            vectors = embeddings()
            vectors[63, 5] += added
            done = self.embed(vectors)
            self.assertEqual(done.returncode, status, done.stdout)
            for kind in ("torch", "torch-by-length"):
                self.assertRegex(done.stdout, r"(?m)^%s: vectors differ by at most %s, cosines are at least 1\.0{8}%s$" %
                                 (kind, "9e-06" if status == 0 else "1.2e-05", end))
            # What was measured is said all the same.
            self.assertRegex(done.stdout, r"clattn +250\.0 ms")

    def test_embed_judges(self):
        good = embeddings()[:5]
        self.assertEqual(embed.judge(good.tolist(), good.astype(np.float32))[0].round(9), 1)
        turned, shorter, nan = good.copy(), good.copy(), good.copy()
        turned[1] = np.roll(good[1], 1)
        cosine, difference = embed.judge(turned, good)
        self.assertAlmostEqual(cosine, good[1] @ np.roll(good[1], 1), places=12)
        self.assertEqual(difference, np.abs(good[1] - np.roll(good[1], 1)).max())
        shorter[2] *= 0.5
        cosine, difference = embed.judge(shorter, good)
        self.assertAlmostEqual(cosine, 1, places=12)
        self.assertEqual(difference, np.abs(good[2]).max() / 2)
        nan[3, 383] = np.nan
        for vectors in (nan, good[:4], [[1.0]]):
            # NaN is within no limit.
            self.assertTrue(np.isnan(embed.judge(vectors, good)).all())


if __name__ == "__main__":
    unittest.main()
