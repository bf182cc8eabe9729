"""The diffusion transformer of FLUX.1 at the bundled model's size.

Parameters bear diffusers' names, so state_dict() is what is exported. Letters of shapes: B
pictures, Tt text tokens, Ti image tokens (2x2 latents each), T = Tt + Ti with text first, D width,
H heads, E head size. Facts that are easy to get wrong: AdaLayerNormZero's six parts are shift,
scale, gate of attention, then of the MLP; the last norm's two are scale, then shift; rotary pairs
are neighbours (2i, 2i + 1).
"""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS, HEAD_SIZE, DOUBLE_BLOCKS, SINGLE_BLOCKS = 2, 128, 2, 3
WIDTH = HEADS * HEAD_SIZE
ROPE_AXES = (16, 56, 56)
CHANNELS, TEXT_WIDTH, POOLED_WIDTH, TIME_WIDTH = 64, 128, 64, 256


def pack(z: Tensor) -> Tensor:
    """Latents [B, 16, h, w] -> tokens [B, h/2 * w/2, 64], channel-major within a token."""
    b, c, h, w = z.shape
    tokens = z.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return tokens.reshape(b, h * w // 4, c * 4)


def unpack(x: Tensor, h: int, w: int) -> Tensor:
    """Tokens [B, h/2 * w/2, 64] -> latents [B, 16, h, w]."""
    b, _, c = x.shape
    z = x.view(b, h // 2, w // 2, c // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return z.reshape(b, c // 4, h, w)


def rope_table(n_text: int, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(cos, sin), each [T, E] float32: text at (0, 0, 0), image tokens at (0, row, column)."""
    ids = torch.zeros(n_text + rows * columns, 3, dtype=torch.float64, device=device)
    ids[n_text:, 1] = torch.arange(rows, device=device).repeat_interleave(columns)
    ids[n_text:, 2] = torch.arange(columns, device=device).repeat(rows)
    angles = []
    for axis, dim in enumerate(ROPE_AXES):
        even = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
        angles.append(ids[:, axis, None] * 10000. ** (-even / dim))
    angle = torch.cat(angles, 1).repeat_interleave(2, dim=1)
    return angle.cos().float(), angle.sin().float()


def _rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Pairs (a, b) of x [B, H, T, E] -> (a cos - b sin, b cos + a sin), in float32."""
    cos, sin = rope
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return (x * cos + torch.stack((-b, a), -1).flatten(-2) * sin).to(x.dtype)


class Flux(nn.Module):
    """x [B, Ti, 64] noisy tokens, text [B, Tt, 128], pooled [B, 64], sigma [B] in 0..1, rope of
    rope_table() -> velocity [B, Ti, 64]."""

    def __init__(self) -> None:
        super().__init__()
        self.time_text_embed = nn.ModuleDict({
            "timestep_embedder": _Embedder(TIME_WIDTH), "text_embedder": _Embedder(POOLED_WIDTH)})
        self.context_embedder = nn.Linear(TEXT_WIDTH, WIDTH)
        self.x_embedder = nn.Linear(CHANNELS, WIDTH)
        self.transformer_blocks = nn.ModuleList(_DoubleBlock() for _ in range(DOUBLE_BLOCKS))
        self.single_transformer_blocks = nn.ModuleList(_SingleBlock() for _ in range(SINGLE_BLOCKS))
        self.norm_out = _Modulation(2)
        self.proj_out = nn.Linear(WIDTH, CHANNELS)
        self._init()

    def _init(self) -> None:
        """As in DiT: modulations and the last layer start at zero, so each block starts as the
        identity."""
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)
        for m in self.modules():
            if isinstance(m, _Modulation):
                nn.init.zeros_(m.linear.weight)
        nn.init.zeros_(self.proj_out.weight)
        for embedder in self.time_text_embed.values():
            nn.init.normal_(embedder.linear_1.weight, std=.02)
            nn.init.normal_(embedder.linear_2.weight, std=.02)

    def forward(self, x: Tensor, text: Tensor, pooled: Tensor, sigma: Tensor,
                rope: tuple[Tensor, Tensor]) -> Tensor:
        time = _sinusoids(1000 * sigma).to(pooled.dtype)
        condition = (self.time_text_embed["timestep_embedder"](time)
                     + self.time_text_embed["text_embedder"](pooled))
        x, text = self.x_embedder(x), self.context_embedder(text)
        for block in self.transformer_blocks:
            x, text = block(x, text, condition, rope)
        n_text = text.shape[1]
        x = torch.cat((text, x), 1)
        for block in self.single_transformer_blocks:
            x = block(x, condition, rope)
        scale, shift = self.norm_out(condition)
        return self.proj_out(_normed(x[:, n_text:]) * (1 + scale) + shift)


def _sinusoids(t: Tensor) -> Tensor:
    """[B] -> [B, 256] float32, cosines first."""
    half = TIME_WIDTH // 2
    frequency = torch.exp(-math.log(10000.) / half * torch.arange(half, device=t.device))
    angle = t.float()[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), 1)


def _normed(x: Tensor) -> Tensor:
    """Layer norm without weights."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


class _Embedder(nn.Module):
    """[B, n_in] -> [B, D]"""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(n_in, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(F.silu(self.linear_1(x)))


class _Modulation(nn.Module):
    """The condition [B, D] -> n vectors, each [B, 1, D]."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.linear = n, nn.Linear(WIDTH, n * WIDTH)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        return self.linear(F.silu(condition))[:, None].chunk(self.n, -1)


class _FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        up = nn.ModuleDict({"proj": nn.Linear(WIDTH, 4 * WIDTH)})
        self.net = nn.ModuleList([up, nn.Identity(), nn.Linear(4 * WIDTH, WIDTH)])

    def forward(self, x: Tensor) -> Tensor:
        return self.net[2](F.gelu(self.net[0]["proj"](x), approximate="tanh"))


def _heads(x: Tensor) -> Tensor:
    """[B, T, D] -> [B, H, T, E]"""
    return x.unflatten(-1, (HEADS, HEAD_SIZE)).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """q, k, v [B, H, T, E] -> [B, T, D]"""
    y = F.scaled_dot_product_attention(_rotate(q, rope), _rotate(k, rope), v)
    return y.transpose(1, 2).flatten(2)


class _Attention(nn.Module):
    """Queries, keys and values of one stream; in a double block also those of the text, and both
    ways out."""

    def __init__(self, joint: bool) -> None:
        super().__init__()
        names = ["to_q", "to_k", "to_v"]
        norms = ["norm_q", "norm_k"]
        if joint:
            names += ["add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"]
            norms += ["norm_added_q", "norm_added_k"]
            self.to_out = nn.ModuleList([nn.Linear(WIDTH, WIDTH)])
        for name in names:
            self.add_module(name, nn.Linear(WIDTH, WIDTH))
        for name in norms:
            self.add_module(name, nn.RMSNorm(HEAD_SIZE, eps=1e-6))

    def image_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> three of [B, H, T, E]"""
        return (self.norm_q(_heads(self.to_q(x))), self.norm_k(_heads(self.to_k(x))),
                _heads(self.to_v(x)))

    def text_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (self.norm_added_q(_heads(self.add_q_proj(x))),
                self.norm_added_k(_heads(self.add_k_proj(x))), _heads(self.add_v_proj(x)))


class _DoubleBlock(nn.Module):
    """Image and text with weights of their own, attending to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm1_context = _Modulation(6), _Modulation(6)
        self.attn = _Attention(joint=True)
        self.ff, self.ff_context = _FeedForward(), _FeedForward()

    def forward(self, x: Tensor, text: Tensor, condition: Tensor,
                rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x_mod, text_mod = self.norm1(condition), self.norm1_context(condition)
        of_text = self.attn.text_qkv(_normed(text) * (1 + text_mod[1]) + text_mod[0])
        of_image = self.attn.image_qkv(_normed(x) * (1 + x_mod[1]) + x_mod[0])
        y = _attend(*(torch.cat(pair, 2) for pair in zip(of_text, of_image)), rope)
        n_text = text.shape[1]
        text = text + text_mod[2] * self.attn.to_add_out(y[:, :n_text])
        x = x + x_mod[2] * self.attn.to_out[0](y[:, n_text:])
        text = text + text_mod[5] * self.ff_context(_normed(text) * (1 + text_mod[4]) + text_mod[3])
        x = x + x_mod[5] * self.ff(_normed(x) * (1 + x_mod[4]) + x_mod[3])
        return x, text


class _SingleBlock(nn.Module):
    """Attention and MLP side by side on text and image together."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = _Modulation(3)
        self.attn = _Attention(joint=False)
        self.proj_mlp = nn.Linear(WIDTH, 4 * WIDTH)
        self.proj_out = nn.Linear(5 * WIDTH, WIDTH)

    def forward(self, x: Tensor, condition: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        shift, scale, gate = self.norm(condition)
        h = _normed(x) * (1 + scale) + shift
        mlp = F.gelu(self.proj_mlp(h), approximate="tanh")
        y = _attend(*self.attn.image_qkv(h), rope)
        return x + gate * self.proj_out(torch.cat((y, mlp), -1))
