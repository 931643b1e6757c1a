"""Runs `predict MODEL SRC... --out DIR`: finds the images, sets up the model and answers into the output folder."""

from __future__ import annotations

from pathlib import Path

from coord_codec import InputError
from coord_codec.counts import counted
from coord_trainer.answers.answering_model import AnsweringModel
from coord_trainer.answers.detect.image_sources import Sources, find_sources, is_annotation_file
from coord_trainer.answers.detect.outcome import report_answers
from coord_trainer.answers.detect.session import Answered, answer_sources, session_settings
from coord_trainer.answers.served.request import Request
from coord_trainer.answers.served.served_model import checked_url, open_served
from coord_trainer.checkpoints import locate_model
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import first_rank_first, is_first, say
from coord_trainer.model.card import as_trained


def answer_request(request: Request, config: RunConfig) -> Answered:
    """Find the images, generate answers, draw them, export them and, with annotations, score them.

    Raises:
        InputError: if sources, model, folder or settings are invalid
        RunError: if no image could be answered
    """
    with first_rank_first("request"):  # so that an error is printed once
        sources = _sources(request, config, "box")
        if request.model is not None:
            as_trained(config, locate_model(request.model))
    say(f"{counted(len(sources.images), 'image')} below {sources.root}")
    for note in sources.notes:
        say(f"  {note}")
    if request.endpoints:
        urls = tuple(dict.fromkeys(map(checked_url, request.endpoints)))
        if not request.served_name:
            raise InputError("--endpoint: name the model as the server calls it with --model")
        served = {
            "grammar": request.grammar,
            "concurrency": request.concurrency or 8 * len(request.endpoints),
            "timeout": request.timeout or 300.0,
        }
        named = request.served_name
        detector = open_served(
            urls, named, request.model, config, request.labels, sources.labels, only=request.only, **served
        )
    else:
        detector = _local(request, config, sources)
    for note in detector.unknown_names():
        if request.strict:
            raise InputError(f"{note} (--strict is on)")
        say(f"note: {note}")
    detector = detector.with_threshold(**request.threshold)
    geometry = detector.config.data.geometry  # that of training, which the model's card states
    if sources.truth is not None and not detector.config.data.shape.is_box:
        sources = _sources(request, config, geometry)
    settings = session_settings(detector, request.grammar)
    batch = config.evaluation.batch_size
    with answer_sources(detector, sources, request.out, settings, batch=batch, force=request.force) as answered:
        if is_first():
            report_answers(request, detector, sources, answered)
    return answered


def _sources(request: Request, config: RunConfig, geometry: str) -> Sources:
    images = Path(_fetched(request.images)) if request.images is not None else None
    # Of images alone --strict is about the names that are asked for.
    named = bool(request.labels or request.only) and not any(map(is_annotation_file, request.sources))
    sources = find_sources([_fetched(word) for word in request.sources], images, geometry, request.strict and not named)
    return sources.first(config.evaluation.limit)


def _fetched(named: str) -> str:
    """Return a source on this machine: the copy of what lies at an address, the images of an archive unpacked."""
    if "://" not in named and not named.endswith((".tar", ".parquet")):
        return named
    from coord_data.remote import image_folder

    return str(image_folder(named))


def _local(request: Request, config: RunConfig, sources: Sources) -> AnsweringModel:
    if request.model is None:
        raise InputError("expected a model and images: predict MODEL SRC... --out DIR")
    return AnsweringModel.load(request.model, config, sources.labels, request.labels, request.only)
