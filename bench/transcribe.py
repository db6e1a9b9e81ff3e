#!/usr/bin/env python3
"""Speech recognition beside faster-whisper: seconds for a second of sound, loading left out, and the most memory that either
process had, in turn in one run.

    transcribe.py BUILD_DIR MODEL_DIR AUDIO.wav... [--dtype TYPE] [--compute TYPE] [--rounds N] [--threads N]
                  [--json FILE] [--machine TEXT]

MODEL_DIR is Whisper tiny.en: `sh examples/models.sh whisper FOLDER` prints it.  --dtype is what clattn stores: f32
(default), f16 or bf16.  faster-whisper (PyPI, faster-whisper==1.2.1) runs in a process of its own, with the same greedy
search, or beams, and without its filter of silence; --compute is its compute_type, float32 (default), int8 or what else
this processor has.  If the Python that runs this does not have it, clattn runs alone.  Ratios are taken within a round; the
median of the rounds counts.  Both must say the same, unless the peer is not in float32: what differs is then printed, and no
failure."""
import json
import os
import statistics
import subprocess
import sys
import time
import wave

import record

KINDS = {"greedy": (1, False), "greedy, with words": (1, True), "5 beams": (5, False)}


def seconds_of(path):
    with wave.open(path, "rb") as file:
        return file.getnframes() / file.getframerate()


def peer(options):
    """Is told a kind and a file by lines on standard input, and answers each with seconds and text; nothing: memory."""
    from faster_whisper import WhisperModel
    model = WhisperModel(options.model, device="cpu", compute_type=options.compute, cpu_threads=options.threads)

    def hear(kind, path):
        beams, words = KINDS[kind]
        segments, _ = model.transcribe(path, beam_size=beams, temperature=0, word_timestamps=words)
        return "".join(segment.text for segment in segments).strip()

    print("ready", flush=True)
    for line in sys.stdin:
        kind, path = json.loads(line)
        began = time.perf_counter()
        text = hear(kind, path)
        print(json.dumps([time.perf_counter() - began, text, most_memory()]), flush=True)
    return 0


def most_memory(process="self"):
    """Bytes."""
    with open("/proc/%s/status" % process) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def start(options):
    return record.start_peer("faster-whisper", [sys.executable, __file__, options.build, options.model, *options.audio,
                                                "--peer", "faster-whisper", "--compute", options.compute, "--threads",
                                                str(options.threads)])


def ours(options, kind, path):
    """Seconds, text and bytes, as the peer has them."""
    beams, words = KINDS[kind]
    command = [os.path.join(options.build, "src", "clattn"), "transcribe", options.model, path, "--json", "--beams",
               str(beams), "--dtype", options.dtype, "--no-fallback"] + (["--words"] if words else [])
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    report = json.loads(output.splitlines()[-1])
    return report["seconds"], report["text"].strip(), usage.ru_maxrss * 1024


def main():
    parser = record.model_parser(__doc__.splitlines()[0], 5)
    parser.add_argument("audio", nargs="+", metavar="AUDIO.wav")
    parser.add_argument("--dtype", choices=["f32", "f16", "bf16"], default="f32")
    parser.add_argument("--compute", default="float32", metavar="TYPE")
    options = parser.parse_args()
    if options.peer:
        return peer(options)

    sound = sum(map(seconds_of, options.audio))
    other = start(options)
    rows, different = [], []
    for kind in KINDS:
        times = {"clattn": [], "faster-whisper": []}
        memory = {"clattn": 0, "faster-whisper": 0}
        for turn in range(options.rounds + 1):  # the first one compiles
            total = dict.fromkeys(times, 0.0)
            for path in options.audio:
                heard = {"clattn": ours(options, kind, path)}
                if other:
                    heard["faster-whisper"] = record.ask(other, [kind, path])
                for who, (seconds, _, most) in heard.items():
                    total[who] += seconds
                    memory[who] = max(memory[who], most)
                if turn == 0 and len({text for _, text, _ in heard.values()}) > 1:
                    different.append((kind, path, heard))
            if turn:
                for who in heard:
                    times[who].append(total[who])
        rows.append((kind, times, memory))
    if other:
        other.communicate()

    print("%d recordings, %.1f s of sound, %d threads for the peer\n" % (len(options.audio), sound, options.threads))
    lines = []
    for kind, times, memory in rows:
        own = statistics.median(times["clattn"]) / sound
        if not other:
            print("%-20s %.3f s a second, %.0f MB" % (kind, own, memory["clattn"] / 1e6))
            continue
        its = statistics.median(times["faster-whisper"]) / sound
        ratio = statistics.median(b / a for a, b in zip(times["clattn"], times["faster-whisper"]))
        megabytes = [memory[who] / 1e6 for who in ("clattn", "faster-whisper")]
        print("%-20s %.3f s a second, faster-whisper %.3f, its time over ours %.2f; %.0f MB, faster-whisper %.0f MB" %
              (kind, own, its, ratio, *megabytes))
        lines.append([kind, "%.3f" % own, "%.3f" % its, "%.2f" % ratio, *("%.0f MB" % each for each in megabytes)])
    record.keep(options, "bench/transcribe.py", ["search", "`clattn transcribe`", "faster-whisper", "its time / ours",
                                                 "most memory", "faster-whisper's"], lines)
    for kind, path, heard in different:
        print("different (%s, %s): %s" % (kind, path, {who: text for who, (_, text, _) in heard.items()}))
    return 1 if different and options.compute == "float32" else 0


if __name__ == "__main__":
    sys.exit(main())
