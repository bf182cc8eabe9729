"""What painters share: the picture's coordinates, edges of one pixel, and laying a colour over a
picture."""
import numpy as np
import torch
from torch import Tensor


class Canvas:
    """A square of size x size pixels. X [1, 1, size] and Y [1, size, 1] are pixel centres in
    picture sides."""

    def __init__(self, size: int, device: torch.device | str) -> None:
        self.size, self.device = size, device
        self.line = (torch.arange(size, device=device, dtype=torch.float32) + .5) / size
        self.X, self.Y = self.line[None, None, :], self.line[None, :, None]
        self.edge = 1.25 / size

    def tensor(self, a, dtype: torch.dtype = torch.float32) -> Tensor:
        """An array or a tuple of numbers on the canvas's device."""
        return torch.as_tensor(np.ascontiguousarray(a), device=self.device).to(dtype)

    def cover(self, distance: Tensor, softness: float = 1.0) -> Tensor:
        """How much of each pixel a shape covers, 0..1, from the signed distance of its edge."""
        return (0.5 - distance / (self.edge * softness)).clamp(0, 1)


def over(img: Tensor, alpha: Tensor, colour: Tensor) -> Tensor:
    """img [n, 3, h, w] with a colour ([n, 3] or [n, 3, h, w]) laid over it as far as alpha ([n, h,
    w]) says."""
    if colour.dim() == 2:
        colour = colour[..., None, None]
    return img + alpha[:, None] * (colour - img)


def rectangle(x: Tensor, y: Tensor, x0, x1, y0, y1) -> Tensor:
    """Signed distance, along the axis where it is larger, from the rectangle x0..x1, y0..y1."""
    return torch.maximum(torch.maximum(x0 - x, x - x1), torch.maximum(y0 - y, y - y1))
