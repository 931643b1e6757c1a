"""Keeps answers to the grammar of `lark_grammar`: a `LogitsProcessor` over llguidance, for markers and JSON alike.

It works with any `generate` of transformers, with beams and batches, since the answer so far alone decides what may
follow. A description consists of any tokens but markers, coordinates and control tokens, or is one of a list of known
descriptions. Boxes have area, no object is generated twice, and the turn ends only between objects.

Shapes: B answers, T tokens so far, N answers of any lengths, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from coord_codec import GEOMETRIES, Geometry
from coord_detect.grammar.boxes import BoxRules
from coord_detect.grammar.matchers import Matchers
from coord_detect.grammar.served import AnswerForm

_MASKS = 256
"""Masks that are kept on the device; there are a handful with markers, and one for each text within a name in JSON."""


class CoordGrammar(LogitsProcessor):
    """Allows only the tokens after which the answer can still become well-formed.

    With `max_new_tokens` a complete answer with markers also ends within that many tokens, end of turn included. JSON
    has no such limit, since its text has many spellings: the number of objects bounds an answer, and one that is cut
    off loses its last object. A polygon in JSON can be generated twice, since no single token ends every polygon.

    Args:
        form: of the answers; descriptions are token ids for markers (see `AnswerForm.in_ids`), and text for JSON
        end_id: the token that ends the turn
        prompt_length: tokens in front of the answer (the padded prompt's length)
        max_new_tokens: the length limit given to `generate`; None for no limit
        tokenizer: a fast one, for JSON
    """

    def __init__(
        self,
        form: AnswerForm,
        end_id: int,
        *,
        prompt_length: int,
        max_new_tokens: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected None or at least 1, found {max_new_tokens}")
        self._end_id, self._prompt_length, self._min_objects = end_id, prompt_length, form.min_objects
        self._others = [end_id, *(form.marker_ids or ())]
        self._matchers = Matchers(replace(form, min_objects=0), end_id, tokenizer)
        self._vocab, fixed = form.vocab, form.geometry.fixed
        closing = None if fixed or form.marker_ids is None else form.marker_ids[-1]
        name_of = _name_in_json(tokenizer) if form.as_json else _name_between(form.marker_ids or ())
        self._shapes = BoxRules(form.vocab, name_of, form.geometry, closing)
        self._restricts = fixed or closing is not None
        self._limit = None if form.as_json else max_new_tokens
        self._any_name = form.spelled is None
        longest = max(map(len, form.spelled or [()]), default=0)
        self._longest = 3 + len(form.marker_ids or ()) + form.geometry.longest + longest
        self._masks: dict[tuple[bytes, int, torch.device], torch.Tensor] = {}

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: Any,
        markers: str,
        *,
        prompt_length: int,
        style: str = "markers",
        max_new_tokens: int | None = None,
        descriptions: Iterable[str] | None = None,
        max_objects: int | None = None,
        min_objects: int = 0,
        geometry: Geometry = GEOMETRIES["box"],
    ) -> CoordGrammar:
        """Return the grammar of a marker family (`"obj"`, `"qwen"`) in a tokenizer's ids; `descriptions` are texts.

        Descriptions cannot contain added tokens of any kind (control tokens, the other family's markers, the
        wildcard) or padding rows of the embedding. A known description ends when it is complete, even if the model was
        never taught to stop there. There are at least `min_objects`, unless the length limit leaves no space for them.

        Raises:
            ValueError: the tokenizer lacks a coordinate token or a marker, or no name or object is allowed.
        """
        form = AnswerForm.for_tokenizer(
            tokenizer, markers, style=style, names=descriptions, max_objects=max_objects, geometry=geometry
        )
        form = replace(form.in_ids(tokenizer), min_objects=min_objects)
        end_id = tokenizer.eos_token_id
        return cls(form, end_id, prompt_length=prompt_length, max_new_tokens=max_new_tokens, tokenizer=tokenizer)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores [B, V] of the next token with -inf at every token that the grammar rules out.

        Args:
            input_ids: [B, T], the prompts and the answers so far
            scores: [B, V], the logits of the next token
        """
        if input_ids.shape[1] < self._prompt_length:
            raise ValueError(
                f"prompt_length is {self._prompt_length}, but generation is at {input_ids.shape[1]} tokens"
            )
        answers = list(enumerate(input_ids[:, self._prompt_length :].tolist()))
        return scores.masked_fill(~self.allowed(answers, scores.shape[1], scores.device), -torch.inf)

    def allowed(self, answers: Sequence[tuple[int, list[int]]], size: int, device: torch.device) -> torch.Tensor:
        """Return which tokens may follow answers of any lengths, as a boolean mask [N, V] on a device.

        `answers` are number and token ids so far of each; what an answer has in common with the one last
        given for its number costs nothing.
        """
        masks, in_shapes, first = [], {}, self._vocab.first_id
        for place, (row, answer) in enumerate(answers):
            matcher, is_whole = self._matchers.after(row, answer)
            packed = matcher.compute_bitmask()
            if is_whole and not matcher.is_stopped():
                packed = self._limited(packed, matcher, row, answer)
                if self._restricts and packed[first // 8] >> first % 8 & 1:
                    in_shapes[place] = self._shapes.read(answer, row)
            masks.append(self._mask(packed, size, device))
        allowed_NV = torch.stack(masks)
        self._shapes.restrict(allowed_NV, in_shapes)
        return allowed_NV

    def _limited(self, packed: bytes, matcher: Any, row: int, answer: list[int]) -> bytes:
        """Return the packed mask of what may follow `answer` within the length limit and with enough objects."""
        left = None if self._limit is None else self._limit - len(answer)
        if left is not None and left <= self._longest:
            kept = [same for same in self._choices(packed) if self._fewest(matcher, int(same[0]), left) <= left]
            packed = _packed(np.concatenate([*kept, np.zeros(0, dtype=int)]), len(packed))
        if self._min_objects and self._shapes.read(answer, row).count < self._min_objects:
            at, bit = divmod(self._end_id, 8)
            more = packed[:at] + bytes([packed[at] & ~(1 << bit)]) + packed[at + 1 :]
            packed = more if any(more) else packed  # the limit leaves no space for more
        return packed

    def _choices(self, packed: bytes) -> list[np.ndarray]:
        """Return the allowed tokens, those together that leave equally many to the end: coordinates, any words."""
        allowed = np.flatnonzero(_unpacked(packed))
        is_side = (allowed >= self._vocab.ids.start) & (allowed < self._vocab.ids.stop)
        is_word = ~is_side & ~np.isin(allowed, self._others) & self._any_name
        together = [allowed[is_side], allowed[is_word], *allowed[~is_side & ~is_word, None]]
        return [same for same in together if len(same)]

    def _fewest(self, matcher: Any, token: int, most: int) -> int:
        """Return the fewest tokens from `token` to the end of the turn, both included; above `most` if more."""
        if token == self._end_id:
            return 1
        level = [(matcher, token)]
        for count in range(2, most + 1):
            following = []
            for before, chosen in level:
                after = before.deep_copy()
                after.try_consume_tokens([chosen])
                if after.is_accepting():
                    return count
                following += [(after, int(same[0])) for same in self._choices(after.compute_bitmask())]
            level = following
        return most + 1

    def _mask(self, packed: bytes, size: int, device: torch.device) -> torch.Tensor:
        """Return a packed mask as a tensor [V] on a device."""
        key = (packed, size, device)
        if key not in self._masks:
            if len(self._masks) >= _MASKS:
                self._masks.clear()
            mask_V = torch.zeros(size, dtype=torch.bool)
            mask_V[: self._matchers.size] = torch.from_numpy(_unpacked(packed))[: self._matchers.size]
            self._masks[key] = mask_V.to(device, non_blocking=True)
        return self._masks[key]


def _unpacked(packed: bytes) -> np.ndarray:
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little").astype(bool)


def _packed(tokens: np.ndarray, size: int) -> bytes:
    allowed_V = np.zeros(8 * size, dtype=np.uint8)
    allowed_V[tokens] = 1
    return np.packbits(allowed_V, bitorder="little").tobytes()


def _name_between(marker_ids: Sequence[int]) -> Any:
    """Return what reads a name, as its tokens, from the tokens between two shapes."""
    markers = frozenset(marker_ids)
    return lambda between: tuple(token for token in between if token not in markers)


def _name_in_json(tokenizer: Any) -> Any:
    """Return what reads a name, as its text, from the tokens between two shapes."""

    def name_of(between: tuple[int, ...]) -> Hashable:
        _, key, rest = tokenizer.decode(between).partition('{"desc": ')
        name: Hashable = json.JSONDecoder().raw_decode(rest)[0] if key else None
        return name

    return name_of
