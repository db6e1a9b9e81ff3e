"""What the fuzzers begin with.

    seeds.py FOLDER                   writes small whole files of each kind, and what corpus/READER.txt has in base64,
                                      an input a line, to FOLDER/READER/corpus
    seeds.py --keep FOLDER READER...  writes corpus/READER.txt anew: of what run.sh has found in FOLDER, as little as
                                      covers the same code, and no input of more than 300 bytes"""
import base64
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib


KEPT = pathlib.Path(__file__).parent / "corpus"


def npy(version, descr, shape, data, order=False):
    header = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode()
    width = "<H" if version == 1 else "<I"
    header += b" " * (-(8 + struct.calcsize(width) + len(header) + 1) % 16) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack(width, len(header)) + header + data


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def ctranslate2(version, variables, aliases):
    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"
    made = struct.pack("<I", version) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, extent, kind, data in variables:
        made += text(name) + struct.pack(f"<B{len(extent)}IBI", len(extent), *extent, kind, len(data)) + data
    return made + struct.pack("<I", len(aliases)) + b"".join(text(alias) + text(name) for alias, name in aliases)


def wave(tag, channels, rate, bits, data, more=b""):
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    if tag == 0xfffe:  # extensible, of integers
        fmt += struct.pack("<HHI", 22, bits, 0) + bytes.fromhex("0100000000001000800000aa00389b71")
    body = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + more + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(colour, bits, channels, interlaced, more):
    """A picture of 5 by 3; interlaced, it has six of Adam7's seven passes."""
    sizes = [(5, 3)] if not interlaced else [(1, 1), (1, 1), (1, 1), (3, 1), (2, 2), (5, 1)]
    rows = b"".join((b"\0" + bytes(range(-(-width * channels * bits // 8)))) * height for width, height in sizes)
    palette = chunk(b"PLTE", bytes(range(48))) if colour == 3 else b""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 3, bits, colour, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + head + palette + more + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def seeds():
    eight = bytes(range(8))
    yield "npy", "one", npy(1, "<f4", (2, 1), eight)
    yield "npy", "two", npy(2, "<f2", (2, 2), eight)
    yield "npy", "fortran", npy(1, "<f2", (2, 2), eight, True)
    yield "npy", "three", npy(3, "|i1", (8,), eight)
    yield "npy", "scalar", npy(1, "<i8", (), eight)
    yield "npy", "bool", npy(1, "|b1", (0, 3), b"")
    yield "safetensors", "two", safetensors({"__metadata__": {"format": "pt"},
                                             "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                                             "b.weight": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [4, 8]}}, eight)
    yield "safetensors", "empty", safetensors({"a": {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}}, b"")
    yield "safetensors", "none", safetensors({}, b"")
    variables = [("encoder/a", (2, 1), 0, eight), ("b", (2, 2), 4, eight), ("bytes", (8,), 1, eight),
                 ("heads", (), 2, b"\x08\0"), ("count", (), 3, b"\1\0\0\0"), ("half", (2,), 5, eight[:4]), ("none", (0,), 0, b"")]
    yield "ctranslate2", "six", ctranslate2(6, variables, [("decoder/a", "encoder/a")])
    yield "ctranslate2", "four", ctranslate2(4, variables[:1], [])
    yield "ctranslate2", "none", ctranslate2(5, [], [])
    samples = bytes(range(0, 240, 5))
    for rate, channels, tag, bits in ((16000, 1, 1, 16), (44100, 2, 1, 16), (8000, 1, 1, 8), (96000, 2, 1, 24),
                                      (22050, 1, 3, 32), (48000, 1, 0xfffe, 16), (8000, 1, 7, 8), (16000, 1, 1, 32)):
        yield "audio", f"{rate}-{channels}-{tag}-{bits}", wave(tag, channels, rate, bits, samples)
    yield "audio", "list", wave(1, 1, 16000, 16, samples, b"LIST" + struct.pack("<I", 4) + b"INFO")
    yield "audio", "cut", wave(1, 1, 16000, 16, samples)[:-20]
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    stamps = [f"<|{i // 50}.{i % 50 * 2:02}|>" for i in range(60)]
    words = ["\u0120hello", "\u0120wor", "ld", ".", ",", '\u0120"', "\u0120caf\u00c3", "\u00a9", "s"]
    # The first byte is explained in fuzz_whisper_tokens.c.
    yield "whisper_tokens", "lines", b"\0" + "\n".join(words + special + stamps).encode()
    yield "whisper_tokens", "words", b"\x81" + "\n".join(words + [""]).encode()
    yield "whisper_tokens", "array", b"\1" + json.dumps(words + special + stamps).encode()
    yield "whisper_tokens", "config", b"\2" + json.dumps({"suppress_ids": [0, 3], "suppress_ids_begin": [2, 9],
                                                         "alignment_heads": [[0, 1], [3, 5]]}).encode()
    records = [f"Portable:a%20cpu 3.1 0.1.0-0123456789abcdef {shape} {solver} {rank} 123456 rows=6 cols=4"
               for shape in ("attention b1-h8-q64-k64-d64-v64-f32", "softmax r8-c8-f32")
               for rank, solver in enumerate(("cpu", "tile", "-"))]
    yield "wisdom", "records", "\n".join(["clattn-wisdom 1", *records, ""]).encode()
    yield "wisdom", "short", b"clattn-wisdom 1\na b c d e cpu 0 123\na b c d f cpu 7 9223372036854775807 x=999999999\n"
    yield "wisdom", "none", b"clattn-wisdom 1\n"
    yield "wisdom", "later", b"clattn-wisdom 2\n"
    # The first byte is explained in fuzz_cache_entry.c, and in the two others.
    header = b"CLATTNBC" + struct.pack("<IIQ", 1, 0, 8) + bytes(32)
    yield "cache_entry", "entry", b"\0" + header + hashlib.sha256(header + eight).digest() + eight
    yield "cache_entry", "cut", b"\0" + header + hashlib.sha256(header + eight).digest() + eight[:7]
    yield "cache_entry", "payload", b"\1" + bytes(range(200))
    meaning = chunk(b"tRNS", bytes(6)) + chunk(b"gAMA", bytes((0, 0, 177, 143)))
    kinds = ((0, 1, 1, b""), (0, 16, 1, b""), (2, 8, 3, b""), (3, 4, 1, b""), (4, 8, 2, b""), (6, 16, 4, b""),
             (2, 8, 3, meaning))
    for number, (colour, bits, channels, more) in enumerate(kinds):
        for interlaced in (0, 1):
            yield "png", f"{number}-{interlaced}", b"\1" + png(colour, bits, channels, interlaced, more)
    qkv = "-q q.npy -k k.npy -v v.npy"
    for name, first, line in (
            ("run", 0, f"{qkv} -o o.npy --causal --scale=0.5 --window 3,-1 --lse l.npy"),
            ("fused", 0, "--qkv x.npy --layout bs3e --heads 4,4 -o o.npy --attention m.html"),
            ("explain", 1, "--shape 1,8,2,5,7,16,16 --dtype bf16 --layout bse --json --device cpu"),
            ("bench", 2, "--shape 1,8,2,5,7,16,16 --kv-int8 --page-size 4 --repeat 3 --user 0:a.npy"),
            ("every", 3, "--flag -t x --float=-1e3 --count 7 --few 9 --sizes 1,2,3 --whole 18446744073709551615 "
                         "--limits -1,5 --list a --list b --choice two -- -one two"),
            ("help", 3, "--flag --help")):
        yield "arguments", name, bytes([first]) + line.replace(" ", "\n").encode()
    # The same of fuzz_wordpiece.c.
    for file in sorted((pathlib.Path(__file__).parent.parent / "wordpiece").glob("fuzz-*")):
        yield "wordpiece", file.name, file.read_bytes()
    yield "wordpiece", "text", "tAbc, a\u00e4b \u6f22\u5b57 ab\u0301c\tabcab.".encode()
    # Also explained in fuzz_snippet.c.
    function = "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n{ return score; }"
    for name, before in (("plain", ""), ("macros", "#de\\\nfine WINDOW 4\n%:undef WINDOW\n#if 1 // x\n#endif\n"),
                         ("comment", "/* \" \n*/ # /**/ include <x>\n"), ("pragma", "#pragma OPENCL x\n_Pragma(\"x\")\n"),
                         ("trigraph", "??=define x\n"), ("attribute", "__attribute__((overloadable)) __asm__\n"),
                         ("keyword", "#define float4 '\\''\r\n#define mask_mod\r")):
        yield "snippet", name, ("t" + before + function).encode()
    # Also explained in fuzz_vision.c.
    import numpy as np
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tool"))
    from small.vision import FAMILIES, Model
    for family in FAMILIES:
        model = Model(np.random.default_rng(1), family, layers=1)
        model.write_processor()
        tensors = "".join("%s %s\n" % (name, ",".join(map(str, tensor.shape))) for name, tensor in model.tensors.items())
        yield "vision", family, "\0".join((json.dumps(model.config), json.dumps(model.processor), tensors)).encode()
    # Also explained in fuzz_swinir.c.
    from small import swinir
    for kind in swinir.KINDS:
        tensors = swinir.tensors(np.random.default_rng(1), kind, 1 if kind == "added" else 2)
        lines = "".join("%s %s\n" % (name, ",".join(map(str, tensor.shape))) for name, tensor in tensors.items())
        yield "swinir", kind.replace(" ", "-"), struct.pack("<4H", 100, 77, 40, 20) + lines.encode()
    yield "snippet", "pocl", b"lerror: score_mod:5:13: using\nwarning: score_mod:9:1 <Spelling=a.h:1:2>: void\n"
    yield "snippet", "intel", b"lCompilation started\nscore_mod:5:13: warning: using [-Wx]\n  5 | x\nscore_mod:5:1: note: x\n"
    yield "snippet", "oclgrind", b"lscore_mod did not build: input.cl:49:9: error: x\ninput.cl:45:13: fatal error: x\n~~^~~\n"


    for file in sorted(KEPT.glob("*.txt")):
        for number, line in enumerate(file.read_text().splitlines()):
            yield file.stem, f"kept-{number}", base64.b64decode(line)


def keep(folder, reader):
    with tempfile.TemporaryDirectory() as least:
        short = pathlib.Path(least) / "short"
        merged = pathlib.Path(least) / "merged"
        short.mkdir()
        merged.mkdir()
        for file in (folder / reader / "corpus").iterdir():
            if file.stat().st_size <= 300:
                (short / file.name).write_bytes(file.read_bytes())
        subprocess.run([folder / reader / "fuzz", "-merge=1", merged, short], check=True, stderr=subprocess.DEVNULL)
        inputs = sorted((file.read_bytes() for file in merged.iterdir()), key=lambda data: (len(data), data))
    (KEPT / f"{reader}.txt").write_text("".join(base64.b64encode(data).decode() + "\n" for data in inputs))
    print(f"{reader}: {len(inputs)} inputs")


def main():
    if sys.argv[1] == "--keep":
        for reader in sys.argv[3:]:
            keep(pathlib.Path(sys.argv[2]), reader)
        return
    for reader, name, data in seeds():
        folder = pathlib.Path(sys.argv[1]) / reader / "corpus"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


main()
