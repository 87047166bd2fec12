"""What a generateContent request says, parsed as strictly as Google does."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from localcloud.providers.gemini_errors import ApiError, bad_request, unimplemented

ASPECT_RATIOS = ("1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9")
MIME_TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")

_LEFT_OUT = ("tools", "toolConfig", "cachedContent")


class _Model(BaseModel):
    # Google takes camelCase and snake_case alike, and refuses names that it doesn't know.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Blob(_Model):
    mime_type: str
    data: str

    def decoded(self) -> bytes:
        text = self.data.replace("-", "+").replace("_", "/")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request("contents.parts.inline_data.data", "Base64 decoding failed") from error


class Part(_Model):
    text: str | None = None
    inline_data: Blob | None = None
    thought: bool | None = None
    thought_signature: str | None = None


class Content(_Model):
    parts: list[Part] = Field(min_length=1)
    role: Literal["user", "model"] | None = None


class ImageConfig(_Model):
    aspect_ratio: str | None = None
    image_size: Literal["512", "1K", "2K", "4K"] | None = None


class GenerationConfig(_Model):
    image_config: ImageConfig = Field(default_factory=ImageConfig)
    response_modalities: list[Literal["TEXT", "IMAGE"]] | None = None
    response_mime_type: str | None = None
    candidate_count: int = Field(default=1, ge=1, le=1)
    seed: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    thinking_config: dict[str, Any] | None = None


class GenerateContent(_Model):
    contents: list[Content] = Field(min_length=1)
    system_instruction: Content | None = None
    safety_settings: list[dict[str, Any]] | None = None
    generation_config: GenerationConfig = Field(default_factory=GenerationConfig)
    labels: dict[str, str] | None = None

    @property
    def prompt(self) -> str:
        texts = [part.text for content in self.contents for part in content.parts if part.text]
        return "\n".join(texts)

    @property
    def photos(self) -> list[bytes]:
        blobs = [part.inline_data for content in self.contents for part in content.parts if part.inline_data]
        return [blob.decoded() for blob in blobs]


def parse(body: dict[str, Any]) -> GenerateContent:
    for name in _LEFT_OUT:
        if body.get(name):
            raise unimplemented(name)
    try:
        request = GenerateContent.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise bad_request(where, f"Invalid value at '{where}': {first['msg']}") from error
    ratio = request.generation_config.image_config.aspect_ratio
    if ratio is not None and ratio not in ASPECT_RATIOS:
        raise bad_request(
            "generation_config.image_config.aspect_ratio",
            f"Aspect ratio {ratio} is not one of {', '.join(ASPECT_RATIOS)}",
        )
    for content in request.contents:
        for part in content.parts:
            if part.inline_data is not None and part.inline_data.mime_type not in MIME_TYPES:
                raise ApiError(400, f"Unsupported MIME type: {part.inline_data.mime_type}")
    if not request.prompt.strip():
        raise bad_request("contents", "Unable to submit request because it must have a text parameter.")
    return request
