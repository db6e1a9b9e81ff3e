#!/usr/bin/env python3
"""A clattn that was built without libraries that it can do without (-Dpng, -Dutf8proc, -Dspeech,
-Dsentencepiece=disabled): what needs one says which, with exit status 2, before it looks at files or devices; all else works.

    CLATTN=build/src/clattn python3 tests/tool/test_without.py"""
import os

from command_support import CommandTest, main


class Without(CommandTest):
    def test_what_is_missing_is_named(self):
        for command, library, option in ((["embed", "nowhere", "text"], "utf8proc", "-Dutf8proc=enabled"),
                                         (["embed", "--help"], "utf8proc", "-Dutf8proc=enabled"),
                                         (["transcribe", "nowhere", "nothing.wav"], "libsndfile, soxr, FFTW or zlib",
                                          "-Dspeech=enabled"),
                                         (["train", "--text", "t", "--out", "m"], "sentencepiece", "libsentencepiece-dev"),
                                         (["translate", "nowhere", "text"], "sentencepiece", "libsentencepiece-dev"),
                                         (["generate", "nowhere"], "sentencepiece", "-Dsentencepiece=enabled"),
                                         (["denoise", "nothing.png", "out.png"], "libpng", "-Dpng=enabled"),
                                         (["image", "nowhere", "nothing.png"], "libpng", "-Dpng=enabled"),
                                         (["embed-image", "nowhere", "nothing.png"], "libpng", "-Dpng=enabled")):
            with self.subTest(command):
                self.refuse(2, *command, saying=(command[0] + ": this clattn was built without " + library, option))

    def test_heat_maps(self):
        """Pages need no library; pictures name the one that they need before any work."""
        q = self.save("q.npy", self.normal(1, 2, 5, 8))
        attention = ["attention", "-q", q, "-k", q, "-v", q, "-o", self.path("o.npy"), "--attention"]
        self.succeed(*attention, self.path("map.html"))
        self.assertTrue(os.path.getsize(self.path("map.html")) > 1000)
        os.remove(self.path("o.npy"))
        self.refuse(2, *attention, self.path("map.png"), saying=("map.png", "built without libpng", ".html"))
        self.assertFalse(os.path.exists(self.path("o.npy")))


if __name__ == "__main__":
    main()
