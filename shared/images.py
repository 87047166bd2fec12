"""What may be done with a picture before and after the model: look at it, make it safe, make it small.

Pure functions on bytes. They take real CPU time: call them through `asyncio.to_thread`.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Literal

from PIL import Image, ImageCms, ImageFilter, ImageOps, ImageStat

from shared.errors import InvalidImageFormat, NoImageReturned

_STORED_AS: Final = {"jpeg": "image/jpeg", "webp": "image/webp"}
_READABLE: Final = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP"}
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"})
_SOURCE_QUALITY: Final = 90
_MOST_GENERATED_PIXELS: Final = 64_000_000
"""No image model draws more than 4K squared; anything larger is a broken answer."""

# Pillow's readers raise all of these on malformed files.
_BROKEN: Final = (
    OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, ArithmeticError,
    AttributeError, MemoryError, struct.error, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePhoto:
    data: bytes
    mimeType: str
    width: int
    height: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    data: bytes
    mimeType: str
    width: int
    height: int
    sha256: str
    extension: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantColor:
    hex: str
    name: str
    share: float
    """Part of the photo, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoAnalysis:
    brightness: float
    """0 black to 1 white."""
    contrast: float
    """0 flat to 1 pure black beside pure white."""
    dominantColors: tuple[DominantColor, ...]
    """Largest share first."""
    orientation: Literal["portrait", "landscape", "square"]
    sharpness: float
    """0 blurred to 1 crisp, on a scale of our own: good for comparing photos."""


def sniff(data: bytes) -> str:
    """The media type that the first bytes tell, whatever the name or the headers claimed."""
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if data[4:8] == b"ftyp":
        if data[8:12] in (b"avif", b"avis"):
            return "image/avif"
        if data[8:12] in _HEIC_BRANDS:
            return "image/heic"
    return "application/octet-stream"


def normalise(data: bytes, *, max_pixels: int, max_edge: int) -> SourcePhoto:
    """A source photo as the model gets it: an upright sRGB JPEG, no larger than needed, without metadata."""
    mime = sniff(data)
    if mime == "image/heic":
        raise InvalidImageFormat("HEIC photos are not supported; send JPEG, PNG or WebP.")
    if mime not in _READABLE:
        raise InvalidImageFormat("The photo is not a JPEG, PNG or WebP image.")
    try:
        image = _decode(data, mime, max_pixels=max_pixels, wanted_edge=max_edge)
        encoded = _encode(image, max_edge=max_edge, format="JPEG", quality=_SOURCE_QUALITY)
    except InvalidImageFormat:
        raise
    except _BROKEN as error:
        raise InvalidImageFormat("The photo is damaged or incomplete and cannot be decoded.") from error
    out, width, height = encoded
    return SourcePhoto(data=out, mimeType="image/jpeg", width=width, height=height, sha256=_sha256(out))


def encode_picture(data: bytes, *, format: str, quality: int, max_edge: int) -> Picture:
    """A generated picture as it is stored; one that can't be decoded counts as not returned at all."""
    if format not in _STORED_AS:
        raise ValueError(f"pictures are stored as webp or jpeg, not {format}")
    try:
        image = _decode(data, sniff(data), max_pixels=_MOST_GENERATED_PIXELS, wanted_edge=max_edge)
        out, width, height = _encode(image, max_edge=max_edge, format=format.upper(), quality=quality)
    except (InvalidImageFormat, *_BROKEN) as error:
        raise NoImageReturned("The picture in the answer is damaged or incomplete.") from error
    return Picture(
        data=out,
        mimeType=_STORED_AS[format],
        width=width,
        height=height,
        sha256=_sha256(out),
        extension="jpg" if format == "jpeg" else format,
    )


def analyse(data: bytes) -> PhotoAnalysis:
    """What can be said of a photo without asking anybody."""
    try:
        image = _decode(data, sniff(data), max_pixels=_MOST_GENERATED_PIXELS, wanted_edge=256)
        width, height = image.size
        image.thumbnail((256, 256))
        grey = image.convert("L")
        light = ImageStat.Stat(grey)
        edges = ImageStat.Stat(grey.filter(ImageFilter.FIND_EDGES))
        return PhotoAnalysis(
            brightness=round(light.mean[0] / 255, 4),
            contrast=round(min(light.stddev[0] / 127.5, 1.0), 4),
            dominantColors=_dominant_colors(image),
            orientation=_orientation(width, height),
            sharpness=round(1 - math.exp(-edges.stddev[0] / 32), 4),
        )
    except InvalidImageFormat:
        raise
    except _BROKEN as error:
        raise InvalidImageFormat("The photo is damaged or incomplete and cannot be decoded.") from error


def contact_sheet(pictures: Sequence[bytes], columns: int = 3) -> bytes:
    """All pictures on one JPEG page, row by row, each whole inside a square cell."""
    if not pictures or columns < 1:
        raise ValueError("a contact sheet needs at least one picture and one column")
    cell, gap = 384, 12
    rows = math.ceil(len(pictures) / columns)
    size = (columns * (cell + gap) + gap, rows * (cell + gap) + gap)
    sheet = Image.new("RGB", size, "white")
    for index, data in enumerate(pictures):
        image = _decode(data, sniff(data), max_pixels=_MOST_GENERATED_PIXELS, wanted_edge=cell)
        fitted = ImageOps.pad(image, (cell, cell), color="#f2f2f2")
        row, column = divmod(index, columns)
        sheet.paste(fitted, (gap + column * (cell + gap), gap + row * (cell + gap)))
    return _encode(sheet, max_edge=max(size), format="JPEG", quality=88)[0]


def _decode(data: bytes, mime: str, *, max_pixels: int, wanted_edge: int) -> Image.Image:
    """Upright RGB in sRGB with no metadata; sizes are checked before a single pixel is decoded."""
    if mime not in _READABLE:
        raise InvalidImageFormat("The photo is not a JPEG, PNG or WebP image.")
    if mime == "image/webp":
        # Pillow's WebP reader allocates the whole canvas when it opens the file.
        _check_pixels(*_webp_size(data), max_pixels)
    try:
        unread = Image.open(BytesIO(data), formats=(_READABLE[mime],))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        # Pillow has a limit of its own, far above ours.
        raise _too_many_pixels("too many", max_pixels) from None
    with unread as opened:
        _check_pixels(*opened.size, max_pixels)
        # A JPEG can be decoded at a half, a quarter or an eighth: cheap when a small one is wanted.
        opened.draft(None, (wanted_edge, wanted_edge))
        opened.load()
        upright = _upright(opened)
        image = _to_rgb(upright, opened.info.get("icc_profile"))
    clean = Image.new("RGB", image.size)
    clean.paste(image)
    return clean


def _check_pixels(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise _too_many_pixels(f"{width} x {height}", max_pixels)


def _too_many_pixels(has: str, max_pixels: int) -> InvalidImageFormat:
    return InvalidImageFormat(
        f"The photo has {has} pixels; at most {max_pixels / 1e6:g} megapixels are allowed."
    )


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if len(data) < 30:
        raise InvalidImageFormat("The photo is damaged or incomplete and cannot be decoded.")
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", data[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _BROKEN:
        # The pixels are fine; only the note on how the camera was held is not.
        return image


def _to_rgb(image: Image.Image, icc_profile: bytes | None) -> Image.Image:
    if image.mode.startswith("I"):
        # 16-bit greys: Pillow would clip them to white instead of scaling them.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layered = image.convert("RGBA")
        paper = Image.new("RGBA", layered.size, "white")
        image = Image.alpha_composite(paper, layered).convert("RGB")
    if icc_profile and image.mode in ("RGB", "CMYK", "L"):
        image = _to_srgb(image, icc_profile)
    return image.convert("RGB")


def _to_srgb(image: Image.Image, icc_profile: bytes) -> Image.Image:
    """Phones use Display P3: stripping the profile without converting would change the garment's colour."""
    try:
        profile = ImageCms.ImageCmsProfile(BytesIO(icc_profile))
        converted = ImageCms.profileToProfile(
            image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, *_BROKEN):
        return image
    return converted or image


def _encode(image: Image.Image, *, max_edge: int, format: str, quality: int) -> tuple[bytes, int, int]:
    image.thumbnail((max_edge, max_edge), Image.Resampling.LANCZOS)
    out = BytesIO()
    if format == "WEBP":
        image.save(out, "WEBP", quality=quality, method=4)
    else:
        image.save(out, "JPEG", quality=quality, optimize=True)
    return out.getvalue(), image.width, image.height


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _orientation(width: int, height: int) -> Literal["portrait", "landscape", "square"]:
    if abs(width - height) <= 0.02 * max(width, height):
        return "square"
    return "portrait" if height > width else "landscape"


_COLOR_NAMES: Final = {
    "black": (20, 20, 20), "charcoal": (60, 60, 64), "grey": (128, 128, 128), "silver": (192, 192, 192),
    "white": (248, 248, 248), "cream": (245, 235, 215), "beige": (220, 200, 170), "tan": (195, 155, 110),
    "brown": (115, 75, 45), "burgundy": (115, 20, 45), "red": (205, 30, 40), "coral": (245, 120, 95),
    "orange": (240, 140, 30), "mustard": (205, 165, 50), "yellow": (250, 220, 60), "olive": (115, 115, 45),
    "lime": (165, 215, 60), "green": (45, 145, 70), "forest": (25, 75, 50), "mint": (170, 225, 200),
    "teal": (20, 125, 130), "turquoise": (70, 200, 205), "sky": (135, 195, 235), "blue": (45, 100, 200),
    "navy": (25, 35, 80), "lavender": (190, 175, 225), "purple": (115, 60, 155), "magenta": (200, 40, 140),
    "pink": (245, 170, 195), "rose": (215, 110, 130),
}  # fmt: skip


def _dominant_colors(image: Image.Image, most: int = 5) -> tuple[DominantColor, ...]:
    small = image.resize((64, 64), Image.Resampling.BOX)
    reduced = small.quantize(most, Image.Quantize.MEDIANCUT)
    palette = reduced.getpalette() or []
    counts = sorted(reduced.getcolors() or [], key=lambda entry: entry[0], reverse=True)
    colors: dict[str, DominantColor] = {}
    for count, index in counts:
        if not isinstance(index, int):
            continue
        red, green, blue = palette[3 * index : 3 * index + 3]
        value = f"#{red:02x}{green:02x}{blue:02x}"
        share = count / (64 * 64) + (colors[value].share if value in colors else 0)
        colors[value] = DominantColor(hex=value, name=_color_name(red, green, blue), share=round(share, 4))
    return tuple(colors.values())


def _color_name(red: int, green: int, blue: int) -> str:
    def distance(name: str) -> float:
        r, g, b = _COLOR_NAMES[name]
        # Eyes tell greens apart best and blues worst; the red weight depends on how red it is.
        mean = (red + r) / 2
        return (
            (2 + mean / 256) * (red - r) ** 2
            + 4 * (green - g) ** 2
            + (2 + (255 - mean) / 256) * (blue - b) ** 2
        )

    return min(_COLOR_NAMES, key=distance)
