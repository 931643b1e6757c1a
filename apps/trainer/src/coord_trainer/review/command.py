"""Runs `review MODEL ANNOTATIONS --out DIR`: answers the images, judges the labels and writes the review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coord_codec import RunError
from coord_codec.counts import counted
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.resumable_file import make_folder
from coord_detect.console import is_first, say
from coord_detect.detection.calibrate import trained_among, trained_images
from coord_detect.detection.image_sources import Sources
from coord_detect.detection.session import answer_sources, session_settings
from coord_detect.model.checkpoints import locate_model
from coord_detect.settings.record import Settings
from coord_eval import AnswerSettings, Calibration
from coord_eval.review import LabelLikelihood, Review, review, write_likelihoods, write_review_exports
from coord_trainer.config.run_config import RunConfig
from coord_trainer.review.folds import split_folds, train_folds
from coord_trainer.review.forcing import Forcing
from coord_trainer.review.judging import Judged, JudgedRecord, judge, of_fold

if TYPE_CHECKING:
    from coord_detect.answers.local import LocalEngine

LIKELIHOODS = "likelihoods.jsonl"


@dataclass(frozen=True)
class ReviewRequest:
    """The arguments of the command line.

    There is no `model` with `folds`, models that are trained on the other parts of the records. `annotations`
    is the name of their file.
    """

    model: Path | None
    sources: Sources
    annotations: str
    out: Path
    folds: int = 0
    exports: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True)
class _Answered:
    """Answers and likelihoods of some records, by one model."""

    predictions: list[dict[str, Any]]
    judged: Judged
    reading: AnswerSettings
    calibration: Calibration | None
    uncalibrated: str


def review_annotations(request: ReviewRequest, config: Settings, training: RunConfig | None = None) -> Review | None:
    """Answer the images, compute the likelihoods of their labels, and judge these by both, on the first rank.

    `config` has settings of the answers, `training` those of the models of the folds.

    Raises:
        InputError: if there are no labels, or model, folder or settings are invalid
        RunError: if a fold cannot be trained, or no image can be answered
    """
    # Records: the images with their labels, each with the id by which predictions and likelihoods name it.
    sources, truth = request.sources, request.sources.truth
    assert truth is not None
    pairs = enumerate(zip(sources.images, truth.instances, strict=True))
    records = [
        JudgedRecord(source, instance, place if instance.image_id is None else instance.image_id)
        for place, (source, instance) in pairs
    ]
    say(f"{counted(len(records), 'image')} with {counted(sum(len(i.targets) for i in truth.instances), 'label')}")
    for note in sources.notes:
        say(f"  {note}")
    make_folder(request.out)
    notes: list[str] = []

    # Answers and likelihoods: of one model, or of a model for each part that was trained on the others.
    if request.folds:
        assert training is not None
        folds = split_folds(records, request.folds, request.out / "folds")
        train_folds(folds, training, sources.root)
        parts = []
        for fold in folds:
            say(f"fold {fold.number}: judging {counted(len(fold.records), 'image')}")
            part = _ask(request, config, fold.run, fold.records, fold.folder)
            parts.append(replace(part, judged=of_fold(part.judged, fold.number)))
    else:
        assert request.model is not None
        notes += _on_training(sources, locate_model(request.model))
        parts = [_ask(request, config, request.model, records, request.out)]
    if not is_first():
        return None
    predictions = [record for part in parts for record in part.predictions]
    if all(record["finish_reason"] == "error" for record in predictions):
        raise RunError(f"no image could be answered; the first: {predictions[0].get('error')}")
    notes += dict.fromkeys(part.uncalibrated for part in parts if part.uncalibrated)
    notes += _on_unjudged([part.judged for part in parts])
    for note in notes:
        say(f"  {note}")

    # Review: every label by both.
    likelihoods = _in_order([one for part in parts for one in part.judged.likelihoods], records)
    write_likelihoods(request.out / LIKELIHOODS, likelihoods)
    calibration = None if request.folds else parts[0].calibration
    found = review(
        truth,
        [record for record in predictions if record["finish_reason"] != "error"],
        likelihoods=likelihoods,
        answers=parts[0].reading,
        calibration=calibration,
    )
    for note in found.notes:
        say(f"  {note}")
    found = replace(found, notes=(*notes, *found.notes))
    model = f"{request.folds} folds" if request.model is None else request.model.resolve().name
    facts = {"model": model, "annotations": request.annotations}
    page = found.write(request.out, image_root=str(sources.root), facts=facts)
    say(f"{counted(len(found.findings), 'suspicion')}: {page}")
    for path in write_review_exports(found, request.out, request.exports):
        say(f"export: {path}")
    return found


def _ask(
    request: ReviewRequest, config: Settings, model: Path, records: Sequence[JudgedRecord], out: Path
) -> _Answered:
    """Return answers and likelihoods of some records, from files in `out` as far as they are there."""
    sources = request.sources
    detector = AnsweringModel.load(model, config, sources.labels)
    depends_on = session_settings(detector)
    some = replace(sources, images=tuple(record.source for record in records))
    batch = detector.config.evaluation.batch_size
    with answer_sources(detector, some, out / "answers", depends_on, batch=batch, force=request.force) as answered:
        predictions = list(answered.records)
    forcing = Forcing(cast("LocalEngine", detector.engine).checkpoint, detector.config, frozenset(sources.labels))
    judged = judge(forcing, records, out, depends_on)
    return _Answered(predictions, judged, detector.reading, detector.calibration, detector.uncalibrated)


def _in_order(likelihoods: Sequence[LabelLikelihood], records: Sequence[JudgedRecord]) -> list[LabelLikelihood]:
    places = {record.image_id: place for place, record in enumerate(records)}
    return sorted(likelihoods, key=lambda one: (places[one.image_id], one.object))


def _on_training(sources: Sources, model: Path) -> list[str]:
    """Return a note on how many of the images the model was trained on."""
    seen = trained_images(model)
    blurs = (
        "faults that a model has learnt look right to it (measured: spoilt records ranked with AUROC .75 in place of "
        "1.00); --folds 5 judges each record by a model trained on others"
    )
    if trained := trained_among(sources, seen):
        return [f"the model was trained on {len(trained):,} of {counted(len(sources.images), 'image')}: {blurs}"]
    if seen.unknown:
        return [f"which images the model was trained on is not known here ({seen.unknown}): {blurs}"]
    return []


def _on_unjudged(parts: Sequence[Judged]) -> list[str]:
    """Return notes on labels and images that have no likelihood."""
    notes = []
    if beyond := sum(part.beyond for part in parts):
        notes.append(f"{counted(beyond, 'label')} beyond data.max_objects have no likelihood, as in training")
    if unread := sum(part.unread for part in parts):
        notes.append(f"{counted(unread, 'image')} cannot be read by the model: their labels have no likelihood")
    return notes
