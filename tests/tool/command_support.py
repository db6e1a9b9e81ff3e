"""Shared by the tests of the clattn command: running it, and files.

The device is whatever the environment chooses (OCL_ICD_VENDORS, CLATTN_DEVICE).  Needs NumPy and no more.
Random shapes come from one printed seed; CLATTN_TEST_SEED gives another."""
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np

CLATTN = os.environ.get("CLATTN", "clattn")
SEED = int(os.environ.get("CLATTN_TEST_SEED", "20241121"))
# Each description takes a kernel to compile, so the default run takes only some of them.
FULL = os.environ.get("CLATTN_TEST_LEVEL") == "full" or "CLATTN_TEST_SEED" in os.environ
QUICK = os.environ.get("CLATTN_TEST_LEVEL") == "quick"
TIMEOUT = 240
# PoCL's compiler counts its own warnings and errors on stderr, Intel's catches the signal of a file that gets too large, and
# rusticl's has doubts about a kernel's arguments, which are uniform.
NOISE = re.compile(r"^\d+ (warning|error)s?( and \d+ errors?)? generated\.$|^PLEASE submit a bug report to |"
                   r"^MESA: warning: Treating load_kernel_arg in control flow as uniform")


def slow(test):
    """Leaves a test to the full run, because it is slow and the library's own tests hold most of what it holds."""
    return None if QUICK else test


def without_noise(stderr):
    """Returns the lines that are not the driver's own."""
    return [line for line in stderr.splitlines() if not NOISE.match(line)]


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.bytes = done.stdout or b""
        self.out = self.bytes.decode("utf-8", "replace")
        self.errors = without_noise(done.stderr.decode("utf-8", "replace"))

    def json(self):
        """Returns the last line on stdout, a JSON object."""
        value = json.loads(self.out.rstrip("\n").split("\n")[-1])  # a string may have other separators of lines
        assert isinstance(value, dict)
        return value

    def __repr__(self):
        return "status %d\nstdout: %s\nstderr: %s" % (self.status, self.out, "\n".join(self.errors))


def write_safetensors(path, tensors):
    header, data = {}, bytearray()
    for name, array in tensors.items():
        begin = len(data)
        data += np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64"}[str(array.dtype)],
                        "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def environment(changes):
    """Returns this process's environment with `changes`, in which None removes a variable."""
    result = {name: value for name, value in os.environ.items() if name not in (changes or {})}
    result.update((name, value) for name, value in (changes or {}).items() if value is not None)
    return result


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

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents if isinstance(contents, bytes) else contents.encode())
        return self.path(name)

    def read(self, name):
        """Returns a file's bytes."""
        with open(self.path(name), "rb") as file:
            return file.read()

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def run_clattn(self, *arguments, env=None, **more):
        more.setdefault("stdout", subprocess.PIPE)
        if "input" not in more:
            more["stdin"] = subprocess.DEVNULL
        more.setdefault("timeout", TIMEOUT)
        done = subprocess.run([CLATTN] + [str(a) for a in arguments], stderr=subprocess.PIPE, env=environment(env), **more)
        return Result(done)

    def succeed(self, *arguments, **more):
        result = self.run_clattn(*arguments, **more)
        self.assertEqual(result.status, 0, result)
        return result

    def needs_saved_programs(self):
        """Skips the test if this driver's compiled programs are never saved."""
        if not self.succeed("devices", "--json").json()["devices"][0]["saves_programs"]:
            self.skipTest("this device's programs cannot be saved")

    def two_devices(self):
        """Sees that in this test's environment devices 0 and 1 are alike, or skips the test."""
        for changes in ({}, {"POCL_DEVICES": "pthread pthread"}, {"POCL_DEVICES": "cpu cpu"}):  # PoCL 3 and 4
            result = self.run_clattn("devices", "--json", env=changes)
            names = [device["name"] for device in result.json()["devices"]] if result.status == 0 else []
            if len(names) > 1 and names[0] == names[1]:
                changed = unittest.mock.patch.dict(os.environ, changes)
                changed.start()
                self.addCleanup(changed.stop)
                return
        self.skipTest("no two devices that are alike")

    def refuse(self, status, *arguments, saying=(), **more):
        """Fails unless stderr is one line that begins with "clattn: " and contains all of `saying`."""
        result = self.run_clattn(*arguments, **more)
        self.assertEqual(result.status, status, result)
        self.assertEqual(len(result.errors), 1, result)
        self.assertTrue(result.errors[0].startswith("clattn: "), result)
        for text in (saying,) if isinstance(saying, str) else saying:
            self.assertIn(text, result.errors[0])
        return result

    def on_a_terminal(self, *arguments, env=None, until=None):
        """Returns the exit status and what a terminal at stderr shows; SIGINT ends what has shown the pattern `until`."""
        try:
            master, slave = pty.openpty()
        except OSError as error:  # a chroot without /dev/pts
            self.skipTest(f"no pseudo-terminals here: {error}")
        process = subprocess.Popen([CLATTN] + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=slave,
                                   stdin=subprocess.DEVNULL, env=environment(env))
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
            if until is not None and re.search(until.encode(), shown):
                process.send_signal(signal.SIGINT)
                until = None
        os.close(master)
        process.stdout.close()
        return process.wait(TIMEOUT), shown.decode("utf-8", "replace")

    def close(self, actual, expected, tolerance=1e-5):
        """Fails unless NaN are at the same places, infinities are equal, and the rest is within tolerance * max(1, max
        |expected|)."""
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        finite = np.isfinite(expected)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(actual[infinite], expected[infinite])
        if np.any(finite):
            largest = max(1.0, np.max(np.abs(expected[finite])))
            error = np.max(np.abs(actual[finite].astype(np.float64) - expected[finite]))
            self.assertLessEqual(error, tolerance * largest)

    def attention_of(self, q, k, v):
        """Saves the arrays and returns the command that computes o.npy of them."""
        return ["attention", "-q", self.save("q.npy", q), "-k", self.save("k.npy", k), "-v", self.save("v.npy", v), "-o",
                self.path("o.npy")]

    def attend(self, q, k, v, *options, mask=None, lse=False):
        """Runs the command and returns the output (and the lse)."""
        arguments = self.attention_of(q, k, v)
        if mask is not None:
            arguments += ["--mask", self.save("mask.npy", mask)]
        if lse:
            arguments += ["--lse", self.path("lse.npy")]
        self.succeed(*arguments, *options)
        output = np.load(self.path("o.npy"))
        self.assertEqual(output.dtype, np.float32)
        return (output, np.load(self.path("lse.npy"))) if lse else output


class NamedResult(unittest.TextTestResult):
    """Prints a line for each test, and how many have passed."""

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
    program = unittest.main("__main__", exit=False, testRunner=runner, verbosity=2)
    result = program.result
    failed = result.testsRun - result.passed - len(result.skipped)
    print("%d passed, %d failed" % (result.passed, failed))
    sys.exit(1 if failed or result.passed == 0 else 0)
