"""From a checkpoint on disk to predictions.jsonl, evaluation.json and report.html."""

from __future__ import annotations

from pathlib import Path

from coord_codec import CoordGrid
from coord_eval import Evaluation, score

from .config import RunConfig
from .convergence import score_checkpoints
from .picture_set import PictureSet
from .readings import READINGS, Reading
from .report_sections import run_sections
from .run_folder import write_text
from .truth import truth_for


def report_on(config: RunConfig, folder: Path, pictures: PictureSet) -> Evaluation:
    """Score every reading's predictions; the first one's evaluation.json and report.html lie in `folder`."""
    if config.evaluation.each_checkpoint:
        score_checkpoints(config, folder, pictures)
    main, *others = (READINGS[name] for name in config.evaluation.readings)
    for reading in others:
        place = reading.folder(folder, first=False)
        evaluation = score_reading(config, place / "predictions.jsonl", pictures, reading)
        write_text(place / "evaluation.json", evaluation.to_json())
    evaluation = score_reading(config, folder / "predictions.jsonl", pictures, main)
    evaluation.write_report(
        folder,
        image_root=pictures.root,
        title=_title(config, pictures),
        sections=run_sections(folder),
        max_overlays=config.evaluation.overlays,
    )
    return evaluation


def score_reading(config: RunConfig, predictions: Path, pictures: PictureSet, reading: Reading) -> Evaluation:
    """Score one file of answers against `pictures` the way the run was trained to answer."""
    return score(
        truth_for(pictures, config.evaluation.limit),
        predictions,
        boxes=reading.boxes,
        # The numbers that a run without coordinate tokens learns to write count from 0 to the grid's scale.
        scale=None if config.custom.coord_tokens.enabled else float(CoordGrid().scale),
        markers=config.data.markers,
        order=config.data.order,
        max_objects=config.data.max_objects,
    )


def _title(config: RunConfig, pictures: PictureSet) -> str:
    what = {"train": "memorised: scored on the training pictures", "heldout": "scored on held-out pictures"}
    return f"{len(pictures)} pictures, {what[config.evaluation.pictures]}"


def summary(evaluation: Evaluation) -> list[str]:
    """The last lines of a run."""
    values = evaluation.to_dict()
    coco, ceiling, form = values["coco"], values["ceiling"], values["format"]
    share = form["parsed"] / max(form["answers"], 1)
    return [
        f"AP {coco['AP']:.3f} (quantisation ceiling {ceiling['AP']:.3f})   AP50 {coco['AP50']:.3f}   "
        f"mean IoU {values['mean_iou']:.3f}",
        f"{share:.1%} of {form['answers']} answers parse, {form['truncated']} were cut off; "
        f"ranking score: {values['score_source']}",
    ]
