"""Reads a packed model with the safetensors package, and again by quant/FORMAT.md alone; exits 1 with words on a fault.

    py_packed.py PACKED SOURCE_FOLDER
    py_packed.py --have      exit 0 when the safetensors package and numpy are there

What it shows: the package opens the file; weights that were kept are the source's bytes; codes and scales decode to the
source within half a step; small files are the source's; pages lie where the metadata says; compressed pages expand to
what the package finds in the source. Checksums are compared where the xxhash package is there, LZ4 is decoded here.
"""

import glob
import json
import os
import struct
import sys

try:
    import numpy as np
    from safetensors import safe_open
except ImportError:
    np = None

STEMS = {
    "transformer": "diffusion_pytorch_model",
    "vae": "diffusion_pytorch_model",
    "text_encoder": "model",
    "text_encoder_2": "model",
}
WIDTH = {"F32": 4, "BF16": 2, "I8": 1, "F8_E4M3": 1, "U8": 1}


def fail(text):
    sys.exit("py_packed: " + text)


def check(good, text):
    if not good:
        fail(text)


def read_header(path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(n)), 8 + n


def read_raw(path):
    """Every tensor of a safetensors file as (dtype, shape, bytes): for bf16, which numpy has not."""
    header, data = read_header(path)
    tensors = {}
    with open(path, "rb") as file:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(data + begin)
            tensors[name] = (entry["dtype"], entry["shape"], file.read(end - begin))
    return tensors


def widen(dtype, raw):
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, {"F32": "<f4", "I8": "i1"}[dtype]).astype("<f4")


def lz4_block(src, n):
    """An LZ4 block of n bytes, by lz4_Block_format.md."""
    out, at = bytearray(), 0

    def extended(length):
        nonlocal at
        while length >= 15:
            byte = src[at]
            at += 1
            length += byte
            if byte != 255:
                break
        return length

    while True:
        token = src[at]
        at += 1
        literals = extended(token >> 4)
        out += src[at : at + literals]
        at += literals
        if at >= len(src):
            break
        offset = src[at] | src[at + 1] << 8
        at += 2
        for _ in range(extended(token & 15) + 4):
            out.append(out[-offset])
    check(len(out) == n, "an LZ4 block of %d bytes where %d belong" % (len(out), n))
    return bytes(out)


def expand(stored, n_bytes):
    block = 1 << 20
    n_blocks = -(-n_bytes // block)
    sizes = struct.unpack("<%dI" % n_blocks, stored[: 4 * n_blocks])
    at, page = 4 * n_blocks, b""
    for i, size in enumerate(sizes):
        n = min(block, n_bytes - i * block)
        part = stored[at : at + size]
        at += size
        if size < n:
            planes = lz4_block(part, n)
            whole = bytearray(n)
            whole[0::2], whole[1::2] = planes[: n // 2], planes[n // 2 :]
            part = bytes(whole)
        page += part
    check(at == len(stored), "bytes after the last block")
    return page


def read_pages(path, tensors):
    """Pages in memory, and the tensors of compressed pages added to `tensors`."""
    header, data = read_header(path)
    metadata = header["__metadata__"]
    check(metadata["dfx.version"] == "1", "version " + metadata["dfx.version"])
    check(data % 4096 == 0, "the data begins at %d" % data)
    pages = json.loads(metadata["dfx.pages"])
    end = 0
    memory = []
    with open(path, "rb") as file:
        for page in pages:
            check((data + page["begin"]) % 4096 == 0, page["name"] + " is on no border of 4096")
            check(page["begin"] >= end, page["name"] + " overlaps the one before")
            end = page["begin"] + page["stored"]
            file.seek(data + page["begin"])
            stored = file.read(page["stored"])
            raw = stored if page["codec"] == "raw" else expand(stored, page["bytes"])
            check(len(raw) == page["bytes"], page["name"] + " has another length")
            memory.append((page, raw))
            for t in page.get("tensors", []):
                n = WIDTH[t["dtype"]] * int(np.prod(t["shape"]))
                tensors[page["component"] + "." + t["name"]] = (
                    t["dtype"],
                    t["shape"],
                    raw[t["off"] : t["off"] + n],
                )
    return memory


def check_sums(memory):
    try:
        import xxhash
    except ImportError:
        print("py_packed: no xxhash package: checksums were not compared")
        return
    for page, raw in memory:
        check(xxhash.xxh3_64_hexdigest(raw) == page["xxh3"], page["name"] + ": wrong checksum")


def compare(packed, component, name, source):
    dtype, shape, raw = source
    full = component + "." + name
    if full not in packed:
        fail(full + " is missing")
    got_dtype, got_shape, got = packed[full]
    check(got_shape == shape, full + " has another shape")
    if got_dtype == dtype:
        check(got == raw, full + " has other bytes than the source")
        return "kept"
    check(got_dtype == "I8", full + " became " + got_dtype)
    scale_dtype, scale_shape, scale = packed[full + "_scale"]
    check((scale_dtype, scale_shape) == ("F32", shape[:1]), full + "_scale is no row of F32")
    step = widen("F32", scale)[:, None]
    error = np.abs(widen("I8", got).reshape(shape) * step - widen(dtype, raw).reshape(shape))
    check(bool((error <= step * 0.5001).all()), full + " is off by more than half a step")
    return "coded"


def main(path, folder):
    with safe_open(path, "np") as file:
        names = set(file.keys())
    packed = read_raw(path)
    check(names == set(packed), "the package finds other tensors than the header names")
    memory = read_pages(path, packed)
    check_sums(memory)
    counts = {"kept": 0, "coded": 0}
    for component, stem in STEMS.items():
        for shard in sorted(glob.glob(os.path.join(folder, component, stem + "*.safetensors"))):
            for name, source in read_raw(shard).items():
                counts[compare(packed, component, name, source)] += 1
    files = [name for name in names if name.startswith("files/")]
    check("files/model_index.json" in files, "no files/model_index.json")
    for name in files:
        with open(os.path.join(folder, name[len("files/") :]), "rb") as file:
            check(packed[name][2] == file.read(), name + " is not the source's")
    print(
        "py_packed: %d pages, %d tensors kept, %d coded, %d files"
        % (len(memory), counts["kept"], counts["coded"], len(files))
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--have"]:
        sys.exit(np is None)
    if np is None:
        fail("needs the packages safetensors and numpy")
    main(sys.argv[1], sys.argv[2])
