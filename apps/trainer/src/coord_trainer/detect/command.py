"""Runs `predict MODEL SRC... --out DIR`: finds the images, answers them and writes the output folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from coord_codec import InputError, RunError
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_eval.labelling import coco_results
from coord_trainer.answers.detector import Detector, as_trained
from coord_trainer.answers.finish import BOXES_FILE, FUSED, finish_lines, has_distributions
from coord_trainer.checkpoints import locate_model, weight_files
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import first_rank_first, is_first, say
from coord_trainer.detect.exports import exports_in, write_export
from coord_trainer.detect.image_sources import Sources, find_sources
from coord_trainer.detect.session import DRAWN, PAGE, RESULTS, SCORED, Answered, answer_sources, remove_made
from coord_trainer.model.card import CARD_FILE, read_card, system_text
from coord_trainer.model.prompt import prompt_settings, read_chat_template
from coord_trainer.views.registry import check_views


@dataclass(frozen=True)
class Request:
    """The arguments of the command line.

    Attributes:
        model: the folder of a model; None if the model of an endpoint has no folder here
        sources: arguments that name images or annotations
        out: the output folder
        images: the folder of the images that the annotations name
        endpoint: URL of a server, None to answer in this process
        served_name: what the server calls the model
        concurrency: number of concurrent requests
        timeout: seconds that one request may take
        exports: export formats to write as well
        labels: the only labels allowed in answers; empty for no limit
        server: `vllm` or `sglang`, whose request fields for a grammar are used; None for no grammar
        force: whether to discard earlier answers
        draw: whether to draw the images
        strict: whether a bad record of the annotations is an error
        threshold: `min_score`, `precision` and `recall`, of which at most one is not None
    """

    model: Path | None
    sources: tuple[str, ...]
    out: Path
    images: Path | None = None
    endpoint: str | None = None
    served_name: str | None = None
    concurrency: int = 8
    timeout: float = 300.0
    exports: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    server: str | None = None
    force: bool = False
    draw: bool = True
    strict: bool = False
    threshold: Mapping[str, float | None] = field(default_factory=dict)


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
    detector = _endpoint(request, config, sources) if request.endpoint else _local(request, config, sources)
    detector = detector.with_threshold(**request.threshold)
    geometry = detector.config.data.geometry  # that of training, which the model's card states
    if sources.truth is not None and not detector.config.data.shape.is_box:
        sources = _sources(request, config, geometry)
    settings = session_settings(request, detector)
    batch = config.evaluation.batch_size
    with answer_sources(detector, sources, request.out, settings, batch=batch, force=request.force) as answered:
        if is_first():
            _finish(request, detector, sources, answered)
    return answered


def _sources(request: Request, config: RunConfig, geometry: str) -> Sources:
    sources = find_sources(request.sources, request.images, geometry, request.strict)
    return sources.first(config.evaluation.limit)


def _local(request: Request, config: RunConfig, sources: Sources) -> Detector:
    detector = Detector.load(_model(request), config, sources.labels, request.labels)
    requested, used = config.evaluation.decoding[0], detector.config.evaluation.decoding[0]
    if "decoding" in config.evaluation.model_fields_set and requested != used:
        say(f"evaluation.decoding: {used.name} restricts answers to the labels; {requested.name} would not")
    return detector


def _model(request: Request) -> Path:
    if request.model is None:
        raise InputError("expected a model and images: predict MODEL SRC... --out DIR")
    return request.model


def _endpoint(request: Request, config: RunConfig, sources: Sources) -> Detector:
    from coord_trainer.detect.endpoint import EndpointEngine, check_key, checked_url

    url = checked_url(request.endpoint or "")
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
        url,
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


def session_settings(request: Request, detector: Detector) -> dict[str, Any]:
    """Return the settings that answers depend on."""
    config = detector.config
    served = request.endpoint is not None
    decoding = config.evaluation.decoding[0].name
    finish = detector.finish
    return {
        "model": detector.engine.name if served else str(locate_model(_model(request)).resolve()),
        "weights": None if served else weight_files(locate_model(_model(request))),
        "endpoint": (request.endpoint or "").rstrip("/") or None,
        "prompt": config.data.prompt,
        "system": detector.engine.system if served else None,
        "chat_template_kwargs": dict(detector.engine.chat_template_kwargs) if served else None,
        "answers": [config.data.style, config.data.markers, config.data.geometry],
        "decoding": " ".join(filter(None, ("server", request.server, decoding))) if served else decoding,
        "labels": sorted(detector.labels if served else detector.engine.names),
        "dtype": None if served else config.model.dtype,
        "max_new_tokens": detector.engine.max_new_tokens,
        "pixels": [config.data.min_pixels, config.data.max_pixels],
        "views": [*finish.views, *(finish.question.labels if "classes" in finish.views else ())],
        "calibration": finish.calibration and finish.calibration.rests_on,
        "min_score": finish.threshold.value,
        "speed": _speed(detector),
    }


def _speed(detector: Detector) -> str:
    if detector.config.evaluation.speed != "fast":  # the other speeds have the same answers
        return "plain"
    from coord_trainer.answers.speed.of_checkpoint import speed_of_answers

    return speed_of_answers(detector.engine.checkpoint, detector.config)


def _finish(request: Request, detector: Detector, sources: Sources, answered: Answered) -> None:
    # Console: what was answered, and what is wrong with the answers.
    failed = answered.failed
    good = [record for record in answered.records if "objects" in record]
    boxes = sum(len(record["objects"]) for record in good)
    truncated = sum(record["finish_reason"] == "length" for record in good)
    answers = f"{counted(len(good), 'image')} answered ({answered.new:,} now)"
    found = counted(boxes, "box", "boxes")
    say(f"{answers}, {found}: {request.out / 'predictions.jsonl'}")
    thoughts = sum("</think>" in record["text"] for record in good)
    if thoughts and request.endpoint and detector.engine.chat_template_kwargs:
        say(
            f"  {counted(thoughts, 'answer')} began with thoughts, which training did not show: the server seems to "
            f"ignore chat_template_kwargs={json.dumps(dict(detector.engine.chat_template_kwargs))}"
        )
    uses_tokens = detector.reading["boxes"] == "tokens"
    without_distributions = 0 if uses_tokens else sum(not has_distributions(record) for record in good)
    if without_distributions:
        count = counted(without_distributions, "answer")
        say(f"  {count} came without the probabilities of their coordinates: their boxes are as generated")
    if unscored := sum(map(_is_unscored, good)):
        say(f"  {counted(unscored, 'answer')} came without probabilities: the score of their boxes is 1")
    if truncated:
        limit = detector.engine.max_new_tokens
        say(
            f"  {counted(truncated, 'answer was', 'answers were')} cut off at {limit} tokens "
            "(evaluation.max_new_tokens)"
        )
    _report_finish(request, detector, good)
    _report_outside_grammar(request, detector, good)
    _report_dropped(good)
    if failed:
        say(
            f"  {counted(len(failed), 'image has', 'images have')} no answer, the next call tries again; "
            f"the first: {_reason(failed[0])}"
        )

    # Files: COCO results and exports, in the category ids of the annotations if there are any.
    categories = None
    if sources.truth is not None:
        categories = {category.name: category.id for category in sources.truth.categories} or None
    good = _numbered(good, sources)
    results = coco_results(good, categories)
    if left_out := boxes - len(results):
        say(
            f"  {counted(left_out, 'box', 'boxes')} with labels that the annotations do not have are left "
            "out of coco_results.json"
        )
    write_text(request.out / RESULTS, json.dumps(results) + "\n")
    for name in dict.fromkeys((*request.exports, *exports_in(request.out))):  # so that all of them agree
        say(f"{name}: {write_export(name, good, request.out, categories)}")
    is_scored = sources.truth is not None and any(instance.targets for instance in sources.truth.instances)
    remove_made(
        request.out, [*(() if request.draw and good else (DRAWN, PAGE)), *(() if is_scored and good else SCORED)]
    )

    # Page and scores.
    if not good:
        raise RunError(f"no image could be answered; the first: {_reason(failed[0])}")
    if request.draw:
        from coord_trainer.detect.gallery import draw_answers

        say(f"page: {draw_answers(answered, sources, _about(detector))}")
    if sources.truth is not None and not is_scored:
        say("the annotations hold no objects: there is nothing to score")
    if is_scored:
        if detector.labels and (others := sorted(set(sources.labels) - detector.labels)):
            note = (
                f"  {counted(len(others), 'label of the annotations is', 'labels of the annotations are')} "
                "none of --label, so that their objects are missed"
            )
            say(f"{note}; the first: {others[0]}")
        _score(detector, sources, answered, {"boxes": "tokens"} if without_distributions == len(good) else {})


def _numbered(records: list[dict[str, Any]], sources: Sources) -> list[dict[str, Any]]:
    """Return records with an image id each, as COCO results need; images without one get a number.

    Images of annotations without ids are numbered from 0 in file order, as scoring numbers them.
    """
    if sources.truth is None:
        return [record | {"image_id": number} for number, record in enumerate(records, start=1)]
    if all(record["image_id"] is not None for record in records):
        return records
    numbers = {instance.image: number for number, instance in enumerate(sources.truth.instances)}
    return [record | {"image_id": numbers[record["image"]]} for record in records]


def _report_finish(request: Request, detector: Detector, records: Sequence[Mapping[str, Any]]) -> None:
    """Print what was fused and left out, and write boxes.json, if boxes are not those of the answers alone."""
    finish = detector.finish
    if not finish.changes:
        remove_made(request.out, [BOXES_FILE])
        return
    summary = finish.to_record([record[FUSED] for record in records if FUSED in record])
    write_text(request.out / BOXES_FILE, json.dumps(summary, indent=1) + "\n")
    for line in finish_lines(summary):
        say(f"  {line}")


def _report_outside_grammar(request: Request, detector: Detector, records: Sequence[Mapping[str, Any]]) -> None:
    """Print how many complete answers the grammar that was sent to the server does not allow."""
    if request.server is None or request.model is None:
        return
    from coord_trainer.answers.grammar.served import answer_form, answer_pattern

    form = answer_form(locate_model(request.model), detector.config, request.labels)
    pattern = answer_pattern(form, detector.config.data.markers)
    complete = [record for record in records if record["finish_reason"] == "stop"]
    outside = [record for record in complete if not pattern.fullmatch(record["text"])]
    if outside:
        first = outside[0]
        say(
            f"  {len(outside):,} of {counted(len(complete), 'answer')} are not what the grammar allows that was sent: "
            f"the server ignores it (--grammar {request.server}; docs/guides/gpu.md says which servers obey); the "
            f"first, {first['image']}: {first['text'][:80]!a}"
        )


def _report_dropped(records: Sequence[Mapping[str, Any]]) -> None:
    """Print which parts of the answers are no objects; unparsed text would otherwise look like an empty answer."""
    if unread := [record for record in records if "unrecognised" in record.get("dropped", {})]:
        text = unread[0]["text"]
        start = ascii(text[:80]) + ("…" if len(text) > 80 else "")
        say(
            f"  {counted(len(unread), 'answer contains', 'answers contain')} text that no format parses; "
            f"the first, {unread[0]['image']}: {start}"
        )
    excluded, pieces = ("unrecognised", "ignored_label"), Counter[str]()
    for record in records:
        pieces.update({reason: n for reason, n in record.get("dropped", {}).items() if reason not in excluded})
    if others := pieces.pop("other_label", 0):
        say(f"  {counted(others, 'box', 'boxes')} with other labels than those of --label left out")
    if pieces:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in pieces.most_common())
        say(f"  {counted(pieces.total(), 'piece of an answer is', 'pieces of answers are')} no box: {reasons}")


def _is_unscored(record: Mapping[str, Any]) -> bool:
    """Return whether all scores are 1 because probabilities are missing; the text of an answer may state scores too."""
    scores = {item["score"] for item in record["objects"]}
    return scores == {1.0} and not record.get("coord_logprobs")


def _reason(record: dict[str, Any]) -> str:
    return f"{record['image']}: {record.get('error', 'no answer')}"


def _about(detector: Detector) -> dict[str, str]:
    """Return what the pages name: the model without its folders, and how it decoded."""
    return {"model": PurePath(detector.engine.name).name, "decoding": detector.config.evaluation.decoding[0].name}


def _score(detector: Detector, sources: Sources, answered: Answered, overrides: dict[str, Any]) -> None:
    from coord_eval import score
    from coord_trainer.answers.summary import summary

    config = detector.config
    evaluation = score(
        sources.truth,
        answered.folder / "predictions.jsonl",
        **{**detector.reading, **overrides},
        markers=config.data.markers,
        order=config.data.order,
        max_objects=config.data.max_objects,
    )
    files = {source.name: source.path for source in sources.images}
    title = f"{counted(len(files), 'image')}, scored"
    evaluation.write_report(answered.folder, image_root=files.get, title=title, facts=_about(detector))
    for line in (*summary(evaluation), *(f"  note: {note}" for note in evaluation.notes)):
        say(line)
    say(f"report: {answered.folder / 'report.html'}")
