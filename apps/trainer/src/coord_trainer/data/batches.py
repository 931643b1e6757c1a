"""Collates samples into padded or packed batches, with the token positions of their objects (`ObjectSlots`).

A packed batch is one row without padding, for sdpa as well as flash-attention, with the bounds of its samples.
Without them transformers derives these from the position ids, which need four rows [text, time, height, width], the
first restarting at 0 for each sample, and no attention mask. (With three rows, or a mask of ones, samples would attend
to each other.) Bounds of images are passed as well, since the device would be asked for what the host knows here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.vision_utils import get_vision_cu_seqlens

from coord_codec import CoordVocab
from coord_losses.hf.collator import collate_with_objects

_TOKEN_KEYS = ("input_ids", "labels", "mm_token_type_ids")
_IMAGE_KEYS = ("pixel_values", "image_grid_thw")
_OBJECTS = {"coord_layout": "layout", "coord_boxes": "boxes", "coord_geometry": "geometry"}


def collate_samples(
    samples: list[dict[str, Any]],
    collate: Callable[..., dict[str, Any]],
    vocab: CoordVocab | None,
    packing: bool = False,
) -> dict[str, Any]:
    """Collate samples and add the token positions of their objects.

    Args:
        samples: samples of `Samples`, which are not changed
        collate: swift's collator
        vocab: the coordinate tokens; None if coordinates are written as text
        packing: pack the batch into one row
    """

    def join(inputs: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        if packing:
            batch, starts = pack([collate([sample]) for sample in inputs])
            return batch, {"batch_rows": [0] * len(inputs), "starts": starts}
        batch = collate(inputs)
        # A sample begins at column 0 unless it is padded on the left.
        return batch, {"starts": batch["attention_mask"].long().argmax(dim=1).tolist()}

    inputs = [{_OBJECTS.get(name, name): value for name, value in sample.items()} for sample in samples]
    names = [sample.pop("coord_sample", None) for sample in inputs]
    sources = [sample.pop("coord_source", None) for sample in inputs]
    batch = collate_with_objects(inputs, join, vocab)
    if "image_grid_thw" in batch:
        bounds = get_vision_cu_seqlens(batch["image_grid_thw"])
        batch |= {"image_cu_seqlens": bounds, "image_max_seqlen": int(bounds.diff().max())}
    batch["coord_slots"] = batch.pop("objects")
    batch["coord_samples"] = [name for name in names if name is not None]
    batch["coord_sources"] = [source for source in sources if source is not None]
    return batch


def pack(batches: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Concatenate batches of one sample each.

    Args:
        batches: batches of swift's collator, with `position_ids` [3, 1, T] and `text_position_ids` [1, T].

    Returns:
        The packed batch of one row, and the column at which each sample begins. The first token of each sample has no
        label, so that it is not predicted from the sample before it.
    """
    starts, length = [], 0
    for batch in batches:
        starts.append(length)
        length += batch["input_ids"].shape[1]
    packed: dict[str, Any] = {
        name: torch.cat([batch[name] for batch in batches], dim=1) for name in _TOKEN_KEYS if name in batches[0]
    }
    for name in _IMAGE_KEYS:
        if image_tensors := [batch[name] for batch in batches if name in batch]:
            packed[name] = torch.cat(image_tensors)
    packed["labels"][:, starts] = -100
    rows_41T = [torch.cat([batch["text_position_ids"][None], batch["position_ids"]]) for batch in batches]
    packed["position_ids"] = torch.cat(rows_41T, dim=2)
    bounds = torch.tensor([*starts, length], dtype=torch.int32)
    packed |= {f"cu_seq_lens_{side}": bounds for side in "qk"}
    packed |= {f"max_length_{side}": int(bounds.diff().max()) for side in "qk"}
    return packed, starts
