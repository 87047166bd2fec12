"""The model in the picture: a fashion illustrator's figure, about eight heads tall, that can hold a pose.

Lengths are in heads, measured from the hollow of the neck, x to the right and y down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

Point = tuple[float, float]
Colour = tuple[int, int, int]
Limb = tuple[Point, Point, float, float]
"""From, to, and half its width at either end."""

TOP, FOOT = -1.75, 6.75
"""Where a standing figure begins and ends."""
GARMENT_HEIGHT, GARMENT_WIDTH = 4.45, 3.1

_SHOULDER, _HIP = (0.74, 0.3), (0.36, 2.7)
_UPPER_ARM, _FOREARM, _THIGH, _SHIN = 1.3, 1.15, 1.9, 1.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pose:
    """Angles in degrees away from hanging straight down; positive is outwards, on either side."""

    arms: tuple[float, float, float, float]
    """Left upper arm, left forearm, right upper arm, right forearm."""
    legs: tuple[float, float, float, float] = (5, 2, 5, 2)
    lean: float = 0.0
    head: float = 0.0
    """How far the head goes to the side."""
    arms_in_front: tuple[bool, bool] = (False, False)
    width: float = 1.0
    """Of the garment: a turn makes it narrow, a twirl wide."""
    lift: float = 0.0
    """Above the ground."""
    seated: bool = False


POSES: dict[tuple[str, ...], Pose] = {
    ("arms crossed", "crossed arms", "交叉", "抱臂"): Pose(
        arms=(14, -80, 14, -86), arms_in_front=(True, True), lean=1, legs=(8, 3, 4, 1)
    ),
    ("hands on hips", "akimbo", "双手叉腰"): Pose(arms=(42, -48, 42, -48), legs=(12, 6, 7, 2), head=0.08),
    ("hand on hip", "hand on waist", "叉腰"): Pose(
        arms=(42, -48, 9, 3), legs=(4, 1, 13, 7), lean=-3, head=-0.1
    ),
    ("walk", "stride", "stroll", "catwalk", "走"): Pose(
        arms=(24, 12, -6, -16), legs=(-9, -3, 11, -3), lean=2, head=0.05, width=0.96
    ),
    ("jump", "leap", "跳"): Pose(arms=(118, 148, 112, 140), legs=(20, -38, 16, -20), lift=0.5, width=1.1),
    ("twirl", "spin", "dancing", "dance", "旋转", "转圈", "舞"): Pose(
        arms=(74, 98, 66, 84), legs=(-4, -2, 15, -26), lean=-4, head=-0.1, width=1.16
    ),
    ("sit", "seated", "坐"): Pose(arms=(20, -32, 26, -36), arms_in_front=(True, True), seated=True, head=0.1),
    ("behind head", "behind her head", "抱头"): Pose(arms=(128, 222, 128, 222), legs=(6, 2, 12, 4), lean=2),
    ("hair", "face", "chin", "撩发", "托腮"): Pose(
        arms=(10, 4, 44, 194), arms_in_front=(False, True), legs=(4, 2, 10, 5), lean=-3, head=0.12
    ),
    ("wave", "waving", "raise", "reach", "arms up", "挥手", "举"): Pose(
        arms=(146, 170, 14, 6), legs=(6, 2, 6, 3), lean=3, head=-0.08
    ),
    ("pocket", "口袋", "插兜"): Pose(arms=(27, -20, 24, -22), legs=(7, 2, 12, 5), lean=1.5, head=0.06),
    ("over shoulder", "over her shoulder", "turn", "profile", "side", "back", "侧", "背", "回眸"): Pose(
        arms=(16, 6, 22, 4), legs=(2, 1, 8, 8), lean=-5, head=-0.2, width=0.8
    ),
    ("lean", "wall", "倚", "靠"): Pose(arms=(20, 12, 30, -40), legs=(2, 0, 18, -8), lean=7, head=0.1),
    ("stand", "straight", "front", "站", "正面"): Pose(arms=(10, 4, 10, 4), legs=(5, 2, 9, 4), head=0.03),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Who wears it: the same through a whole set."""

    skin: Colour
    hair: Colour
    style: int
    shoes: Colour


MODELS = (
    Model(skin=(233, 190, 160), hair=(52, 34, 30), style=0, shoes=(60, 40, 36)),
    Model(skin=(196, 142, 108), hair=(38, 26, 26), style=1, shoes=(236, 224, 208)),
    Model(skin=(244, 208, 182), hair=(140, 84, 48), style=2, shoes=(120, 60, 48)),
    Model(skin=(136, 90, 66), hair=(28, 22, 24), style=0, shoes=(214, 176, 120)),
    Model(skin=(240, 202, 170), hair=(30, 28, 34), style=1, shoes=(40, 40, 46)),
)


def mirrored(pose: Pose) -> Pose:
    a, b, c, d = pose.arms
    e, f, g, h = pose.legs
    left, right = pose.arms_in_front
    return replace(
        pose,
        arms=(c, d, a, b),
        legs=(g, h, e, f),
        lean=-pose.lean,
        head=-pose.head,
        arms_in_front=(right, left),
    )


class Figure:
    """Draws one model in one pose; `scale` is pixels to a head, `origin` the hollow of the neck."""

    def __init__(self, layer: Image.Image, *, model: Model, pose: Pose, scale: float, origin: Point) -> None:
        self._layer = layer
        self._draw = ImageDraw.Draw(layer)
        self._model = model
        self._pose = pose
        self._scale = scale
        self._origin = origin
        turn = math.radians(pose.lean)
        self._cos, self._sin = math.cos(turn), math.sin(turn)

    def draw(self, garment: Image.Image) -> None:
        self._hair_behind()
        if self._pose.seated:
            self._stool()
        arms = [self._arm(side) for side in (0, 1)]
        behind = [part for side in (0, 1) for part in self._leg(side)]
        for side, (shoulder, elbow, hand) in enumerate(arms):
            arm = [(shoulder, elbow, 0.19, 0.14)]
            behind += arm if self._pose.arms_in_front[side] else [*arm, *_forearm(elbow, hand)]
        self._skin(
            [
                *behind,
                ((0, -0.5), (0, 0.2), 0.16, 0.2),
                ((0, 0.2), (-0.68, 0.34), 0.17, 0.17),
                ((0, 0.2), (0.68, 0.34), 0.17, 0.17),
                ((0, 0.5), (0, 1.4), 0.56, 0.5),
            ]
        )
        self._shoes()
        self._wear(garment)
        for side, (_, elbow, hand) in enumerate(arms):
            if self._pose.arms_in_front[side]:
                self._skin(_forearm(elbow, hand))
        self._head()

    def _at(self, point: Point) -> Point:
        """From heads to pixels, leaning about the feet's height less and less."""
        x, y = point[0] * self._cos - point[1] * self._sin * 0.5, point[1]
        return (self._origin[0] + x * self._scale, self._origin[1] + (y - self._pose.lift) * self._scale)

    def _arm(self, side: int) -> tuple[Point, Point, Point]:
        sign = -1 if side == 0 else 1
        upper, fore = self._pose.arms[side * 2 : side * 2 + 2]
        shoulder = (sign * _SHOULDER[0] * min(1.0, self._pose.width), _SHOULDER[1])
        elbow = _along(shoulder, sign, upper, _UPPER_ARM)
        return shoulder, elbow, _along(elbow, sign, fore, _FOREARM)

    def _joints(self, side: int) -> tuple[Point, Point, Point]:
        """Hip, knee, ankle."""
        sign = -1 if side == 0 else 1
        thigh, shin = self._pose.legs[side * 2 : side * 2 + 2]
        hip = (sign * _HIP[0], _HIP[1])
        if self._pose.seated:
            knee = (sign * 0.42 + 0.5, 4.25)
            ankle = (knee[0] - 0.2 - 0.25 * sign, knee[1] + 2.0)
        else:
            knee = _along(hip, sign, thigh, _THIGH)
            ankle = _along(knee, sign, shin, _SHIN)
        return hip, knee, ankle

    def _leg(self, side: int) -> list[Limb]:
        hip, knee, ankle = self._joints(side)
        calf = (knee[0] + (ankle[0] - knee[0]) * 0.35, knee[1] + (ankle[1] - knee[1]) * 0.35)
        return [(hip, knee, 0.36, 0.2), (knee, calf, 0.2, 0.2), (calf, ankle, 0.2, 0.1)]

    def _shoes(self) -> None:
        for side, sign in enumerate((-1, 1)):
            _, _, ankle = self._joints(side)
            toe = (ankle[0] + sign * 0.14, ankle[1] + 0.36)
            self._capsule((ankle[0] + sign * 0.03, ankle[1] + 0.14), toe, 0.1, 0.11, self._model.shoes)

    def _skin(self, limbs: Sequence[Limb]) -> None:
        """All the shade first, then all the light: no seams where limbs meet."""
        shade = _tone(self._model.skin, 0.86)
        for start, end, wide, narrow in limbs:
            self._capsule(start, end, wide, narrow, shade)
        for start, end, wide, narrow in limbs:
            a, b = (start[0] - 0.03, start[1]), (end[0] - 0.03, end[1])
            self._capsule(a, b, wide * 0.8, narrow * 0.8, self._model.skin)

    def _capsule(self, start: Point, end: Point, wide: float, narrow: float, colour: Colour) -> None:
        (x0, y0), (x1, y1) = self._at(start), self._at(end)
        r0, r1 = wide * self._scale, narrow * self._scale
        angle = math.atan2(y1 - y0, x1 - x0) + math.pi / 2
        nx, ny = math.cos(angle), math.sin(angle)
        self._draw.polygon(
            [
                (x0 + nx * r0, y0 + ny * r0),
                (x1 + nx * r1, y1 + ny * r1),
                (x1 - nx * r1, y1 - ny * r1),
                (x0 - nx * r0, y0 - ny * r0),
            ],
            fill=colour,
        )
        for x, y, r in ((x0, y0, r0), (x1, y1, r1)):
            self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def _wear(self, garment: Image.Image) -> None:
        tall = garment.height / garment.width
        height = min(GARMENT_HEIGHT, GARMENT_WIDTH * tall)
        width = height / tall * self._pose.width
        left, top = self._at((-width / 2, -0.06))
        size = (round(width * self._scale), round(height * self._scale))
        # The hem swings with the lean: a shear about the shoulders.
        swing = self._sin * 0.5
        worn = garment.resize(size, Image.Resampling.BILINEAR)
        margin = math.ceil(abs(swing) * size[1])
        worn = worn.transform(
            (size[0] + 2 * margin, size[1]), Image.Transform.AFFINE, (1, swing, -margin, 0, 1, 0)
        )
        self._layer.paste(worn, (round(left) - margin, round(top)), worn)

    def _hair_behind(self) -> None:
        x, hair = self._pose.head, self._model.hair
        if self._model.style == 1:
            self._capsule((x, -0.9), (x * 0.6, 0.55), 0.5, 0.42, hair)
        elif self._model.style == 2:
            self._capsule((x, -0.9), (x, -0.45), 0.5, 0.5, hair)

    def _head(self) -> None:
        x, skin, hair = self._pose.head, self._model.skin, self._model.hair
        self._capsule((x, -0.98), (x, -0.62), 0.4, 0.3, _tone(skin, 0.9))
        self._capsule((x - 0.03, -0.98), (x - 0.02, -0.64), 0.36, 0.27, skin)
        left, top = self._at((x - 0.44, -1.46))
        right, bottom = self._at((x + 0.44, -0.66))
        self._draw.pieslice((left, top, right, bottom), 180, 360, fill=hair)
        side = 1 if x >= 0 else -1
        self._capsule((x - 0.36 * side, -1.1), (x - 0.4 * side, -0.86), 0.08, 0.05, hair)
        self._capsule((x + 0.1 * side, -1.25), (x + 0.38 * side, -0.95), 0.14, 0.06, hair)
        if self._model.style == 0:
            bun_x, bun_y = self._at((x + 0.04, -1.56))
            r = 0.21 * self._scale
            self._draw.ellipse((bun_x - r, bun_y - r, bun_x + r, bun_y + r), fill=_tone(hair, 1.15))
        pen = max(1, round(self._scale * 0.03))
        for eye in (-0.15, 0.15):
            ex, ey = self._at((x + eye + 0.04 * side, -0.86))
            w = 0.075 * self._scale
            self._draw.arc((ex - w, ey - w, ex + w, ey + w * 0.9), 10, 170, fill=_tone(hair, 0.9), width=pen)
        mx, my = self._at((x + 0.03 * side, -0.56))
        self._draw.ellipse(
            (
                mx - 0.085 * self._scale,
                my - 0.03 * self._scale,
                mx + 0.085 * self._scale,
                my + 0.04 * self._scale,
            ),
            fill=(186, 72, 70),
        )

    def _stool(self) -> None:
        wood = (150, 112, 80)
        for foot in (-0.75, 0.75):
            self._capsule((foot * 0.8, 3.6), (foot, 6.55), 0.09, 0.06, _tone(wood, 0.8))
        self._capsule((-0.8, 3.55), (0.8, 3.55), 0.17, 0.17, wood)


def _forearm(elbow: Point, hand: Point) -> list[Limb]:
    dx, dy = hand[0] - elbow[0], hand[1] - elbow[1]
    reach = 0.22 / math.hypot(dx, dy)
    tip = (hand[0] + dx * reach, hand[1] + dy * reach)
    return [(elbow, hand, 0.14, 0.09), (hand, tip, 0.12, 0.07)]


def _along(start: Point, sign: int, angle: float, length: float) -> Point:
    turn = math.radians(angle)
    return (start[0] + sign * math.sin(turn) * length, start[1] + math.cos(turn) * length)


def _tone(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(part * factor)) for part in colour)
    return (red, green, blue)
