"""safetensors files of bfloat16 tensors: 8 bytes of header length, a JSON header, the tensors one
after another."""
import json
import struct
from pathlib import Path

import torch
from torch import Tensor


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Tensors of any float type, rounded to bfloat16, in the order of their names."""
    header: dict = {"__metadata__": {"format": "pt"}}
    bodies, at = [], 0
    for name in sorted(tensors):
        t = tensors[name].detach().to("cpu", torch.bfloat16).contiguous()
        body = t.view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(t.shape),
                        "data_offsets": [at, at + len(body)]}
        bodies.append(body)
        at += len(body)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(bodies))


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that write() made, as float32."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    out = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, wanted BF16")
        a, b = (8 + n + offset for offset in entry["data_offsets"])
        raw = torch.frombuffer(bytearray(data[a:b]), dtype=torch.bfloat16)
        out[name] = raw.view(entry["shape"]).float()
    return out
