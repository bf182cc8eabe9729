"""Training in bfloat16 with float32 master weights, their running mean, and AdamW or Muon.

The model computes in bfloat16. Here are its master weights, to which the steps go, and the mean
over the last steps, which is what a stage leaves behind. Muon (momentum, made orthogonal) moves the
hidden matrices if asked; AdamW the rest.
"""
import torch
from torch import Tensor, nn

# what the names of hidden matrices contain
HIDDEN = (".attn.", ".ff.", ".ff_context.", ".proj_mlp", ".self_attn.", ".mlp.fc",
          ".SelfAttention.q", ".SelfAttention.k", ".SelfAttention.v", ".SelfAttention.o",
          ".DenseReluDense.w")
MOMENTUM, LARGEST_GRADIENT = .95, 1.0


class Optimiser:
    def __init__(self, model: nn.Module, betas: tuple[float, float], weight_decay: float,
                 mean_decay: float, muon: bool = False) -> None:
        """Turns the model to bfloat16."""
        self._names = [name for name, _ in model.named_parameters()]
        self._master = [nn.Parameter(p.detach().float().clone()) for p in model.parameters()]
        self._mean = [p.detach().clone() for p in self._master]
        self._model = list(model.to(torch.bfloat16).parameters())
        self._weight_decay, self._mean_decay, self._n_steps = weight_decay, mean_decay, 0
        named = list(zip(self._names, self._master))
        hidden = {name: p for name, p in named if muon and is_hidden(name, p)}
        rest = [p for name, p in named if name not in hidden]
        self._adam = torch.optim.AdamW(
            [{"params": [p for p in rest if p.dim() >= 2], "weight_decay": weight_decay},
             {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.}],
            betas=betas, fused=rest[0].is_cuda)
        self._stacks: dict[torch.Size, list[nn.Parameter]] = {}
        for p in hidden.values():
            self._stacks.setdefault(p.shape, []).append(p)
        self._momentum = {shape: torch.zeros(len(ps), *shape, device=ps[0].device)
                          for shape, ps in self._stacks.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One step by the gradients that the model holds; they are cleared."""
        for master, p in zip(self._master, self._model):
            master.grad = p.grad.float()
            p.grad = None
        nn.utils.clip_grad_norm_(self._master, LARGEST_GRADIENT)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        for shape, ps in self._stacks.items():
            gradient = torch.stack([p.grad for p in ps])
            momentum = self._momentum[shape].mul_(MOMENTUM).add_(gradient)
            # .2 sqrt(longer side): steps as large as AdamW's, so that one lr serves both
            update = orthogonal(gradient.add_(momentum, alpha=MOMENTUM))
            torch._foreach_mul_(ps, 1 - lr * self._weight_decay)
            torch._foreach_add_(ps, list(update.unbind(0)), alpha=-lr * .2 * max(shape) ** .5)
        torch._foreach_copy_(self._model, self._master)
        # the mean is of few steps at first, so that the fresh weights soon leave it
        decay = min(self._mean_decay, (self._n_steps + 1) / (self._n_steps + 10))
        torch._foreach_lerp_(self._mean, self._master, 1 - decay)
        self._n_steps += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean weights, float32, under the model's names; later steps change them."""
        return dict(zip(self._names, self._mean))


def is_hidden(name: str, p: Tensor) -> bool:
    """Whether Muon takes a parameter: matrices between hidden states, neither embeddings nor biases
    of attention."""
    return p.dim() == 2 and any(h in name for h in HIDDEN) and "relative" not in name


def orthogonal(x: Tensor) -> Tensor:
    """Matrices [n, r, c] brought near the orthogonal ones with the same singular vectors
    (Newton-Schulz in bfloat16)."""
    x = x.to(torch.bfloat16)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.transpose(1, 2) if tall else x).float()
