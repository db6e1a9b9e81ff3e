"""Stores faster-whisper's results, greedy and for some recordings by beams, with which clattn transcribe is compared.

    peer.py MODEL_DIR OUT.json      writes expected.json of this folder; what the file has of a recording stays there

Needs PyPI's faster-whisper; expected.json was made by version 1.2.1 with ctranslate2 4.8.5, in float32."""
import hashlib
import json
import sys
import tempfile

import numpy as np

BEAMS, BEAMED = 5, ("cards-005", "long", "sense-0890", "train")  # the recordings that are searched by beams as well


def load(model):
    from faster_whisper import WhisperModel
    return WhisperModel(model, device="cpu", compute_type="float32", cpu_threads=2)


def hear(model, path, words=True, **more):
    """Returns the segments as clattn transcribe --json prints them."""
    more = {"beam_size": 1, "temperature": 0, **more}
    segments, _ = model.transcribe(path, word_timestamps=words, **more)
    return [{"start": s.start, "end": s.end, "text": s.text, "tokens": s.tokens, "avg_logprob": s.avg_logprob,
             "no_speech_prob": s.no_speech_prob, "compression_ratio": s.compression_ratio,
             "words": [{"start": w.start, "end": w.end, "word": w.word, "probability": w.probability}
                       for w in s.words] if words else None} for s in segments]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def rounded(value):
    if isinstance(value, (float, np.floating)):
        return round(float(value), 6)
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    from clips import clips
    peer, result = load(sys.argv[1]), {}
    try:
        with open(sys.argv[2]) as file:
            before = json.load(file)
    except FileNotFoundError:
        before = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in sorted(clips(folder).items()):
            kept = before.get(name, {})
            made = result[name] = kept if kept.get("sha256") == digest(path) else {"sha256": digest(path)}
            if "plain" not in made:
                made["plain"] = rounded(hear(peer, path, False))
            if "segments" not in made:
                made["segments"] = rounded(hear(peer, path))
            if name in BEAMED and "beams" not in made:
                made["beams"] = rounded(hear(peer, path, False, beam_size=BEAMS))
            print(name, [round(s["avg_logprob"], 3) for s in made["plain"]], "".join(s["text"] for s in made["plain"]))
    with open(sys.argv[2], "w") as file:
        file.write("{\n" + ",\n".join("%s: %s" % (json.dumps(name), json.dumps(value, separators=(",", ":")))
                                      for name, value in result.items()) + "\n}\n")
