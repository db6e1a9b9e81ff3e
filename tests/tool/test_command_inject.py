#!/usr/bin/env python3
"""Each command while calls of the system fail: allocations (jansson's too), files, streams, locks, threads, processes.

A build of the command whose objects call through tests/support/core/inject_system.c runs once for each call that it
makes, and that call fails, or it and all after it.  Whatever fails, the command ends by itself with an exit status, and
an error line unless that is 0; with 0 its outputs are what they are without the failure; otherwise there is no output,
or the old one, and nothing beside it; and what a failure leaves allocated is what success leaves.

    CLATTN_INJECTED=build/tests/tool/clattn_injected python3 tests/tool/test_command_inject.py [-k PATTERN ...]

CLATTN_TEST_LEVEL=full takes every call; otherwise the first and the last call of each place that no command has tried, and
a few more, of the commands that run for seconds at most `most`."""
import os
import re
import shutil
import subprocess
import unittest
import wave

import numpy as np

import png_pictures as png
from command_support import CommandTest, main, write_safetensors
from injected import INJECTED, Served
from test_command_embed import HERE, EmbedTest as ModelTest
from test_command_embed_image import ImageTest
from test_command_image import ImageTest as RestoreTest
from small.text import TEXTS, TextTest
from small.whisper import Model

FULL = os.environ.get("CLATTN_TEST_LEVEL") == "full"
MORE = 1  # calls that are tried in the ordinary run besides those of new places
MEMORY = {"malloc", "calloc", "realloc", "strdup", "strndup", "posix_memalign", "aligned_alloc", "json_malloc"}
tried = set()  # (function, place) of all commands


def source_line(place):
    """Returns where in the sources a place is, for messages."""
    file, _, offset = place.rpartition("+")
    done = subprocess.run(["addr2line", "-s", "-f", "-e", file, offset], stdout=subprocess.PIPE, text=True)
    return " ".join(done.stdout.split()) if done.returncode == 0 else place


class Inject(CommandTest):
    def inject(self, *arguments, outputs=(), same_text=False, env=None, before=None, after=None, most=None):
        """Fails each call of the command once by itself and once with all after it.  `same_text`: stdout has no times.
        `before` is called before each run, and after each `after`, which returns whether what the command has left is
        whole.  `most`: of the failures that are to be tried so many at equal distances, unless
        FULL."""
        served = Served(arguments, self.path(f"served-{len(os.listdir(self.folder))}"), env)
        self.addCleanup(served.close)
        self.outputs, self.before, self.after, self.faults = outputs, before, after, {}
        self.run_once(served, 0)
        self.good = self.run_once(served, 0)
        self.assertEqual((self.good.status, self.good.signal), (0, 0), self.good.errors)
        self.wanted = {name: self.read(name) for name in outputs}
        self.same_text = same_text
        calls, sites = self.good.calls, served.sites()
        if FULL:
            points = [(n, onward) for onward in (False, True) for n in range(1, calls + 1)]
        else:
            fresh = [numbers for site, numbers in sites.items() if site not in tried]
            points = [(first, False) for first, _ in fresh] + [(last, True) for _, last in fresh]
            more = range(1 + calls % 5, calls + 1, calls // MORE + 1)
            points += [(n, onward) for onward in (False, True) for n in more]
        if most and not FULL and len(points) > most:
            points = [points[i * len(points) // most] for i in range(most)]
        if not most:
            tried.update(sites)
        for number, onward in points:
            self.judge(self.run_once(served, number, onward), onward)
        good = self.run_once(served, 0)
        self.assertEqual(good.status, 0, good.errors)
        print(f"# {arguments[0]}: {calls} calls of the system at {len(sites)} places, {len(points)} failures")
        if self.faults:
            self.fail("\n".join(f"{what}: {source_line(place)}, {failed}: {times} times, as {example}"
                                for (what, failed, place), (times, example) in sorted(self.faults.items())))

    def run_once(self, served, number, onward=False):
        for name in self.outputs:
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        if self.before:
            self.before()
        done = served.run(number, "+" if onward else "")
        done.number = number
        return done

    def fault(self, done, onward, what):
        times, example = self.faults.get((what, done.failed, done.place), (0, None))
        self.faults[what, done.failed, done.place] = (
            times + 1, example or f"{done.number}{'+' if onward else ''}: exit {done.status}, signal {done.signal}, "
                                  f"{done.errors[-2:]}")

    def judge(self, done, onward):
        text = "\n".join(done.errors)
        if self.after and not self.after():
            self.fault(done, onward, "leaves a part")
        if done.failed == "-" and done.ended:
            return
        if done.signal == 14:
            return self.fault(done, onward, "hangs")
        if done.signal or "with signal" in text or done.status not in (0, 1, 2, 3):
            return self.fault(done, onward, "crashes")
        left = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names
                if name.endswith(".tmp")]
        if left and not onward and done.failed not in ("unlink", "unlinkat"):
            self.fault(done, onward, "leaves a temporary file")
        for name in left:
            os.remove(name)
        if done.status == 0:
            if any(not os.path.exists(self.path(name)) or self.read(name) != self.wanted[name]
                   for name in self.outputs):
                self.fault(done, onward, "succeeds with another output")
            if self.same_text and done.out != self.good.out:
                self.fault(done, onward, "succeeds with another text")
        else:
            if not text:
                self.fault(done, onward, "fails without a message")
            elif not done.errors[-1].startswith("clattn: "):
                self.fault(done, onward, "fails without an error line")
            elif not onward and done.failed in MEMORY and (
                    done.status != 1 or "memory" not in text + done.out.decode()):
                self.fault(done, onward, "does not tell that memory has run out")
            for name in self.outputs:
                if os.path.exists(self.path(name)) and self.read(name) != self.wanted[name]:
                    self.fault(done, onward, "leaves part of an output")
        if done.held - self.good.held:
            done.place = sorted(done.held - self.good.held)[0].split()[1]
            self.fault(done, onward, "leaks")


class Commands(Inject):
    def test_devices(self):
        self.inject("devices", "--json", same_text=True)

    def test_help(self):
        self.inject("--help", same_text=True)

    def test_softmax(self):
        x = self.save("x.npy", self.normal(3, 4))
        self.inject("softmax", x, "-o", self.path("y.npy"), outputs=["y.npy"])

    def test_attention(self):
        q, k, v = (self.save(name + ".npy", self.normal(1, 2, 5, 8)) for name in "qkv")
        self.write("labels.txt", "a\nb\nc\nd\ne\n")
        self.inject("attention", "-q", q, "-k", k, "-v", v, "-o", self.path("o.npy"), "--lse", self.path("lse.npy"),
                    "--mask", self.save("mask.npy", np.ones((5, 5), dtype=bool)), "--causal", "--softcap", 20,
                    "--verify", "--attention", self.path("map.html"), "--labels", self.path("labels.txt"),
                    outputs=["o.npy", "lse.npy", "map.html"])

    def test_explain(self):
        self.inject("explain", "--shape", "1,2,2,5,5,8,8", "--json", same_text=True)

    def test_mha(self):
        size = 8
        write_safetensors(self.path("w.safetensors"), {
            "in_proj_weight": self.normal(3 * size, size), "in_proj_bias": self.normal(3 * size),
            "out_proj.weight": self.normal(size, size), "out_proj.bias": self.normal(size)})
        self.inject("mha", "--weights", self.path("w.safetensors"), "--heads", 2, "-x",
                    self.save("x.npy", self.normal(1, 5, size)), "-o", self.path("y.npy"),
                    "--attention", self.path("map.png"), outputs=["y.npy", "map.png"])

    def test_denoise(self):
        pixels = self.random.integers(0, 256, (6, 5, 3)).astype(np.uint8)
        self.write("x.png", png.encode(pixels))
        self.inject("denoise", self.path("x.png"), self.path("y.png"), outputs=["y.png"])

    def test_bench(self):
        self.inject("bench", "softmax", "--shape", "3,4", "--repeat", 1, "--json")

    def test_bench_random(self):
        self.inject("bench", "random", "--count", 3, "--json", same_text=True)

    def cached(self):
        """Makes a cache folder with one program; returns its name and the environment that chooses it."""
        self.needs_saved_programs()
        cache = self.path("cache")
        env = {"CLATTN_CACHE_DIR": cache, "CLATTN_CACHE": None, "CLATTN_SAVE": "release"}
        self.succeed("softmax", self.save("x.npy", self.normal(3, 4)), "-o", self.path("y.npy"), env=env)
        return cache, env

    def test_a_cache_that_is_written(self):
        _, env = self.cached()
        self.inject("softmax", self.path("x.npy"), "-o", self.path("y.npy"), outputs=["y.npy"],
                    env={**env, "CLATTN_CACHE_DIR": self.path("new")},
                    before=lambda: shutil.rmtree(self.path("new"), ignore_errors=True))

    def test_a_cache_that_is_read(self):
        _, env = self.cached()
        self.inject("softmax", self.path("x.npy"), "-o", self.path("y.npy"), outputs=["y.npy"], env=env)

    def test_cache_list(self):
        _, env = self.cached()
        self.inject("cache", "list", "--json", env=env, same_text=True)

    def test_cache_clear(self):
        cache, env = self.cached()
        shutil.copytree(cache, self.path("kept"))

        def before():
            shutil.rmtree(cache)
            shutil.copytree(self.path("kept"), cache)

        self.inject("cache", "clear", env=env, before=before, same_text=True)


    def test_tune(self):
        """One candidate is measured and kept."""
        cache = self.path("tuned")

        def whole():
            path = os.path.join(cache, "wisdom")
            return not os.path.exists(path) or re.fullmatch(rb"clattn-wisdom 1\n(\S+ \S.*\n)*", self.read(path))
        self.inject("tune", "softmax", "--shape", "3,4", "--budget", 0.001, "--json",
                    env={"CLATTN_CACHE_DIR": cache, "CLATTN_CACHE": None}, after=whole, most=40,
                    before=lambda: shutil.rmtree(cache, ignore_errors=True))

    @unittest.skipUnless(os.environ.get("HAS_SPEECH"), "built without speech")
    def test_transcribe(self):
        with wave.open(self.path("sound.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes((9000 * np.sin(np.arange(8000) / 7)).astype("<i2").tobytes())
        self.inject("transcribe", Model().write(self.path("whisper")), self.path("sound.wav"), "--no-fallback", "--words", "--attention",
                    self.path("map.html"), same_text=True, outputs=["map.html"], most=60)
        self.assertIn(b" a\n", self.good.out)

    def test_wisdom(self):
        wisdom = "clattn-wisdom 1\n" + "".join(f"device driver kernels softmax b{i} cpu 0 1\n" for i in range(20))
        cache = self.path("wisdom-cache")
        self.inject("tune", "--import", self.write("in.txt", wisdom), "--export", self.path("out.txt"),
                    outputs=["out.txt"], env={"CLATTN_CACHE_DIR": cache, "CLATTN_CACHE": None},
                    before=lambda: shutil.rmtree(cache, ignore_errors=True))


class Calls(unittest.TestCase):
    """What inject_system.c leaves out: computing, text, time, signals; locks that are there; C++ (vocabulary.cc); what
    ranks beside the first call (freopen)."""
    OTHERS = re.compile(r"""_ITM_\w+ | __\w+ | cl[A-Z]\w+ | clattn_\w+ | inject_\w+ | CLBlast\w+ |
        (json|png|sf|soxr|fftw|utf8proc)_\w+ | _Z\w+ | _Unwind_\w+ |
        (mem|str|sig)[a-z]+ |
        (a?cos|a?sin|sincos|tanh?|exp|log|pow|sqrt|erfc?|fmax|fmin|frexp|ldexp|l?lrint|nearbyint|floor|ceil|round)[0-9fl]* |
        (secure_)?getenv | unsetenv | v?snprintf | qsort | is[a-z]+ | compress(Bound)? |
        clock_gettime | nanosleep | time | timespec_get | gmtime | get[a-z]*id | syscall | dl(open|sym) |
        raise | _exit | _setjmp | longjmp |
        pthread_(mutex_(try|un)?lock | cond_(wait|timedwait|signal|broadcast) | join | detach | self | sigmask) |
        posix_spawn_file_actions_\w+ | fcntl64 | dirfd | feof | ferror | freopen(64)?""", re.VERBOSE)

    def test_each_function_that_can_fail_is_wrapped(self):
        linked = subprocess.run(["ldd", INJECTED], stdout=subprocess.PIPE, text=True, check=True).stdout
        library = re.search(r"libinjected\.so => (\S+)", linked).group(1)
        for file in (INJECTED, library):
            symbols = subprocess.run(["nm", "-D", "--undefined-only", file], stdout=subprocess.PIPE, text=True,
                                     check=True)
            names = {line.split()[-1].partition("@")[0] for line in symbols.stdout.splitlines()}
            self.assertTrue("__wrap_malloc" in names)
            self.assertEqual({name for name in names if not self.OTHERS.fullmatch(name)}, set())


class Models(ModelTest, Inject):
    def test_embed(self):
        # A small vocabulary and one layer, because each call that they take is made to fail.
        words = (HERE / "wordpiece" / "vocab.txt").read_text(encoding="utf-8").splitlines()[:200]
        self.make(vocab_size=len(words), num_hidden_layers=1)
        self.write_model("vocab.txt", "\n".join(words) + "\n")
        self.write("notes.txt", "the keys are here\na table\nwhere is it\n")
        self.inject("embed", self.model, "--search", self.path("notes.txt"), "where are the keys?", same_text=True)
        self.inject("embed", self.model, "where are the keys?", "--attention", self.path("map.html"),
                    outputs=["map.html"])

    def test_devices(self):
        """Two devices compute batches of texts in threads of their own."""
        self.two_devices()
        self.make(num_hidden_layers=1)
        self.write("notes.txt", "the keys are here and there and everywhere\n" * 150)
        self.inject("embed", self.model, "--search", self.path("notes.txt"), "the keys", "--device", "0,1", same_text=True, most=40)


@unittest.skipUnless(os.environ.get("TEXT_PIECES"), "built without sentencepiece")
class Texts(TextTest, Inject):
    def test_translate(self):
        self.make(encoder_layers=1, decoder_layers=1)
        self.inject("translate", self.model, "a file", TEXTS[0], "--attention", self.path("map.html"), outputs=["map.html"],
                    same_text=True, most=30)

    def train(self, *options):
        return ["train", "--source", self.path("a.txt"), "--target", self.path("b.txt"), "--out", self.path("m"), "--layers", 1,
                "--d-model", 16, "--heads", 2, "--d-ff", 16, "--vocabulary", 60, "--length", 8, "--batch-tokens", 64,
                "--validate-every", 1, *options]

    def test_train(self):
        """From nothing, and from a checkpoint, which stays whole."""
        lines = [" ".join(str(word) for word in self.random.choice(["file", "the", "a", "new"], 3)) for _ in range(120)]
        for name in "ab":
            self.write(name + ".txt", "\n".join(lines) + "\n")
        model, kept, checkpoint = self.path("m"), self.path("kept"), "m/checkpoint.safetensors"
        self.inject(*self.train("--steps", 1), before=lambda: shutil.rmtree(model, ignore_errors=True), most=30,
                    outputs=[checkpoint, "m/model.safetensors", "m/vocabulary.model", "m/config.json", "m/loss.svg"])
        shutil.copytree(model, kept)
        self.succeed(*self.train("--steps", 2, "--resume"))
        whole = self.read("kept/checkpoint.safetensors"), self.read(checkpoint)

        def before():
            shutil.rmtree(model)
            shutil.copytree(kept, model)

        self.inject(*self.train("--steps", 2, "--resume", "--json"), before=before, after=lambda: self.read(checkpoint) in whole,
                    most=30)

    def test_generate(self):
        self.make(kind="text", decoder_layers=1)
        self.inject("generate", self.model, "a file", "--beams", 2, "--json", most=30)


class Pictures(ImageTest, Inject):
    def test_embed_image(self):
        self.make("vit", layers=1, processor=True)
        path = self.save_pictures([self.picture(32, 32), self.picture(20, 24)])[0]
        self.inject("embed-image", self.folder_of_model, path, "--search", self.path("pictures"))
        self.inject("embed-image", self.folder_of_model, path, "-o", self.path("out.npy"), "--attention",
                    self.path("map.html"), "--attention", self.path("map.png"), outputs=["out.npy", "map.html", "map.png"])


class Restored(RestoreTest, Inject):
    def test_image(self):
        self.make("shuffle once")
        self.inject(*self.command(self.picture(8, 20, 4), "--tile", 12, "--overlap", 4), outputs=["out.png"])


if __name__ == "__main__":
    main()
