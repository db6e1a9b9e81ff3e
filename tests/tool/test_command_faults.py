#!/usr/bin/env python3
"""What the command leaves behind if it is killed or if power fails, and how it takes what it cannot do.

Holds: an output, the wisdom and a cache entry are there whole or not at all, whenever the command ends; SIGINT,
SIGTERM and SIGHUP remove the output that it was writing.  Points are before and after each call that changes files;
the full run tries all, others a fixed sample, and the counts are printed."""
import os
import resource
import signal
import unittest

import numpy as np

from command_support import FULL, QUICK, CommandTest, main, slow
from injected import INJECTED, Served

WISDOM = "clattn-wisdom 1\na b c d e cpu 0 %d rows=6\n"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def sample(points, count):
    """Returns `count` of the points, evenly spread, or all in the full run."""
    return points if FULL or len(points) <= count else [points[i * len(points) // count] for i in range(count)]


OLD = "the file that was there"


def after_power_failed(calls, folder, old=()):
    """Yields, for each moment between two calls and for each set of changed names that may have reached the disk, the
    moment and a dictionary from a path in the folder to whether all that was written to the file is on the disk, or to
    OLD; `old` are the paths of the files that were there before.

    What is written to a file reaches the disk with fsync; a change of a name with fsync of its folder, and before that
    in order or not at all."""
    names, pending, written, synced, file_of = dict.fromkeys(old, OLD), [], {}, {}, {}
    for moment in range(len(calls) + 1):
        for count in range(len(pending) + 1):
            seen = dict(names)
            for change in pending[:count]:
                apply(change, seen)
            yield moment, {path: OLD if file is OLD else synced.get(file, 0) == written.get(file, 0) > 0
                           for path, file in seen.items()}
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


@unittest.skipUnless(INJECTED, "CLATTN_INJECTED names no command")
class FaultsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")
        os.mkdir(self.path("out"))
        self.env = {"CLATTN_CACHE_DIR": self.cache, "CLATTN_CACHE": None, "CLATTN_SAVE": "release", "CLATTN_LOG": None}

    def serve(self, *command, **more):
        served = Served(command, self.path(f"served-{len(os.listdir(self.folder))}"), self.env, **more)
        self.addCleanup(served.close)
        return served

    def whole(self, served):
        """Runs the command to its end; returns the calls by which it changed files, and the number of all calls."""
        done = served.run(0)
        self.assertEqual((done.status, done.signal), (0, 0), done.errors)
        return served.changes(), done.calls

    def temporary(self, folder):
        return [name for name in os.listdir(folder) if name.endswith(".tmp")] if os.path.isdir(folder) else []

    def maps(self):
        """Returns options for heat maps of all formats, and their names."""
        names = ["out/map.html", "out/map.png"] if os.environ.get("HAS_PNG") else ["out/map.html"]
        return [word for name in names for word in ("--attention", self.path(name))], names

    def attention(self):
        """Returns a command with several outputs, and their names."""
        q, (options, names) = self.save("q.npy", self.normal(1, 1, 3, 8)), self.maps()
        return ("attention", "-q", q, "-k", q, "-v", q, "-o", self.path("out/o.npy"), "--lse", self.path("out/lse.npy"),
                *options), ["out/o.npy", "out/lse.npy", *names]


class Stopped(FaultsTest):
    def set(self, files):
        """Makes each file what the dictionary says, None: absent; and empties the cache, whose entries are then written
        again."""
        for name in os.listdir(self.cache) if os.path.isdir(self.cache) else ():
            os.remove(os.path.join(self.cache, name))
        for name, contents in files.items():
            if contents is not None:
                os.makedirs(os.path.dirname(self.path(name)), 0o700, exist_ok=True)
                self.write(name, contents)
                os.chmod(self.path(name), 0o600)
            elif os.path.exists(self.path(name)):
                os.remove(self.path(name))

    def check(self, count, old, *command):
        """Stops the command at so many points.  `old` has the contents of each of its outputs before it: afterwards it
        has these or the new ones, whole."""
        served = self.serve(*command)
        self.whole(served)
        new = {name: self.read(name) for name in old}
        self.assertTrue(all(new[name] != old[name] for name in old))
        for before in (old, dict.fromkeys(old)):
            self.set(before)
            changes, calls = self.whole(served)
            points = sorted({call[0] + after for call in changes for after in (0, 1) if call[0] + after <= calls})
            chosen = sample(points, count)
            for i, point in enumerate(chosen):
                for number in SIGNALS if FULL else (SIGNALS[0], SIGNALS[1 + i % 3]):
                    self.set(before)
                    done = served.run(point, f"!{int(number)}")
                    self.assertEqual(done.signal, number, (command, point, done.errors))
                    self.judge(before, new, number, (command, point, number))
                    self.assertEqual(self.succeed(*command, env=self.env).errors, []) # whatever the cache holds now
                    self.assertEqual({name: self.read(name) for name in new}, new)
            print("%s: stopped at %d of %d points" % (command[0], len(chosen), len(points)), flush=True)

    def judge(self, before, new, number, where):
        for name in before:
            found = self.read(name) if os.path.exists(self.path(name)) else None
            self.assertTrue(found in (before[name], new[name]), (name, where))
        for folder in {os.path.dirname(self.path(name)) for name in before} | {self.cache}:
            left = self.temporary(folder)
            # The cache's own are swept by the command that comes a day later.
            self.assertEqual(left[1:] if number == signal.SIGKILL or folder == self.cache else left, [], where)
            for name in left:
                os.remove(os.path.join(folder, name))

    def test_outputs_and_cache_entries(self):
        x = self.save("x.npy", self.normal(3, 5))
        self.check(3 if QUICK else 12, {"out/y.npy": self.read("x.npy")}, "softmax", x, "-o", self.path("out/y.npy"))

    def test_several_outputs(self):
        command, names = self.attention()
        self.check(2 if QUICK else 24, dict.fromkeys(names, b"what was there"), *command)

    def test_wisdom(self):
        file = self.write("new", WISDOM % 5)
        self.check(3 if QUICK else 12, {"cache/wisdom": (WISDOM % 123).encode(), "out/exported": b"what was there"},
                   "tune", "--import", file, "--export", self.path("out/exported"))

    def test_an_ignored_signal_stays_ignored(self):
        """As nohup wants it."""
        x = self.save("x.npy", self.normal(3, 5))
        for number in SIGNALS[1:]:
            served = self.serve("softmax", x, "-o", self.path("out/y.npy"),
                                preexec_fn=lambda number=number: signal.signal(number, signal.SIG_IGN))
            changes, _ = self.whole(served)
            os.remove(self.path("out/y.npy"))
            done = served.run(changes[0][0], f"!{int(number)}")
            self.assertEqual((done.status, done.signal), (0, 0))
            self.assertTrue(os.path.exists(self.path("out/y.npy")))


class PowerFails(FaultsTest):
    def check(self, durable, *command):
        """Runs a command that writes into the folders `durable`, a dictionary of whether what it writes there stays
        once it has ended.  Fails unless each of its files is whole at every moment.  Returns the files."""
        states, files = 0, set()
        for old_files in (False, True):  # the second time the command replaces what the first has left
            every = [call[1:] for call in self.whole(self.serve(*command))[0]]
            for folder, stays in durable.items():
                if old_files and not stays:
                    continue  # no cache entry is written again
                calls = [call for call in every if call[1].startswith(folder)]
                written = {call[2] for call in calls if call[0] == "rename"}
                self.assertTrue(written)
                for moment, names in after_power_failed(calls, folder, written if old_files else ()):
                    states += 1
                    for path in written:
                        self.assertIn(names.get(path), (OLD if old_files else None, True), (path, calls[:moment]))
                        if stays and moment == len(calls):
                            self.assertIs(names.get(path), True, (path, calls))
                files |= written
        print("%s: %d states of the disk" % (command[0], states), flush=True)
        return files

    def test_outputs_cache_entries_and_wisdom(self):
        self.needs_saved_programs()
        out, file = self.path("out"), self.write("new", WISDOM % 5)
        files = self.check({out: True, self.cache: False}, "softmax", self.save("x.npy", self.normal(3, 5)), "-o",
                           self.path("out/y.npy"))
        self.assertIn(self.path("out/y.npy"), files)
        self.assertTrue(any(path.endswith(".bin") for path in files))
        self.assertEqual(self.check({self.cache: True}, "tune", "--import", file), {self.path("cache/wisdom")})
        exported = self.path("out/exported")
        self.assertEqual(self.check({out: True}, "tune", "--export", exported), {exported})

    @slow
    def test_several_outputs(self):
        command, names = self.attention()
        self.assertEqual(self.check({self.path("out"): True}, *command), {self.path(name) for name in names})


class Memory(CommandTest):
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
