#!/usr/bin/env python3
"""bench/compare.sh: what it runs, its tables and its plot, with stand-ins for the tools, so that nothing is measured."""
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
import compare
import openblas

SVG = "{http://www.w3.org/2000/svg}"

CLATTN = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$1 $2" in
devices*) exit ${DEVICES_STATUS:-0} ;;
"bench startup") case "$*" in *clblast*) [ -z "${NO_CLBLAST-}" ] || exit 1 ;; esac
    echo '{"empty_seconds_median": 1.25, "warm_seconds_median": 0.031}' ;;
"bench enqueue") echo '{"difference_microseconds": 0.75}' ;;
explain*) echo '{"workspace_bytes": 33554432}' ;;
"bench mha") echo "clattn: no luck" >&2; exit 3 ;;
"bench softmax") echo "no JSON" ;;
*) echo '{"solver": "cpu", "gflops": 120, "gbytes_per_s": 9, "seconds_min": 0.1, "seconds_median": 0.2}' ;;
esac
"""
ROOF = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/../src/probes"
echo '{"fma_gflops": 200.0, "bf16_gflops": 400.0, "read_gbytes_per_s": 20.0, "copy_gbytes_per_s": 10.0}'
"""


def bars():
    return [chart.Bar("short <of> \"it\" & more", 0.5, 0.75, "a & b"), chart.Bar("reached", 0.9, 0.85, "c"),
            chart.Bar("beyond the roof", 1.3, None, "d")]


class Plot(unittest.TestCase):
    def setUp(self):
        self.root = tree.fromstring(chart.svg("shares & more", bars()))
        self.groups = self.root.findall(SVG + "g")

    def number(self, element, name):
        return float(element.get(name))

    def of_kind(self, element, kind, name="line"):
        return [each for each in element.iter(SVG + name) if each.get("class") == kind]

    def test_says_in_words_what_is_drawn(self):
        self.assertEqual(self.root.get("role"), "img")
        self.assertEqual(self.root.get("aria-labelledby"), "title desc")
        self.assertEqual([self.root.find(SVG + name).get("id") for name in ("title", "desc")], ["title", "desc"])
        self.assertEqual(self.root.find(SVG + "title").text, "shares & more")
        words = self.root.find(SVG + "desc").text
        for bar in bars():
            self.assertIn("%s: %.2f" % (bar.name, bar.share), words)
        self.assertIn("(wanted 0.75)", words)

    def test_each_row_has_its_name_and_number_as_text(self):
        self.assertEqual(len(self.groups), 3)
        for bar, group, label in zip(bars(), self.groups, ("0.50, wanted 0.75", "0.90", "1.30")):
            self.assertEqual([text.text for text in group.findall(SVG + "text")], [bar.name, label])
            self.assertEqual(group.find(SVG + "title").text, bar.detail)

    def test_lengths_lines_and_marks_share_one_scale(self):
        left = self.number(self.groups[0].find(SVG + "rect"), "x")
        one = self.number(self.of_kind(self.root, "one")[0], "x1") - left
        self.assertEqual(len(self.of_kind(self.root, "one")), 1)
        for bar, group in zip(bars(), self.groups):
            self.assertAlmostEqual(self.number(group.find(SVG + "rect"), "width"), bar.share * one, delta=0.2)
            marks = self.of_kind(group, "target")
            self.assertEqual(len(marks), bar.target is not None)
            for mark in marks:
                self.assertAlmostEqual(self.number(mark, "x1") - left, bar.target * one, delta=0.2)

    def test_a_row_below_its_target_looks_different(self):
        self.assertEqual([group.find(SVG + "rect").get("class") for group in self.groups], ["short", "bar", "bar"])

    def test_nothing_leaves_the_page_or_lies_on_another_row(self):
        width, height = self.number(self.root, "width"), self.number(self.root, "height")
        tops = [self.number(group.find(SVG + "rect"), "y") for group in self.groups]
        self.assertTrue(all(below - top >= chart.BAR for top, below in zip(tops, tops[1:])))
        for element in self.root.iter():
            for name, most in (("x", width), ("x1", width), ("y", height), ("y2", height)):
                if element.get(name):
                    self.assertTrue(0 <= self.number(element, name) <= most, element.attrib)
        for text in self.root.iter(SVG + "text"):
            reach = chart.CHARACTER * len(text.text)
            if text.get("text-anchor") == "end":
                self.assertGreaterEqual(self.number(text, "x") - reach, 0)
            elif text.get("text-anchor") == "start" and text.get("class") is None:
                self.assertLessEqual(self.number(text, "x") + reach, width)

    def test_no_line_runs_through_a_number(self):
        root = tree.fromstring(chart.svg("h", [chart.Bar("a", share / 100, target, "") for share in range(0, 140, 3)
                                               for target in (None, 0.55, 0.85, 1.0)]))
        one = self.number(self.of_kind(root, "one")[0], "x1")
        for group in root.findall(SVG + "g"):
            label = group.findall(SVG + "text")[1]
            start = self.number(label, "x")
            lines = [one] + [self.number(mark, "x1") for mark in self.of_kind(group, "target")]
            self.assertFalse([x for x in lines if start <= x <= start + chart.CHARACTER * len(label.text)], label.text)

    def test_colours_follow_the_scheme(self):
        style = self.root.find(SVG + "style").text
        light, dark = style.split("@media (prefers-color-scheme: dark)")
        for name in (".page", ".bar", ".short", ".grid", ".one", ".target", ".halo", ".faint", "text"):
            self.assertIn(name, light)
            self.assertIn(name, dark)
        used = {each.get("class") for each in self.root.iter() if each.get("class")}
        for name in used - {"heading"}:
            self.assertIn("." + name, light)
        # Readable on its page: a contrast of 4.5 for text, of 3 for what is drawn.
        for part in (light, dark):
            page = self.colour(part, r"\.page")
            for name, least in (("text", 4.5), (r"\.faint", 4.5), (r"\.bar", 3), (r"\.short", 3)):
                self.assertGreaterEqual(self.contrast(self.colour(part, name), page), least, name)

    def colour(self, style, name):
        digits = re.search(name + r" \{[^}]*fill: #(\w{6})", style).group(1)
        parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(self, one, other):
        return (max(one, other) + 0.05) / (min(one, other) + 0.05)

    def test_what_cannot_be_drawn_is_refused(self):
        with self.assertRaises(ValueError):
            chart.svg("h", [])
        for share in (float("nan"), float("inf"), -0.1):
            with self.assertRaises(ValueError):
                chart.svg("h", [chart.Bar("a", share, None, "")])


class Table(unittest.TestCase):
    REPORT = {"gflops": 120.0, "gbytes_per_s": 9.0}
    BEFORE = {"fma_gflops": 100.0, "read_gbytes_per_s": 15.0, "copy_gbytes_per_s": 8.0}
    AFTER = {"fma_gflops": 300.0, "read_gbytes_per_s": 25.0, "copy_gbytes_per_s": 12.0}

    def roof(self, name, *reports):
        rounds = [(report, self.BEFORE, self.AFTER) for report in reports or [self.REPORT]]
        return compare.nearest_roof(compare.Case("a", [], name, None), rounds)

    def test_the_roof_is_the_mean_of_before_and_after(self):
        self.assertEqual(self.roof("fma"), (120.0, 200.0, 0.6, "GFLOP/s"))
        self.assertEqual(self.roof("read"), (9.0, 20.0, 0.45, "GB/s"))
        self.assertEqual(self.roof("copy"), (9.0, 10.0, 0.9, "GB/s"))

    def test_the_roofline_is_the_bound_that_is_nearer(self):
        self.assertEqual(self.roof("roofline"), (120.0, 200.0, 0.6, "GFLOP/s"))
        self.assertEqual(self.roof("roofline", {"gflops": 10.0, "gbytes_per_s": 9.0}), (9.0, 20.0, 0.45, "GB/s"))

    def test_the_roofline_is_one_roof_in_all_rounds(self):
        one, other, last = ({"gflops": gflops, "gbytes_per_s": 9.0} for gflops in (80.0, 100.0, 120.0))
        self.assertEqual(self.roof("roofline", last, one, other), (100.0, 200.0, 0.5, "GFLOP/s"))
        self.assertEqual(self.roof("roofline", one, last, one), (9.0, 20.0, 0.45, "GB/s"))

    def test_bfloat16_has_a_roof_of_its_own_where_the_processor_has_it(self):
        self.assertEqual(self.roof("bf16"), (120.0, 200.0, 0.6, "GFLOP/s"))
        before, after = {**self.BEFORE, "bf16_gflops": 200.0}, {**self.AFTER, "bf16_gflops": 600.0}
        case = compare.matmul(3, 5, 7, dtype="bf16")
        self.assertEqual(compare.nearest_roof(case, [(self.REPORT, before, after)]), (120.0, 400.0, 0.3, "GFLOP/s"))

    def measure(self, case, roof, blas=None):
        """What measure makes of reports in which the clattn of the case takes 2 s, and whatever is beside it 3 s."""
        asked = []

        def report(command):
            asked.append(command)
            own = command[:2] == ["clattn", "bench"] and ("--dtype" in command) == ("--dtype" in case.arguments)
            return roof if command[0] == "roof" else {**self.REPORT, "solver": "cpu", "seconds_median": 2.0 if own else 3.0}

        with mock.patch.object(compare, "run_json", report):
            return compare.measure(case, 2, "clattn", "roof", None, blas), asked

    def test_bfloat16_stands_beside_our_own_float32(self):
        case = compare.matmul(3, 5, 7, dtype="bf16")
        row, asked = self.measure(case, {"fma_gflops": 200.0, "bf16_gflops": 400.0})
        self.assertEqual((row.limit, row.share, row.case.speedup), (400.0, 0.3, 1.0))
        self.assertEqual(compare.beside_lines(row), ["| matmul 3x5x7, bfloat16 | clattn, float32 | 1.50 | 1.00 |"])
        self.assertEqual(asked[0], ["roof", "--only", "bf16,fma", "0.1"])
        self.assertEqual(asked[1][-3:], ["--dtype", "bf16", "--json"])
        self.assertEqual(asked[3], ["clattn", "bench", "matmul", "--shape", "3,5,7", "--json"])
        self.assertEqual(compare.targets([row], []), (1, 2))  # the share; of the peers one could be run

    def test_where_the_processor_has_no_bfloat16_nothing_of_pytorch_is_wanted(self):
        row, _ = self.measure(compare.matmul(3, 5, 7, dtype="bf16"), {"fma_gflops": 200.0})
        self.assertEqual((row.limit, row.share, row.case.speedup), (200.0, 0.6, None))

    def test_openblas_stands_beside_float32_products_where_it_is(self):
        case = compare.beside_openblas(compare.matmul(3, 5, 7))
        row, asked = self.measure(case, {"fma_gflops": 200.0}, "lib.so")
        self.assertEqual(compare.beside_lines(row), ["| matmul 3x5x7 | OpenBLAS | 1.50 | 1.00 |"])
        self.assertEqual(asked[3][-4:], ["lib.so", "3", "5", "7"])
        row, asked = self.measure(case, {"fma_gflops": 200.0})
        self.assertEqual((row.beside, len(asked)), ((), 6))

    def test_lines(self):
        case = compare.Case("work", [], "fma", None, 0.85, 1.0)
        row = compare.Row(case, "cpu", 120.4, "GFLOP/s", 200.0, 0.602, 1.5)
        self.assertEqual(compare.table_line(row), "| work | cpu | 120 GFLOP/s | 200 | 0.60 | 0.85 | 1.50 | 1.00 |")
        bare = compare.Row(case._replace(share=None, speedup=None), "cpu", 9, "GB/s", 10, 0.9, None)
        self.assertEqual(compare.table_line(bare), "| work | cpu | 9 GB/s | 10 | 0.90 | - | - | - |")
        beside = row._replace(beside=((compare.Beside("other", None, 1.0), 1.5),))
        for head, line in ((compare.HEAD, compare.table_line(row)), (compare.BESIDE_HEAD, compare.beside_lines(beside)[0]),
                           (compare.EXTRA_HEAD, compare.extra_line(compare.EXTRAS[0], 1.0))):
            self.assertEqual({part.count("|") for part in head.splitlines()}, {line.count("|")})

    def test_targets_that_were_not_measured_do_not_count(self):
        case = compare.Case("work", [], "fma", None, 0.85, 1.0)
        row = compare.Row(case, "cpu", 1, "GB/s", 1, 0.9, 0.9)
        extra = compare.EXTRAS[0]
        self.assertEqual(compare.targets([row], []), (1, 2))
        self.assertEqual(compare.targets([row._replace(speedup=None)], [(extra, extra.limit), (extra, extra.limit * 1.1)]),
                         (2, 3))
        without_share = row._replace(case=case._replace(share=None))
        self.assertEqual(compare.targets([without_share], [(extra._replace(limit=None), 1e9)]), (0, 1))

    def test_each_case_has_a_name_of_its_own_and_asks_the_command_for_what_it_compares(self):
        names = [case.name for case in compare.CASES] + [extra.name for extra in compare.EXTRAS]
        self.assertEqual(len(set(names)), len(names))
        sizes = {"attention": 7, "matmul": 3, "softmax": 2, "layernorm": 2, "mha": 4, "encoder": 5}
        for case in compare.CASES:
            self.assertIn(case.roof, ("fma", "bf16", "read", "copy", "roofline"))
            self.assertEqual(case.roof == "bf16", case.name.endswith(", bfloat16"))
            self.assertEqual(case.arguments[1], "--shape")
            self.assertEqual(case.arguments[2].count(",") + 1, sizes[case.arguments[0]])
        self.assertEqual({case.arguments[0] for case in compare.CASES}, set(sizes))
        self.assertEqual([case.name for case in compare.CASES if case.share is None and case.speedup is None],
                         ["attention 8 x 4096, d 64, causal"])

    def test_each_peer_computes_something(self):
        for case in compare.CASES:
            torch = mock.MagicMock()
            run = case.peer(torch)
            called = len(torch.mock_calls)
            run()
            self.assertGreater(len(torch.mock_calls), called, case.name)

    def test_peers_of_bfloat16_are_given_bfloat16(self):
        for case in compare.CASES:
            torch = mock.MagicMock()
            case.peer(torch)
            self.assertEqual(mock.call(torch.bfloat16) in torch.randn.return_value.to.mock_calls, case.roof == "bf16")

    def test_the_peer_of_an_encoder_layer_may_take_its_fast_path(self):
        torch = mock.MagicMock()
        compare.encoder(8, 128).peer(torch)()
        torch.nn.TransformerEncoderLayer.assert_called_once_with(512, 8, 2048, batch_first=True)
        evaluated = torch.nn.TransformerEncoderLayer.return_value.eval.return_value
        evaluated.assert_called_once_with(torch.randn.return_value)
        torch.randn.assert_called_once_with(8, 128, 512)

    def test_the_peer_of_layernorm(self):
        torch = mock.MagicMock()
        torch.randn.side_effect = lambda *extent: extent
        compare.layernorm(4096, 512).peer(torch)()
        torch.nn.functional.layer_norm.assert_called_once_with((4096, 512), (512,), (512,), (512,))


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
        # No PyTorch, whatever the machine has.
        self.modules = os.path.join(self.folder, "modules")
        os.makedirs(self.modules)
        with open(os.path.join(self.modules, "torch.py"), "w", encoding="utf-8") as file:
            file.write("raise ImportError\n")

    def run_script(self, *arguments, **environment):
        return subprocess.run(["sh", os.path.join(BENCH, "compare.sh"), *arguments], cwd=self.folder, text=True,
                              encoding="utf-8", timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**os.environ, "PYTHON": sys.executable,
                                                           "PYTHONPATH": self.modules, "PYTHONDONTWRITEBYTECODE": "1",
                                                           "PYTHONIOENCODING": "utf-8", **environment})

    def refuse(self, done, *saying):
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertNotIn("Traceback", done.stderr)
        for text in saying:
            self.assertIn(text, done.stderr)

    def read(self, *path):
        with open(os.path.join(self.folder, *path), encoding="utf-8") as file:
            return file.read()

    def calls(self):
        return self.read("a build", "src", "calls").splitlines()

    def test_is_read_by_every_shell(self):
        for shell in ("sh", "dash", "bash"):
            if shutil.which(shell):
                subprocess.run([shell, "-n", os.path.join(BENCH, "compare.sh")], check=True)

    def test_tables_and_plot(self):
        done = self.run_script(self.build, "--rounds", "2", "--out", "results", "--only", "d 64")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("PyTorch cannot be imported", done.stderr)
        table = self.read("results", "compare.md")
        self.assertTrue(done.stdout.startswith(table))
        lines = table.splitlines()
        self.assertEqual(lines[:2], compare.HEAD.splitlines())
        self.assertIn("| attention 8 x 2048, d 64 | cpu | 120 GFLOP/s | 200 | 0.60 | 0.78 | - | 1.30 |", lines)
        self.assertIn("| attention 32x8 x 64, d 64 | cpu | 120 GFLOP/s | 200 | 0.60 | 0.55 | - | 1.30 |", lines)
        self.assertIn("| workspace of attention 1 x 32,768, d 64 | 32.0 MiB | at most 16.0 MiB |", lines)
        self.assertIn("| attention 8 x 2048, d 64, bfloat16 | cpu | 120 GFLOP/s | 400 | 0.30 | - | - | 1.80 |", lines)
        self.assertIn("| attention 8 x 2048, d 64, bfloat16 | clattn, float32 | 1.00 | 1.00 |", lines)
        self.assertIn("| attention 8 x 4096, d 64, causal | clattn, all keys | 1.00 | 1.82 |", lines)
        self.assertEqual(lines[-1], "2 of 7 targets reached, without PyTorch.")
        root = tree.fromstring(self.read("results", "compare.svg"))
        self.assertEqual(len(root.findall(SVG + "g")), 6)
        self.assertEqual(set(self.read("a build", "src", "probes").splitlines()), {"--only fma 0.1", "--only bf16,fma 0.1"})
        # As often again beside bfloat16.
        self.assertEqual(self.calls().count("bench attention --shape 1,8,8,2048,2048,64,64 --json"), 2 + 2)
        self.assertEqual(self.calls().count("bench attention --shape 1,8,8,2048,2048,64,64 --dtype bf16 --json"), 2)
        self.assertFalse([name for name in os.listdir(os.path.join(self.folder, "results")) if name.endswith(".part")])

    def test_the_second_table_alone(self):
        os.makedirs(os.path.join(self.build, "bench"), exist_ok=True)
        old = os.path.join(self.build, "bench", "compare.svg")
        with open(old, "w", encoding="utf-8") as file:
            file.write("old")
        done = self.run_script(self.build, "--only", "new process")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        table = self.read("a build", "bench", "compare.md")
        self.assertEqual(table, compare.EXTRA_HEAD + "".join(
            "\n| first result of a new process%s, empty caches | 1250 ms | at most 1500 ms |"
            "\n| first result of a new process%s, warm caches | 31 ms | at most 60 ms |" % (what, what)
            for what in ("", ", a product by CLBlast")) + "\n\n4 of 4 targets reached.\n")
        self.assertFalse(os.path.exists(old), "an earlier run's plot is left")
        self.assertEqual(self.calls().count("bench startup --json"), 1)
        self.assertEqual(self.calls().count("bench startup --matmul 128,512,512 --solver clblast --json"), 1)
        done = self.run_script(self.build, "--only", "new process", NO_CLBLAST="1")
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (0, False), done)
        self.assertIn("left out: first result of a new process, a product by CLBlast", done.stderr)
        self.assertIn("2 of 2 targets reached.", done.stdout)
        self.assertNotIn("CLBlast", done.stdout)
        done = self.run_script(self.build, "--only", "enqueue")
        self.assertIn("over bare launches | 0.75 µs | at most 5.00 µs |", done.stdout)

    def test_openblas(self):
        done = self.run_script(self.build, "--only", "512x512x512", "--rounds", "1", "--openblas", "/no/such/library.so")
        self.assertEqual(done.returncode, 1, done)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("/no/such/library.so", done.stderr)
        script = [sys.executable, os.path.join(BENCH, "openblas.py")]
        for arguments in ((), ("lib", "1", "2"), ("lib", "1", "2", "0"), ("lib", "1", "2", "x")):
            done = subprocess.run([*script, *arguments], text=True, stderr=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, "usage: openblas.py LIBRARY M N K\n"))

    def test_openblas_is_told_of_avx512_by_the_processor(self):
        for flags, expected in (("flags\t\t: fpu avx512f avx512dq\n", True), ("flags\t\t: fpu avx2\n", False), ("", False)):
            with open(os.path.join(self.folder, "cpuinfo"), "w", encoding="utf-8") as file:
                file.write("model name\t: avx512dq\n" + flags)
            self.assertEqual(openblas.has_avx512(file.name), expected)
        self.assertFalse(openblas.has_avx512(os.path.join(self.folder, "nowhere")))
        numbers = openblas.random_floats(3000)
        self.assertEqual(len(numbers), 3000)
        self.assertTrue(all(-1 <= x <= 1 for x in numbers))
        self.assertNotEqual(numbers[0:512], numbers[512:1024])

    def test_layernorm_is_held_against_copying(self):
        done = self.run_script(self.build, "--only", "LayerNorm", "--rounds", "1")
        self.assertIn("| LayerNorm 4096x512 | cpu | 9 GB/s | 10 | 0.90 | 0.85 | - | 1.00 |", done.stdout)
        self.assertIn("bench layernorm --shape 4096,512 --json", self.calls())

    def test_usage(self):
        self.refuse(self.run_script(), "usage")
        self.refuse(self.run_script("--rounds", "1"), "usage")
        self.refuse(self.run_script(self.build, "--out"), "--out")
        self.refuse(self.run_script(self.build, "--only", "dance"), "no row has 'dance'")
        self.assertIn("BUILD_DIR", self.run_script("--help").stdout)
        for arguments in (["--rounds", "0"], ["--dance"], ["--rounds"]):
            done = self.run_script(self.build, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)

    def test_what_is_missing_is_named(self):
        self.refuse(self.run_script("nowhere"), "nowhere: no such folder")
        self.refuse(self.run_script(self.build, PYTHON="no-such-python"), "no-such-python", "Python 3")
        self.refuse(self.run_script(self.build, DEVICES_STATUS="3"), "no device")
        os.remove(os.path.join(self.build, "bench", "roof"))
        self.refuse(self.run_script(self.build), "bench/roof is not there")
        os.remove(os.path.join(self.build, "src", "clattn"))
        self.refuse(self.run_script(self.build), "src/clattn is not there")

    def test_a_tool_that_fails_ends_the_run_without_results(self):
        for only, saying in (("mha", ("clattn: no luck", "bench mha", "status 3")), ("softmax", ("cannot be read",))):
            done = self.run_script(self.build, "--only", only, "--rounds", "1")
            self.assertEqual(done.returncode, 1, done)
            self.assertNotIn("Traceback", done.stderr)
            for text in saying:
                self.assertIn(text, done.stderr)
            self.assertEqual(sorted(os.listdir(os.path.join(self.build, "bench"))), ["roof"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
