"""A batch in one row without padding, for sdpa as well as flash-attention.

transformers sees from the position ids where samples begin: four rows [text, time, height, width], of which the
first restarts at 0 for each sample, and no attention mask. (With three rows, or a mask of ones, samples would see
each other.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_ALONG_TOKENS = ("input_ids", "labels", "mm_token_type_ids")
_ALONG_PICTURES = ("pixel_values", "image_grid_thw")


def pack(batches: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Put batches of one sample each behind one another.

    Args:
        batches: as swift's collator makes them, with `position_ids` [3, 1, T] and `text_position_ids` [1, T].

    Returns:
        The batch of one row, and the column at which each sample begins. No label crosses a boundary: the first
        token of a sample is not predicted from the one before.
    """
    starts, length = [], 0
    for batch in batches:
        starts.append(length)
        length += batch["input_ids"].shape[1]
    packed = {
        name: torch.cat([batch[name] for batch in batches], dim=1)
        for name in _ALONG_TOKENS
        if name in batches[0]
    }
    packed |= {
        name: torch.cat([b[name] for b in batches if name in b])
        for name in _ALONG_PICTURES
        if name in batches[0]
    }
    packed["labels"][:, starts] = -100
    rows_41T = [torch.cat([batch["text_position_ids"][None], batch["position_ids"]]) for batch in batches]
    packed["position_ids"] = torch.cat(rows_41T, dim=2)
    return packed, starts
