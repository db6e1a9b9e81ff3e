#!/usr/bin/env python3
"""bench/transcribe.py and bench/embed.py: what they run and print, with stand-ins for the command and the peers."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import wave

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench")

CLATTN = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
embed*) echo '{"seconds_median": 0.25, "tokens": 1234, "device": "a device", "embeddings": [[1.0]]}' ;;
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
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def run_bench(self, script, *arguments, modules="", **environment):
        """Only the packages in `modules` can be imported, beside Python's own and NumPy."""
        for name in ("torch", "transformers", "tokenizers", "onnxruntime", "faster_whisper"):
            given = modules if name == "faster_whisper" else ""
            self.write(name + ".py", given or "raise ImportError('no %s here')" % name)
        return subprocess.run([sys.executable, "-B", os.path.join(BENCH, script), self.folder, "MODEL", *arguments],
                              env={**os.environ, "PYTHONPATH": self.folder, **environment}, stdout=subprocess.PIPE,
                              text=True)

    def calls(self):
        with open(os.path.join(self.folder, "src", "calls")) as file:
            return file.read().splitlines()

    def transcribe(self, *arguments, **more):
        return self.run_bench("transcribe.py", self.sound, "--rounds", "2", "--threads", "3", *arguments, **more)

    def test_transcribe_beside_its_peer(self):
        done = self.transcribe("--markdown", modules=FASTER_WHISPER)
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
        done = self.transcribe(modules=FASTER_WHISPER, SAYS="other words")
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


if __name__ == "__main__":
    unittest.main()
