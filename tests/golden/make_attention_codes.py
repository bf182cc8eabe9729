#!/usr/bin/env python3
"""Make attention_codes.safetensors beside this file: operands of the four ops of attention in 8 bits and their results.

    pip install numpy ml_dtypes safetensors
    python3 tests/golden/make_attention_codes.py

Written from kernels/ops.h alone, in f64, token by token. Operands are such that no code is near a tie, so all codes are
exact; some keys and values are beyond their codes' range. E4M3 codes are stored as bytes.
"""
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

F32 = np.float32
HERE = pathlib.Path(__file__).resolve().parent
T, H, E = 37, 3, 16
EPS = 0.01
STEP = 2    # 37 / 16
NEAR_A_TIE = "a code is near a tie: take another seed"


def norm_rope(x, w, cos, sin):
    y = np.zeros((T, H * E))
    for t in range(T):
        for h in range(H):
            head = x[t, h * E:(h + 1) * E].astype(np.float64)
            head = head / np.sqrt((head ** 2).mean() + EPS) * w
            for m in range(E // 2):
                a, b = head[2 * m], head[2 * m + 1]
                c, s = (1.0, 0.0) if cos is None else (float(cos[t, m]), float(sin[t, m]))
                y[t, h * E + 2 * m] = a * c - b * s
                y[t, h * E + 2 * m + 1] = b * c + a * s
    return y


def kv_center(key, v):
    seen = list(range(0, T, STEP))
    key, v = key[seen], v[seen].astype(np.float64)
    y = np.zeros((4, H * E))
    y[0], y[1] = key.mean(0), v.mean(0)
    y[2] = 16 * np.abs(v - y[1]).max(0) / 448
    for h in range(H):
        cols = slice(h * E, (h + 1) * E)
        y[3, cols] = np.abs(key - y[0])[:, cols].max() / 64
    y[2:][y[2:] == 0] = 1
    return y.astype(F32)


def int8(steps):
    assert np.abs(steps - np.floor(steps) - 0.5).min() > 1e-4, NEAR_A_TIE
    return np.rint(steps).astype(np.int8)


def query_codes(z):
    codes, scales = np.zeros((T, H * E), np.int8), np.zeros((T, H))
    for t in range(T):
        for h in range(H):
            cols = slice(h * E, (h + 1) * E)
            scales[t, h] = np.abs(z[t, cols]).max() / 127
            codes[t, cols] = int8(z[t, cols] / scales[t, h])
    return codes, scales.astype(F32)


def key_codes(z, center):
    steps = (z - center[0].astype(np.float64)) / center[3]
    beyond = int((np.abs(steps) > 127).sum())
    assert beyond > 0
    return int8(np.clip(steps, -127, 127)), beyond


def places(n):
    """Token 8 b + 2 q + c of each 16 stands at 4 q + 2 b + c."""
    at = {}
    for first in range(0, n, 16):
        for b in range(2):
            for q in range(4):
                for c in range(2):
                    at[first + 8 * b + 2 * q + c] = first + 4 * q + 2 * b + c
    return at


def value_codes(v, center):
    n = (T + 15) // 16 * 16
    x = np.clip((v - center[1].astype(np.float64)) / center[2], -448, 448)
    assert (np.abs(x) == 448).any()
    near = [(x * f).astype(ml_dtypes.float8_e4m3fn) for f in (1 - 1e-6, 1, 1 + 1e-6)]
    assert (near[0] == near[1]).all() and (near[1] == near[2]).all(), NEAR_A_TIE
    y = np.zeros((H * E, n), np.uint8)
    for t, place in places(n).items():
        if t < T:
            y[:, place] = near[1][t].view(np.uint8)
    return y, near[1].astype(np.float64)


def attention(q, k, v, scales, center, scale):
    y = np.zeros((T, H * E))
    for h in range(H):
        cols = slice(h * E, (h + 1) * E)
        sums = q[:, cols].astype(np.int64) @ k[:, cols].astype(np.int64).T
        scores = scale * scales[:, h:h + 1].astype(np.float64) * float(center[3, h * E]) * sums
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        y[:, cols] = weights @ v[:, cols] * center[2, cols] + center[1, cols]
    return y.astype(F32)


def case(seed, rope):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((T, H * E)).astype(F32) for _ in range(3))
    w = (1 + rng.random(E)).astype(F32)
    angles = rng.random((T, E // 2)) * 6
    cos, sin = (np.cos(angles).astype(F32), np.sin(angles).astype(F32)) if rope else (None, None)
    k += 4 * rng.standard_normal(H * E).astype(F32)   # what keys have in common
    k[5, :] = 0
    k[5, ::E] = 9                                     # more in one column than any in the sample
    v += rng.standard_normal(H * E).astype(F32)
    v[7, 4], v[9, 5] = 900, -900
    v[:, 20] = 0.75                                   # a column that is the same everywhere
    v[::STEP, 21] = 0.25                              # and one that only seems to be
    zq, zk = norm_rope(q, w, cos, sin), norm_rope(k, w, cos, sin)
    center = kv_center(zk, v)
    assert center[2, 20] == 1 and center[2, 21] == 1
    q_codes, q_scale = query_codes(zq)
    k_codes, beyond = key_codes(zk, center)
    v_bytes, v_codes = value_codes(v, center)
    y = attention(q_codes, k_codes, v_codes, q_scale, center, 1 / np.sqrt(E))
    print("beyond the range:", beyond, "keys,", (np.abs(v_codes) == 448).sum(), "values")
    out = {"q": q, "k": k, "v": v, "w": w, "center": center, "q_codes": q_codes,
           "q_scale": q_scale, "k_codes": k_codes, "v_bytes": v_bytes, "y": y}
    if rope:
        out |= {"cos": cos, "sin": sin}
    return {("rope." if rope else "plain.") + name: value for name, value in out.items()}


save_file(case(1, True) | case(2, False), HERE / "attention_codes.safetensors")
