"""Finds the answer in records of servers and trainers: OpenAI, vLLM, SGLang, TGI, Ollama, ms-swift, LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coord_codec import InputError

_TEXTS = ("response", "predict", "prediction", "generated_text", "completion", "output_text", "answer", "content")
"""Keys under which an answer stands instead of `text`."""
TEXTS = ("text", *_TEXTS, "choices", "outputs")
"""Keys by which a record is known as an answer."""
_INNER = ("body", "message", "choices", "outputs", "output", "candidates", "parts")
"""Keys under which a server puts what it answered."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "refusal", "tool_calls")
"""Keys of what a model writes besides its answer."""
_FINISHED = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "incomplete"), "length"),
    "error": "error",
}
_REASONS = ("finish_reason", "finishReason", "done_reason", "stop_reason", "status")
_MOST_SHOWN = 12


def with_text(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a record whose answer is its `text` and whose image is its `image`.

    Read are the messages of chat servers and their batches with a `custom_id`, completions, `outputs` of vLLM, parts
    of a message, `response` and `images` of ms-swift, and `predict` of LLaMA-Factory, whose `label` is the target text.
    An answer that a server left out is empty; `thoughts` then names the fields with what the model wrote instead.

    Raises:
        InputError: the record has no answer, or several; the message names the keys found

    Example:
        >>> with_text({"image": "a.jpg", "choices": [{"message": {"content": "[]"}, "finish_reason": "stop"}]}, "")
        {'image': 'a.jpg', 'text': '[]', 'finish_reason': 'stop'}
    """
    values = dict(record)
    found = _Found(where)
    if not isinstance(values.get("text"), str):
        found.search(values)
        if found.text is None:
            shown = ", ".join(map(str, list(values)[:_MOST_SHOWN]))
            raise InputError(f"{where}: text: missing; found the keys {shown}: write the answer as text")
        values = {
            **{key: value for key, value in values.items() if key not in (*_TEXTS, *_INNER, "custom_id", "images")},
            **({} if "image" in values or "image_id" in values else {"image": _image(values, where)}),
            "text": found.text,
            **({"finish_reason": found.reason} if found.reason else {}),
        }
        if "predict" in record:
            values.pop("label", None)
    found.thoughts += [key for key in _THOUGHTS if values.get(key)]
    if found.thoughts and not str(values["text"]).strip():
        values["thoughts"] = tuple(dict.fromkeys(found.thoughts))
    return values


class _Found:
    """The answer of a record, why it ended, and the fields with other text."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.text: str | None = None
        self.reason = ""
        self.thoughts: list[str] = []

    def search(self, values: Mapping[str, Any]) -> None:
        """Search a record, and what stands below its keys, for the answer."""
        for key in _REASONS:
            self.reason = self.reason or _FINISHED.get(str(values.get(key)).lower(), "")
        self.thoughts += [key for key in _THOUGHTS if values.get(key)]
        for key in ("text", *_TEXTS, *_INNER):
            value = values.get(key)
            if self.text is None and key in values:
                self._below(key, value)
        if self.text is None and values.get("error"):
            self.text, self.reason = "", "error"
        if self.text is None and any(key in values for key in ("content", *_THOUGHTS)):
            self.text = ""  # "content": null beside a thought or a call

    def _below(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            self.text = value
        elif isinstance(value, Mapping):
            self.search(value)
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            self.text = value[0]
        elif isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
            if "role" in value[-1]:
                value = value[-1:]  # the last turn of a conversation
            if key in ("choices", "outputs", "candidates") and len(value) > 1:
                raise InputError(
                    f"{self.where}: {key}: expected one answer, found {len(value)}; write a record for each"
                )
            texts: list[str] = []
            for part in value:  # those of a message: text, and what is none
                inner = _Found(self.where)
                inner.search(part)
                self.thoughts += inner.thoughts
                self.reason = self.reason or inner.reason
                texts += [inner.text] if inner.text is not None and part.get("type") != "reasoning" else []
            self.text = "".join(texts) if texts else None


def _image(values: Mapping[str, Any], where: str) -> Any:
    """Return the image that a record names by its only image, or by the id of a batch."""
    images = values.get("images")
    if isinstance(images, list) and len(images) > 1:
        raise InputError(f"{where}: images: expected one image, found {len(images)}; name that of the answer as image")
    first = images[0] if isinstance(images, list) and images else None
    if isinstance(first, Mapping):
        first = first.get("path")
    return first if isinstance(first, str) else values.get("custom_id")
