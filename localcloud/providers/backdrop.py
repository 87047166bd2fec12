"""Where the picture is taken: soft, out-of-focus places, each in several colourings."""

from __future__ import annotations

import random
from collections.abc import Callable

from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]

HORIZON = 0.8
"""Where the ground begins, as a share of the height."""

_BLUR = 4
"""Drawn this much smaller and enlarged: out of focus, and cheap."""

_STUDIO: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((236, 214, 196), (224, 196, 174), (206, 132, 104)),
    ((206, 218, 210), (188, 202, 192), (110, 142, 124)),
    ((214, 210, 226), (196, 190, 212), (134, 122, 168)),
    ((240, 226, 190), (228, 208, 164), (218, 160, 74)),
    ((200, 216, 228), (180, 200, 214), (88, 128, 158)),
    ((238, 206, 206), (226, 188, 188), (196, 108, 116)),
    ((226, 222, 214), (208, 202, 192), (150, 140, 126)),
    ((190, 208, 204), (170, 190, 186), (62, 108, 104)),
)
_SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((126, 182, 214), (232, 226, 206)),
    ((246, 178, 138), (252, 226, 186)),
    ((120, 128, 178), (246, 190, 170)),
    ((164, 206, 220), (244, 240, 228)),
)


def draw_backdrop(prompt: str, size: tuple[int, int], dice: random.Random) -> Image.Image:
    """The place the prompt names, or else a studio."""
    small = (size[0] // _BLUR, size[1] // _BLUR)
    words = prompt.lower().partition("action:")[0]
    place = next((draw for names, draw in _PLACES.items() if any(name in words for name in names)), _studio)
    image = place(small, dice).filter(ImageFilter.GaussianBlur(1.1))
    return image.resize(size, Image.Resampling.BICUBIC)


def _studio(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    wall, floor, accent = dice.choice(_STUDIO)
    image = _gradient(size, _mix(wall, (255, 255, 255), 0.25), _mix(wall, accent, 0.1))
    draw = ImageDraw.Draw(image)
    side = dice.choice((-1, 1))
    match dice.randrange(4):
        case 0:
            w = width * dice.uniform(0.26, 0.34)
            x, top = width / 2 + side * width * 0.06, height * 0.1
            draw.rounded_rectangle((x - w, top, x + w, height), radius=w, fill=_mix(wall, accent, 0.75))
        case 1:
            r = width * dice.uniform(0.3, 0.38)
            x, y = width / 2 + side * width * 0.14, height * 0.36
            draw.ellipse((x - r, y - r, x + r, y + r), fill=_mix(wall, accent, 0.7))
        case 2:
            for n in range(4):
                x = width * (0.04 + 0.26 * n)
                draw.rectangle((x, 0, x + width * 0.13, height), fill=_mix(wall, accent, 0.22))
        case _:
            x = width * (0.2 if side < 0 else 0.8)
            for n, tall in enumerate((0.46, 0.3)):
                left = x - width * 0.17 + n * width * 0.18 * -side
                box = (left, height * (HORIZON - tall), left + width * 0.3, height * 0.9)
                draw.rectangle(box, fill=_mix(accent, wall, 0.25 + 0.3 * n))
    _ground(image, floor, _mix(floor, accent, 0.25))
    _light(image, (width * (0.5 + side * 0.2), height * 0.3), (255, 250, 240))
    return image


def _beach(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    high, low = dice.choice(_SKIES)
    image = _gradient(size, high, low)
    draw = ImageDraw.Draw(image)
    r, x = width * 0.09, width * dice.uniform(0.15, 0.85)
    draw.ellipse((x - r, height * 0.3 - r, x + r, height * 0.3 + r), fill=(255, 246, 222))
    sea = _mix(high, (40, 104, 132), 0.6)
    for n in range(8):
        y = height * (0.56 + 0.03 * n)
        draw.rectangle((0, y, width, height), fill=_mix(sea, (190, 226, 224), n / 8))
    draw.rectangle((0, height * 0.79, width, height * 0.805), fill=(246, 248, 244))
    _ground(image, (228, 204, 168), (206, 176, 138), start=0.8)
    return image


def _street(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    high, low = dice.choice(_SKIES)
    image = _gradient(size, high, low)
    draw = ImageDraw.Draw(image)
    tint = dice.choice(((132, 120, 122), (150, 128, 112), (112, 124, 140), (164, 140, 128)))
    for left in (True, False):
        edge = 0.0
        for n in range(4):
            step = width * dice.uniform(0.1, 0.15)
            top = height * (0.04 + 0.14 * n + dice.uniform(0, 0.08))
            a, b = (edge, edge + step) if left else (width - edge - step, width - edge)
            wall = _mix(tint, low, 0.16 * n)
            draw.rectangle((a, top, b, height), fill=wall)
            for row in range(14):
                y = top + height * (0.03 + 0.05 * row)
                if dice.random() < 0.7:
                    lit = _mix(wall, (255, 232, 178), dice.choice((0.15, 0.3, 0.75)))
                    draw.rectangle((a + step * 0.2, y, a + step * 0.42, y + height * 0.024), fill=lit)
                    draw.rectangle((a + step * 0.6, y, a + step * 0.82, y + height * 0.024), fill=lit)
            edge += step
    _ground(image, (176, 168, 162), (136, 128, 124))
    return image


def _garden(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    image = _gradient(size, (214, 230, 206), (150, 184, 132))
    draw = ImageDraw.Draw(image)
    leaves = dice.choice(
        (
            ((86, 128, 84), (136, 172, 104)),
            ((104, 132, 72), (184, 190, 104)),
            ((70, 118, 100), (132, 176, 140)),
        )
    )
    for n in range(90):
        r = width * dice.uniform(0.03, 0.09)
        x, y = dice.uniform(0, width), dice.uniform(0, height * 0.86)
        if abs(x / width - 0.5) < 0.2 and y < height * 0.45:
            continue
        shade = _mix(leaves[0], leaves[1], dice.random())
        draw.ellipse((x - r, y - r, x + r, y + r), fill=_mix(shade, (236, 244, 214), 0.35 * (1 - n / 90)))
    for _ in range(26):
        r = width * dice.uniform(0.008, 0.018)
        x, y = dice.uniform(0, width), height * dice.uniform(0.4, 0.85)
        bloom = dice.choice(((250, 226, 226), (246, 190, 178), (252, 240, 200)))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=bloom)
    _ground(image, (158, 176, 120), (122, 146, 92))
    _light(image, (width * 0.5, height * 0.22), (255, 252, 226))
    return image


def _night(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    image = _gradient(size, (24, 24, 52), (72, 48, 92))
    draw = ImageDraw.Draw(image)
    lamps = ((255, 196, 120), (255, 128, 150), (120, 190, 255), (190, 150, 255))
    for _ in range(34):
        r = width * dice.uniform(0.015, 0.06)
        x, y = dice.uniform(0, width), dice.uniform(0, height * 0.8)
        draw.ellipse(
            (x - r, y - r, x + r, y + r), fill=_mix((58, 44, 84), dice.choice(lamps), dice.uniform(0.25, 0.8))
        )
    _ground(image, (60, 46, 78), (30, 26, 48))
    _light(image, (width * 0.5, height * 0.36), (150, 120, 190))
    return image


def _room(size: tuple[int, int], dice: random.Random) -> Image.Image:
    width, height = size
    wall = dice.choice(((228, 214, 196), (206, 212, 204), (222, 204, 196)))
    image = _gradient(size, _mix(wall, (255, 255, 255), 0.3), wall)
    draw = ImageDraw.Draw(image)
    x = width * dice.choice((0.08, 0.62))
    draw.rectangle((x, height * 0.1, x + width * 0.3, height * 0.52), fill=(250, 248, 236))
    for n in (1, 2):
        draw.line((x + width * 0.1 * n, height * 0.1, x + width * 0.1 * n, height * 0.52), fill=wall, width=2)
    pot = width - x - width * 0.16
    for _ in range(11):
        tip = (pot + width * dice.uniform(-0.16, 0.16), height * dice.uniform(0.38, 0.6))
        draw.line((pot, height * 0.7, *tip), fill=(92, 128, 92), width=3)
        draw.ellipse((tip[0] - 5, tip[1] - 8, tip[0] + 5, tip[1] + 8), fill=(110, 146, 104))
    draw.rectangle(
        (pot - width * 0.06, height * 0.68, pot + width * 0.06, height * 0.82), fill=(196, 132, 100)
    )
    _ground(image, (198, 166, 132), (166, 132, 100))
    return image


_PLACES: dict[tuple[str, ...], Callable[[tuple[int, int], random.Random], Image.Image]] = {
    ("beach", "seaside", "ocean", "海"): _beach,
    ("night", "neon", "夜"): _night,
    ("street", "urban", "city", "街", "城市", "都市"): _street,
    ("garden", "forest", "park", "nature", "outdoor", "花园", "森林", "公园", "户外", "自然"): _garden,
    ("café", "cafe", "coffee", "home", "living room", "indoor", "咖啡", "居家", "室内"): _room,
}


def _gradient(size: tuple[int, int], high: Colour, low: Colour) -> Image.Image:
    ramp = Image.linear_gradient("L").resize(size)
    return Image.composite(Image.new("RGB", size, low), Image.new("RGB", size, high), ramp)


def _ground(image: Image.Image, far: Colour, near: Colour, start: float = HORIZON) -> None:
    top = round(image.height * start)
    image.paste(_gradient((image.width, image.height - top), far, near), (0, top))


def _light(image: Image.Image, centre: tuple[float, float], colour: Colour) -> None:
    r = round(image.width * 0.75)
    glow = Image.radial_gradient("L").resize((2 * r, 2 * r)).point(lambda v: max(0, 110 - v) // 2)
    image.paste(colour, (round(centre[0]) - r, round(centre[1]) - r), glow)


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return (red, green, blue)
