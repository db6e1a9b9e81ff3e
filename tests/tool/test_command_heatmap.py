#!/usr/bin/env python3
"""Heat maps from outside: the page's numbers and the picture's colours against NumPy's float64, hostile labels,
refusals.
test_heatmap_browser.py runs the page in a browser.

    CLATTN=build/src/clattn HEATMAP_SAMPLE=build/tests/tool/heatmap_sample python3 tests/tool/test_command_heatmap.py

The device is whatever the environment chooses.  Needs NumPy and no more."""
import os
import subprocess

import numpy as np

import heatmap_picture
from attention_numpy import attention
from command_support import main, slow, write_safetensors
from heatmap_page import MapTest, probability

SAMPLE = os.environ.get("HEATMAP_SAMPLE", "")
WORST = ["</script><script>alert(1)</script>", "<!--", "<img src=x onerror=alert(1)>", "\"'&amp;{{script}}", "\u202eabc",
         "\x1b[31m\t",
         "日本語 é", "", "a" * 256]


class HeatmapTest(MapTest):
    def arguments(self, q, k=None):
        k = q if k is None else k
        return self.attention_of(q, k, k)

    def picture(self, probabilities, name="map.png"):
        """Fails unless the picture shows (layers, heads, queries, keys); returns the side of its cells."""
        return heatmap_picture.check(self, self.path(name), [probabilities])


class Attention(HeatmapTest):
    def test_page_and_picture(self):
        for shape, keys, options, meaning in (((1, 1, 5, 8), 7, [], {}), ((2, 3, 6, 8), 6, ["--causal"], {"causal": True}),
                                              ((1, 4, 33, 16), 50, ["--scale", "2"], {"scale": 2})):
            q, k = self.normal(*shape), self.normal(shape[0], shape[1], keys, shape[3])
            self.succeed(*self.arguments(q, k), *options, "--attention", self.path("map.html"), "--attention",
                         self.path("map.png"))
            expected = attention(q, k, k, **meaning)[2]
            page = self.page()
            self.same(page, expected)
            self.assertEqual(page.about["title"], "Attention of " + self.path("q.npy"))
            about = page.about["parts"][0]
            self.assertEqual(about["query"], {"name": "query", "count": shape[2], "labels": None, "first": 0, "step": 1,
                                              "unit": ""})
            self.picture(expected)

    @slow
    def test_rows_that_attend_nothing_and_nan(self):
        q, mask = self.normal(1, 2, 5, 8), np.ones((5, 5), bool)
        q[0, 1, 3] = np.nan
        mask[1] = False
        self.succeed(*self.arguments(q, self.normal(1, 2, 5, 8)), "--mask", self.save("m.npy", mask), "--attention",
                     self.path("map.html"), "--attention", self.path("map.png"), "--scores",
                     "probabilities:" + self.path("p.npy"))
        expected = np.load(self.path("p.npy"))
        self.assertTrue(np.all(expected[:, :, 1] == 0) and np.all(np.isnan(expected[0, 1, 3])))
        self.same(self.page(), expected)
        self.picture(expected)
        self.succeed(*self.arguments(q[:, :1]), "--mask", self.save("m.npy", np.zeros((5, 5), bool)), "--attention",
                     self.path("map.html"), "--attention", self.path("map.png"))
        self.same(self.page(), np.zeros((1, 1, 5, 5)))
        self.picture(np.zeros((1, 1, 5, 5)))

    @slow
    def test_pages_and_element_types(self):
        q = self.normal(2, 2, 9, 16)
        self.succeed(*self.arguments(q), "--page-size", "4", "--attention", self.path("map.html"))
        self.same(self.page(), attention(q, q, q)[2])
        half = q.astype(np.float16)
        self.succeed(*self.arguments(half), "--attention", self.path("map.html"))
        self.same(self.page(), attention(half, half, half)[2])

    @slow
    def test_long_axes(self):
        q, k = self.normal(1, 1, 3, 8), self.normal(1, 1, 3000, 8)
        self.succeed(*self.arguments(q, k), "--attention", self.path("map.html"), "--attention", self.path("map.png"))
        expected = attention(q, k, k)[2]
        self.same(self.page(), expected)
        self.assertEqual(self.picture(expected), 1)

    @slow
    def test_report_and_verify(self):
        q = self.normal(1, 2, 6, 8)
        report = self.succeed(*self.arguments(q), "--attention", self.path("map.html"), "--verify", "--json").json()
        self.assertIs(report["verified"], True)
        self.assertIn("scores_max_error", report)
        self.assertEqual(sorted(os.listdir(self.folder)), ["k.npy", "map.html", "o.npy", "q.npy", "v.npy"])

    def test_what_only_plans_and_times(self):
        for command in (["explain"], ["bench", "attention", "--repeat", "1"]):
            self.succeed(*command, "--shape", "1,1,1,8,8,8,8", "--attention", self.path("map.html"))
            self.assertFalse(os.path.exists(self.path("map.html")))

    def test_without_heads_of_their_own(self):
        q = self.normal(1, 6, 8)
        self.succeed(*self.arguments(q), "--layout", "bsd", "--attention", self.path("map.html"))
        self.same(self.page(), attention(q[:, None], q[:, None], q[:, None])[2])


class Mha(HeatmapTest):
    def make(self, x, context=None, heads=3):
        d = x.shape[2]
        weights = {"in_proj_weight": self.normal(3 * d, d) / np.float32(np.sqrt(d)),
                   "out_proj.weight": self.normal(d, d)}
        write_safetensors(self.path("w.safetensors"), weights)
        parts = np.split(weights["in_proj_weight"].astype(np.float64), 3)
        split = lambda y: y.reshape(*y.shape[:2], heads, d // heads).transpose(0, 2, 1, 3)
        source = x if context is None else context
        q, k, v = (split(s.astype(np.float64) @ w.T) for s, w in zip((x, source, source), parts))
        arguments = ["mha", "--weights", self.path("w.safetensors"), "--heads", heads, "-x", self.save("x.npy", x), "-o",
                     self.path("o.npy")]
        return arguments + ([] if context is None else ["--context", self.save("c.npy", context)]), attention(q, k, v)[2]

    def test_self_attention(self):
        arguments, expected = self.make(self.normal(2, 7, 12))
        words = self.write("words.txt", "".join("w%d\n" % i for i in range(7)))
        self.succeed(*arguments, "--attention", self.path("map.html"), "--attention", self.path("map.png"), "--labels",
                     words, "--verify", "--attention-weights", self.path("p.npy"))
        self.close(np.load(self.path("p.npy")), expected)
        page = self.page()
        self.same(page, expected)
        for axis in ("query", "key"):
            self.assertEqual(page.about["parts"][0][axis]["labels"], ["w%d" % i for i in range(7)])
        self.picture(expected)

    @slow
    def test_cross_attention_and_average(self):
        arguments, expected = self.make(self.normal(1, 4, 12), self.normal(1, 4, 12))
        words, others = self.write("w.txt", "a\nb\nc\nd"), self.write("o.txt", "e\r\nf\r\ng\r\nh\r\n")
        self.succeed(*arguments, "--attention", self.path("map.html"), "--labels", words)
        page = self.page()
        self.same(page, expected)
        self.assertEqual(page.about["parts"][0]["query"]["labels"], list("abcd"))
        self.assertIsNone(page.about["parts"][0]["key"]["labels"])
        self.succeed(*arguments, "--average", "--attention", self.path("map.html"), "--labels", words, "--key-labels",
                     others)
        page = self.page()
        self.same(page, expected.mean(axis=1, keepdims=True))
        self.assertEqual(page.about["parts"][0]["key"]["labels"], list("efgh"))

    def test_refusals(self):
        arguments, _ = self.make(self.normal(1, 4, 12))
        self.refuse(2, *arguments, "--average", saying=("--attention-weights", "--attention"))
        self.refuse(2, *arguments, "--labels", "w.txt", saying=("--labels", "--attention"))
        self.refuse(2, *arguments, "--attention", self.path("x.npy"), saying="is the input")
        self.refuse(2, *arguments, "--attention", self.path("map.txt"), saying=(".html", ".png"))


class Labels(HeatmapTest):
    def load(self, lines, ending="\n"):
        q = self.normal(1, 1, len(lines), 8)
        text = self.write("words.txt", b"".join((line if isinstance(line, bytes) else line.encode()) + ending.encode()
                                                for line in lines))
        self.succeed(*self.arguments(q), "--attention", self.path("map.html"), "--labels", text)
        return self.page()

    def test_hostile_text_stays_text(self):
        page = self.load(WORST)
        self.assertEqual(page.about["parts"][0]["query"]["labels"], WORST)
        self.assertEqual(page.about["parts"][0]["key"]["labels"], WORST)

    def test_what_is_not_utf8(self):
        page = self.load([b"\xff\xfe<b>", b"good"])
        self.assertEqual(page.about["parts"][0]["query"]["labels"], ["??<b>", "good"])

    def test_line_ends(self):
        self.assertEqual(self.load(["a", "", "c"], "\r\n").about["parts"][0]["key"]["labels"], ["a", "", "c"])

    def test_hostile_file_name(self):
        os.mkdir(self.path("<script>"))
        name = os.path.join("<script>", "q.npy")
        q = self.save(name, self.normal(1, 1, 3, 8))
        self.succeed("attention", "-q", q, "-k", q, "-v", q, "-o", self.path("o.npy"), "--attention", self.path("map.html"))
        self.assertEqual(self.page().about["title"], "Attention of " + q)

    def test_refusals(self):
        base = self.arguments(self.normal(1, 1, 3, 8)) + ["--attention", self.path("map.html"), "--labels"]
        for text, saying in (("a\nb\n", ("has 2 lines, expected 3", "queries")), ("a\nb\nc\nd\n", "has 4 lines"),
                             ("", "has 0 lines"), ("a\n" * 5000, "or more, expected 3"),
                             ("a\nb\n" + "x" * 257, "line 3 has more than 256 bytes"), (b"a\nb\0\nc", "no text")):
            saying = (saying,) if isinstance(saying, str) else saying
            self.refuse(2, *base, self.write("words.txt", text), saying=("words.txt",) + saying)
        self.refuse(2, *base, self.path("none.txt"), saying="none.txt")
        self.refuse(2, *base, self.folder, saying="is a directory")
        words = self.write("words.txt", "a\nb\nc\n")
        self.refuse(2, *base, words, "--key-labels", self.write("keys.txt", "a\n"), saying=("keys.txt", "keys"))
        self.refuse(2, *self.arguments(self.normal(1, 1, 3, 8)), "--labels", words, saying="without --attention")
        self.refuse(2, *self.arguments(self.normal(1, 1, 3, 8)), "--key-labels", words, saying="--key-labels")
        self.assertFalse(os.path.exists(self.path("map.html")))
        # A label file is an input, which no output may overwrite.
        self.refuse(2, *self.arguments(self.normal(1, 1, 3, 8)), "--attention", self.path("map.html"), "--labels",
                    self.path("map.html"), saying="is the input")


class Refusals(HeatmapTest):
    def test_refusals(self):
        base = self.arguments(self.normal(1, 1, 3, 8))
        html = self.path("map.html")
        self.refuse(2, *base, "--attention", self.path("map.txt"), saying=("map.txt", ".html", ".png"))
        self.refuse(2, *base, "--attention", ".html", saying=".html")
        self.refuse(2, *base, "--attention", self.path("none/map.html"), saying="none/map.html")
        self.refuse(2, *base, "--attention", html, "--attention", html, saying="two outputs")
        self.refuse(2, *base, "--attention", html, "--lse", html, saying="two outputs")
        self.refuse(2, *base, "--attention", html, "--scores", "raw:" + self.path("s.npy"), saying="--scores")
        starts = self.save("c.npy", np.array([0, 3], np.int32))
        self.refuse(2, *base, "--attention", html, "--query-starts", starts, "--key-starts", starts, saying="--query-starts")
        self.refuse(2, *base, "--attention", html, "--ring", saying="--ring")
        self.refuse(2, *self.arguments(self.normal(0, 1, 3, 8)), "--attention", html, saying="at least one")
        self.assertFalse(os.path.exists(html))
        self.assertFalse(os.path.exists(self.path("o.npy")))

    def test_refusals_of_size(self):
        """These are refused before anything is computed or the device is queried."""
        long, longer = self.normal(1, 1, 4096, 1), self.normal(1, 1, 4097, 1)
        self.refuse(2, *self.arguments(longer, long), "--attention", self.path("map.html"), "--device", "nonsense",
                    saying=("map.html", "4097 x 4096", "at most 16777216"))
        self.refuse(3, *self.arguments(long, long), "--attention", self.path("map.html"), "--device", "nonsense")
        # A row of a million heads with their rules is wider than a PNG file may be.
        many = self.normal(2, 400000, 1, 1)
        self.refuse(2, *self.arguments(many), "--attention", self.path("map.png"), "--device", "nonsense",
                    saying=("map.png", "pixels", "1048575"))

    def test_refusals_while_writing(self):
        q = self.normal(1, 1, 3, 8)
        for name in ("full.html", "full.png"):
            os.symlink("/dev/full", self.path(name))
            self.refuse(1, *self.arguments(q), "--attention", self.path(name), saying=name)


class Sample(HeatmapTest):
    """A map has two parts, which no command makes yet."""

    def run_sample(self, name):
        done = subprocess.run([SAMPLE, self.path(name)], stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def parts(self):
        """Returns what the two parts of the map hold."""
        own, cross = (probability(part, *np.ogrid[:layers, :3, :5, :keys]) for part, layers, keys in ((0, 2, 5), (1, 1, 40)))
        cross[0, 2, 1, 4] = np.nan
        return own, cross

    def test_sample_page(self):
        self.run_sample("map.html")
        page = self.page()
        self.assertEqual(page.about["title"], "A sample <b>of two parts</b>")
        own, cross = page.about["parts"]
        self.assertEqual((own["name"], own["layerName"], cross["name"]), ("self", "layer", "cross"))
        self.assertEqual(own["key"]["labels"][2:], ["</script><script>document.title='run'</script>", "??", ""])
        self.assertEqual(cross["key"], {"name": "time", "count": 40, "labels": None, "first": 0.5, "step": 0.02,
                                        "unit": " s"})
        for part, expected in enumerate(self.parts()):
            self.same(page, expected, part)

    def test_sample_picture(self):
        self.run_sample("map.png")
        self.assertEqual(heatmap_picture.check(self, self.path("map.png"), self.parts()), 384 // 40)


if __name__ == "__main__":
    main()
