"""The garment out of its photo: what differs from the paper it lies on."""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps, ImageStat

_EDGE = 640
_COARSE = 120


class UnreadablePhoto(Exception):
    """These bytes are not a photo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutout:
    image: Image.Image
    """RGBA, cropped to the garment; the whole photo when nothing could be told from its background."""
    is_cut: bool
    colour: tuple[int, int, int]
    """The garment's own, for choosing what goes with it."""


def cut_out(photo: bytes) -> Cutout:
    try:
        with Image.open(io.BytesIO(photo)) as opened:
            opened.draft("RGB", (_EDGE, _EDGE))
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadablePhoto from error
    image.thumbnail((_EDGE, _EDGE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    mask = _mask(image)
    share = ImageStat.Stat(mask).mean[0] / 255
    box = mask.point(lambda v: 255 if v > 128 else 0).getbbox()
    if box is None or not 0.04 < share < 0.8:
        return Cutout(image=image.convert("RGBA"), is_cut=False, colour=_mean(image, None))
    colour = _mean(image, mask)
    image.putalpha(mask)
    return Cutout(image=image.crop(box), is_cut=True, colour=colour)


def _mask(image: Image.Image) -> Image.Image:
    paper = Image.new("RGB", image.size, _paper(image))
    red, green, blue = ImageChops.difference(image, paper).split()
    far = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    fine = far.point(lambda v: max(0, min(255, (v - 24) * 12)))
    filled = _without_holes(fine).resize(image.size, Image.Resampling.BICUBIC)
    return (
        ImageChops.lighter(fine, filled)
        .filter(ImageFilter.MinFilter(3))
        .filter(ImageFilter.GaussianBlur(0.8))
    )


def _paper(image: Image.Image) -> tuple[int, int, int]:
    """The commonest colour along the edge."""
    width, height = image.size
    rim = Image.new("L", image.size, 255)
    ImageDraw.Draw(rim).rectangle(
        (width // 30, height // 30, width - width // 30, height - height // 30), fill=0
    )
    red, green, blue = ImageStat.Stat(image, rim).median
    return (int(red), int(green), int(blue))


def _without_holes(mask: Image.Image) -> Image.Image:
    """Where the paper can't be reached from the corner; small, because flooding is slow."""
    size = (_COARSE, max(1, _COARSE * mask.height // mask.width))
    coarse = mask.resize(size, Image.Resampling.BOX).point(lambda v: 255 if v > 90 else 0)
    framed = ImageOps.expand(coarse, 2, 0)
    ImageDraw.floodfill(framed, (0, 0), 128)
    inside = framed.crop((2, 2, size[0] + 2, size[1] + 2)).point(lambda v: 0 if v == 128 else 255)
    return inside.filter(ImageFilter.MinFilter(3))


def _mean(image: Image.Image, mask: Image.Image | None) -> tuple[int, int, int]:
    red, green, blue = ImageStat.Stat(image, mask).mean
    return (int(red), int(green), int(blue))
