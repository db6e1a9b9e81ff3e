#!/usr/bin/env python3
"""What the command leaves behind if it is killed, if power fails, or if memory runs out; faults.c is preloaded.

Holds: an output, the wisdom and a cache entry are there whole or not at all, whenever the command ends; SIGINT,
SIGTERM and SIGHUP remove the output that it was writing; a report that is not whole is a failure.  All points are tried
in the full run, a fixed sample of them otherwise, and the counts are printed."""
import os
import resource
import signal
import unittest

import numpy as np

from attention_numpy import softmax
from command_support import FULL, QUICK, CommandTest, main, thorough

FAULTS = os.environ.get("FAULTS")
WISDOM = "clattn-wisdom 1\na b c d e cpu 0 %d rows=6\n"


def sample(points, count):
    """Returns `count` of the points, evenly spread, or all in the full run."""
    return points if FULL or len(points) <= count else [points[i * len(points) // count] for i in range(count)]


def after_power_failed(calls, folder):
    """Yields, for each moment between two calls and for each set of changed names that may have reached the disk, the
    moment and a dictionary from a path in the folder to whether all that was written to the file is on the disk.

    What is written to a file reaches the disk with fsync; a change of a name with fsync of its folder, and before that
    in order or not at all."""
    names, pending, written, synced, file_of = {}, [], {}, {}, {}
    for moment in range(len(calls) + 1):
        for count in range(len(pending) + 1):
            seen = dict(names)
            for change in pending[:count]:
                apply(change, seen)
            yield moment, {path: synced.get(file, 0) == written.get(file, 0) > 0 for path, file in seen.items()}
        if moment == len(calls):
            return
        name, path, more = calls[moment]
        file = file_of.get(path)
        if name == "create":
            file_of[path] = moment
            pending.append(("set", path, moment))
        elif name == "write":
            written[file] = written.get(file, 0) + int(more)
        elif name == "fsync" and path == folder:
            for change in pending:
                apply(change, names)
            pending = []
        elif name == "fsync":
            synced[file] = written.get(file, 0)
        elif name == "rename":
            file_of[more] = file_of.pop(path)
            pending += [("rename", path, more)]
        elif name == "unlink":
            pending.append(("remove", path, None))


def apply(change, names):
    kind, path, more = change
    if kind == "set":
        names[path] = more
    elif kind == "rename":
        names[more] = names.pop(path)
    else:
        names.pop(path, None)


@unittest.skipUnless(FAULTS, "FAULTS names no library to preload")
class FaultsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")
        os.mkdir(self.path("out"))
        self.env = {"LD_PRELOAD": FAULTS, "CLATTN_CACHE_DIR": self.cache, "CLATTN_CACHE": None, "CLATTN_LOG": None}

    def calls(self):
        lines = self.read("calls").decode().splitlines()
        os.remove(self.path("calls"))
        return [line.split("\t") for line in lines]

    def temporary(self, folder):
        return [name for name in os.listdir(folder) if name.endswith(".tmp")] if os.path.isdir(folder) else []

    def stop(self, at, number, when, *command):
        result = self.run_clattn(*command, env=dict(self.env, STOP_AT="%d:%d:%s" % (at, number, when)))
        self.assertEqual(result.status, -number, (at, when, command, result))

    def each_stop(self, count, *command):
        """Runs the command stopped at each point, once by each signal; yields the signal."""
        self.succeed(*command, env=dict(self.env, FILE_CALLS=self.path("calls")))
        points = [(at + 1, when) for at in range(len(self.calls())) for when in ("before", "after")]
        chosen = sample(points, count)
        signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for i, (at, when) in enumerate(chosen):
            for number in signals if FULL else (signals[0], signals[1 + i % 3]):
                yield number, lambda: self.stop(at, number, when, *command)
        print("%s: stopped at %d of %d points" % (command[0], len(chosen), len(points)), flush=True)


class Stopped(FaultsTest):
    def test_outputs_and_cache_entries(self):
        x, nothing = self.normal(3, 5), np.zeros(3, np.float32)
        expected = softmax(x.astype(np.float64), np.ones(x.shape, bool))[0]
        y = self.path("out/y.npy")
        command = ("softmax", self.save("x.npy", x), "-o", y)
        for number, stop in self.each_stop(3 if QUICK else 12, *command):
            for replaces in (True, False):
                for name in os.listdir(self.cache): # so that an entry is written again
                    os.remove(os.path.join(self.cache, name))
                if replaces:
                    np.save(y, nothing)
                elif os.path.exists(y):
                    os.remove(y)
                stop()
                self.assertTrue(os.path.exists(y) or not replaces)
                found = np.load(y) if os.path.exists(y) else None
                if replaces and found.shape == nothing.shape:
                    np.testing.assert_array_equal(found, nothing)
                elif found is not None:
                    self.close(found, expected)
                left = self.temporary(self.path("out"))
                self.assertEqual(left[1:] if number == signal.SIGKILL else left, [])
                self.assertEqual(self.temporary(self.cache)[1:], [])
                self.assertEqual(self.succeed(*command, env=self.env).errors, []) # whatever the cache holds now
                self.close(np.load(y), expected)
                for name in left:
                    os.remove(self.path("out/" + name))

    def test_wisdom(self):
        new, old = WISDOM % 5, WISDOM % 123
        file = self.write("new", new)
        for _, stop in self.each_stop(4 if QUICK else 12, "tune", "--import", file):
            self.succeed("tune", "--reset", "--import", self.write("old", old), env=self.env)
            stop()
            self.assertIn(self.read("cache/wisdom").decode(), (old, new))
            self.assertEqual(self.temporary(self.cache)[1:], [])
            self.succeed("tune", "--import", file, env=self.env)
            self.assertEqual(self.read("cache/wisdom").decode(), new)
            for name in self.temporary(self.cache):
                os.remove(os.path.join(self.cache, name))

    def test_an_ignored_signal_stays_ignored(self):
        """As nohup wants it."""
        x = self.save("x.npy", self.normal(3, 5))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            ignore = lambda: signal.signal(number, signal.SIG_IGN)
            self.succeed("softmax", x, "-o", self.path("y.npy"), preexec_fn=ignore,
                         env=dict(self.env, STOP_AT="3:%d:after" % number))


class PowerFails(FaultsTest):
    def check(self, durable, *command):
        """Runs a command that writes into the folders `durable`, a dictionary of whether what it writes there stays
        once it has ended.  Fails unless each of its files is whole at every moment.  Returns the files."""
        self.succeed(*command, env=dict(self.env, FILE_CALLS=self.path("calls")))
        every, states, files = self.calls(), 0, set()
        for folder, stays in durable.items():
            calls = [call for call in every if call[1].startswith(folder)]
            written = {call[2] for call in calls if call[0] == "rename"}
            self.assertTrue(written)
            for moment, names in after_power_failed(calls, folder):
                states += 1
                for path in written:
                    self.assertIsNot(names.get(path), False, (path, calls[:moment]))
                    if stays and moment == len(calls):
                        self.assertIs(names.get(path), True, (path, calls))
            files |= written
        print("%s: %d states of the disk" % (command[0], states), flush=True)
        return files

    def test_outputs_cache_entries_and_wisdom(self):
        out, file = self.path("out"), self.write("new", WISDOM % 5)
        files = self.check({out: True, self.cache: False}, "softmax", self.save("x.npy", self.normal(3, 5)), "-o",
                           self.path("out/y.npy"))
        self.assertIn(self.path("out/y.npy"), files)
        self.assertTrue(any(path.endswith(".bin") for path in files))
        self.assertEqual(self.check({self.cache: True}, "tune", "--import", file), {self.path("cache/wisdom")})
        exported = self.path("out/exported")
        self.assertEqual(self.check({out: True}, "tune", "--export", exported), {exported})

    @thorough
    def test_several_outputs(self):
        q = self.save("q.npy", self.normal(1, 1, 3, 8))
        files = [self.path("out/" + name) for name in ("o.npy", "lse.npy", "map.html", "map.png")]
        if not os.environ.get("HAS_PNG"):
            files.pop()
        maps = [word for file in files[2:] for word in ("--attention", file)]
        command = ("attention", "-q", q, "-k", q, "-v", q, "-o", files[0], "--lse", files[1], *maps)
        self.assertEqual(self.check({self.path("out"): True}, *command), set(files))


class Memory(FaultsTest):
    def test_a_report_is_whole_or_a_failure(self):
        """jansson's json_dumps leaves out keys for which it has no memory."""
        for command in (("cache", "list"), ("bench", "random", "--count", "1"), ("devices",))[:1 if QUICK else 3]:
            whole = self.succeed(*command, "--json", env=self.env).out
            for at in range(1, 1000):
                result = self.run_clattn(*command, "--json", env=dict(self.env, JSON_FAILS_AT=str(at)))
                if result.status == 0: # it takes fewer allocations
                    break
                self.assertEqual((result.status, result.out, len(result.errors)), (1, "", 1), (at, result))
                self.assertIn("out of memory", result.errors[0])
            self.assertEqual(result.out, whole, (command, at))
            self.assertGreater(at, 10)
            print("%s: %d allocations failed" % (command[0], at - 1), flush=True)

    def test_a_shape_is_refused_before_it_is_filled(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        most = 2 ** 31 - 1
        for operator, shape in (("softmax", (1, most)), ("layernorm", (1, most)), ("matmul", (1, 1, most)),
                                ("attention", (1, 1, 1, 1, most, 4, 4)), ("mha", (1, most, 4, 1))):
            self.refuse(2, "bench", operator, "--shape", ",".join(map(str, shape)), saying="2^31", preexec_fn=limit)


class Reports(CommandTest):
    def test_no_digit_of_a_seed_is_lost(self):
        for seed in ("0", "9223372036854775808", "18446744073709551615"):
            report = self.succeed("bench", "random", "--seed", seed, "--count", "1", "--json").json()
            self.assertEqual(report["seed"], seed)


class Internal(CommandTest):
    def test_what_the_command_tells_itself_is_taken_from_nobody(self):
        self.refuse(2, "--after-crash=11", saying="--after-crash=11")
        self.refuse(2, "--probe", saying="--probe")
        version = self.succeed("--version").out
        for name, value in (("CLATTN_AFTER_CRASH", "1:11"), ("CLATTN_AFTER_CRASH", "nonsense"), ("CLATTN_PROBE", "1")):
            self.assertEqual(self.succeed("--version", env={name: value}).out, version)


if __name__ == "__main__":
    main()
