#!/usr/bin/env python3
"""Heat maps in a real browser: what the canvas, the words and the table show, by keys, mouse and pickers, and that
nothing
is loaded, run or complained of.  Needs NumPy and a headless Chromium (Debian: chromium-headless-shell); without one it
exits with 77.  Screenshots are left in the folder SCREENSHOTS, if that is set.

    CLATTN=build/src/clattn HEATMAP_SAMPLE=build/tests/tool/heatmap_sample python3 tests/tool/test_heatmap_browser.py"""
import os
import subprocess
import sys

import numpy as np

import devtools
import heatmap_picture
import png_pictures as png
from attention_numpy import attention
from command_support import CommandTest, main
from heatmap_page import probability
from test_command_embed import EmbedTest, bert, cases
from test_command_embed_image import ImageTest

SAMPLE = os.environ.get("HEATMAP_SAMPLE", "")
LIGHT = heatmap_picture.RAMP
DARK = np.array([(20, 23, 28), (40, 60, 110), (60, 125, 170), (140, 195, 170), (250, 240, 150)], float)


def colour(ramp, part):
    place = part * 4
    low = min(int(place), 3)
    return ramp[low] + (ramp[low + 1] - ramp[low]) * (place - low)


class BrowserTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = devtools.Browser(devtools.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def open(self, path):
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        self.browser.open(path)
        self.opened = "file://" + path
        self.quiet()

    def quiet(self):
        """Fails if the console has messages or anything except the page was requested."""
        self.assertEqual(self.browser.ask("document.readyState"), "complete")
        self.assertEqual(self.browser.console, [])
        self.assertEqual(self.browser.requests, [self.opened])

    def sample(self):
        subprocess.run([SAMPLE, self.path("map.html")], check=True)
        self.open(self.path("map.html"))

    def text(self, name):
        return self.browser.ask("document.getElementById(%r).textContent" % name)

    def readout(self):
        """Returns (query, key, probability) as the page shows them."""
        query, key, value = self.browser.ask("(({query, key, value}) => [query, key, value])("
                                             "document.getElementById('readout').dataset)")
        return int(query), int(key), float(value)

    def keys(self, *names, **modifiers):
        for name in names:
            self.browser.key(name, **modifiers)

    def focus(self):
        """Moves to a control by the keyboard, as someone without a mouse does."""
        for _ in range(20):
            if self.browser.ask("document.activeElement.id") == "map":
                return
            self.browser.key("Tab")
        self.fail("Tab does not lead to the map")

    def choose(self, name, value):
        self.browser.ask("((s) => { s.value = %r; s.dispatchEvent(new Event('change')); })(document.getElementById(%r))" %
                         (str(value), name))

    def geometry(self):
        """Returns x and y of the canvas's corner in the window, left, top and size of the cells, and the scroll."""
        return self.browser.ask("(() => { const c = document.getElementById('canvas'), b = c.getBoundingClientRect(), m = "
                                "document.getElementById('map'); return [b.x, b.y, Number(c.dataset.left), "
                                "Number(c.dataset.top), Number(c.dataset.size), m.scrollLeft, m.scrollTop]; })()")

    def middle(self, query, key):
        x, y, left, top, size, across, down = self.geometry()
        return x + left + (key + 0.5) * size - across, y + top + (query + 0.5) * size - down

    def shot(self, name, *size):
        data = self.browser.screenshot(*size)
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            with open(os.path.join(folder, name + ".png"), "wb") as file:
                file.write(data)
        return png.decode(data).astype(float)

    def seen(self, pixels, query, key):
        """Returns the colour of a cell in a screenshot, taken beside its middle, where a number may be."""
        x, y = self.middle(query, key)
        size = self.geometry()[4]
        return pixels[int(y - 0.35 * size), int(x - 0.35 * size), :3]


class Sample(BrowserTest):
    def test_words_and_keys(self):
        self.sample()
        self.assertEqual(self.text("title"), "A sample <b>of two parts</b>")
        self.assertEqual(self.browser.ask("document.title"), "A sample <b>of two parts</b>")
        self.focus()
        self.assertEqual(self.readout(), (0, 0, 0))
        self.keys("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft")
        self.assertEqual(self.readout()[:2], (2, 1))
        self.assertAlmostEqual(self.readout()[2], probability(0, 0, 0, 2, 1), delta=1e-5)
        words = "layer 0, head 0, word 2 “</script><script>document.title='run'</script>” attends to word 1 “be”: 0.0156"
        self.assertEqual(self.text("readout"), words)
        self.keys("End")
        self.assertEqual(self.readout()[:2], (2, 4))
        self.keys("End", control=True)
        self.assertEqual(self.readout()[:2], (4, 4))
        self.keys("ArrowDown", "ArrowRight")  # the keys stop at the edge
        self.assertEqual(self.readout()[:2], (4, 4))
        self.keys("PageUp")
        self.assertEqual(self.readout()[:2], (0, 4))
        self.keys("PageDown", "Home")
        self.assertEqual(self.readout()[:2], (4, 0))
        self.keys("Home", control=True)
        self.assertEqual(self.readout()[:2], (0, 0))
        self.quiet()

    def test_pickers_and_their_keys(self):
        self.sample()
        for layer in range(2):
            for head in range(3):
                self.choose("layer", layer)
                self.choose("head", head)
                self.assertAlmostEqual(self.readout()[2], probability(0, layer, head, 0, 0), delta=1e-5)
                self.assertIn("layer %d, head %d, " % (layer, head), self.text("readout"))
        self.choose("head", "mean")
        mean = np.mean([probability(0, 1, head, 0, 0) for head in range(3)])
        self.assertAlmostEqual(self.readout()[2], mean, delta=1e-5)
        self.assertIn("mean of the heads", self.text("readout"))
        shown = lambda: [self.browser.ask("document.getElementById(%r).value" % name) for name in ("layer", "head")]
        self.keys("h")
        self.assertEqual(shown(), ["1", "0"])
        self.keys("h", "l")
        self.assertEqual(shown(), ["0", "1"])
        self.assertAlmostEqual(self.readout()[2], probability(0, 0, 1, 0, 0), delta=1e-5)
        self.keys("H", "H", "L", shift=True)
        self.assertEqual(shown(), ["1", "mean"])
        self.choose("part", 1)
        self.assertEqual(self.browser.ask("['layer-field', 'head-field', 'part-field'].map("
                                          "(id) => document.getElementById(id).hidden)"), [True, False, False])
        self.choose("head", 2)
        self.focus()
        self.keys("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight")
        self.assertAlmostEqual(self.readout()[2], probability(1, 0, 2, 1, 3), delta=1e-5)
        self.assertIn("word 1 “be” attends to time 0.56 s: ", self.text("readout"))
        self.keys("ArrowRight")
        self.assertTrue(np.isnan(self.readout()[2]))
        self.assertIn("not a number", self.text("readout"))
        self.quiet()

    def test_hostile_labels_stay_text(self):
        self.sample()
        self.focus()
        self.keys("ArrowDown", "ArrowDown")
        self.assertIn("</script>", self.text("top-of"))
        self.assertIn("</script>", self.text("top-rows"))
        self.assertNotEqual(self.browser.ask("document.title"), "run")
        self.assertEqual(self.browser.ask("document.querySelectorAll('b, img, iframe, object, embed').length"), 0)
        self.assertEqual(self.browser.ask("document.querySelectorAll('script:not([type])').length"), 1)
        self.quiet()
        # A script that got into the markup anyway would not run.
        self.browser.ask("(() => { const s = document.createElement('script'); s.textContent = 'document.title = \"run\"'; "
                         "document.body.append(s); const i = document.createElement('img'); document.body.append(i); "
                         "i.setAttribute('onerror', 'document.title = \"run\"'); i.src = 'data:,'; })()")
        self.browser.ask("new Promise((done) => setTimeout(done, 200))")
        self.assertNotEqual(self.browser.ask("document.title"), "run")
        self.assertIn("Content Security Policy", " ".join(self.browser.console))

    def test_assistive_technology(self):
        self.sample()
        self.focus()
        self.keys("ArrowRight", "ArrowDown")
        tree = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]]
        self.assertIn(("grid", "Heat map, word by word, layer 0, head 0"), named)
        self.assertIn(("gridcell", "word 1 “be”, word 1 “be”: %.4f" % probability(0, 0, 0, 1, 1)), named)
        for name in ("part", "layer", "head"):
            self.assertTrue([1 for role, text in named if role == "combobox" and text.strip() == name], (name, named))
        for role, text in named:
            self.assertTrue(text.strip() or role not in ("button", "combobox", "checkbox", "grid", "gridcell"), named)
        grid = self.browser.ask("((g, r, c) => [g.getAttribute('aria-rowcount'), g.getAttribute('aria-colcount'), "
                                "r.getAttribute('aria-rowindex'), c.getAttribute('aria-colindex')])("
                                "...['map', 'row', 'cell'].map((id) => document.getElementById(id)))")
        self.assertEqual([int(number) for number in grid], [5, 5, 2, 2])
        outline = self.browser.ask("((s) => [s.outlineStyle, s.outlineWidth])("
                                   "getComputedStyle(document.getElementById('map')))")
        self.assertEqual(outline, ["solid", "3px"])


class Maps(BrowserTest):
    def make(self, queries, keys, heads=2, labels=None):
        q, k = self.normal(1, heads, queries, 8), self.normal(1, heads, keys, 8)
        more = []
        if labels:
            more = ["--labels", self.write("words.txt", "".join(word + "\n" for word in labels))]
        self.succeed(*self.attention_of(q, k, k), "--attention", self.path("map.html"), *more)
        self.open(self.path("map.html"))
        return attention(q, k, k)[2][0]

    def test_colours_of_every_cell(self):
        expected = self.make(6, 7)
        for scheme, ramp in (("light", LIGHT), ("dark", DARK)):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            for head in range(2):
                self.choose("head", head)
                for full in ("head", "query", "one"):
                    self.choose("full", full)
                    for root in (False, True):
                        self.browser.ask("((b) => { if (b.checked !== %s) b.click(); })(document.getElementById('root'))" %
                                         str(root).lower())
                        if root and full != "head":
                            continue
                        name = "%s-%d-%s-%s" % (scheme, head, full, root)
                        pixels = self.shot("cells-" + name, 420, 460)
                        for i in range(6):
                            most = {"head": expected[head].max(), "query": expected[head, i].max(), "one": 1}[full]
                            for j in range(7):
                                part = min(expected[head, i, j] / most, 1)
                                wanted = colour(ramp, np.sqrt(part) if root else part)
                                # The limit is a 256th of the scale, and rounding.
                                self.assertLessEqual(np.max(np.abs(self.seen(pixels, i, j) - wanted)), 2, (name, i, j))
        self.assertEqual(pixels[-5, 5, :3].tolist(), [20, 23, 28])  # dark background
        self.quiet()

    def test_mouse(self):
        expected = self.make(6, 7)
        self.browser.mouse(*self.middle(4, 2))
        query, key, value = self.readout()
        self.assertEqual((query, key), (4, 2))
        self.assertAlmostEqual(value, expected[0, 4, 2], delta=2e-5)
        self.assertIn("query 0", self.text("top-of"))  # the query is hovered and not chosen
        self.browser.mouse(*self.middle(5, 6), click=True)
        self.assertIn("query 5", self.text("top-of"))
        self.browser.mouse(2, 2)
        self.assertEqual(self.readout()[:2], (5, 6))
        self.quiet()

    def test_table(self):
        expected = self.make(4, 15)
        self.focus()
        self.keys("ArrowDown")
        rows = self.browser.ask("[...document.querySelectorAll('#top-rows tr')].map("
                                "(r) => [...r.cells].map((c) => c.textContent))")
        order = np.argsort(-expected[0, 1], kind="stable")[:10]
        self.assertEqual([row[1] for row in rows], ["key %d" % key for key in order])
        for row, key in zip(rows, order):
            self.assertAlmostEqual(float(row[2]), expected[0, 1, key], delta=6e-5)
        self.quiet()

    def test_labels_in_sight(self):
        """The margins have labels, whatever the size of the cells."""
        self.make(60, 60, labels=["word%d" % i for i in range(60)])
        for presses in (0, 4, 4):
            self.keys(*["+"] * presses)
            x, y, left, top, size, _, _ = self.geometry()
            pixels = self.shot("labels-%d" % round(size), 480, 560)[..., :3].mean(axis=2)
            x, y, left, top = (int(round(each)) for each in (x, y, left, top))
            rows = (pixels[y + top:y + top + 300, x + 2:x + left - 4] < 190).any(axis=1)
            columns = (pixels[y + 2:y + top - 4, x + left:x + left + 300] < 190).any(axis=0)
            lines = lambda ink: np.count_nonzero(np.diff(ink.astype(int)) == 1)
            # There is a label every 14 pixels or every cell, whichever is more; gaps between letters may split a line.
            for ink in (rows, columns):
                self.assertGreaterEqual(lines(ink), 300 / max(28, size) - 2)
                self.assertFalse(ink.all(), "labels run into each other")
        self.quiet()

    def test_long_axes(self):
        expected = self.make(5, 3000, heads=1)
        self.focus()
        self.keys("End", "ArrowDown")
        query, key, value = self.readout()
        self.assertEqual((query, key), (1, 2999))
        self.assertAlmostEqual(value, expected[0, 1, 2999], delta=2e-5)
        before = self.geometry()[4]
        self.keys(*["+"] * 12)
        x, y, left, top, size, across, _ = self.geometry()
        self.assertGreater(size, 12 * before)
        # The chosen cell is visible, and only visible cells are drawn.
        place = self.middle(1, 2999)
        box = self.browser.ask("((b) => [b.x, b.y, b.right, b.bottom])("
                               "document.getElementById('map').getBoundingClientRect())")
        self.assertTrue(box[0] < place[0] < box[2] and box[1] < place[1] < box[3], (place, box))
        self.assertLess(self.browser.ask("document.getElementById('canvas').width"), 1200)
        pixels = self.shot("long")
        wanted = colour(LIGHT, expected[0, 1, 2999] / expected[0].max())
        self.assertLessEqual(np.max(np.abs(self.seen(pixels, 1, 2999) - wanted)), 2)
        self.keys("0", "Home")
        self.assertEqual(self.geometry()[5], 0)
        self.quiet()

    def test_small_window(self):
        self.make(30, 30)
        self.browser.call("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=2, mobile=True)
        self.browser.open(self.path("map.html"))
        wide = self.browser.ask("[document.documentElement.scrollWidth, window.innerWidth]")
        self.assertLessEqual(wide[0], wide[1])
        self.shot("small")
        self.browser.call("Emulation.clearDeviceMetricsOverride")
        self.quiet()


class Models(BrowserTest, EmbedTest):
    def test_a_model_run(self):
        """clattn embed makes a part of each text, with layers and heads to choose, and its tokens as words."""
        self.make(num_hidden_layers=3)
        texts = ["Attention is all you need; don't you agree?", "</script><b>"]
        found = dict(cases())
        self.succeed("embed", self.model, "--attention", self.path("map.html"), "--", *texts)
        expected = []
        bert(self.weights, self.config, found[texts[0]], probabilities=expected)
        self.open(self.path("map.html"))
        self.assertEqual(self.text("title"), "Self-attention of " + self.model)
        self.choose("layer", 2)
        self.choose("head", 3)
        self.focus()
        self.keys("ArrowDown", "ArrowDown", "ArrowRight")
        self.assertEqual(self.readout()[:2], (2, 1))
        self.assertAlmostEqual(self.readout()[2], expected[2][3, 2, 1], delta=2e-5)
        self.assertRegex(self.text("readout"), r"^layer 2, head 3, token 2 “\S+” attends to token 1 “\S+”: 0\.\d+$")
        pixels = self.shot("model")
        wanted = colour(LIGHT, expected[2][3, 4, 5] / expected[2][3].max())
        self.assertLessEqual(np.max(np.abs(self.seen(pixels, 4, 5) - wanted)), 2)
        self.choose("part", 1)
        self.keys("Home", "ArrowRight")
        self.assertIn("“<”", self.text("readout"))
        self.quiet()


class Pictures(BrowserTest, ImageTest):
    """clattn embed-image: what patches attend to, over the picture."""

    def over(self):
        """Returns the pixels of the canvas (height, width, 3), read from a copy of it."""
        size = self.browser.ask("((c) => [c.height, c.width])(document.getElementById('over'))")
        pixels = self.browser.ask("((c) => { const copy = new OffscreenCanvas(c.width, c.height).getContext('2d'); "
                                  "copy.drawImage(c, 0, 0); return [...copy.getImageData(0, 0, c.width, c.height).data]; })("
                                  "document.getElementById('over'))")
        return np.array(pixels).reshape(*size, 4)[..., :3]

    def check(self, seen, row):
        """Fails unless the canvas shows the picture under the colours of these probabilities of the 4 x 4 patches, but for
        the outline of the query's patch."""
        tint = np.array([colour(DARK, part) for part in row / row.max()]).reshape(4, 4, 3).repeat(8, 0).repeat(8, 1)
        off = np.max(np.abs(self.over() - (0.4 * seen + 0.6 * tint)), axis=2)
        inner = off.reshape(4, 8, 4, 8)[:, 2:6, :, 2:6]
        self.assertLessEqual(np.max(inner), 2)

    def test_over_the_picture(self):
        self.make("vit")
        pixels = self.picture(32, 32)
        self.embed(self.save_pictures([pixels]), "--attention", self.path("map.html"))
        expected = []
        self.model.vector(pixels, expected)
        p, seen = expected[0], self.model.levels(pixels)
        self.open(self.path("map.html"))
        self.check(seen, p[0, 0, 1:])
        self.assertIn("What position 0 “class token” attends to, over the picture", self.text("picture-of"))
        self.choose("head", "mean")
        self.check(seen, p.mean(0)[0, 1:])
        x, y, wide, high = self.browser.ask("((b) => [b.x, b.y, b.width, b.height])("
                                            "document.getElementById('over').getBoundingClientRect())")
        self.browser.mouse(x + wide * 0.6, y + high * 0.3, click=True) # row 1, column 2
        self.assertEqual(self.readout()[0], 1 + 4 + 2)
        self.check(seen, p.mean(0)[7, 1:])
        self.assertIn("“row 1, column 2”", self.text("picture-of"))
        self.shot("picture")
        self.quiet()


if __name__ == "__main__":
    if devtools.find() is None:
        print("no browser (Debian: chromium-headless-shell): heat maps were not looked at")
        sys.exit(77)
    main()
