"""The ten lines of python/README.md, by the interpreter of a virtual environment that has the wheel and what pip installs with it.

CLATTN_MINILM and WHISPER_MODEL are the folders of the pretrained models."""

import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

import clattn
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "speech"))
import clips
import peer

RECORDING = "sense-0890"


class Readme(unittest.TestCase):
    def test_environment(self):
        """Nothing comes from elsewhere than the environment."""
        self.assertNotEqual(sys.prefix, sys.base_prefix)
        self.assertNotIn("PYTHONPATH", os.environ)
        for module in (clattn, np):
            self.assertTrue(pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__)

    def test_ten_lines(self):
        """Sentences' vectors are PyTorch's, and what is said is what faster-whisper has heard."""
        text = (TESTS.parent / "python/README.md").read_text("utf-8")
        [code] = re.findall(r"^```python\n(import clattn\n.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(code.count("\n"), 10)
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, variable in {"all-MiniLM-L6-v2": "CLATTN_MINILM", "whisper-tiny.en": "WHISPER_MODEL"}.items():
            (folder / name).symlink_to(os.environ[variable])
        made = clips.clips(folder)
        if RECORDING not in made:
            self.skipTest("no recordings here")
        pathlib.Path(made[RECORDING]).rename(folder / "speech.wav")
        expected = json.loads((TESTS / "speech/expected.json").read_text("utf-8"))[RECORDING]
        self.assertEqual(peer.digest(folder / "speech.wav"), expected["sha256"])
        names, said = {}, io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(said):
            exec(compile(code, "README.md", "exec"), names)  # noqa: S102
        np.testing.assert_allclose(names["vectors"], np.load(TESTS / "embed/vectors.npy")[:2], atol=2e-6)
        cosine, *lines = said.getvalue().splitlines()
        self.assertGreater(float(cosine), 0.7)
        for line, found, segment in zip(lines, names["transcript"].segments, expected["beams"], strict=True):
            self.assertIn(segment["text"], line)
            self.assertEqual("".join(word.word for word in found.words), segment["text"])


if __name__ == "__main__":
    unittest.main()
