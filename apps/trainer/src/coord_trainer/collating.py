"""A batch of swift's, and where its objects are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from coord_codec import CoordVocab
from coord_losses import ObjectSlots

from .packing import pack


def collate_samples(
    samples: list[dict[str, Any]], collate: Callable, vocab: CoordVocab | None, packing: bool = False
) -> dict[str, Any]:
    """Swift's batch plus the slots of its objects (a function of the module, so that workers can pickle it)."""
    extras = [(sample.pop("coord_layout"), sample.pop("coord_boxes")) for sample in samples]
    if packing:
        batch, starts = pack([collate([sample]) for sample in samples])
        places = {"batch_rows": [0] * len(samples), "starts": starts}
    else:
        batch, places = collate(samples), {}
    if vocab is None:  # all is text: no coordinates, no objects
        nothing = torch.zeros(0, 4)
        batch["coord_slots"] = ObjectSlots(nothing.long(), nothing, torch.zeros(0, dtype=torch.long))
    else:
        layouts, boxes = zip(*extras, strict=True)
        batch["coord_slots"] = ObjectSlots.from_layouts(layouts, batch["labels"], boxes, vocab, **places)
    return batch
