#!/usr/bin/env python3
"""examples/translation/corpus.py on packages that the test makes: which pairs of lines it makes of .mo files, and that they are the same
bytes each time.

    python3 tests/examples/test_corpus.py [-k PATTERN ...]        needs dpkg-deb"""
import contextlib
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "translation"))

import corpus  # noqa: E402

# Messages of each package, as a .mo file has them.
MESSAGES = {
    "first": {
        "": "Content-Type: text/plain; charset=UTF-8\n",  # the header
        "_Open File...": "Datei ö_ffnen …",
        "menu\4Save the file": "Datei speichern",
        "%d file\0%d files": "%d Datei\0%d Dateien",
        "<b>Black &amp; white</b>\n  picture": "<b>Schwarz &amp; weißes</b> Bild",
        "max_size is %1$s of {name}": "max_size ist %1$s von {name}",
        "Firefox": "Firefox",
        "12 + 34": "34 + 12",
        "Yes": "Ein sehr langer Text, der mit dem kurzen nichts zu tun haben kann",
        "too many words" * 40: "zu viele Wörter",
    },
    "second": {"Window": "Rahmen", "Open File...": "Datei öffnen …"},
    "third": {"Window": "Fenster", "&Window": "Fenster"},
}
PAIRS = {
    "Open File...": "Datei öffnen …", "Save the file": "Datei speichern", "%d file": "%d Datei", "%d files": "%d Dateien",
    "Black & white picture": "Schwarz & weißes Bild", "max_size is %1$s of {name}": "max_size ist %1$s von {name}",
    "Window": "Fenster",
}


def mo_file(messages, order):
    """A .mo file of the byte order '<' or '>'."""
    tables, texts, at = b"", b"", 28 + 16 * len(messages)
    for side in zip(*messages.items()):
        for text in side:
            data = text.encode()
            tables += struct.pack(order + "II", len(data), at + len(texts))
            texts += data + b"\0"
    head = struct.pack(order + "7I", 0x950412de, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0)
    return head + tables + texts


class Corpus(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.folder / "cache"
        self.cache.mkdir()
        for (name, messages), order in zip(MESSAGES.items(), "<><"):
            tree = self.folder / name
            files = tree / "usr/share/locale/de/LC_MESSAGES"
            files.mkdir(parents=True)
            (files / (name + ".mo")).write_bytes(mo_file(messages, order))
            (tree / "DEBIAN").mkdir()
            (tree / "DEBIAN/control").write_text("Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: nobody <a@b>\n"
                                                 "Description: messages\n" % name)
            subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(self.cache / (name + "_1_all.deb"))],
                           check=True, stdout=subprocess.DEVNULL)

    def make(self, name):
        """The files of a corpus by their names."""
        out = self.folder / name
        with mock.patch.object(corpus, "PACKAGES", dict.fromkeys(MESSAGES, "GPL-3+")), \
                mock.patch.object(sys, "argv", ["corpus.py", str(out), "--cache", str(self.cache)]), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(corpus.main(), 0)
        return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}

    def test_pairs(self):
        files = self.make("out")
        found = {}
        for name in "train", "valid", "test":
            sides = [files["%s.%s" % (name, language)].splitlines() for language in ("en", "de")]
            self.assertEqual(len(sides[0]), len(sides[1]))
            self.assertEqual([corpus.set_of(english) for english in sides[0]], [name] * len(sides[0]))
            found.update(zip(*sides))
        self.assertEqual(found, PAIRS)
        self.assertEqual(files["sources.txt"].splitlines(), ["first_1_all.deb\tGPL-3+\t6", "second_1_all.deb\tGPL-3+\t1",
                                                             "third_1_all.deb\tGPL-3+\t0"])

    def test_same_bytes(self):
        self.assertEqual(self.make("one"), self.make("other"))

    def test_sets(self):
        """Case and punctuation choose no other set, and sets have their shares."""
        self.assertEqual(corpus.set_of("Open file"), corpus.set_of("_Open File..."))
        sets = [corpus.set_of("message %d" % n) for n in range(5000)]
        for name, share in ("train", 0.97), ("valid", 0.01), ("test", 0.02):
            self.assertAlmostEqual(sets.count(name) / len(sets), share, delta=0.01)


if __name__ == "__main__":
    unittest.main(verbosity=2)
