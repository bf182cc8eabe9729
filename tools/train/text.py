"""The two text encoders of FLUX.1 at the bundled model's size: CLIP's text model and T5's encoder.

Parameters bear the names that the files of FLUX.1 have, so state_dict() is what is exported.
Letters of shapes: B captions, T tokens, D width, H heads, E head size.
"""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLIP_WIDTH, CLIP_HEADS, CLIP_LAYERS, CLIP_MLP, CLIP_POSITIONS = 64, 1, 2, 128, 77
T5_WIDTH, T5_HEADS, T5_HEAD_SIZE, T5_LAYERS, T5_MLP = 128, 2, 64, 2, 320
T5_BUCKETS, T5_MAX_DISTANCE = 32, 128


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H*E] -> [B, H, T, E]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


# CLIP

class ClipText(nn.Module):
    """ids [B, T], ended and padded by eos, T <= 77 -> the end token's state [B, 64]. Causal: what
    follows the first end token changes nothing, so T may be cut."""

    def __init__(self, n_ids: int, eos: int) -> None:
        super().__init__()
        self.eos = eos
        self.text_model = _ClipModel(n_ids)

    def forward(self, ids: Tensor) -> Tensor:
        first_eos = (ids == self.eos).int().argmax(1)
        return self.text_model(ids)[torch.arange(len(ids), device=ids.device), first_eos]


class _ClipModel(nn.Module):
    def __init__(self, n_ids: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({
            "token_embedding": nn.Embedding(n_ids, CLIP_WIDTH),
            "position_embedding": nn.Embedding(CLIP_POSITIONS, CLIP_WIDTH)})
        self.encoder = nn.ModuleDict({
            "layers": nn.ModuleList(_ClipLayer() for _ in range(CLIP_LAYERS))})
        self.final_layer_norm = nn.LayerNorm(CLIP_WIDTH)
        for table in self.embeddings.values():
            nn.init.normal_(table.weight, std=.02)

    def forward(self, ids: Tensor) -> Tensor:
        positions = self.embeddings["position_embedding"].weight[:ids.shape[1]]
        x = self.embeddings["token_embedding"](ids) + positions
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.final_layer_norm(x)


class _ClipLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(CLIP_WIDTH), nn.LayerNorm(CLIP_WIDTH)
        self.self_attn = _ClipAttention()
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(CLIP_WIDTH, CLIP_MLP),
                                  "fc2": nn.Linear(CLIP_MLP, CLIP_WIDTH)})
        residual_std = CLIP_WIDTH ** -.5 * (2 * CLIP_LAYERS) ** -.5
        for name in ("q_proj", "k_proj", "v_proj"):
            _init_linear(getattr(self.self_attn, name), residual_std)
        _init_linear(self.self_attn.out_proj, CLIP_WIDTH ** -.5)
        _init_linear(self.mlp["fc1"], (2 * CLIP_WIDTH) ** -.5)
        _init_linear(self.mlp["fc2"], residual_std)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        h = self.mlp["fc1"](self.layer_norm2(x))
        return x + self.mlp["fc2"](h * torch.sigmoid(1.702 * h))    # quick_gelu


class _ClipAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(CLIP_WIDTH, CLIP_WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (_split_heads(p(x), CLIP_HEADS) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


def _init_linear(m: nn.Linear, std: float) -> None:
    nn.init.normal_(m.weight, std=std)
    if m.bias is not None:
        nn.init.zeros_(m.bias)


# T5

class T5Encoder(nn.Module):
    """ids [B, T], padded by 0 -> states [B, T, 128]. Padding is attended to like any token, as
    FLUX.1 does it."""

    def __init__(self, n_ids: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(n_ids, T5_WIDTH)    # standard deviation 1
        self.encoder = nn.ModuleDict({
            "block": nn.ModuleList(_T5Block(first=i == 0) for i in range(T5_LAYERS)),
            "final_layer_norm": nn.RMSNorm(T5_WIDTH, eps=1e-6)})

    def forward(self, ids: Tensor) -> Tensor:
        x = self.shared(ids)
        bias = self.encoder["block"][0].attention.position_bias(ids.shape[1], ids.device)
        for block in self.encoder["block"]:
            x = block(x, bias)
        return self.encoder["final_layer_norm"](x)


class _T5Block(nn.Module):
    def __init__(self, first: bool) -> None:
        super().__init__()
        mlp = nn.ModuleDict({"wi_0": nn.Linear(T5_WIDTH, T5_MLP, bias=False),
                             "wi_1": nn.Linear(T5_WIDTH, T5_MLP, bias=False),
                             "wo": nn.Linear(T5_MLP, T5_WIDTH, bias=False)})
        _init_linear(mlp["wi_0"], T5_WIDTH ** -.5)
        _init_linear(mlp["wi_1"], T5_WIDTH ** -.5)
        _init_linear(mlp["wo"], T5_MLP ** -.5)
        self.layer = nn.ModuleList([
            nn.ModuleDict({"SelfAttention": _T5Attention(first),
                           "layer_norm": nn.RMSNorm(T5_WIDTH, eps=1e-6)}),
            nn.ModuleDict({"DenseReluDense": mlp, "layer_norm": nn.RMSNorm(T5_WIDTH, eps=1e-6)})])

    @property
    def attention(self) -> "_T5Attention":
        return self.layer[0]["SelfAttention"]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attention(self.layer[0]["layer_norm"](x), bias)
        h, mlp = self.layer[1]["layer_norm"](x), self.layer[1]["DenseReluDense"]
        return x + mlp["wo"](F.gelu(mlp["wi_0"](h), approximate="tanh") * mlp["wi_1"](h))


class _T5Attention(nn.Module):
    """Scores are not divided by the root of the head size; the first block's distance bias serves
    all blocks."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        inner = T5_HEADS * T5_HEAD_SIZE
        self.q, self.k, self.v = (nn.Linear(T5_WIDTH, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, T5_WIDTH, bias=False)
        _init_linear(self.q, (T5_WIDTH * T5_HEAD_SIZE) ** -.5)
        _init_linear(self.k, T5_WIDTH ** -.5)
        _init_linear(self.v, T5_WIDTH ** -.5)
        _init_linear(self.o, inner ** -.5)
        if first:
            self.relative_attention_bias = nn.Embedding(T5_BUCKETS, T5_HEADS)
            nn.init.normal_(self.relative_attention_bias.weight, std=T5_WIDTH ** -.5)

    def position_bias(self, n: int, device: torch.device) -> Tensor:
        """[1, H, n, n], by the distance of key from query: near ones exact, far ones in logarithmic
        buckets."""
        at = torch.arange(n, device=device)
        distance = at[None, :] - at[:, None]
        half = T5_BUCKETS // 2
        exact = half // 2
        d = distance.abs()
        far = exact + (torch.log(d.clamp(min=1).float() / exact) / math.log(T5_MAX_DISTANCE / exact)
                       * (half - exact)).long()
        bucket = torch.where(d < exact, d, far.clamp(max=half - 1)) + half * (distance > 0)
        return self.relative_attention_bias(bucket).permute(2, 0, 1)[None]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (_split_heads(p(x), T5_HEADS) for p in (self.q, self.k, self.v))
        weights = torch.softmax((q @ k.transpose(-1, -2) + bias).float(), -1).to(x.dtype)
        return self.o((weights @ v).transpose(1, 2).flatten(2))
