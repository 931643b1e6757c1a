"""Computes attention within each sample of a packed row.

With sdpa, transformers would build a mask over the whole row, whose cost grows with the square of its length;
`attend_by_sample` computes the attention of each sample separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_BY_SAMPLE = "sdpa_by_sample"


@dataclass
class _Samples:
    """Where each token of a packed row has its place among padded samples, for one tensor of positions.

    Attributes:
        positions_1T: the positions; all layers of a forward pass share them
        sample_T: the token's sample
        place_T: the token's place in its sample
        count: number of samples
        longest: tokens of the longest sample
    """

    positions_1T: torch.Tensor
    sample_T: torch.Tensor
    place_T: torch.Tensor
    count: int
    longest: int

    @classmethod
    def read(cls, positions_1T: torch.Tensor) -> _Samples:
        """Find the samples of a row; the CPU waits for the device once."""
        is_start_T = torch.diff(positions_1T[0], prepend=positions_1T[0, :1] - 2) != 1
        token_T = torch.arange(len(is_start_T), device=is_start_T.device)
        sample_T = is_start_T.cumsum(0) - 1
        place_T = token_T - torch.where(is_start_T, token_T, 0).cummax(0).values
        last, longest = torch.stack([sample_T[-1], place_T.max()]).tolist()
        return cls(positions_1T, sample_T, place_T, last + 1, longest + 1)


class _BySample:
    """Computes causal attention within each sample of a packed row, and finds the samples once for all layers."""

    def __init__(self) -> None:
        self._samples: _Samples | None = None

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
        **settings: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute the attention: [1, heads, T, D] -> [1, T, heads, D].

        Samples are padded after their last token, which causal attention never reads.
        """
        if attention_mask is not None or position_ids is None or position_ids.shape[0] != 1:
            raise ValueError("attend_by_sample takes packed rows alone: batch size 1, position ids, no attention mask")
        if self._samples is None or self._samples.positions_1T is not position_ids:
            self._samples = _Samples.read(position_ids)
        row = self._samples

        def by_sample(row_1HTD: torch.Tensor) -> torch.Tensor:
            _, heads, _, width = row_1HTD.shape
            padded_SLHD = row_1HTD.new_zeros(row.count, row.longest, heads, width)
            return padded_SLHD.index_put((row.sample_T, row.place_T), row_1HTD[0].transpose(0, 1)).transpose(1, 2)

        settings["is_causal"] = True
        rows = (by_sample(row_1HTD) for row_1HTD in (query, key, value))
        attended_SLHD, _ = sdpa_attention_forward(module, *rows, None, **settings)
        return attended_SLHD[row.sample_T, row.place_T][None], None


def attend_by_sample(model: PreTrainedModel) -> None:
    """Make the text model attend within each sample of a packed row; the vision tower already does so by image.

    It accepts packed rows only, and therefore is for training; checkpoints are not affected.
    """
    AttentionInterface.register(_BY_SAMPLE, _BySample())
    # Without a mask function of this name, transformers makes no mask.
    model.set_attn_implementation({"text_config": _BY_SAMPLE})


@contextmanager
def attend_to_whole_rows(model: PreTrainedModel) -> Iterator[None]:
    """Undo `attend_by_sample` within this context, for rows that are not packed."""
    packed = model.config.get_text_config()._attn_implementation == _BY_SAMPLE
    if packed:
        model.set_attn_implementation({"text_config": "sdpa"})
    try:
        yield
    finally:
        if packed:
            model.set_attn_implementation({"text_config": _BY_SAMPLE})
