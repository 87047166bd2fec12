"""Poses that need no model to think of them: for when the director is down, or came up with too few."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import islice, product
from typing import Final

POSES: Final[tuple[str, ...]] = (
    "standing upright facing the camera with arms relaxed at the sides",
    "standing with weight on one leg and one hand on the hip",
    "both hands in the pockets with relaxed shoulders",
    "one hand in a pocket and the other hanging loosely",
    "arms loosely crossed over the waist with a confident look",
    "standing in profile with the chin slightly raised",
    "turned 45 degrees to the side, looking back into the lens",
    "back to the camera, looking over the left shoulder",
    "back to the camera, looking over the right shoulder",
    "walking towards the camera in mid-stride",
    "walking past the camera from left to right",
    "walking away from the camera with the garment in motion",
    "taking a small step forward with one heel lifted",
    "crossing the ankles while standing tall",
    "leaning one shoulder against a wall with the legs crossed",
    "leaning back against a wall with one foot resting on it",
    "sitting upright on a simple stool with hands on the knees",
    "sitting sideways on a chair with one arm over the backrest",
    "sitting on a high stool with one foot on the rung",
    "sitting on the floor with one knee drawn up",
    "sitting on the floor with legs stretched to one side",
    "sitting on low steps, elbows resting on the knees",
    "crouching low with forearms resting on the thighs",
    "kneeling on one knee with the back straight",
    "perched on the edge of a table with ankles crossed",
    "adjusting the collar with both hands",
    "holding the lapels lightly with both hands",
    "buttoning the front of the garment while glancing down",
    "adjusting one cuff with the opposite hand",
    "rolling up one sleeve while looking at the camera",
    "smoothing the front of the garment with one hand",
    "pinching the hem lightly to show the fabric",
    "holding the hem out to one side to show its drape",
    "resting one hand on the waistband with the thumb hooked in",
    "thumbs hooked in the belt loops with feet apart",
    "one hand touching the neckline, gaze lowered",
    "one hand brushing the hair behind the ear",
    "both hands lifted to gather the hair at the nape",
    "one hand resting on the back of the neck, elbow out",
    "one arm raised overhead in a soft curve",
    "both arms stretched wide to show the cut of the garment",
    "both hands clasped loosely behind the back",
    "both hands clasped loosely in front of the body",
    "one hand holding the opposite elbow behind the back",
    "one arm across the body, holding the opposite upper arm",
    "fingertips under the chin with a calm gaze",
    "turning on the spot so that the fabric swings out",
    "half turn with the garment flowing behind",
    "light jump with knees slightly bent and a natural smile",
    "swaying the hips gently to one side, arms following",
    "leaning forward slightly with hands on the thighs",
    "leaning back slightly with the chest open and eyes closed",
    "looking down at the garment with a soft smile",
    "looking up towards the light with parted lips",
    "looking away to the left with a thoughtful expression",
    "looking away to the right with a gentle laugh",
    "draping a jacket over one shoulder with a finger through the loop",
    "slipping one arm out of the outer layer",
    "holding the outer layer open to show the lining",
    "carrying a small handbag in front with both hands",
    "resting one hand on a prop cube beside the body",
    "one foot placed on a low box with a hand on the raised knee",
    "legs wide in a strong stance with hands on both hips",
    "feet together, body in a gentle S-curve, arms at rest",
    "stretching one leg forward with the toe pointed",
    "lifting one shoulder towards the chin with a playful look",
    "hands folded on one knee while seated on the floor",
    "reaching one hand towards the camera with an open palm",
)

ANGLES: Final[tuple[str, ...]] = (
    "seen from the front",
    "seen from a three-quarter angle on the left",
    "seen from a three-quarter angle on the right",
    "seen from the left side",
    "seen from the right side",
    "seen from slightly below",
    "seen from slightly above",
)

FRAMINGS: Final[tuple[str, ...]] = (
    "full-length framing",
    "framed from the knees up",
    "framed from the waist up",
    "close on the details of the garment",
)


def choose_poses(count: int, *, rng: random.Random, without: Collection[str] = ()) -> tuple[str, ...]:
    """`count` different poses, none of them in `without` (compared without regard to case).

    The plain library comes first; after it, the same poses with an angle and a framing, some 1,900 more.
    """
    taken = {pose.casefold() for pose in without}
    fresh = (pose for pose in _endless(rng) if pose.casefold() not in taken)
    return tuple(islice(fresh, max(count, 0)))


def _endless(rng: random.Random) -> Iterator[str]:
    plain = list(POSES)
    rng.shuffle(plain)
    yield from plain
    varied = [", ".join(parts) for parts in product(POSES, ANGLES, FRAMINGS)]
    rng.shuffle(varied)
    yield from varied
    # Nobody asks for so many, but the promise is `count` poses whatever `count` is.
    take = 2
    while True:
        for pose in varied:
            yield f"{pose}, take {take}"
        take += 1
