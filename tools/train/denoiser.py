"""What learns to paint: the transformer and the two text encoders, trained together."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flux import Flux
from text import ClipText, T5Encoder
from vocabularies import CLIP_LENGTH, T5_LENGTH, T5_PAD_ID
from vocabularies import Encoder as Tokenizers


class Denoiser(nn.Module):
    """Its three parts are named like their folders in an exported model."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        super().__init__()
        self.transformer = Flux()
        self.text_encoder = ClipText(tokenizers.clip_size, tokenizers.eos)
        self.text_encoder_2 = T5Encoder(tokenizers.t5_size)

    def forward(self, x: Tensor, sigma: Tensor, clip: Tensor, t5: Tensor,
                rope: tuple[Tensor, Tensor]) -> Tensor:
        """x [B, Ti, 64], sigma [B], ids clip [B, <= 77] and t5 [B, Tt] -> velocity [B, Ti, 64]
        float32."""
        text, pooled = self.text_encoder_2(t5), self.text_encoder(clip)
        return self.transformer(x, text, pooled, sigma, rope).float()


def padded_ids(tokenizers: Tokenizers, captions: list[str],
               device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids clip [B, 77] and t5 [B, 64]. Captions are of the grammar's words; "" is the empty
    caption."""
    pairs = [tokenizers(c) for c in captions]
    clip = torch.full((len(pairs), CLIP_LENGTH), tokenizers.eos)
    t5 = torch.full((len(pairs), T5_LENGTH), T5_PAD_ID)
    for i, (clip_ids, t5_ids) in enumerate(pairs):
        clip[i, :len(clip_ids)], t5[i, :len(t5_ids)] = torch.tensor(clip_ids), torch.tensor(t5_ids)
    return clip.to(device), t5.to(device)


def longer(t5: Tensor, length: int) -> Tensor:
    """T5 ids [B, 64] padded further to [B, length]."""
    return F.pad(t5, (0, length - t5.shape[1]), value=T5_PAD_ID)
