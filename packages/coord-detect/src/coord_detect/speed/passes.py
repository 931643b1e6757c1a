"""`Passes`: forward passes of a model over several tokens of each row, rows of different lengths.

On a GPU a pass over few tokens costs as long as launching its operations takes. So there the passes have fixed shapes,
over buffers that keep their place, and those of each shape are captured as a CUDA graph.

Shapes: B rows, T tokens of the padded prompt, W tokens of a pass, S positions of the cache, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from coord_detect.speed.cache import RaggedCache
from coord_detect.speed.captured import Captured

_ROUNDED = 256
"""Buffers of fixed size have a multiple of so many positions."""


class Passes:
    """The forward passes that generate the answers to batches of prompts, one batch after another.

    Args:
        model: of any family whose layers all attend, in any wrapping of PEFT
        pad_id: stands for tokens that a row does not have
        fixed_shapes: whether passes have few widths and read whole buffers, which the next batch uses again; on a GPU
            they are captured. Otherwise passes are as wide and as long as they have to be

    Attributes:
        logits_BWV: what the prompts and the first tokens are followed by, W = 1 + their number
        prompt_length: T
        count: number of passes behind the prompts
    """

    def __init__(self, model: Any, pad_id: int, fixed_shapes: bool = False) -> None:
        self.model, self._pad, self.fixed_shapes = model, pad_id, fixed_shapes
        self._cache: RaggedCache | None = None
        self._captured: Captured | None = None

    def begin(self, inputs: Any, first: Sequence[int], longest: int) -> None:
        """Pass the prompts of a batch, each with `first`, a draft of how its answer begins.

        `longest` is the most positions that answers and drafts take behind the prompt.
        """
        self.count = 0
        if not self.fixed_shapes:
            self._cache = None  # of the batch before, before the prompts take memory
        ids_BT = inputs["input_ids"]
        rows, self.prompt_length = ids_BT.shape
        output = self.model(**followed_by(inputs, [first] * rows), use_cache=True, logits_to_keep=1 + len(first))
        self.logits_BWV, prompts = output.logits, output.past_key_values
        attended_BT = inputs.get("attention_mask", torch.ones_like(ids_BT)).bool()
        shift_B, self._axes = position_shift(self.model, attended_BT)
        if not self.fixed_shapes:
            self._cache, self._shift_B = RaggedCache(prompts), shift_B
            self._attended_BS = None if bool(attended_BT.all()) else attended_BT
            return
        needed = self.prompt_length + len(first) + longest
        if self._cache is None or not self._cache.holds(rows, needed):
            self._cache = None  # before its successor takes memory
            self._cache = RaggedCache(prompts, -(-needed // _ROUNDED) * _ROUNDED)
            self._shift_B, self._attended_BS = shift_B, attended_BT.new_ones(rows, self._cache.capacity)
            self._captured = Captured(self._pass) if ids_BT.is_cuda else None
        else:
            self._cache.refill(prompts)
        assert self._attended_BS is not None  # of passes of fixed shapes
        self._shift_B[:rows] = shift_B
        self._attended_BS[:rows] = True
        self._attended_BS[:rows, : self.prompt_length] = attended_BT

    def __call__(self, starts: list[int], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the logits [B, W, V] of one pass over `tokens`; behind a row's own tokens they mean nothing.

        `starts` are the numbers of tokens that each row keeps of the earlier passes, the prompt included.
        """
        self.count += 1
        width = max(map(len, tokens))
        if self.fixed_shapes:
            width = _fixed_width(width)
        rows = [[start, *row, *[self._pad] * (width - len(row))] for start, row in zip(starts, tokens, strict=True)]
        given_BG = torch.tensor(rows, device=self._shift_B.device)  # one copy to the device
        if self.fixed_shapes:
            return (self._captured or self._pass)(given_BG)
        place = slice(starts[0], starts[0] + width) if len(set(starts)) == 1 else None
        return self._pass(given_BG, place, max(starts) + width)

    def _pass(self, given_BG: torch.Tensor, place: slice | None = None, length: int | None = None) -> torch.Tensor:
        """Run a pass, all of whose shapes follow from those of its arguments and which reads nothing back.

        Args:
            given_BG: of each row the number of tokens that it keeps, its own tokens and padding
            place: where all rows write, if they write at the same positions
            length: number of positions that the pass reads; None for all
        """
        start_B1, ids_BW = given_BG[:, :1], given_BG[:, 1:]
        (rows, width), device = ids_BW.shape, ids_BW.device
        assert self._cache is not None
        at_BW = start_B1 + torch.arange(width, device=device)
        length = length or self._cache.capacity
        assert length is not None  # buffers that grow are read as far as the pass says
        self._cache.begin(at_BW if place is None else place, length)
        position_BW = at_BW + self._shift_B[:rows, None]
        given: dict[str, Any] = {"input_ids": ids_BW, "attention_mask": self._mask(at_BW, length)}
        given["position_ids"] = position_BW if self._axes is None else position_BW.expand(self._axes, -1, -1)
        logits_BWV: torch.Tensor = self.model(**given, past_key_values=self._cache, use_cache=True).logits
        return logits_BWV

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these from the passes to come."""
        assert self._cache is not None
        index_R = torch.tensor(rows, device=self._shift_B.device)
        self._cache.keep(index_R)
        for held in (self._shift_B, self._attended_BS):
            if held is not None:
                held[: len(rows)] = held[index_R]

    def _mask(self, at_BW: torch.Tensor, length: int) -> torch.Tensor:
        """Return which of the cache's positions each token attends to, [B, 1, W, S]."""
        mask_BWS = torch.arange(length, device=at_BW.device) <= at_BW[..., None]
        if (attended_BS := self._attended_BS) is not None:
            mask_BWS[..., : attended_BS.shape[1]] &= attended_BS[: len(at_BW), None]
        return attention_mask(self.model, mask_BWS)


def _fixed_width(tokens: int) -> int:
    """Return the width of passes over so many tokens, a power of two, so that few widths are captured."""
    return 1 << (tokens - 1).bit_length()


def position_shift(model: Any, attended_BT: torch.Tensor) -> tuple[torch.Tensor, int | None]:
    """Return what is added to a token's place for its position [B], and the number of axes of positions.

    A model, in any wrapping of PEFT, has to have passed the prompts just before: images take fewer positions
    than tokens, and Qwen's models remember how many fewer. `attended_BT` is false for the padding on the
    left.
    """
    shift_B = -(~attended_BT).sum(dim=1)
    deltas_B1 = getattr(_plain(model).model, "rope_deltas", None)
    return (shift_B, None) if deltas_B1 is None else (shift_B + deltas_B1.view(-1), 3)


def attention_mask(model: Any, attended_BWS: torch.Tensor) -> torch.Tensor:
    """Return which positions each token attends to in the form that a model's attention takes, [B, 1, W, S]."""
    attended_B1WS = attended_BWS[:, None]
    if _plain(model).config.get_text_config()._attn_implementation != "eager":
        return attended_B1WS
    dtype = model.get_input_embeddings().weight.dtype
    added_B1WS = torch.zeros(attended_B1WS.shape, dtype=dtype, device=attended_BWS.device)
    return added_B1WS.masked_fill(~attended_B1WS, torch.finfo(dtype).min)


def _plain(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def followed_by(inputs: Mapping[str, Any], answers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return a model's inputs of T tokens a row with an answer behind each, padded on the right and attended to."""
    longest = max(map(len, answers))
    ids_BW = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in answers], dtype=torch.long)
    attended_BW = torch.arange(longest) < torch.tensor(list(map(len, answers)))[:, None]
    more = {"input_ids": ids_BW, "attention_mask": attended_BW}
    return {
        name: torch.cat([value, more.get(name, torch.zeros_like(ids_BW)).to(value)], dim=1)
        if getattr(value, "shape", None) == inputs["input_ids"].shape and name != "position_ids"
        else value
        for name, value in inputs.items()
    }
