"""Reads a heat map's page without running it: its elements, and the numbers that it holds."""
import base64
import hashlib
import html.parser
import json
import re

import numpy as np

from command_support import CommandTest


class Page(html.parser.HTMLParser):
    """elements: [(name, {attribute: value}), ...]; texts: the contents of the elements that hold plain text alone, by
    name (style), id (scripts with one) or "script"."""

    def __init__(self, data):
        super().__init__(convert_charrefs=True)
        self.data = data
        self.elements, self.texts, self.last = [], {}, None
        self.feed(data.decode())
        self.close()
        self.about = json.loads(self.texts["about"])

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        self.last = attributes.get("id", tag) if tag in ("script", "style") else None

    def handle_data(self, data):
        if self.last:
            assert self.last not in self.texts, self.last
            self.texts[self.last] = data

    def handle_endtag(self, tag):
        self.last = None

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def cells(self, part, layer, head):
        """Returns probabilities as the page shows them, and the largest."""
        name = "cells-%d-%d-%d" % (part, layer, head)
        largest = float(next(a for a in self.named("script") if a.get("id") == name)["data-largest"])
        about = self.about["parts"][part]
        cells = np.frombuffer(base64.b64decode(self.texts[name], validate=True), "<u2")
        cells = cells.reshape(about["query"]["count"], about["key"]["count"])
        return np.where(cells == 65535, np.nan, cells * (largest / 65534)), largest

    def picture(self, part):
        """Returns the pixels (height, width, 3) of which keys are patches."""
        about = self.about["parts"][part]["picture"]
        pixels = np.frombuffer(base64.b64decode(self.texts["picture-%d" % part], validate=True), np.uint8)
        return pixels.reshape(about["height"], about["width"], 3)

    def check(self, test):
        """Checks what every page must have, whatever it shows."""
        test.assertTrue(self.data.startswith(b"<!DOCTYPE html>\n"))
        test.assertEqual(self.named("html"), [{"lang": "en"}])
        # The page loads nothing: its only address is the empty icon, and its policy allows none.
        for _, attributes in self.elements:
            test.assertFalse({"src", "srcset", "action", "style", "background"} & set(attributes), attributes)
            test.assertFalse([name for name in attributes if name.startswith("on")], attributes)
        test.assertEqual([a["href"] for _, a in self.elements if "href" in a], ["data:,"])
        test.assertNotRegex(self.texts["style"], r"url\(|@import|http")
        test.assertNotRegex(self.texts["script"],
                            r"http|fetch|XMLHttp|import\(|innerHTML|outerHTML|insertAdjacent|\.write\(|eval|Function\(")
        policy = next(a["content"] for a in self.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        digest = lambda text: "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        test.assertEqual(rules, {"default-src": "'none'", "script-src": digest(self.texts["script"]),
                                 "style-src": digest(self.texts["style"]), "img-src": "data:", "base-uri": "'none'",
                                 "form-action": "'none'"})
        # One script runs; the others hold data.
        test.assertEqual([a for a in self.named("script") if "type" not in a], [{}])
        parts = self.about["parts"]
        names = ["cells-%d-%d-%d" % (p, layer, head) for p, part in enumerate(parts) for layer in range(part["layers"])
                 for head in range(part["heads"])]
        names += ["picture-%d" % p for p, part in enumerate(parts) if part["picture"]]
        test.assertEqual([a.get("id") for a in self.named("script")], ["about"] + names + [None])
        test.assertNotIn("<", self.texts["about"])
        # Every control has a name, and the map has a description.
        ids = [a["id"] for _, a in self.elements if "id" in a]
        test.assertEqual(len(ids), len(set(ids)))
        for tag, attributes in self.elements:
            for reference in ("aria-describedby", "aria-activedescendant"):
                if reference in attributes:
                    test.assertIn(attributes[reference], ids)
            if tag == "button":
                test.assertTrue("aria-label" in attributes or attributes["id"] == "fit")
        test.assertEqual(len(self.named("label")), len(self.named("select")) + len(self.named("input")))
        grid = next(a for a in self.named("div") if a.get("role") == "grid")
        test.assertEqual(grid["tabindex"], "0")
        test.assertTrue(re.search(r":focus-visible *\{[^}]*outline", self.texts["style"]))
        test.assertIn("prefers-color-scheme: dark", self.texts["style"])
        test.assertEqual(len(self.named("noscript")), 1)


def probability(part, layer, head, i, j):
    """Returns the probabilities that tests/tool/programs/heatmap_sample.c writes."""
    return (7 * part + 5 * layer + 3 * head + 11 * i + 13 * j) % 17 / 64


class MapTest(CommandTest):
    def page(self):
        page = Page(self.read("map.html"))
        page.check(self)
        return page

    def same(self, page, probabilities, part=0, error=1e-5):
        """Fails unless a part of the page holds (layers, heads, queries, keys)."""
        about = page.about["parts"][part]
        self.assertEqual((about["layers"], about["heads"], about["query"]["count"], about["key"]["count"]),
                         probabilities.shape)
        for layer in range(about["layers"]):
            for head in range(about["heads"]):
                p = probabilities[layer, head]
                shown, largest = page.cells(part, layer, head)
                np.testing.assert_array_equal(np.isnan(shown), np.isnan(p))
                kept = ~np.isnan(p)
                self.assertAlmostEqual(largest, max(0, np.max(p[kept], initial=0)), delta=error)
                self.assertLessEqual(np.max(np.abs(shown[kept] - p[kept]), initial=0), largest / 131068 + error)
