"""The pictures themselves."""

import io

import pytest
from PIL import Image, ImageChops, ImageStat

from localcloud.providers.cutout import cut_out
from localcloud.providers.drawing import Picture, Studio, UnreadablePhoto
from localcloud.providers.figure import POSES
from localcloud.providers.sample import SAMPLE, draw_garment, sample_photo


def opened(picture: Picture) -> Image.Image:
    image = Image.open(io.BytesIO(picture.data))
    image.load()
    return image


def draw(prompt: str, photo: bytes | None = None) -> Picture:
    photos = [] if photo is None else [photo]
    return Studio().draw(prompt=prompt, photos=photos, model="an-image-model", aspect_ratio="3:4")


def test_the_garment_is_cut_from_its_paper_without_holes() -> None:
    cut = cut_out(sample_photo())
    assert cut.is_cut
    mask = cut.image.getchannel("A")
    width, height = mask.size
    assert mask.getpixel((1, height // 4)) == 0
    # Cream flowers on cream paper: inside the skirt nothing may be missing.
    skirt = mask.crop((width * 4 // 10, height * 6 // 10, width * 6 // 10, height * 9 // 10))
    assert ImageStat.Stat(skirt).extrema == [(255, 255)]
    red, green, blue = cut.colour
    assert red > green and red > blue


def test_a_photo_without_plain_paper_is_shown_whole() -> None:
    noise = io.BytesIO()
    Image.effect_noise((300, 400), 90).convert("RGB").save(noise, "PNG")
    assert not cut_out(noise.getvalue()).is_cut
    assert opened(draw("studio", noise.getvalue())).size == (576, 768)


@pytest.mark.parametrize("bad", [b"", b"nonsense", sample_photo()[:2000]])
def test_what_is_no_photo_is_refused(bad: bytes) -> None:
    with pytest.raises(UnreadablePhoto):
        draw("studio", bad)


def test_every_pose_looks_different_from_every_other() -> None:
    names = [words[0] for words in POSES]
    pictures = [opened(draw(f"Studio. Model action: {name}.", sample_photo())) for name in names]
    small = [picture.convert("L").resize((48, 64)) for picture in pictures]
    for n, one in enumerate(small):
        for other in small[n + 1 :]:
            assert ImageStat.Stat(ImageChops.difference(one, other)).mean[0] > 2


def test_the_garment_of_the_photo_is_in_the_picture() -> None:
    blue = io.BytesIO()
    red_channel, green_channel, blue_channel = Image.open(io.BytesIO(sample_photo())).split()
    Image.merge("RGB", (blue_channel, green_channel, red_channel)).save(blue, "PNG")

    def middle(picture: Picture) -> tuple[float, float, float]:
        red, green, blue = ImageStat.Stat(opened(picture).crop((250, 300, 320, 400))).mean
        return red, green, blue

    red_dress, blue_dress = middle(draw("stand", sample_photo())), middle(draw("stand", blue.getvalue()))
    assert red_dress[0] > red_dress[2] + 40
    assert blue_dress[2] > blue_dress[0] + 40


def test_the_sample_photo_is_the_one_its_code_draws() -> None:
    assert SAMPLE.stat().st_size < 300_000
    shipped = Image.open(io.BytesIO(sample_photo()))
    assert ImageStat.Stat(ImageChops.difference(shipped, draw_garment())).mean[0] < 3
