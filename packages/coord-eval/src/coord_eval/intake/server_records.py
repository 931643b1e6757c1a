"""Finds the answer in records of servers and trainers: OpenAI's responses and batches, ms-swift, LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coord_codec import InputError

_TEXTS = ("response", "predict", "prediction", "generated_text", "completion", "output", "answer", "content")
"""Keys under which an answer stands instead of `text`."""
_FINISHED = {"stop": "stop", "eos": "stop", "length": "length", "max_tokens": "length", "error": "error"}


def with_text(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a record whose answer is its `text` and whose image is its `image`.

    Read are `choices` (chat or completion), those below `response` and `body` of a batch with its `custom_id`,
    `response` and `images` of ms-swift, and `predict` of LLaMA-Factory, whose `label` is the target text.

    Raises:
        InputError: the record has no answer; the message names the keys found

    Example:
        >>> with_text({"image": "a.jpg", "choices": [{"message": {"content": "[]"}, "finish_reason": "stop"}]}, "")
        {'image': 'a.jpg', 'text': '[]', 'finish_reason': 'stop'}
    """
    values = dict(record)
    if values.get("text") is not None:
        return values
    body = _body(values)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    message = choice.get("message")
    stated = [message.get("content") if isinstance(message, Mapping) else choice.get("text")]
    stated += [values.get(key) for key in _TEXTS]
    text = next((value for value in stated if isinstance(value, str)), None)
    if text is None:
        found = ", ".join(map(str, list(values)[:12]))
        raise InputError(f"{where}: text: missing; found the keys {found}: write the answer as text")
    kept = {key: value for key, value in values.items() if key not in (*_TEXTS, "choices", "custom_id", "images")}
    if "predict" in values:
        kept.pop("label", None)
    if "image" not in values and "image_id" not in values:
        kept["image"] = _image(values)
    finished = _FINISHED.get(str(choice.get("finish_reason")))
    return {**kept, "text": text, **({"finish_reason": finished} if finished else {})}


def _body(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a server answered: the record, its `response`, or the `body` of that."""
    for key in ("response", "body"):
        inner = values.get(key)
        values = inner if isinstance(inner, Mapping) else values
    return values


def _image(values: Mapping[str, Any]) -> Any:
    """Return the image that a record names by its first image, or by the id of a batch."""
    images = values.get("images")
    first = images[0] if isinstance(images, list) and images else None
    if isinstance(first, Mapping):
        first = first.get("path")
    return first if isinstance(first, str) else values.get("custom_id")
