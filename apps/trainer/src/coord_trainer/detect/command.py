"""Runs `predict MODEL SRC... --out DIR`: finds the images, sets up the model and answers into the output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_codec.counts import counted
from coord_trainer.answers.detector import Detector
from coord_trainer.checkpoints import locate_model
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import first_rank_first, is_first, say
from coord_trainer.detect.image_sources import Sources, find_sources
from coord_trainer.detect.outcome import report_answers
from coord_trainer.detect.request import Request
from coord_trainer.detect.session import Answered, answer_sources, session_settings
from coord_trainer.model.card import CARD_FILE, as_trained, read_card, system_text
from coord_trainer.model.prompt import prompt_settings, read_chat_template
from coord_trainer.views.registry import check_views


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
    detector = _endpoint(request, config, sources) if request.endpoints else _local(request, config, sources)
    detector = detector.with_threshold(**request.threshold)
    geometry = detector.config.data.geometry  # that of training, which the model's card states
    if sources.truth is not None and not detector.config.data.shape.is_box:
        sources = _sources(request, config, geometry)
    settings = session_settings(detector, request.server)
    batch = config.evaluation.batch_size
    with answer_sources(detector, sources, request.out, settings, batch=batch, force=request.force) as answered:
        if is_first():
            report_answers(request, detector, sources, answered)
    return answered


def _sources(request: Request, config: RunConfig, geometry: str) -> Sources:
    sources = find_sources(request.sources, request.images, geometry, request.strict)
    return sources.first(config.evaluation.limit)


def _local(request: Request, config: RunConfig, sources: Sources) -> Detector:
    if request.model is None:
        raise InputError("expected a model and images: predict MODEL SRC... --out DIR")
    detector = Detector.load(request.model, config, sources.labels, request.labels)
    requested, used = config.evaluation.decoding[0], detector.config.evaluation.decoding[0]
    if "decoding" in config.evaluation.model_fields_set and requested != used:
        say(f"evaluation.decoding: {used.name} restricts answers to the labels; {requested.name} would not")
    return detector


def _endpoint(request: Request, config: RunConfig, sources: Sources) -> Detector:
    from coord_trainer.detect.endpoint import EndpointEngine, check_key, checked_url

    urls = tuple(dict.fromkeys(map(checked_url, request.endpoints)))
    check_key()
    if not request.served_name:
        raise InputError("--endpoint: name the model as the server calls it with --model")
    folder = locate_model(request.model) if request.model is not None else None
    card = read_card(folder) if folder is not None else None
    resolved = config if folder is None else as_trained(config, folder)
    if card is None:
        say(f"no {CARD_FILE} of the served model: prompt, markers and limits are the configuration's, unchecked")
    template_settings = card.chat_template_kwargs if card is not None else {}
    template_settings = template_settings or (prompt_settings(read_chat_template(folder)) if folder is not None else {})
    data = resolved.data
    decoding = config.evaluation.decoding[0]
    if "decoding" in config.evaluation.model_fields_set and decoding.grammar != "none":
        raise InputError(
            f"evaluation.decoding.grammar is {decoding.grammar}, which decodes under a grammar in this process; a "
            "server decodes under one with --grammar, and evaluation.decoding.boxes says how its boxes are computed"
        )
    engine = EndpointEngine(
        urls,
        request.served_name,
        data.prompt,
        card.system if card is not None else system_text(resolved),
        data.markers if data.style == "markers" else None,
        resolved.evaluation.max_new_tokens or _max_new_tokens(request, resolved, folder),
        request.concurrency,
        request.timeout,
        constraint=_constraint(request, resolved, folder),
        chat_template_kwargs=template_settings,
    )
    detector = Detector(engine, resolved, frozenset(request.labels), names=sources.labels)
    if folder is not None:
        return detector.calibrated_as(folder)
    check_views(resolved.evaluation.views, detector.finish.question)
    return detector


def _max_new_tokens(request: Request, config: RunConfig, folder: Path | None) -> int:
    """Return the length limit of an answer, computed with the tokenizer if the folder has one."""
    from coord_trainer.answers.grammar.served import read_tokenizer
    from coord_trainer.answers.token_limit import token_limit, token_limit_without_tokenizer

    try:
        tokenizer = read_tokenizer(folder) if folder is not None else None
    except InputError:  # the folder of an adapter may have no tokenizer
        tokenizer = None
    if tokenizer is None:
        return token_limit_without_tokenizer(config)
    return token_limit(config, tokenizer, request.labels, of_run=False)


def _constraint(request: Request, config: RunConfig, folder: Path | None) -> dict[str, Any]:
    """Return the request fields that make a server decode under the grammar (see docs/guides/gpu.md)."""
    if request.server is None:
        if request.labels:
            raise InputError("--label: a server restricts labels by a grammar; name the kind of server with --grammar")
        return {}
    if folder is None:
        raise InputError("--grammar: the grammar needs the token ids of the served model; give its folder as MODEL")
    from coord_trainer.answers.grammar.served import SERVERS, answer_form

    return SERVERS[request.server](answer_form(folder, config, request.labels))
