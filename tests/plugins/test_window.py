#!/usr/bin/env python3
"""The example with a window, examples/window.c, driven under Xvfb by xdotool: what its title says, what its button does, what it
finds and writes. The model has DINOv2 small's shape and random weights; the command cleans the picture and computes the vectors again.

    CLATTN_WINDOW=build/examples/window python3 tests/plugins/test_window.py [-k PATTERN ...]

The device is whatever the environment chooses. Needs NumPy, Xvfb, xdotool and gcc's leak sanitizer."""
import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from plugin_support import CommandTest, environment, main, png, psnr
from small.vision import Model

WINDOW = os.path.abspath(os.environ.get("CLATTN_WINDOW", "window"))
SUPPRESSIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lsan.supp")
SECONDS = 240
SMALL = dict(layers=12, heads=6, d_model=384, d_ff=1536, patch=14, grid=(37, 37), size=(224, 224), resized=(256,))


class Display:
    """An X server of the test's own, and a model's folder; both are made once."""
    name = folder = model = None

    @classmethod
    def start(cls):
        if cls.name is None:
            read, write = os.pipe()
            cls.server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1000x600x24", "-nolisten", "tcp"],
                                          pass_fds=[write], stderr=subprocess.DEVNULL)
            os.close(write)
            with os.fdopen(read) as answer:
                cls.name = ":" + answer.readline().strip()
            cls.folder = tempfile.mkdtemp(prefix="clattn-window-")
            cls.model = Model(np.random.default_rng(1), "dinov2", **SMALL)
            cls.model.write(cls.folder)

    @classmethod
    def stop(cls):
        if cls.name is not None:
            cls.server.terminate()
            cls.server.wait()
            shutil.rmtree(cls.folder)


def picture(seed, height, width):
    """A sky with a sun above hills, without noise; each seed makes another one."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / height
    pixels = np.stack([0.55 * random.random() + 0.4 * y, 0.55 * random.random() + 0.3 * y, 0.9 - 0.4 * y * random.random()], -1)
    sun = (x - random.uniform(0.2, 1)) ** 2 + (y - random.uniform(0.15, 0.4)) ** 2 < random.uniform(0.05, 0.12) ** 2
    pixels[sun] = (0.98, 0.85, 0.35)
    for level in (0.5, 0.65, 0.8):
        hill = y > level + 0.08 * np.sin(x * random.uniform(4, 12) + random.uniform(0, 6)) + 0.02 * np.sin(x * 40 * random.random())
        pixels[hill] = random.uniform(0.05, 0.6, 3) * (1.3 - level)
    return np.clip(np.rint(pixels * 255), 0, 255).astype(np.uint8)


def noisy(pixels, seed, deviation=20):
    noise = np.random.default_rng(seed).normal(0, deviation, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


class WindowTest(CommandTest):
    def setUp(self):
        super().setUp()
        Display.start()
        os.mkdir(self.path("pictures"))

    def begin(self, given, model=None, env=None, others=None):
        """Starts the program and waits for its window. The sanitizer also sees the linker that PoCL calls, whose leaks are its
        own affair and must not change its status."""
        sanitizer = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True).stdout.strip()
        self.process = subprocess.Popen(
            [WINDOW, model or os.path.join(Display.folder, "model.safetensors"), given, self.path("out.png"),
             *(others or sorted(glob.glob(self.path("pictures/*"))))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment({"DISPLAY": Display.name, "NO_AT_BRIDGE": "1", "GSETTINGS_BACKEND": "memory", "G_SLICE": "always-malloc",
                                        "LD_PRELOAD": sanitizer, "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:"
                                        f"log_path={self.path('leaks')}:exitcode=0:print_suppressions=0", **(env or {})}))
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.kill)
        self.window = self.xdotool("search", "--sync", "--onlyvisible", "--pid", self.process.pid).split()[-1]

    def xdotool(self, *words):
        done = subprocess.run(["xdotool", *map(str, words)], capture_output=True, text=True, timeout=SECONDS,
                              env=environment({"DISPLAY": Display.name}))
        return done.stdout.strip()

    def title(self):
        return self.xdotool("getwindowname", self.window)

    def titles_until(self, pattern):
        """Returns what the title said, each once in a row, until it matches."""
        seen, end = [], time.monotonic() + SECONDS
        while not seen or not re.search(pattern, seen[-1]):
            title = self.title()
            if not seen or title != seen[-1]:
                seen.append(title)
            self.assertLess(time.monotonic(), end, seen)
            self.assertIsNone(self.process.poll(), seen)
        return seen

    def press(self, left_of_corner):
        """Clicks at one of the buttons, which are in the lower right corner."""
        size = dict(line.split("=") for line in self.xdotool("getwindowgeometry", "--shell", self.window).splitlines())
        self.xdotool("mousemove", "--window", self.window, int(size["WIDTH"]) - left_of_corner, int(size["HEIGHT"]) - 20, "click", 1)

    def close(self, status):
        """Presses Close; the program ends with the status and has nothing to say."""
        self.press(45)
        self.ended(status)

    def quit(self):
        """Asks the window to close, as its frame's button does where there is a window manager."""
        x11 = ctypes.CDLL("libX11.so.6")
        x11.XOpenDisplay.restype = ctypes.c_void_p
        display, window = ctypes.c_void_p(x11.XOpenDisplay(Display.name.encode())), ctypes.c_ulong(int(self.window))
        x11.XInternAtom.restype = ctypes.c_ulong
        protocols, delete = (x11.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
        # An XClientMessageEvent, whose format is 32: type, serial, send_event, display, window, message_type, format, data.
        event = (ctypes.c_long * 24)(33, 0, 1, display.value, window.value, protocols, 32, delete)
        x11.XSendEvent(display, window, 0, 0, event)
        x11.XCloseDisplay(display)

    def ended(self, status):
        """Waits for the program's end, with the status and nothing to say."""
        out, _ = self.process.communicate(timeout=SECONDS)
        self.assertEqual((self.process.returncode, out), (status, ""))
        leaks = self.path(f"leaks.{self.process.pid}")
        self.assertEqual(self.read(leaks).decode() if os.path.exists(leaks) else "", "")

    def cancelled(self, cleaned=False):
        """Fails unless Cancel ends the work early; the cleaned picture is there if the cleaning had ended."""
        self.press(133)
        self.titles_until("was cancelled")
        self.assertEqual(os.path.exists(self.path("out.png")), cleaned)
        self.close(1)
        self.assertEqual(os.path.exists(self.path("out.png")), cleaned)


class Finds(WindowTest):
    def test_its_like(self):
        """The picture is as high as the model's resized pictures, so that the command sees the same pixels."""
        clean = picture(0, 256, 340)
        given = noisy(clean, 1)
        self.write("pictures/given.png", png.encode(given))
        like = self.write("pictures/like.png", png.encode(noisy(np.roll(clean, 3, axis=1), 2, 5)))
        for seed in range(1, 5):
            self.write(f"pictures/other{seed}.png", png.encode(picture(seed, 256, 300)))
        self.begin(self.path("pictures/given.png"))
        seen = self.titles_until("^Most alike")
        found = re.fullmatch(r"Most alike: \S*/like\.png, cosine (0\.\d{4}) \(100 %\)", seen[-1])
        self.assertTrue(found, seen)
        progress = [int(match[1]) for match in (re.match(r"Searching \((\d+) %", title) for title in seen) if match]
        self.assertGreater(len(progress), 4, seen)
        self.assertEqual(progress, sorted(progress))
        cleaned = png.decode(self.read("out.png"))
        self.assertEqual(cleaned.shape, (256, 340, 3))
        self.assertGreater(psnr(cleaned, clean), psnr(given, clean) + 5)
        vectors = self.succeed("embed-image", Display.folder, self.path("out.png"), like).out.splitlines()
        own, other = (np.array(line.split(), float) for line in vectors)
        self.assertLess(abs(float(found[1]) - own @ other), 1e-4)
        self.close(0)

    def test_transparency(self):
        """Opaque and transparent pixels stay so, and the picture is what the command makes of it."""
        given = np.concatenate([noisy(picture(3, 300, 60), 1), np.full((300, 60, 1), 255, np.uint8)], -1)
        given[40:100, 20:40, 3] = 0
        self.write("pictures/other.png", png.encode(picture(1, 30, 40)))
        path = self.write("given.png", png.encode(given))
        self.succeed("denoise", path, self.path("command.png"), "--strength", 20)
        self.begin(path)
        self.titles_until("^Most alike")
        np.testing.assert_array_equal(png.decode(self.read("out.png")), png.decode(self.read("command.png")))
        self.close(0)


class Cancels(WindowTest):
    def test_by_closing_the_window(self):
        self.begin(self.write("given.png", png.encode(noisy(picture(0, 1500, 2000), 1))))
        self.titles_until(r"^Cleaning \([1-4]. %")
        self.quit()
        self.ended(1)
        self.assertFalse(os.path.exists(self.path("out.png")))

    def test_while_it_cleans(self):
        self.begin(self.write("given.png", png.encode(noisy(picture(0, 1500, 2000), 1))))
        seen = self.titles_until(r"^Cleaning \([1-4]. %")
        self.cancelled()
        self.assertFalse(any(title.startswith("Searching") for title in seen))

    def test_while_it_compiles(self):
        os.mkdir(self.path("cache"))
        self.begin(self.write("given.png", png.encode(picture(0, 40, 50))),
                   env={"CLATTN_CACHE": "off", "POCL_CACHE_DIR": self.path("cache")})
        self.titles_until(r"^Cleaning \(0 %\)$")
        self.cancelled()

    def test_while_it_searches(self):
        for seed in range(30):
            self.write(f"pictures/{seed}.png", png.encode(picture(seed, 30, 40)))
        self.begin(self.write("given.png", png.encode(picture(0, 40, 50))))
        self.titles_until(r"^Searching \([1-4]. %")
        self.cancelled(cleaned=True)


class BadInput(WindowTest):
    def refused(self, saying, given=None, model=None, others=None, cleaned=True):
        self.begin(given or self.write("given.png", png.encode(picture(0, 40, 50))), model, others=others)
        self.assertIn(saying, self.titles_until("^(?!Cleaning|Loading|Searching)")[-1])
        self.close(1)
        self.assertEqual(os.path.exists(self.path("out.png")), cleaned)

    def test_no_picture(self):
        given = self.write("given.txt", "no picture")
        self.refused(f"Cannot read {given}", given=given, cleaned=False)

    def test_other_that_is_no_picture(self):
        other = self.write("notes.txt", "no picture")
        self.refused(f"Cannot read {other}", others=[other])

    def test_no_model(self):
        self.refused("none.safetensors", model=self.path("none.safetensors"))

    def test_model_of_another_size(self):
        Model(self.random, "dinov2").write(self.path("other"))
        self.refused("1 x 10 x 32, not 1370 x 384", model=self.path("other/model.safetensors"))

    def test_no_other_pictures(self):
        given = self.write("given.png", png.encode(picture(0, 40, 50)))
        self.refused("no other pictures", given=given, others=[given])

    def test_no_arguments(self):
        done = subprocess.run([WINDOW], capture_output=True, text=True, env=environment({"DISPLAY": Display.name}))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertTrue(done.stderr.startswith("usage: window "))


if __name__ == "__main__":
    if not os.path.exists(WINDOW):
        sys.exit(f"{WINDOW}: no such file; CLATTN_WINDOW names the program to test")
    try:
        main()
    finally:
        Display.stop()
