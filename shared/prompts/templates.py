"""The first layer of every prompt: what kind of photography this is, by mode and scene."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SYSTEM_PROMPTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "normal": MappingProxyType(
            {
                "商业摄影": (
                    "Professional commercial photography of clothing on model, studio lighting, "
                    "high resolution, clean background, fashion editorial style"
                ),
                "户外场景": (
                    "Outdoor fashion photography, natural lighting, lifestyle setting, "
                    "model wearing clothing in natural environment"
                ),
                "创意风格": (
                    "Creative fashion photography, artistic composition, unique perspective, editorial style"
                ),
            }
        ),
        "photo_set": MappingProxyType(
            {
                "商业摄影": (
                    "Professional fashion lookbook photography series, multiple angles and poses, "
                    "consistent lighting and style, commercial presentation"
                ),
            }
        ),
    }
)

FALLBACK: Final = SYSTEM_PROMPTS["normal"]["商业摄影"]


def base_prompt(mode: str, scene: str | None) -> str:
    """The template of this mode and scene; any other mode or scene gets the studio's."""
    return SYSTEM_PROMPTS.get(mode, {}).get(scene or "", FALLBACK)
