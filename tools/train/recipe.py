"""Every number of the training recipe that one may want to turn. Learning rates' courses stand
beside their loops."""
from dataclasses import asdict, dataclass

# how a budget of minutes is divided among the stages
TIME_SHARES = {"vae": .10, "decoder": .12, "flow": .72, "guide": .06}


@dataclass(frozen=True)
class Recipe:
    """The full recipe, meant for one large GPU."""
    scenes: int = 240_000              # that the transformer sees
    captions: int = 4                  # of each scene
    p_junk: float = .04                # captions with a word that means nothing
    # (picture side, T5 length, share of the batches): most as the model is used, the rest so that
    # other sizes and lengths work too; few different ones, since each is compiled for itself
    shapes: tuple[tuple[int, int, float], ...] = (
        (256, 64, .60), (192, 64, .08), (320, 64, .08), (384, 64, .06),
        (256, 128, .06), (256, 256, .05), (256, 512, .04), (384, 256, .03))
    vae_pictures: int = 60_000
    vae_steps: int = 12_000
    vae_batch: int = 48                # windows; a quarter of it in whole pictures
    vae_window: int = 128
    kl: float = 1e-3
    decoder_pictures: int = 20_000
    decoder_steps: int = 15_000
    decoder_batch: int = 12
    decoder_noise: float = .22         # at most, in deviations of the latents
    flow_steps: int = 60_000           # 15 million samples
    flow_batch: int = 256              # of 256 pixels and 64 T5 tokens; fewer of larger ones
    flow_lr: float = 1e-3
    flow_warm_up: int = 400
    p_empty: float = .05               # captions left away, for guidance
    guide_steps: int = 1_200
    guide_lr: float = 3e-4
    guidance: float = 2.2              # distilled into the weights
    test_scenes: int = 512             # unseen ones, for the VAE's figures
    judged_scenes: int = 300           # drawn ones, for the judge's own figures
    judged_captions: int = 200
    judged_steps: int = 16

    def sizes(self) -> dict[int, float]:
        """Share of each picture side."""
        out: dict[int, float] = {}
        for size, _, share in self.shapes:
            out[size] = out.get(size, 0.) + share
        return out

    def as_json(self) -> dict:
        return asdict(self) | {"shapes": [list(s) for s in self.shapes]}


# every stage for a few steps on a CPU: shows that the code runs, learns nothing
SMOKE = Recipe(scenes=40, shapes=((64, 64, .5), (96, 64, .25), (64, 128, .25)),
               vae_pictures=16, vae_steps=3, vae_batch=4, vae_window=48,
               decoder_pictures=8, decoder_steps=2, decoder_batch=2,
               flow_steps=4, flow_batch=2, flow_warm_up=2, guide_steps=2,
               test_scenes=2, judged_scenes=2, judged_captions=2, judged_steps=1)
