"""What a caller may set on the model itself, through a task's `apiPayload`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from shared.errors import InvalidPrompt


class SafetyChoice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    category: Literal[
        "HARM_CATEGORY_HARASSMENT",
        "HARM_CATEGORY_HATE_SPEECH",
        "HARM_CATEGORY_SEXUALLY_EXPLICIT",
        "HARM_CATEGORY_DANGEROUS_CONTENT",
    ]
    threshold: Literal["BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH"]
    """A caller may be stricter or a little laxer than our default, never without any check."""


class ApiPayload(BaseModel):
    """What a caller may set on the model through a task's `apiPayload`."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, allow_inf_nan=False)

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=1, le=1000)
    seed: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    max_output_tokens: int | None = Field(default=None, ge=1, le=65_536)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    system_instruction: str | None = Field(default=None, max_length=4000, pattern=r"^[^\x00]*$")
    safety_settings: list[SafetyChoice] | None = Field(default=None, max_length=4)
    image_size: Literal["1K", "2K", "4K"] | None = None


def read_payload(payload: Mapping[str, Any]) -> ApiPayload:
    """`InvalidPrompt` names the first setting that is unknown or out of range."""
    try:
        return ApiPayload.model_validate(dict(payload))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])[:100]
        if first["type"] == "extra_forbidden":
            failure = InvalidPrompt(f"apiPayload.{name} is not a setting of this model.")
        else:
            failure = InvalidPrompt(f"apiPayload.{name} is not valid: {first['msg']}.")
    raise failure
