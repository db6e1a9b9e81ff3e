#!/usr/bin/env python3
"""clattn image from outside: small SwinIR models of random numbers (small/swinir.py), every kind of PNG, tiles, hostile files.
tests/vision/image.py compares what models compute with PyTorch.

    CLATTN=build/src/clattn python3 tests/tool/test_command_image.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import os
import signal
import subprocess
import time

import numpy as np

import png_pictures as png
from command_support import CLATTN, QUICK, CommandTest, environment, main, slow, write_safetensors
from small import swinir

MEAN = np.array((0.4488, 0.4371, 0.4040))


def cubic(plane, factor):
    """A plane enlarged by cubic convolution of a = -0.75, in float64; beyond an edge its pixels repeat."""
    def weigh(x):
        x, a = np.abs(x), -0.75
        return np.where(x <= 1, (a + 2) * x ** 3 - (a + 3) * x ** 2 + 1,
                        np.where(x < 2, a * x ** 3 - 5 * a * x ** 2 + 8 * a * x - 4 * a, 0))

    def matrix(length):
        at = (np.arange(length * factor) + 0.5) / factor - 0.5
        rows = np.zeros((length * factor, length))
        for tap in range(-1, 3):
            from_ = np.floor(at).astype(int) + tap
            np.add.at(rows, (np.arange(len(at)), np.clip(from_, 0, length - 1)), weigh(at - from_))
        return rows
    return matrix(plane.shape[0]) @ plane @ matrix(plane.shape[1]).T


class ImageTest(CommandTest):
    def picture(self, height, width, channels=3, dtype=np.uint8):
        y, x = np.mgrid[:height, :width]
        waves = 0.5 + 0.3 * np.sin(x / 4)[..., None] * np.cos(y[..., None] / 5 + np.arange(channels))
        levels = np.iinfo(dtype).max
        return np.clip(np.rint((waves + self.random.normal(0, 0.05, waves.shape)) * levels), 0, levels).astype(dtype)

    def make(self, kind="shuffle once", prefix="", name="model.safetensors", **shape):
        """Writes a model of random numbers into the folder "model"."""
        self.model = self.path("model")
        os.makedirs(self.model, exist_ok=True)
        self.tensors = {prefix + key: array for key, array in swinir.tensors(self.random, kind, **shape).items()}
        self.rewrite(name=name)

    def rewrite(self, name="model.safetensors", without=(), **changed):
        kept = {key: array for key, array in {**self.tensors, **changed}.items() if key not in without}
        write_safetensors(os.path.join(self.model, name), kept)

    def command(self, pixels, *options):
        data = pixels if isinstance(pixels, bytes) else png.encode(pixels)
        return ["image", self.model, self.write("in.png", data), "-o", self.path("out.png"), *options]

    def restore(self, pixels, *options):
        result = self.succeed(*self.command(pixels, *options))
        self.assertEqual(result.errors, [])
        self.report = result.json() if "--json" in options else None
        return png.decode(self.read("out.png"))

    def bad(self, *saying, pixels=None, options=(), status=2):
        """Fails unless the command is refused with one line, and has written nothing."""
        before = set(os.listdir(self.folder)) | {"in.png"}
        self.refuse(status, *self.command(self.picture(8, 8) if pixels is None else pixels, *options), saying=saying)
        self.assertEqual(set(os.listdir(self.folder)) - before, set())


class Results(ImageTest):
    def test_kinds(self):
        """Each end and factor; what tensors tell is in the report."""
        for kind, factor, residual in (("shuffle", 2, 1), ("shuffle", 3, 1), ("shuffle", 8, 3), ("shuffle once", 3, 1),
                                       ("nearest", 2, 1), ("nearest", 4, 3), ("added", 1, 1)):
            with self.subTest(kind, factor=factor):
                self.make(kind, factor=factor, residual=residual)
                pixels = self.picture(9, 14)
                found = self.restore(pixels, "--json")
                self.assertEqual(found.shape, (9 * factor, 14 * factor, 3))
                self.assertGreater(len(np.unique(found)), 4)
                for key, value in (("factor", factor), ("stages", 1), ("d_model", 8), ("window", 4), ("range", 1),
                                   ("shape", [9 * factor, 14 * factor, 3]), ("tile", [12, 16]), ("tiles", 1),
                                   ("unused_tensors", []), ("dtype", "float32")):
                    self.assertEqual(self.report[key], value, key)

    @slow
    def test_nothing_is_added(self):
        """A last convolution of zeros leaves the picture as it is: every kind of PNG, beside models of 1 and 3 channels."""
        for channels in (1, 3):
            self.make("added", factor=1, channels=channels)
            self.rewrite(**{"conv_last.weight": 0 * self.tensors["conv_last.weight"]})
            every = [(count, dtype) for count in (1, 2, 3, 4) for dtype in (np.uint8, np.uint16)]
            for count, dtype in every[::3] if QUICK else every:
                pixels = self.picture(9, 6, count, dtype)
                np.testing.assert_array_equal(self.restore(pixels), pixels)

    def test_mean_and_range(self):
        """Biases alone make the result: their mean for grey, and a share of the range."""
        bias = np.array((30, 60, 15)) / 255
        self.make("added", factor=1)
        last = {"conv_last.weight": 0 * self.tensors["conv_last.weight"]}
        self.rewrite(**last, **{"conv_last.bias": bias.astype(np.float32)})
        pixels = (self.picture(8, 8) // 2)
        np.testing.assert_array_equal(self.restore(pixels), pixels + np.array((30, 60, 15)))
        np.testing.assert_array_equal(self.restore(pixels, "--range", 3), pixels + np.array((10, 20, 5)))
        np.testing.assert_array_equal(self.restore(pixels[..., :1]), pixels[..., :1] + 35)
        self.make("shuffle once")
        self.rewrite(**{"upsample.0.weight": 0 * self.tensors["upsample.0.weight"]})
        self.assertLessEqual(np.max(np.abs(self.restore(pixels) - 255 * MEAN)), 0.5)

    @slow
    def test_range_of_jpeg_models(self):
        self.make("added", factor=1, window=7)
        bias = {"conv_last.weight": 0 * self.tensors["conv_last.weight"],
                "conv_last.bias": np.full(3, 20, np.float32)}
        self.rewrite(**bias)
        pixels = self.picture(7, 14) // 2
        np.testing.assert_array_equal(self.restore(pixels, "--json"), pixels + 20)
        self.assertEqual(self.report["range"], 255)

    def test_a_model_of_one_channel_takes_each_colour(self):
        self.make("added", factor=1, channels=1)
        pixels = self.picture(8, 12, 4)
        found = self.restore(pixels)
        for colour in range(3):
            np.testing.assert_array_equal(found[..., colour], self.restore(pixels[..., colour:colour + 1])[..., 0])

    @slow
    def test_16_bits_of_a_picture(self):
        self.make("shuffle once")
        wide = self.picture(12, 8, 3, np.uint16)
        narrow = np.rint(wide / 257).astype(np.uint8)
        exact = np.abs(self.restore(wide) / 257 - self.restore((narrow * 257.0).astype(np.uint16)) / 257)
        self.assertLess(np.max(exact), 12)  # half a level of the input changes the result by few levels
        self.assertLessEqual(np.max(np.abs(self.restore((narrow * 257.0).astype(np.uint16)) / 257 - self.restore(narrow))),
                             0.51)

    def test_alpha(self):
        self.make("shuffle once", factor=3)
        pixels = self.picture(12, 16, 4)
        exact = np.clip(cubic(pixels[..., 3].astype(float), 3), 0, 255)
        found = self.restore(pixels)
        self.assertLessEqual(np.max(np.abs(found[..., 3] - exact)), 0.51)
        np.testing.assert_array_equal(found[..., :3], self.restore(pixels[..., :3]))
        grey = self.restore(pixels[..., 2:])
        np.testing.assert_array_equal(grey[..., 1], found[..., 3])
        np.testing.assert_array_equal(grey[..., 0], self.restore(pixels[..., 2:3])[..., 0])

    def test_names(self):
        """Prefixes, of which params_ema. is preferred, a file by any name, and a path of a file."""
        self.make("added", factor=1)
        pixels, plain = self.picture(8, 8), self.tensors
        wanted = self.restore(pixels)
        for prefix in ("params.", "params_ema."):
            self.tensors = {prefix + key: array for key, array in plain.items()}
            self.rewrite(**({"params.conv_first.weight": plain["conv_first.weight"] * 2} if prefix == "params_ema." else {}))
            np.testing.assert_array_equal(self.restore(pixels, "--json"), wanted)
        self.assertEqual(self.report["unused_tensors"], ["params.conv_first.weight"])
        os.rename(self.path("model/model.safetensors"), self.path("model/SwinIR x2.safetensors"))
        np.testing.assert_array_equal(self.restore(pixels), wanted)
        self.model = self.path("model/SwinIR x2.safetensors")
        np.testing.assert_array_equal(self.restore(pixels), wanted)

    @slow
    def test_types(self):
        self.make("shuffle once")
        pixels = self.picture(12, 12)
        wanted = self.restore(pixels).astype(float)
        for dtype in ("f16", "bf16"):
            apart = np.abs(self.restore(pixels, "--dtype", dtype) - wanted)
            self.assertLessEqual(np.max(apart), 1 if dtype == "f16" else 6)


class Tiles(ImageTest):
    def test_tiles_are_the_whole(self):
        """Convolutions and a window see 7 pixels, two layers 3 more: a quarter of the overlap."""
        self.make("shuffle once", layers=(2,))
        pixels = self.picture(77, 90, 4)
        whole = self.restore(pixels)
        tiled = self.restore(pixels, "--tile", 50, "--overlap", 40, "--json")
        self.assertEqual((self.report["tile"], self.report["tiles"]), ([52, 52], 20))
        self.assertLessEqual(np.max(np.abs(tiled.astype(int) - whole)), 1)

    @slow
    def test_what_two_tiles_have_in_common(self):
        """Its outer quarters are one tile's, and in between one fades into the other."""
        self.make("shuffle once")
        self.rewrite(**{"upsample.0.weight": self.tensors["upsample.0.weight"] / 4})  # within the range of levels
        pixels = self.picture(24, 16, 3, np.uint16)
        share = np.clip(2 * (np.arange(16) + 0.5) / 16 - 0.5, 0, 1)[:, None, None]
        for pixels, turn in ((pixels, lambda x: x), (pixels.transpose(1, 0, 2), lambda x: x.transpose(1, 0, 2))):
            found = turn(self.restore(pixels, "--tile", 16, "--overlap", 8, "--json")).astype(float)
            self.assertEqual(self.report["tiles"], 2)
            first, second = (turn(self.restore(turn(turn(pixels)[begin:begin + 16]))).astype(float) for begin in (0, 8))
            both = (1 - share) * first[16:] + share * second[:16]
            wanted = np.concatenate((first[:16], both, second[16:]))
            self.assertLessEqual(np.max(np.abs(found - wanted)), 2)
            self.assertGreater(np.max(np.abs(first[16:] - second[:16])), 1000)
            self.assertTrue(np.all((wanted > 0) & (wanted < 65535)))

    @slow
    def test_memory(self):
        """The default is one part; with less memory there are more, as large as fit."""
        self.make("shuffle", factor=2, features=64)
        pixels = self.picture(100, 160)
        whole = self.restore(pixels, "--json")
        self.assertEqual((self.report["tiles"], self.report["tile"]), (1, [100, 160]))
        bytes_of_whole = self.report["device_bytes"]
        self.assertGreater(bytes_of_whole, 4 << 20)
        tiled = self.restore(pixels, "--memory", bytes_of_whole // 2 >> 20, "--json")
        self.assertGreater(self.report["tiles"], 1)
        self.assertLessEqual(self.report["device_bytes"], bytes_of_whole // 2)
        self.assertGreater(self.report["device_bytes"], bytes_of_whole // 6)
        self.assertLessEqual(np.max(np.abs(tiled.astype(int) - whole)), 1)

    def test_sizes(self):
        """Pictures smaller than a window, long ones, one row of tiles and one column."""
        self.make("shuffle once")
        for height, width in ((1, 1), (2, 3), (1, 150), (150, 1), (40, 7))[2 if QUICK else 0:]:
            pixels = self.picture(height, width)
            found = self.restore(pixels, "--tile", 32, "--overlap", 28)
            self.assertEqual(found.shape, (2 * height, 2 * width, 3))
            self.assertLessEqual(np.max(np.abs(found.astype(int) - self.restore(pixels))), 1)

    def test_interrupted(self):
        """A signal leaves neither the result nor a part of it."""
        self.make("shuffle", layers=(2, 2), d_model=32, features=32)
        process = subprocess.Popen([CLATTN] + self.command(self.picture(1000, 1000), "--tile", "40"), env=environment({}),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.png", "model"])

    @slow
    def test_progress_on_a_terminal(self):
        self.make("shuffle", layers=(2, 2), d_model=32, features=32)
        status, shown = self.on_a_terminal(*map(str, self.command(self.picture(250, 250), "--tile", "40")))
        self.assertEqual(status, 0)
        if shown:  # a fast machine may have nothing to show
            self.assertRegex(shown, r"\rimage ")
            self.assertTrue(shown.endswith("\r\x1b[K"), shown[-80:])


class Usage(ImageTest):
    def test_arguments(self):
        self.refuse(2, "image", saying="MODEL IN.png")
        self.refuse(2, "image", "model", "in.png", saying="-o")
        self.refuse(2, "image", "model", "in.png", "more.png", "-o", "out.png", saying="more.png")
        both = ("image", "model", "in.png", "-o", "out.png")
        self.refuse(2, *both, "--tile", 64, "--memory", 100, saying="--tile and --memory exclude each other")
        for option, values in (("--tile", ("0", "65537", "x")), ("--overlap", ("0", "-1")), ("--memory", ("0", "1.5")),
                               ("--range", ("0", "-1", "70000", "nan")), ("--dtype", ("f64",))):
            for value in values:
                self.refuse(2, *both, option, value, saying=(option, value))

    def test_help(self):
        text = self.succeed("image", "--help").out
        self.assertIn("usage: clattn image", text)
        for option in ("-o OUT.png", "--tile N", "--memory MIB", "--overlap N", "--range R", "--dtype TYPE", "--device SPEC", "--json"):
            self.assertIn(option, text)
        self.assertIn("  image  ", self.succeed("--help").out)

    def test_outputs(self):
        self.make("added", factor=1)
        path = self.write("in.png", png.encode(self.picture(8, 8)))
        for output, saying in ((self.folder, "is a directory"), (self.path("none/x.png"), "existing directory"),
                               (path, "is the input"), (self.path("model/model.safetensors"), "is the input")):
            self.refuse(2, "image", self.model, path, "-o", output, saying=saying)

    def test_tiles(self):
        self.make("added", factor=1)
        pixels = self.picture(100, 100)
        self.bad("--overlap: 32 pixels, in whole windows of 4, are too many for tiles of 32", pixels=pixels,
                 options=("--tile", "32"))
        self.bad("--memory: 1 MiB are too little for tiles of 100 x 100 pixels, expected at least", pixels=pixels,
                 options=("--memory", "1", "--overlap", "900"))

    def test_solver_by_name(self):
        self.make("added", factor=1)
        self.bad("nobody", options=("--solver", "nobody"))


class BadFiles(ImageTest):
    def test_places(self):
        self.model = self.path("none")
        self.bad(self.model, "cannot be opened")
        self.model = self.path("empty")
        os.mkdir(self.model)
        self.bad(self.model, "has no file that ends in .safetensors")
        self.write("empty/SwinIR.pth", "PK")
        self.bad("empty/SwinIR.pth", "file of torch.save's", "line of Python")
        self.model = self.path("empty/SwinIR.pth")
        self.bad("empty/SwinIR.pth", "file of torch.save's")
        self.model = self.path("empty")
        self.write("empty/a.safetensors", "nothing")
        self.bad("empty/a.safetensors")
        self.write("empty/b.safetensors", "nothing")
        self.bad("has 2 files that end in .safetensors, expected one, or model.safetensors")

    def test_other_models(self):
        self.make("added", factor=1)
        write_safetensors(self.path("model/model.safetensors"), {"embeddings.weight": np.zeros((3, 4), np.float32)})
        self.bad("model.safetensors: is no SwinIR model: looked for the tensors conv_first.weight and", "params_ema.")
        self.rewrite(**{"absolute_pos_embed": np.zeros((1, 16, 8), np.float32)})
        self.bad("has a tensor absolute_pos_embed of shape (1, 16, 8), expected those of SwinIR alone")
        self.rewrite(**{"layers.0.residual_group.blocks.0.conv_block.cab.0.weight": np.zeros((2, 8, 3, 3), np.float32)})
        self.bad("conv_block.cab.0.weight of shape (2, 8, 3, 3)")

    def test_missing_tensors(self):
        for kind, names in (("added", ("conv_last.weight", "conv_last.bias", "norm.weight", "conv_after_body.weight",
                                       "layers.0.residual_group.blocks.0.mlp.fc2.bias", "layers.0.conv.weight",
                                       "layers.0.residual_group.blocks.0.mlp.fc1.weight", "patch_embed.norm.bias",
                                       "layers.0.residual_group.blocks.0.attn.relative_position_bias_table")),
                            ("shuffle", ("upsample.0.weight", "upsample.0.bias", "conv_before_upsample.0.bias")),
                            ("nearest", ("conv_hr.weight", "conv_last.weight"))):
            self.make(kind, factor=1 if kind == "added" else 2)
            for name in names:
                with self.subTest(name):
                    self.rewrite(without=(name,))
                    self.bad("model.safetensors", name)

    def test_shapes(self):
        """Both shapes are named."""
        block = "layers.0.residual_group.blocks.0."
        for kind, name, shape, saying in (
                ("added", "conv_first.weight", (8, 3), ("(8, 3)", "(d_model, channels, 3, 3)")),
                ("added", "conv_first.weight", (8, 4, 3, 3), ("4 channels", "1 or 3")),
                ("added", "conv_first.weight", (8, 3, 1, 1), ("8 x 3 x 1 x 1", "8 x 3 x 3 x 3")),
                ("added", "conv_first.weight", (0, 3, 3, 3), ("(0, 3, 3, 3)", "(d_model, channels, 3, 3)")),
                ("added", block + "attn.relative_position_bias_table", (48, 2), ("48 rows", "(2 w - 1)^2")),
                ("added", block + "attn.relative_position_bias_table", (49, 3), ("3 heads", "8 columns")),
                ("added", block + "mlp.fc2.weight", (8, 15), ("8 x 15", "8 x 16")),
                ("added", "conv_last.weight", (1, 8, 3, 3), ("1 x 8 x 3 x 3", "3 x 8 x 3 x 3")),
                ("shuffle once", "upsample.0.weight", (15, 8, 3, 3), ("15 channels", "3 times the square")),
                ("shuffle", "upsample.0.weight", (20, 4, 3, 3), ("20 channels", "4 or 9 times the 4 features")),
                ("nearest", "conv_up1.weight", (4, 5, 3, 3), ("4 x 5 x 3 x 3", "4 x 4 x 3 x 3"))):
            with self.subTest(name, shape=shape):
                self.make(kind, factor=1 if kind == "added" else 2)
                self.rewrite(**{name: np.zeros(shape, np.float32)})
                self.bad("model.safetensors", *saying)

    @slow
    def test_weights_that_are_not_numbers(self):
        self.make("added", factor=1)
        self.rewrite(**{"conv_last.bias": np.full(3, np.nan, np.float32)})
        self.bad("model.safetensors: its result is not finite, expected weights without NaN")

    def test_pictures(self):
        self.make("shuffle", factor=8)
        good = png.encode(self.picture(8, 8))
        for data, saying in ((good[:-30], "ends before the picture does"), (b"", "has 0 bytes"),
                             (b"GIF89a..........", "does not begin as PNG files do"),
                             (png.SIGNATURE + png.header(0, 5, 8, 2) + png.chunk(b"IEND", b""), "expected a whole PNG file"),
                             (png.SIGNATURE + png.header(1 << 19, 1 << 19, 8, 2) + png.chunk(b"IDAT", b""), "more than 2^27 pixels")):
            with self.subTest(saying):
                self.bad("in.png", saying, pixels=data)
        self.refuse(2, "image", self.model, self.path("none.png"), "-o", self.path("out.png"), saying="cannot be opened")
        self.refuse(2, "image", self.model, self.folder, "-o", self.path("out.png"), saying="is a folder")
        self.bad("its 1500 x 1500 pixels would become 12000 x 12000, expected at most 2^27 pixels",
                 pixels=np.zeros((1500, 1500, 1), np.uint8))
        self.bad("its 1 x 140000 pixels would become 8 x 1120000", pixels=np.zeros((1, 140000, 1), np.uint8))

    def test_damage_anywhere(self):
        self.make("added", factor=1)
        good = self.read("model/model.safetensors")
        for _ in range(3 if QUICK else 20):
            data = bytearray(good)
            at = int(self.random.integers(0, 3000))
            data[at] ^= 1 << int(self.random.integers(0, 8))
            self.write("model/model.safetensors", bytes(data))
            result = self.run_clattn(*self.command(self.picture(8, 8)))
            self.assertIn(result.status, (0, 2), result)
            self.assertEqual(len(result.errors), 1 if result.status else 0, result)
        self.write("model/model.safetensors", good[:len(good) // 2])
        self.bad("model.safetensors")


if __name__ == "__main__":
    main()
