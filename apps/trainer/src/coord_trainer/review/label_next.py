"""Runs `review MODEL --unlabelled FOLDER --count N --out DIR`: which images to label next, with pre-annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_eval import ImageError, decode_image
from coord_trainer.answers.detector import Detector
from coord_trainer.answers.records import ImageSource
from coord_trainer.answers.resumable_file import json_line
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import say
from coord_trainer.detect.calibrate import trained_among, trained_images
from coord_trainer.detect.command import Request, session_settings
from coord_trainer.detect.exports import write_export
from coord_trainer.detect.image_sources import Sources
from coord_trainer.detect.session import answer_sources
from coord_trainer.review.choice import choose, doubt
from coord_trainer.review.features import image_features

CHOSEN = "label_next.jsonl"
"""A line for each chosen image, the first to label first: path, gain and its parts, and the boxes of the answer."""


def label_next(
    model: Path, sources: Sources, out: Path, count: int, config: RunConfig, exports: Sequence[str], force: bool = False
) -> Path:
    """Answer the images of a folder, and write the list of those to label next.

    Args:
        model: the folder of a model
        sources: the images
        out: the output folder; a later call continues it
        count: number of images to choose
        config: settings of the answers; with views, disagreement among them counts
        exports: formats of labelling tools to write as well, in the order of the list
        force: whether to discard earlier answers

    Returns:
        The list.

    Raises:
        InputError: if the model was trained on all of them
    """
    # Images that the model was trained on have labels already.
    detector = Detector.load(model, config)
    for note in sources.notes:
        say(f"  {note}")
    trained = {source.path for source in trained_among(sources, trained_images(Path(detector.engine.name)))}
    if trained:
        say(f"  {counted(len(trained), 'image')} were trained on and are left out")
    left = [source for source in sources.images if source.path not in trained]
    if not left:
        raise InputError(f"{sources.root}: the model was trained on all of its images; name a folder of others")

    # Answers, with the doubt about each.
    settings = session_settings(Request(model, (), out), detector)
    batch = detector.config.evaluation.batch_size
    with answer_sources(detector, sources, out / "answers", settings, batch=batch, force=force) as answered:
        records = {record["image"]: record for record in answered.records if record["finish_reason"] != "error"}
    if failed := len(answered.failed):
        say(f"  {counted(failed, 'image')} cannot be answered; the first: {answered.failed[0].get('error')}")
    left = [source for source in left if source.name in records]
    doubts = [doubt(records[source.name]) for source in left]

    # Variety, by the vision tower.
    features_NH = _features(detector, left)
    order = choose(np.array([one.gain for one in doubts]), features_NH, count)
    chosen = [
        {
            "image": left[place].name,
            "path": str(left[place].path),
            "gain": doubts[place].gain,
            **asdict(doubts[place]),
            "objects": records[left[place].name]["objects"],
        }
        for place in order
    ]
    write_text(out / CHOSEN, "".join(map(json_line, chosen)))
    pre_annotations = [records[left[place].name] for place in order]
    for name in exports:
        say(f"{name}: {write_export(name, pre_annotations, out)}")
    say(f"{counted(len(chosen), 'image')} of {len(left):,} to label next: {out / CHOSEN}")
    return out / CHOSEN


def _features(detector: Detector, sources: Sequence[ImageSource]) -> np.ndarray:
    checkpoint: Any = detector.engine.checkpoint
    bar = tqdm(sources, desc="comparing images", unit="img", mininterval=0.5, leave=None)
    rows = [_feature(checkpoint, source) for source in bar]
    width = next((len(row) for row in rows if row is not None), 1)
    return np.stack([np.zeros(width) if row is None else row for row in rows])


def _feature(checkpoint: Any, source: ImageSource) -> np.ndarray | None:
    try:
        return image_features(checkpoint, [decode_image(source.path)])[0]
    except (ImageError, ValueError):  # answered in an earlier call, and gone or changed since
        return None
