"""The provider for ONNX Runtime when calls of OpenCL fail: a run or a session says so, leaks nothing, and the next run is right. And
which calls a warm start and shared memory spare.

    CLATTN_ONNXRUNTIME=LIBRARY python3 test_faults.py

Needs what test_provider.py does, a C compiler, and an OpenCL loader with layers (ocl-icd 2.3.0)."""

import ctypes
import functools
import gc
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
import onnxruntime
from test_provider import BUFFERS, FULL, NAME, Comparison, model, node, pieces, session

STEP = 1 if FULL else 9  # between the calls that are made to fail
NAMES = {"product_k", "turn_q", "product_o", "residual"}  # of the nodes that steps of the graph below begin with


class Faults(Comparison):
    def setUp(self):
        super().setUp()
        self.layer = ctypes.CDLL(os.environ["OPENCL_LAYERS"])
        for name in ("layer_left", "layer_live", "layer_compiled", "layer_copied"):
            getattr(self.layer, name).restype = ctypes.c_long
        self.layer.layer_fail.argtypes = [ctypes.c_long]

    def attempt(self, number, work):
        """Calls work() while the `number`-th call of OpenCL fails; returns its result or the text of its exception, and whether there was
        such a call."""
        self.layer.layer_fail(number)
        try:
            result = work()
        except Exception as failure:  # noqa: BLE001 - of whatever type ONNX Runtime has for the status
            result = str(failure)
        reached = self.layer.layer_left() <= 0
        self.layer.layer_fail(0)
        return result, reached

    def each_call(self, work, step=STEP):
        """The results of work(), or the texts of its exceptions, for each call that fails."""
        number, reached = 1, True
        while reached:
            result, reached = self.attempt(number, work)
            if reached:
                yield number, result
            number += step
        self.assertGreater(number, step + 1, "the loader has no layers")

    def live(self):
        gc.collect()
        return self.layer.layer_live()

    def graph(self):
        """Joint products, attention, a product with a residual, and a norm."""
        weights = {f"W{n}": self.array(32, 32) / 6 for n in "qkvo"}
        constants = {**weights, **{f"b{n}": self.array(32) for n in "qkvo"}, "g": self.array(32)}
        constants |= {"heads": np.array([0, 0, 4, 8]), "rows": np.array([0, 0, 32])}
        nodes = []
        for n in "qkv":
            nodes += [
                node("MatMul", f"x W{n}", f"{n}1", name=f"product_{n}"),
                node("Add", f"{n}1 b{n}", f"{n}2", name=f"bias_{n}"),
            ]
            nodes += [
                node("Reshape", f"{n}2 heads", f"{n}3"),
                node("Transpose", f"{n}3", f"{n}4", perm=[0, 2, 1, 3], name=f"turn_{n}"),
            ]
        nodes += pieces("q4", "k4", "v4", "a1")
        nodes += [node("Transpose", "a1", "a2", perm=[0, 2, 1, 3]), node("Reshape", "a2 rows", "a3")]
        nodes += [node("MatMul", "a3 Wo", "o1", name="product_o"), node("Add", "o1 bo", "o2", name="bias_o")]
        nodes += [node("Add", "o2 x", "o3", name="residual"), node("LayerNormalization", "o3 g", "y", name="norm")]
        inputs = {"x": self.array(2, 20, 32)}
        return model(nodes, inputs, ["y"], constants, opset=17), inputs

    def check_runs(self, make, inputs, within):
        """Whichever call fails, a first run computes what it should or says what failed, and then the session computes that."""
        before, names, made = self.live(), set(), []
        expected = make().run(None, inputs)[0]

        def run():
            number = self.layer.layer_left()
            self.layer.layer_fail(0)
            made[:] = [make()]
            self.layer.layer_fail(number)
            return made[0].run(None, inputs)[0]

        for number, result in self.each_call(run):
            with self.subTest(number, result=str(result)[-200:]):
                if isinstance(result, str):
                    self.assertIn("clattn: ", result)
                    names.update(name for name in NAMES if f" {name})" in result)
                else:
                    np.testing.assert_allclose(result, expected, atol=within)
                np.testing.assert_allclose(made[0].run(None, inputs)[0], expected, atol=within)
        made.clear()
        self.assertEqual(self.live(), before)
        return names

    def test_runs(self):
        content, inputs = self.graph()
        names = set()
        for options in ({}, {"precision": "float16"}):
            with self.subTest(**options):
                names |= self.check_runs(functools.partial(session, content, **options), inputs, 0.05 if options else 1e-5)
        self.assertEqual(names, NAMES if FULL else names | {"product_k"})

    def test_warm(self):
        """What a session compiled, a second one finds in the folder of `cache_dir`, and compiles nothing."""
        inputs = {name: self.array(2, 3, 5, 8) for name in "qkv"}
        content = model([node("Attention", "q k v", "a"), node("Neg", "a", "y")], inputs, ["y"])
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ):
            os.environ.pop("CLATTN_CACHE", None)
            for first in (True, False):
                before = self.layer.layer_compiled()
                made = session(content, cache_dir=folder)
                made.run(None, inputs)
                self.assertEqual(self.layer.layer_compiled() > before, first)
                del made
                gc.collect()
                self.assertNotEqual(os.listdir(folder), [])

    def test_shared_memory(self):
        """A chain on a processor reads the session's arrays and writes them where they are."""
        inputs, constants = {name: self.array(2, 3, 5, 8) for name in "qkv"}, {"w": self.array(8, 8)}
        content = model(
            [node("MatMul", "q w", "p"), *pieces("p", "k", "v", "a"), node("MatMul", "a w", "y")],
            inputs,
            ["y"],
            constants,
            opset=17,
        )
        made = session(content)
        made.run(None, inputs)  # which packs the matrix
        before = self.layer.layer_copied()
        made.run(None, inputs)
        self.assertEqual(self.layer.layer_copied() - before, 0)
        self.assertGreater(before, 0, "the layer counts nothing")

    def test_constants(self):
        """A constant that cannot be stored as float16 is a failure that names the node which reads it."""
        content = model(
            [node("MatMul", "x W", "y", name="product")], {"x": self.array(20, 32)}, ["y"], {"W": self.array(32, 48)}
        )
        inputs = {"x": self.array(20, 32)}
        ours = session(content, take="all", precision="float16")
        found = [
            result
            for _, result in self.each_call(lambda: session(content, take="all", precision="float16").run(None, inputs), 1)
        ]
        self.assertTrue(
            any(re.search(r"activation: clEnqueueNDRangeKernel .*\(MatMul product\)", str(each)) for each in found), found
        )
        self.assertEqual(ours.run(None, inputs)[0].shape, (20, 48))

    def test_constants_left(self):
        """A constant of more dimensions than the provider has is left to the CPU provider."""
        inputs = {"x": self.array(*[2] * 9)}
        content = model([node("Mul", "x W", "y")], inputs, ["y"], {"W": self.array(*[2] * 9)})
        self.compare(content, inputs, take="all", precision="float16")

    def test_buffers(self):
        """Allocations and copies of arrays in buffers fail in the call that needs them, with the reason."""
        content, inputs = self.graph()
        before = self.live()
        for number, refused in self.each_call(functools.partial(session, content, provider=BUFFERS), 1):
            with self.subTest(number):
                self.assertRegex(
                    refused, r"clattn: (an array of \d+ bytes has no memory.*returned -4|copying an array returned -5)"
                )
        self.assertEqual(self.live(), before)
        made = session(content, provider=BUFFERS)
        expected = made.run(None, inputs)[0]
        for number, result in self.each_call(functools.partial(made.run, None, inputs), 1):
            with self.subTest(number, result=str(result)[-200:]):
                if isinstance(result, str):
                    self.assertIn("clattn: ", result)
                else:  # ONNX Runtime has asked for less
                    np.testing.assert_allclose(result[0], expected, atol=1e-5)
                np.testing.assert_allclose(made.run(None, inputs)[0], expected, atol=1e-5)
        del made
        self.assertEqual(self.live(), before)

    def test_shared_allocators(self):
        """What a session would ask the environment's allocator for is refused with the session, not in its first run."""
        inputs = {name: self.array(2, 3, 5, 8) for name in "qkv"}
        content = model([node("Attention", "q k v", "y")], inputs, ["y"])
        for provider in (NAME, BUFFERS):
            settings = onnxruntime.SessionOptions()
            devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
            settings.add_provider_for_devices(devices, {})
            settings.add_session_config_entry("session.use_env_allocators", "1")
            if provider == NAME:
                self.assertEqual(onnxruntime.InferenceSession(content, settings).run(None, inputs)[0].shape, (2, 3, 5, 8))
            else:
                with self.assertRaisesRegex(Exception, "clattn: session.use_env_allocators"):
                    onnxruntime.InferenceSession(content, settings)


def with_layer():
    """Runs this file with a layer of the loader's, which is read when OpenCL is first called."""
    with tempfile.TemporaryDirectory() as folder:
        layer = pathlib.Path(folder, "layer.so")
        source = pathlib.Path(__file__).resolve().parent / "layer.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", layer, source], check=True)
        return subprocess.run(
            [sys.executable, *sys.argv], env={**os.environ, "OPENCL_LAYERS": str(layer)}, check=False
        ).returncode


if __name__ == "__main__":
    if "OPENCL_LAYERS" not in os.environ:
        sys.exit(with_layer())
    onnxruntime.register_execution_provider_library("clattn", os.environ["CLATTN_ONNXRUNTIME"])
    unittest.main()
