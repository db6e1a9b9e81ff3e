"""Models from folders as Hugging Face has them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clattn._handle import Closing
from clattn.context import Context
from clattn.transformer import Source, Transformer

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
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


def _bert_stack(path: pathlib.Path) -> dict[str, Any]:
    """The encoder that config.json describes."""
    config = _read(path)
    if config.get("model_type") != "bert":
        raise ValueError(f"{path}: model_type is {config.get('model_type')!r}, expected 'bert'")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{path}: position_embedding_type is {config['position_embedding_type']!r}, expected 'absolute'")
    stack: dict[str, Any] = {}
    for name, member in SIZES.items():
        stack[member] = _expected(path, config, name, int, "a number of 1 or more")
        if not 1 <= stack[member] < 2**24:
            raise ValueError(f"{path}: {name} is {stack[member]}, expected a number of 1 or more")
    activation = config.get("hidden_act")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
    stack.update(
        activation=ACTIVATIONS[activation], epsilon=_expected(path, config, "layer_norm_eps", (int, float), "a number")
    )
    return {**stack, "norm": "layer", "norm_place": "post", "input": "tokens", "positions": "table", "input_norm": 1}


class SentenceEncoder(Closing):
    """Texts to vectors, by a model of sentence-transformers that is a BERT, such as all-MiniLM-L6-v2.

    `folder` has config.json, tokenizer.json and model.safetensors, and may have sentence_bert_config.json, modules.json and
    1_Pooling/config.json. `dtype` is the type that the model computes in. Needs the package tokenizers. Any thread may encode.

    >>> with SentenceEncoder("all-MiniLM-L6-v2") as encoder:
    ...     eats, bread, rides = encoder.encode(["A man is eating food.", "He eats some bread.", "She rides a horse."])
    >>> bool(eats @ bread > eats @ rides)
    True
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

        folder = pathlib.Path(folder)
        stack = _bert_stack(folder / "config.json")
        self.dimension: int = stack["d_model"]
        self.max_tokens: int = stack["position_count"]
        limits = folder / "sentence_bert_config.json"
        if limits.exists():
            self.max_tokens = min(_expected(limits, _read(limits), "max_seq_length", int, "a number"), self.max_tokens)
        if max_tokens is not None:
            self.max_tokens = min(max_tokens, self.max_tokens)
        if self.max_tokens < 2:
            raise ValueError(f"{self.max_tokens} tokens a text, expected 2 or more")
        self._pooling, self._normalizes = self._read_pooling(folder)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        if self._tokenizer.get_vocab_size() > stack["vocabulary"]:
            raise ValueError(
                f"{folder}: the tokenizer has {self._tokenizer.get_vocab_size()} tokens, the model {stack['vocabulary']}"
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        with Source(folder / "model.safetensors") as source:
            has_prefix = source.shape("bert.embeddings.word_embeddings.weight") is not None
        self._model = Transformer(
            folder / "model.safetensors",
            encoder=stack,
            dtype=dtype,
            names="bert",
            prefix="bert." if has_prefix else "",
            context=context,
        )

    @staticmethod
    def _read_pooling(folder: pathlib.Path) -> tuple[str, bool]:
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
            return "mean", normalizes
        modes = [name for name, value in _read(path).items() if name.startswith("pooling_mode_") and value is True]
        known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
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
            vectors[batch] = self._encode([ids[n] for n in batch])
        if normalize_embeddings or self._normalizes:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _encode(self, ids: list[list[int]]) -> npt.NDArray[np.float32]:
        lengths = [len(each) for each in ids]
        padded = np.zeros((len(ids), max(1, *lengths)), np.int32)
        for row, each in zip(padded, ids, strict=True):
            row[: len(each)] = each
        return self._model.encode(padded, lengths, pooling=self._pooling)

    def close(self) -> None:
        """Releases the model, after the calls of other threads that are at work."""
        self._model.close()
