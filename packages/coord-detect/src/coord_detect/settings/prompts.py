"""The prompts that a model is asked with: plain words, without what a chat template or a processor interprets."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from coord_codec.vocab import PLACEHOLDERS

DEFAULT_PROMPT = "Describe all objects in the image with their bounding boxes."
DEFAULT_CLASS_PROMPT = "Describe all objects of these classes with their bounding boxes: {classes}"

_CONTROL_TOKENS = re.compile(
    "|".join((r"<\|(im_start|im_end|endoftext|(image|video|vision)_[a-z]+)\|>", *map(re.escape, PLACEHOLDERS)))
)
"""Tokens that end a message or are replaced by pixels, which a chat template would interpret within a prompt."""


def _plain_prompt(value: str) -> str:
    if not value.strip() or "<image>" in value:
        raise ValueError("expected a non-empty prompt without <image>; the image is put in front of it")
    if token := _CONTROL_TOKENS.search(value):
        raise ValueError(f"expected a prompt in plain words, without the control token {token[0]}; remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected valid Unicode, found half a surrogate pair") from None
    return value


def _class_prompt(value: str) -> str:
    if "{classes}" not in value or "<image>" in value:
        raise ValueError("expected a prompt with {classes} and without <image>; the image is put in front of it")
    return _plain_prompt(value)


Prompt = Annotated[str, AfterValidator(_plain_prompt)]
ClassPrompt = Annotated[str, AfterValidator(_class_prompt)]
