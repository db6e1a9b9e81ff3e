#!/usr/bin/env python3
"""clattn:denoise and clattn:upscale by Debian's gegl command, and by its library in tiles and threads, beside `clattn denoise`
and `clattn image`.

    CLATTN=build/src/clattn CLATTN_GEGL=build/plugins/gegl/libclattn-gegl.so python3 tests/plugins/test_gegl.py

The device is whatever the environment chooses.  Needs NumPy, GEGL's library and its command."""
import ctypes
import os
import re
import subprocess
import sys
import threading
import unittest

import numpy as np

from plugin_support import SIZES, PluginTest, denoised, environment, main, png, without_noise

from command_support import write_safetensors
from small import swinir

PLUGIN = os.path.abspath(os.environ.get("CLATTN_GEGL", "libclattn-gegl.so"))
LIBRARY = "libgegl-0.4.so.0"


def gegl_path():
    """The plug-in's folder and the one of GEGL's own operations, which lies beside its library; one, if it is installed there."""
    ctypes.CDLL(LIBRARY)
    with open("/proc/self/maps") as maps:
        library = next(line.split()[-1] for line in maps if "/libgegl-0.4.so" in line)
    return ":".join({os.path.dirname(PLUGIN): 1, f"{os.path.dirname(library)}/gegl-0.4": 1})


ENVIRONMENT = {"GEGL_PATH": gegl_path(), "GEGL_USE_OPENCL": "no"}


def words(params):
    return [f"{name}={value}" for name, value in params.items()]


class GeglTest(PluginTest):
    def gegl(self, *arguments, env=None):
        done = subprocess.run(["gegl", *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=240,
                              stdin=subprocess.DEVNULL, env=environment({**ENVIRONMENT, **(env or {})}))
        # The command says at its end that it leaks buffers, with any operation.
        errors = [line for line in without_noise(done.stderr) if line and "leaked" not in line and "tile_cache_destroy" not in line]
        return done.returncode, done.stdout, errors

    def chain(self, pixels, *operations, env=None):
        """Returns what operations make of the picture, and the lines on stderr."""
        source, target = self.write("gegl-in.png", png.encode(pixels)), self.path("gegl-out.png")
        status, _, errors = self.gegl(source, "-o", target, "--", *operations, env=env)
        self.assertEqual(status, 0, errors)
        return png.decode(self.read("gegl-out.png")), errors

    def clean(self, pixels, env=None, **params):
        """Returns the result of clattn:denoise in levels of 255, as float."""
        result, errors = self.chain(pixels, "clattn:denoise", *words(params), env=env)
        self.assertEqual(errors, [])
        return result.astype(np.float64) * 255 / np.iinfo(result.dtype).max

    def same_as_command(self, pixels, env=None, **params):
        options = [word for name, value in params.items() for word in ("--" + name, value)]
        expected = self.by_command(pixels, *options)
        self.same(np.rint(self.clean(pixels, env, **params)).astype(np.uint8), expected)


class Command(GeglTest):
    def test_describes_itself(self):
        status, out, _ = self.gegl("--info", "clattn:denoise")
        self.assertEqual(status, 0)
        for text in ("strength", "patch", "radius", "default: 10.0", "default: 5", "default: 7"):
            self.assertIn(text, out)

    def test_definition(self):
        """GEGL writes 16 bits, so that more than the nearest of 255 levels is held."""
        pixels = self.picture(23, 37)
        result = self.clean(pixels, strength=17.5, patch=3, radius=4)
        np.testing.assert_allclose(result, denoised(pixels, strength=17.5, patch=3, radius=4), rtol=0, atol=0.01)
        np.testing.assert_array_equal(result[..., 3], pixels[..., 3])

    def test_sizes(self):
        for height, width in SIZES:
            self.same_as_command(self.picture(height, width))

    def test_grey_and_opaque(self):
        for channels in (1, 2, 3):
            pixels = self.picture(19, 26, channels)
            result = self.clean(pixels)
            self.assertEqual(result.shape, pixels.shape)
            np.testing.assert_allclose(result, denoised(pixels), rtol=0, atol=0.01)

    def test_sixteen_bits(self):
        pixels = self.picture(17, 20, 3).astype(np.uint16) * 257 + self.random.integers(0, 200, (17, 20, 3)).astype(np.uint16)
        result, _ = self.chain(pixels, "clattn:denoise")
        np.testing.assert_allclose(result, denoised(pixels), rtol=0, atol=2)

    def test_larger_than_tiles_and_blocks(self):
        self.same_as_command(self.picture(530, 610), radius=2, patch=3)

    def test_ends_of_properties(self):
        pixels = self.picture(20, 30)
        self.same_as_command(pixels, strength=255, patch=15, radius=64)
        self.same_as_command(pixels, strength=1, patch=1, radius=1)
        np.testing.assert_array_equal(self.clean(pixels, strength=0), pixels)
        np.testing.assert_array_equal(self.clean(pixels, patch=4), self.clean(pixels, patch=5))

    def test_wrong_properties(self):
        """GEGL refuses them and keeps the default."""
        pixels = self.picture(12, 13)
        expected = self.clean(pixels)
        for name, value in (("radius", 0), ("radius", 65), ("patch", 16), ("patch", 0), ("strength", -3), ("strength", 256)):
            result, errors = self.chain(pixels, "clattn:denoise", f"{name}={value}")
            np.testing.assert_array_equal(result / 257, expected)
            self.assertIn(f"out of range for property '{name}'", "".join(errors))
        _, errors = self.chain(pixels, "clattn:denoise", "sharpness=3")
        self.assertIn("sharpness", "".join(errors))

    @unittest.skipIf(os.environ.get("CLATTN_DEVICE") == "Oclgrind:", "GEGL does not choose Oclgrind's device")
    def test_on_opencl_of_gegl(self):
        """No device has that name, so that only GEGL's own context can have done the work."""
        pixels = self.picture(45, 70)
        params = {"strength": 12, "patch": 3, "radius": 2}
        ours = self.clean(pixels, **params)
        shared = self.clean(pixels, env={"GEGL_USE_OPENCL": "cpu", "CLATTN_DEVICE": "nonsense"}, **params)
        np.testing.assert_array_equal(ours, shared)

    def test_between_operations_on_opencl(self):
        """GEGL's operations before and behind keep pixels on the device; its two ways differ by a rounding."""
        pixels = self.picture(45, 70, 3)
        operations = ["gegl:brightness-contrast", "contrast=0.9", "clattn:denoise", "strength=15", "gegl:brightness-contrast",
                      "brightness=0.05"]
        ours, _ = self.chain(pixels, *operations)
        shared, _ = self.chain(pixels, *operations, env={"GEGL_USE_OPENCL": "cpu", "CLATTN_DEVICE": "nonsense"})
        np.testing.assert_allclose(shared / 257, ours / 257, rtol=0, atol=0.05)

    def test_no_device(self):
        pixels = self.picture(20, 21)
        result, errors = self.chain(pixels, "clattn:denoise", env={"CLATTN_DEVICE": "nonsense"})
        np.testing.assert_array_equal(result / 257, pixels)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(re.search("clattn:denoise: no device matches .*; the picture stays as it is", errors[0]), errors)


class Upscale(GeglTest):
    def make(self, kind="shuffle once", name="model.safetensors", **shape):
        """Writes a model of random numbers and returns its path."""
        path = self.path(name)
        write_safetensors(path, swinir.tensors(self.random, kind, **shape))
        return path

    def by_model(self, pixels, model, *options):
        """Returns what clattn image makes of the picture."""
        self.succeed("image", model, self.write("command-in.png", png.encode(pixels)), "-o", self.path("command-out.png"), *options)
        return png.decode(self.read("command-out.png")).astype(float)

    def larger(self, pixels, model, env=None, **params):
        result, errors = self.chain(pixels, "clattn:upscale", *words({"model": model, **params}), env=env)
        self.assertEqual(errors, [])
        return result.astype(float) * 255 / np.iinfo(result.dtype).max

    def same_as_image(self, pixels, model, *options, **params):
        expected, found = self.by_model(pixels, model, *options), self.larger(pixels, model, **params)
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual(np.max(np.abs(found - expected)), 1)
        self.assertGreater(len(np.unique(expected)), 4)

    def passes(self, model, saying):
        """Fails unless the picture stays as it is, with one line that says why."""
        pixels = self.picture(8, 9)
        result, errors = self.chain(pixels, "clattn:upscale", *words({"model": model} if model else {}))
        np.testing.assert_array_equal(result / 257, pixels)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(re.search(f"clattn:upscale: .*{saying}.*; the picture stays as it is", errors[0]), errors)

    def test_describes_itself(self):
        status, out, _ = self.gegl("--info", "clattn:upscale")
        self.assertEqual(status, 0)
        for text in ("model", "overlap", "default: 32"):
            self.assertIn(text, out)
        # GIMP hides what has the category "transform".
        self.assertIn("enhance:sharpen", out)

    def test_smaller_than_a_tile(self):
        """Factors 1, 2 and 4, and every kind of pixel; alpha is resized."""
        for kind, factor, channels in (("added", 1, 4), ("shuffle once", 2, 4), ("shuffle once", 2, 1), ("nearest", 4, 3)):
            with self.subTest(kind, channels=channels):
                self.same_as_image(self.picture(21, 30, channels), self.make(kind, factor=factor))
        pixels = self.picture(9, 6)
        np.testing.assert_array_equal(self.larger(pixels, self.make("added", factor=1))[..., 3], pixels[..., 3])

    def test_several_tiles(self):
        """The model sees 7 pixels, fewer than the overlap."""
        self.same_as_image(self.picture(60, 620, 3), self.make(), overlap=10)
        self.same_as_image(self.picture(300, 30, 4), self.make("added", factor=1, window=7), overlap=12)

    def test_one_pixel(self):
        self.assertEqual(self.larger(self.picture(1, 1, 3), self.make()).shape, (2, 2, 3))

    def test_on_opencl_of_gegl(self):
        """No device has that name, so that only GEGL's own context can have done the work."""
        pixels, model = self.picture(20, 300), self.make()
        ours = self.larger(pixels, model, overlap=8)
        shared = self.larger(pixels, model, env={"GEGL_USE_OPENCL": "cpu", "CLATTN_DEVICE": "nonsense"}, overlap=8)
        np.testing.assert_array_equal(ours, shared)

    def test_models_that_cannot_be_used(self):
        self.passes(self.path("none.safetensors"), "none.safetensors.*cannot be opened")
        self.passes(None, "no model is chosen")
        self.passes(self.folder, "is a folder")
        self.passes(self.write("notes.safetensors", "these are no tensors"), "notes.safetensors")
        model = self.make(name="damaged.safetensors")
        self.write("damaged.safetensors", self.read("damaged.safetensors")[:-100])
        self.passes(model, "damaged.safetensors")
        write_safetensors(model, {"embeddings.weight": np.zeros((3, 4), np.float32)})
        self.passes(model, "is no SwinIR model")
        tensors = swinir.tensors(self.random, "added", factor=1)
        write_safetensors(model, {**tensors, "conv_first.weight": np.zeros((8, 3, 1, 1), np.float32)})
        self.passes(model, "8 x 3 x 1 x 1.*8 x 3 x 3 x 3")
        write_safetensors(model, {**tensors, "conv_last.bias": np.full(3, np.nan, np.float32)})
        self.passes(model, "its result is not finite")

    def test_no_device(self):
        pixels = self.picture(8, 9)
        result, errors = self.chain(pixels, "clattn:upscale", f"model={self.make()}", env={"CLATTN_DEVICE": "nonsense"})
        np.testing.assert_array_equal(result / 257, pixels)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(re.search("clattn:upscale: no device matches .*; the picture stays as it is", errors[0]), errors)

    def test_result_that_is_not_finite(self):
        """Pixels are repeated, so that the picture is as large as the model makes it."""
        tensors = swinir.tensors(self.random, "shuffle once")
        model = self.path("model.safetensors")
        write_safetensors(model, {**tensors, "upsample.0.bias": np.full(12, np.nan, np.float32)})
        pixels = self.picture(5, 6)
        result, errors = self.chain(pixels, "clattn:upscale", f"model={model}")
        np.testing.assert_array_equal(result / 257, pixels.repeat(2, axis=0).repeat(2, axis=1))
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(re.search("its result is not finite.*; its pixels are repeated", errors[0]), errors)


class Rectangle(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "width", "height")]


class Library:
    """GEGL in this process."""
    loaded = None

    def __new__(cls):
        if cls.loaded is None:
            cls.loaded = super().__new__(cls)
            cls.loaded.start()
        return cls.loaded

    def start(self):
        libc = ctypes.CDLL(None)
        for name, value in {**ENVIRONMENT, "GEGL_CHUNK_SIZE": "65536"}.items():
            libc.setenv(name.encode(), value.encode(), 1)
        self.gegl, self.babl = ctypes.CDLL(LIBRARY), ctypes.CDLL("libbabl-0.1.so.0")
        self.object = ctypes.CDLL("libgobject-2.0.so.0")
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for function, result, arguments in (
                (self.gegl.gegl_init, None, [pointer, pointer]), (self.gegl.gegl_node_new_from_xml, pointer, [text, text]),
                (self.gegl.gegl_node_blit, None, [pointer, ctypes.c_double, pointer, pointer, pointer, ctypes.c_int, ctypes.c_int]),
                (self.gegl.gegl_node_new_processor, pointer, [pointer, pointer]),
                (self.gegl.gegl_processor_work, ctypes.c_int, [pointer, pointer]), (self.babl.babl_format, pointer, [text]),
                (self.object.g_object_unref, None, [pointer]),
                (self.gegl.gegl_node_get_children, pointer, [pointer]),
                (self.object.g_signal_connect_data, ctypes.c_ulong, [pointer, text, pointer, pointer, pointer, ctypes.c_int])):
            function.restype, function.argtypes = result, arguments
        self.gegl.gegl_init(None, None)
        self.format = self.babl.babl_format(b"R'G'B'A float")

    def chain(self, *operations):
        """Operations, each a name and its properties, the last one first, as GEGL's XML has them."""
        nodes = []
        for name, params in operations:
            inner = "".join(f"<param name='{key}'>{value}</param>" for key, value in params.items())
            nodes.append(f"<node operation='{name}'><params>{inner}</params></node>")
        node = self.gegl.gegl_node_new_from_xml(f"<gegl>{''.join(nodes)}</gegl>".encode(), b"/")
        assert node
        return ctypes.c_void_p(node)

    def pixels(self, graph, x, y, width, height):
        result = np.full((height, width, 4), np.nan, np.float32)
        self.gegl.gegl_node_blit(graph, 1.0, ctypes.byref(Rectangle(x, y, width, height)), self.format, result.ctypes, 0, 0)
        return result

    def release(self, thing):
        self.object.g_object_unref(thing)


class InTiles(GeglTest):
    def setUp(self):
        super().setUp()
        self.library = Library()

    def chain(self, *operations):
        made = self.library.chain(*operations)
        self.addCleanup(self.library.release, made)
        return made

    def graph(self, path, **params):
        return self.chain(("clattn:denoise", params), ("gegl:png-load", {"path": path}))

    def test_numbers_that_are_none(self):
        """A pixel that is infinite or no number counts as black, and spoils no other."""
        pixels = np.zeros((12, 40, 3), np.uint8)
        pixels[5, 20] = 255
        source = ("gegl:png-load", {"path": self.write("in.png", png.encode(pixels))})
        infinite = [("gegl:multiply", {"value": 1e30}), ("gegl:multiply", {"value": 1e30}), source]
        for given in (infinite, [("gegl:multiply", {"value": 0}), *infinite]):
            before = self.library.pixels(self.chain(*given), 0, 0, 40, 12)
            self.assertEqual(np.count_nonzero(~np.isfinite(before)), 3)
            after = self.library.pixels(self.chain(("clattn:denoise", {}), *given), 0, 0, 40, 12)
            np.testing.assert_allclose(after[..., :3], 0, rtol=0, atol=1e-6)

    def test_tiles_do_not_show(self):
        path = self.write("in.png", png.encode(self.picture(70, 90)))
        whole = self.library.pixels(self.graph(path, strength=15), 0, 0, 90, 70)
        graph = self.graph(path, strength=15)
        for height, width, step in ((64, 64, 64), (17, 23, 23), (70, 1, 31), (1, 90, 31), (1, 1, 37)):
            for y in range(0, 70, max(height, step)):
                for x in range(0, 90, max(width, step)):
                    rows, columns = min(height, 70 - y), min(width, 90 - x)
                    part = self.library.pixels(graph, x, y, columns, rows)
                    np.testing.assert_allclose(part, whole[y:y + rows, x:x + columns], rtol=0, atol=2e-6)

    def test_parts_of_a_larger_picture(self):
        """What is asked for, and in which order, changes nothing."""
        model = self.path("model.safetensors")
        write_safetensors(model, swinir.tensors(self.random, "shuffle once"))
        source = ("gegl:png-load", {"path": self.write("in.png", png.encode(self.picture(40, 290)))})
        graph = self.chain(("clattn:upscale", {"model": model, "overlap": 8}), source)
        whole = self.library.pixels(graph, 0, 0, 580, 80)
        self.assertGreater(len(np.unique(whole)), 100)
        again = self.chain(("clattn:upscale", {"model": model, "overlap": 8}), source)
        for x, y, width, height in ((505, 3, 60, 40), (0, 0, 7, 5), (511, 79, 1, 1), (100, 20, 300, 60)):
            part = self.library.pixels(again, x, y, width, height)
            np.testing.assert_array_equal(part, whole[y:y + height, x:x + width])

    def test_threads(self):
        paths = [self.write(f"in{i}.png", png.encode(self.picture(50 + i, 60 - i))) for i in range(4)]
        alone = [self.library.pixels(self.graph(path, strength=10 + i), 0, 0, 60 - i, 50 + i) for i, path in enumerate(paths)]
        results = [[] for _ in paths]

        def work(i):
            for _ in range(3):
                results[i].append(self.library.pixels(self.graph(paths[i], strength=10 + i), 0, 0, 60 - i, 50 + i))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(paths))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for found, expected in zip(results, alone):
            self.assertEqual(len(found), 3)
            for each in found:
                np.testing.assert_array_equal(each, expected)

    def test_work_that_nobody_wants_any_more(self):
        """A processor, as GIMP has one, works chunk by chunk; whoever stops asking has cancelled."""
        path = self.write("in.png", png.encode(self.picture(900, 1200, 3)))
        graph = self.graph(path, radius=5)
        self.library.pixels(graph, 0, 0, 8, 8)  # compiles
        seen, progress, more = [], ctypes.c_double(), 1
        processor = ctypes.c_void_p(self.library.gegl.gegl_node_new_processor(graph, ctypes.byref(Rectangle(0, 0, 1200, 900))))
        while more and progress.value < 0.4:
            more = self.library.gegl.gegl_processor_work(processor, ctypes.byref(progress))
            seen.append(progress.value)
        self.library.release(processor)
        self.assertTrue(more)
        self.assertGreater(len(seen), 2)
        self.assertEqual(seen, sorted(seen))
        self.assertLess(seen[-1], 0.9)
        again = self.library.pixels(graph, 600, 400, 16, 16)
        self.assertTrue(np.all(np.isfinite(again)))

    def test_progress(self):
        path = self.write("in.png", png.encode(self.picture(600, 700, 3)))
        graph = self.graph(path, radius=2, patch=1, strength=30)
        seen = []
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p)
        told = kind(lambda node, fraction, message, user: seen.append(fraction))
        each = self.library.gegl.gegl_node_get_children(graph)
        while each:
            node, each = ctypes.cast(each, ctypes.POINTER(ctypes.c_void_p))[:2]  # a GSList
            self.library.object.g_signal_connect_data(node, b"progress", ctypes.cast(told, ctypes.c_void_p), None, None, 0)
        self.library.pixels(graph, 0, 0, 700, 600)
        self.assertEqual((min(seen), seen[-1]), (0, 1))
        self.assertGreater(len([fraction for fraction in seen if 0 < fraction < 1]), 0)


if __name__ == "__main__":
    if not os.path.exists(PLUGIN):
        sys.exit(f"{PLUGIN}: no such file; CLATTN_GEGL names the plug-in to test")
    main()
