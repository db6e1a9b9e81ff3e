"""Recordings at 16 kHz for the tests of speech recognition: Debian's pocketsphinx-testdata (people who read), and
sentences spoken by espeak-ng, and five seconds of silence.

clips(FOLDER) makes the files and returns {name: path}; what is not installed is left out."""
import os
import pathlib
import shutil
import subprocess
import wave

import numpy as np

RATE, SILENCE = 16000, 5
TESTDATA = pathlib.Path("/usr/share/pocketsphinx/test/data")
READ = {"sense-0870": "librivox/sense_and_sensibility_01_austen_64kb-0870.wav",
        "sense-0880": "librivox/sense_and_sensibility_01_austen_64kb-0880.wav",
        "sense-0890": "librivox/sense_and_sensibility_01_austen_64kb-0890.wav",
        "sense-0920": "librivox/sense_and_sensibility_01_austen_64kb-0920.wav",
        "sense-0930": "librivox/sense_and_sensibility_01_austen_64kb-0930.wav",
        "cards-005": "cards/005.wav"}
SPOKEN = {
    "passport": ("en-us+f3", 150, "Please remember to bring your passport and your ticket to the airport tomorrow."),
    "meeting": ("en-us+m7", 150, "The meeting has been moved to Thursday at three o'clock in the afternoon."),
    "door": ("en-us+m1", 140, "Open the door, turn on the lights, and play some music in the kitchen."),
    "lake": ("en-gb", 150, "The water in the lake was cold and clear, and the mountains stood behind it."),
    "parcel": ("en-us", 150, "How much does it cost to send a small parcel from New York to San Francisco?"),
    "garden": ("en-us", 145, "My grandmother planted three apple trees in the garden behind her house."),
    "library": ("en-gb+m3", 145, "The library is closed on Sunday, but you can return your books at any time."),
    "train": ("en-us+f2", 150, "The train to Boston leaves from platform nine at half past seven."),
}


def to_rate(samples, rate):
    """Returns a band-limited copy at 16 kHz, by a sum of windowed sincs in float64."""
    count, cut, half = len(samples) * RATE // rate, min(1.0, RATE / rate) * 0.95, 64
    padded = np.concatenate([np.zeros(half), samples.astype(np.float64), np.zeros(half + 1)])
    at = np.arange(count) * (rate / RATE)
    first = np.floor(at).astype(np.int64)
    result = np.zeros(count)
    for k in range(-half + 1, half + 1):
        away = at - (first + k)
        window = 0.5 + 0.5 * np.cos(np.pi * np.clip(away / half, -1, 1))
        result += padded[first + k + half] * cut * np.sinc(cut * away) * window
    return result


def read(path):
    """Returns (samples as int16, rate) of a 16-bit file with one channel."""
    with wave.open(str(path), "rb") as file:
        assert file.getsampwidth() == 2 and file.getnchannels() == 1
        return np.frombuffer(file.readframes(file.getnframes()), np.int16), file.getframerate()


def write(path, samples, rate=RATE, width=2, channels=1):
    """Writes integers of `width` bytes, interleaved."""
    data = np.ascontiguousarray(samples)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        if width == 3:
            file.writeframes(data.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
        else:
            file.writeframes(data.astype({1: "u1", 2: "<i2", 4: "<i4"}[width]).tobytes())
    return str(path)


def clips(folder):
    made = {"silent": write(os.path.join(folder, "silent.wav"), np.zeros(SILENCE * RATE, np.int16))}
    for name, path in READ.items():
        if (TESTDATA / path).exists():
            made[name] = shutil.copy(TESTDATA / path, os.path.join(folder, name + ".wav"))
    if shutil.which("espeak-ng"):
        for name, (voice, speed, text) in SPOKEN.items():
            raw = os.path.join(folder, name + "-raw.wav")
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", raw, text], check=True)
            samples, rate = read(raw)
            os.remove(raw)
            made[name] = write(os.path.join(folder, name + ".wav"), np.clip(np.rint(to_rate(samples, rate)), -32768, 32767))
    if "sense-0870" in made and "sense-0930" in made:
        # This clip is longer than a window: all clips that are read, twice, with pauses.
        pause = np.zeros(RATE // 2, np.int16)
        parts = [part for name in sorted(READ)[1:] * 2 for part in (read(made[name])[0], pause)]
        made["long"] = write(os.path.join(folder, "long.wav"), np.concatenate(parts))
    return made
