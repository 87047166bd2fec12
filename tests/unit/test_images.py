"""Photos in, pictures out: what is accepted, what is made of it, what is refused."""

from __future__ import annotations

import hashlib
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from PIL import Image, ImageCms, ImageFilter, PngImagePlugin

from shared.errors import InvalidImageFormat, NoImageReturned
from shared.images import SourcePhoto, analyse, contact_sheet, encode_picture, normalise, sniff


def an_image(mode: str = "RGB", size: tuple[int, int] = (60, 40), color: Any = "red") -> Image.Image:
    return Image.new(mode, size, color)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    out = BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def normalised(data: bytes, max_pixels: int = 1_000_000, max_edge: int = 2000) -> SourcePhoto:
    return normalise(data, max_pixels=max_pixels, max_edge=max_edge)


def opened(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data))
    image.load()
    return image


def corner(data: bytes) -> tuple[int, ...]:
    pixel = opened(data).getpixel((2, 2))
    assert isinstance(pixel, tuple)
    return pixel


def is_near(pixel: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return all(abs(one - other) <= 6 for one, other in zip(pixel, wanted, strict=True))


def png_header(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    data = b"IDAT" + zlib.compress(b"")
    return (
        b"\x89PNG\r\n\x1a\n" + chunk
        + struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (saved(an_image(), "JPEG"), "image/jpeg"),
        (saved(an_image(), "PNG"), "image/png"),
        (saved(an_image(), "WEBP"), "image/webp"),
        (saved(an_image(), "GIF"), "image/gif"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00", "image/heic"),  # an iPhone's photo
        (b"\x00\x00\x00\x18ftypavif\x00\x00\x00\x00", "image/avif"),
        (b"<svg onload=alert(1)>", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_media_type_is_told_by_the_bytes(data: bytes, mime: str) -> None:
    assert sniff(data) == mime


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_readable_photo_becomes_a_jpeg_with_its_size_and_hash(format: str) -> None:
    photo = normalised(saved(an_image(), format))
    assert (photo.mimeType, photo.width, photo.height) == ("image/jpeg", 60, 40)
    assert sniff(photo.data) == "image/jpeg"
    assert photo.sha256 == hashlib.sha256(photo.data).hexdigest()
    assert is_near(corner(photo.data), (254, 0, 0))


def test_photo_is_reduced_to_the_longest_edge_and_never_enlarged() -> None:
    big = normalised(saved(an_image(size=(900, 300)), "JPEG"), max_edge=300)
    assert (big.width, big.height) == (300, 100)
    small = normalised(saved(an_image(size=(30, 20)), "JPEG"), max_edge=300)
    assert (small.width, small.height) == (30, 20)


def test_photo_taken_sideways_is_turned_upright_and_loses_its_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    exif[0x010F] = "PhoneMaker"
    exif.get_ifd(0x8825)[1] = "N"  # where it was taken
    data = saved(an_image(), "JPEG", exif=exif, comment=b"taken at home")
    assert b"PhoneMaker" in data
    photo = normalised(data)
    assert (photo.width, photo.height) == (40, 60)
    assert b"PhoneMaker" not in photo.data
    assert b"taken at home" not in photo.data
    assert not opened(photo.data).getexif()


def test_text_chunks_of_a_png_are_gone() -> None:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", "secret note")
    assert b"secret note" not in normalised(saved(an_image(), "PNG", pnginfo=notes)).data


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_cost_the_photo() -> None:
    data = saved(an_image(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff" + b"\xff" * 20)
    assert normalised(data).width == 60


@pytest.mark.parametrize(
    ("image", "format", "pixel"),
    [
        (an_image("CMYK", color=(0, 255, 255, 0)), "JPEG", (255, 0, 0)),  # a printer's red
        (an_image("RGBA", color=(255, 0, 0, 0)), "PNG", (255, 255, 255)),  # nothing there: white paper
        (an_image("RGBA", color=(0, 0, 0, 128)), "WEBP", (127, 127, 127)),  # half black on white
        (an_image("LA", color=(0, 0)), "PNG", (255, 255, 255)),
        (an_image("P", color=0), "PNG", (0, 0, 0)),
        (an_image("1", color=1), "PNG", (255, 255, 255)),
        (an_image("L", color=90), "JPEG", (90, 90, 90)),
        (an_image("I;16", color=0x8000), "PNG", (128, 128, 128)),  # 16 bits: scaled, not clipped
    ],
)
def test_every_kind_of_pixel_becomes_rgb(
    image: Image.Image, format: str, pixel: tuple[int, int, int]
) -> None:
    assert is_near(corner(normalised(saved(image, format)).data), pixel)


def test_photo_with_another_colour_profile_is_converted_to_srgb() -> None:
    """A profile in which red and green have changed places: what it calls red is shown as green."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = srgb.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ")
    photo = normalised(saved(an_image(), "PNG", icc_profile=swapped))
    assert "icc_profile" not in opened(photo.data).info
    assert is_near(corner(photo.data), (0, 255, 0))


def test_broken_colour_profile_does_not_cost_the_photo() -> None:
    assert normalised(saved(an_image(), "JPEG", icc_profile=b"not a profile")).width == 60


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_animation_gives_its_first_frame(format: str) -> None:
    data = saved(
        an_image(color="red"), format, save_all=True, append_images=[an_image(color="blue")], duration=50
    )
    assert is_near(corner(normalised(data).data), (254, 0, 0))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("kept", [0.02, 0.3, 0.7])
def test_truncated_photo_is_refused(format: str, kept: float) -> None:
    data = saved(Image.effect_noise((200, 200), 80).convert("RGB"), format)
    with pytest.raises(InvalidImageFormat):
        normalised(data[: int(len(data) * kept)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a JPEG, PNG or WebP"),
        (b"<html>404</html>", "not a JPEG, PNG or WebP"),
        (saved(an_image(), "GIF"), "not a JPEG, PNG or WebP"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00", "HEIC"),
        (b"\xff\xd8\xff" + b"\x00" * 200, "damaged"),
    ],
)
def test_what_is_no_usable_photo_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(InvalidImageFormat, match=said):
        normalised(data)


@pytest.mark.parametrize(
    "data",
    [
        png_header(30_000, 30_000),  # 900 megapixels in 60 bytes
        png_header(11_000, 11_000),  # between Pillow's warning and its error
        png_header(1_001, 1_000),  # one column more than allowed
        b"RIFF\x00\x00\x01\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + b"\xfe\x3f\x00" * 2 + b"\x00" * 64,
        b"RIFF\x00\x00\x01\x00WEBPVP8L\x00\x01\x00\x00\x2f\xff\xff\xff\x0f" + b"\x00" * 64,
    ],
)
def test_decompression_bomb_is_refused_by_its_header(data: bytes) -> None:
    with pytest.raises(InvalidImageFormat, match="megapixels"):
        normalised(data)


def test_analysis_tells_light_colour_and_shape() -> None:
    image = an_image(size=(300, 400), color=(20, 30, 80))
    image.paste((250, 250, 250), (0, 0, 300, 100))
    seen = analyse(saved(image, "PNG"))
    assert seen.orientation == "portrait"
    assert [(color.name, round(color.share, 1)) for color in seen.dominantColors[:2]] == [
        ("navy", 0.7),
        ("white", 0.2),
    ]
    assert sum(color.share for color in seen.dominantColors) == pytest.approx(1, abs=0.01)
    assert analyse(saved(an_image(color="white"), "PNG")).brightness == 1
    assert analyse(saved(an_image(color="black"), "PNG")).brightness == 0
    assert analyse(saved(an_image(size=(50, 50)), "PNG")).orientation == "square"
    assert seen.contrast > analyse(saved(an_image(), "PNG")).contrast == 0


def test_crisp_photo_is_sharper_than_its_blurred_copy() -> None:
    crisp = Image.effect_noise((200, 200), 80).convert("RGB")
    blurred = crisp.filter(ImageFilter.GaussianBlur(4))
    assert analyse(saved(crisp, "PNG")).sharpness > analyse(saved(blurred, "PNG")).sharpness


def test_analysis_of_no_photo_is_refused() -> None:
    with pytest.raises(InvalidImageFormat):
        analyse(b"nothing")


@pytest.mark.parametrize(
    ("format", "mime", "extension"), [("webp", "image/webp", "webp"), ("jpeg", "image/jpeg", "jpg")]
)
def test_generated_picture_is_encoded_as_the_settings_say(format: str, mime: str, extension: str) -> None:
    picture = encode_picture(saved(an_image(size=(800, 400)), "PNG"), format=format, quality=80, max_edge=400)
    assert (picture.mimeType, picture.extension, sniff(picture.data)) == (mime, extension, mime)
    assert (picture.width, picture.height) == (400, 200) == opened(picture.data).size
    assert picture.sha256 == hashlib.sha256(picture.data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"garbage", saved(an_image(size=(300, 300)), "PNG")[:80]])
def test_broken_generated_picture_counts_as_not_returned(data: bytes) -> None:
    with pytest.raises(NoImageReturned):
        encode_picture(data, format="webp", quality=80, max_edge=400)


def test_unknown_storage_format_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="webp or jpeg"):
        encode_picture(saved(an_image(), "PNG"), format="bmp", quality=80, max_edge=400)


def test_contact_sheet_has_a_cell_for_each_picture() -> None:
    colors = ["red", "lime", "blue", "black"]
    sheet = opened(contact_sheet([saved(an_image(color=color), "WEBP") for color in colors]))
    assert sheet.size == (3 * 396 + 12, 2 * 396 + 12)
    assert sheet.getpixel((204, 600)) == pytest.approx((0, 0, 0), abs=6)
    with pytest.raises(ValueError, match="at least one"):
        contact_sheet([])
