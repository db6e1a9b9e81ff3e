"""Transformers: encoders, decoders and generation, with weights of any origin."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from clattn._arrays import operand
from clattn._buffers import FLOATS, Buffers, packed, room_of, unpacked
from clattn._handle import Closing, Handle
from clattn._library import STATUS, check, ffi, lib, text_of
from clattn.context import Context, default_context
from clattn.errors import error_of

Weights = str | os.PathLike[str] | Mapping[str, Any]
KEPT = 16  # plans that a model keeps


def enumerator(kind: str, name: str) -> int:
    """The value of an enumerator of the C library's by the end of its name: "layer" is CLATTN_NORM_KIND_LAYER."""
    values: dict[str, int] = ffi.typeof(kind).relements
    prefix = os.path.commonprefix(list(values))
    prefix = prefix[: prefix.rindex("_") + 1]
    names = {each.removeprefix(prefix).lower(): value for each, value in values.items() if not each.endswith("_FORCE_32BIT")}
    names = dict(sorted(names.items(), key=lambda item: item[1]))
    found = names.get(name.lower().replace("-", "_"))
    if found is None:
        raise ValueError(f"{name!r} is no {kind.split('clattn_')[1]}, which are {', '.join(names)}")
    return found


def fill(struct: Any, members: Mapping[str, Any]) -> None:
    """Sets members of a C structure: numbers, names of enumerators, mappings for structures in it, and lists of these."""
    fields = dict(ffi.typeof(struct).item.fields)
    for name, value in members.items():
        field = fields.get(name)
        if field is None or field.type.kind == "pointer" or name == "size":
            raise TypeError(f"{ffi.typeof(struct).item.cname} has no member {name!r} to be set")
        if isinstance(value, str) and field.type.kind == "enum":
            value = enumerator(field.type.cname, value)
        if field.type.kind == "struct":
            fill(ffi.addressof(struct[0], name), value)
        elif field.type.kind == "array":
            array = getattr(struct, name)
            if len(value) > len(array):
                raise ValueError(f"{len(value)} of {name}, and there may be {len(array)}")
            for index, each in enumerate(value):
                fill(ffi.addressof(array, index), each)
            setattr(struct, name + "s", len(value))
        else:
            setattr(struct, name, value)
        if "explicit_" + name in fields:
            setattr(struct, "explicit_" + name, 1)


def _c_string(text: str) -> Any:
    if "\0" in text:
        raise ValueError(f"{text!r} has a character NUL")
    return ffi.new("char[]", text.encode())


def _array(values: npt.ArrayLike, name: str, integers: bool) -> npt.NDArray[Any]:
    """An argument: whole numbers of 32 bits, or numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would not count")
    array = np.asarray(values)
    if array.dtype.kind not in ("iu" if integers else "iuf"):
        raise TypeError(f"{name} is of type {array.dtype}, expected {'whole numbers' if integers else 'numbers'}")
    if integers and array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        raise ValueError(f"{name} has numbers from {array.min()} to {array.max()}, which are not all of 32 bits")
    return array


class Source:
    """Where the C library gets a model's weights; for one call."""

    def __init__(
        self, weights: Weights, names: str = "canonical", rules: Mapping[str, str | None] | None = None, prefix: str = ""
    ) -> None:
        self.source, self._kept = ffi.new("clattn_weight_source *"), []  # type: ignore[var-annotated]
        self.failure: BaseException | None = None
        lib.clattn_weight_source_init(self.source)
        self.source.format = enumerator("clattn_name_format", names)
        if prefix:
            self.source.prefix = self._text(prefix)
        if rules:
            self.source.rules, self.source.rule_count = self._keep(ffi.new("clattn_name_rule[]", len(rules))), len(rules)
            for rule, (canonical, name) in zip(self._kept[-1], rules.items(), strict=True):
                rule.canonical, rule.name = self._text(canonical), ffi.NULL if name is None else self._text(name)
        self._weights = weights
        self._file: Any = None

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _text(self, text: str) -> Any:
        return self._keep(_c_string(text))

    def __enter__(self) -> Self:
        if isinstance(self._weights, Mapping):
            self.source.lookup = self._keep(
                ffi.callback("clattn_tensor_lookup", self._look_up, error=lib.CLATTN_ERROR_FORMAT, onerror=self._failed)
            )
            return self
        path = pathlib.Path(self._weights)
        if "\0" in str(path):
            raise ValueError(f"{str(path)!r} has a character NUL")
        kind = "safetensors" if path.suffix == ".safetensors" else "ctranslate2"
        error, file = ffi.new("clattn_io_error *"), ffi.new(f"clattn_{kind} **")
        status = getattr(lib, f"clattn_{kind}_create")(os.fsencode(path), file, error)
        if status:
            raise error_of(STATUS[status], text_of(error.message))
        self._file = file, getattr(lib, f"clattn_{kind}_release")
        self.source.lookup, self.source.user = ffi.addressof(lib, f"clattn_{kind}_lookup"), file[0]
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            self._file[1](self._file[0])

    def _failed(self, _kind: Any, failure: BaseException, _trace: Any) -> None:
        """What goes on where the C library was called."""
        self.failure = failure

    def _look_up(self, _user: Any, name: Any, tensor: Any, _error: Any) -> int:
        assert isinstance(self._weights, Mapping)
        given = self._weights.get(text_of(name))
        if given is None:
            return 0
        array = operand(given, text_of(name))
        if array.owner is not None:
            raise TypeError(f"{text_of(name)} is PyOpenCL's, and weights are read from the host: use .get()")
        if array.values.ndim > lib.C_CLATTN_MAX_RANK:
            raise ValueError(f"{text_of(name)} has {array.values.ndim} dimensions, at most {lib.C_CLATTN_MAX_RANK} can be read")
        self._array = np.ascontiguousarray(array.values)  # until the next call
        tensor.dtype, tensor.rank, tensor.bytes = array.dtype, array.values.ndim, array.values.nbytes
        tensor.extent[0 : array.values.ndim] = array.values.shape
        tensor.data = ffi.from_buffer(self._array) if array.values.nbytes else ffi.NULL
        return 0

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of the tensor of that very name, if there is one."""
        tensor = ffi.new("clattn_host_tensor *")
        check(self.source.lookup(self.source.user, name.encode(), tensor, ffi.NULL))
        return None if tensor.dtype == lib.CLATTN_DTYPE_NONE else tuple(tensor.extent[0 : tensor.rank])

    def whole_number(self, name: str) -> int:
        """A number of a file of CTranslate2's; 0 if it has none of that name."""
        number = ffi.new("int32_t *")
        lib.clattn_ctranslate2_integer(self._file[0][0], name.encode(), number)
        return int(number[0])


def _stages(stacks: Any, given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, preset: bool) -> Any:
    """A stack's description, of one stage or several, written over a preset's or over new ones; NULL if there is none."""
    if given is None:
        return stacks if preset else ffi.NULL
    members = [given] if isinstance(given, Mapping) else list(given)
    if not 1 <= len(members) <= len(stacks):
        raise ValueError(f"there are {len(members)} stages, expected 1 to {len(stacks)}")
    for n, each in enumerate(members):
        stage = ffi.addressof(stacks, n)
        if not stage.size:
            lib.clattn_stack_desc_init(stage)
        fill(stage, each)
        if n + 1 < len(members):
            stage.next = ffi.addressof(stacks, n + 1)
    return stacks


class Transformer(Closing):
    """A described model and its weights on a device: an encoder, a decoder, or both. Any thread may use it.

    `weights` is a file (.safetensors, or model.bin of CTranslate2) or a mapping of names to arrays: by default the canonical
    names of clattn/weights.h, as below. `names` says by which rules other files call their tensors: "bert", "whisper",
    "pytorch_transformer" and the others of clattn_name_format in clattn/weights.h; `rules` has further ones, which go before:
    canonical names to a file's names, or to None for a tensor that there is not. `prefix` is what all names begin with.

    `encoder` and `decoder` are members of clattn_stack_desc in clattn/transformer.h, where each is explained; enumerators go by the ends
    of their names. With `preset`, such as "whisper_tiny_en", they change what that has. An encoder of several stages, as Swin is, has a
    list of them. Presets of pictures, such as "vit_base_16" and the others of clattn_vision in clattn/vision.h, want the names of Hugging
    Face's files. `dtype` is the type that the model computes in, `weight_dtype` that of its weights ("int8" among them).
    `output` makes logits: "own" by a matrix output.weight, (`output_size` or the vocabulary, d_model), "tied" by the decoder's table
    of tokens; None leaves the last layer's vectors, or what the preset has.

    >>> random = np.random.default_rng(1)
    >>> weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in [
    ...     ("encoder.layers.0.self.query.weight", (8, 8)), ("encoder.layers.0.self.key.weight", (8, 8)),
    ...     ("encoder.layers.0.self.value.weight", (8, 8)), ("encoder.layers.0.self.output.weight", (8, 8)),
    ...     ("encoder.layers.0.self.norm.weight", (8,)), ("encoder.layers.0.feed_forward.norm.weight", (8,)),
    ...     ("encoder.layers.0.feed_forward.in.weight", (32, 8)), ("encoder.layers.0.feed_forward.out.weight", (8, 32))]}
    >>> layer = dict(layers=1, d_model=8, heads=2, d_ff=32, activation="gelu", norm="rms", without_bias=63)
    >>> with Transformer(weights, encoder=layer) as model:
    ...     model.encode(np.ones((2, 5, 8), np.float32)).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        weights: Weights,
        *,
        preset: str | None = None,
        encoder: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        decoder: Mapping[str, Any] | None = None,
        output: str | None = None,
        output_bias: bool = False,
        output_size: int = 0,
        dtype: str = "float32",
        weight_dtype: str | None = None,
        names: str | None = None,
        rules: Mapping[str, str | None] | None = None,
        prefix: str = "",
        context: Context | None = None,
    ) -> None:
        if dtype not in FLOATS:
            raise ValueError(f"dtype is {dtype!r}, not one of {', '.join(FLOATS)}")
        types = {**FLOATS, "int8": lib.CLATTN_DTYPE_I8}
        if weight_dtype is not None and weight_dtype not in types:
            raise ValueError(f"weight_dtype is {weight_dtype!r}, not one of {', '.join(types)}")
        desc, stacks = (
            ffi.new("clattn_transformer_desc *"),
            [ffi.new("clattn_stack_desc[]", lib.C_CLATTN_MAX_STAGES) for _ in range(2)],
        )
        lib.clattn_transformer_desc_init(desc)
        if preset is not None and "CLATTN_VISION_" + preset.upper().replace("-", "_") in ffi.typeof("clattn_vision").relements:
            found = ffi.new("clattn_name_format *")
            check(lib.clattn_vision_preset(enumerator("clattn_vision", preset), desc, stacks[0], found))
            formats: dict[int, str] = ffi.typeof("clattn_name_format").elements
            names = names or formats[found[0]].removeprefix("CLATTN_NAME_FORMAT_").lower()
        elif preset is not None:
            check(lib.clattn_transformer_preset(enumerator("clattn_preset", preset), desc, *stacks))
        desc.encoder, desc.decoder = self._encoder, self._decoder = (
            _stages(stacks[0], encoder, desc.encoder != ffi.NULL),
            _stages(stacks[1], decoder, desc.decoder != ffi.NULL),
        )
        desc.dtype = FLOATS[dtype]
        desc.weight_dtype = lib.CLATTN_DTYPE_NONE if weight_dtype is None else types[weight_dtype]
        if output is not None:
            desc.output = enumerator("clattn_model_output", output)
        desc.output_bias, desc.output_size = output_bias, output_size
        self.dtype, self._context, self._lock = dtype, context or default_context(), threading.RLock()
        self.has_output = desc.output != lib.CLATTN_MODEL_OUTPUT_NONE
        self.output_columns = 0 if desc.decoder == ffi.NULL else int(desc.output_size or desc.decoder.vocabulary)
        self._plans: dict[Any, Handle] = {}
        made = ffi.new("clattn_transformer **")
        with Source(weights, names or "canonical", rules, prefix) as source, self._context.handle as handle:
            status = lib.clattn_transformer_create(handle, desc, source.source, made)
            if source.failure:
                lib.clattn_transformer_release(made)
                raise source.failure
            check(status, handle)
        self._model = Handle("model", made, lib.clattn_transformer_release)

    def encode(
        self,
        inputs: npt.ArrayLike,
        lengths: Sequence[int] | None = None,
        *,
        segments: npt.ArrayLike | None = None,
        pooling: str | None = None,
        normalize: bool = False,
    ) -> npt.NDArray[np.float32]:
        """The encoder's vectors, (batch, positions, d_model), or with `pooling` ("mean", "first", "last") one for each item.

        `inputs` are tokens (batch, length), or vectors or features (batch, length, columns). `lengths` says how many positions of each
        item count; what lies behind these means nothing. `normalize` divides pooled vectors by their lengths.

        Pictures are (batch, channels, height, width), as the model wants their values (clattn/vision.h), and may also be pooled by
        "patches". A model that restores pictures gives (batch, channels, factor * height, factor * width)."""
        if self._encoder == ffi.NULL:
            raise ValueError("the model has no encoder")
        stack = self._encoder[0]
        if stack.input == lib.CLATTN_STACK_INPUT_PICTURES:
            if lengths is not None or segments is not None:
                raise ValueError("pictures have neither lengths nor segments")
            return self._encode_pictures(_array(inputs, "inputs", False), pooling, normalize)
        tokens = stack.input == lib.CLATTN_STACK_INPUT_TOKENS
        array = _array(inputs, "inputs", tokens)
        columns = () if tokens else (stack.features or stack.d_model,)
        if array.ndim != 2 + len(columns) or array.shape[2:] != columns or 0 in array.shape:
            wanted = ", ".join(["batch", "length", *map(str, columns)])
            raise ValueError(f"inputs are of shape {array.shape}, expected ({wanted})")
        batch, length = array.shape[:2]
        sizes = (
            1 << (batch - 1).bit_length(),
            length if stack.input == lib.CLATTN_STACK_INPUT_FEATURES else self._room(length),
        )
        padded = np.zeros((*sizes, *columns), np.int32 if tokens else np.float32)
        padded[:batch, :length] = array
        positions, most = (lib.clattn_stack_positions(self._encoder, each) for each in (length, sizes[1]))
        if lengths is not None and (len(lengths) != batch or not all(0 <= each <= positions for each in lengths)):
            raise ValueError(f"lengths are {list(lengths)}, expected {batch} from 0 to {positions}")
        pooled = lib.CLATTN_POOLING_NONE if pooling is None else enumerator("clattn_pooling", pooling)
        if pooled in (lib.CLATTN_POOLING_NONE, lib.CLATTN_POOLING_PATCHES) and pooling is not None:
            raise ValueError(f"pooling is {pooling!r}, not one of mean, first, last")
        shape = (sizes[0], stack.projection or stack.d_model) if pooling else (sizes[0], most, stack.d_model)
        result = np.empty(shape, np.float32) if pooling else room_of(shape, self.dtype)
        args = ffi.new("clattn_encoder_args *")
        lib.clattn_encoder_args_init(args)
        args.explicit_lengths, args.batch, args.length = 1, batch, length
        if lengths is not None:
            held = ffi.new("int32_t[]", list(lengths))
            args.lengths = held
        plan_of = self._encoder_plan(sizes[0], sizes[1], pooled, normalize)
        with self._context.handle as handle, plan_of as plan, Buffers(handle) as buffers:
            args.input.buffer = buffers.holding(padded if tokens else packed(padded, self.dtype))
            if segments is not None:
                if np.shape(segments) != (batch, length):
                    raise ValueError(f"segments are of shape {np.shape(segments)}, expected {(batch, length)}")
                kinds = np.zeros(sizes, np.int32)
                kinds[:batch, :length] = _array(segments, "segments", True)
                args.segments.buffer = buffers.holding(kinds)
            to = args.pooled if pooling else args.output
            to.buffer = buffers.room(result.nbytes)
            check(lib.clattn_encoder_enqueue(plan, ffi.NULL, args, 0, ffi.NULL, buffers.event), handle)
            buffers.read(to.buffer, result)
        return unpacked(result)[:batch] if pooling else unpacked(result)[:batch, :positions]

    def _encode_pictures(self, pictures: npt.NDArray[Any], pooling: str | None, normalize: bool) -> npt.NDArray[np.float32]:
        first = last = self._encoder[0]
        patches = first.patches
        if pictures.ndim != 4 or pictures.shape[1] != patches.channels or 0 in pictures.shape:
            raise ValueError(f"inputs are of shape {pictures.shape}, expected (batch, {patches.channels}, height, width)")
        batch, _, height, width = pictures.shape
        rows, columns = height // patches.height, width // patches.width
        if height % patches.height or width % patches.width:
            raise ValueError(
                f"pictures of {height} x {width} are not divisible into patches of {patches.height} x {patches.width}"
            )
        while last.next != ffi.NULL:
            last = last.next[0]
            if last.input == lib.CLATTN_STACK_INPUT_MERGED:
                rows, columns = (rows + 1) // 2, (columns + 1) // 2
        padded = np.zeros((1 << (batch - 1).bit_length(), *pictures.shape[1:]), np.float32)
        padded[:batch] = pictures
        factor = last.restoration.factor if last.restoration.kind else 0
        restored = (len(padded), pictures.shape[1], factor * height, factor * width) if factor else None
        pooled = lib.CLATTN_POOLING_NONE if pooling is None else enumerator("clattn_pooling", pooling)
        if pooling is not None and pooled == lib.CLATTN_POOLING_NONE:
            raise ValueError(f"pooling is {pooling!r}, not one of mean, first, last, patches")
        args = ffi.new("clattn_encoder_args *")
        lib.clattn_encoder_args_init(args)
        args.explicit_lengths, args.batch = 1, batch
        if pooled:
            result = np.empty((len(padded), last.projection or last.d_model), np.float32)
        elif restored:
            result = np.empty(restored, np.float32)
        else:
            positions = lib.clattn_stack_positions(self._encoder, rows * columns)
            result = room_of((len(padded), positions, last.neck or last.d_model), self.dtype)
        plan_of = self._encoder_plan(len(padded), 0, pooled, normalize, padded.shape, restored)
        with self._context.handle as handle, plan_of as plan, Buffers(handle) as buffers:
            args.input.buffer = buffers.holding(padded)
            to = args.pooled if pooled else args.output
            to.buffer = buffers.room(result.nbytes)
            check(lib.clattn_encoder_enqueue(plan, ffi.NULL, args, 0, ffi.NULL, buffers.event), handle)
            buffers.read(to.buffer, result)
        return unpacked(result)[:batch]

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights on the device."""
        with self._model as model:
            return int(lib.clattn_transformer_weight_bytes(model))

    def _room(self, length: int) -> int:
        """The length for which a plan is made: a power of two from 16 on, unless there are fewer positions."""
        room, most = max(16, 1 << (length - 1).bit_length()), self._encoder[0].position_count
        return min(room, max(most - self._encoder[0].first_position, length)) if most else room

    def _encoder_plan(
        self,
        batch: int,
        length: int,
        pooling: int,
        unit: bool,
        picture: tuple[int, ...] | None = None,
        restored: tuple[int, ...] | None = None,
    ) -> Handle:
        def make(model: Any, holder: Any) -> int:
            desc = ffi.new("clattn_encoder_desc *")
            lib.clattn_encoder_desc_init(desc)
            desc.batch, desc.length, desc.pooling, desc.pooled_unit = batch, length, pooling, unit
            if picture:
                desc.picture = lib.clattn_layout_nchw(lib.CLATTN_DTYPE_F32, *picture)
            if restored:
                desc.restored = lib.clattn_layout_nchw(lib.CLATTN_DTYPE_F32, *restored)
            return int(lib.clattn_encoder_plan_create(model, desc, ffi.NULL, holder))

        return self._plan(("encoder", batch, length, pooling, unit, picture), make)

    def _plan(self, key: Any, make: Callable[[Any, Any], int]) -> Handle:
        """A plan that is kept for a key; the one that was used longest ago goes when there are too many."""
        with self._lock:
            plan = self._plans.pop(key, None)
            if plan is None:
                holder = ffi.new("clattn_plan **")
                with self._model as model, self._context.handle as handle:
                    check(make(model, holder), handle)
                plan = Handle("plan", holder, lib.clattn_plan_release)
                if len(self._plans) >= KEPT:
                    self._plans.pop(next(iter(self._plans))).close()
            self._plans[key] = plan
            return plan

    def decoder(self, **sizes: Any) -> Decoder:
        """A decoder of this model: `Decoder(self, ...)`."""
        return Decoder(self, **sizes)

    def close(self) -> None:
        """Releases the model and its plans, after the calls of other threads that are at work."""
        with self._lock:
            for plan in self._plans.values():
                plan.close()
            self._model.close()


@dataclasses.dataclass(frozen=True)
class Generated:
    """A sequence that was generated."""

    tokens: list[int]  #: without the prompt; the stop token is the last if there was one
    score: float  #: the sum of the tokens' log-probabilities, by the length rule in beam search
    log_probabilities: npt.NDArray[np.float32]  #: of each token


class Decoder(Closing):
    """Sequences that grow, with the keys and values of what they have seen. One thread at a time uses it.

    There are at most `items` sequences, or `items * beams` of them, of at most `cache_length` tokens; `length` is the most tokens that
    one `append` takes of each. `memory_length` is the most positions of the encoder's output that items attend to. Several
    beams are for `reorder` and beam search; then tokens are appended one at a time. `cross_probabilities` are layers: after each
    `append`, an attribute of that name has their attention's, (layers, sequences, heads, length, positions of the memory).

    With `prepack` the decoder keeps the weights laid out as its kernels for CPUs read them, besides those of the model: a token then takes
    0.55 to 0.94 of the time, and the weights more than twice the memory. On GPUs it changes nothing.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        cache_length: int,
        items: int = 1,
        beams: int = 1,
        length: int = 1,
        memory_length: int = 0,
        cross_probabilities: Sequence[int] = (),
        prepack: bool = False,
    ) -> None:
        if model._decoder == ffi.NULL:
            raise ValueError("the model has no decoder")
        if min(cache_length, items, beams, length) < 1 or memory_length < 0:
            raise ValueError("cache_length, items, beams and length are 1 or more, and memory_length is 0 or more")
        self._model, self._lock, stack = model, threading.RLock(), model._decoder[0]
        self._sizes, self._sequences, self._items = (items, beams, length, memory_length), 0, 0
        self._generates, self._positions = False, 0
        if not all(0 <= layer < min(stack.layers, 64) for layer in cross_probabilities):
            raise ValueError(
                f"cross_probabilities are {list(cross_probabilities)}, expected layers from 0 to {stack.layers - 1}"
            )
        self._attended = (len(set(cross_probabilities)), stack.heads) if cross_probabilities else None
        self.cross_probabilities: npt.NDArray[np.float32] | None = None  #: of the last append
        self._tokens = stack.input == lib.CLATTN_STACK_INPUT_TOKENS
        self._d_model, self._d_memory = stack.d_model, stack.d_memory or stack.d_model
        desc, plan, state = ffi.new("clattn_decoder_desc *"), ffi.new("clattn_plan **"), ffi.new("clattn_decoder_state **")
        lib.clattn_decoder_desc_init(desc)
        desc.items, desc.beams, desc.length, desc.cache_length = items, beams, length, cache_length
        desc.memory_length, desc.prepack = memory_length, bool(prepack)
        desc.cross_probabilities = sum(1 << layer for layer in set(cross_probabilities))
        desc.logits = lib.CLATTN_LOGITS_ALL if model.has_output else lib.CLATTN_LOGITS_NONE
        with model._model as owner, model._context.handle as handle:
            try:
                check(lib.clattn_decoder_plan_create(owner, desc, ffi.NULL, plan), handle)
                check(lib.clattn_decoder_state_create(plan[0], state), handle)
            finally:
                lib.clattn_plan_release(plan)  # the state keeps it
        self._state = Handle("decoder", state, lib.clattn_decoder_state_release)
        self._columns = model.output_columns if model.has_output else self._d_model

    @contextlib.contextmanager
    def _use(self) -> Iterator[tuple[Any, Any]]:
        """The state and the context, for one call at a time."""
        with self._lock, self._state as state, self._model._context.handle as handle:
            if self._generates:
                raise RuntimeError("a hook cannot use the decoder that generates")
            yield state, handle

    def begin(
        self,
        memory: npt.ArrayLike | None = None,
        *,
        items: int | None = None,
        beams: int = 1,
        memory_lengths: Sequence[int] | None = None,
    ) -> None:
        """Empties all sequences. Without a memory, (items, positions, columns), the former one stays with its lengths.

        Of each item there are 1 or as many sequences as the decoder has beams. `memory_lengths` says how many positions count."""
        most_items, _, _, memory_length = self._sizes
        if beams < 1:
            raise ValueError(f"beams is {beams}, expected 1 or more")
        args = ffi.new("clattn_decoder_begin_args *")
        lib.clattn_decoder_begin_args_init(args)
        with self._use() as (state, handle), Buffers(handle) as buffers:
            if memory is not None:
                array = _array(memory, "memory", False)
                if (
                    array.ndim != 3
                    or array.shape[2] != self._d_memory
                    or len(array) > most_items
                    or array.shape[1] > memory_length
                ):
                    expected = f"(up to {most_items}, up to {memory_length}, {self._d_memory})"
                    raise ValueError(f"memory is of shape {array.shape}, expected {expected}")
                if items not in (None, len(array)):
                    raise ValueError(f"items is {items}, and there are {len(array)} memories")
                items = len(array)
                padded = np.zeros((most_items, memory_length, self._d_memory), np.float32)
                padded[:items, : array.shape[1]] = array
                args.memory.buffer = buffers.holding(packed(padded, self._model.dtype))
                args.memory_length = self._positions = array.shape[1]
            args.items, args.beams = (self._items or most_items) if items is None else items, beams
            if memory_lengths is not None:
                if len(memory_lengths) != args.items:
                    raise ValueError(f"{len(memory_lengths)} memory_lengths, expected {args.items}")
                held = ffi.new("int32_t[]", list(memory_lengths))
                args.memory_lengths = held
            check(lib.clattn_decoder_begin(state, ffi.NULL, args, 0, ffi.NULL, buffers.event), handle)
            self._sequences, self._items = args.items * beams, args.items

    def append(
        self, inputs: npt.ArrayLike, lengths: Sequence[int] | None = None, *, logits: bool = True
    ) -> npt.NDArray[np.float32] | None:
        """Appends tokens (sequences, length), or vectors (sequences, length, d_model), to all sequences.

        The result is the logits of what follows each token, (sequences, length, outputs), or the last layer's vectors if the model
        has no output; None if `logits` is False. `lengths` says how many tokens of each sequence count."""
        array = _array(inputs, "inputs", self._tokens)
        columns = () if self._tokens else (self._d_model,)
        most = self._sizes[2]
        if (
            array.ndim != 2 + len(columns)
            or len(array) != self._sequences
            or array.shape[2:] != columns
            or not 1 <= array.shape[1] <= most
        ):
            wanted = ", ".join([str(self._sequences), f"1 to {most}", *map(str, columns)])
            raise ValueError(f"inputs are of shape {array.shape}, expected ({wanted})")
        length, room = array.shape[1], most if array.shape[1] > 1 else 1
        padded = np.zeros((self._sequences, room, *columns), np.int32 if self._tokens else np.float32)
        padded[:, :length] = array
        has_output = self._model.has_output
        shape, args = (self._sequences, room, self._columns), ffi.new("clattn_decoder_args *")
        result = np.empty(shape, np.float32) if has_output else room_of(shape, self._model.dtype)
        lib.clattn_decoder_args_init(args)
        args.length = length
        if lengths is not None:
            if len(lengths) != self._sequences or not all(0 <= each <= length for each in lengths):
                raise ValueError(f"lengths are {list(lengths)}, expected {self._sequences} from 0 to {length}")
            held = ffi.new("int32_t[]", list(lengths))
            args.lengths = held
        with self._use() as (state, handle), Buffers(handle) as buffers:
            args.input.buffer = buffers.holding(padded if self._tokens else packed(padded, self._model.dtype))
            to = args.logits if has_output else args.output
            if logits:
                to.buffer = buffers.room(result.nbytes)
            if self._attended:
                layers, heads = self._attended
                shares = np.empty((layers, self._sequences, heads, room, self._sizes[3]), np.float32)
                args.cross_probabilities.buffer = buffers.room(shares.nbytes)
            check(lib.clattn_decoder_enqueue(state, ffi.NULL, args, 0, ffi.NULL, buffers.event), handle)
            if self._attended:
                buffers.read(args.cross_probabilities.buffer, shares)
                self.cross_probabilities = shares[..., :length, : self._positions]
            if not logits:
                return None
            buffers.read(to.buffer, result)
        return unpacked(result)[:, :length]

    def reorder(self, parents: Sequence[int], beams: int | None = None) -> None:
        """Replaces the sequences: new sequence s of `items * beams` becomes a copy of sequence parents[s] of the same item."""
        beams = self._sizes[1] if beams is None else beams
        if len(parents) != self._items * beams:
            raise ValueError(f"{len(parents)} parents, expected {self._items * beams}: {beams} for each of {self._items} items")
        with self._use() as (state, handle):
            held = ffi.new("size_t[]", list(parents))
            check(lib.clattn_decoder_reorder(state, ffi.NULL, beams, held, 0, ffi.NULL, ffi.NULL), handle)
            self._sequences = len(parents)

    def truncate(self, length: int) -> None:
        """Forgets what sequences have beyond so many tokens."""
        with self._use() as (state, handle):
            check(lib.clattn_decoder_truncate(state, length), handle)

    @property
    def lengths(self) -> list[int]:
        """How many tokens each sequence has seen: after `generate` not the last one that was chosen."""
        with self._use() as (state, _):
            return [lib.clattn_decoder_length(state, n) for n in range(self._sequences)]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        *,
        method: str = "greedy",
        stop_tokens: Sequence[int] = (),
        results: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        length_rule: str = "gnmt",
        length_penalty: float = 0.0,
        patience: float = 1.0,
        hook: Callable[[npt.NDArray[np.int32], int, npt.NDArray[np.float32]], None] | None = None,
    ) -> list[list[Generated]]:
        """Continues prompts of tokens, one for each item: the `results` best sequences of each. After an exception it needs a
        `begin`, with the memory if there is one.

        `method` is "greedy", "sample" (by `temperature`, `top_k`, `top_p` and `seed`, which alone decide what is drawn) or "beam", with
        the decoder's beams. `hook(tokens, prompt_length, logits)` sees each sequence before its next token is chosen, and may
        change the logits in place: -inf forbids a token. A sequence whose logits are not numbers ends. clattn/generate.h says exactly
        what is computed."""
        prompts = [_array(prompt, "a prompt", True).tolist() if len(prompt) else [] for prompt in prompts]
        flat = [token for prompt in prompts for token in prompt]
        if not prompts or not all(prompts):
            raise ValueError("each item needs a prompt of one token or more")
        if temperature <= 0 or top_p <= 0 or patience <= 0:
            raise ValueError(f"temperature is {temperature}, top_p {top_p} and patience {patience}, expected more than 0")
        if results < 1 or not 1 <= max_tokens < 2**31:
            raise ValueError(f"results is {results} and max_tokens {max_tokens}, expected 1 or more")
        desc, out = ffi.new("clattn_generate_desc *"), ffi.new("clattn_generated *")
        lib.clattn_generate_desc_init(desc)
        lib.clattn_generated_init(out)
        desc.method, desc.length_rule = (
            enumerator("clattn_generate_method", method),
            enumerator("clattn_length_rule", length_rule),
        )
        desc.max_tokens, desc.results = max_tokens, results
        stops = ffi.new("int32_t[]", list(stop_tokens) or [0])
        desc.stop_tokens, desc.stop_count = stops, len(stop_tokens)
        if method == "beam":
            desc.beams, desc.length_penalty, desc.patience = self._sizes[1], length_penalty, patience
        if method == "sample":
            desc.temperature, desc.top_k, desc.top_p, desc.seed = temperature, top_k, top_p, seed

        def see(_user: Any, view: Any) -> int:
            memory = ffi.buffer(view.logits, 4 * view.count)
            logits = np.frombuffer(memory, np.float32).copy()  # which the hook may keep
            assert hook is not None
            hook(np.frombuffer(ffi.buffer(view.tokens, 4 * view.length), np.int32).copy(), view.prompt_length, logits)
            memory[:] = logits.tobytes()
            return 0

        failures: list[BaseException] = []
        callback = ffi.callback(
            "clattn_logits_hook",
            see,
            error=lib.CLATTN_ERROR_CANCELLED,
            onerror=lambda _kind, failure, _trace: failures.append(failure),
        )
        desc.hook = callback if hook is not None else ffi.NULL
        tokens = np.zeros((len(prompts), results, max_tokens), np.int32)
        logs, scores = np.zeros(tokens.shape, np.float32), np.zeros(tokens.shape[:2], np.float32)
        counts, lengths = np.zeros(tokens.shape[:2], np.uintp), ffi.new("size_t[]", [len(prompt) for prompt in prompts])
        out.tokens, out.scores = ffi.from_buffer("int32_t[]", tokens), ffi.from_buffer("float[]", scores)
        out.log_probabilities, out.lengths = ffi.from_buffer("float[]", logs), ffi.from_buffer("size_t[]", counts)
        with self._lock:
            if len(prompts) != self._items:
                if self._items and self._sizes[3]:
                    raise ValueError(f"{len(prompts)} prompts, and there are {self._items} items")
                self.begin(items=len(prompts))
            with self._use() as (state, handle):
                self._generates = True
                try:
                    status = lib.clattn_generate(state, ffi.NULL, desc, ffi.new("int32_t[]", flat), lengths, out)
                finally:
                    self._generates = False
                self._sequences = len(prompts) * (self._sizes[1] if method == "beam" else 1)
                if status:
                    self._items = 0
                if failures:
                    raise failures[0]
                check(status, handle)
        return [
            [
                Generated(tokens[i, r, :n].tolist(), float(scores[i, r]), logs[i, r, :n].copy())
                for r, n in enumerate(counts[i].tolist())
                if scores[i, r] != -np.inf
            ]
            for i in range(len(prompts))
        ]

    def close(self) -> None:
        """Releases the decoder, after the call of another thread that is at work."""
        self._state.close()
