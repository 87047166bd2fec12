"""The pictures of the embedded Gemini: the garment of the photo, worn in the pose and place the prompt
names.

A picture depends on nothing but prompt, photos and model, so the same request draws the same picture
everywhere. The person comes from the photo alone: a set has one model.
"""

from __future__ import annotations

import hashlib
import io
import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw, ImageFilter

from localcloud.providers.backdrop import HORIZON, draw_backdrop
from localcloud.providers.cutout import Cutout, UnreadablePhoto, cut_out
from localcloud.providers.figure import FOOT, MODELS, POSES, TOP, Figure, Pose, mirrored
from localcloud.providers.sample import sample_photo

__all__ = ["Picture", "Studio", "UnreadablePhoto"]

LONG_SIDE = 768
_KEEP = 32
_CLOSE = ("close-up", "close up", "closeup", "特写", "detail")
_HALF = ("half body", "half-body", "waist up", "upper body", "portrait", "半身")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    mime_type: str
    data: bytes


class Studio:
    """Draws; keeps the garments it has cut out. Safe to use from several threads."""

    def __init__(self) -> None:
        self._cutouts: OrderedDict[bytes, Cutout] = OrderedDict()
        self._lock = threading.Lock()

    def draw(self, *, prompt: str, photos: Sequence[bytes], model: str, aspect_ratio: str) -> Picture:
        sources = list(photos) or [sample_photo()]
        cutouts = [self._cutout(photo) for photo in sources]
        names = [hashlib.sha256(photo).digest() for photo in sources]
        seed = hashlib.sha256(b"\0".join([prompt.encode(), model.encode(), *names])).digest()
        dice = random.Random(seed)
        person = MODELS[names[0][0] % len(MODELS)]
        size = _size(aspect_ratio)
        image = draw_backdrop(prompt, size, dice)
        garment = cutouts[0]
        if garment.is_cut:
            pose = _pose(prompt, dice)
            scale, origin = _framing(prompt, pose, size, dice)
            _shadow(image, pose, scale, origin)
            layer = Image.new("RGBA", (size[0] * 2, size[1] * 2))
            figure = Figure(
                layer, model=person, pose=pose, scale=scale * 2, origin=(origin[0] * 2, origin[1] * 2)
            )
            figure.draw(_lit(garment.image, dice.choice((-1, 1))))
            small = layer.reduce(2)
            image.paste(small, (0, 0), small)
        else:
            _hang(image, garment.image, dice)
        _finish(image, dice)
        out = io.BytesIO()
        image.save(out, "JPEG", quality=90)
        return Picture(mime_type="image/jpeg", data=out.getvalue())

    def describe(self, photos: Sequence[bytes]) -> str:
        """What a text model says of the photos."""
        if not photos:
            return "There is no photo to describe."
        red, green, blue = self._cutout(photos[0]).colour
        return f"A garment in a colour near #{red:02x}{green:02x}{blue:02x}, photographed from the front."

    def _cutout(self, photo: bytes) -> Cutout:
        name = hashlib.sha256(photo).digest()
        with self._lock:
            if name not in self._cutouts:
                self._cutouts[name] = cut_out(photo)
            self._cutouts.move_to_end(name)
            while len(self._cutouts) > _KEEP:
                self._cutouts.popitem(last=False)
            return self._cutouts[name]


def _size(aspect_ratio: str) -> tuple[int, int]:
    wide, tall = (int(part) for part in aspect_ratio.split(":"))
    longest = max(wide, tall)
    # Multiples of eight, as the backdrop is drawn smaller.
    width, height = (LONG_SIDE * part // longest // 8 * 8 for part in (wide, tall))
    return width, height


def _pose(prompt: str, dice: random.Random) -> Pose:
    _, _, words = prompt.lower().rpartition("action:")
    # In "hands on hips, turning away" the first is what the body does.
    named = [(words.find(word), pose) for names, pose in POSES.items() for word in names if word in words]
    pose = min(named, key=lambda entry: entry[0])[1] if named else dice.choice(list(POSES.values()))
    if dice.random() < 0.5:
        pose = mirrored(pose)
    a, b, c, d = (angle + dice.uniform(-5, 5) for angle in pose.arms)
    e, f, g, h = (angle + dice.uniform(-2, 2) for angle in pose.legs)
    return replace(pose, arms=(a, b, c, d), legs=(e, f, g, h), lean=pose.lean + dice.uniform(-1.5, 1.5))


def _framing(
    prompt: str, pose: Pose, size: tuple[int, int], dice: random.Random
) -> tuple[float, tuple[float, float]]:
    """Pixels to a head, and where the hollow of the neck goes."""
    width, height = size
    words = prompt.lower()
    if any(word in words for word in _CLOSE):
        heads = 4.2
    elif any(word in words for word in _HALF):
        heads = 5.6
    else:
        heads = dice.choice((9.2, 9.5, 9.9))
        if max(pose.arms) > 90:
            heads = 10.6
    scale = height / heads
    left = width / 2 + width * dice.uniform(-0.05, 0.05)
    if heads < FOOT - TOP:
        return scale, (left, scale * (0.25 - TOP))
    ground = height * (HORIZON + 0.15)
    return scale, (left, ground - FOOT * scale)


def _shadow(image: Image.Image, pose: Pose, scale: float, origin: tuple[float, float]) -> None:
    small = Image.new("L", (image.width // 8, image.height // 8))
    x, y = origin[0] / 8, (origin[1] + (FOOT - 0.12) * scale) / 8
    w, h = scale * (1.5 - 0.4 * pose.lift) / 8, scale * 0.2 / 8
    draw = ImageDraw.Draw(small)
    draw.ellipse((x - w * 0.7, y - h, x + w * 1.5, y + h), fill=70)
    draw.ellipse((x - w * 0.6, y - h * 0.6, x + w * 0.7, y + h * 0.6), fill=130)
    mask = small.filter(ImageFilter.GaussianBlur(1)).resize(image.size, Image.Resampling.BICUBIC)
    image.paste((52, 38, 36), mask=mask)


def _lit(garment: Image.Image, side: int) -> Image.Image:
    """Rounder: one side of the cloth falls into shade."""
    ramp = Image.linear_gradient("L").rotate(90 * side).resize(garment.size)
    shade = ramp.point(lambda v: max(0, v - 110) // 2)
    lit = garment.copy()
    lit.paste((44, 20, 30), mask=shade)
    lit.putalpha(garment.getchannel("A"))
    return lit


def _hang(image: Image.Image, photo: Image.Image, dice: random.Random) -> None:
    """A photo that can't be cut out hangs in the place as a print."""
    room = (round(image.width * 0.72), round(image.height * 0.72))
    print_ = photo.copy()
    print_.thumbnail(room, Image.Resampling.BILINEAR)
    rim = max(8, image.width // 40)
    card = Image.new("RGBA", (print_.width + 2 * rim, print_.height + 2 * rim), (250, 248, 244, 255))
    card.paste(print_, (rim, rim))
    card = card.rotate(dice.uniform(-4, 4), Image.Resampling.BICUBIC, expand=True)
    left, top = (image.width - card.width) // 2, (image.height - card.height) // 2
    shade = card.getchannel("A").point(lambda v: v // 3).filter(ImageFilter.BoxBlur(9))
    image.paste((40, 32, 30), (left + 8, top + 14), shade)
    image.paste(card, (left, top), card)


def _finish(image: Image.Image, dice: random.Random) -> None:
    """Warm light from one corner, and the corners a little darker."""
    edge = Image.radial_gradient("L").resize(image.size).point(lambda v: max(0, v - 130) // 2)
    image.paste((30, 22, 26), mask=edge)
    beam = Image.linear_gradient("L").rotate(dice.choice((0, 180))).resize(image.size)
    image.paste((255, 214, 170), mask=beam.point(lambda v: v // 14))
