"""From a checkpoint on disk to predictions.jsonl, evaluation.json and report.html."""

from __future__ import annotations

from pathlib import Path

from coord_eval import Evaluation, score

from .config import RunConfig
from .picture_set import PictureSet
from .report_sections import run_sections
from .truth import truth_for


def report_on(config: RunConfig, folder: Path, pictures: PictureSet) -> Evaluation:
    """Score `folder/predictions.jsonl` and write evaluation.json and report.html beside it."""
    evaluation = score(
        truth_for(pictures, config.evaluation.limit),
        folder / "predictions.jsonl",
        markers=config.data.markers,
        order=config.data.order,
        max_objects=config.data.max_objects,
    )
    evaluation.write_report(
        folder,
        image_root=pictures.root,
        title=_title(config, pictures),
        sections=run_sections(folder),
        max_overlays=config.evaluation.overlays,
    )
    return evaluation


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
