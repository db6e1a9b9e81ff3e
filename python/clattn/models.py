"""Models from folders as Hugging Face has them."""

from __future__ import annotations

import json
import math
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clattn._handle import Closing, Handle
from clattn._library import STATUS, check, check_opencl, ffi, lib, opencl, text_of
from clattn.context import Context, default_context
from clattn.errors import error_of

DTYPES = {"float32": lib.CLATTN_DTYPE_F32, "float16": lib.CLATTN_DTYPE_F16, "bfloat16": lib.CLATTN_DTYPE_BF16}
ACTIVATIONS = {
    "gelu": lib.CLATTN_ACTIVATION_GELU,
    "gelu_new": lib.CLATTN_ACTIVATION_GELU_TANH,
    "gelu_pytorch_tanh": lib.CLATTN_ACTIVATION_GELU_TANH,
    "relu": lib.CLATTN_ACTIVATION_RELU,
    "silu": lib.CLATTN_ACTIVATION_SWISH,
}
SIZES = {  # config.json's name -> the stack's
    "num_hidden_layers": "layers",
    "hidden_size": "d_model",
    "num_attention_heads": "heads",
    "intermediate_size": "d_ff",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "position_count",
    "type_vocab_size": "segments",
}


def _read(path: pathlib.Path) -> dict[str, Any]:
    value = json.loads(path.read_text("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no object")
    return value


def _expected(path: pathlib.Path, config: dict[str, Any], name: str, kind: Any, expected: str) -> Any:
    """A member of a configuration, of a type that is checked."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{path}: {name} is {value!r}, expected {expected}")
    return value


def _bert_stack(path: pathlib.Path) -> Any:
    """The encoder that config.json describes."""
    config = _read(path)
    if config.get("model_type") != "bert":
        raise ValueError(f"{path}: model_type is {config.get('model_type')!r}, expected 'bert'")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{path}: position_embedding_type is {config['position_embedding_type']!r}, expected 'absolute'")
    stack = ffi.new("clattn_stack_desc *")
    lib.clattn_stack_desc_init(stack)
    for name, member in SIZES.items():
        value = _expected(path, config, name, int, "a number of 1 or more")
        if not 1 <= value < 2**24:
            raise ValueError(f"{path}: {name} is {value}, expected a number of 1 or more")
        setattr(stack, member, value)
    activation = config.get("hidden_act")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
    stack.activation = ACTIVATIONS[activation]
    stack.epsilon, stack.explicit_epsilon = _expected(path, config, "layer_norm_eps", (int, float), "a number"), 1
    stack.norm, stack.norm_place = lib.CLATTN_NORM_KIND_LAYER, lib.CLATTN_NORM_PLACE_POST
    stack.input, stack.positions, stack.input_norm = lib.CLATTN_STACK_INPUT_TOKENS, lib.CLATTN_POSITIONS_TABLE, 1
    return stack


def _load(path: pathlib.Path, desc: Any, names: Any, first: str, prefix: str, context: Context) -> Any:
    """The model that a safetensors file has the weights of; their names may begin with a prefix."""
    error, file, model = ffi.new("clattn_io_error *"), ffi.new("clattn_safetensors **"), ffi.new("clattn_transformer **")
    status = lib.clattn_safetensors_create(os.fsencode(path), file, error)
    if status:
        raise error_of(STATUS[status], text_of(error.message))
    try:
        tensor, source = ffi.new("clattn_host_tensor *"), ffi.new("clattn_weight_source *")
        lib.clattn_weight_source_init(source)
        source.lookup, source.user, source.format = ffi.addressof(lib, "clattn_safetensors_lookup"), file[0], names
        text = ffi.new("char[]", prefix.encode())
        lib.clattn_safetensors_find(file[0], (prefix + first).encode(), tensor, ffi.NULL)
        if tensor.dtype != lib.CLATTN_DTYPE_NONE:
            source.prefix = text
        with context.handle as handle:
            check(lib.clattn_transformer_create(handle, desc, source, model), handle)
    finally:
        lib.clattn_safetensors_release(file)
    return Handle("model", model, lib.clattn_transformer_release)


class SentenceEncoder(Closing):
    """Texts to vectors, by a model of sentence-transformers that is a BERT, such as all-MiniLM-L6-v2.

    `folder` has config.json, tokenizer.json and model.safetensors, and may have sentence_bert_config.json, modules.json and
    1_Pooling/config.json. `dtype` is the type that the model computes in. Needs the package tokenizers. Any thread may encode.
    """

    def __init__(
        self,
        folder: str | pathlib.Path,
        *,
        dtype: str = "float32",
        max_tokens: int | None = None,
        context: Context | None = None,
    ) -> None:
        import tokenizers

        self._plans: dict[tuple[int, int], Handle] = {}
        self._lock = threading.RLock()
        self._context, folder = context or default_context(), pathlib.Path(folder)
        stack = _bert_stack(folder / "config.json")
        self.dimension: int = stack.d_model
        self.max_tokens: int = stack.position_count
        limits = folder / "sentence_bert_config.json"
        if limits.exists():
            self.max_tokens = min(_expected(limits, _read(limits), "max_seq_length", int, "a number"), self.max_tokens)
        if max_tokens is not None:
            self.max_tokens = min(max_tokens, self.max_tokens)
        if self.max_tokens < 2:
            raise ValueError(f"{self.max_tokens} tokens a text, expected 2 or more")
        self._pooling, self._normalizes = self._read_pooling(folder)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        if self._tokenizer.get_vocab_size() > stack.vocabulary:
            raise ValueError(
                f"{folder}: the tokenizer has {self._tokenizer.get_vocab_size()} tokens, the model {stack.vocabulary}"
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, not one of {', '.join(DTYPES)}")
        desc = ffi.new("clattn_transformer_desc *")
        lib.clattn_transformer_desc_init(desc)
        desc.encoder, desc.dtype = stack, DTYPES[dtype]
        first = "embeddings.word_embeddings.weight"
        self._model = _load(folder / "model.safetensors", desc, lib.CLATTN_NAME_FORMAT_BERT, first, "bert.", self._context)

    @staticmethod
    def _read_pooling(folder: pathlib.Path) -> tuple[int, bool]:
        """How vectors of tokens become one, and whether that has length 1."""
        modules, place, normalizes = folder / "modules.json", "1_Pooling", False
        if modules.exists():
            for module in json.loads(modules.read_text("utf-8")):
                kind = module["type"].rsplit(".", 1)[-1]
                if kind not in ("Transformer", "Pooling", "Normalize"):
                    raise ValueError(f"{modules}: {module['type']}, expected a Transformer, Pooling and Normalize alone")
                place = module["path"] if kind == "Pooling" else place
                normalizes = normalizes or kind == "Normalize"
        path = folder / place / "config.json"
        if not path.exists():
            return lib.CLATTN_POOLING_MEAN, normalizes
        modes = [name for name, value in _read(path).items() if name.startswith("pooling_mode_") and value is True]
        known = {"pooling_mode_mean_tokens": lib.CLATTN_POOLING_MEAN, "pooling_mode_cls_token": lib.CLATTN_POOLING_FIRST}
        if len(modes) != 1 or modes[0] not in known:
            raise ValueError(f"{path}: {modes} are true, expected one of {', '.join(known)}")
        return known[modes[0]], normalizes

    def encode(
        self, sentences: str | Sequence[str], batch_size: int = 32, *, normalize_embeddings: bool = False
    ) -> npt.NDArray[np.float32]:
        """The vectors of texts, (texts, dimension), or that of one text, (dimension,). Longer texts are cut at max_tokens."""
        if isinstance(sentences, str):
            vectors = self.encode([sentences], batch_size, normalize_embeddings=normalize_embeddings)
            return vectors.reshape(self.dimension)
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences))]
        order = sorted(range(len(ids)), key=lambda n: len(ids[n]), reverse=True)  # texts of a batch are alike in length
        vectors = np.empty((len(ids), self.dimension), np.float32)
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            vectors[batch] = self._encode([ids[n] for n in batch], batch_size)
        if normalize_embeddings or self._normalizes:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _encode(self, ids: list[list[int]], batch_size: int) -> npt.NDArray[np.float32]:
        longest = max(1, max(len(each) for each in ids))
        length = min(max(16, 1 << math.ceil(math.log2(longest))), self.max_tokens)
        padded = np.zeros((len(ids), length), np.int32)
        for row, each in zip(padded, ids, strict=True):
            row[: len(each)] = each
        pooled = np.empty((len(ids), self.dimension), np.float32)
        args, event = ffi.new("clattn_encoder_args *"), ffi.new("cl_event *")
        lib.clattn_encoder_args_init(args)
        lengths = ffi.new("int32_t[]", [len(each) for each in ids])
        args.explicit_lengths, args.batch, args.length, args.lengths = 1, len(ids), longest, lengths
        cl, code, buffers = opencl(), ffi.new("cl_int *"), []
        with self._context.handle as handle, self._plan(batch_size, length) as plan:
            owner = lib.clattn_context_opencl_context(handle)
            try:
                for binding, array, flags in (
                    (args.input, padded, lib.C_CL_MEM_READ_ONLY | lib.C_CL_MEM_COPY_HOST_PTR),
                    (args.pooled, pooled, lib.C_CL_MEM_READ_WRITE),
                ):
                    host = ffi.from_buffer(array) if flags & lib.C_CL_MEM_COPY_HOST_PTR else ffi.NULL
                    binding.buffer = cl.clCreateBuffer(owner, flags, array.nbytes, host, code)
                    check_opencl(code[0], "clCreateBuffer")
                    buffers.append(binding.buffer)
                check(lib.clattn_encoder_enqueue(plan, ffi.NULL, args, 0, ffi.NULL, event), handle)
                queue, to = lib.clattn_context_queue(handle), ffi.from_buffer(pooled)
                done = cl.clEnqueueReadBuffer(queue, buffers[1], lib.C_CL_TRUE, 0, pooled.nbytes, to, 1, event, ffi.NULL)
                check_opencl(done, "clEnqueueReadBuffer")
            finally:
                if event[0] != ffi.NULL:
                    cl.clReleaseEvent(event[0])
                for buffer in buffers:
                    cl.clReleaseMemObject(buffer)
        return pooled

    def _plan(self, batch: int, length: int) -> Handle:
        """The plan for batches of texts of so many tokens."""
        with self._lock:
            held = self._plans.get((batch, length))
            if held is None:
                desc, holder = ffi.new("clattn_encoder_desc *"), ffi.new("clattn_plan **")
                lib.clattn_encoder_desc_init(desc)
                desc.batch, desc.length, desc.pooling = batch, length, self._pooling
                with self._model as model, self._context.handle as handle:
                    check(lib.clattn_encoder_plan_create(model, desc, ffi.NULL, holder), handle)
                held = self._plans[batch, length] = Handle("encoder", holder, lib.clattn_plan_release)
            return held

    def close(self) -> None:
        """Releases the model and its plans, after the calls of other threads that are at work."""
        with self._lock:
            for held in self._plans.values():
                held.close()
            self._model.close()
