"""Digests of ground truth and predictions, by which what rests on them names them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth


def digest_of_truth(truth: GroundTruth) -> str:
    """Return the SHA-256 of the images and objects."""
    return digest_of(truth.image_ids, truth.categories, truth.image_N, truth.category_N, truth.boxes_N4)


def digest_of_detections(d: Detections) -> str:
    """Return the SHA-256 of boxes and their scores."""
    return digest_of(d.unknown, d.image_D, d.category_D, d.boxes_D4, d.scores_D)


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 of arrays and plain values."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else json.dumps(part).encode())
    return digest.hexdigest()
