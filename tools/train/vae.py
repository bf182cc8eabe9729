"""FLUX.1's autoencoder at the bundled model's size: 16 latent channels, one latent for 8x8 pixels.

Parameters bear diffusers' names (AutoencoderKL without quant convolutions), so state_dict() is what
is exported. Letters of shapes: B pictures, C channels, h w pixels of the map at hand.
"""
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (32, 48, 64, 64)    # channels of the four levels, pixels first
LATENT_CHANNELS, NORM_GROUPS = 16, 16
FACTOR = 2 ** (len(WIDTHS) - 1)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(NORM_GROUPS, channels, eps=1e-6)


def _conv3(n_in: int, n_out: int, **options) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, 3, **options)


class Vae(nn.Module):
    """Pictures are in -1..1. `scaling` and `shift` bring latents to mean 0 and deviation 1 for the
    transformer: x = (z - shift) * scaling."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.scaling, self.shift = 1., 0.


class Encoder(nn.Module):
    """Pictures [B, 3, h, w] -> mean and logarithm of the variance of the latents, each [B, 16, h/8,
    w/8]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = _conv3(3, WIDTHS[0], padding=1)
        self.down_blocks = nn.ModuleList()
        for i, width in enumerate(WIDTHS):
            resnet = _Resnet(WIDTHS[max(i - 1, 0)], width)
            block = nn.ModuleDict({"resnets": nn.ModuleList([resnet])})
            if _has_next(i):
                block["downsamplers"] = nn.ModuleList([
                    nn.ModuleDict({"conv": _conv3(width, width, stride=2)})])
            self.down_blocks.append(block)
        self.mid_block = _MidBlock()
        self.conv_norm_out = _norm(WIDTHS[-1])
        self.conv_out = _conv3(WIDTHS[-1], 2 * LATENT_CHANNELS, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block["resnets"][0](x)
            if "downsamplers" in block:    # padded on the right and below only
                x = block["downsamplers"][0]["conv"](F.pad(x, (0, 1, 0, 1)))
        x = self.conv_out(F.silu(self.conv_norm_out(self.mid_block(x))))
        mean, log_variance = x.chunk(2, 1)
        return mean, log_variance


class Decoder(nn.Module):
    """Latents [B, 16, h/8, w/8] -> pictures [B, 3, h, w], not clamped."""

    def __init__(self) -> None:
        super().__init__()
        widths = WIDTHS[::-1]
        self.conv_in = _conv3(LATENT_CHANNELS, widths[0], padding=1)
        self.mid_block = _MidBlock()
        self.up_blocks = nn.ModuleList()
        for i, width in enumerate(widths):
            block = nn.ModuleDict({"resnets": nn.ModuleList([
                _Resnet(widths[max(i - 1, 0)], width), _Resnet(width, width)])})
            if _has_next(i):
                block["upsamplers"] = nn.ModuleList([
                    nn.ModuleDict({"conv": _conv3(width, width, padding=1)})])
            self.up_blocks.append(block)
        self.conv_norm_out = _norm(widths[-1])
        self.conv_out = _conv3(widths[-1], 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.mid_block(self.conv_in(z))
        for block in self.up_blocks:
            for resnet in block["resnets"]:
                x = resnet(x)
            if "upsamplers" in block:
                x = F.interpolate(x, scale_factor=2., mode="nearest")
                x = block["upsamplers"][0]["conv"](x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def _has_next(level: int) -> bool:
    """Whether another level follows: the last one neither halves nor doubles the map."""
    return level + 1 < len(WIDTHS)


class _Resnet(nn.Module):
    """[B, n_in, h, w] -> [B, n_out, h, w]"""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(n_in), _conv3(n_in, n_out, padding=1)
        self.norm2, self.conv2 = _norm(n_out), _conv3(n_out, n_out, padding=1)
        if n_in != n_out:
            self.conv_shortcut = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y)))
        return y + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)


class _Attention(nn.Module):
    """Each position of the coarsest map attends to all: one head as wide as the map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.group_norm = _norm(width)
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: Tensor) -> Tensor:
        t = self.group_norm(x).flatten(2).transpose(1, 2)    # [B, h*w, C]
        q, k, v = (p(t)[:, None] for p in (self.to_q, self.to_k, self.to_v))
        y = self.to_out[0](F.scaled_dot_product_attention(q, k, v)[:, 0])
        return x + y.transpose(1, 2).reshape(x.shape)


class _MidBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = WIDTHS[-1]
        self.resnets = nn.ModuleList([_Resnet(width, width), _Resnet(width, width)])
        self.attentions = nn.ModuleList([_Attention(width)])

    def forward(self, x: Tensor) -> Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))
