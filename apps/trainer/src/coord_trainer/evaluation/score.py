"""Scores a checkpoint's answers: predictions go in, evaluation.json and report.html come out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.pages import safe
from coord_data.reading.image_set import ImageSet
from coord_detect.answers.finish import answer_settings
from coord_detect.answers.resumable_file import make_folder, unfinished
from coord_detect.answers.summary import LEFT_OUT
from coord_detect.console import first_rank_first, is_first, say
from coord_detect.settings.decoding import Decoding
from coord_eval import CeilingSettings, Evaluation, ReportSection, ReportSettings, score
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.load import load_scored, report_sets
from coord_trainer.evaluation.decodings import predict_images
from coord_trainer.evaluation.run_sections import run_sections, trained_keys
from coord_trainer.evaluation.verdict import memorising_verdict
from coord_trainer.folder import prediction_files


def evaluate_checkpoint(
    config: RunConfig, checkpoint: Path, out: Path, threshold: Mapping[str, float | None] | None = None
) -> Evaluation | None:
    """Generate and score a checkpoint's answers; writes predictions, evaluation.json and report.html to `out`.

    The folder is new, or that of an unfinished evaluation, which is then resumed. The first rank scores. For
    `threshold` see `predict_images`.

    Raises:
        InputError: there is no checkpoint, the data is faulty, or the threshold cannot be reached.
    """
    with first_rank_first("evaluation"):
        images = _open_evaluation(config, out)
    predict_images(config, checkpoint, images, out / "predictions.jsonl", threshold)
    evaluation = report_on(config, out, images)
    if is_first():
        unfinished(out).unlink()
    return evaluation


def _open_evaluation(config: RunConfig, out: Path) -> ImageSet:
    """Mark a folder as that of an unfinished evaluation, and return the images."""
    make_folder(out)
    resumes = unfinished(out).is_file()
    unfinished(out).touch()
    try:
        images = load_scored(config, out / "data")
    except InputError:
        if not resumes:  # the answers of an earlier call are kept for a call with the right settings
            unfinished(out).unlink()
            with suppress(OSError):
                out.rmdir()
        raise
    report_sets(out, [images])
    return images


def report_on(config: RunConfig, folder: Path, images: ImageSet) -> Evaluation | None:
    """Score the predictions of every decoding, on the first rank; the report in `folder` is that of the first one."""
    if not is_first():
        return None
    (main, answers), *others = prediction_files(config.evaluation.decoding, folder)
    for decoding, path in others:
        evaluation = score_decoding(config, path, images, decoding)
        place = path.with_name("evaluation.json")
        write_text(place, evaluation.to_json())
        say(f"{decoding.name}: AP {headline(evaluation)['AP']:.3f} ({decoding.meaning}), {place}")
    if others:
        say(f"{main.name}, the run's own decoding ({main.meaning}):")
    evaluation = score_decoding(config, answers, images, main)
    sections = run_sections(folder, trained_keys(config))
    if config.evaluation.images == "train":
        verdict = memorising_verdict(config, evaluation, folder, _beyond_cap(config, images))
        say(verdict)
        sections = [ReportSection("Memorising", f"<p>{safe(verdict)}</p>"), *sections]
    what = {"train": "memorised: scored on the training images", "heldout": "scored on held-out images"}
    facts = {
        "run": folder.name,
        "model": Path(config.model.path).name if config.model.path else "tiny, built for the run",
        "losses": config.custom.loss_in_words,
        "decoding": main.name,
    }
    evaluation.write_report(
        folder,
        image_root=lambda name: images.root / name,  # what was read may be shown, wherever it lies
        title=f"{folder.name}: {counted(len(images), 'image')}, {what[config.evaluation.images]}",
        sections=sections,
        max_overlays=config.evaluation.overlays,
        facts=facts,
    )
    return evaluation


def score_predictions(
    config: RunConfig, predictions: Path | list[dict[str, Any]], images: ImageSet, decoding: Decoding
) -> Evaluation:
    """Score predictions, a file or its records, against `images` with the options that the run was trained with.

    If the AP of a file is near 0, the notes name another unit or order of the numbers in which the boxes would match.
    """
    evaluation = score(
        images.ground_truth(config.evaluation.limit),
        predictions,
        answers=answer_settings(config, decoding),
        ceiling=CeilingSettings(markers=config.data.markers, order=config.data.order),
        report=ReportSettings(diagnose=None if isinstance(predictions, Path) else False),
    )
    return evaluation.with_notes(before=_left_out(config, images))


def score_decoding(config: RunConfig, predictions: Path, images: ImageSet, decoding: Decoding) -> Evaluation:
    """Score the predictions of a decoding, and print what an AP near 0 may come from."""
    evaluation = score_predictions(config, predictions, images, decoding)
    for line in evaluation.notes:
        if line.startswith("diagnosis: "):
            say(f"{line} ({decoding.name})")
    return evaluation


def headline(evaluation: Evaluation) -> dict[str, float]:
    """Return the AP by which checkpoints are compared, and AP50; for shapes with the similarity of their geometry.

    A measure without an AP50 has another in its place: for points the AP within .05 of the diagonal.
    """
    if not evaluation.shapes:
        return {name: evaluation.coco[name] for name in ("AP", "AP50")}
    shapes = evaluation.shapes
    last = [name for name in shapes if name.startswith("AP")][-1]
    return {"AP": shapes["AP"], "AP50": shapes["AP50" if "AP50" in shapes else last]}


def _beyond_cap(config: RunConfig, images: ImageSet) -> int:
    """Return the number of scored objects that are not taught, since their image has more than the target may have."""
    return int(np.maximum(images.target_counts[: config.evaluation.limit] - config.data.max_objects, 0).sum())


def _left_out(config: RunConfig, images: ImageSet) -> list[str]:
    """Return notes on losses that no answer can avoid and that the quantisation ceiling does not include."""
    notes = []
    if beyond := _beyond_cap(config, images):
        cap = config.data.max_objects
        notes.append(f"{counted(beyond, 'object')} beyond data.max_objects={cap}, scored and not taught")
    if images.problems:
        notes.append(f"{counted(len(images.problems), 'refused record')}, neither trained nor scored")
    return [LEFT_OUT + note for note in notes]
