#!/usr/bin/env python3
"""The clattn command from outside: exit statuses, error lines, JSON, and results against NumPy in float64.

    CLATTN=build/src/tool/clattn python3 tests/test_command.py [-k PATTERN ...]

The device is whatever the environment chooses (OCL_ICD_VENDORS, CLATTN_DEVICE).  Needs NumPy and no more.
Random shapes come from one printed seed; CLATTN_TEST_SEED gives another."""
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

CLATTN = os.environ.get("CLATTN", "clattn")
SEED = int(os.environ.get("CLATTN_TEST_SEED", "20241121"))
TIMEOUT = 240
# PoCL's compiler counts its own warnings on stderr.
NOISE = re.compile(r"^\d+ warnings? generated\.$")


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.out = done.stdout.decode("utf-8", "replace")
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        self.errors = [line for line in lines if not NOISE.match(line)]

    def json(self):
        """The last line on stdout, an object."""
        value = json.loads(self.out.splitlines()[-1])
        assert isinstance(value, dict)
        return value

    def __repr__(self):
        return "status %d\nstdout: %s\nstderr: %s" % (self.status, self.out, "\n".join(self.errors))


def softmax(scores, attended):
    """Over the last axis: rows that attend nothing are 0; NaN and +inf in attended places make a row NaN."""
    with np.errstate(all="ignore"):
        kept = np.where(attended, scores, -np.inf)
        top = np.max(kept, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.where(attended, np.exp(kept - top), 0.0)
        total = np.sum(weights, axis=-1, keepdims=True)
        any_key = np.any(attended, axis=-1, keepdims=True)
        lse = np.where(any_key, top + np.log(total), -np.inf)[..., 0]
        return np.where(any_key, weights / total, 0.0), lse


def mask_terms(mask, shape):
    """What a mask adds, and whom it lets attend; short ones are extended with "do not attend"."""
    added, attended = np.zeros(shape), np.ones(shape, bool)
    if mask is None:
        return added, attended
    mask = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape)
    keys = mask.shape[-1]
    if 1 < keys < shape[-1]:
        attended[..., keys:] = False
        part = shape[:-1] + (keys,)
    else:
        part = shape
    whole = np.broadcast_to(mask, part)
    if mask.dtype == np.bool_:
        attended[..., :part[-1]] &= whole
    else:
        attended[..., :part[-1]] &= whole != -np.inf
        added[..., :part[-1]] = np.where(whole == -np.inf, 0.0, whole)
    return added, attended


def attention(q, k, v, mask=None, causal=False, bottom_right=False, scale=None):
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s_q, s_k = q.shape[2], k.shape[2]
    scale = 1.0 / np.sqrt(q.shape[3]) if scale is None else scale
    added, attended = mask_terms(mask, q.shape[:3] + (s_k,))
    if causal:
        position = s_k - s_q if bottom_right else 0
        attended = attended & (np.arange(s_k)[None, :] <= np.arange(s_q)[:, None] + position)
    with np.errstate(all="ignore"):
        weights, lse = softmax(scale * (q @ np.swapaxes(k, 2, 3)) + added, attended)
    # 0 * NaN must not appear below.
    used = np.where(np.any(attended.reshape(-1, s_k), axis=0)[:, None], v, 0.0)
    return weights @ used, lse, weights


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": {"float32": "F32", "float64": "F64"}[str(array.dtype)],
                        "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="clattn-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = np.random.default_rng(SEED)

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, name, array):
        np.save(self.path(name), array)
        return self.path(name)

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def run_clattn(self, *arguments, env=None, **more):
        environment = dict(os.environ)
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        more.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([CLATTN] + [str(a) for a in arguments], stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, env=environment, timeout=TIMEOUT,
                              **{k: v for k, v in more.items()})
        if done.stdout is None:
            done.stdout = b""
        return Result(done)

    def succeed(self, *arguments, **more):
        result = self.run_clattn(*arguments, **more)
        self.assertEqual(result.status, 0, result)
        return result

    def refuse(self, status, *arguments, saying=(), **more):
        """Exactly one line on stderr that begins with "clattn: " and has all of `saying`."""
        result = self.run_clattn(*arguments, **more)
        self.assertEqual(result.status, status, result)
        self.assertEqual(len(result.errors), 1, result)
        self.assertTrue(result.errors[0].startswith("clattn: "), result)
        for text in (saying,) if isinstance(saying, str) else saying:
            self.assertIn(text, result.errors[0])
        return result

    def close(self, actual, expected, tolerance=1e-5):
        """NaN at the same places, infinities equal, the rest within tolerance * max(1, max |expected|)."""
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        finite = np.isfinite(expected)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(actual[infinite], expected[infinite])
        if np.any(finite):
            largest = max(1.0, np.max(np.abs(expected[finite])))
            error = np.max(np.abs(actual[finite].astype(np.float64) - expected[finite]))
            self.assertLessEqual(error, tolerance * largest)

    def attend(self, q, k, v, *options, mask=None, lse=False):
        """Runs the command; the output (and the lse)."""
        arguments = ["attention", "-q", self.save("q.npy", q), "-k", self.save("k.npy", k), "-v",
                     self.save("v.npy", v), "-o", self.path("o.npy")]
        if mask is not None:
            arguments += ["--mask", self.save("mask.npy", mask)]
        if lse:
            arguments += ["--lse", self.path("lse.npy")]
        self.succeed(*arguments, *options)
        output = np.load(self.path("o.npy"))
        self.assertEqual(output.dtype, np.float32)
        return (output, np.load(self.path("lse.npy"))) if lse else output


class Usage(CommandTest):
    COMMANDS = [["devices"], ["attention"], ["softmax"], ["mha"], ["bench"], ["bench", "attention"],
                ["bench", "matmul"], ["bench", "softmax"], ["bench", "mha"], ["bench", "startup"], ["cache"],
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
        self.refuse(2, "bench", "dance", saying="dance")
        self.refuse(2, "cache", "dance", saying="dance")
        self.refuse(2, "--version", "more", saying="more")
        for command in self.COMMANDS:
            if command != ["bench"]:
                self.refuse(2, *command, "--dance", saying="--dance")
                self.refuse(2, *command, "-z", saying="-z")

    def test_what_comes_later_is_refused_by_name(self):
        for option in ("--window", "--softcap", "--kv-lengths", "--query-lengths", "--query-offset",
                       "--alibi", "--sinks", "--dropout", "--seed", "--score", "--score-mod", "--scores"):
            self.refuse(2, "attention", option, "1", saying=(option, "not supported yet"))
        for dtype in ("f16", "bf16"):
            self.refuse(2, "attention", "--dtype", dtype, saying=(dtype, "not supported yet"))
        self.refuse(2, "attention", "--dtype", "f8", saying=("f8", "f32"))
        for command in ("tune", "embed", "transcribe"):
            self.refuse(2, command, saying=(command, "not supported yet"))
        self.refuse(2, "bench", "encoder", saying="not supported yet")

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
        self.refuse(2, "mha", "--heads", "0", saying="--heads")

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


class Devices(CommandTest):
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
        """What a first device answers to."""
        first = self.succeed("devices", "--json").json()["devices"][0]
        platform, name = first["platform"], first["name"]
        specs = ["0", platform[:5].upper() + ":" + name[-4:].lower(), ":"]
        return specs + {"gpu": ["gpu"], "cpu": ["cpu"], "pocl": ["pocl", "cpu"]}.get(first["class"], [])

    def test_device_specs(self):
        x = self.save("x.npy", self.normal(3, 4))
        for spec in self.specs():
            for device, env in ((["--device", spec], {}), ([], {"CLATTN_DEVICE": spec})):
                self.succeed("softmax", x, "-o", self.path("y.npy"), *device, env=env)

    def test_no_such_device_is_3_and_never_a_fallback(self):
        x = self.save("x.npy", self.normal(3, 4))
        for spec in ("nonsense", "99", "no platform:at all", "99999999999999999999"):
            self.refuse(3, "softmax", x, "-o", self.path("y.npy"), "--device", spec, saying=spec)
            self.refuse(3, "softmax", x, "-o", self.path("y.npy"), env={"CLATTN_DEVICE": spec}, saying=spec)
        self.refuse(3, "selftest", env={"CLATTN_DEVICE": "nonsense"}, saying="nonsense")
        self.assertFalse(os.path.exists(self.path("y.npy")))

    def test_the_option_wins_over_the_environment(self):
        x = self.save("x.npy", self.normal(3, 4))
        self.succeed("softmax", x, "-o", self.path("y.npy"), "--device", "0",
                     env={"CLATTN_DEVICE": "nonsense"})

    def test_no_platform_at_all(self):
        nothing = {"OCL_ICD_VENDORS": self.folder, "OCL_ICD_FILENAMES": None}
        x = self.save("x.npy", self.normal(3, 4))
        self.refuse(3, "devices", env=nothing)
        self.refuse(3, "softmax", x, "-o", self.path("y.npy"), env=nothing, saying="no OpenCL platform")


    def test_sources_that_cannot_be_read_are_bad_input(self):
        x = self.save("x.npy", self.normal(3, 4))
        self.refuse(2, "softmax", x, "-o", self.path("y.npy"), env={"CLATTN_KERNEL_DIR": self.path("none")},
                    saying=self.path("none"))
        self.assertFalse(os.path.exists(self.path("y.npy")))


@unittest.skipUnless(os.environ.get("CRASHING_ICD"), "CRASHING_ICD names no driver that crashes")
class CrashingDriver(CommandTest):
    """A driver that ends the process when it is asked for its platforms."""

    def vendors(self, *good):
        """A folder with the crashing driver and others, as the loader wants it."""
        folder = tempfile.mkdtemp(dir=self.folder)
        with open(os.path.join(folder, "broken.icd"), "w") as file:
            file.write(os.environ["CRASHING_ICD"] + "\n")
        for path in good:
            os.symlink(path, os.path.join(folder, os.path.basename(path)))
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
        if not usual.endswith(".icd"):
            self.skipTest("OCL_ICD_VENDORS names no single driver")
        x, before = self.save("x.npy", self.normal(3, 4)), self.leftovers()
        for segv in (None, "1"):
            env = {"OCL_ICD_VENDORS": self.vendors(usual), "CRASHING_ICD_SEGV": segv}
            listed = self.succeed("devices", "--json", env=env)
            self.assertEqual(listed.errors, [])
            self.assertEqual(listed.json()["devices"], self.succeed("devices", "--json").json()["devices"])
            named = [line for line in listed.json()["skipped"] if "broken.icd" in line]
            self.assertEqual(len(named), 1)
            self.assertIn("signal 11" if segv else "signal 6", named[0])
            self.assertRegex(self.succeed("devices", env=env).out, r"(?m)^skipped: .*broken\.icd")
            result = self.succeed("softmax", x, "-o", self.path("y.npy"), env=env)
            self.assertEqual([line for line in result.errors if "broken.icd" in line], result.errors[:1])
            self.assertTrue(result.errors[0].startswith("clattn: warning: "), result)
            self.refuse(2, "softmax", x, "-o", self.path("y.npy"), "--solver", "nonsense", env=env,
                        saying="nonsense")
        self.assertEqual(self.leftovers(), before)

    def test_alone_it_is_no_usable_device(self):
        x, folder = self.save("x.npy", self.normal(3, 4)), self.vendors()
        for vendors in (folder, os.path.join(folder, "broken.icd"), os.environ["CRASHING_ICD"]):
            env = {"OCL_ICD_VENDORS": vendors}
            name = os.environ["CRASHING_ICD"] if vendors.endswith(".so") else "broken.icd"
            self.refuse(3, "devices", env=env, saying=(name, "OCL_ICD_VENDORS"))
            self.refuse(3, "softmax", x, "-o", self.path("y.npy"), env=env, saying=name)

    def test_the_cache_needs_no_driver(self):
        env = {"OCL_ICD_VENDORS": self.vendors(), "CLATTN_CACHE_DIR": os.path.join(self.folder, "cache"),
               "CLATTN_CACHE": None}
        self.succeed("cache", "list", env=env)


class Progress(CommandTest):
    def on_a_terminal(self, *arguments):
        """The exit status, and what a terminal at stderr gets."""
        try:
            master, slave = pty.openpty()
        except OSError as error:  # a chroot without /dev/pts
            self.skipTest(f"no pseudo-terminals here: {error}")
        process = subprocess.Popen([CLATTN] + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=slave,
                                   stdin=subprocess.DEVNULL)
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError: # the terminal has gone
                break
            if not part:
                break
            shown += part
        os.close(master)
        process.stdout.close()
        return process.wait(TIMEOUT), shown.decode("utf-8", "replace")

    def test_one_long_run_shows_its_seconds(self):
        shape = [1, 8, 8, 512, 2048, 64, 64]
        once = ("bench", "attention", "--solver", "generic", "--repeat", "1", "--shape")
        report = self.succeed(*once, ",".join(map(str, shape)), "--json").json()
        shape[3] *= max(1, int(4.0 / report["seconds_min"]))
        status, shown = self.on_a_terminal(*once, ",".join(map(str, shape)))
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"\rattention  [2-9] s")
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown)) # and takes it away

    def test_what_is_over_at_once_shows_nothing(self):
        x = self.save("x.npy", self.normal(3, 4))
        self.succeed("softmax", x, "-o", self.path("y.npy")) # compiled from here on
        began = time.monotonic()
        status, shown = self.on_a_terminal("softmax", x, "-o", self.path("y.npy"))
        self.assertEqual(status, 0)
        if time.monotonic() - began < 2: # a busy machine may take longer
            self.assertEqual(shown, "")


class Attention(CommandTest):
    def check(self, q, k, v, *options, mask=None, tolerance=1e-5, **meaning):
        output, lse = self.attend(q, k, v, *options, mask=mask, lse=True)
        expected, expected_lse, _ = attention(q, k, v, mask, **meaning)
        self.close(output, expected, tolerance)
        self.close(lse, expected_lse, tolerance)
        return output

    def test_random_shapes(self):
        print("seed %d" % SEED)
        for _ in range(16):
            pick = self.random.integers
            kv_heads, group = pick(1, 4), pick(1, 4)
            batch, s_q, s_k, d, d_v = pick(1, 4), pick(1, 70), pick(1, 130), pick(1, 100), pick(1, 100)
            q = self.normal(batch, kv_heads * group, s_q, d)
            k, v = self.normal(batch, kv_heads, s_k, d), self.normal(batch, kv_heads, s_k, d_v)
            causal, bottom_right = bool(pick(2)), bool(pick(2))
            scale = None if pick(2) else float(np.float32(self.random.normal()))
            mask = None
            if pick(2):
                mask = self.normal(s_q, s_k) if pick(2) else self.random.random((s_q, s_k)) < 0.7
            options = ["--causal"] if causal else []
            options += ["--align", "bottom-right" if bottom_right else "top-left"]
            options += [] if scale is None else ["--scale=%r" % scale]
            with self.subTest(q=q.shape, k=k.shape, v=v.shape, options=options,
                              mask=None if mask is None else str(mask.dtype)):
                self.check(q, k, v, *options, mask=mask, causal=causal, bottom_right=bottom_right,
                           scale=scale)

    def test_each_mask_broadcast(self):
        q, k, v = self.normal(2, 4, 5, 8), self.normal(2, 2, 7, 8), self.normal(2, 2, 7, 6)
        for bits in range(16):
            shape = tuple(whole if bits >> i & 1 else 1 for i, whole in enumerate((2, 4, 5, 7)))
            for mask in (self.random.random(shape) < 0.6, self.normal(*shape)):
                with self.subTest(mask=shape, dtype=str(mask.dtype)):
                    self.check(q, k, v, mask=mask)

    def test_masks_of_lower_rank_get_leading_ones(self):
        q, k, v = self.normal(2, 4, 5, 8), self.normal(2, 2, 7, 8), self.normal(2, 2, 7, 6)
        for shape in ((7,), (5, 7), (4, 5, 7), (1,), (5, 1)):
            with self.subTest(mask=shape):
                self.check(q, k, v, mask=self.random.random(shape) < 0.6)

    def test_short_masks_are_extended_with_do_not_attend(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 9, 8), self.normal(1, 2, 9, 8)
        for keys in (2, 8):
            self.check(q, k, v, mask=self.random.random((5, keys)) < 0.8)
            self.check(q, k, v, mask=self.normal(5, keys))

    def test_fully_masked_rows_are_zero(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        for mask in (np.ones((5, 7), bool), np.zeros((5, 7), np.float32)):
            mask[2] = False if mask.dtype == np.bool_ else -np.inf
            output = self.check(q, k, v, mask=mask)
            self.assertFalse(np.any(output[:, :, 2]))
            self.assertFalse(np.any(np.signbit(output[:, :, 2])))

    def test_causal_rows_without_keys(self):
        q, k, v = self.normal(1, 1, 9, 4), self.normal(1, 1, 5, 4), self.normal(1, 1, 5, 4)
        self.check(q, k, v, "--causal", "--align", "bottom-right", causal=True, bottom_right=True)

    def test_finite_masks_are_no_masks(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        low = np.float32(np.finfo(np.float32).min)
        output = self.attend(q, k, v, mask=np.full((5, 7), low, np.float32))
        self.close(output, np.broadcast_to(v.mean(axis=2, keepdims=True), output.shape).astype(np.float64))
        # Adding -1e4 costs the scores bits in any float32 computation.
        self.check(q, k, v, mask=np.full((5, 7), -1e4, np.float32), tolerance=2e-3)

    def test_masked_keys_cannot_leak(self):
        q, k, v = self.normal(2, 2, 9, 16), self.normal(2, 2, 20, 16), self.normal(2, 2, 20, 16)
        for mask in (np.ones(20, bool), np.zeros(20, np.float32)):
            mask[[3, 11, 19]] = False if mask.dtype == np.bool_ else -np.inf
            clean = self.attend(q, k, v, mask=mask)
            for poison in (np.nan, np.inf, -np.inf):
                k_bad = k.copy()
                k_bad[:, :, [3, 11, 19]] = poison
                self.assertEqual(self.attend(q, k_bad, v, mask=mask).tobytes(), clean.tobytes())

    def test_nan_travels(self):
        q, k, v = self.normal(1, 1, 6, 8), self.normal(1, 1, 7, 8), self.normal(1, 1, 7, 8)
        mask = np.zeros((6, 7), np.float32)
        mask[2, 3] = np.nan
        mask[4, 5] = np.inf
        output = self.attend(q, k, v, mask=mask)
        self.assertEqual(np.flatnonzero(np.isnan(output).all(axis=-1)).tolist(), [2, 4])
        q[0, 0, 1, 0] = np.nan
        output = self.attend(q, k, v)
        self.assertEqual(np.flatnonzero(np.isnan(output).all(axis=-1)).tolist(), [1])
        self.assertEqual(np.isnan(output).sum(), 8)

    def test_scales(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        for scale in ("0", "-0.5", "1e-3", "+2.5", "-1e2"):
            self.check(q, k, v, "--scale", scale, scale=float(scale), tolerance=3e-5)

    def test_large_scores(self):
        q, k, v = 30 * self.normal(1, 2, 40, 64), 30 * self.normal(1, 2, 50, 64), self.normal(1, 2, 50, 64)
        self.check(q, k, v, tolerance=5e-4)

    def test_solvers_agree(self):
        q, k, v = self.normal(1, 4, 33, 40), self.normal(1, 2, 65, 40), self.normal(1, 2, 65, 24)
        expected = attention(q, k, v)[0]
        for solver in ("generic", "cpu", "tile"):
            arguments = ("attention", "-q", self.save("q.npy", q), "-k", self.save("k.npy", k), "-v",
                         self.save("v.npy", v), "-o", self.path("o.npy"), "--solver", solver, "--json")
            self.assertEqual(self.succeed(*arguments).json()["solver"], solver)
            self.close(np.load(self.path("o.npy")), expected)

    def test_empty_arrays(self):
        for q, k, d_v in (((0, 2, 5, 8), (0, 2, 7, 8), 4), ((2, 2, 0, 8), (2, 2, 7, 8), 4),
                          ((2, 2, 5, 8), (2, 2, 0, 8), 4), ((2, 0, 5, 8), (2, 0, 7, 8), 4)):
            with self.subTest(q=q, k=k):
                v = self.normal(*k[:3], d_v)
                output, lse = self.attend(self.normal(*q), self.normal(*k), v, lse=True)
                self.assertEqual(output.shape, q[:3] + (d_v,))
                self.assertEqual(lse.shape, q[:3])
                self.assertFalse(np.any(output))
                self.assertTrue(np.all(lse == -np.inf))

    def test_report(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 3)
        files = ["attention", "-q", self.save("q.npy", q), "-k", self.save("k.npy", k), "-v",
                 self.save("v.npy", v), "-o", self.path("o.npy")]
        result = self.succeed(*files, "--lse", self.path("lse.npy"), "--verify", "--repeat", "3", "--json")
        report = result.json()
        self.assertEqual(len(result.out.splitlines()), 1)
        self.assertEqual(report["shape"], [1, 2, 5, 3])
        self.assertEqual(report["runs"], 3)
        self.assertLess(report["max_error"], 1e-5)
        self.assertIs(report["verified"], True)
        self.assertIs(report["lse_verified"], True)
        self.assertGreater(report["seconds_min"], 0)
        self.assertIn("verified: yes", self.succeed(*files, "--verify").out)


class BadFiles(CommandTest):
    def setUp(self):
        super().setUp()
        self.good = {"q": self.save("q.npy", self.normal(2, 4, 5, 8)),
                     "k": self.save("k.npy", self.normal(2, 2, 7, 8)),
                     "v": self.save("v.npy", self.normal(2, 2, 7, 3))}

    def attention_with(self, status, *more, saying=(), **files):
        files = {**self.good, "o": self.path("o.npy"), **files}
        arguments = [part for name in "qkvo" for part in ("-" + name, files[name])]
        self.refuse(status, "attention", *arguments, *more, saying=saying)
        if files["o"] == self.path("o.npy"):
            self.assertFalse(os.path.exists(files["o"]))

    def with_array(self, name, array):
        return self.save(name, array)

    def test_wrong_shapes(self):
        n, save = self.normal, self.save
        self.attention_with(2, q=save("q3.npy", n(4, 5, 8)), saying=("q3.npy", "(4, 5, 8)", "expected 4"))
        self.attention_with(2, k=save("k2.npy", n(7, 8)), saying=("k2.npy", "expected 4"))
        self.attention_with(2, v=save("v5.npy", n(1, 2, 2, 7, 3)), saying=("v5.npy", "expected 4"))
        self.attention_with(2, q=save("q0.npy", np.float32(1)), saying=("q0.npy", "expected 4"))
        self.attention_with(2, k=save("kd.npy", n(2, 2, 7, 9)), saying=("kd.npy", "9", "expected 8"))
        self.attention_with(2, k=save("kb.npy", n(3, 2, 7, 8)), saying=("kb.npy", "3", "expected 2"))
        self.attention_with(2, k=save("kh.npy", n(2, 3, 7, 8)), saying=("kh.npy", "3", "4"))
        self.attention_with(2, v=save("vl.npy", n(2, 2, 6, 3)), saying=("vl.npy", "6", "expected 7"))
        self.attention_with(2, v=save("vh.npy", n(2, 4, 7, 3)), saying=("vh.npy", "4", "expected 2"))
        self.attention_with(2, v=save("vz.npy", n(2, 2, 7, 0)), saying=("vz.npy", "at least 1"))

    def test_wrong_element_types(self):
        for dtype, text in ((np.float64, "float64"), (np.int32, "int32"), (np.float16, "not supported yet"),
                            (np.bool_, "bool")):
            path = self.save("wrong.npy", np.ones((2, 4, 5, 8), dtype))
            self.attention_with(2, q=path, saying=("wrong.npy", text, "float32"))
        self.attention_with(2, q=self.save("d.npy", np.ones((2, 4, 5, 8))), saying='.astype("float32")')
        self.attention_with(2, q=self.save("big.npy", np.ones((2, 4, 5, 8), ">f4")), saying="big.npy")
        self.attention_with(2, q=self.save("c8.npy", np.ones((2, 4, 5, 8), np.complex64)), saying="c8.npy")
        fortran = np.asfortranarray(self.normal(2, 4, 5, 8))
        self.attention_with(2, q=self.save("f.npy", fortran), saying="f.npy")

    def test_wrong_masks(self):
        for shape in ((3, 4, 5, 7), (2, 2, 5, 7), (2, 4, 4, 7), (2, 4, 5, 8), (1, 2, 4, 5, 7), (), (5, 0),
                      (0, 7)):
            mask = self.save("mask.npy", np.ones(shape, bool))
            self.attention_with(2, "--mask", mask, saying="mask.npy")
        for dtype in (np.float64, np.int32, np.uint8, np.float16):
            self.attention_with(2, "--mask", self.save("mask.npy", np.ones((5, 7), dtype)),
                                saying=("mask.npy", "bool", "float32"))

    def test_unreadable_files(self):
        self.attention_with(2, q=self.path("none.npy"), saying=("none.npy", "No such file"))
        self.attention_with(2, q=self.folder, saying=self.folder)
        self.attention_with(2, "--mask", self.path("none.npy"), saying="none.npy")
        with open(self.good["q"], "rb") as file:
            whole = file.read()
        for name, content in (("empty", b""), ("short", whole[:-1]), ("long", whole + b"\0"),
                              ("header", whole[:40]), ("magic", whole[:6]), ("text", b"not an array\n" * 20),
                              ("zip", b"PK\3\4" + whole)):
            with open(self.path(name), "wb") as file:
                file.write(content)
            self.attention_with(2, q=self.path(name), saying=self.path(name))

    def test_long_names_hide_no_reason(self):
        long = self.path("y" * 9000)
        self.attention_with(2, o=long, saying=("cannot be written", "..."))
        self.attention_with(2, q=long, saying="cannot be opened")

    def test_hostile_names_stay_one_line(self):
        self.attention_with(2, q=self.path("a\nb\x1b[31m.npy"), saying="b")

    def test_unwritable_outputs(self):
        self.attention_with(2, o=self.folder, saying=(self.folder, "directory"))
        self.attention_with(2, o=self.path("none/o.npy"), saying="none/o.npy")
        self.attention_with(2, o=self.good["q"] + "/o.npy", saying="q.npy/o.npy")
        self.attention_with(2, "--lse", self.folder, saying="directory")
        self.attention_with(2, "--lse", self.path("o.npy"), saying=("o.npy", "two outputs"))
        self.attention_with(1, o="/dev/full", saying="/dev/full")

    def test_a_failure_leaves_the_old_output(self):
        old = self.save("old.npy", np.arange(3))
        with open(old, "rb") as file:
            before = file.read()
        self.attention_with(2, k=self.path("none.npy"), o=old, saying="none.npy")
        self.attention_with(3, "--device", "nonsense", o=old, saying="nonsense")
        with open(old, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["k.npy", "old.npy", "q.npy", "v.npy"])

    def test_solvers_that_are_not_there(self):
        self.attention_with(2, "--solver", "nonsense", saying="nonsense")


class Softmax(CommandTest):
    def check(self, x, *options, mask=None, scale=1.0):
        arguments = ["softmax", self.save("x.npy", x), "-o", self.path("y.npy")]
        if mask is not None:
            arguments += ["--mask", self.save("mask.npy", mask)]
        self.succeed(*arguments, *options)
        scores = x.astype(np.float64) * scale
        if mask is None:
            with np.errstate(all="ignore"):
                weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
                expected = weights / np.sum(weights, axis=-1, keepdims=True)
        else:
            added, attended = mask_terms(mask, x.shape)
            with np.errstate(all="ignore"):
                expected = softmax(scores + added, attended)[0]
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
        for shape in ((50,), (4, 50), (3, 4, 50), (3, 1, 50), (4, 1), (4, 30)):
            with self.subTest(mask=shape):
                self.check(x, mask=self.random.random(shape) < 0.6)
                self.check(x, mask=self.normal(*shape))

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

    def test_report(self):
        x = self.save("x.npy", self.normal(2, 3))
        report = self.succeed("softmax", x, "-o", self.path("y.npy"), "--verify", "--json").json()
        self.assertEqual(report["shape"], [2, 3])
        self.assertIs(report["verified"], True)


class Mha(CommandTest):
    def make(self, d_model, d_context=None, bias=True):
        """A state dict; packed unless there is a d_context."""
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

    def test_cross_attention(self):
        self.check(self.make(24), 4, self.normal(2, 5, 24), self.normal(2, 9, 24))
        for bias in (True, False):
            self.check(self.make(24, 14, bias), 4, self.normal(2, 5, 24), self.normal(2, 9, 14))

    def test_separate_weights_without_context(self):
        self.check(self.make(15, 15), 5, self.normal(1, 7, 15))

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
        self.refused(weights, 2, x, context=self.normal(3, 9, 12), saying="c.npy")
        self.refused(weights, 2, x, context=self.normal(2, 9, 14), saying="14")
        self.refused(dict(weights, bias_k=self.normal(1, 1, 12)), 2, x, saying="bias_k")
        self.refused(dict(weights, q_proj_weight=self.normal(12, 12)), 2, x, saying="both")
        for name in ("in_proj_weight", "out_proj.weight"):
            less = {key: value for key, value in weights.items() if key != name}
            self.refused(less, 2, x, saying=("w.safetensors", name))
        self.refused(dict(weights, in_proj_bias=self.normal(12)), 2, x, saying=("in_proj_bias", "36"))
        double = dict(weights, in_proj_weight=weights["in_proj_weight"].astype(np.float64))
        self.refused(double, 2, x, saying=("in_proj_weight", "float64"))

    def test_broken_weights(self):
        arguments = self.arguments(self.make(12), 2, self.normal(2, 9, 12))
        with open(self.path("w.safetensors"), "rb") as file:
            whole = file.read()
        for content in (b"", whole[:7], whole[:40], whole[:-1], whole + b"\0", b"\xff" * 8 + whole[8:],
                        whole.replace(b"F32", b"F99"), b"PK\3\4" + whole):
            with open(self.path("w.safetensors"), "wb") as file:
                file.write(content)
            self.refuse(2, *arguments, saying="w.safetensors")
        os.remove(self.path("w.safetensors"))
        self.refuse(2, *arguments, saying="w.safetensors")


class Tools(CommandTest):
    BENCH_KEYS = ("device", "solver", "seconds_min", "seconds_median", "gflops", "gbytes_per_s")

    def test_bench(self):
        for arguments in (["attention", "--shape", "1,4,2,33,65,16,24", "--causal"],
                          ["matmul", "--shape", "33,65,17"], ["matmul", "--shape=33,65,17", "--bias"],
                          ["softmax", "--shape", "7,1000"],
                          ["mha", "--shape", "2,17,24,3"]):
            result = self.succeed("bench", *arguments, "--repeat", "5", "--json")
            self.assertEqual(len(result.out.splitlines()), 1)
            report = result.json()
            for key in self.BENCH_KEYS:
                self.assertIn(key, report)
            self.assertEqual(report["runs"], 5)
            self.assertLessEqual(report["seconds_min"], report["seconds_median"])
            self.assertGreater(report["gflops"], 0)
        result = self.succeed("bench", "softmax", "--shape", "3,5", "--repeat", "5")
        self.assertIn("seconds_median: ", result.out)

    def test_bench_counts(self):
        # 1 + 2 + 3 + 3 attended keys with causality, of 4 queries and 3 keys
        report = self.succeed("bench", "attention", "--shape", "1,2,1,4,3,8,16", "--causal", "--repeat", "2",
                              "--json").json()
        self.assertAlmostEqual(report["gflops"] * report["seconds_min"] * 1e9, 2 * 2 * 9 * 24, delta=1)
        report = self.succeed("bench", "matmul", "--shape", "3,5,7", "--repeat", "2", "--json").json()
        self.assertAlmostEqual(report["gflops"] * report["seconds_min"] * 1e9, 2 * 105, delta=1)

    def test_bench_refusals(self):
        self.refuse(2, "bench", "attention", "--shape", "1,3,2,4,4,8,8", saying="divisor")
        self.refuse(2, "bench", "mha", "--shape", "1,4,10,3", saying="multiple")
        self.refuse(2, "bench", "matmul", "--shape", "3,5,7", "--solver", "nonsense", saying="nonsense")
        self.refuse(2, "bench", "matmul", saying="--shape")
        self.refuse(3, "bench", "matmul", "--shape", "3,5,7", "--device", "nonsense", saying="nonsense")

    def test_bench_startup(self):
        result = self.succeed("bench", "startup", "--repeat", "1", "--shape", "1,1,1,4,4,8,8", "--json")
        report = result.json()
        for key in self.BENCH_KEYS + ("empty_seconds_median", "warm_seconds_median"):
            self.assertIn(key, report)
        self.assertGreater(report["empty_process_seconds_median"], report["empty_seconds_median"])
        self.refuse(3, "bench", "startup", "--repeat", "1", "--device", "nonsense", saying="nonsense")

    def test_cache(self):
        folder = os.path.join(self.folder, "cache")
        env = {"CLATTN_CACHE_DIR": folder, "CLATTN_CACHE": None}
        x = self.save("x.npy", self.normal(3, 4))
        self.assertEqual(self.succeed("cache", "path", env=env).out, folder + "\n")
        self.assertEqual(self.succeed("cache", "list", "--json", env=env).json()["count"], 0)
        self.succeed("softmax", x, "-o", self.path("y.npy"), env=env)
        listed = self.succeed("cache", "list", "--json", env=env).json()
        self.assertGreater(listed["count"], 0)
        self.assertEqual(listed["count"], len(listed["entries"]))
        self.assertIn(listed["entries"][0]["name"], self.succeed("cache", "list", env=env).out)
        with open(os.path.join(folder, "mine.txt"), "w") as file:
            file.write("not an entry")
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
        x = self.save("x.npy", self.normal(3, 4))
        result = self.succeed("softmax", x, "-o", self.path("y.npy"), env=env)
        self.assertEqual(len(result.errors), 1, result)
        self.assertTrue(result.errors[0].startswith("clattn: warning: "), result)
        self.assertEqual(os.listdir(folder), [])
        self.refuse(2, "softmax", x, "-o", self.path("y.npy"), "--solver", "nonsense", env=env,
                    saying="nonsense")

    def test_selftest(self):
        result = self.succeed("selftest")
        for operator in ("softmax", "attention", "matmul", "mha"):
            self.assertRegex(result.out, r"(?m)^%s +\(any\) +ok" % operator)
        self.assertNotIn("failed", result.out)
        report = self.succeed("selftest", "--json").json()
        self.assertIs(report["ok"], True)
        self.assertTrue(all(row["result"] in ("ok", "refused") for row in report["results"]))


class NamedResult(unittest.TextTestResult):
    """One line a test, and a count of what went well."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    if shutil.which(CLATTN) is None:
        sys.exit("%s: no such command; CLATTN names the one to test" % CLATTN)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=NamedResult)
    program = unittest.main(exit=False, testRunner=runner, verbosity=2)
    result = program.result
    failed = result.testsRun - result.passed - len(result.skipped)
    print("%d passed, %d failed" % (result.passed, failed))
    sys.exit(1 if failed or result.passed == 0 else 0)


if __name__ == "__main__":
    main()
