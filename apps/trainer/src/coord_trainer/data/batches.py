"""Batches: samples padded or packed, with the slots of their objects.

A packed batch is one row without padding, for sdpa as well as flash-attention. transformers finds the sample
boundaries in the position ids: four rows [text, time, height, width], of which the first restarts at 0 for each
sample, and no attention mask. (With three rows, or a mask of ones, samples would attend to each other.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from coord_codec import CoordVocab
from coord_losses import ObjectSlots

_ALONG_TOKENS = ("input_ids", "labels", "mm_token_type_ids")
_ALONG_IMAGES = ("pixel_values", "image_grid_thw")
FIRST_BATCHES = 4
"""Micro-batches that are digested: where two runs agree in them, seed and sampler are the same."""


def collate_samples(
    samples: list[dict[str, Any]], collate: Callable, vocab: CoordVocab | None, packing: bool = False
) -> dict[str, Any]:
    """Collate samples and add the slots of their objects.

    Args:
        samples: of `SampleSet`; their layouts and boxes are taken out of them
        collate: swift's collator
        vocab: the coordinate tokens, None where all is text
        packing: put the batch into one row
    """
    names = [sample.pop("coord_sample", None) for sample in samples]
    sources = [sample.pop("coord_source", None) for sample in samples]
    (geometry,) = {sample.pop("coord_geometry", "box") for sample in samples}
    extras = [(sample.pop("coord_layout"), sample.pop("coord_boxes")) for sample in samples]
    if packing:
        batch, starts = pack([collate([sample]) for sample in samples])
        places = {"batch_rows": [0] * len(samples), "starts": starts}
    else:
        batch = collate(samples)
        # Where each sample begins: column 0 unless it is padded on the left.
        places = {"starts": batch["attention_mask"].long().argmax(dim=1).tolist()}
    batch["coord_samples"] = [name for name in names if name is not None]
    batch["coord_sources"] = [source for source in sources if source is not None]
    if vocab is None:  # all is text: no coordinates, no objects
        nothing = torch.zeros(0, 4)
        batch["coord_slots"] = ObjectSlots(nothing.long(), nothing, torch.zeros(0, dtype=torch.long))
    else:
        layouts, boxes = zip(*extras, strict=True)
        batch["coord_slots"] = ObjectSlots.from_layouts(
            layouts, batch["labels"], boxes, vocab, **places, geometry=geometry
        )
    return batch


def pack(batches: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Concatenate batches of one sample each.

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
    if any("mm_token_type_ids" in batch for batch in batches):  # a sample of text alone has none
        batches = [{"mm_token_type_ids": torch.zeros_like(batch["input_ids"])} | batch for batch in batches]
    packed = {
        name: torch.cat([batch[name] for batch in batches], dim=1) for name in _ALONG_TOKENS if name in batches[0]
    }
    for name in _ALONG_IMAGES:
        if of_images := [batch[name] for batch in batches if name in batch]:
            packed[name] = torch.cat(of_images)
    packed["labels"][:, starts] = -100
    rows_41T = [torch.cat([batch["text_position_ids"][None], batch["position_ids"]]) for batch in batches]
    packed["position_ids"] = torch.cat(rows_41T, dim=2)
    return packed, starts


class BatchDigest:
    """Hashes pixels and target tokens of the first micro-batches of this rank, apart from each other.

    Groups that write targets of the same images in another form agree in `pictures` alone.
    """

    def __init__(self) -> None:
        self._count = 0
        self._hashes = {"pictures": hashlib.sha256(), "targets": hashlib.sha256()}

    def add(self, inputs: dict[str, Any], labels_BT: torch.Tensor) -> None:
        """Add a micro-batch; after the first few it is ignored."""
        if self._count == FIRST_BATCHES:
            return
        self._count += 1
        parts = {"pictures": inputs.get("pixel_values"), "targets": labels_BT}
        for name, tensor in parts.items():
            if tensor is not None:
                whole = tensor.detach().cpu().contiguous()
                self._hashes[name].update(str(tuple(whole.shape)).encode())
                self._hashes[name].update(whole.flatten().view(torch.uint8).numpy().tobytes())

    def values(self) -> dict[str, Any]:
        """Return what the manifest keeps; empty when nothing was trained."""
        if not self._count:
            return {}
        return {name: sha.hexdigest()[:16] for name, sha in self._hashes.items()} | {"batches": self._count}
