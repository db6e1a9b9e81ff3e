#!/usr/bin/env python3
"""The clattn command from outside: exit statuses, error lines, JSON, and results against NumPy in float64.  Attention
has a file of its own, test_command_attention.py.

    CLATTN=build/src/clattn python3 tests/tool/test_command.py [-k PATTERN ...]"""
import io
import json
import os
import tempfile
import time
import unittest

import numpy as np

from attention_numpy import attention, mask_terms, softmax
from command_support import CommandTest, main, slow, write_safetensors


class SoftmaxTest(CommandTest):
    """Has a small command that uses a device."""

    def setUp(self):
        super().setUp()
        self.softmax = ("softmax", self.save("x.npy", self.normal(3, 4)), "-o", self.path("y.npy"))


class Usage(CommandTest):
    COMMANDS = [["devices"], ["attention"], ["explain"], ["softmax"], ["mha"], ["bench"], ["bench", "attention"],
                ["bench", "matmul"], ["bench", "softmax"], ["bench", "layernorm"], ["bench", "mha"],
                ["bench", "encoder"], ["bench", "startup"], ["bench", "enqueue"], ["bench", "ring"], ["cache"], ["tune"],
                ["selftest"]]

    def test_help_and_version(self):
        text = self.succeed("--help").out
        for command in self.COMMANDS:
            self.assertIn(command[0], text)
            own = self.succeed(*command, "--help")
            self.assertIn("usage: clattn " + " ".join(command), own.out)
            self.assertEqual(own.errors, [])
        self.assertRegex(self.succeed("--version").out, r"^clattn \d+\.\d+\.\d+\n$")

    def test_help_wins_over_everything_else(self):
        self.assertIn("usage:", self.succeed("attention", "-q", "--help").out)

    def test_unknown_commands_and_options(self):
        self.refuse(2, saying="missing command")
        self.refuse(2, "dance", saying="dance")
        self.refuse(2, "--dance", saying="--dance")
        self.refuse(2, "bench", saying="bench")
        self.refuse(2, "bench", "dance", saying=("dance", "layernorm", "enqueue"))
        self.refuse(2, "cache", "dance", saying="dance")
        self.refuse(2, "--version", "more", saying="more")
        for command in self.COMMANDS:
            if command != ["bench"]:
                self.refuse(2, *command, "--dance", saying="--dance")
                self.refuse(2, *command, "-z", saying="-z")

    def test_option_syntax(self):
        files = ["-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy"]
        self.refuse(2, "attention", *files[:-2], saying=("-o", "missing"))
        self.refuse(2, "attention", *files, "-q", "x.npy", saying=("-q", "twice"))
        self.refuse(2, "attention", *files, "--causal", "--causal", saying="twice")
        self.refuse(2, "attention", *files, "--mask", saying=("--mask", "needs a value"))
        self.refuse(2, "attention", "-q", "-k", "k.npy", saying=("-q", "needs a value"))
        self.refuse(2, "attention", *files, "--mask=", saying=("--mask", "empty"))
        self.refuse(2, "attention", *files, "--causal=yes", saying=("--causal", "yes"))
        self.refuse(2, "attention", *files, "--caus", saying="--caus")
        self.refuse(2, "attention", *files, "--align", "middle",
                    saying=("middle", "top-left", "bottom-right"))
        self.refuse(2, "attention", *files, "more.npy", saying="more.npy")
        self.refuse(2, "softmax", "x.npy", "y.npy", "-o", "z.npy", saying="y.npy")
        self.refuse(2, "softmax", "-o", "z.npy", saying="X.npy")
        self.refuse(2, "softmax", "-o", "z.npy", "--", "--causal", saying="--causal: cannot be opened")

    def test_numbers_are_strict(self):
        files = ["-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy"]
        for value in ("nan", "inf", "-inf", "0x10", "1e39", "1e999", "1,5", " 1", "1 ", "1f", "e5", "-",
                      "1e-60", ""):
            self.refuse(2, "attention", *files, "--scale=" + value, saying="--scale")
        for value in ("0", "-1", "+1", "1.5", "1e3", "", "99999999999999999999", "2147483648", " 1"):
            self.refuse(2, "attention", *files, "--repeat=" + value, saying="--repeat")
        for value in ("1,2", "1,2,3,4", "1,2,", "1,,3", "0,1,1", "1,-1,1", "1;2;3", "1, 2, 3"):
            self.refuse(2, "bench", "matmul", "--shape", value, saying="--shape")
        for value in ("4", "4,", "4,5,6", "0,5", "4,0", "-4,5", "4.0,5", "4x5", ""):
            self.refuse(2, "bench", "layernorm", "--shape=" + value, saying="--shape")
        for value in ("64", "1,8,8,64,64,64", "1,8,8,64,64,64,64,64", "1,8,8,0,64,64,64"):
            self.refuse(2, "bench", "enqueue", "--shape", value, saying="--shape")
        self.refuse(2, "mha", "--heads", "0", saying="--heads")

    def test_a_negative_number_is_a_value(self):
        files = ["-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy"]
        for option in ("--page-size", "--seed", "--max-launch-ms", "--repeat", "--kv-group", "--dropout-offset"):
            self.refuse(2, "attention", *files, option, "-1", saying=(option + " '-1' is not valid", "whole number from"))
            self.refuse(2, "attention", *files, option, "--causal", saying=(option, "needs a value"))
        self.refuse(2, "attention", *files, "--softcap", "-3", saying=("--softcap -3", "positive"))
        self.refuse(2, "bench", "softmax", "--shape", "-3,4", saying="--shape '-3,4' is not valid")

    def test_output_that_cannot_be_written(self):
        listing = self.succeed("devices").out
        self.assertTrue(listing)
        with open("/dev/full", "wb") as full:
            self.refuse(1, "devices", stdout=full, saying="standard output")
        self.refuse(1, "--help", stdout=None, preexec_fn=lambda: os.close(1), saying="standard output")
        reader, writer = os.pipe()
        os.close(reader)
        self.refuse(1, "devices", "--json", stdout=writer, saying="standard output")
        os.close(writer)


class Devices(SoftmaxTest):
    def test_table_and_json_agree(self):
        report = self.succeed("devices", "--json")
        self.assertEqual(len(report.out.splitlines()), 1)
        devices = report.json()["devices"]
        self.assertIsInstance(report.json()["skipped"], list)
        table = self.succeed("devices").out
        for i, device in enumerate(devices):
            self.assertEqual(device["index"], i)
            self.assertIn(device["name"][:64], table)
            self.assertIn(device["class"], table)
            self.assertIn(device["local_memory_kind"], ("none", "dedicated", "emulated"))

    def specs(self):
        """Returns a request that the first device matches."""
        first = self.succeed("devices", "--json").json()["devices"][0]
        platform, name = first["platform"], first["name"]
        specs = ["0", platform[:5].upper() + ":" + name[-4:].lower(), ":"]
        return specs + {"gpu": ["gpu"], "cpu": ["cpu"], "pocl": ["pocl", "cpu"]}.get(first["class"], [])

    def test_device_specs(self):
        for spec in self.specs():
            for device, env in ((["--device", spec], {}), ([], {"CLATTN_DEVICE": spec})):
                self.succeed(*self.softmax, *device, env=env)

    def test_no_such_device_is_3_and_never_a_fallback(self):
        for spec in ("nonsense", "99", "no platform:at all", "99999999999999999999"):
            self.refuse(3, *self.softmax, "--device", spec, saying=spec)
            result = self.refuse(3, *self.softmax, env={"CLATTN_DEVICE": spec}, saying=spec)
            self.assertTrue(result.errors[0].startswith("clattn: CLATTN_DEVICE: "), result)
        self.refuse(3, "selftest", env={"CLATTN_DEVICE": "nonsense"}, saying="nonsense")
        self.assertFalse(os.path.exists(self.path("y.npy")))

    def test_the_option_wins_over_the_environment(self):
        self.succeed(*self.softmax, "--device", "0", env={"CLATTN_DEVICE": "nonsense"})

    def test_no_platform_at_all(self):
        nothing = {"OCL_ICD_VENDORS": self.folder, "OCL_ICD_FILENAMES": None}
        self.refuse(3, "devices", env=nothing)
        self.refuse(3, *self.softmax, env=nothing, saying="no OpenCL platform")


    def test_sources_that_cannot_be_read_are_bad_input(self):
        self.refuse(2, *self.softmax, env={"CLATTN_KERNEL_DIR": self.path("none")},
                    saying=("clattn: CLATTN_KERNEL_DIR: ", self.path("none")))
        self.assertFalse(os.path.exists(self.path("y.npy")))


class StandardOutput(CommandTest):
    """If an output goes to standard output, the report goes to standard error."""

    def piped(self, *arguments):
        result = self.succeed(*arguments)
        array = np.load(io.BytesIO(result.bytes))
        self.assertEqual(len(result.bytes), 128 + array.nbytes)
        return array, result.errors

    def test_pipes(self):
        x = self.normal(3, 4)
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            if os.path.exists(name):
                found, lines = self.piped("softmax", self.save("x.npy", x), "-o", name, "--json")
                self.close(found, np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), 2e-6)
                self.assertEqual(json.loads(lines[-1])["shape"], [3, 4])
        found, lines = self.piped("softmax", self.path("x.npy"), "-o", "/dev/stdout", "--verify")
        self.assertIn("verified: yes", lines)

    def test_a_second_output_too(self):
        q = self.save("q.npy", self.normal(1, 2, 3, 4))
        lse, lines = self.piped("attention", "-q", q, "-k", q, "-v", q, "-o", self.path("o.npy"), "--lse", "/dev/stdout",
                                "--json")
        self.assertEqual(lse.shape, (1, 2, 3))
        self.assertEqual(json.loads(lines[-1])["shape"], [1, 2, 3, 4])

    def test_a_file(self):
        x = self.save("x.npy", self.normal(3, 4))
        with open(self.path("all.npy"), "wb") as file:
            result = self.succeed("softmax", x, "-o", "/dev/stdout", "--json", stdout=file)
        self.assertEqual(np.load(self.path("all.npy")).shape, (3, 4))
        self.assertEqual(json.loads(result.errors[-1])["shape"], [3, 4])

    def test_nothing_of_it_elsewhere(self):
        x = self.save("x.npy", self.normal(3, 4))
        result = self.succeed("softmax", x, "-o", "/dev/null", "--json")
        self.assertEqual((result.json()["shape"], result.errors), ([3, 4], []))
        with open("/dev/null", "wb") as null:
            self.assertEqual(self.succeed("softmax", x, "-o", "/dev/null", stdout=null).errors, [])


@unittest.skipUnless(os.environ.get("CRASHING_ICD"), "CRASHING_ICD names no driver that crashes")
class CrashingDriver(SoftmaxTest):
    """A driver ends the process when it is asked for its platforms."""

    def vendors(self, *good):
        """Makes a folder with the crashing driver and others, as the loader expects it."""
        folder = tempfile.mkdtemp(dir=self.folder)
        self.write(os.path.join(folder, "broken.icd"), os.environ["CRASHING_ICD"] + "\n")
        for path in good:
            if path.endswith(".icd"):
                os.symlink(path, os.path.join(folder, os.path.basename(path)))
            else:
                self.write(os.path.join(folder, os.path.basename(path) + ".icd"), path + "\n")
        return folder

    def leftovers(self):
        found = set()
        for name in os.listdir("/tmp"):
            folder = os.path.join("/tmp", name)
            if name.startswith("clattn-") and os.path.isdir(folder) and "000.icd" in os.listdir(folder):
                found.add(name)
        return found

    def test_the_others_are_used_and_it_is_named(self):
        usual = os.environ.get("OCL_ICD_VENDORS", "")
        if not usual.endswith((".icd", ".so")):
            self.skipTest("OCL_ICD_VENDORS names no single driver")
        before = self.leftovers()
        for segv in (None, "1"):
            env = {"OCL_ICD_VENDORS": self.vendors(usual), "CRASHING_ICD_SEGV": segv}
            listed = self.succeed("devices", "--json", env=env)
            self.assertEqual(listed.errors, [])
            self.assertEqual(listed.json()["devices"], self.succeed("devices", "--json").json()["devices"])
            named = [line for line in listed.json()["skipped"] if "broken.icd" in line]
            self.assertEqual(len(named), 1)
            self.assertIn("signal 11" if segv else "signal 6", named[0])
            self.assertRegex(self.succeed("devices", env=env).out, r"(?m)^skipped: .*broken\.icd")
            result = self.succeed(*self.softmax, env=env)
            self.assertEqual([line for line in result.errors if "broken.icd" in line], result.errors[:1])
            self.assertTrue(result.errors[0].startswith("clattn: warning: "), result)
            self.refuse(2, *self.softmax, "--solver", "nonsense", env=env, saying="nonsense")
        self.assertEqual(self.leftovers(), before)

    def test_alone_it_is_no_usable_device(self):
        folder = self.vendors()
        for vendors in (folder, os.path.join(folder, "broken.icd"), os.environ["CRASHING_ICD"]):
            env = {"OCL_ICD_VENDORS": vendors}
            name = os.environ["CRASHING_ICD"] if vendors.endswith(".so") else "broken.icd"
            self.refuse(3, "devices", env=env, saying=(name, "OCL_ICD_VENDORS"))
            self.refuse(3, *self.softmax, env=env, saying=name)

    def test_the_cache_needs_no_driver(self):
        env = {"OCL_ICD_VENDORS": self.vendors(), "CLATTN_CACHE_DIR": os.path.join(self.folder, "cache"),
               "CLATTN_CACHE": None}
        self.succeed("cache", "list", env=env)


class Progress(SoftmaxTest):
    @slow
    def test_one_long_run_shows_its_seconds(self):
        shape = [1, 8, 8, 512, 2048, 64, 64]
        once = ("bench", "attention", "--solver", "generic", "--repeat", "1", "--shape")
        report = self.succeed(*once, ",".join(map(str, shape)), "--json").json()
        shape[3] *= max(1, int(4.0 / report["seconds_min"]))
        status, shown = self.on_a_terminal(*once, ",".join(map(str, shape)))
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"\rattention  [2-9] s")
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown)) # the line is erased

    def test_what_is_over_at_once_shows_nothing(self):
        self.succeed(*self.softmax) # the kernel is compiled now
        began = time.monotonic()
        status, shown = self.on_a_terminal(*self.softmax)
        self.assertEqual(status, 0)
        if time.monotonic() - began < 2: # a busy machine may take longer
            self.assertEqual(shown, "")


class Softmax(CommandTest):
    def check(self, x, *options, mask=None, scale=1.0):
        arguments = ["softmax", self.save("x.npy", x), "-o", self.path("y.npy")]
        if mask is not None:
            arguments += ["--mask", self.save("mask.npy", mask)]
        self.succeed(*arguments, *options)
        added, attended = mask_terms(mask, x.shape)
        expected = softmax(x.astype(np.float64) * scale + added, attended)[0]
        self.close(np.load(self.path("y.npy")), expected, 2e-6)

    def test_random_shapes(self):
        for rank in range(1, 6):
            for _ in range(2):
                shape = tuple(self.random.integers(1, 9, rank - 1)) + (int(self.random.integers(1, 400)),)
                scale = float(np.float32(self.random.normal()))
                with self.subTest(shape=shape, scale=scale):
                    self.check(3 * self.normal(*shape), "--scale=%r" % scale, "--verify", scale=scale)

    def test_long_rows(self):
        self.check(self.normal(2, 100003))
        self.check(self.normal(1000003))

    def test_masks(self):
        x = 3 * self.normal(3, 4, 50)
        for shape, *options in (((50,),), ((4, 50),), ((3, 4, 50),), ((3, 1, 50),), ((4, 1),), ((4, 30), "--short-mask")):
            with self.subTest(mask=shape):
                self.check(x, *options, mask=self.random.random(shape) < 0.6)
                self.check(x, *options, mask=self.normal(*shape))

    def test_special_rows(self):
        x = self.normal(5, 9)
        x[0] = -np.inf
        x[1, 4] = np.nan
        x[2, 4] = np.inf
        x[3, 4] = -np.inf
        self.check(x)

    def test_empty(self):
        self.check(self.normal(0, 5))
        self.check(self.normal(2, 0, 5))

    def test_refusals(self):
        out = self.path("y.npy")
        self.refuse(2, "softmax", self.path("none.npy"), "-o", out, saying="none.npy")
        self.refuse(2, "softmax", self.save("d.npy", np.ones((2, 3))), "-o", out, saying=("d.npy", "float64"))
        self.refuse(2, "softmax", self.save("s.npy", np.float32(3)), "-o", out, saying="s.npy")
        x = self.save("x.npy", self.normal(2, 3))
        mask = self.save("m.npy", np.ones((3, 3), bool))
        self.refuse(2, "softmax", x, "-o", out, "--mask", mask, saying="m.npy")
        self.refuse(2, "softmax", x, "-o", out, "--causal", saying="--causal")

    def test_no_output_takes_an_input_away(self):
        x, mask = self.save("x.npy", self.normal(2, 3)), self.save("m.npy", np.ones(3, bool))
        os.symlink(x, self.path("link.npy"))
        for output, taken in ((x, x), (self.path("link.npy"), x), (mask, mask)):
            self.refuse(2, "softmax", x, "-o", output, "--mask", mask, saying=(output, "is the input " + taken))
        self.assertEqual(np.load(x).shape, (2, 3))

    def test_report(self):
        x = self.save("x.npy", self.normal(2, 3))
        report = self.succeed("softmax", x, "-o", self.path("y.npy"), "--verify", "--json").json()
        self.assertEqual(report["shape"], [2, 3])
        self.assertIs(report["verified"], True)


class Mha(CommandTest):
    def make(self, d_model, d_context=None, bias=True):
        """Returns a state dict, which is packed unless there is a d_context."""
        n = lambda *shape: self.normal(*shape) * np.float32(1.5 / np.sqrt(d_model))
        weights = {"out_proj.weight": n(d_model, d_model)}
        if d_context is None:
            weights["in_proj_weight"] = n(3 * d_model, d_model)
        else:
            weights["q_proj_weight"] = n(d_model, d_model)
            weights["k_proj_weight"] = n(d_model, d_context)
            weights["v_proj_weight"] = n(d_model, d_context)
        if bias:
            weights["in_proj_bias"], weights["out_proj.bias"] = n(3 * d_model), n(d_model)
        return weights

    def expected(self, weights, heads, x, context=None, **meaning):
        weights = {name: array.astype(np.float64) for name, array in weights.items()}
        x = x.astype(np.float64)
        context = x if context is None else context.astype(np.float64)
        d = x.shape[2]
        if "in_proj_weight" in weights:
            parts = np.split(weights["in_proj_weight"], 3)
        else:
            parts = [weights[name + "_proj_weight"] for name in "qkv"]
        biases = np.split(weights.get("in_proj_bias", np.zeros(3 * d)), 3)

        def heads_of(source, i):
            y = source @ parts[i].T + biases[i]
            return y.reshape(y.shape[0], y.shape[1], heads, d // heads).transpose(0, 2, 1, 3)

        q, k, v = heads_of(x, 0), heads_of(context, 1), heads_of(context, 2)
        output, _, probabilities = attention(q, k, v, **meaning)
        joined = output.transpose(0, 2, 1, 3).reshape(x.shape)
        return joined @ weights["out_proj.weight"].T + weights.get("out_proj.bias", 0.0), probabilities

    def arguments(self, weights, heads, x, context=None):
        write_safetensors(self.path("w.safetensors"), weights)
        arguments = ["mha", "--weights", self.path("w.safetensors"), "--heads", heads, "-x",
                     self.save("x.npy", x), "-o", self.path("o.npy")]
        return arguments + ([] if context is None else ["--context", self.save("c.npy", context)])

    def check(self, weights, heads, x, context=None, options=(), mask=None, **meaning):
        expected, probabilities = self.expected(weights, heads, x, context, mask=mask, **meaning)
        arguments = self.arguments(weights, heads, x, context) + list(options)
        if mask is not None:
            arguments += ["--mask", self.save("m.npy", mask)]
        self.succeed(*arguments, "--verify", "--attention-weights", self.path("p.npy"))
        self.close(np.load(self.path("o.npy")), expected)
        self.close(np.load(self.path("p.npy")), probabilities)
        self.succeed(*arguments, "--attention-weights", self.path("p.npy"), "--average")
        self.close(np.load(self.path("p.npy")), probabilities.mean(axis=1))

    def test_self_attention(self):
        for bias in (True, False):
            self.check(self.make(24, bias=bias), 3, self.normal(2, 11, 24))

    def test_the_papers_division(self):
        self.check(self.make(512), 8, self.normal(1, 20, 512))

    @slow
    def test_cross_attention(self):
        self.check(self.make(24), 4, self.normal(2, 5, 24), self.normal(2, 9, 24))
        for bias in (True, False):
            self.check(self.make(24, 14, bias), 4, self.normal(2, 5, 24), self.normal(2, 9, 14))

    def test_separate_weights_without_context(self):
        self.check(self.make(15, 15), 5, self.normal(1, 7, 15))

    @slow
    def test_masks_and_causality(self):
        weights, x = self.make(12), self.normal(2, 9, 12)
        self.check(weights, 2, x, options=["--causal"], causal=True)
        self.check(weights, 2, x, mask=self.random.random((9, 9)) < 0.6)
        self.check(weights, 2, x, mask=self.normal(2, 2, 1, 9))
        self.check(weights, 2, x, self.normal(2, 13, 12), options=["--causal", "--align", "bottom-right"],
                   causal=True, bottom_right=True)

    def test_report(self):
        arguments = self.arguments(self.make(12), 2, self.normal(2, 9, 12))
        report = self.succeed(*arguments, "--verify", "--json").json()
        self.assertIs(report["verified"], True)
        self.assertEqual(report["shape"], [2, 9, 12])
        self.assertIn("solver", report)

    def test_empty_batch(self):
        self.succeed(*self.arguments(self.make(12), 2, self.normal(0, 9, 12)))
        self.assertEqual(np.load(self.path("o.npy")).shape, (0, 9, 12))

    def refused(self, weights, heads, x, *more, context=None, saying=()):
        self.refuse(2, *self.arguments(weights, heads, x, context), *more, saying=saying)

    def test_refusals(self):
        weights, x = self.make(12), self.normal(2, 9, 12)
        self.refused(weights, 5, x, saying=("12", "5"))
        self.refused(weights, 2, self.normal(2, 9, 13), saying=("in_proj_weight", "13"))
        self.refused(weights, 2, self.normal(9, 12), saying=("x.npy", "expected 3"))
        self.refused(weights, 2, x, "--average", saying="--attention-weights")
        self.refused(weights, 2, x, "--align", "bottom-right", saying="--align is for --causal")
        self.refused(weights, 2, x, context=self.normal(3, 9, 12), saying="c.npy")
        self.refused(weights, 2, x, context=self.normal(2, 9, 14), saying="14")
        for name in ("bias_k", "bias_v"):
            self.refused({**weights, name: self.normal(1, 1, 12)}, 2, x, saying="bias_k")
        parts = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        separate = {**weights, **{name: self.normal(12, 12) for name in parts}}
        del separate["in_proj_weight"]
        for name in parts:
            less = {key: value for key, value in separate.items() if key != name}
            self.refused(less, 2, x, saying=("w.safetensors", name))
        self.refused(dict(weights, q_proj_weight=self.normal(12, 12)), 2, x, saying="both")
        for name in ("in_proj_weight", "out_proj.weight"):
            less = {key: value for key, value in weights.items() if key != name}
            self.refused(less, 2, x, saying=("w.safetensors", name))
        self.refused(dict(weights, in_proj_bias=self.normal(12)), 2, x, saying=("in_proj_bias", "36"))
        double = dict(weights, in_proj_weight=weights["in_proj_weight"].astype(np.float64))
        self.refused(double, 2, x, saying=("in_proj_weight", "float64"))

    def test_no_output_takes_an_input_away(self):
        arguments = self.arguments(self.make(12), 2, self.normal(2, 9, 12))
        for name in ("x.npy", "w.safetensors"):
            os.symlink(self.path(name), self.path("to-" + name))
            for output in (self.path(name), self.path("to-" + name)):
                self.refuse(2, *arguments, "--attention-weights", output, saying=(output, "is the input"))
        arguments[arguments.index("-o") + 1] = self.path("x.npy")
        self.refuse(2, *arguments, saying=("x.npy", "is the input"))
        self.assertEqual(np.load(self.path("x.npy")).shape, (2, 9, 12))

    def test_broken_weights(self):
        arguments = self.arguments(self.make(12), 2, self.normal(2, 9, 12))
        whole = self.read("w.safetensors")
        for content in (b"", whole[:7], whole[:40], whole[:-1], whole + b"\0", b"\xff" * 8 + whole[8:],
                        whole.replace(b"F32", b"F99"), b"PK\3\4" + whole):
            self.write("w.safetensors", content)
            self.refuse(2, *arguments, saying="w.safetensors")
        os.remove(self.path("w.safetensors"))
        self.refuse(2, *arguments, saying="w.safetensors")


class Tools(SoftmaxTest):
    BENCH_KEYS = ("device", "solver", "seconds_min", "seconds_median", "gflops", "gbytes_per_s")

    def check_bench(self, *arguments):
        result = self.succeed("bench", *arguments, "--repeat", "5", "--json")
        self.assertEqual(len(result.out.splitlines()), 1)
        report = result.json()
        for key in self.BENCH_KEYS:
            self.assertIn(key, report)
        self.assertEqual(report["runs"], 5)
        self.assertLessEqual(report["seconds_min"], report["seconds_median"])
        self.assertGreater(report["gflops"], 0)

    def test_bench(self):
        for arguments in (["attention", "--shape", "1,4,2,33,65,16,24", "--causal"], ["matmul", "--shape", "33,65,17"],
                          ["softmax", "--shape", "7,1000"], ["layernorm", "--shape", "7,1000"]):
            self.check_bench(*arguments)
        result = self.succeed("bench", "softmax", "--shape", "3,5", "--repeat", "5")
        self.assertIn("seconds_median: ", result.out)

    @slow
    def test_bench_of_types_and_options(self):
        for arguments in (["mha", "--shape", "2,17,24,3"], ["encoder", "--shape", "2,17,24,3,40"],
                          ["attention", "--shape", "2,4,2,33,65,16,24", "--window", "8,2", "--dtype", "bf16", "--page-size",
                           "16", "--solver", "generic"],
                          ["matmul", "--shape=33,65,17", "--bias", "--activation", "leaky-relu"],
                          ["layernorm", "--shape", "3,1", "--dtype", "f32", "--solver", "generic"],
                          ["matmul", "--shape", "33,65,17", "--bias", "--dtype", "bf16"],
                          ["softmax", "--shape", "7,100", "--dtype", "f16"],
                          ["softmax", "--shape", "7,100", "--dtype", "bf16"],
                          ["layernorm", "--shape", "7,100", "--dtype", "bf16"],
                          ["mha", "--shape", "2,17,24,3", "--dtype", "f32"],
                          ["mha", "--shape", "2,17,24,3", "--dtype", "bf16", "--causal"],
                          ["encoder", "--shape", "1,17,24,3,40", "--layers", "2", "--pre-norm", "--activation", "gelu-tanh",
                           "--gated", "--causal", "--dtype", "bf16"],
                          ["encoder", "--shape", "2,17,24,3,40", "--activation", "silu", "--dtype", "f16", "--int8"]):
            self.check_bench(*arguments)

    @slow
    def test_bench_encoder(self):
        # The paper's layer has four products, one attention and two norms.
        report = self.succeed("bench", "encoder", "--repeat", "1", "--explain", "--json").json()
        self.assertEqual(report["shape"], [1, 512, 512, 8, 2048])
        self.assertEqual(report["parameters"], 3152384)
        self.assertNotIn("parts", self.succeed("bench", "encoder", "--shape", "1,3,4,2,5", "--repeat", "1", "--json").json())
        times = sum(int(line.split(" times: ")[0]) for line in report["parts"] if " times: " in line)
        self.assertEqual(times, 7)
        text = self.succeed("bench", "encoder", "--shape", "1,3,4,2,5", "--layers", "2", "--repeat", "1", "--explain").out
        self.assertRegex(text, r"(?s)^1?\d times: .*\noperator: encoder\n.*\nlayers: 2\n.*\nseconds_median: ")
        # A gate adds a product.
        gated = self.succeed("bench", "encoder", "--shape", "1,3,4,2,5", "--gated", "--explain", "--repeat", "1",
                             "--json").json()
        self.assertEqual(sum(int(line.split(" times: ")[0]) for line in gated["parts"] if " times: " in line), 8)

    def test_bench_encoder_refuses(self):
        self.refuse(2, "bench", "encoder", "--shape", "1,3,10,3,5", saying=("D_MODEL 10", "HEADS 3"))
        self.refuse(2, "bench", "encoder", "--shape", "1,3,4,2", saying=("--shape '1,3,4,2'", "5 whole numbers"))
        self.refuse(2, "bench", "encoder", "--shape", "1,3,4,2,0", saying="--shape")
        self.refuse(2, "bench", "encoder", "--layers", "0", saying=("--layers", "1000"))
        self.refuse(2, "bench", "encoder", "--layers", "1001", saying=("--layers", "1000"))
        self.refuse(2, "bench", "encoder", "--activation", "tanh", saying=("tanh", "gelu-tanh"))
        self.refuse(2, "bench", "encoder", "--dtype", "i8", saying=("i8", "bf16"))

    def counts(self, *arguments, operations=None, moved=None, **fields):
        """Fails unless a bench counts these operations and bytes and reports these fields; returns the report."""
        report = self.succeed("bench", *arguments, "--repeat", "2", "--json").json()
        for rate, count in (("gflops", operations), ("gbytes_per_s", moved)):
            if count is not None:
                self.assertAlmostEqual(report[rate] * report["seconds_min"] * 1e9, count, delta=1)
        self.assertEqual({name: report[name] for name in fields}, fields)
        return report

    @slow
    def test_bench_counts(self):
        # 1 + 2 + 3 + 3 attended keys with causality, of 4 queries and 3 keys
        self.counts("attention", "--shape", "1,2,1,4,3,8,16", "--causal", operations=2 * 2 * 9 * 24)
        # A window of one key to the left: 1 + 2 + 2 + 1 pairs, of the first item's 4 queries and 3 keys; none of the
        # other's
        lengths = self.save("n.npy", np.array([3, 0]))
        self.counts("attention", "--shape", "2,2,1,4,3,8,16", "--window", "1,0", "--kv-lengths", lengths, "--dtype", "f16",
                    operations=2 * 2 * 6 * 24, dtype="float16")
        self.counts("matmul", "--shape", "3,5,7", operations=2 * 105)
        # All arrays have the type, so input, output and intermediate arrays have half as many bytes
        for dtype, name, size in (("f32", "float32", 4), ("f16", "float16", 2), ("bf16", "bfloat16", 2)):
            self.counts("matmul", "--shape", "3,5,7", "--bias", "--dtype", dtype, moved=size * (21 + 35 + 5 + 15), dtype=name)
            self.counts("softmax", "--shape", "6,11", "--dtype", dtype, moved=size * 2 * 66, dtype=name)
        # The vectors in and out and all weights: 4 matrices and 4 biases of attention, 2 and 2 of the feed-forward, 2
        # norms
        for more, layers, pairs, matrices, parameters, dtype, size in (
                ([], 1, 25, 2, 4 * 36 + 4 * 6 + 2 * 60 + 16 + 4 * 6, "float32", 4),
                (["--layers", "3", "--causal", "--gated", "--dtype", "f16", "--pre-norm"], 3, 15, 3,
                 3 * (4 * 36 + 4 * 6 + 3 * 60 + 26 + 4 * 6), "float16", 2)):
            report = self.counts(
                "encoder", "--shape", "2,5,6,3,10", *more, operator="encoder", shape=[2, 5, 6, 3, 10], dtype=dtype,
                layers=layers, parameters=parameters,
                operations=layers * 2 * (2 * 5 * (4 * 36 + matrices * 60) + 4 * 6 * pairs))
            self.assertGreaterEqual(report["weight_bytes"], size * parameters)
            self.assertAlmostEqual(report["gbytes_per_s"] * report["seconds_min"] * 1e9,
                                   size * 2 * 60 + report["weight_bytes"], delta=1)
        # Input, output, scale and bias
        self.counts("layernorm", "--shape", "6,11", operations=7 * 66, moved=4 * (2 * 66 + 2 * 11))

    def test_bench_reports_what_was_made_of_the_arrays(self):
        report = self.succeed("bench", "attention", "--shape", "2,4,2,3,33,8,8", "--kv-int8", "--kv-group", 4, "--page-size",
                              16, "--solver", "generic", "--repeat", "1", "--json").json()
        self.assertEqual([report[name] for name in ("dtype", "kv_dtype", "kv_group", "page_size", "pages")],
                         ["float32", "int8", 4, 16, 6])

    def test_bench_of_gradients(self):
        report = self.succeed("bench", "attention", "--shape", "2,4,2,9,33,8,6", "--backward", "--causal", "--solver", "cpu",
                              "--json").json()
        self.assertEqual((report["operator"], report["solver"]), ("attention backward", "cpu"))
        self.assertGreater(report["gflops"], 0)
        self.assertIn("attention_backward_rows", self.succeed("explain", "--shape", "2,4,2,9,33,8,6", "--backward", "--solver",
                                                              "generic").out)
        self.refuse(2, "bench", "attention", "--shape", "1,2,2,4,4,8,8", "--backward", "--ring", saying="no gradients of a ring")
        of_score = "(float s, int b, int h, int q, int k, user_data u)\n"
        score = self.write("score.cl", "float score_mod" + of_score + "{ return s * s; }")
        grad = self.write("grad.cl", "float score_mod_grad" + of_score + "{ return 2 * s; }")
        wrong = self.write("wrong.cl", "float score_mod_grad" + of_score + "{ return oops; }")
        command = ("bench", "attention", "--shape", "1,2,2,4,4,8,8", "--score-mod", score)
        self.succeed(*command, "--backward", "--score-mod-grad", grad, "--repeat", "1")
        self.refuse(2, *command, "--backward", saying="snippets.score_mod_grad is missing")
        self.refuse(2, *command, "--backward", "--score-mod-grad", wrong, saying=("wrong.cl:2:", "oops"))
        self.refuse(2, *command, "--score-mod-grad", grad, saying=("--score-mod-grad", "--backward"))
        self.refuse(2, *command[:4], "--backward", "--score-mod-grad", grad, saying=("--score-mod-grad", "--score-mod"))

    def test_bench_refusals(self):
        self.refuse(2, "bench", "attention", "--shape", "1,3,2,4,4,8,8", saying="divisor")
        self.refuse(2, "bench", "attention", saying="--shape")
        self.refuse(2, "bench", "attention", "--shape", "1,2,2,4,4,8,8", "--verify", saying="--verify")
        self.refuse(2, "bench", "attention", "--shape", "2,2,2,4,4,8,8", "--layout", "shd", saying="expected 1")
        self.refuse(2, "bench", "attention", "-q", "q.npy", saying="--shape")
        self.refuse(2, "bench", "mha", "--shape", "1,4,10,3", saying="multiple")
        self.refuse(2, "bench", "matmul", "--shape", "3,5,7", "--solver", "nonsense", saying="nonsense")
        self.refuse(2, "bench", "matmul", saying="--shape")
        self.refuse(2, "bench", "matmul", "--shape", "3,5,7", "--dtype", "f64", saying=("f64", "f32 or f16 or bf16"))
        self.refuse(2, "bench", "layernorm", saying="--shape")
        self.refuse(2, "bench", "layernorm", "--shape", "3,5", "--solver", "nonsense", saying="nonsense")
        self.refuse(2, "bench", "layernorm", "--shape", "3,5", "--bias", saying="--bias")
        self.refuse(3, "bench", "matmul", "--shape", "3,5,7", "--device", "nonsense", saying="nonsense")

    @slow
    def test_bench_random(self):
        """The shapes that bench draws are the same for the same seed, and need no device."""
        nowhere = {"CLATTN_DEVICE": "nonsense"}
        lines = self.succeed("bench", "random", "--count", "8", "--seed", "3", env=nowhere).out.splitlines()
        self.assertEqual(lines, self.succeed("bench", "random", "--count", "9", "--seed", "3").out.splitlines()[:8])
        self.assertNotEqual(lines, self.succeed("bench", "random", "--count", "8", "--seed", "4").out.splitlines())
        report = self.succeed("bench", "random", "--count", "8", "--seed", "3", "--json").json()
        self.assertEqual((report["seed"], report["least"], report["most"]), ("3", 2 ** 25, 2 ** 33))
        for line, shape in zip(lines, report["shapes"]):
            self.assertEqual(line, "%s --shape %s%s" % (shape["operator"], ",".join(map(str, shape["shape"])),
                                                        " --causal" if shape["causal"] else ""))
        self.assertEqual([shape["operator"] for shape in report["shapes"]],
                         ["attention", "matmul", "softmax", "layernorm"] * 2)
        small = self.succeed("bench", "random", "--count", "4", "--least", "0", "--most", str(2 ** 16)).out.splitlines()
        for line in small:
            self.succeed("bench", *line.split(), "--repeat", "1")
        for arguments, saying in ((("--most", "65535"), "--most 65535"), (("--most", str(2 ** 41)), "--most"),
                                  (("--least", "1025", "--most", "65536"), "--least 1025"), (("--count", "0"), "--count"),
                                  (("--device", "cpu"), "--device")):
            self.refuse(2, "bench", "random", *arguments, saying=saying)

    @slow
    def test_bench_startup(self):
        result = self.succeed("bench", "startup", "--repeat", "1", "--shape", "1,1,1,4,4,8,8", "--json")
        report = result.json()
        for key in self.BENCH_KEYS + ("empty_seconds_median", "warm_seconds_median"):
            self.assertIn(key, report)
        self.assertGreater(report["empty_process_seconds_median"], report["empty_seconds_median"])
        self.assertEqual((report["of"], report["shape"]), ("attention", [1, 1, 1, 4, 4, 8, 8]))
        for of, shape in (("matmul", [3, 5, 7]), ("mha", [1, 3, 8, 2])):
            sizes = ",".join(map(str, shape))
            report = self.succeed("bench", "startup", "--repeat", "1", "--" + of, sizes, "--json").json()
            self.assertEqual((report["of"], report["shape"]), (of, shape))
            self.assertGreater(report["warm_seconds_median"], 0)
        self.refuse(2, "bench", "startup", "--mha", "1,4,10,3", saying="multiple")
        self.refuse(2, "bench", "startup", "--mha", "1,4,10,2", "--matmul", "3,5,7", saying="exclude")
        self.refuse(3, "bench", "startup", "--repeat", "1", "--device", "nonsense", saying="nonsense")

    def test_bench_enqueue(self):
        for shape, groups in ((None, [1, 8, 1]), ("2,4,2,65,9,8,16", [2, 4, 2])):
            asked = ("--shape", shape) if shape else ()
            result = self.succeed("bench", "enqueue", "--repeat", "3", *asked, "--json")
            self.assertEqual(len(result.out.splitlines()), 1)
            report = result.json()
            self.assertEqual(",".join(map(str, report["shape"])), shape or "1,8,8,64,64,64,64")
            self.assertEqual(report["runs"], 3 * 8)
            self.assertGreaterEqual(report["kernel_launches"], 1)
            self.assertEqual(report["bare_work_groups"], groups)
            for key in ("device", "solver", "seconds_min", "seconds_median"):
                self.assertIn(key, report)
            for key in ("enqueue_microseconds", "bare_microseconds"):
                self.assertGreater(report[key], 0)
            self.assertTrue(np.isfinite(report["difference_microseconds"]))
            self.assertAlmostEqual(report["difference_microseconds"],
                                   report["enqueue_microseconds"] - report["bare_microseconds"], delta=1e-3)
            self.assertAlmostEqual(report["enqueue_microseconds"], report["seconds_median"] * 1e6, delta=1e-3)
        self.assertIn("difference_microseconds: ", self.succeed("bench", "enqueue", "--repeat", "1").out)

    def test_bench_enqueue_launches_as_often_as_the_plan(self):
        """If few queries attend many keys, the keys are split among launches; explain tells how many."""
        shape = "1,1,1,1,16384,32,32"
        told = self.succeed("explain", "--shape", shape, "--json").json()["kernel_launches"]
        report = self.succeed("bench", "enqueue", "--shape", shape, "--repeat", "1", "--json").json()
        self.assertEqual(report["kernel_launches"], told)

    def test_bench_enqueue_refusals(self):
        self.refuse(2, "bench", "enqueue", "--repeat", "10001", saying=("--repeat 10001", "at most 10000"))
        self.refuse(2, "bench", "enqueue", "--dtype", "f16", saying="--dtype")
        self.refuse(2, "bench", "enqueue", "--shape", "1,3,2,4,4,8,8", saying="divisor")
        self.refuse(2, "bench", "enqueue", "--solver", "nonsense", saying="nonsense")
        self.refuse(3, "bench", "enqueue", "--device", "nonsense", saying="nonsense")

    def ring(self, shape, *more):
        result = self.succeed("bench", "ring", "--shape", ",".join(map(str, shape)), *more, "--repeat", "2", "--json")
        self.assertEqual(len(result.out.splitlines()), 1)
        report = result.json()
        self.assertEqual((report["operator"], report["shape"], report["runs"]), ("ring", shape, 2))
        for key in ("device", "platform", "solver", "dtype", "mode", "causal", "ranks", "seconds_min", "seconds_median",
                    "whole_seconds_median", "sent_bytes", "waiting_share", "balance", "max_difference"):
            self.assertIn(key, report)
        self.assertGreater(report["seconds_min"], 0)
        self.assertGreater(report["whole_seconds_median"], 0)
        self.assertTrue(0 <= report["waiting_share"] <= 1, report)
        return report

    def test_bench_ring(self):
        """Each mode gives the whole's result, and sends what it has to: of float32, all keys and values but the rank's own, or
        with heads the parts of all arrays that belong to other ranks."""
        shape = batch, heads, kv_heads, queries, keys, d_k, d_v = [1, 8, 4, 16, 32, 8, 8]
        kept = 4 * batch * kv_heads * keys * (d_k + d_v)
        own = kept + 4 * batch * heads * queries * (d_k + d_v)
        for mode in ("ring", "zigzag", "gather", "heads"):
            for ranks in (1, 2, 4):
                report = self.ring(shape, "--mode", mode, "--ranks", ranks, "--causal")
                self.assertEqual((report["mode"], report["ranks"], report["causal"]), (mode, ranks, True))
                sent = own * (ranks - 1) // ranks ** 2 if mode == "heads" else kept * (ranks - 1) // ranks
                self.assertEqual(report["sent_bytes"], [sent] * ranks)
                self.assertLess(report["max_difference"], 1e-5)
                pairs = [sum(1 + row for row in range(rank * queries // ranks, (rank + 1) * queries // ranks))
                         for rank in range(ranks)]
                balance = 1 if mode in ("zigzag", "heads") else max(pairs) * ranks / sum(pairs)
                self.assertAlmostEqual(report["balance"], balance, places=6)
        report = self.ring(shape)
        self.assertEqual((report["mode"], report["ranks"], report["causal"], report["balance"]), ("ring", 2, False, 1))
        text = self.succeed("bench", "ring", "--shape", "1,8,4,16,32,8,8", "--repeat", "1").out
        self.assertRegex(text, r"(?s)^operator: ring\n.*\nsent_bytes: \(4096, 4096\)\n.*\nmax_difference: \S+\n$")

    def test_bench_ring_with_fewer_keys_than_queries(self):
        report = self.ring([1, 4, 4, 16, 8, 8, 8], "--causal")
        self.assertAlmostEqual(report["balance"], 2 * 64 / 100, places=6)

    @slow
    def test_bench_ring_of_types(self):
        for dtype, name, bound in (("f16", "float16", 2 ** -8), ("bf16", "bfloat16", 2 ** -5)):
            for mode in ("zigzag", "heads"):
                report = self.ring([1, 4, 4, 16, 16, 8, 8], "--mode", mode, "--dtype", dtype)
                self.assertEqual(report["dtype"], name)
                self.assertLessEqual(report["max_difference"], bound)

    def test_bench_ring_by_a_link(self):
        """A round of the ring takes the latency and the bytes' time at least, which the ranks spend waiting."""
        shape = [1, 8, 4, 16, 32, 8, 8]  # 4,096 bytes a message
        report = self.ring(shape, "--latency", "20000")
        self.assertGreaterEqual(report["seconds_min"], 0.02)
        self.assertEqual(report["link_microseconds"], 20000)
        self.assertNotIn("link_gbytes_per_s", report)
        report = self.ring(shape, "--link", "0.001")
        self.assertGreaterEqual(report["seconds_min"], 4096e-6)
        self.assertAlmostEqual(report["link_gbytes_per_s"], 0.001)
        report = self.ring(shape, "--link", "0.001", "--latency", "20000", "--ranks", "4")
        self.assertGreaterEqual(report["seconds_min"], 3 * (0.02 + 2048e-6))
        self.assertGreater(report["waiting_share"], 0.3)

    def test_bench_ring_refusals(self):
        ring = ("bench", "ring", "--shape", "1,4,4,16,16,8,8")
        self.refuse(2, "bench", "ring", saying="--shape")
        self.refuse(2, "bench", "ring", "--shape", "1,3,2,4,4,8,8", saying="divisor")
        self.refuse(2, *ring, "--ranks", "3", saying=("SQ 16", "3 ranks", "multiple of 3"))
        self.refuse(2, "bench", "ring", "--shape", "1,4,4,16,15,8,8", saying=("SKV 15", "multiple of 2"))
        self.refuse(2, *ring, "--mode", "zigzag", "--ranks", "16", saying=("SQ 16", "zigzag", "multiple of 32"))
        for mode in ("gather", "heads"):
            self.refuse(2, *ring, "--mode", mode, "--ranks", "8", saying=("HKV 4", mode, "multiple of 8"))
        self.refuse(2, *ring, "--mode", "tree", saying=("tree", "ring or zigzag or gather or heads"))
        for ranks in ("0", "65", "-1", "two"):
            self.refuse(2, *ring, "--ranks", ranks, saying=(ranks, "from 1 to 64"))
        for link in ("0", "-1", "0.0009"):
            self.refuse(2, *ring, "--link", link, saying=("--link " + link, "0.001 GB/s or more"))
        self.refuse(2, *ring, "--link", "fast", saying=("--link 'fast'", "number"))
        for latency in ("-1", "1000001"):
            self.refuse(2, *ring, "--latency", latency, saying=("--latency", "0 to 1000000 microseconds"))
        self.refuse(2, *ring, "--repeat", "10001", saying=("10001", "from 1 to 10000"))
        self.refuse(2, *ring, "--solver", "generic", saying="--solver")
        self.refuse(3, *ring, "--device", "nonsense", saying="nonsense")

    def test_cache(self):
        self.needs_saved_programs()
        folder = os.path.join(self.folder, "cache")
        env = {"CLATTN_CACHE_DIR": folder, "CLATTN_CACHE": None, "CLATTN_SAVE": "release"}
        self.assertEqual(self.succeed("cache", "path", env=env).out, folder + "\n")
        self.assertEqual(self.succeed("cache", "list", "--json", env=env).json()["count"], 0)
        self.succeed(*self.softmax, env=env)
        listed = self.succeed("cache", "list", "--json", env=env).json()
        self.assertGreater(listed["count"], 0)
        self.assertEqual(listed["count"], len(listed["entries"]))
        self.assertIn(listed["entries"][0]["name"], self.succeed("cache", "list", env=env).out)
        self.write(os.path.join(folder, "mine.txt"), "not an entry")
        cleared = self.succeed("cache", "clear", "--json", env=env).json()
        self.assertEqual(cleared["removed"], listed["count"])
        self.assertEqual(os.listdir(folder), ["mine.txt"])
        self.assertEqual(self.succeed("cache", "--json", env=env).json(), {"path": folder, "count": 0, "bytes": 0})
        self.assertIn(folder, self.succeed("cache", env=env).out)
        for action in ([], ["path"], ["list"], ["clear"]): # without any device
            self.succeed("cache", *action, env=dict(env, OCL_ICD_VENDORS=self.folder, CLATTN_DEVICE="nonsense"))
        self.refuse(1, "cache", env={"CLATTN_CACHE": "off"}, saying="off")
        self.refuse(1, "cache", "path", env={"CLATTN_CACHE": "off"}, saying="off")

    def test_a_cache_that_is_not_safe_is_only_a_warning(self):
        folder = os.path.join(self.folder, "open")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        env = {"CLATTN_CACHE_DIR": folder, "CLATTN_CACHE": None, "CLATTN_LOG": None}
        result = self.succeed(*self.softmax, env=env)
        self.assertEqual(len(result.errors), 1, result)
        self.assertTrue(result.errors[0].startswith("clattn: warning: "), result)
        self.assertEqual(os.listdir(folder), [])
        self.refuse(2, *self.softmax, "--solver", "nonsense", env=env, saying="nonsense")


if __name__ == "__main__":
    main()
