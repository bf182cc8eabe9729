#!/usr/bin/env python3
"""Make pictures/*.jpg and pictures.safetensors beside this file: JPEG files and what is in them, other sizes, grey; by Pillow.

    pip install pillow numpy safetensors
    python3 tests/golden/make_pictures.py
"""
import io
import pathlib
import struct

import numpy as np
import safetensors.numpy
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 23, 17
# What Pillow's box is for a middle that covers the size: as core/pixels.h says.
SIZES = [(16, 16), (48, 32), (7, 30), (23, 11), (20, 17), (64, 48), (1, 1), (230, 16)]


def source():
    rng = np.random.default_rng(7)
    y, x, c = np.mgrid[0:HEIGHT, 0:WIDTH, 0:3]
    smooth = 128 + 100 * np.sin(x / 3 + c) * np.cos(y / 4 - c)
    smooth[4:9, 6:12] = rng.integers(0, 256, (5, 6, 3))
    smooth[12:, :5] = (255, 0, 10)
    return Image.fromarray(np.clip(smooth, 0, 255).astype(np.uint8))


def exif(orientation, order):
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    other = struct.pack(order + "HHII", 0x0100, 4, 1, WIDTH)
    mark = b"II" if order == "<" else b"MM"
    return (b"Exif\0\0" + mark + struct.pack(order + "HI", 42, 8) + struct.pack(order + "H", 2) + other + entry
            + struct.pack(order + "I", 0))


def middle(picture, width, height):
    """In f32: of 8-bit pictures Pillow rounds between rows and columns."""
    scale = min(picture.width / width, picture.height / height)
    left, top = ((picture.width - width * scale) // 2, (picture.height - height * scale) // 2)
    box = (left, top, left + width * scale, top + height * scale)
    planes = [np.asarray(plane.convert("F").resize((width, height), Image.Resampling.LANCZOS, box=box))
              for plane in picture.split()]
    return np.clip(np.rint(np.stack(planes, -1)), 0, 255)


def main():
    out = {}
    (HERE / "pictures").mkdir(exist_ok=True)
    picture = source()

    def jpeg(name, image, **how):
        path = HERE / "pictures" / f"{name}.jpg"
        image.save(path, quality=85, **how)
        return path

    def keep(name, image):
        out[name] = np.asarray(image).astype(np.float32)

    for name, image, how in [("colour", picture, {"subsampling": "4:2:0"}),
                             ("full", picture, {"subsampling": "4:4:4"}),
                             ("progressive", picture, {"progressive": True}),
                             ("grey", picture.convert("L"), {})]:
        keep(name, Image.open(jpeg(name, image, **how)).convert("RGB"))
    jpeg("cmyk", picture.convert("CMYK"))
    jpeg("exif_ii", picture, exif=exif(1, "<"))
    jpeg("exif_mm", picture, exif=exif(1, ">"))
    for orientation in range(1, 9):
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=85, exif=exif(orientation, "<"))
        keep(f"upright{orientation}", ImageOps.exif_transpose(Image.open(buffer)))
    keep("source", picture)
    keep("source_grey", picture.convert("L"))
    for width, height in SIZES:
        keep(f"fit_{width}x{height}", middle(picture, width, height))
        keep(f"grey_{width}x{height}", middle(picture.convert("L"), width, height))
    safetensors.numpy.save_file(out, HERE / "pictures.safetensors")


main()
