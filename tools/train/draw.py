"""The renderer: scenes to pictures, in batches, on any torch device.

Shapes are signed distances in units of the picture's side (y grows downwards), laid over one
another from back to front with edges of one pixel. Letters of shapes: n scenes, h = w = size
pixels.
"""
from typing import Callable

import numpy as np
import torch
from torch import Tensor

import things
from canvas import Canvas, over
from palette import GROUND, SKY, THINGS, TINT
from scene import BALLOON, DESERT, SEA, SKIES, Scenes, take

TURN = 6.2832
PAINTERS: list[Callable] = [things.ball, things.cube, things.house, things.tree, things.mushroom,
                            things.balloon]
# half widths of the things, for shadows and islands
HALF_WIDTH = np.array([.115, .125, .145, .12, .12, .0], np.float32)


def draw_bytes(s: Scenes, device: torch.device, size: int = 256, chunk: int = 256) -> Tensor:
    """All scenes as uint8 [n, 3, size, size] on the device, drawn `chunk` at a time."""
    n = len(s["sky"])
    out = torch.empty(n, 3, size, size, dtype=torch.uint8, device=device)
    for a in range(0, n, chunk):
        part = draw(take(s, slice(a, a + chunk)), device, size)
        out[a:a + chunk] = part.mul(255).add(.5).to(torch.uint8)
    return out


def draw(s: Scenes, device: torch.device | str = "cpu", size: int = 256) -> Tensor:
    """Scenes as float [n, 3, size, size] in 0..1."""
    return _Drawing(s, device, size).picture()


class _Drawing:
    """One batch on its way to a picture; each method lays one layer over `self.img`."""

    def __init__(self, s: Scenes, device: torch.device | str, size: int) -> None:
        self.s, self.n, self.canvas = s, len(s["sky"]), Canvas(size, device)
        self.X, self.Y = self.canvas.X, self.canvas.Y
        self.sky, self.ground = self._index("sky"), self._index("ground")
        self.day, self.sunset, self.night = ((self.sky == k).float() for k in range(len(SKIES)))
        self.desert, self.sea = ((self.ground == k).float() for k in (DESERT, SEA))
        self.tint = self._tensor(TINT)[self.sky]                          # [n, 3]
        self.stops = self._tensor(SKY)[self.sky]                          # [n, 3 stops, 3]
        self.far, self.near = self._tensor(GROUND)[self.sky, self.ground].unbind(1)    # [n, 3] each
        self.horizon = self._value("horizon")

    def picture(self) -> Tensor:
        self._paint_sky()
        self._paint_stars()
        self._paint_orb()
        self._paint_clouds()
        self._paint_hills()
        self._paint_ground()
        self._paint_things()
        return self.img.clamp(0, 1)

    # values of the batch

    def _tensor(self, a, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.canvas.tensor(a, dtype)

    def _value(self, name: str) -> Tensor:
        return self._tensor(self.s[name])

    def _index(self, name: str) -> Tensor:
        return self._tensor(self.s[name], torch.long)

    def _by_sky(self, day: tuple, sunset: tuple, night: tuple) -> Tensor:
        """[n, 3]: the colour that goes with each scene's sky."""
        return (self.day[:, None] * self._tensor(day) + self.sunset[:, None] * self._tensor(sunset)
                + self.night[:, None] * self._tensor(night))

    def _constant(self, colour: tuple) -> Tensor:
        return self._tensor(colour).expand(self.n, 3)

    # layers

    def _put(self, alpha: Tensor, colour: Tensor) -> None:
        self.img = over(self.img, alpha, colour)

    def _disc(self, x: Tensor, y: Tensor, radius: Tensor) -> Tensor:
        """[n, h, w]: distance from discs with centres x, y and radii [n]."""
        return ((self.X - px(x)) ** 2 + (self.Y - px(y)) ** 2).sqrt() - px(radius)

    def _paint_sky(self) -> None:
        t = (self.Y / px(self.horizon)).clamp(0, 1)
        upper, lower = (t * 2).clamp(0, 1)[:, None], (t * 2 - 1).clamp(0, 1)[:, None]
        top, middle, bottom = (self.stops[:, k, :, None, None] for k in range(3))
        img = top + (middle - top) * upper + (bottom - middle) * lower
        size = self.canvas.size
        self.img = img.expand(self.n, 3, size, size).contiguous()

    def _paint_stars(self) -> None:
        size, stars = self.canvas.size, self._value("stars")
        x, y = (stars[..., 0] * (size - 8) + 4).long(), (stars[..., 1] * (size * .52) + 4).long()
        bright = (.55 + .45 * stars[..., 2]) * self.night[:, None]
        field = torch.zeros(self.n, size * size, device=stars.device)
        field.scatter_add_(1, y * size + x, bright)
        d2 = torch.arange(-3, 4, device=stars.device, dtype=torch.float32) ** 2
        glow = torch.exp(-(d2[:, None] + d2[None]) / 2.4)[None, None]
        field = torch.nn.functional.conv2d(field.view(self.n, 1, size, size), glow, padding=3)
        self._put(field.clamp(0, 1)[:, 0], self._constant((1, .98, .9)))

    def _paint_orb(self) -> None:
        """Sun or moon, with a glow; some moons are crescents, all have craters."""
        cover = self.canvas.cover
        there, (x, y) = self._value("orb"), self._value("orb_xy").unbind(1)
        y = y + self.sunset * .12
        radius = .062 + .012 * self.sunset - .008 * self.night
        edge = self._disc(x, y, radius)
        colour = self._by_sky((1, .92, .52), (1, .95, .74), (.98, .95, .82))
        glow = torch.exp(-(edge.clamp(min=0) / px(.05 + .05 * self.sunset)))
        self._put(glow * px(there * (.45 - .1 * self.night)), colour)
        disc = cover(edge)
        crescent = px(self._value("crescent") * self.night)
        lit = 1 - cover(self._disc(x + .030, y - .014, radius * .95)) * crescent
        self._put(disc * lit * px(there), colour)
        craters = sum(cover(self._disc(x + dx * radius, y + dy * radius, radius * r))
                      for dx, dy, r in ((-.35, .1, .2), (.25, .4, .15), (.2, -.4, .12)))
        self._put(craters.clamp(0, 1) * lit * disc * px(there * self.night) * .5,
                  self._constant((.86, .83, .74)))

    def _paint_clouds(self) -> None:
        """Up to three, by day and at sunset: four discs, cut off flat below."""
        cloud = self._value("cloud")
        colour = self._by_sky((1, 1, 1), (1, .84, .78), (.3, .33, .45))
        for k in range(3):
            x, y = cloud[:, k, 0] * 1.1 - .05, .07 + .30 * cloud[:, k, 1]
            r = .035 + .03 * cloud[:, k, 2]
            d = torch.full((self.n, self.canvas.size, self.canvas.size), 9., device=cloud.device)
            for dx, dy, rr in ((-1.3, .15, .62), (-.5, -.25, .9), (.5, -.1, .75), (1.35, .2, .55)):
                d = torch.minimum(d, self._disc(x + dx * r, y + dy * r, rr * r))
            d = torch.maximum(d, self.Y - px(y + .45 * r))
            there = self._tensor(self.s["n_clouds"] > k) * (1 - self.night)
            self._put(self.canvas.cover(d, 2.0) * px(there) * (.9 - .25 * px(self.sunset)), colour)

    def _paint_hills(self) -> None:
        """Far hills behind the ground, in the haze."""
        x, phase, frequency = self.canvas.line[None], self._value("phase"), self._value("frequency")
        y = (self.horizon[:, None] - .045
             - .030 * torch.sin(TURN * 1.3 * frequency[:, 2:3] * x + phase[:, 2:3])
             - .018 * torch.sin(TURN * 2.9 * frequency[:, 0:1] * x + phase[:, 1:2]))
        haze = self.stops[:, 2] * .55 + self.far * .45 * self.tint
        haze = (haze * (1 - .18 * self.day[:, None])
                + self.day[:, None] * .18 * self._tensor((.55, .68, .85)))
        self._put(self.canvas.cover(y[:, None, :] - self.Y) * px(self._value("hills")), haze)

    def _paint_ground(self) -> None:
        """A gentle curve (level at sea) with a fold of dunes or drifts, or with waves. Sets
        self.ground_y [n, w]."""
        cover, x = self.canvas.cover, self.canvas.line[None]
        phase, frequency = self._value("phase"), self._value("frequency")
        height = self._value("wave_height") * (1 - self.sea * .97)
        self.ground_y = self.horizon[:, None] + height[:, None] * (
            torch.sin(TURN * frequency[:, 0:1] * x + phase[:, 0:1])
            + .5 * torch.sin(TURN * 2 * frequency[:, 1:2] * x + phase[:, 1:2]))
        depth = ((self.Y - self.ground_y[:, None, :]) / (1 - px(self.horizon))).clamp(0, 1)
        far, near = self.far[..., None, None], self.near[..., None, None]
        colour = far + (near - far) * (depth ** .8)[:, None]

        fold = (self.horizon[:, None] + .13
                + .03 * torch.sin(TURN * .8 * frequency[:, 1:2] * x + phase[:, 2:3]))[:, None, :]
        shade = cover(fold - self.Y, 3.0) * px((1 - self.sea) * .10)
        shade = shade * torch.exp(-((self.Y - fold).clamp(min=0) / .12))
        colour = colour * (1 + shade[:, None] * (1 - 2 * px(self.desert)[:, None] * .9))

        ripple = .9 * torch.sin(TURN * 2.2 * self.X + px(phase[:, 0]) + 5 * depth)
        waves = torch.sin(TURN * 9 * (depth + .02).sqrt() + ripple + px(phase[:, 1]))
        waves = (waves - .55).clamp(min=0) * px(self.sea) * .22
        colour = colour + waves[:, None] * (1.0 - .45 * px(self.night)[:, None])
        self._put(cover(self.ground_y[:, None, :] - self.Y, 1.4), colour.clamp(0, 1))

    def _paint_things(self) -> None:
        size = self.canvas.size
        scale = torch.where(self._index("size") == 1, 1.0, .66) * self._value("scale")
        x = .2 + .3 * self._value("place") + self._value("shift_x")
        shift_y = self._value("shift_y")
        column = (x * size).long().clamp(0, size - 1)
        y = torch.gather(self.ground_y, 1, column) + .075 + .075 * shift_y
        n_things, kind = self._index("n_things"), self._index("kind")
        colour = self._tensor(THINGS)[self._index("colour")] * self.tint[:, None]
        half_width = self._tensor(HALF_WIDTH)[kind] * scale
        for k in range(3):
            stands = (n_things > k).float() * (kind[:, k] != BALLOON).float()
            self._paint_footing(x[:, k], y[:, k], half_width[:, k], stands)
        for k in range(3):
            for j, paint in enumerate(PAINTERS):
                rows = ((n_things > k) & (kind[:, k] == j)).nonzero()[:, 0]
                if not rows.numel():
                    continue
                foot = .24 + .13 * shift_y[rows, k] if j == BALLOON else y[rows, k]
                self.img[rows] = paint(things.Thing(
                    self.canvas, self.img[rows], self.X - px(x[rows, k]), self.Y - px(foot),
                    px(scale[rows, k]), colour[rows, k], self.tint[rows], self.night[rows]))

    def _paint_footing(self, x: Tensor, y: Tensor, half_width: Tensor, stands: Tensor) -> None:
        """A shadow under each thing, at sea an island with its surf. x, y, half_width, stands
        [n]."""
        cover, at_sea = self.canvas.cover, px(stands * self.sea)
        height = .020 + .17 * half_width
        island = self._ellipse(x, y + .004, half_width * 1.35, height)
        surf = self._tensor((.93, .97, 1.)) * self.tint * (1 - .35 * self.night[:, None])
        sand = self._tensor(GROUND)[self.sky, DESERT, 0] * (1 - .04 * self.sunset[:, None])
        self._put(cover(island - .010, 3.0) * at_sea * .55, surf)
        self._put(cover(island, 1.4) * at_sea, sand)
        shadow = self._ellipse(x + half_width * .22, y, half_width * 1.12, .010 + .13 * half_width)
        self._put(cover(shadow, 5.0) * px(stands) * .30, self.far * .18)

    def _ellipse(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """[n, h, w]: distance from ellipses, in units right along the shorter half axis b."""
        d = (((self.X - px(x)) / px(a)) ** 2 + ((self.Y - px(y)) / px(b)) ** 2).sqrt() - 1
        return d * px(b)


def px(t: Tensor) -> Tensor:
    """One number a scene [n], over the picture [n, 1, 1]."""
    return t[:, None, None]
