"""Runs `predict MODEL SRC... --out DIR`: finds the images, sets up the model and answers into the output folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_codec.counts import counted
from coord_detect.answers.answering_model import AnsweringModel, check_labels
from coord_detect.answers.finish import asked_threshold
from coord_detect.console import first_rank_first, is_first, say
from coord_detect.detection.arguments import check_request
from coord_detect.detection.image_sources import Sources, find_sources, is_annotation_file
from coord_detect.detection.outcome import report_answers
from coord_detect.detection.session import Answered, answer_sources, session_settings
from coord_detect.environment import set_environment
from coord_detect.model.card import as_trained
from coord_detect.model.checkpoints import locate_model
from coord_detect.served.request import Request
from coord_detect.settings.record import Settings

RAY_EXTRA = "coord-detect[ray]"


def predict(
    model: str | Path | None,
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    settings: Settings | None = None,
    **options: Any,
) -> Answered:
    """Answer images into a folder, as the command `coord-detect predict` does; a second call continues it.

    Args:
        model: a checkpoint, adapter, export or run folder; None for a served model without a folder here
        sources: images, folders, patterns, archives, or one file of annotations to score against, also at an address
        out: the folder of the answers
        settings: of the answers; what is not set is the model's (`coordexp.json`)
        options: the other fields of `Request`, such as `endpoints`, `served_name`, `min_score`, `labels`, `draw`

    Returns:
        The records of the answers, in the order of the images; `objects` of each have boxes in pixels.

    Raises:
        InputError: if sources, model, folder or settings are invalid, or an extra is missing
        RunError: if no image could be answered
    """
    set_environment()
    named = [sources] if isinstance(sources, str | Path) else sources
    place = None if model is None else Path(model)
    return answer_request(Request(place, tuple(map(str, named)), Path(out), **options), settings or Settings())


def answer_request(request: Request, config: Settings) -> Answered:
    """Find the images, generate answers, draw them, export them and, with annotations, score them; see `predict`."""
    check_request(request)
    asked_threshold(**request.threshold)
    request = replace(request, labels=check_labels(request.labels), only=check_labels(request.only))
    folder = None if request.model is None else locate_model(request.model)  # checked before images are looked for
    if request.engine == "ray":
        from coord_data.looking.engines import import_ray

        import_ray(RAY_EXTRA)  # before anything is loaded
    with first_rank_first("request"):  # so that an error is printed once
        copies = {word: _fetched(word) for word in (*request.sources, request.images) if word is not None}
        sources = _sources(request, config, "box", copies)
        if folder is not None:
            as_trained(config, folder)
    say(f"{counted(len(sources.images), 'image')} below {sources.root}")
    for note in sources.notes:
        say(f"  {note}")
    if request.endpoints:
        from coord_detect.served.endpoint import checked_url
        from coord_detect.served.served_model import open_served

        urls = tuple(dict.fromkeys(map(checked_url, request.endpoints)))
        if not request.served_name:
            raise InputError("--endpoint: name the model as the server calls it with --model")
        detector = open_served(
            urls,
            request.served_name,
            request.model,
            config,
            request.labels,
            sources.labels,
            only=request.only,
            grammar=request.grammar,
            concurrency=request.concurrency or 8 * len(request.endpoints),
            timeout=request.timeout or 300.0,
        )
    else:
        detector = _local(request, config, sources, copies)
    for note in detector.unknown_names():
        if request.strict:
            raise InputError(f"{note} (--strict is on)")
        say(f"note: {note}")
    detector = detector.with_threshold(**request.threshold)
    geometry = detector.config.data.geometry  # that of training, which the model's card states
    if sources.truth is not None and not detector.config.data.shape.is_box:
        sources = _sources(request, config, geometry, copies)
    settings = session_settings(detector, request.grammar)
    batch = config.evaluation.batch_size
    with answer_sources(detector, sources, request.out, settings, batch=batch, force=request.force) as answered:
        if is_first():
            report_answers(request, detector, sources, answered)
    return answered


def _sources(request: Request, config: Settings, geometry: str, copies: Mapping[str, str]) -> Sources:
    images = Path(copies[request.images]) if request.images is not None else None
    # Of images alone --strict is about the names that are asked for.
    named = bool(request.labels or request.only) and not any(map(is_annotation_file, request.sources))
    sources = find_sources([copies[word] for word in request.sources], images, geometry, request.strict and not named)
    return sources.first(config.evaluation.limit)


def _fetched(named: str) -> str:
    """Return a source on this machine: the copy of what lies at an address, the images of an archive unpacked."""
    if "://" not in named and not named.endswith((".tar", ".parquet")):
        return named
    from coord_data.remote import image_folder

    return str(image_folder(named))


def _local(request: Request, config: Settings, sources: Sources, copies: Mapping[str, str]) -> AnsweringModel:
    if request.model is None:
        raise InputError("expected a model and images: predict MODEL SRC... --out DIR")
    say("loading PyTorch and Transformers")
    opened = (request.model, config, sources.labels, request.labels, request.only)
    if request.engine == "ray":
        from coord_detect.detection.ray_engine import open_on_ray

        addresses = {Path(copy): word for word, copy in copies.items() if copy != word}
        return open_on_ray(*opened, request=request, addresses=addresses)
    return AnsweringModel.load(*opened)
