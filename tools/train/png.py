"""PNG files of 8-bit RGB or RGBA pictures without interlacing, read and written with zlib and numpy
alone."""
import struct
import zlib
from pathlib import Path

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}    # colour type -> bytes a pixel


def read(path: Path) -> np.ndarray:
    """uint8 [h, w, 3] of a file; alpha is dropped."""
    data = path.read_bytes()
    if data[:8] != SIGNATURE:
        raise ValueError(f"{path}: not a PNG file")
    header, packed, at = None, b"", 8
    while at + 8 <= len(data):
        n, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if name == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif name == b"IDAT":
            packed += body
        at += 12 + n
    if header is None or header[2] != 8 or header[3] not in CHANNELS or header[6] != 0:
        raise ValueError(f"{path}: not a PNG of 8-bit RGB or RGBA without interlacing")
    w, h, channels = header[0], header[1], CHANNELS[header[3]]
    try:
        rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(h, 1 + w * channels)
    except (zlib.error, ValueError) as e:
        raise ValueError(f"{path}: damaged picture data ({e})") from e
    # one row more above and one pixel more on the left, of zeros: the neighbours of the edge
    out = np.zeros((h + 1, w + 1, channels), np.uint8)
    for y in range(h):
        _unfilter(int(rows[y, 0]), rows[y, 1:].reshape(w, channels), out[y], out[y + 1])
    return out[1:, 1:, :3].copy()


def _unfilter(kind: int, coded: np.ndarray, above: np.ndarray, here: np.ndarray) -> None:
    """Undo a row's filter. coded [w, c]; above, here [w + 1, c], the first pixel zero; sums are
    modulo 256."""
    if kind == 0:
        here[1:] = coded
    elif kind == 1:
        here[1:] = np.cumsum(coded, axis=0, dtype=np.uint64).astype(np.uint8)
    elif kind == 2:
        here[1:] = coded + above[1:]
    elif kind in (3, 4):
        predict = _average if kind == 3 else _paeth
        left, up, c = here.tolist(), above.tolist(), coded.tolist()
        for x in range(len(c)):
            left[x + 1] = [(v + predict(a, b, d)) & 255
                           for v, a, b, d in zip(c[x], left[x], up[x + 1], up[x])]
        here[:] = left
    else:
        raise ValueError(f"PNG row filter {kind} is not 0 to 4")


def _average(left: int, up: int, _: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, up_left: int) -> int:
    """The neighbour that is nearest to left + up - up_left; ties go to the left, then to the upper
    one."""
    guess = left + up - up_left
    return min((left, up, up_left), key=lambda v: abs(guess - v))


def write(path: Path, rgb: np.ndarray) -> None:
    """rgb uint8 [h, w, 3]."""
    h, w, _ = rgb.shape
    rows = np.concatenate([np.zeros((h, 1), np.uint8), rgb.reshape(h, w * 3)], 1)

    def chunk(name: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", crc)

    path.write_bytes(SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b""))
