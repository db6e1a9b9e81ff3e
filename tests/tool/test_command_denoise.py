#!/usr/bin/env python3
"""clattn denoise from outside: results against non-local means in float64, every kind of PNG, hostile files.

    CLATTN=build/src/clattn python3 tests/tool/test_command_denoise.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import os
import pathlib
import struct
import time
import zlib

import numpy as np

import png_pictures as png
from command_support import CommandTest, main, slow

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "denoise"
# An orthonormal basis of the colours: brightness and two differences.
PLANES = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


def means(planes, strength, patch, radius):
    """Non-local means of (height, width, planes), each plane alone; windows clipped at the edges, patches clamped."""
    height, width = planes.shape[:2]
    half = patch // 2
    padded = np.pad(planes, ((half, half), (half, half), (0, 0)), mode="edge")
    patches = np.stack([padded[i:i + height, j:j + width] for i in range(patch) for j in range(patch)], axis=-1)
    total, weights = np.zeros_like(planes), np.zeros_like(planes)
    for dy in range(-min(radius, height - 1), min(radius, height - 1) + 1):
        for dx in range(-min(radius, width - 1), min(radius, width - 1) + 1):
            here = np.s_[max(0, -dy):height - max(0, dy), max(0, -dx):width - max(0, dx)]
            there = np.s_[max(0, dy):height + min(0, dy), max(0, dx):width + min(0, dx)]
            difference = np.mean((patches[here] - patches[there]) ** 2, axis=-1)
            weight = np.exp(-difference / strength ** 2)
            weights[here] += weight
            total[here] += weight * planes[there]
    return total / weights


def denoised(pixels, strength=10.0, patch=5, radius=7):
    """Returns the exact result, not rounded, in the levels of `pixels`."""
    levels = np.iinfo(pixels.dtype).max
    colours = pixels.shape[2] >= 3
    planes = pixels[..., :3 if colours else 1].astype(np.float64) * 255 / levels
    planes = means(planes @ PLANES.T, strength, patch, radius) @ PLANES if colours else means(planes, strength, patch, radius)
    result = pixels.astype(np.float64)
    result[..., :planes.shape[2]] = np.clip(planes * levels / 255, 0, levels)
    return result


def psnr(a, b):
    return 10 * np.log10(255 ** 2 / np.mean((a.astype(np.float64) - b) ** 2))


class DenoiseTest(CommandTest):
    def picture(self, *shape, dtype=np.uint8):
        """Makes two flat areas and a slope, with noise."""
        height, width = shape[:2]
        levels = np.iinfo(dtype).max
        y, x = np.mgrid[:height, :width]
        base = np.where(x > y, 0.25, 0.6) + 0.2 * x / width
        tint = 0.1 * np.arange(shape[2])
        noisy = base[..., None] - tint + self.random.normal(0, 0.06, shape)
        return np.clip(np.rint(noisy * levels), 0, levels).astype(dtype)

    def pixels(self):
        return png.decode(self.read("out.png"))

    def denoise(self, data, *options):
        result = self.succeed("denoise", self.write("in.png", data), self.path("out.png"), *options)
        self.assertEqual(result.errors, [])
        return self.pixels()

    def near(self, actual, exact):
        """Fails unless every level is the nearest one by float32; ties and 16-bit levels may be rounded either way."""
        slack = 0.02 if actual.dtype == np.uint8 else 1.0
        self.assertEqual(actual.shape, exact.shape)
        self.assertLessEqual(np.max(np.abs(actual - exact)), 0.5 + slack)


class Results(DenoiseTest):
    def check(self, pixels, *options, **rule):
        self.near(self.denoise(png.encode(pixels), *options), denoised(pixels, **rule))

    def test_colours(self):
        self.check(self.picture(23, 37, 3))

    def test_options(self):
        self.check(self.picture(19, 41, 3), "--strength", "17.5", "--patch", "3", "--radius", "4", strength=17.5,
                   patch=3, radius=4)

    def test_grey(self):
        self.check(self.picture(21, 33, 1), "--strength", "15", strength=15)

    @slow
    def test_alpha_stays(self):
        for channels in (2, 4):
            pixels = self.picture(17, 20, channels)
            result = self.denoise(png.encode(pixels))
            np.testing.assert_array_equal(result[..., -1], pixels[..., -1])
            self.near(result, denoised(pixels))

    def test_sixteen_bits(self):
        self.check(self.picture(17, 20, 3, dtype=np.uint16))
        self.check(self.picture(9, 20, 2, dtype=np.uint16))

    def test_smaller_than_the_window(self):
        for shape in ((1, 1, 3), (1, 30, 1), (30, 1, 3), (2, 3, 3)):
            self.check(self.picture(*shape))

    @slow
    def test_wide_windows(self):
        self.check(self.picture(30, 40, 1), "--radius", "64", "--patch", "9", radius=64, patch=9)

    def test_palette_few_bits_and_transparent_colours(self):
        palette = self.random.integers(0, 256, (4, 3)).astype(np.uint8)
        index = self.random.integers(0, 4, (11, 13, 1)).astype(np.uint8)
        chunk = png.chunk(b"PLTE", palette.tobytes())
        self.near(self.denoise(png.encode(index, chunk, 2, 3)), denoised(palette[index[..., 0]]))
        both = self.denoise(png.encode(index, chunk + png.chunk(b"tRNS", b"\x00\x80"), 2, 3))
        alpha = np.array([0, 128, 255, 255], np.uint8)[index]
        self.near(both, denoised(np.concatenate([palette[index[..., 0]], alpha], axis=2)))
        self.near(self.denoise(png.encode(index, b"", 2, 0)), denoised(index * 85))

    def test_tiles_do_not_show(self):
        pixels = self.picture(90, 70, 3)
        data = self.write("in.png", png.encode(pixels))
        results = []
        for memory in ("256", "3", "1"):
            report = self.succeed("denoise", data, self.path("out.png"), "--memory", memory, "--json").json()
            self.assertLessEqual(report["device_bytes"], int(memory) << 20)
            results.append((report["tiles"], self.pixels().astype(int)))
        self.assertEqual(results[0][0], 1)
        self.assertGreater(results[1][0], 1)
        self.assertGreater(results[2][0], results[1][0])
        for tiles, result in results[1:]:
            self.assertLessEqual(np.max(np.abs(result - results[0][1])), 1)  # a tie may be rounded the other way
            self.assertLess(np.mean(result != results[0][1]), 1e-3)

    def test_photograph(self):
        """bench/denoise.sh: ffmpeg's nlmeans reaches 30.02 dB on this photograph at its best."""
        self.succeed("denoise", SAMPLE / "noisy.png", self.path("out.png"), "--strength", "20")
        clean = png.decode((SAMPLE / "clean.png").read_bytes())
        self.assertGreater(psnr(self.pixels(), clean), 30.35)

    def test_report(self):
        data = self.write("in.png", png.encode(self.picture(8, 9, 3)))
        report = self.succeed("denoise", data, self.path("out.png"), "--json").json()
        self.assertEqual(report["shape"], [8, 9, 3])
        self.assertEqual((report["strength"], report["patch"], report["radius"]), (10, 5, 7))
        self.assertEqual((report["tile"], report["tiles"]), ([8, 9], 1))
        for name in ("device", "platform", "solver", "seconds", "device_bytes"):
            self.assertIn(name, report)
        self.assertEqual(self.succeed("denoise", data, self.path("out.png"), "--solver", "generic",
                                      "--json").json()["solver"], "generic")

    def test_the_noisy_picture_is_never_lost(self):
        before = png.encode(self.picture(8, 9, 3))
        path = self.write("in.png", before)
        os.link(path, self.path("hard.png"))
        for output in (path, self.path("hard.png")):
            self.refuse(2, "denoise", path, output, saying=(output, "is the input"))
        self.assertEqual(self.read(path), before)

    def test_what_pixels_mean_goes_along(self):
        profile = zlib.compress(b"\0\0\0\x84lcms\x02\x10\0\0mntrRGB XYZ " + bytes(108))
        kept = [(b"gAMA", struct.pack(">I", 45455)), (b"pHYs", struct.pack(">IIB", 2835, 2835, 1))]
        for more in ([(b"sRGB", b"\1")], [(b"iCCP", b"broken\0\0" + profile)]):
            before = b"".join(png.chunk(kind, body) for kind, body in kept + more)
            self.denoise(png.encode(self.picture(5, 6, 3), before))
            found = dict(png.chunks(self.read("out.png")))
            for kind, body in kept + [chunk for chunk in more if chunk[0] != b"iCCP"]:
                self.assertEqual(found.get(kind), body)
            self.assertNotIn(b"iCCP", found)

    @slow
    def test_progress_on_a_terminal(self):
        data = self.write("in.png", png.encode(self.picture(200, 200, 3)))
        began = time.monotonic()
        status, shown = self.on_a_terminal("denoise", data, self.path("out.png"), "--memory", "100", "--radius", "64", "--patch",
                                           "9")
        self.assertEqual(status, 0)
        if time.monotonic() - began > 4:  # a fast machine may have nothing to show
            self.assertIn("denoise", shown)
        self.assertTrue(not shown or shown.endswith("\r\x1b[K"), shown[-80:])


class Usage(DenoiseTest):
    def test_numbers(self):
        for option, values in (("--strength", ("0", "-1", "255.5", "nan", "inf", "")),
                               ("--patch", ("0", "2", "17", "-3", "1.5")), ("--radius", ("0", "65", "-1")),
                               ("--memory", ("0", "-1", "1e3"))):
            for value in values:
                self.refuse(2, "denoise", "in.png", "out.png", option + "=" + value, saying=option)
        self.refuse(2, "denoise", "in.png", "out.png", "--radius", "0", saying="from 1 to 64")
        self.refuse(2, "denoise", "in.png", "out.png", "--patch", "17", saying="from 1 to 15")
        self.refuse(2, "denoise", "in.png", "out.png", "--patch", "2", saying="odd")

    def test_operands(self):
        self.refuse(2, "denoise", saying="IN.png")
        self.refuse(2, "denoise", "in.png", saying="OUT.png")
        self.refuse(2, "denoise", "in.png", "out.png", "more.png", saying="more.png")
        self.assertIn("--strength", self.succeed("denoise", "--help").out)

    def test_outputs(self):
        data = self.write("in.png", png.encode(self.picture(5, 6, 3)))
        self.refuse(2, "denoise", data, self.folder, saying="directory")
        self.refuse(2, "denoise", data, self.path("none/out.png"), saying=self.path("none/out.png"))
        self.refuse(1, "denoise", data, "/dev/full", saying="/dev/full")

    def test_too_little_memory(self):
        data = self.write("in.png", png.encode(self.picture(100, 100, 3)))
        self.refuse(2, "denoise", data, self.path("out.png"), "--memory", "1", "--radius", "64", "--patch", "15",
                    saying=("--memory", "1 MiB", "at least"))
        self.assertFalse(os.path.exists(self.path("out.png")))

    def test_no_device(self):
        data = self.write("in.png", png.encode(self.picture(5, 6, 3)))
        self.refuse(3, "denoise", data, self.path("out.png"), "--device", "nonsense", saying="nonsense")


class BadFiles(DenoiseTest):
    def bad(self, data, *saying):
        path = self.write("bad.png", data)
        self.refuse(2, "denoise", path, self.path("out.png"), saying=(path,) + saying)
        self.assertFalse(os.path.exists(self.path("out.png")))

    def test_no_picture(self):
        self.bad(b"", "has 0 bytes, expected a PNG file")
        self.bad(b"GIF89a" + bytes(100), "does not begin as PNG files do")
        self.bad(png.SIGNATURE, "ends before the picture does")
        self.bad(png.SIGNATURE[:7], "fewer than 8 bytes")
        self.refuse(2, "denoise", self.path("none.png"), self.path("out.png"), saying=self.path("none.png"))
        self.refuse(2, "denoise", self.folder, self.path("out.png"), saying=self.folder + ": is a folder")

    def test_truncated(self):
        data = png.encode(self.picture(20, 20, 3))
        for length in (7, 9, 20, 33, 40, 60, len(data) // 2, len(data) - 30):
            self.bad(data[:length])

    def test_sizes_that_a_header_only_claims(self):
        idat = png.chunk(b"IDAT", zlib.compress(bytes(100))) + png.chunk(b"IEND", b"")
        for width, height in ((0, 5), (5, 0), (2 ** 31 - 1, 2 ** 31 - 1), (2 ** 32 - 1, 1), (1 << 20, 1), (1, 1 << 20),
                              (1 << 19, 1 << 19), (11000, 11000), (65535, 2049)):
            self.bad(png.SIGNATURE + png.header(width, height, 16, 6) + idat)

    @slow
    def test_bombs(self):
        """A chunk that grows a thousandfold when unpacked is dropped, and the picture is read."""
        bomb = png.chunk(b"zTXt", b"bomb\0\0" + zlib.compress(bytes(1 << 26), 9))
        profile = png.chunk(b"iCCP", b"bomb\0\0" + zlib.compress(bytes(1 << 26), 9))
        pixels = self.picture(5, 6, 3)
        self.near(self.denoise(png.encode(pixels, bomb + profile)), denoised(pixels))

    @slow
    def test_damage_anywhere(self):
        good = png.encode(self.picture(8, 8, 3))
        for _ in range(24):
            data = bytearray(good)
            at = int(self.random.integers(8, len(data)))
            data[at] ^= 1 << int(self.random.integers(0, 8))
            result = self.run_clattn("denoise", self.write("bad.png", bytes(data)), self.path("out.png"))
            self.assertIn(result.status, (0, 2), result)
            self.assertEqual(len(result.errors), 1 if result.status else 0, result)

    def test_damaged_headers_with_right_checksums(self):
        pixels = self.picture(8, 8, 3)
        body = png.encode(pixels)[8 + 25:]
        for fields in ((8, 8, 7, 2, 0), (8, 8, 8, 1, 0), (8, 8, 8, 7, 0), (8, 8, 8, 3, 0), (8, 8, 8, 2, 9), (8, 9, 8, 2, 0),
                       (9, 8, 8, 2, 1)):
            self.bad(png.SIGNATURE + png.header(*fields) + body)


if __name__ == "__main__":
    main()
