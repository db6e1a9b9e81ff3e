#!/usr/bin/env python3
"""libclattn-pictures through its C calls, by ctypes, beside the command: small models of random numbers, every kind of pixel.

    CLATTN=build/src/clattn CLATTN_PICTURES=build/src/libclattn-pictures.so python3 tests/tool/test_pictures.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import ctypes
import os
from ctypes import byref, c_char, c_float, c_int, c_int32, c_size_t, c_void_p

import numpy as np

import png_pictures as png
from command_support import CommandTest, main
from test_command_embed_image import ImageTest as EncoderTest
from test_command_image import ImageTest as RestoreTest
from small.vision import Model

LIBRARY = ctypes.CDLL(os.environ.get("CLATTN_PICTURES", "libclattn-pictures.so"))
CORE = ctypes.CDLL(os.path.join(os.path.dirname(os.environ.get("CLATTN_PICTURES", "")), "libclattn.so"))
TYPES = {np.dtype(np.uint8): 0, np.dtype(np.uint16): 1, np.dtype(np.float32): 2}
INVALID_ARGUMENT, INVALID_STRUCT, IO, FORMAT, CANCELLED = 1, 2, 16, 17, 20
F16, BF16 = 2, 3
VIT_TINY, CLIP_BASE_32, SWIN_TINY = 0, 8, 14


class Error(ctypes.Structure):
    _fields_ = [("message", c_char * 512)]


class Picture(ctypes.Structure):
    _fields_ = [("pixels", c_void_p), ("height", c_size_t), ("width", c_size_t), ("row_bytes", c_size_t),
                ("components", c_int32), ("type", c_int)]


class UpscalerParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("weights", ctypes.c_char_p), ("dtype", c_int), ("memory", c_size_t), ("overlap", c_size_t)]


class TwoPictures(ctypes.Structure):
    """clattn_upscaler_args."""
    _fields_ = [("size", c_size_t), ("from_", Picture), ("to", Picture), ("control", c_void_p)]


class EncoderParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("model", c_int), ("weights", ctypes.c_char_p), ("dtype", c_int)]


class EncoderArgs(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("picture", Picture), ("vector", c_void_p), ("control", c_void_p)]


class ControlParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("max_launch_ms", ctypes.c_uint32), ("cancellable", c_int32)]


for function in ("clattn_upscaler_factor", "clattn_picture_encoder_size"):
    getattr(LIBRARY, function).restype = c_size_t
CORE.clattn_control_progress.restype = ctypes.c_double


def initialised(kind, **values):
    return kind(size=ctypes.sizeof(kind), **values)


def view(array):
    """The picture that an array (height, width, components) holds; its rows may have gaps."""
    assert array.strides[1:] == (array.shape[2] * array.itemsize, array.itemsize)
    return Picture(array.ctypes.data, array.shape[0], array.shape[1], array.strides[0], array.shape[2], TYPES[array.dtype])


class Handles(CommandTest):
    """A context, a control, and handles of the library's, which are released after the test."""

    def setUp(self):
        super().setUp()
        self.context, self.control, self.error = c_void_p(), c_void_p(), Error()
        self.assertEqual(CORE.clattn_context_create(None, byref(self.context)), 0)
        self.addCleanup(CORE.clattn_context_release, byref(self.context))
        params = initialised(ControlParams, cancellable=1, max_launch_ms=10)
        self.assertEqual(CORE.clattn_control_create(byref(params), byref(self.control)), 0)
        self.addCleanup(CORE.clattn_control_release, byref(self.control))

    def create(self, kind, params, status=0, saying=""):
        handle = c_void_p()
        got = getattr(LIBRARY, f"clattn_{kind}_create")(self.context, byref(params), byref(handle), byref(self.error))
        self.judge(got, status, saying)
        self.assertEqual(bool(handle), got == 0)
        self.addCleanup(getattr(LIBRARY, f"clattn_{kind}_release"), byref(handle))
        return handle

    def run_handle(self, kind, handle, args, status=0, saying=""):
        got = getattr(LIBRARY, f"clattn_{kind}_run")(handle, None, byref(args), byref(self.error))
        self.judge(got, status, saying)

    def judge(self, got, status, saying):
        message = self.error.message.decode()
        self.assertEqual(got, status, message)
        if status:
            self.assertIn(saying, message)
            self.assertNotIn("\n", message)


class Upscaler(RestoreTest, Handles):
    def upscaler(self, **params):
        weights = os.path.join(self.model, "model.safetensors").encode()
        return self.create("upscaler", initialised(UpscalerParams, weights=weights, **params))

    def upscaled(self, handle, pixels):
        factor = LIBRARY.clattn_upscaler_factor(handle)
        # Rows of both with gaps.
        height, width, components = pixels.shape
        given = np.zeros((height, width + 3, components), pixels.dtype)[:, :width]
        given[:] = pixels
        whole = np.full((height * factor, width * factor + 2, components), 77, pixels.dtype)
        args = initialised(TwoPictures, from_=view(given), to=view(whole[:, :-2]), control=self.control)
        self.run_handle("upscaler", handle, args)
        self.assertEqual(CORE.clattn_control_progress(self.control), 1.0)
        self.assertTrue(np.all(whole[:, -2:] == 77))
        return whole[:, :-2]

    def test_is_the_command(self):
        """Every count of components by one upscaler, also of 16 bits, and in tiles that the command has, too."""
        self.make("shuffle", factor=2)
        handle = self.upscaler(overlap=4)
        self.assertEqual(LIBRARY.clattn_upscaler_factor(handle), 2)
        for components, dtype in ((3, np.uint8), (3, np.uint8), (4, np.uint8), (1, np.uint16), (2, np.uint8)):
            pixels = self.picture(9, 14 + components, components, dtype)
            np.testing.assert_array_equal(self.upscaled(handle, pixels), self.restore(pixels, "--overlap", 4))

    def test_floats(self):
        """Floats are the numbers before they are rounded."""
        self.make("added", factor=1)
        handle = self.upscaler()
        pixels = self.picture(10, 11)
        found = self.upscaled(handle, (pixels / 255).astype(np.float32))
        self.assertLessEqual(np.max(np.abs(found * 255 - self.upscaled(handle, pixels))), 0.501)
        self.assertGreater(np.max(np.abs(found * 255 - np.rint(found * 255))), 0.1)

    def test_types_of_weights(self):
        self.make("shuffle once")
        pixels = self.picture(8, 8)
        exact = self.upscaled(self.upscaler(), pixels).astype(int)
        for dtype in (F16, BF16):
            found = self.upscaled(self.upscaler(dtype=dtype), pixels)
            self.assertLessEqual(np.max(np.abs(found - exact)), 8)

    def test_cancelled(self):
        self.make("shuffle once")
        handle, pixels = self.upscaler(), self.picture(8, 8)
        factor = LIBRARY.clattn_upscaler_factor(handle)
        made = np.zeros((8 * factor, 8 * factor, 3), np.uint8)
        args = initialised(TwoPictures, from_=view(pixels), to=view(made), control=self.control)
        CORE.clattn_control_cancel(self.control)
        self.run_handle("upscaler", handle, args, CANCELLED, "cancelled")
        CORE.clattn_control_reset(self.control)
        self.run_handle("upscaler", handle, args)
        np.testing.assert_array_equal(made, self.restore(pixels))

    def test_refusals(self):
        self.make("shuffle once")
        weights = os.path.join(self.model, "model.safetensors").encode()
        handle, pixels = self.upscaler(), self.picture(8, 8)
        args = initialised(TwoPictures, from_=view(pixels), to=view(pixels))
        self.run_handle("upscaler", handle, args, INVALID_ARGUMENT, "args.to has 8 x 8 pixels, expected ")
        args.size = 5
        self.run_handle("upscaler", handle, args, INVALID_STRUCT, "its size is 5")
        factor = LIBRARY.clattn_upscaler_factor(handle)
        large = np.zeros((8 * factor, 8 * factor, 3), np.uint8)
        args = initialised(TwoPictures, from_=view(pixels), to=view(large))
        tight = self.create("upscaler", initialised(UpscalerParams, weights=weights, memory=1000))
        self.run_handle("upscaler", tight, args, INVALID_ARGUMENT, "too little")
        text = self.write("notes.safetensors", "no model")
        self.create("upscaler", initialised(UpscalerParams, weights=text.encode()), FORMAT, "notes.safetensors")
        self.rewrite(**{"evil\nname\x1b": np.zeros(3, np.float32)})
        self.create("upscaler", initialised(UpscalerParams, weights=weights), FORMAT, "evil?name?")
        self.rewrite(without=("conv_first.bias",))
        self.create("upscaler", initialised(UpscalerParams, weights=weights), FORMAT, "conv_first.bias")
        self.rewrite(**{"conv_last.weight": np.full_like(self.tensors["conv_last.weight"], np.nan)}
                     if "conv_last.weight" in self.tensors else
                     {"conv_first.weight": np.full_like(self.tensors["conv_first.weight"], np.nan)})
        self.run_handle("upscaler", self.upscaler(), args, FORMAT, "not finite")


class Encoder(EncoderTest, Handles):
    """A ViT-Tiny, of the preset's shape, of random weights."""

    def make_tiny(self):
        self.model = Model(self.random, "vit", layers=12, heads=3, d_model=192, d_ff=768, patch=16, grid=(14, 14),
                           size=(224, 224), resized=(224, 224))
        self.folder_of_model = self.path("model")
        self.model.write(self.folder_of_model)
        self.weights = os.path.join(self.folder_of_model, "model.safetensors").encode()

    def vector(self, handle, pixels):
        vector = np.full(LIBRARY.clattn_picture_encoder_size(handle), np.nan, np.float32)
        args = initialised(EncoderArgs, picture=view(pixels), vector=vector.ctypes.data, control=self.control)
        self.run_handle("picture_encoder", handle, args)
        self.assertLess(abs(np.linalg.norm(vector) - 1), 1e-5)
        return vector

    def test_is_the_command(self):
        self.make_tiny()
        params = initialised(EncoderParams, model=VIT_TINY, weights=self.weights)
        handle = self.create("picture_encoder", params)
        self.assertEqual(LIBRARY.clattn_picture_encoder_size(handle), 192)
        pictures = [self.picture(224, 224), self.picture(60, 90, 4), self.picture(300, 200, 1, np.uint16)]
        for pixels, wanted in zip(pictures, self.embed(self.save_pictures(pictures))):
            np.testing.assert_allclose(self.vector(handle, pixels), wanted, rtol=0, atol=2e-6)
        floats = (pictures[0] / 255).astype(np.float32)
        np.testing.assert_allclose(self.vector(handle, floats), self.vector(handle, pictures[0]), rtol=0, atol=2e-6)
        half = self.create("picture_encoder", initialised(EncoderParams, model=VIT_TINY, weights=self.weights, dtype=BF16))
        self.assertGreater(self.vector(half, pictures[0]) @ self.vector(handle, pictures[0]), 0.99)
        self.refusals(handle, pictures[0])

    def test_names_with_a_prefix(self):
        self.make_tiny()
        params, pixels = initialised(EncoderParams, model=VIT_TINY, weights=self.weights), self.picture(50, 40)
        wanted = self.vector(self.create("picture_encoder", params), pixels)
        self.model.write(self.folder_of_model, "vit.")
        np.testing.assert_array_equal(self.vector(self.create("picture_encoder", params), pixels), wanted)

    def refusals(self, handle, pixels):
        vector = (c_float * 192)()
        args = initialised(EncoderArgs, picture=view(pixels))
        self.run_handle("picture_encoder", handle, args, INVALID_ARGUMENT, "args.vector is NULL")
        args.vector = ctypes.addressof(vector)
        CORE.clattn_control_cancel(self.control)
        args.control = self.control
        self.run_handle("picture_encoder", handle, args, CANCELLED, "cancelled")
        args.picture.components = 0
        self.run_handle("picture_encoder", handle, args, INVALID_ARGUMENT, "args.picture.components is 0")
        for model, tensor in ((CLIP_BASE_32, "vision_model."), (SWIN_TINY, "embeddings.norm.weight")):
            self.create("picture_encoder", initialised(EncoderParams, model=model, weights=self.weights), FORMAT,
                        f"model.safetensors: the model has no tensor {tensor}")
        self.create("picture_encoder", initialised(EncoderParams, model=VIT_TINY, weights=b"/nothing"), IO, "/nothing")


if __name__ == "__main__":
    main()
