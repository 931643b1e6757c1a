"""A checkpoint on disk, answered and scored on its own, without training."""

from __future__ import annotations

import tempfile
from pathlib import Path

from coord_eval import Evaluation

from .config import RunConfig
from .errors import InputError
from .picture_set import PictureSet, sets_of
from .predict import predict_pictures
from .scoring import report_on
from .training import report_sets


def predict_checkpoint(config: RunConfig, checkpoint: Path, out: Path) -> int:
    """Write predictions.jsonl to `out`; returns the number of answers.

    Raises:
        InputError: `out` exists, no checkpoint, bad data.
    """
    _refuse_existing(out)
    with tempfile.TemporaryDirectory() as scratch:
        pictures = _pictures(config, Path(scratch))
        return predict_pictures(config, checkpoint, pictures, out)


def evaluate_checkpoint(config: RunConfig, checkpoint: Path, out: Path) -> Evaluation:
    """Predictions, evaluation.json and report.html in the new folder `out`."""
    _refuse_existing(out)
    out.mkdir(parents=True)
    pictures = _pictures(config, out / "data")
    report_sets(out, [pictures])
    predict_pictures(config, checkpoint, pictures, out / "predictions.jsonl")
    return report_on(config, out, pictures)


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise InputError(f"--out: {out} exists already; choose another name or move it away")


def _pictures(config: RunConfig, folder: Path) -> PictureSet:
    if config.evaluation.pictures == "none":
        raise InputError("evaluation.pictures is none: set it to heldout or train")
    train, heldout = sets_of(config, folder)
    return train if config.evaluation.pictures == "train" else heldout
