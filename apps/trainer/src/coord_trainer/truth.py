"""The truth that scoring sees: the official annotations themselves where there are any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from coord_codec import Instance

from .picture_set import PictureSet


def truth_for(pictures: PictureSet, limit: int | None) -> dict[str, Any] | Sequence[Instance]:
    """COCO annotations as they stand (crowd regions and all), or the instances; cut to `limit` pictures.

    Pictures that were left out as unreadable stay in the truth: what cannot be answered is missed.
    """
    asked = [instance.image_id for instance in pictures.instances[:limit]]
    source = pictures.ground_truth
    if source is None or source.suffix == ".jsonl":
        return pictures.instances[:limit]
    document = json.loads(source.read_text(encoding="utf-8"))
    if limit is None or limit >= len(pictures):
        return document
    keep = set(asked)
    return document | {
        "images": [image for image in document["images"] if image["id"] in keep],
        "annotations": [a for a in document["annotations"] if a["image_id"] in keep],
    }
