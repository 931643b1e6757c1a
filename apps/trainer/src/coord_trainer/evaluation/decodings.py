"""Answers the images of a run with a checkpoint from disk, by each decoding of its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coord_codec import RunError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_data.reading.image_set import ImageSet
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.local import LocalEngine
from coord_detect.answers.records import answer_into, sources_of, with_objects
from coord_detect.answers.resumable_file import Record, begin, discard, is_answered, json_line, make_folder
from coord_detect.answers.token_limit import token_limit
from coord_detect.console import all_ranks_done, is_first
from coord_detect.model.card import read_card
from coord_detect.model.checkpoint import LoadedCheckpoint, open_checkpoint
from coord_detect.model.checkpoints import weight_files
from coord_detect.settings.decoding import Decoding
from coord_detect.speed.of_checkpoint import check_speed
from coord_trainer.config.run_config import RunConfig
from coord_trainer.folder import prediction_files

_ANSWER_SETTINGS = {
    *("prompt", "markers", "style", "geometry", "max_vertices", "max_objects"),
    *("min_pixels", "max_pixels"),
}
"""The settings of `data` that answers depend on."""


def predict_images(
    config: RunConfig,
    checkpoint: Path,
    images: ImageSet,
    out: Path,
    threshold: Mapping[str, float | None] | None = None,
) -> int:
    """Generate answers to `images` with every decoding that `config` names; returns the number of images.

    The first decoding's predictions.jsonl is `out`; the others are in folders of their own beside it. A later
    call continues what an interrupted one left unfinished. Every rank answers its share; the first one
    writes. `threshold` has arguments of `Finish.with_threshold`; None keeps all boxes.

    Raises:
        InputError: the model is not calibrated for a decoding, and `threshold` asks for a precision or recall
        RunError: an image has no answer
    """
    (first, _), *others = prediction_files(config.evaluation.decoding, out.parent)
    if not (is_first() or checkpoint.is_dir()):  # on another machine, whose share the first rank answers
        for _ in {decoding.generation for decoding in config.evaluation.decoding}:
            all_ranks_done("answers")
        return 0
    opened = open_checkpoint(checkpoint, config)
    check_speed(config, opened.family)
    limit = config.evaluation.max_new_tokens or token_limit(
        config, opened.processor.tokenizer, images.words, config.data.most_objects
    )
    trained = card.names if (card := read_card(checkpoint)) is not None else ()
    detectors = {
        decoding: detector_of(opened, config, images, decoding, limit, str(checkpoint), trained)
        .calibrated_as(checkpoint)
        .with_threshold(**(threshold or {}))
        for decoding in config.evaluation.decoding
    }
    sources = sources_of(images, config.evaluation.limit)
    answers: dict[Decoding, list[Record]] = {}
    for decoding, path in ((first, out), *others):
        detector = detectors[decoding]
        make_folder(path.parent)
        if decoding.generation in answers:  # the same answers; only their boxes are computed in another way
            _write(path, answers[decoding.generation], detector)
            continue
        file = begin(path, depends_on(checkpoint, images.digest, opened, detector, limit))
        batch, title = config.evaluation.batch_size, f"generating ({decoding.name})"
        found, _ = answer_into(file, detector, sources, batch, raw=True, title=title)
        refuse_failures(found)
        _write(path, found, detector)
        if is_first():
            discard(file)
        answers[decoding.generation] = found
    return len(sources)


def depends_on(
    checkpoint: Path, digest: str, opened: LoadedCheckpoint, detector: AnsweringModel, limit: int
) -> dict[str, Any]:
    """Return all that a checkpoint's answers depend on; unfinished ones under other values are not kept."""
    config, question = detector.config, detector.finish.question
    section = config.evaluation
    return {
        "weights": weight_files(checkpoint),
        "images": [digest, section.limit],
        "decoding": section.decoding[0].name,
        "names": sorted(detector.names) if section.decoding[0].grammar == "names" else [],
        "max_new_tokens": limit,
        "system": opened.system,
        "dtype": config.model.dtype,
        "answers": config.data.model_dump(mode="json", include=_ANSWER_SETTINGS),
        "views": [list(section.views), question.labels, question.class_prompt] if section.views else [],
    }


def detector_of(
    opened: LoadedCheckpoint,
    config: RunConfig,
    images: ImageSet,
    decoding: Decoding,
    limit: int,
    name: str = "",
    trained: Sequence[str] = (),
) -> AnsweringModel:
    """Return what answers a set with one decoding; its classes or words are the labels that views ask for.

    Where the decoding holds answers to fewer names than the `trained` ones, each has its probability among all of them.
    """
    section = config.evaluation.model_copy(update={"decoding": (decoding,)})
    config = config.model_copy(update={"evaluation": section})
    engine = LocalEngine(name, opened, config).asked(config, images.words, trained, limit=limit)
    return AnsweringModel(engine, config, names=tuple(images.classes or images.words))


def refuse_failures(records: Sequence[Record]) -> None:
    """Raise a `RunError` if an image has no answer, since it would count as an image without objects."""
    if failed := [record for record in records if not is_answered(record)]:
        first = f"{failed[0]['image']}: {failed[0]['error']}"
        raise RunError(f"{counted(len(failed), 'image')} of {len(records):,} cannot be answered; the first, {first}")


def _write(path: Path, records: Sequence[Record], detector: AnsweringModel) -> None:
    """Write answers, on the first rank; if boxes are not those of the answers alone, with them and boxes.json."""
    if not is_first():
        return
    finish = detector.finish
    if finish.changes:
        records = [with_objects(record, detector.read(record)) for record in records]
        finish.write_counts(path.parent, records)
    write_text(path, "".join(map(json_line, records)))
