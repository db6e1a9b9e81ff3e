"""Shared by the tests of plug-ins: pictures, the command's result to compare with, and what the command's tests have."""
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = HERE.parents[1] / "examples" / "denoise"
sys.path.insert(0, str(HERE.parent / "tool"))

import png_pictures as png  # noqa: E402
from command_support import CLATTN, CommandTest, environment, main, without_noise  # noqa: E402, F401
from test_command_denoise import denoised, psnr  # noqa: E402, F401

SIZES = ((1, 1), (1, 30), (30, 1), (2, 3), (23, 37))


class PluginTest(CommandTest):
    def picture(self, height, width, channels=4):
        """Makes two flat areas and a slope, with noise; alpha is noise, too."""
        y, x = np.mgrid[:height, :width]
        base = np.where(x > y, 0.25, 0.6) + 0.2 * x / width
        noisy = base[..., None] - 0.1 * np.arange(channels) + self.random.normal(0, 0.06, (height, width, channels))
        return np.clip(np.rint(noisy * 255), 0, 255).astype(np.uint8)

    def by_command(self, pixels, *options):
        """Returns what clattn denoise makes of the picture."""
        self.succeed("denoise", self.write("command-in.png", png.encode(pixels)), self.path("command-out.png"), *options)
        return png.decode(self.read("command-out.png"))

    def same(self, actual, expected):
        """Fails unless alpha is equal and colours are but for ties, which may be rounded either way."""
        self.assertEqual(actual.shape, expected.shape)
        if actual.shape[2] in (2, 4):
            np.testing.assert_array_equal(actual[..., -1], expected[..., -1])
        difference = np.abs(actual.astype(int) - expected)
        self.assertLessEqual(np.max(difference), 1)
        self.assertLessEqual(np.count_nonzero(difference), 2 + 2e-3 * difference.size)
