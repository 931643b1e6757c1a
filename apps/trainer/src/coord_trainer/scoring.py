"""From a checkpoint on disk to predictions.jsonl, evaluation.json and report.html."""

from __future__ import annotations

from pathlib import Path

from coord_eval import Evaluation, score

from .config import RunConfig
from .console import say
from .picture_set import PictureSet
from .report_sections import run_sections
from .truth import truth_for


def score_run(
    config: RunConfig, folder: Path, checkpoint: Path, pictures: PictureSet, longest_answer: int
) -> Evaluation:
    """Generate answers for `pictures` from `checkpoint`, score them and write the report into `folder`."""
    from .predict import open_checkpoint, predict, write_predictions
    from .samples import marker_ids

    tokens = config.custom.coord_tokens.enabled
    opened = open_checkpoint(checkpoint, config.model.dtype, config.model.attention, tokens)
    answers = predict(
        opened,
        pictures,
        config.data.prompt,
        marker_ids=marker_ids(config.data, opened.processor.tokenizer),
        max_new_tokens=config.evaluation.max_new_tokens or longest_answer + 16,
        batch_size=config.evaluation.batch_size,
        limit=config.evaluation.limit,
    )
    predictions = folder / "predictions.jsonl"
    count = write_predictions(predictions, answers)
    say(f"{count} answers in {predictions}")
    evaluation = score(
        truth_for(pictures, config.evaluation.limit),
        predictions,
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
    values = evaluation.to_json()
    coco, ceiling, form = values["coco"], values["ceiling"], values["format"]
    share = form["parsed"] / max(form["answers"], 1)
    return [
        f"AP {coco['AP']:.3f} (quantisation ceiling {ceiling['AP']:.3f})   AP50 {coco['AP50']:.3f}   "
        f"mean IoU {values['mean_iou']:.3f}",
        f"{share:.1%} of {form['answers']} answers parse, {form['truncated']} were cut off; "
        f"ranking score: {values['score_source']}",
    ]
