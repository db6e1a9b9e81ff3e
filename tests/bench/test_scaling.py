#!/usr/bin/env python3
"""bench/scaling.py, bench/random_shapes.py and bench/scaling.sh: what they run, their verdicts, tables and plot, with
stand-ins for the tools, so that nothing is measured."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree
from unittest import mock

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True

import chart
import random_shapes
import scaling

SVG = "{http://www.w3.org/2000/svg}"

CLATTN = """#!/bin/sh
echo "${POCL_MAX_PTHREAD_COUNT-all} $*" >> "$(dirname "$0")/calls"
case "$*" in
"bench random"*) echo '{"shapes": [{"operator": "matmul", "shape": [3, 5, 7], "causal": false},' \\
    '{"operator": "attention", "shape": [1, 2, 2, 3, 3, 16, 16], "causal": true}]}' ;;
*--shape\\ 1,1\\ *) echo '{"platform": "'"${PLATFORM-Portable Computing Language}"'"}' ;;
*) echo '{"solver": "cpu", "gflops": '"${GFLOPS-100}"', "gbytes_per_s": 5, "seconds_min": 0.01}' ;;
esac
"""
ROOF = """#!/bin/sh
echo '{"fma_gflops": 200.0, "read_gbytes_per_s": 20.0, "copy_gbytes_per_s": 10.0}'
"""


def panels():
    square = [(2.0 ** n, 1e-5 * 4 ** n) for n in range(7, 16)]
    return [chart.Panel("all & sizes", "keys", [chart.Line("square", square)]),
            chart.Panel("two", "cores", [chart.Line("a", [(1, 0.1), (2, 0.05)]), chart.Line("b", [(1, 0.2), (2, 0.11)])]),
            chart.Panel("three", "rows", [chart.Line("flat", [(1, 2.0), (4, 2.0), (16, 2.5)])])]


class Plot(unittest.TestCase):
    def setUp(self):
        self.root = tree.fromstring(chart.curves("time & size", panels()))
        self.groups = self.root.findall(SVG + "g")

    def texts(self, element, kind):
        return [each.text for each in element.iter(SVG + "text") if each.get("class") == kind]

    def dots(self, element):
        return [(float(each.get("cx")), float(each.get("cy"))) for each in element.iter(SVG + "circle")]

    def test_says_in_words_what_is_drawn(self):
        self.assertEqual(self.root.get("role"), "img")
        self.assertEqual([self.root.find(SVG + name).get("id") for name in ("title", "desc")], ["title", "desc"])
        self.assertEqual(self.root.find(SVG + "title").text, "time & size")
        self.assertIn("two, b: 200 ms at 1, 110 ms at 2", self.root.find(SVG + "desc").text)

    def test_each_segment_has_its_slope(self):
        self.assertEqual(self.texts(self.groups[0], "faint tiny"), ["2.0"] * 8)
        self.assertEqual(self.texts(self.groups[1], "faint tiny"), ["-1.0", "-0.9"])
        self.assertEqual(self.texts(self.groups[2], "faint tiny"), ["0.0", "0.2"])

    def test_axes_are_logarithmic(self):
        dots = self.dots(self.groups[0])
        self.assertEqual(len(dots), 9)
        for (ax, ay), (bx, by), (cx, cy) in zip(dots, dots[1:], dots[2:]):
            self.assertAlmostEqual(bx - ax, cx - bx, delta=0.2)
            self.assertAlmostEqual(by - ay, cy - by, delta=0.2)
            self.assertGreater(ay, by)

    def test_several_lines_are_told_apart_without_colour(self):
        lines = self.groups[1].findall(SVG + "polyline")
        self.assertEqual(len(lines), 4)  # two of them in the legend
        self.assertEqual([each.get("stroke-dasharray") for each in lines], [None, chart.DASHES[1]] * 2)
        self.assertEqual(len(self.groups[0].findall(SVG + "polyline")), 1)

    def test_nothing_leaves_the_page_or_its_panel(self):
        width, height = float(self.root.get("width")), float(self.root.get("height"))
        for n, group in enumerate(self.groups):
            left, top = 8 + n % 2 * chart.PANEL, chart.TOP - 8 + n // 2 * chart.PANEL_HEIGHT
            for element in group.iter():
                for name, least, size, most in (("x", left, chart.PANEL, width), ("x1", left, chart.PANEL, width),
                                                ("cx", left, chart.PANEL, width), ("y", top, chart.PANEL_HEIGHT, height),
                                                ("y2", top, chart.PANEL_HEIGHT, height),
                                                ("cy", top, chart.PANEL_HEIGHT, height)):
                    if element.get(name):
                        value = float(element.get(name))
                        self.assertTrue(least <= value <= min(least + size, most), (name, element.attrib))

    def test_its_classes_have_a_style(self):
        style = self.root.find(SVG + "style").text
        for used in {kind for each in self.root.iter() for kind in (each.get("class") or "").split()}:
            self.assertIn("." + used, style)
        self.assertEqual(style.count(".curve {"), 2)  # light and dark

    def test_what_cannot_be_drawn_is_refused(self):
        for given in ([], [chart.Panel("p", "x", [])]):
            with self.assertRaises(ValueError):
                chart.curves("h", given)
        for points in ([(1, 1)], [(0, 1), (1, 1)], [(1, 1), (2, float("nan"))], [(1, -1), (2, 1)]):
            with self.assertRaises(ValueError):
                chart.curves("h", [chart.Panel("p", "x", [chart.Line("l", points)])])

    def test_times_have_units(self):
        self.assertEqual([chart.seconds_text(value) for value in (12.3456, 1.0, 0.0999, 1e-3, 2.5e-5, 3e-9)],
                         ["12.3 s", "1 s", "99.9 ms", "1 ms", "25 µs", "3 ns"])


def growth(**more):
    return scaling.Growth("work", "keys", (1, 2, 4), lambda n: ["matmul", "--shape", "%d" % n])._replace(**more)


class Verdict(unittest.TestCase):
    def roof(self):
        return 100.0

    def measure(self, one, times, rounds=1):
        """What becomes of these times, in the order in which they are taken; work and bytes are the size."""
        taken = iter(times)
        return scaling.measure(one, rounds, "clattn", self.roof, lambda clattn, growth, size: scaling.Point(
            next(taken), float(size), 100.0 * size))

    def test_growth_with_the_arithmetic_is_fine(self):
        points, failed = self.measure(growth(), [1.0, 2.0, 4.0])
        self.assertEqual(([point.seconds for point in points], failed), ([1.0, 2.0, 4.0], []))
        self.assertEqual(self.measure(growth(), [1.0, 2.4, 5.5])[1], [])

    def test_the_shortest_time_of_the_rounds_counts(self):
        points, failed = self.measure(growth(), [1.0, 9.0, 4.0, 2.0, 2.0, 5.0], rounds=2)
        self.assertEqual(([point.seconds for point in points], failed), ([1.0, 2.0, 4.0], []))

    def test_what_grows_faster_is_measured_again_and_named(self):
        self.assertEqual(self.measure(growth(), [1.0, 3.0, 4.0, 2.0])[1], [])
        points, failed = self.measure(growth(), [1.0, 3.0, 4.0, 3.0, 3.0])
        self.assertEqual(failed, [0])
        self.assertEqual(scaling.complaint(growth(), points, 0),
                         "work: from 1 to 2 keys, 1.50 times as much as its arithmetic")

    def test_memory_may_lose_the_caches_but_not_its_roof(self):
        memory = growth(memory=True)
        self.assertEqual(self.measure(memory, [0.1, 2.0, 4.0])[1], [])            # 100 of 100 bytes a second
        self.assertEqual(self.measure(memory, [0.1, 4.0, 8.0, 4.0, 4.0])[1], [0])  # 50

    def test_cores_must_keep_what_they_promise(self):
        cores = growth(cores=True, across="cores")
        self.assertEqual(self.measure(cores, [4.0, 2.2, 1.2])[1], [])
        points, failed = self.measure(cores, [4.0, 4.0, 2.0, 4.0, 4.0])
        self.assertEqual(failed, [0])
        self.assertIn("2.00 times as much as the cores promise", scaling.complaint(cores, points, 0))

    def test_the_roof_is_asked_only_where_it_counts(self):
        def never():
            raise AssertionError
        point = scaling.Point(1.0, 1.0, 1.0)
        self.assertFalse(scaling.too_fast(growth(memory=True), (1, 2), point, point, never))
        self.assertTrue(scaling.too_fast(growth(), (1, 2), point, scaling.Point(9.0, 1.0, 1.0), never))

    def test_lines(self):
        points = [scaling.Point(0.001 * n * n, n * n, 100.0 * n) for n in (1, 2, 4)]
        line = scaling.table_line(growth(), points)
        self.assertEqual(line, "| work | keys | 1 | 4 | 1 ms | 16 ms | 2.0 | 2.0 |")
        self.assertEqual(scaling.table_line(growth(memory=True), points).split(" | ")[-1], "1.0, of its bytes |")
        self.assertEqual(scaling.table_line(growth(cores=True), points).split(" | ")[-1], "-1.0 |")
        self.assertEqual({part.count("|") for part in scaling.HEAD.splitlines()}, {line.count("|")})
        self.assertEqual(scaling.joined([-0.01, 0.04]), "0.0")
        self.assertEqual(scaling.joined([1.0, 1.06]), "1.0 1.1")

    def test_all_that_the_bench_promises_grows(self):
        all_of_them = scaling.growths((1, 2))
        self.assertEqual(len({one.name for one in all_of_them}), len(all_of_them))
        self.assertEqual({one.across for one in all_of_them},
                         {"queries and keys", "keys", "batch", "heads", "head size", "rows", "columns", "cores"})
        sizes = {"attention": 7, "matmul": 3, "softmax": 2}
        for one in all_of_them:
            for size in one.sizes:
                arguments = one.arguments(size)
                self.assertEqual(arguments[2].count(",") + 1, sizes[arguments[0]])
        lengths = [one for one in all_of_them if one.across in ("queries and keys", "keys")]
        self.assertEqual({(one.sizes[0], one.sizes[-1]) for one in lengths}, {(128, 32768)})
        self.assertNotIn("cores", {one.across for one in scaling.growths((1,))})
        with mock.patch("os.cpu_count", return_value=6):
            self.assertEqual(scaling.cores_of_machine(), (1, 2, 4, 6))


class RandomShapes(unittest.TestCase):
    BEFORE = {"fma_gflops": 100.0, "read_gbytes_per_s": 15.0, "copy_gbytes_per_s": 8.0}
    AFTER = {"fma_gflops": 300.0, "read_gbytes_per_s": 25.0, "copy_gbytes_per_s": 12.0}

    def judge(self, operator, gflops, gbytes):
        report = {"solver": "cpu", "seconds_min": 0.5, "gflops": gflops, "gbytes_per_s": gbytes}
        return random_shapes.judge(operator, "3,5", report, self.BEFORE, self.AFTER)

    def test_the_longer_of_the_bounds_counts(self):
        timed = self.judge("matmul", 120.0, 2.0)
        self.assertAlmostEqual(timed.share, 0.6)
        self.assertEqual((timed.rate, timed.unit), (120.0, "GFLOP/s"))
        timed = self.judge("attention", 20.0, 9.0)
        self.assertAlmostEqual(timed.share, 0.45)
        self.assertEqual((timed.rate, timed.unit), (9.0, "GB/s"))
        for operator in ("softmax", "layernorm"):
            self.assertAlmostEqual(self.judge(operator, 190.0, 5.0).share, 0.5)

    def test_the_worst_decile(self):
        self.assertEqual(random_shapes.worst_decile([0.5]), 0.5)
        self.assertEqual(random_shapes.worst_decile([n / 10 for n in range(10, 0, -1)]), 0.1)
        self.assertEqual(random_shapes.worst_decile([n / 11 for n in range(1, 12)]), 2 / 11)
        self.assertEqual(random_shapes.worst_decile([n / 40 for n in range(1, 41)]), 0.1)

    def test_tables(self):
        timed = [self.judge("matmul", 2.0 * n, 0.1)._replace(arguments="%d" % n) for n in range(100, 0, -10)]
        timed += [self.judge("softmax", 1.0, 4.0)]
        lines = random_shapes.tables(timed, worst=2)
        self.assertEqual(lines[:2], random_shapes.SUMMARY_HEAD.splitlines())
        self.assertEqual(lines[2:5], ["| matmul | 10 | 0.10 | 0.10 | 0.55 | 1.00 |",
                                      "| softmax | 1 | 0.40 | 0.40 | 0.40 | 0.40 |",
                                      "| all | 11 | 0.10 | 0.20 | 0.50 | 1.00 |"])
        self.assertEqual([line.split(" | ")[0] for line in lines[8:]], ["| matmul 10", "| matmul 20", "| softmax 3,5"])
        self.assertEqual(lines[8], "| matmul 10 | cpu | 500.000 ms | 20 GFLOP/s | 0.10 |")
        self.assertEqual({line.count("|") for line in lines[6:]}, {6})

    def test_causality_is_passed_on(self):
        self.assertEqual(random_shapes.arguments_of({"shape": [1, 2], "causal": True}), ["--shape", "1,2", "--causal"])
        self.assertEqual(random_shapes.arguments_of({"shape": [3], "causal": False}), ["--shape", "3"])


class Script(unittest.TestCase):
    """The whole, from the outside."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="clattn-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.build = os.path.join(self.folder, "a build")
        for name, content in (("src/clattn", CLATTN), ("bench/roof", ROOF)):
            path = os.path.join(self.build, name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(path, 0o755)

    def run_script(self, *arguments, **environment):
        kept = {name: value for name, value in os.environ.items() if name != "POCL_MAX_PTHREAD_COUNT"}
        return subprocess.run(["sh", os.path.join(BENCH, "scaling.sh"), *arguments], cwd=self.folder, text=True,
                              encoding="utf-8", timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**kept, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1",
                                                           "PYTHONIOENCODING": "utf-8", **environment})

    def read(self, *path):
        with open(os.path.join(self.folder, *path), encoding="utf-8") as file:
            return file.read()

    def calls(self):
        return self.read("a build", "src", "calls").splitlines()

    def test_is_read_by_every_shell(self):
        for shell in ("sh", "dash", "bash"):
            if shutil.which(shell):
                subprocess.run([shell, "-n", os.path.join(BENCH, "scaling.sh")], check=True)

    def test_tables_and_plot(self):
        done = self.run_script(self.build, "--rounds", "1", "--out", "results")
        # The stand-in's times are all alike, so that more cores bring nothing where there are more.
        several = len(scaling.cores_of_machine()) > 1
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (1 if several else 0, False), done)
        table = self.read("results", "scaling.md")
        self.assertTrue(done.stdout.startswith(table))
        self.assertIn("| attention, 2 heads, d 64 | queries and keys | 128 | 32,768 | 10 ms | 10 ms | 0.0 | 0.0 |", table)
        self.assertEqual("as much as the cores promise" in table, several)
        root = tree.fromstring(self.read("results", "scaling.svg"))
        self.assertEqual(len(root.findall(SVG + "g")), len(scaling.growths()))
        shapes = self.read("results", "random_shapes.md")
        self.assertIn(shapes, done.stdout)
        self.assertIn("| matmul 3,5,7 | cpu | 10.000 ms | 100 GFLOP/s | 0.50 |", shapes)
        self.assertIn("| attention 1,2,2,3,3,16,16 --causal | cpu |", shapes)
        self.assertIn("all bench attention --shape 1,2,2,3,3,16,16 --causal --json", self.calls())
        self.assertEqual("1 bench matmul --shape 2048,2048,512 --json" in self.calls(), several)

    def test_a_part_of_it(self):
        os.makedirs(os.path.join(self.build, "bench"), exist_ok=True)
        old = os.path.join(self.build, "bench", "random_shapes.md")
        with open(old, "w", encoding="utf-8") as file:
            file.write("old")
        done = self.run_script(self.build, "--only", "head size", "--rounds", "2")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertEqual(len(self.calls()), 2 * 5)
        self.assertIn("Nothing grows faster than its arithmetic", done.stdout)
        self.assertFalse(os.path.exists(old), "an earlier run's table is left")

    def test_cores_are_left_out_where_they_cannot_be_limited(self):
        with mock.patch.object(scaling, "growths", lambda: scaling_growths((1, 2))), mock.patch.dict(
                os.environ, {"PLATFORM": "other"}), contextlib.redirect_stdout(io.StringIO()) as printed, \
                contextlib.redirect_stderr(io.StringIO()) as told:
            options = mock.Mock(build=self.build, only="matmul", rounds=1, markdown=None, svg=None)
            self.assertTrue(scaling.run(options))
        self.assertIn("left out", told.getvalue())
        self.assertNotIn("cores", printed.getvalue())

    def test_usage(self):
        for arguments, saying in (((), "usage"), (("--rounds", "1"), "usage"), ((self.build, "--out"), "--out"),
                                  (("nowhere",), "nowhere: no such folder"),
                                  ((self.build, "--only", "dance"), "nothing has 'dance'")):
            done = self.run_script(*arguments)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(saying, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("BUILD_DIR", self.run_script("--help").stdout)
        self.assertEqual(self.run_script(self.build, "--rounds", "0").returncode, 2)

    def test_a_tool_that_fails_ends_the_run(self):
        for gflops in ("x", "0"):  # no number; and no time that could be drawn
            done = self.run_script(self.build, "--only", "head size", "--rounds", "1", GFLOPS=gflops)
            self.assertEqual(done.returncode, 1, done)
            self.assertNotIn("Traceback", done.stderr)
            self.assertTrue(re.search(r"cannot be read", done.stderr), done)
        os.remove(os.path.join(self.build, "src", "clattn"))
        self.assertIn("src/clattn is not there", self.run_script(self.build).stderr)


scaling_growths = scaling.growths

if __name__ == "__main__":
    unittest.main(verbosity=2)
