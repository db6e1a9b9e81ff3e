#!/usr/bin/env python3
"""The frei0r plug-in: loaded as programs load it, and by ffmpeg, beside `clattn denoise` on the same picture.

    CLATTN=build/src/clattn CLATTN_FREI0R=build/plugins/frei0r/clattn_denoise.so python3 tests/plugins/test_frei0r.py

The device is whatever the environment chooses.  Needs NumPy, and ffmpeg for the tests of clips."""
import _ctypes
import ctypes
import math
import os
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np

from plugin_support import HERE, SAMPLE, SIZES, PluginTest, denoised, environment, main, png, psnr, without_noise

PLUGIN = os.environ.get("CLATTN_FREI0R", "clattn_denoise.so")
STRENGTH, PATCH, RADIUS = range(3)
NAMES = ["strength", "patch", "radius"]


class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("author", ctypes.c_char_p), ("type", ctypes.c_int), ("model", ctypes.c_int),
                ("frei0r", ctypes.c_int), ("major", ctypes.c_int), ("minor", ctypes.c_int), ("params", ctypes.c_int),
                ("explanation", ctypes.c_char_p)]


class ParamInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("explanation", ctypes.c_char_p)]


class Plugin:
    """The loaded plug-in, between f0r_init and f0r_deinit."""

    def __init__(self):
        self.library = ctypes.CDLL(PLUGIN)
        self.library.f0r_construct.restype = ctypes.c_void_p
        assert self.library.f0r_init() == 1

    def close(self):
        self.library.f0r_deinit()

    def unload(self):
        self.close()
        _ctypes.dlclose(self.library._handle)


class Filter:
    """An instance.  Parameters are given as the command has them."""

    def __init__(self, plugin, height, width, **params):
        self.library, self.shape = plugin.library, (height, width, 4)
        self.handle = ctypes.c_void_p(self.library.f0r_construct(width, height))
        assert self.handle
        self.set(**params)

    def set(self, strength=None, patch=None, radius=None):
        for index, value in ((STRENGTH, strength and strength / 255), (PATCH, patch and patch / 15),
                             (RADIUS, radius and radius / 64)):
            if value is not None:
                self.put(index, value)

    def put(self, index, value):
        self.library.f0r_set_param_value(self.handle, ctypes.byref(ctypes.c_double(value)), index)

    def value(self, index):
        value = ctypes.c_double(-99)
        self.library.f0r_get_param_value(self.handle, ctypes.byref(value), index)
        return value.value

    def update(self, pixels):
        assert pixels.shape == self.shape
        given, result = np.ascontiguousarray(pixels), np.full_like(pixels, 99)
        self.library.f0r_update(self.handle, ctypes.c_double(0), given.ctypes, result.ctypes)
        np.testing.assert_array_equal(given, pixels)
        return result

    def close(self):
        self.library.f0r_destruct(self.handle)


class Frei0rTest(PluginTest):
    def setUp(self):
        super().setUp()
        self.plugin = Plugin()
        self.addCleanup(self.plugin.close)

    def filter(self, height, width, **params):
        made = Filter(self.plugin, height, width, **params)
        self.addCleanup(made.close)
        return made

    def clean(self, pixels, **params):
        return self.filter(*pixels.shape[:2], **params).update(pixels)

    def in_a_process(self, code, **env):
        """Runs Python code that has Plugin and Filter in a process of its own; returns its stdout and the lines on stderr."""
        done = subprocess.run([sys.executable, "-c", "from test_frei0r import *\n" + code], cwd=HERE, capture_output=True,
                              text=True, env=environment({"CLATTN_FREI0R": os.path.abspath(PLUGIN), **env}), timeout=240)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout, without_noise(done.stderr)


class Describes(Frei0rTest):
    def test_itself(self):
        info = Info()
        self.plugin.library.f0r_get_plugin_info(ctypes.byref(info))
        self.assertEqual(info.name, b"clattn_denoise")
        self.assertEqual((info.type, info.model, info.frei0r, info.params), (0, 1, 1, 3))  # a filter of RGBA8888

    def test_parameters(self):
        for index, name in enumerate(NAMES):
            about = ParamInfo()
            self.plugin.library.f0r_get_param_info(ctypes.byref(about), index)
            self.assertEqual((about.name.decode(), about.type), (name, 1))  # a double
        made = self.filter(8, 8)
        self.assertEqual([made.value(index) for index in range(3)], [10 / 255, 5 / 15, 7 / 64])

    def test_wrong_parameters_are_limited(self):
        made = self.filter(8, 8)
        for value, kept in ((-1, 0), (2, 1), (math.inf, 1), (-math.inf, 0), (math.nan, 10 / 255), (0.5, 0.5)):
            made.put(STRENGTH, value)
            self.assertEqual(made.value(STRENGTH), kept)
        for index in (-1, 3, 99):
            made.put(index, 0.5)
            self.assertEqual(made.value(index), -99)

    def test_a_list_of_plugins_needs_no_device(self):
        out, errors = self.in_a_process("""
plugin, info = Plugin(), Info()
plugin.library.f0r_get_plugin_info(ctypes.byref(info))
print(info.name.decode(), plugin.library.f0r_construct(64, 64))
plugin.close()""", CLATTN_DEVICE="nonsense")
        self.assertEqual(out.split(), ["clattn_denoise", "None"])
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith("clattn_denoise: "), errors)
        self.assertIn("nonsense", errors[0])

    def test_no_pixels(self):
        for size in ((0, 5), (5, 0), (0, 0)):
            self.assertIsNone(self.plugin.library.f0r_construct(*size))


class Results(Frei0rTest):
    def test_definition(self):
        pixels = self.picture(23, 37)
        exact = denoised(pixels, strength=17.5, patch=3, radius=4)
        result = self.clean(pixels, strength=17.5, patch=3, radius=4)
        self.assertLessEqual(np.max(np.abs(result - exact)), 0.52)
        np.testing.assert_array_equal(result[..., 3], pixels[..., 3])

    def test_sizes(self):
        for height, width in SIZES:
            pixels = self.picture(height, width)
            self.same(self.clean(pixels), self.by_command(pixels))

    def test_tiles_do_not_show(self):
        pixels = self.picture(270, 519)
        whole = self.by_command(pixels, "--memory", "4", "--radius", "3", "--patch", "3")
        self.same(self.clean(pixels, radius=3, patch=3), whole)

    def test_ends_of_parameters(self):
        pixels = self.picture(20, 30)
        for params in ({"strength": 255, "patch": 15, "radius": 64}, {"strength": 1, "patch": 1, "radius": 1}):
            options = [word for name, value in params.items() for word in ("--" + name, value)]
            self.same(self.clean(pixels, **params), self.by_command(pixels, *options))
        made = self.filter(20, 30)
        for index in (PATCH, RADIUS):
            made.put(index, 0)
        self.same(made.update(pixels), self.by_command(pixels, "--patch", 1, "--radius", 1))
        made.put(STRENGTH, 0)
        np.testing.assert_array_equal(made.update(pixels), pixels)

    def test_a_patch_is_odd(self):
        pixels = self.picture(12, 13)
        made = self.filter(12, 13)
        for value, patch in ((0.30, 5), (0.33, 5), (0.39, 5), (0.42, 7), (0.46, 7)):
            made.put(PATCH, value)
            self.same(made.update(pixels), self.by_command(pixels, "--patch", patch))

    def test_parameters_change_between_frames(self):
        first, second = self.picture(21, 33), self.picture(21, 33)
        made = self.filter(21, 33, strength=30)
        before = made.update(first)
        made.set(strength=5, radius=3)
        self.same(made.update(second), self.by_command(second, "--strength", 5, "--radius", 3))
        made.set(strength=30, radius=7)
        np.testing.assert_array_equal(made.update(first), before)

    def test_threads(self):
        pixels = [self.picture(40 + i, 70 - i) for i in range(4)]
        made = [self.filter(*p.shape[:2], strength=10 + i) for i, p in enumerate(pixels)]
        expected = [self.by_command(p, "--strength", 10 + i) for i, p in enumerate(pixels)]
        results = [[] for _ in pixels]

        def work(i):
            for _ in range(4):
                results[i].append(made[i].update(pixels[i]))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(pixels))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result, wanted in zip(results, expected):
            self.assertEqual(len(result), 4)
            for each in result:
                self.same(each, wanted)

    def test_loaded_again(self):
        out, errors = self.in_a_process("""
pixels = np.random.default_rng(1).integers(0, 256, (19, 27, 4), np.uint8)
for _ in range(3):
    plugin = Plugin()
    made = Filter(plugin, 19, 27)
    print(hash(made.update(pixels).tobytes()))
    made.close()
    plugin.unload()""")
        self.assertEqual(errors, [])
        self.assertEqual(len(out.split()), 3)
        self.assertEqual(len(set(out.split())), 1)

    def broken_kernels(self):
        folder = self.path("cl")
        shutil.copytree(HERE.parents[1] / "cl", folder)
        for name in os.listdir(os.path.join(folder, "neighbourhood")):
            if name.endswith(".cl"):
                self.write(f"cl/neighbourhood/{name}", "#error not today")
        return folder

    def test_what_cannot_be_done_leaves_frames(self):
        out, errors = self.in_a_process("""
pixels = np.random.default_rng(1).integers(0, 256, (19, 27, 4), np.uint8)
plugin = Plugin()
made = Filter(plugin, 19, 27)
print([np.array_equal(made.update(pixels), pixels) for _ in range(2)])
made.close()
plugin.close()""", CLATTN_KERNEL_DIR=self.broken_kernels())
        self.assertEqual(out.strip(), "[True, True]")
        said = [line for line in errors if line.endswith("; frames stay as they are")]
        self.assertEqual(len(said), 1, errors)
        self.assertIn("did not build", said[0])


@unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is not here")
class Ffmpeg(Frei0rTest):
    def ffmpeg(self, *arguments, data=None, env=None):
        done = subprocess.run(["ffmpeg", "-hide_banner", "-v", "error", "-y", *map(str, arguments)], input=data,
                              stdin=subprocess.DEVNULL if data is None else None, capture_output=True, timeout=240,
                              env=environment({"FREI0R_PATH": os.path.dirname(os.path.abspath(PLUGIN)), **(env or {})}))
        return done.returncode, done.stdout, "\n".join(without_noise(done.stderr.decode()))

    def filtered(self, frames, graph):
        """Returns the frames, (count, height, width, 4), as the filter graph makes them."""
        height, width = frames.shape[1:3]
        raw = ["-f", "rawvideo", "-pix_fmt", "rgba"]
        status, out, errors = self.ffmpeg(*raw, "-s", f"{width}x{height}", "-i", "-", "-vf", graph, *raw, "-", data=frames.tobytes())
        self.assertEqual((status, errors), (0, ""))
        return np.frombuffer(out, np.uint8).reshape(frames.shape)

    def test_frames(self):
        frames = np.stack([self.picture(37, 64) for _ in range(3)])
        result = self.filtered(frames, f"frei0r=clattn_denoise:{20 / 255}|{3 / 15}|{4 / 64}")
        for before, after in zip(frames, result):
            self.same(after, self.by_command(before, "--strength", 20, "--patch", 3, "--radius", 4))

    def test_a_clip(self):
        """A photograph under a moving camera: the noise of each frame is taken away, as the command takes it."""
        status, clip, errors = self.ffmpeg(
            "-loop", 1, "-i", SAMPLE / "clean.png", "-vf", "crop=160:120:n*3:n*2,format=rgba", "-frames:v", 4, "-f", "rawvideo", "-")
        self.assertEqual((status, errors), (0, ""))
        clean = np.frombuffer(clip, np.uint8).reshape(4, 120, 160, 4)
        noise = self.random.normal(0, 20, (4, 120, 160, 3))
        noisy = clean.copy()
        noisy[..., :3] = np.clip(np.rint(clean[..., :3] + noise), 0, 255)
        result = self.filtered(noisy, f"frei0r=clattn_denoise:{20 / 255}")
        self.same(result[3], self.by_command(noisy[3], "--strength", 20))
        for frame in range(4):
            gain = psnr(result[frame][..., :3], clean[frame][..., :3]) - psnr(noisy[frame][..., :3], clean[frame][..., :3])
            self.assertGreater(gain, 6)

    def test_names_of_parameters_are_in_order(self):
        pixels = self.picture(16, 32)[None]
        by_default = self.filtered(pixels, "frei0r=clattn_denoise")
        self.same(by_default[0], self.by_command(pixels[0]))

    def test_any_width_by_the_recipe_of_the_readme(self):
        """ffmpeg 5.1 hands a frei0r filter rows of 64 n bytes, and tells it that they are shorter."""
        pixels = self.picture(16, 37)
        result = self.filtered(pixels[None], "pad=ceil(iw/16)*16,frei0r=clattn_denoise:0.04|0.33|0.05,crop=37:16:0:0")
        padded = np.zeros((16, 48, 4), np.uint8)
        padded[..., 3] = 255
        padded[:, :37] = pixels
        expected = self.by_command(padded, "--strength", 10.2, "--radius", 3)[:, :37]
        self.same(result[0], expected)

    def test_no_device(self):
        status, _, errors = self.ffmpeg("-f", "lavfi", "-i", "color=size=16x16", "-vf", "frei0r=clattn_denoise", "-frames:v", 1,
                                        "-f", "null", "-", env={"CLATTN_DEVICE": "nonsense"})
        self.assertNotEqual(status, 0)
        self.assertIn("clattn_denoise: ", errors)
        self.assertIn("nonsense", errors)


if __name__ == "__main__":
    if not os.path.exists(PLUGIN):
        sys.exit(f"{PLUGIN}: no such file; CLATTN_FREI0R names the plug-in to test")
    main()
