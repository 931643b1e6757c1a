"""`predict MODEL SRC... --out DIR`: what the command line's words mean, and the folder that comes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_codec.files import write_text
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import RunError, is_first, say
from coord_trainer.detect.detector import Detector, as_trained
from coord_trainer.detect.exports import coco_results, write_export
from coord_trainer.detect.objects import has_distributions
from coord_trainer.detect.session import Answered, answer_sources
from coord_trainer.detect.sources import Sources, find_sources
from coord_trainer.model.card import CARD_FILE, read_card, system_text
from coord_trainer.model.locate import locate_model


@dataclass(frozen=True)
class Request:
    """What the command line asked for.

    Attributes:
        model: the folder of a model; None for an endpoint whose model no folder describes
        sources: words that name images or annotations
        out: the folder of the answers
        images: the folder of the images of annotations
        endpoint: URL of a server, None to answer in this process
        served_name: what the server calls the model
        concurrency: requests at a time
        exports: forms that answers are written in as well
        labels: the only labels that may be given
        server: whose spelling of a grammar the requests use, `vllm` or `sglang`; None asks without one
        force: throw earlier answers away
        draw: whether to draw the images
    """

    model: Path | None
    sources: tuple[str, ...]
    out: Path
    images: Path | None = None
    endpoint: str | None = None
    served_name: str | None = None
    concurrency: int = 8
    exports: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    server: str | None = None
    force: bool = False
    draw: bool = True


def answer_request(request: Request, config: RunConfig) -> Answered:
    """Find the images, answer, draw, export and, with annotations, score.

    Raises:
        InputError: sources, model, folder or settings that cannot be
        RunError: no image could be answered
    """
    sources = find_sources(request.sources, request.images).first(config.evaluation.limit)
    say(f"{len(sources.images):,} images below {sources.root}")
    for note in sources.notes:
        say(f"  {note}")
    names = list(request.labels)
    if names:
        config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"readings": ("names",)})})
    elif sources.truth:
        names = sorted({o.desc for i in sources.truth.instances for o in i.targets})
    detector = _endpoint(request, config) if request.endpoint else Detector.load(_model(request), config, names)
    geometry = detector.config.data.geometry  # as the model was trained, which its card says
    if sources.truth is not None and geometry != "box":
        sources = find_sources(request.sources, request.images, geometry)
    answered = answer_sources(
        detector,
        sources,
        request.out,
        _settings(request, detector),
        batch=request.concurrency if request.endpoint else config.evaluation.batch_size,
        force=request.force,
    )
    if is_first():
        _finish(request, detector, sources, answered)
    return answered


def _model(request: Request) -> Path:
    if request.model is None:
        raise InputError("expected a model and images: predict MODEL SRC... --out DIR")
    return request.model


def _endpoint(request: Request, config: RunConfig) -> Detector:
    from coord_trainer.answers.generate import room_without_tokenizer
    from coord_trainer.detect.endpoint import EndpointEngine

    if not request.served_name:
        raise InputError("--endpoint: name the model as the server calls it with --name")
    folder = locate_model(request.model) if request.model is not None else None
    card = read_card(folder) if folder is not None else None
    resolved = config if folder is None else as_trained(config, folder)
    if card is None:
        say(f"no {CARD_FILE} of the served model: prompt, markers and limits are the configuration's, unchecked")
    data = resolved.data
    engine = EndpointEngine(
        request.endpoint or "",
        request.served_name,
        data.prompt,
        card.system if card is not None else system_text(resolved),
        data.markers if data.style == "markers" else None,
        resolved.evaluation.max_new_tokens or room_without_tokenizer(resolved),
        request.concurrency,
        constraint=_constraint(request, resolved, folder),
    )
    return Detector(engine, resolved)


def _constraint(request: Request, config: RunConfig, folder: Path | None) -> dict[str, Any]:
    """Return what the request says of the grammar; where it comes from is told in docs/guides/serving.md."""
    if request.server is None:
        if request.labels:
            raise InputError("--label: a server is held to labels by its grammar; say which one it is with --grammar")
        return {}
    if folder is None:
        raise InputError("--grammar: the grammar is in ids of the served model's tokenizer; give its folder as MODEL")
    from coord_trainer.answers.grammar.served import SERVERS, AnswerForm, read_tokenizer

    form = AnswerForm.for_tokenizer(
        read_tokenizer(folder),
        config.data.markers,
        style=config.data.style,
        names=request.labels or None,
        max_objects=config.data.max_objects,
        geometry=config.data.shape,
    )
    return SERVERS[request.server](form)


def _settings(request: Request, detector: Detector) -> dict[str, Any]:
    config = detector.config
    return {
        "model": detector.engine.name,
        "endpoint": request.endpoint,
        "prompt": config.data.prompt,
        "decoding": f"server {request.server or ''}".strip() if request.endpoint else config.evaluation.readings[0],
        "labels": list(request.labels),
        "max_new_tokens": detector.engine.max_new_tokens,
        "pixels": [config.data.min_pixels, config.data.max_pixels],
    }


def _finish(request: Request, detector: Detector, sources: Sources, answered: Answered) -> None:
    failed = answered.failed
    good = [record for record in answered.records if "objects" in record]
    boxes = sum(len(record["objects"]) for record in good)
    cut = sum(record["finish_reason"] == "length" for record in good)
    say(f"{len(good):,} images answered ({answered.new:,} now), {boxes:,} boxes: {request.out / 'predictions.jsonl'}")
    bare = sum(not has_distributions(record) for record in good) if detector.reading["boxes"] != "tokens" else 0
    if bare:
        say(f"  {bare:,} answers came without the probabilities of their coordinates: their boxes are as written")
    if cut:
        say(f"  {cut:,} answers were cut off at {detector.engine.max_new_tokens} tokens (evaluation.max_new_tokens)")
    if failed:
        say(f"  {len(failed):,} images have no answer, another call tries them again; the first: {_reason(failed[0])}")
    categories = None
    if sources.truth is not None:
        categories = {category.name: category.id for category in sources.truth.categories} or None
    results = coco_results(good, categories)
    if left_out := boxes - len(results):
        say(f"  {left_out:,} boxes have labels that the annotations do not, and are not in coco_results.json")
    write_text(request.out / "coco_results.json", json.dumps(results) + "\n")
    for name in request.exports:
        say(f"{name}: {write_export(name, good, request.out)}")
    if not good:
        raise RunError(f"no image could be answered; the first: {_reason(failed[0])}")
    if request.draw:
        from coord_trainer.detect.gallery import draw_answers

        say(f"page: {draw_answers(answered, sources)}")
    if sources.truth is not None:
        _score(detector, sources, answered, {"boxes": "tokens"} if bare else {})


def _reason(record: dict[str, Any]) -> str:
    return f"{record['image']}: {record.get('error', 'no answer')}"


def _score(detector: Detector, sources: Sources, answered: Answered, changes: dict[str, Any]) -> None:
    from coord_eval import score
    from coord_trainer.answers.score import summary

    config = detector.config
    evaluation = score(
        sources.truth,
        answered.folder / "predictions.jsonl",
        **{**detector.reading, **changes},
        markers=config.data.markers,
        order=config.data.order,
        max_objects=config.data.max_objects,
    )
    evaluation.write_report(answered.folder, image_root=sources.root, title=f"{len(sources.images)} images, scored")
    for line in summary(evaluation):
        say(line)
    say(f"report: {answered.folder / 'report.html'}")
