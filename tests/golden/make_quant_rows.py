#!/usr/bin/env python3
"""Make quant_rows.json beside this file: rows and their int8 and fp8 codes, with numpy and ml_dtypes as the judge.

    pip install numpy ml_dtypes
    python3 tests/golden/make_quant_rows.py

Written from quant/FORMAT.md alone: it shows that the page suffices for another writer.
"""
import json
import pathlib

import ml_dtypes
import numpy as np

F32 = np.float32
HERE = pathlib.Path(__file__).resolve().parent


def encode(x, top):
    absmax = np.abs(x).max()
    if absmax < F32(2.0**-100):
        return F32(1), x * F32(0)
    return absmax / F32(top), x * (F32(top) / absmax)


def case(name, values, dtype):
    stored = values.astype(dtype)
    x = stored.astype(F32)
    int8_scale, int8_v = encode(x, 127)
    fp8_scale, fp8_v = encode(x, 448)
    assert int8_scale.dtype == int8_v.dtype == F32
    return {
        "name": name,
        "dtype": {2: "BF16", 4: "F32"}[stored.itemsize],
        "cols": x.size,
        "source": stored.tobytes().hex(),
        "int8_scale": int8_scale.tobytes().hex(),
        "int8_codes": np.rint(int8_v).astype(np.int8).tobytes().hex(),
        "fp8_scale": fp8_scale.tobytes().hex(),
        "fp8_codes": fp8_v.astype(ml_dtypes.float8_e4m3fn).tobytes().hex(),
    }


def main():
    rng = np.random.default_rng(7)
    bf16 = ml_dtypes.bfloat16
    gauss = rng.standard_normal(131)
    spread = gauss * np.exp2(rng.integers(-24, 8, 131))
    int8_ties = np.concatenate([np.arange(-126, 127) + 0.5, [127]])
    e4m3 = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(F32)
    fp8_ties = np.concatenate([(e4m3[1:] + e4m3[:-1]) / 2, -(e4m3[1:] + e4m3[:-1]) / 2, [448]])
    cases = [
        case("gaussian weights in bf16", gauss * 0.02, bf16),
        case("gaussian weights in f32", gauss * 0.02, F32),
        case("many magnitudes in bf16", spread, bf16),
        case("many magnitudes in f32", spread, F32),
        case("every tie of int8", int8_ties, F32),
        case("every tie of fp8", fp8_ties, F32),
        case("longer than one piece", rng.standard_normal(1100) * 3, bf16),
        case("near the upper limit", gauss / 8 * 2.0**99, F32),
        case("near the lower limit", gauss * 2.0**-100, F32),
        case("below the lower limit", gauss / 8 * 2.0**-101, F32),
        case("at the lower limit", np.array([2.0**-100, 2.0**-101, 0.0]), F32),
        case("just below the lower limit", np.array([2.0**-100 - 2.0**-124, 2.0**-101, 0.0]), F32),
        case("near ties, inverse unlike 1 / scale", np.append(int8_ties[:-1], 127) * 0.6 / 127, F32),
        case("zeros of both signs", np.array([0.0, -0.0] * 8), bf16),
    ]
    (HERE / "quant_rows.json").write_text(json.dumps({"cases": cases}, indent=1) + "\n")


main()
