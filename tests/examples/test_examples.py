#!/usr/bin/env python3
"""The teaching examples: what they print and draw, against NumPy's float64.

    python3 tests/examples/test_examples.py EXAMPLES [-k PATTERN ...]        EXAMPLES: the build's folder examples/

The device is whatever the environment chooses.  Needs NumPy and no more."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import numpy as np

EXAMPLES = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "."


def run(name, *arguments, status=0):
    done = subprocess.run([os.path.join(EXAMPLES, name), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=900)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout.decode()


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class SelfMaskedCross(unittest.TestCase):
    ENGLISH = {"the": (3, 1, 0, 0), "black": (0, 1, 3, 0), "cat": (1, 3, 1, 1), "sleeps": (0, 1, 0, 3)}
    FRENCH = {"le": "the", "chat": "cat", "noir": "black", "dort": "sleeps"}

    def test_tables(self):
        english = np.array(list(self.ENGLISH.values()), float)
        french = np.array([self.ENGLISH[word] for word in self.FRENCH.values()], float)
        ahead = np.triu(np.full((4, 4), -np.inf), 1)
        expected = {"self": softmax(english @ english.T / 2), "masked": softmax(french @ french.T / 2 + ahead),
                    "cross": softmax(french @ english.T / 2)}
        words = {"self": (self.ENGLISH, self.ENGLISH), "masked": (self.FRENCH, self.FRENCH),
                 "cross": (self.FRENCH, self.ENGLISH)}
        text = run("self_masked_cross")
        self.assertIn("as they should be", text)
        tables = text.split("\n\n")[:3]
        self.assertEqual([table.split(":")[0] for table in tables], list(expected))
        for table, name in zip(tables, expected):
            rows = [line.split() for line in table.splitlines()[1:]]
            self.assertEqual((rows[0], [row[0] for row in rows[1:]]), (list(words[name][1]), list(words[name][0])))
            shown = np.array([[float(cell.rstrip("%")) for cell in row[1:]] for row in rows[1:]]) / 100
            np.testing.assert_allclose(shown, expected[name], atol=0.00051)


class DotOrAdditive(unittest.TestCase):
    def test_table(self):
        text = run("dot_or_additive")
        rows = np.array([[float(cell) for cell in line.split()] for line in text.splitlines() if re.match(r" +\d", line)])
        keys, dot_ms, additive_ms, ratio, dot, additive, most, dot_error, additive_error = rows.T
        np.testing.assert_array_equal(keys, [64, 128, 256, 512])
        np.testing.assert_allclose(most, np.log(keys), atol=0.0005)
        self.assertTrue(np.all(dot_error < 1e-5) and np.all(additive_error < 1e-5), text)
        # Scores of variance 1 cost half a nat of evenness; additive ones vary less here.
        np.testing.assert_allclose(most - dot, 0.5, atol=0.1)
        self.assertTrue(np.all(additive > dot) and np.all(additive < most), text)
        self.assertTrue(np.all(dot_ms > 0) and np.all(additive_ms > 0), text)
        self.assertGreater(ratio[-1], 1.5)
        self.assertAlmostEqual(ratio[-1], additive_ms[-1] / dot_ms[-1], delta=0.05 * ratio[-1])


class WhyScale(unittest.TestCase):
    def simulated(self, d_k, divided):
        """The same in NumPy, on other random numbers: variance, and the medians of the rest."""
        random = np.random.default_rng(d_k)
        query, key = random.standard_normal((2, 128, 64, d_k))
        scores = query @ key.transpose(0, 2, 1) / (np.sqrt(d_k) if divided else 1)
        p = softmax(scores)
        jacobian = np.einsum("bij,jk->bijk", p[:32], np.eye(64)) - p[:32, :, :, None] * p[:32, :, None, :]
        # A probability that underflows contributes nothing to the entropy.
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)
        return (scores.var(), np.median(p.max(axis=-1)), np.median(entropy),
                np.median(np.linalg.norm(jacobian, axis=(2, 3))))

    def test_table_and_plot(self):
        with tempfile.TemporaryDirectory(prefix="clattn-test-") as folder:
            path = os.path.join(folder, "plot.svg")
            text = run("why_scale", path)
            root = xml.etree.ElementTree.parse(path).getroot()
            run("why_scale", os.path.join(folder, "none", "plot.svg"), status=1)
        rows = np.array([[float(cell) for cell in line.split()] for line in text.splitlines() if re.match(r" *\d", line)])
        self.assertEqual(rows[:, 0].tolist(), [1, 4, 16, 64, 256, 1024])
        for row in rows:
            for divided in (0, 1):
                variance, largest, entropy, gradient = self.simulated(int(row[0]), divided)
                shown = row[1 + divided::2]
                self.assertAlmostEqual(shown[0] / variance, 1, delta=0.1)
                self.assertAlmostEqual(shown[1], largest, delta=0.03)
                self.assertAlmostEqual(shown[2], entropy, delta=0.1)
                self.assertAlmostEqual(shown[3], gradient, delta=0.03)
        # The paper's argument.
        np.testing.assert_allclose(rows[:, 1], rows[:, 0], rtol=0.05)
        np.testing.assert_allclose(rows[:, 2], 1, rtol=0.05)
        self.assertGreater(rows[-1, 3], 0.99)
        self.assertLess(rows[-1, 5], 0.01)
        self.assertLess(rows[-1, 7], 0.005)
        self.assertLess(np.ptp(rows[1:, 8]), 0.02)
        self.check_plot(root, rows)

    def check_plot(self, root, rows):
        svg = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, svg + "svg")
        lines = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
                 for line in root.iter(svg + "polyline")]
        self.assertEqual([len(line) for line in lines], [6] * 8)
        for i, (top, logarithmic) in enumerate(((1024, True), (1, False), (5, False), (0.5, False))):
            left, bottom = 60 + 380 * (i % 2), 250 + 270 * (i // 2)
            for divided in (0, 1):
                x, y = np.array(lines[2 * i + divided]).T
                np.testing.assert_allclose(x, left + np.arange(6) * 60, atol=0.01)
                values = rows[:, 1 + 2 * i + divided]
                part = np.log(np.maximum(values, 1)) / np.log(top) if logarithmic else values / top
                np.testing.assert_allclose((bottom - y) / 190, part, atol=0.01)


class WhyScaleTraining(unittest.TestCase):
    @staticmethod
    def simulated(d_k, divided):
        """The share of a derivative that comes through the softmax, of the median row."""
        random = np.random.default_rng(2)
        query, key = random.standard_normal((2, 16, 64, d_k))
        p = softmax(query @ key.transpose(0, 2, 1) / (np.sqrt(d_k) if divided else 1))
        given = random.standard_normal(p.shape)
        passed = p * (given - np.sum(p * given, axis=-1, keepdims=True))
        return np.median(np.linalg.norm(passed, axis=-1) / np.linalg.norm(given, axis=-1))

    def test_tables(self):
        text = run("why_scale_training")
        rows = [[float(cell) for cell in line.split()] for line in text.splitlines() if re.match(r" *\d", line)]
        shares, losses = np.array(rows[:7]), np.array(rows[7:])
        self.assertEqual(shares[:, 0].tolist(), [1, 4, 16, 64, 256, 1024, 4096])
        for d_k, without, divided in shares:
            self.assertAlmostEqual(divided / self.simulated(int(d_k), True), 1, delta=0.15)
            if d_k <= 64:  # above, few queries have nearly all of what there is
                self.assertAlmostEqual(without / self.simulated(int(d_k), False), 1, delta=0.15)
        self.assertLess(shares[-1, 1], 1e-5 * shares[-1, 2])
        # With the division it is learned, without it is not yet.
        self.assertEqual(losses[:, 0].tolist(), [25.0 * n for n in range(1, 9)])
        self.assertLess(losses[-1, 2], 0.5)
        self.assertGreater(losses[-1, 1], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
