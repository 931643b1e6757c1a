"""Computes attention within each sample of a packed row.

With sdpa, transformers would build a mask over the whole row, whose cost grows with the square of its length;
`attend_by_sample` computes the attention of each sample separately.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_BY_SAMPLE = "sdpa_by_sample"


def attend_by_sample(model: PreTrainedModel) -> None:
    """Make the text model attend within each sample of a packed row; the vision tower already does so by image.

    It accepts packed rows only, and therefore is for training; checkpoints are not affected.
    """
    AttentionInterface.register(_BY_SAMPLE, _by_sample)
    # Without a mask function of this name, transformers makes no mask.
    model.set_attn_implementation({"text_config": _BY_SAMPLE})


def _by_sample(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention within each sample: [1, heads, T, D] -> [1, T, heads, D].

    Samples are padded after their last token, which causal attention never reads.
    """
    if attention_mask is not None or position_ids is None or position_ids.shape[0] != 1:
        raise ValueError("attend_by_sample takes packed rows alone: batch size 1, position ids, no attention mask")
    is_start_T = torch.diff(position_ids[0], prepend=position_ids[0, :1] - 2) != 1
    starts_S = is_start_T.nonzero()[:, 0]
    sample_T = is_start_T.cumsum(0) - 1
    place_T = torch.arange(len(is_start_T), device=is_start_T.device) - starts_S[sample_T]
    samples, longest = len(starts_S), int(place_T.max()) + 1

    def by_sample(row_1HTD: torch.Tensor) -> torch.Tensor:
        _, heads, _, width = row_1HTD.shape
        padded_SLHD = row_1HTD.new_zeros(samples, longest, heads, width)
        return padded_SLHD.index_put((sample_T, place_T), row_1HTD[0].transpose(0, 1)).transpose(1, 2)

    settings["is_causal"] = True
    rows = (by_sample(row_1HTD) for row_1HTD in (query, key, value))
    attended_SLHD, _ = sdpa_attention_forward(module, *rows, None, **settings)
    return attended_SLHD[sample_T, place_T][None], None
