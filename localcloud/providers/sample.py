"""The garment that ships with the project, so that the first run needs no photo: a summer dress, drawn here.

`python -m localcloud.providers.sample` writes `localcloud/sample/garment.jpg` again.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

SAMPLE = Path(__file__).parent.parent / "sample" / "garment.jpg"

_SIZE = (900, 1200)
_PAPER = (238, 234, 228)
_CLOTH = (196, 82, 62)
_TRIM = (244, 226, 202)


def sample_photo() -> bytes:
    """The bytes of the photo as it ships."""
    return SAMPLE.read_bytes()


def draw_garment() -> Image.Image:
    """A sleeveless dress lying on paper, photographed from above."""
    outline = _outline()
    mask = Image.new("L", _SIZE, 0)
    ImageDraw.Draw(mask).polygon(outline, fill=255)
    mask = mask.filter(ImageFilter.GaussianBlur(1.2))

    photo = Image.new("RGB", _SIZE, _PAPER)
    shadow = ImageChops.offset(mask, 7, 11).filter(ImageFilter.GaussianBlur(9))
    photo.paste((206, 200, 192), mask=shadow.point(lambda v: v * 0.55))
    photo.paste(_cloth(), mask=mask)
    _trim(photo)
    return photo


def _outline() -> list[tuple[float, float]]:
    """Straps, fitted bodice, waist, wide skirt with a waving hem."""
    right = _curve([(528, 150), (548, 150), (570, 250), (612, 330), (590, 430), (566, 520)])
    right += _curve([(566, 520), (640, 720), (720, 900), (770, 1046)])
    hem = [
        (770 - 640 * t / 60, 1052 + 16 * math.sin(t / 60 * math.pi * 9) + 26 * math.sin(t / 60 * math.pi))
        for t in range(61)
    ]
    neck = _curve([(372, 150), (400, 262), (450, 292), (500, 262), (528, 150)])
    left = [(900 - x, y) for x, y in reversed(right)]
    return [*right, *hem, *left, *neck]


def _curve(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A smooth line through the points (Catmull-Rom)."""
    padded = [points[0], *points, points[-1]]
    line = []
    for a, b, c, d in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        for step in range(12):
            t = step / 12
            line.append(
                (
                    _between(a[0], b[0], c[0], d[0], t),
                    _between(a[1], b[1], c[1], d[1], t),
                )
            )
    return [*line, points[-1]]


def _between(a: float, b: float, c: float, d: float, t: float) -> float:
    return 0.5 * (
        2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t * t + (3 * b - a - 3 * c + d) * t * t * t
    )


def _cloth() -> Image.Image:
    cloth = Image.new("RGB", _SIZE, _CLOTH)
    draw = ImageDraw.Draw(cloth)
    dice = random.Random(7)
    for row in range(34):
        for column in range(20):
            x = column * 48 + (24 if row % 2 else 0) + dice.uniform(-5, 5)
            y = 130 + row * 30 + dice.uniform(-4, 4)
            _flower(draw, x, y, 6.2, dice.uniform(0, 72))
    folds = Image.new("L", _SIZE, 128)
    shade = ImageDraw.Draw(folds)
    for n in range(-7, 8):
        top, foot = 450 + n * 15, 450 + n * 47
        shade.line([(top, 525), (foot, 1100)], fill=62 if n % 2 else 196, width=13)
    for side in (-1, 1):
        shade.line([(450 + side * 128, 320), (450 + side * 98, 520)], fill=70, width=20)
        shade.line([(450 + side * 50, 300), (450 + side * 62, 520)], fill=176, width=16)
    folds = folds.filter(ImageFilter.GaussianBlur(13))
    return ImageChops.soft_light(cloth, Image.merge("RGB", (folds, folds, folds)))


def _flower(draw: ImageDraw.ImageDraw, x: float, y: float, size: float, turn: float) -> None:
    for petal in range(5):
        angle = math.radians(turn + petal * 72)
        px, py = x + math.cos(angle) * size * 0.8, y + math.sin(angle) * size * 0.8
        draw.ellipse([px - size / 2, py - size / 2, px + size / 2, py + size / 2], fill=_TRIM)
    draw.ellipse([x - 2.4, y - 2.4, x + 2.4, y + 2.4], fill=(226, 164, 60))


def _trim(photo: Image.Image) -> None:
    draw = ImageDraw.Draw(photo)
    draw.line(_curve([(372, 152), (400, 264), (450, 294), (500, 264), (528, 152)]), fill=_TRIM, width=5)
    belt = [(334, 508), (450, 520), (566, 508), (570, 536), (450, 549), (330, 536)]
    draw.polygon(belt, fill=(122, 44, 36))
    draw.line([(332, 511), (450, 523), (568, 511)], fill=(160, 72, 58), width=3)
    draw.rounded_rectangle([434, 514, 466, 552], radius=6, outline=(224, 186, 96), width=5)
    for n in range(4):
        y = 330 + n * 44
        draw.ellipse([444, y, 456, y + 12], fill=_TRIM, outline=(150, 110, 84))


def main() -> None:
    SAMPLE.parent.mkdir(exist_ok=True)
    draw_garment().save(SAMPLE, "JPEG", quality=88, optimize=True)


if __name__ == "__main__":
    main()
