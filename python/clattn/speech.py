"""Speech recognition by Whisper: the decoding of `clattn transcribe`, with models for English as CTranslate2 converts them."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import struct
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clattn import _words
from clattn._handle import Closing
from clattn._words import Word
from clattn.context import Context
from clattn.transformer import Decoder, Source, Transformer

Floats = npt.NDArray[np.float32]

RATE = 16000  # samples a second
HOP = 160  # samples of a frame of the spectrogram
LENGTH = 400  # samples of a transform
FRAMES = 3000  # of a window of 30 s
POSITIONS = 1500  # of the encoder's output for a window
CONTEXT = 448  # tokens of the decoder
POSITION = 0.02  # seconds of a position, and of a step of timestamps
FIRST_STAMP = 50  # the last step at which a window's first text may begin
SILENT, UNLIKELY, REPETITIVE = 0.6, -1.0, 2.4  # what a window's text is judged by
HOT = 0.5  # text that was found above this temperature is not in the next window's prompt
CHUNK = 32  # tokens of a prompt that are read at once
KEPT = 4  # decoders, for numbers of sequences


@dataclasses.dataclass
class Segment:
    """A part of a recording, and what is said in it."""

    start: float  #: seconds
    end: float  #: seconds
    text: str
    tokens: list[int]  #: timestamps included
    avg_logprob: float  #: the mean of the logarithms of the probabilities of the window's tokens
    no_speech_prob: float  #: the probability that the window has no speech
    temperature: float  #: at which the window's text was found
    compression_ratio: float  #: bytes of the window's text for one byte of it compressed by zlib
    words: list[Word] | None = None  #: if their times were asked for


@dataclasses.dataclass
class Transcript:
    """What is said in a recording."""

    text: str
    segments: list[Segment]
    duration: float  #: seconds


@dataclasses.dataclass
class _Found:
    """The text of a window by one try."""

    tokens: list[int]
    average: float
    no_speech: float
    temperature: float = 0.0
    ratio: float = 0.0


def log_mel(samples: npt.NDArray[Any], bins: int) -> Floats:
    """The spectrogram that Whisper was trained on, (frames, bins), of samples at 16 kHz: Hann windows around each multiple of 160
    samples, triangles of Slaney's mel scale, log10 of at least 1e-10, raised to the largest minus 8, (x + 4) / 4.

    >>> log_mel(np.zeros(RATE), 80).shape
    (101, 80)
    """

    def hertz(mel: Any) -> Any:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (np.maximum(mel, 15) - 15)))

    top = 15 + np.log(RATE / 2 / 1000) / (np.log(6.4) / 27)
    edges, places = hertz(top * np.arange(bins + 2) / (bins + 1))[:, None], np.arange(LENGTH // 2 + 1) * RATE / LENGTH
    up, down = (places - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - places) / (edges[2:] - edges[1:-1])
    filters = np.maximum(np.minimum(up, down) * 2 / (edges[2:] - edges[:-2]), 0).astype(np.float32).astype(np.float64).T
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(LENGTH) / LENGTH)).astype(np.float32).astype(np.float64)
    extended = np.pad(np.concatenate([samples, np.zeros(HOP)]).astype(np.float64), LENGTH // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(extended, LENGTH)[::HOP][: len(samples) // HOP + 1]
    result = np.empty((len(frames), bins), np.float32)
    for first in range(0, len(frames), FRAMES):
        spectrum = np.fft.rfft(frames[first : first + FRAMES] * hann)
        energy = (spectrum.real**2 + spectrum.imag**2) @ filters
        result[first : first + FRAMES] = np.log10(np.maximum(energy, 1e-10))
    floor = max(result.max(), np.float32(-10)) - np.float32(8)
    scaled: Floats = (np.maximum(result, floor) + np.float32(4)) / np.float32(4)
    return scaled


def _read_wav(data: bytes) -> tuple[npt.NDArray[np.float64], int, bool, bool] | None:
    """The samples (frames, channels) of a WAV file from -1 to 1, its rate, and whether they are floats, or integers of more than
    16 bits; None if it is of another kind. A file that ends before its header says is read as far as it goes."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at, form = 12, None
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        body = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
        if name == b"fmt " and len(body) >= 16:
            form = struct.unpack_from("<HHIIHH", body)
            if form[0] == 0xFFFE and len(body) >= 26:  # the kind is in the extension
                form = (*struct.unpack_from("<H", body, 24), *form[1:])
        if name == b"data" and form is not None:
            kind, channels, rate, _, block, _ = form
            width = block // channels if channels else 0
            if not rate or (kind, width) not in {(1, 1), (1, 2), (1, 3), (1, 4), (3, 4), (3, 8)}:
                return None
            body = body[: len(body) // block * block]
            if kind == 3:
                values = np.frombuffer(body, f"<f{width}").astype(np.float64)
            else:
                raw, words = np.frombuffer(body, np.uint8).reshape(-1, width), np.zeros((len(body) // width, 4), np.uint8)
                words[:, 4 - width :] = raw if width > 1 else raw ^ 0x80  # bytes are unsigned
                values = words.view("<i4")[:, 0] / 2.0**31
            return values.reshape(-1, channels), rate, kind == 3, kind == 1 and width > 2
    return None


def read_audio(path: str | os.PathLike[str]) -> tuple[Floats, float]:
    """The samples of a file at 16 kHz in one channel, rounded to 16 bits, and its seconds.

    WAV files are read as they are, others by the package soundfile, other rates by soxr, if these are installed.

    >>> samples, seconds = read_audio("speech.wav")
    >>> len(samples) == round(RATE * seconds)
    True
    """
    found = _read_wav(pathlib.Path(path).read_bytes())
    if found is None:
        try:
            import soundfile
        except ImportError:
            raise ValueError(f"{path} is no WAV file that can be read: the package soundfile reads others") from None
        values, rate = soundfile.read(path, dtype="float64", always_2d=True)
        kind = soundfile.info(path).subtype
        found = values, rate, kind in ("FLOAT", "DOUBLE"), kind in ("PCM_24", "PCM_32")
    values, rate, is_float, is_wide = found
    if not np.isfinite(values).all():
        raise ValueError(f"{path} has samples that are not finite")
    steps = values.mean(1) * 32768
    if rate != RATE:
        try:
            import soxr
        except ImportError:
            raise ValueError(f"{path} has {rate} samples a second, not {RATE}: the package soxr resamples") from None
        steps = np.rint(soxr.resample(steps.astype(np.float32), rate, RATE, quality="HQ"))
    elif is_wide and values.shape[1] == 1:
        steps = np.floor(steps)  # as faster-whisper's reader does
    else:
        steps = np.rint(steps) if is_wide or is_float else np.floor(steps + 0.5)
    return (np.clip(steps, -32768, 32767) / 32768).astype(np.float32), len(values) / rate


def _bytes_of_characters() -> dict[str, int]:
    """The byte that a character stands for in byte-level pair encoding: printable ones of Latin-1 are themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + n): byte for n, byte in enumerate(others)}}


class _Tokens:
    """What a model's folder says of its tokens."""

    def __init__(self, folder: pathlib.Path) -> None:
        path = folder / "vocabulary.json"
        if path.exists():
            names = json.loads(path.read_text("utf-8"))
        else:
            path = folder / "vocabulary.txt"
            names = path.read_text("utf-8").removesuffix("\n").split("\n")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path} is no list of tokens")
        places = {name: place for place, name in enumerate(names)}

        def special(*spellings: str) -> int:
            for each in spellings:
                if each in places:
                    return places[each]
            raise ValueError(f"{path} has no token {spellings[0]}, expected a Whisper model's")

        self.count = len(names)
        self.end, self.start = special("<|endoftext|>"), special("<|startoftranscript|>")
        self.previous, self.silence = special("<|startofprev|>"), special("<|nospeech|>", "<|nocaptions|>")
        self.plain = special("<|notimestamps|>")
        self.stamps = self.plain + 1
        if not (self.end <= self.start <= self.plain and max(self.previous, self.silence) < self.plain < self.count - 1):
            raise ValueError(f"{path}: its special tokens stand in no order that is known")
        if any(not name for name in names[: self.end]):
            raise ValueError(f"{path} is the vocabulary of a model for many languages, expected one for English")
        table = _bytes_of_characters()
        try:
            self._bytes = [bytes(table[character] for character in name) for name in names[: self.end]]
        except KeyError as error:
            raise ValueError(f"{path} has a token with {error}, which stands for no byte") from None
        config = folder / "config.json"
        values = json.loads(config.read_text("utf-8"))
        self.suppressed, self.suppressed_first = (
            self._numbers(config, values, name) for name in ("suppress_ids", "suppress_ids_begin")
        )
        self.heads = self._pairs(config, values)

    def _pairs(self, path: pathlib.Path, values: Any) -> list[tuple[int, int]]:
        """The layers and heads whose cross-attention says where words are."""
        pairs = values.get("alignment_heads", []) if isinstance(values, dict) else None
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(each) is int and each >= 0 for each in pair)
            for pair in pairs
        ):
            raise ValueError(f"{path}: alignment_heads are no pairs of a layer and a head")
        return [(layer, head) for layer, head in pairs]

    def _numbers(self, path: pathlib.Path, values: Any, name: str) -> list[int]:
        numbers = values.get(name) if isinstance(values, dict) else None
        if not isinstance(numbers, list) or not all(type(each) is int and 0 <= each < self.count for each in numbers):
            raise ValueError(f"{path}: {name} is no list of tokens, which are whole numbers below {self.count}")
        return numbers

    def text(self, tokens: Sequence[int]) -> str:
        """The text of the words among tokens."""
        return b"".join(self._bytes[token] for token in tokens if token < self.end).decode("utf-8", "replace")

    def apply_rules(self, tokens: Sequence[int], logits: Floats) -> None:
        """Forbids what may not follow the tokens of a window: Whisper's rules of timestamps."""
        stamps = self.stamps
        logits[self.suppressed] = logits[self.plain] = -np.inf
        if not tokens:
            logits[self.suppressed_first] = logits[:stamps] = logits[stamps + FIRST_STAMP + 1 :] = -np.inf
            return
        last, before = tokens[-1], tokens[-2] if len(tokens) > 1 else tokens[-1]
        if last >= stamps and before >= stamps:
            logits[stamps:] = -np.inf
            return
        if last >= stamps:
            logits[: self.end] = logits[stamps:last] = -np.inf
        else:
            told = [token for token in tokens if token >= stamps]
            if told:
                logits[stamps : told[-1] + 1] = -np.inf
        if _log_sum(logits[stamps:]) > logits[:stamps].max():
            logits[:stamps] = -np.inf


def _log_sum(logits: Floats) -> float:
    """The logarithm of the sum of exponentials; -inf of nothing."""
    top = logits.max()
    if not np.isfinite(top):
        return -np.inf
    return float(top + np.log(np.exp(logits - top).sum(dtype=np.float64)))


def _log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    return logits.astype(np.float64) - _log_sum(logits)


def _finite(logits: Floats) -> Floats:
    if not np.isfinite(logits).all():
        raise ValueError("the model's logits are not all finite: its weights are broken, or too large")
    return logits


def _load(path: pathlib.Path, vocabulary: int, dtype: str, context: Context | None) -> tuple[Transformer, int, int, int]:
    """The model, whose sizes follow from the shapes of its weights, the bins of its spectrograms, and the decoder's layers and heads."""
    with Source(path) as source:

        def shape(name: str, rank: int) -> tuple[int, ...]:
            found = source.shape(name)
            if found is None or len(found) != rank:
                raise ValueError(f"{path}: {name} is of shape {found}, expected {rank} dimensions")
            return found

        embedding, convolution = shape("decoder/embeddings/weight", 2), shape("encoder/conv1/weight", 3)
        layers = {
            stack: sum(source.shape(f"{stack}/layer_{n}/ffn/linear_0/weight") is not None for n in range(64))
            for stack in ("encoder", "decoder")
        }
        sizes = {
            "d_model": embedding[1],
            "heads": source.whole_number("encoder/num_heads"),
            "d_ff": shape("encoder/layer_0/ffn/linear_0/weight", 2)[0],
        }
        for stack, length in (("encoder", POSITIONS), ("decoder", CONTEXT)):
            name = f"{stack}/position_encodings/encodings"
            if shape(name, 2)[0] != length:
                raise ValueError(f"{path}: {name} is of shape {shape(name, 2)}, expected {length} rows")
    if embedding[0] != vocabulary:
        raise ValueError(f"{path}: embeds {embedding[0]} tokens, and the vocabulary has {vocabulary}")
    model = Transformer(
        path,
        preset="whisper_tiny_en",
        encoder={**sizes, "layers": layers["encoder"], "features": convolution[1]},
        decoder={**sizes, "layers": layers["decoder"], "vocabulary": vocabulary},
        dtype=dtype,
        names="whisper_ctranslate2",
        context=context,
    )
    return model, convolution[1], layers["decoder"], sizes["heads"]


class Whisper(Closing):
    """A Whisper model for English.

    `folder` has model.bin, config.json and vocabulary.txt or vocabulary.json, as CTranslate2's converter writes them. `dtype` is the
    type that the model computes in. One call at a time uses it; others wait.

    >>> with Whisper("whisper-tiny.en") as whisper:
    ...     transcript = whisper.transcribe("speech.wav", word_timestamps=True)
    >>> transcript.text
    'He might even have been made amiable himself.'
    >>> [word.word for word in transcript.segments[0].words][:3]
    [' He', ' might', ' even']
    """

    def __init__(self, folder: str | os.PathLike[str], *, dtype: str = "float32", context: Context | None = None) -> None:
        path = pathlib.Path(folder)
        self._tokens = _Tokens(path)
        self._model, self._bins, layers, heads = _load(path / "model.bin", self._tokens.count, dtype, context)
        for layer, head in self._tokens.heads:
            if layer >= layers or head >= heads:
                raise ValueError(
                    f"{path / 'config.json'}: there is no head {head} in layer {layer}, which alignment_heads names"
                )
        self._decoders: dict[tuple[int, int, bool], Decoder] = {}
        # Packed weights are faster on CPUs, and may take four times the model's memory in each decoder.
        self._prepack = 4 * KEPT * self._model.weight_bytes <= self._model._context.device.memory
        self._lock, self._memory, self._heard = threading.RLock(), np.empty(0, np.float32), set[Decoder]()

    def transcribe(
        self,
        audio: str | os.PathLike[str] | npt.ArrayLike,
        *,
        beam_size: int = 1,
        best_of: int = 5,
        temperature: float | Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        condition_on_previous_text: bool = True,
        word_timestamps: bool = False,
        seed: int = 0,
    ) -> Transcript:
        """The text of a recording: a file, or samples at 16 kHz in one channel, floats up to 1 or int16. `word_timestamps` gives each
        word's time, too, and begins and ends segments with their words.

        At temperature 0 the text is found greedily, or by a beam search of `beam_size` beams. If it repeats itself or is unlikely, the
        further temperatures are tried, each with the likeliest of `best_of` random texts by `seed`."""
        if isinstance(audio, (str, os.PathLike)):
            samples, duration = read_audio(audio)
        else:
            array = np.asarray(audio)
            if array.ndim != 1:
                raise ValueError(f"samples are of shape {array.shape}, expected one channel")
            if array.dtype.kind not in "fi" or (array.dtype.kind == "i" and array.dtype != np.int16):
                raise TypeError(f"samples are of type {array.dtype}, expected floats or int16")
            samples = array.astype(np.float32) / np.float32(32768 if array.dtype == np.int16 else 1)
            if not np.isfinite(samples).all():
                raise ValueError("there are samples that are not finite")
            duration = len(samples) / RATE
        temperatures = [float(each) for each in np.atleast_1d(temperature)]
        if beam_size < 1 or best_of < 1:
            raise ValueError(f"beam_size is {beam_size} and best_of {best_of}, expected 1 or more")
        if not temperatures or not all(0 <= each < np.inf for each in temperatures):
            raise ValueError(f"temperature is {temperature}, expected numbers of 0 or more")
        if word_timestamps and not self._tokens.heads:
            raise ValueError("the model's config.json has no alignment_heads, so that words have no times")
        with self._lock:
            mel = log_mel(samples, self._bins)
            how = beam_size, best_of, temperatures, condition_on_previous_text, word_timestamps, seed
            return self._transcribe(mel, duration, how)

    def _transcribe(self, mel: Floats, duration: float, how: tuple[int, int, Sequence[float], bool, bool, int]) -> Transcript:
        beams, samples, temperatures, conditioned, timed, seed = how
        segments: list[Segment] = []
        spoken = 0.0  # when the last word ends
        said: list[int] = []  # what the next window's prompt may have
        seek, end = 0, len(mel) - 1  # the last frame has no whole hop of samples
        while seek < end:
            frames = min(end - seek, FRAMES)
            window = np.zeros((1, FRAMES, mel.shape[1]), np.float32)
            window[0, :frames] = mel[seek : seek + frames]
            self._memory = self._model.encode(window)
            self._heard.clear()
            kept = said[-(CONTEXT // 2 - 1) :]
            prompt = [*([self._tokens.previous, *kept] if kept else []), self._tokens.start]
            found = self._decode_window(prompt, beams, samples, temperatures, (seed, seek))
            following = seek + frames
            if not (found.no_speech > SILENT and found.average <= UNLIKELY):
                new, following, closed = self._cut(found, seek, frames)
                if timed:
                    spoken = self._add_words(new, seek, frames, spoken)
                    if not closed and spoken > seek * HOP / RATE:
                        following = round(spoken * RATE / HOP)
                new = [each for each in new if each.start != each.end and each.text.strip()]
                segments += new
                said += [token for segment in new for token in segment.tokens]
                if not conditioned or found.temperature > HOT:
                    said.clear()
            seek = following if following > seek else seek + frames
        return Transcript("".join(segment.text for segment in segments).strip(), segments, duration)

    def _decode_window(
        self, prompt: list[int], beams: int, samples: int, temperatures: Sequence[float], seed: tuple[int, int]
    ) -> _Found:
        """Decodes until a text is good. Of texts that were all bad, the likeliest that does not repeat itself, or the likeliest."""
        kept: _Found | None = None
        temperature = 0.0
        for temperature in temperatures:
            random = np.random.default_rng([*seed, round(1000 * temperature)])
            found = self._decode(prompt, beams, temperature, samples, random)
            text = self._tokens.text(found.tokens).strip().encode()
            found.ratio = len(text) / len(zlib.compress(text))
            good = (found.ratio <= REPETITIVE and found.average >= UNLIKELY) or (
                found.average < UNLIKELY and found.no_speech > SILENT
            )
            if kept is None or good or (found.ratio <= REPETITIVE, found.average) > (kept.ratio <= REPETITIVE, kept.average):
                kept = found
            if good:
                break
        assert kept is not None
        kept.temperature = temperature
        return kept

    def _decoder(self, beams: int, length: int, attends: bool = False) -> Decoder:
        """The decoder for so many sequences and prompts of so many tokens at once, which may tell where it attends."""
        key = beams, CHUNK if length > 1 else 1, attends
        if key not in self._decoders:
            if len(self._decoders) == KEPT:
                oldest = self._decoders.pop(next(iter(self._decoders)))
                self._heard.discard(oldest)
                oldest.close()
            layers = [layer for layer, _ in self._tokens.heads] if attends else []
            self._decoders[key] = self._model.decoder(
                cache_length=CONTEXT,
                beams=beams,
                length=key[1],
                memory_length=POSITIONS,
                cross_probabilities=layers,
                prepack=self._prepack,
            )
        return self._decoders[key]

    def _begin(self, decoder: Decoder) -> None:
        """Begins a sequence about the window."""
        decoder.begin(None if decoder in self._heard else self._memory, items=1)
        self._heard.add(decoder)

    def _decode(self, prompt: list[int], beams: int, temperature: float, samples: int, random: Any) -> _Found:
        count = samples if temperature > 0 else beams
        decoder = self._decoder(count, len(prompt))
        self._begin(decoder)
        for first in range(0, len(prompt) - 1, CHUNK):
            decoder.append([prompt[first : min(first + CHUNK, len(prompt) - 1)]], logits=False)
        first_logits = decoder.append([prompt[-1:]])
        assert first_logits is not None
        logits = _finite(first_logits[:, 0])
        no_speech = float(np.exp(logits[0, self._tokens.silence].astype(np.float64) - _log_sum(logits[0])))
        if count > 1:
            decoder.reorder([0] * count, count)
            logits = np.repeat(logits, count, axis=0)
        most = min(CONTEXT - (len(prompt) - 1), CONTEXT // 2)
        search = self._beams if temperature <= 0 and beams > 1 else self._apart
        ended = search(decoder, logits, most, temperature, random)
        tokens, total = max(ended, key=lambda each: each[1] / max(len(each[0]), 1))
        average = total / (len(tokens) + 1)
        if not np.isfinite(average):
            raise ValueError("the model's config.json leaves no token that may follow")
        return _Found(tokens, average, no_speech)

    def _apart(
        self, decoder: Decoder, logits: Floats, most: int, temperature: float, random: Any
    ) -> list[tuple[list[int], float]]:
        """Each sequence for itself, greedily or at random: its tokens, and the sum of the logarithms of their probabilities."""
        count = len(logits)
        texts: list[list[int]] = [[] for _ in range(count)]
        sums, going = [0.0] * count, [True] * count
        while True:
            chosen = [self._tokens.end] * count
            for n in range(count):
                if not going[n]:
                    continue
                self._tokens.apply_rules(texts[n], logits[n])
                logs = _log_softmax(logits[n])
                token = int(logs.argmax())
                if temperature > 0:
                    shares = np.cumsum(np.exp((logs - logs.max()) / temperature))
                    token = int(np.searchsorted(shares, random.random() * shares[-1], side="right"))
                sums[n] += float(logs[token])
                chosen[n] = token
                if token == self._tokens.end:
                    going[n] = False
                else:
                    texts[n].append(token)
                    going[n] = len(texts[n]) < most
            if not any(going):
                return list(zip(texts, sums, strict=True))
            logits = self._step(decoder, chosen)

    def _beams(self, decoder: Decoder, logits: Floats, most: int, _: float, __: Any) -> list[tuple[list[int], float]]:
        """A beam search. A beginning that has finished leaves its place to the next candidate that goes on."""
        beams = len(logits)
        texts: list[list[int]] = [[]]
        sums = np.zeros(1)
        finished: list[tuple[list[int], float]] = []
        for _place in range(most):
            logs = np.empty((len(texts), logits.shape[1]))
            for n, text in enumerate(texts):
                self._tokens.apply_rules(text, logits[n])
                logs[n] = sums[n] + _log_softmax(logits[n])
            best = np.argpartition(-logs, 2 * beams, axis=None)[: 2 * beams].tolist()
            candidates = [(divmod(place, logs.shape[1]), float(logs.flat[place])) for place in best]
            candidates.sort(key=lambda each: -each[1])
            candidates = [each for each in candidates if each[1] > -np.inf]
            spare = [each for each in candidates[beams:] if each[0][1] != self._tokens.end]
            going: list[tuple[int, int, list[int], float]] = []
            for (parent, token), total in candidates[:beams]:
                text = texts[parent] if token == self._tokens.end else [*texts[parent], token]
                if token != self._tokens.end and len(text) < most:
                    going.append((parent, token, text, total))
                    continue
                finished.append((text, total))
                if spare:
                    (parent, token), total = spare.pop(0)
                    going.append((parent, token, [*texts[parent], token], total))
            if len(finished) >= beams or not going:
                break
            filled = going + [(0, self._tokens.end, texts[0], -np.inf)] * (beams - len(going))
            decoder.reorder([each[0] for each in filled], beams)
            texts, sums = [each[2] for each in filled], np.array([each[3] for each in filled])
            logits = self._step(decoder, [each[1] for each in filled])
        return finished or [(each[2], each[3]) for each in going]

    @staticmethod
    def _step(decoder: Decoder, tokens: list[int]) -> Floats:
        logits = decoder.append([[token] for token in tokens])
        assert logits is not None
        return _finite(logits[:, 0])

    def _attention(self, tokens: list[int], positions: int) -> tuple[Floats, list[float]]:
        """What the alignment heads attend to while the window's text is read once more, (heads, tokens, positions), and the
        probability of each token but the first among all of words."""
        end, decoder = self._tokens.end, self._decoder(1, len(tokens), True)
        layers = sorted({layer for layer, _ in self._tokens.heads})
        attention = np.empty((len(self._tokens.heads), len(tokens), positions), np.float32)
        probabilities: list[float] = []
        self._begin(decoder)
        for first in range(0, len(tokens), CHUNK):
            chunk = tokens[first : first + CHUNK]
            logits, shares = decoder.append([chunk]), decoder.cross_probabilities
            assert logits is not None and shares is not None
            for n, (layer, head) in enumerate(self._tokens.heads):
                attention[n, first : first + len(chunk)] = shares[layers.index(layer), 0, head, :, :positions]
            for row, token in zip(_finite(logits[0]), tokens[first + 1 : first + len(chunk) + 1], strict=False):
                probabilities.append(float(1 / np.exp(row[:end].astype(np.float64) - row[token]).sum()))
        return attention, probabilities

    def _add_words(self, segments: list[Segment], seek: int, frames: int, spoken: float) -> float:
        """Gives a window's segments their words; returns when the last one ends, and `spoken` is that of the window before."""
        texts = [[token for token in segment.tokens if token < self._tokens.end] for segment in segments]
        text, positions = [token for each in texts for token in each], frames // 2
        pieces: list[_words.Piece] = []
        if text and positions:
            tokens = [self._tokens.start, self._tokens.plain, *text, self._tokens.end]
            attention, probabilities = self._attention(tokens, positions)
            pieces = _words.split(self._tokens.text, text)
            # The first word is chosen at row 1, that of <|notimestamps|>; the end is chosen at the last word's row.
            _words.time(pieces, _words.align(attention, 1), probabilities[1:])
        median, at = _words.polish(pieces), 0
        for segment, wanted in zip(segments, map(len, texts), strict=True):
            segment.words, got = [], 0
            while at < len(pieces) and got < wanted:
                got += pieces[at].tokens
                segment.words += [pieces[at].word] if pieces[at].word.word else []
                at += 1
            if segment.words:
                bounds = segment.start, segment.end
                segment.start, segment.end = _words.place(segment.words, seek * HOP / RATE, median, bounds, spoken)
                spoken = segment.end
        ends = [segment.words[-1].end for segment in segments if segment.words]
        return ends[-1] if ends else segments[-1].end

    def _cut(self, found: _Found, seek: int, frames: int) -> tuple[list[Segment], int, bool]:
        """The segments of a window, which lie between pairs of timestamps, where the next window begins, and whether the last
        segment is closed by its timestamp."""
        tokens, stamps = found.tokens, self._tokens.stamps
        offset, told, following, first = seek * HOP / RATE, [token >= stamps for token in tokens], seek + frames, 0
        closed = len(tokens) >= 2 and told[-1] and not told[-2]  # there is no speech after it
        pairs = [place for place in range(1, len(tokens)) if told[place] and told[place - 1]]
        pieces: list[tuple[float, float, list[int]]] = []
        for place in pairs + ([len(tokens)] if closed and pairs else []):
            start, end = ((token - stamps) * POSITION for token in (tokens[first], tokens[place - 1]))
            pieces.append((start, end, tokens[first:place]))
            first = place
        if pairs and not closed:  # what begins after the last pair is left to the next window
            following = seek + (tokens[first - 1] - stamps) * 2
        if not pairs:
            last = [token for token in tokens if token >= stamps]
            seconds = (last[-1] - stamps) * POSITION if last and last[-1] != stamps else frames * HOP / RATE
            pieces.append((0.0, seconds, tokens))
        segments = [
            Segment(
                offset + start,
                offset + end,
                self._tokens.text(piece),
                piece,
                found.average,
                found.no_speech,
                found.temperature,
                found.ratio,
            )
            for start, end, piece in pieces
        ]
        return segments, following, closed

    def close(self) -> None:
        """Releases the model, after the call of another thread that is at work."""
        with self._lock:
            for decoder in self._decoders.values():
                decoder.close()
            self._model.close()
