"""The times of words: cross-attention of chosen heads aligns a text's tokens with a window's positions (Whisper's method)."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

POSITION = 0.02  # seconds
WIDTH = 7  # positions of the median that smooths attention
LONGEST = 0.7  # seconds of the median of words
BEFORE, BEHIND = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # punctuation that joins the word behind it, or before it
ENDS = ".。!！?？"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
BROKEN = "�"


@dataclasses.dataclass
class Word:
    """A word of a segment, with the space before it and the punctuation around it."""

    start: float  #: seconds
    end: float  #: seconds
    word: str
    probability: float  #: the mean of its tokens'


@dataclasses.dataclass
class Piece:
    """A word whose tokens are counted."""

    word: Word
    tokens: int


def split(text_of: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> list[Piece]:
    """Cuts a text into words, none of which ends within a character."""
    whole, pieces, first, place = text_of(tokens), list[Piece](), 0, 0
    for end in range(1, len(tokens) + 1):
        text = text_of(tokens[first:end])
        broken = text.find(BROKEN)
        # A U+FFFD that is there in the whole text as well is none that more tokens would mend.
        if broken >= 0 and whole[place + broken : place + broken + 1] != BROKEN:
            continue
        if pieces and not text.startswith(" ") and text.strip() not in PUNCTUATION:
            pieces[-1].word.word += text
            pieces[-1].tokens += end - first
        else:
            pieces.append(Piece(Word(0.0, 0.0, text, 0.0), end - first))
        first, place = end, place + len(text)
    return pieces


def align(attention: Floats, skip: int) -> list[int]:
    """The first position of each token: `attention` is (heads, tokens, positions), whose first `skip` and last tokens have none."""
    heads, tokens, positions = attention.shape
    mean = np.zeros((tokens, positions), np.float32)
    for plane in attention.astype(np.float64):
        sums = plane.sum(1, keepdims=True)
        shares = np.where(sums > 0, plane / np.where(sums > 0, sums, 1), 1 / positions).astype(np.float32).astype(np.float64)
        off = shares - shares.mean(0)
        deviation = np.sqrt((off * off).mean(0))
        values = np.where(deviation > 0, off / np.where(deviation > 0, deviation, 1), 0).astype(np.float32)
        if positions > WIDTH // 2:
            padded = np.pad(values, ((0, 0), (WIDTH // 2, WIDTH // 2)), mode="reflect")
            values = np.median(np.lib.stride_tricks.sliding_window_view(padded, WIDTH, 1), 2)
        mean += values / np.float32(heads)
    return _warp(mean[skip:-1])


def _warp(matrix: Floats) -> list[int]:
    """Dynamic time warping: where the path of the largest sum through a matrix, which never goes back, enters each row."""
    rows, columns = matrix.shape
    came = np.zeros((rows, columns), np.int8)  # from 1: the row above; 2: the column before; 3: both
    before, last = np.full((2, rows + 1), -np.inf, np.float32)
    for k in range(rows + columns - 1):  # places whose row and column add up to k do not depend on each other
        now = np.full(rows + 1, -np.inf, np.float32)
        row = np.arange(max(0, k - columns + 1), min(rows, k + 1))
        both, above, left = before[row], last[row], last[row + 1]
        way = np.where((both > above) & (both > left), 3, np.where((above > both) & (above > left), 1, 2))
        best = np.choose(way - 1, (above, left, both)) if k else np.zeros(1, np.float32)
        now[row + 1] = best + matrix[row, k - row]
        came[row, k - row] = way
        before, last = last, now
    first, r, c = [0] * rows, rows - 1, columns - 1
    first[r] = c
    while r or c:
        step = 2 if r == 0 else 1 if c == 0 else int(came[r, c])
        r, c = r - (step & 1), c - (step >> 1)
        first[r] = c
    return first


def time(pieces: Sequence[Piece], first: Sequence[int], probabilities: Sequence[float]) -> None:
    """Sets the words' times within the window, and their probabilities, from those of their tokens."""
    at = 0
    for piece in pieces:
        piece.word.start, end = first[at] * POSITION, at + piece.tokens
        piece.word.probability = float(np.mean(probabilities[at:end]))
        piece.word.end, at = first[end] * POSITION, end


def polish(pieces: Sequence[Piece]) -> float:
    """Shortens the ends of sentences and what follows them, and joins punctuation to words; returns the median of durations."""
    durations = [piece.word.end - piece.word.start for piece in pieces if piece.word.end != piece.word.start]
    median = min(statistics.median(durations), LONGEST) if durations else 0.0
    for earlier, piece in itertools.pairwise(pieces):
        word = piece.word
        if median > 0 and word.end - word.start > 2 * median:
            if word.word in ENDS:
                word.end = word.start + 2 * median
            elif earlier.word.word in ENDS:
                word.start = word.end - 2 * median
    to: Piece | None = None
    for piece in reversed(pieces):
        text = piece.word.word
        if to and text.startswith(" ") and text.strip() in BEFORE:
            to.word.word, to.tokens, piece.word.word, piece.tokens = text + to.word.word, to.tokens + piece.tokens, "", 0
        else:
            to = piece
    to = None
    for piece in pieces:
        text = piece.word.word
        if to and not to.word.word.endswith(" ") and text in BEHIND:
            to.word.word, to.tokens, piece.word.word, piece.tokens = to.word.word + text, to.tokens + piece.tokens, "", 0
        else:
            to = piece
    return median


def place(words: Sequence[Word], offset: float, median: float, bounds: tuple[float, float], last: float) -> tuple[float, float]:
    """Moves a segment's words to where its window begins, keeps a pause before or behind them out, and returns the segment's start and
    end, which were `bounds`; `last`: the end of the segment before."""
    start, end = bounds
    for word in words:
        word.start, word.end = round((offset + word.start) * 100) / 100, round((offset + word.end) * 100) / 100
    first, final, most = words[0], words[-1], 2 * median
    if first.end - last > 4 * median and (
        first.end - first.start > most or (len(words) > 1 and words[1].end - first.start > 2 * most)
    ):
        if len(words) > 1 and words[1].end - words[1].start > most:
            first.end = words[1].start = max(words[1].end / 2, words[1].end - most)
        first.start = max(0.0, first.end - most)
    if start < first.end and start - 0.5 > first.start:
        first.start = max(0.0, min(first.end - median, start))
    else:
        start = first.start
    if end > final.start and end + 0.5 < final.end:
        final.end = max(final.start + median, end)
    else:
        end = final.end
    return start, end
