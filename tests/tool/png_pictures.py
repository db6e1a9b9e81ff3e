"""PNG files for tests, written and read with zlib and NumPy: the tests use no libpng, because they test its use."""
import struct
import zlib

import numpy as np

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width, height, depth, colour_type, interlace=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, interlace))


SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode(pixels, before=b"", depth=None, colour_type=None):
    """The file of an array (height, width, channels) of uint8 or uint16; `before`: chunks ahead of the data.  With a
    depth below 8, samples are packed."""
    height, width, channels = pixels.shape
    depth = depth or pixels.dtype.itemsize * 8
    colour_type = COLOUR_TYPES[channels] if colour_type is None else colour_type
    rows = b""
    for row in pixels:
        if depth < 8:
            bits = np.unpackbits(row.reshape(-1, 1).astype(np.uint8), axis=1)[:, 8 - depth:]
            rows += b"\0" + np.packbits(bits.reshape(-1)).tobytes()
        else:
            rows += b"\0" + row.astype(">u%d" % (depth // 8)).tobytes()
    return (SIGNATURE + header(width, height, depth, colour_type) + before + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def chunks(data):
    """Returns [(kind, contents), ...] after verifying checksums."""
    assert data[:8] == SIGNATURE
    found, at = [], 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        found.append((kind, body))
        at += 12 + length
    return found


def paeth(a, b, c):
    p = a + b - c
    distances = abs(p - a), abs(p - b), abs(p - c)
    return (a, b, c)[distances.index(min(distances))]


def decode(data):
    """Returns the pixels of a file without palette and interlacing, 8 or 16 bits."""
    parts = chunks(data)
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", parts[0][1])
    assert interlace == 0 and depth in (8, 16) and colour_type != 3
    step = CHANNELS[colour_type] * depth // 8
    raw = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows, last = [], bytearray(width * step)
    for y in range(height):
        kind, line = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
        for i in range(len(line) if kind else 0):
            left = line[i - step] if i >= step else 0
            corner = last[i - step] if i >= step else 0
            line[i] = (line[i] + (left, last[i], (left + last[i]) // 2, paeth(left, last[i], corner))[kind - 1]) & 255
        rows.append(bytes(line))
        last = line
    pixels = np.frombuffer(b"".join(rows), ">u%d" % (depth // 8))
    return pixels.reshape(height, width, CHANNELS[colour_type]).astype(np.uint8 if depth == 8 else np.uint16)
