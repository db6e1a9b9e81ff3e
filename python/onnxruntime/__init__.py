"""clattn's execution provider for ONNX Runtime, which computes attention on any OpenCL device.

import clattn_onnxruntime
import onnxruntime

onnxruntime.register_execution_provider_library("clattn", clattn_onnxruntime.get_library_path())
devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == clattn_onnxruntime.get_ep_name()]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices, {})
session = onnxruntime.InferenceSession("model.onnx", options)
"""

import pathlib


def get_library_path() -> str:
    """The path of the provider's library, for register_execution_provider_library."""
    return str(pathlib.Path(__file__).resolve().with_name("libclattn-onnxruntime.so"))


def get_ep_name() -> str:
    """The provider's name."""
    return "ClattnExecutionProvider"
