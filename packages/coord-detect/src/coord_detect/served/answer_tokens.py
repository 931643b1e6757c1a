"""Puts back the tokens of an answer that a server writes as nothing.

llama.cpp takes every added token in `<|...|>` for a control token. Unless it was started with `--special` its texts
leave them out, and its log-probabilities list their ids beside empty texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coord_codec import MARKERS, WILDCARD_TOKEN, coord_tokens

_OF_ANSWERS = (WILDCARD_TOKEN, *coord_tokens(), *(token for family in MARKERS.values() for token in family.tokens))
"""Tokens that are part of an answer, as opposed to those that end it."""


class AnswerTokens:
    """The tokens of answers by their ids in a model's tokenizer.

    Args:
        tokenizer: of `tokenizers` or transformers, as `read_tokenizer` returns it; None if it is not known
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab() if tokenizer is not None else {}
        self._texts = {vocabulary[token]: token for token in _OF_ANSWERS if token in vocabulary}

    def restored(self, text: str, steps: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return text and steps of an answer with the tokens that were left out; the same if none were, or none can be.

        The text is made of ids only if, without the tokens that were left out, it is the server's own: else the ids are
        of another tokenizer.
        """
        if not written_as_nothing(steps) or not self._texts:
            return text, steps
        ids = [step.get("id") for step in steps]
        if not all(isinstance(number, int) for number in ids):
            return text, steps
        while ids and steps[len(ids) - 1]["token"] == "" and ids[-1] not in self._texts:
            ids.pop()  # the end of the turn
        written = [
            number for number, step in zip(ids, steps, strict=False) if step["token"] or number not in self._texts
        ]
        if self._decoded(written) != text:
            return text, steps
        restored = [self._with_text(step) for step in steps[: len(ids)]]
        return self._decoded(ids), restored

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _with_text(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step with the texts of its token and of the likely ones beside it."""
        listed = [self._named(item) for item in step.get("top_logprobs") or ()]
        return self._named(step) | {"top_logprobs": listed}

    def _named(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {**item, "token": item["token"] or self._texts.get(item.get("id"), "")}


def written_as_nothing(steps: Sequence[Any]) -> bool:
    """Return whether a token before the last one has no text."""
    return any(isinstance(step, Mapping) and step.get("token") == "" for step in steps[:-1])
