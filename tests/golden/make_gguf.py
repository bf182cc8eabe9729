#!/usr/bin/env python3
"""Make types.gguf beside this file with ggml's own writer: a tensor of each type from ggml_blocks.safetensors, and keys.

    pip install numpy gguf
    python3 tests/golden/make_gguf.py
"""
import json
import pathlib
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def read_safetensors(path):
    raw = path.read_bytes()
    n, = struct.unpack("<Q", raw[:8])
    for name, t in json.loads(raw[8:8 + n]).items():
        begin, end = t["data_offsets"]
        yield name, np.frombuffer(raw[8 + n + begin:8 + n + end], {"U8": np.uint8, "F32": np.float32}[t["dtype"]]).reshape(t["shape"])


def main():
    w = gguf.GGUFWriter(HERE / "types.gguf", "flux")
    w.add_string("general.name", "every type")
    w.add_uint32("general.file_type", 7)
    w.add_bool("a.bool", True)
    w.add_float64("a.f64", 1.5)
    w.add_array("a.strings", ["one", "", "three"])
    w.add_array("a.numbers", [1, 2, 3, 4, 5])
    w.add_uint8("a.u8", 255)
    w.add_int16("a.i16", -2)
    for name, array in read_safetensors(HERE / "ggml_blocks.safetensors"):
        kind, what = name.split(".")
        if what == "blocks":  # a block a row
            w.add_tensor(f"block.{kind}.weight", array, raw_dtype=gguf.GGMLQuantizationType[kind])
    w.add_tensor("plain.f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("plain.f16", np.arange(5, dtype=np.float16))
    w.add_tensor("plain.bf16", np.array([0x80, 0x3F, 0x00, 0xC0], np.uint8).reshape(1, 4), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.add_tensor("plain.i8", np.array([-128, 127], np.int8))
    w.add_tensor("plain.i64", np.array([-1, 1 << 40], np.int64))
    w.add_tensor("plain.f64", np.array([1 / 3], np.float64))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
