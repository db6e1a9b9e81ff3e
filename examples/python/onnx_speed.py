"""How much faster clattn makes an ONNX model, and how far its results are from those of the CPU provider:

    python onnx_speed.py MODEL.onnx [DIMENSION=EXTENT ...]

    python onnx_speed.py bert.onnx batch=1 sequence=128

Extents that the model leaves open are 1 if the command line does not say otherwise. Needs onnxruntime 1.23 or later and the package
clattn_onnxruntime, or the path of libclattn-onnxruntime.so in CLATTN_ONNXRUNTIME."""

import os
import statistics
import sys
import time

import numpy as np
import onnxruntime

NUMBERS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def library():
    if path := os.environ.get("CLATTN_ONNXRUNTIME"):
        return path
    import clattn_onnxruntime

    return clattn_onnxruntime.get_library_path()


def make_input(description, extents, random):
    """Floats, or numbers of tokens; what is called a mask is 1 everywhere."""
    shape = [extent if isinstance(extent, int) else extents.get(extent, 1) for extent in description.shape]
    dtype = NUMBERS.get(description.type)
    if dtype is None or "mask" in description.name:
        return np.ones(shape, dtype or bool)
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, 2 if "type" in description.name else 100, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def measure(session, inputs, runs=15):
    """The outputs, and the median time of a run in milliseconds."""
    outputs, times = session.run(None, inputs), []
    for _ in range(runs):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return outputs, statistics.median(times)


def main(model, *extents):
    onnxruntime.register_execution_provider_library("clattn", library())
    options = onnxruntime.SessionOptions()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "ClattnExecutionProvider"]
    options.add_provider_for_devices(devices, {})
    # One after the other: the threads of a session's CPU provider keep the processor busy for a while after each run.
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    chosen = {name: int(extent) for name, extent in (each.split("=") for each in extents)}
    random = np.random.default_rng(0)
    inputs = {each.name: make_input(each, chosen, random) for each in session.get_inputs()}
    expected, without = measure(session, inputs)
    del session
    session = onnxruntime.InferenceSession(model, options)
    session.disable_fallback()
    found, with_clattn = measure(session, inputs)
    apart = max(float(np.abs(mine - theirs).max()) for mine, theirs in zip(found, expected, strict=True) if mine.size)
    print(f"without clattn {without:.2f} ms, with clattn {with_clattn:.2f} ms: {without / with_clattn:.2f} times as fast")
    print(f"the results are at most {apart:.1e} apart")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
