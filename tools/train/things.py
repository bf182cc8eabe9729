"""Painters of the six kinds of things. Each lays a thing over the pictures it is given and returns
them.

Coordinates are relative to the middle of the thing's foot (a balloon's: the middle of its
envelope), y growing downwards, in picture sides. Numbers in the painters are proportions; light
comes from the upper left.
"""
from dataclasses import dataclass

import torch
from torch import Tensor

from canvas import Canvas, over, rectangle
from palette import BROWN, CREAM, LAMP


@dataclass
class Thing:
    """One thing in each of m pictures."""
    canvas: Canvas
    img: Tensor       # [m, 3, h, w] what is behind it
    x: Tensor         # [m, 1, w]
    y: Tensor         # [m, h, 1]
    scale: Tensor     # [m, 1, 1]
    colour: Tensor    # [m, 3], as the sky lights it
    tint: Tensor      # [m, 3], of the sky
    night: Tensor     # [m], 1 or 0

    def put(self, distance: Tensor, colour: Tensor) -> None:
        """Fill a shape with a colour ([m, 3] or [m, 3, h, w])."""
        self.img = over(self.img, self.canvas.cover(distance), colour)

    def lit(self, colour) -> Tensor:
        """[1, 3] -> [m, 3]: a fixed colour under this sky."""
        return self.canvas.tensor(colour)[None] * self.tint

    def shaded(self, light: Tensor) -> Tensor:
        """[m, 3, h, w]: the thing's colour times a light [m, h, w]."""
        return self.colour[..., None, None] * light[:, None]


def _dome_light(u: Tensor, v: Tensor, d2: Tensor) -> Tensor:
    """[m, h, w]: light on a half sphere. u, v are 0 in its middle and 1 at its rim, d2 is u^2 +
    v^2."""
    return (-.5 * u - .62 * v + .6 * (1 - d2).clamp(min=0).sqrt()).clamp(min=0)


def ball(t: Thing) -> Tensor:
    r, x = .115 * t.scale, t.x
    y = t.y + r
    light = _dome_light(x / r, y / r, (x ** 2 + y ** 2) / r ** 2)
    shine = (-(((x / r + .36) ** 2 + (y / r + .42) ** 2) / .030)).exp()
    colour = t.shaded(.62 + .48 * light)
    colour = colour + (1 - colour) * (shine * .75)[:, None]
    t.put((x ** 2 + y ** 2).sqrt() - r, colour.clamp(0, 1))
    return t.img


def cube(t: Thing) -> Tensor:
    s, d, y = .185 * t.scale, .062 * t.scale, t.y
    x = t.x + d / 2
    h = s / 2
    top = torch.maximum(torch.maximum(-s - d - y, y + s - .004),
                        torch.maximum(-h - x - (y + s), x + (y + s) - h) * .7)
    side = torch.maximum(torch.maximum(h - x - .004, x - h - d),
                         torch.maximum(-s - (x - h) - y, y + (x - h)) * .7)
    t.put(side, t.colour * .70)
    t.put(top, (t.colour * 1.14).clamp(0, 1))
    t.put(rectangle(x, y, -h, h, -s, 0 * s), t.shaded(.96 - .22 * (y / s + 1).clamp(0, 1)))
    return t.img


def house(t: Thing) -> Tensor:
    half, wall, roof, x, y = .125 * t.scale, .150 * t.scale, .125 * t.scale, t.x, t.y
    brown, cream = t.lit(BROWN), t.lit(CREAM)
    lamp = t.canvas.tensor(LAMP)[None]
    t.put(rectangle(x, y, half * .42, half * .68, -wall - roof * .98, -wall), brown * .85)
    t.put(rectangle(x, y, -half, half, -wall, 0 * wall),
          t.shaded(1.0 - .16 * (x / half * .5 + .5).clamp(0, 1)))
    slope = (x.abs() - (y + wall + roof) / roof * half * 1.18) * .7
    t.put(torch.maximum(slope, y + wall - .003), t.colour * .78)
    t.put(rectangle(x, y, -half * .20, half * .20, -wall * .55, 0 * wall), brown * .8)
    t.put((x ** 2 + (y + wall * .55) ** 2).sqrt() - half * .20, brown * .8)
    glass = t.night[:, None] * lamp + (1 - t.night[:, None]) * cream
    for side in (-1, 1):
        left, right = (side * .60 - .20) * half, (side * .60 + .20) * half
        t.put(rectangle(x, y, left, right, -wall * .74, -wall * .38), glass)
        t.put(rectangle(x, y, (side * .60 - .025) * half, (side * .60 + .025) * half,
                        -wall * .74, -wall * .38), brown)
        t.put(rectangle(x, y, left, right, -wall * .575, -wall * .545), brown)
    return t.img


def tree(t: Thing) -> Tensor:
    w, h, x, y = .118 * t.scale, .34 * t.scale, t.x, t.y
    t.put(rectangle(x, y, -w * .17, w * .17, -h * .22, 0 * h), t.lit(BROWN))
    shade = .92 - .30 * (x / w * .5 + .5).clamp(0, 1)
    for tip, rim, width in ((-.62, -.17, 1.0), (-.82, -.42, .80), (-1.0, -.64, .58)):
        down = (y - tip * h) / ((rim - tip) * h)
        triangle = torch.maximum((x.abs() - down * w * width) * .75, y - rim * h)
        t.put(triangle, t.shaded(shade * (1.10 - .22 * down.clamp(0, 1))).clamp(0, 1))
    return t.img


def mushroom(t: Thing) -> Tensor:
    w, h, x, y = .120 * t.scale, .235 * t.scale, t.x, t.y
    cap_h = h * .56
    cream = t.lit(CREAM)
    stem_w = w * (.34 + .10 * ((y + h * .5) / (h * .5)).clamp(0, 1))
    stem = torch.maximum(x.abs() - stem_w, torch.maximum(y, -h * .60 - y))
    t.put(stem, cream[..., None, None] * (.97 - .20 * (x / w + .5).clamp(0, 1))[:, None])
    v = y + h - cap_h    # 0 at the cap's rim
    d2 = (x / w) ** 2 + (v / cap_h) ** 2
    cap = torch.maximum((d2.clamp(min=1e-6).sqrt() - 1) * cap_h, v)
    light = _dome_light(x / w, v / cap_h, d2)
    t.put(cap, t.shaded(.66 + .42 * light).clamp(0, 1))
    inside = t.canvas.cover(cap)
    for dx, dy, r in ((-.05, -.62, .15), (-.56, -.30, .12), (.48, -.38, .13), (.05, -.17, .09)):
        dot = t.canvas.cover(((x - dx * w) ** 2 + (v - dy * cap_h) ** 2).sqrt() - r * w)
        t.img = over(t.img, dot * inside, cream)
    return t.img


def balloon(t: Thing) -> Tensor:
    r, x, y = .115 * t.scale, t.x, t.y
    brown = t.lit(BROWN)
    basket = r * 1.72    # its upper edge
    spread = (.16 + .10 * (basket - y) / r) * r
    ropes = torch.minimum((x - spread).abs(), (x + spread).abs()) - .0022
    t.put(torch.maximum(ropes, torch.maximum(r * 1.1 - y, y - basket)), brown * .8)
    cone = torch.maximum((x.abs() - (r * 1.42 - y) / r * .86 * r) * .75,
                         torch.maximum(.55 * r - y, y - r * 1.22))
    envelope = torch.minimum((x ** 2 + y ** 2).sqrt() - r, cone)
    meridian = x / (r * (1 - (y / r * .82).clamp(-1, 1) ** 2).clamp(min=.05).sqrt())
    stripes = torch.cos(torch.asin(meridian.clamp(-1, 1) * .98) * 5.0)
    light = _dome_light(x / r, y / r, (x ** 2 + y ** 2) / r ** 2)
    colour = t.shaded((.70 + .36 * light) * (1 + .10 * (stripes * 6).clamp(-1, 1)))
    t.put(envelope, colour.clamp(0, 1))
    t.put(rectangle(x, y, -r * .20, r * .20, basket, basket + r * .30), brown)
    return t.img
