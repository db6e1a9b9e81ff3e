"""clattn, the attention library for OpenCL: attention, softmax and the rest of a Transformer on any OpenCL device.

>>> import clattn, numpy as np
>>> q = k = v = np.ones((1, 8, 16, 64), np.float32)
>>> clattn.scaled_dot_product_attention(q, k, v, is_causal=True).shape
(1, 8, 16, 64)
"""

from clattn._words import Word
from clattn.attention import multi_head_attention, scaled_dot_product_attention
from clattn.context import Context, Device, default_context, devices
from clattn.errors import (
    ClattnError,
    InvalidArgumentError,
    NoDeviceError,
    OutOfMemoryError,
    UnsupportedError,
)
from clattn.functional import layer_norm, linear, rms_norm, rope, softmax
from clattn.models import SentenceEncoder
from clattn.plan import Plan, explain, supports
from clattn.speech import Segment, Transcript, Whisper
from clattn.transformer import Decoder, Generated, Transformer

__all__ = [
    "ClattnError",
    "Context",
    "Decoder",
    "Device",
    "Generated",
    "InvalidArgumentError",
    "NoDeviceError",
    "OutOfMemoryError",
    "Plan",
    "Segment",
    "SentenceEncoder",
    "Transcript",
    "Transformer",
    "UnsupportedError",
    "Whisper",
    "Word",
    "default_context",
    "devices",
    "explain",
    "layer_norm",
    "linear",
    "multi_head_attention",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "softmax",
    "supports",
]
