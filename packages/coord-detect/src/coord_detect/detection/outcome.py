"""What `predict` prints and writes once the images are answered: results, exports, drawn images, scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from coord_codec import RunError
from coord_codec.counts import counted, counted_note
from coord_codec.files import write_text
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.finish import BOXES_FILE, has_distributions
from coord_detect.console import say
from coord_detect.detection.image_sources import Sources
from coord_detect.detection.session import DRAWN, PAGE, RESULTS, SCORED, Answered, remove_made
from coord_detect.detection.written import exports_in, write_export
from coord_detect.model.card import memorised_note
from coord_detect.model.checkpoints import locate_model
from coord_detect.served.request import Request
from coord_eval.labelling import coco_results

if TYPE_CHECKING:
    from coord_detect.served.endpoint import EndpointEngine
    from coord_eval import AnswerSettings


def report_answers(request: Request, detector: AnsweringModel, sources: Sources, answered: Answered) -> None:
    """Print what was answered, if anything was, write exports, page and results, and score the answers."""
    good = [record for record in answered.records if "objects" in record]
    uses_tokens = detector.reading.boxes == "tokens"
    plain = 0 if uses_tokens else sum(not has_distributions(record) for record in good)
    is_scored = sources.truth is not None and any(instance.targets for instance in sources.truth.instances)
    finished = _finish(request, detector, good)
    _print_answers(request, detector, answered, good, plain, finished)
    _write_results(request, sources, good)
    for name, made in ((DRAWN, request.draw), (PAGE, request.draw), *((name, is_scored) for name in SCORED)):
        if not (made and good):
            remove_made(request.out, [name])
    if not good:
        raise RunError(f"no image could be answered; the first: {_reason(answered.failed[0])}")
    if request.draw:
        from coord_detect.detection.gallery import draw_answers

        say(f"page: {draw_answers(answered, sources, _about(detector), finished)}")
    if sources.truth is not None and not is_scored:
        say("the annotations hold no objects: there is nothing to score")
    if is_scored:
        wanted, option = (detector.labels, "--label") if detector.labels else (detector.only, "--only")
        if wanted and (others := sorted(set(sources.labels) - wanted)):
            note = (
                f"  {counted(len(others), 'label of the annotations is', 'labels of the annotations are')} "
                f"none of {option}, so that their objects are missed"
            )
            say(f"{note}; the first: {others[0]}")
        reading = replace(detector.reading, boxes="tokens") if plain == len(good) else detector.reading
        _score(detector, sources, answered, reading)


def _print_answers(
    request: Request,
    detector: AnsweringModel,
    answered: Answered,
    good: Sequence[dict[str, Any]],
    plain: int,
    finished: Sequence[str],
) -> None:
    """Print what was answered, what was fused and left out, and what is wrong; `plain` have no distributions."""
    failed = answered.failed
    boxes = sum(len(record["objects"]) for record in good)
    truncated = sum(record["finish_reason"] == "length" for record in good)
    answers = f"{counted(len(good), 'image')} answered ({answered.new:,} now)"
    found = counted(boxes, "box", "boxes")
    say(f"{answers}, {found}: {request.out / 'predictions.jsonl'}")
    thoughts = sum("</think>" in record["text"] for record in good)
    kwargs = cast("EndpointEngine", detector.engine).chat_template_kwargs if thoughts and request.endpoints else {}
    if kwargs:
        say(
            f"  {counted(thoughts, 'answer')} began with thoughts, which training did not show: the server seems to "
            f"ignore chat_template_kwargs={json.dumps(dict(kwargs))}"
        )
    if plain:
        count = counted(plain, "answer")
        say(f"  {count} came without the probabilities of their coordinates: their boxes are as generated")
    if unscored := sum(map(_is_unscored, good)):
        say(f"  {counted(unscored, 'answer')} came without probabilities: the score of their boxes is 1")
    if truncated:
        limit = detector.engine.max_new_tokens
        say(
            f"  {counted(truncated, 'answer was', 'answers were')} cut off at {limit} tokens "
            "(evaluation.max_new_tokens)"
        )
    for line in finished:
        say(f"  {line}")
    _report_outside_grammar(request, detector, good)
    _report_dropped(good)
    if failed:
        say(
            f"  {counted(len(failed), 'image has', 'images have')} no answer, the next call tries again; "
            f"the first: {_reason(failed[0])}"
        )


def _write_results(request: Request, sources: Sources, records: list[dict[str, Any]]) -> None:
    """Write COCO results and exports, in the category ids of the annotations if there are any."""
    categories = None
    if sources.truth is not None:
        categories = {category.name: category.id for category in sources.truth.categories} or None
    records = _numbered(records, sources)
    results = coco_results(records, categories)
    if left_out := sum(len(record["objects"]) for record in records) - len(results):
        say(
            f"  {counted(left_out, 'box', 'boxes')} with labels that the annotations do not have are left "
            "out of coco_results.json"
        )
    write_text(request.out / RESULTS, json.dumps(results) + "\n")
    for name in dict.fromkeys((*request.exports, *exports_in(request.out))):  # so that all of them agree
        say(f"{name}: {write_export(name, records, request.out, categories, request.image_prefix)}")


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


def _finish(request: Request, detector: AnsweringModel, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write boxes.json if boxes are not those of the answers alone; return what a user should know."""
    lacks = memorised_note(detector.folder) + ([detector.uncalibrated] if detector.uncalibrated else [])
    decoded = Counter(note for record in records for note in record.get("decoded", ()))
    lacks += [counted_note(count, note) for note, count in decoded.items()]
    if detector.finish.changes:
        return lacks + _finish_lines(detector.finish.write_counts(request.out, records))
    remove_made(request.out, [BOXES_FILE])
    return lacks


def _finish_lines(record: Mapping[str, Any]) -> list[str]:
    """Return what boxes.json says, in lines for the user."""
    lines, fusion = [], record["fusion"]
    for word, row in fusion.get("views", {}).items():
        lines.append(
            f"{word}: {counted(row['boxes'], 'box', 'boxes')}, {row['merged']:,} merged with other views, "
            f"{row['alone']:,} found by it alone, {counted(row['duplicate'], 'duplicate')} within it"
        )
    if by_view := fusion.get("views"):
        unused = [word for word in record.get("views", ()) if word not in by_view]
        lines += [f"{word}: no image needed a view of its own" for word in unused]
    if fusion.get("joined"):
        lines.append(f"{fusion['joined']:,} of {fusion['cut']:,} boxes that a tile's edge cuts were joined with others")
    if fusion.get("other_label"):
        lines.append(
            f"{counted(fusion['other_label'], 'box', 'boxes')} with other labels than those of --label left out"
        )
    if fusion.get("names_a_side"):
        lines.append(f"{fusion['names_a_side']:,} boxes of the mirror image are left out: their labels name a side")
    if fusion.get("uncalibrated"):
        lines.append(f"{fusion['uncalibrated']:,} boxes have scores of another kind, which are not calibrated")
    if rests_on := record.get("calibration", {}).get("rests_on"):
        lines.append(f"scores are calibrated on {rests_on['images']:,} images with {rests_on['boxes']:,} boxes")
    if threshold := record.get("threshold"):
        line = f"boxes of a score below {threshold['min_score']:.4g} are left out: {fusion.get('below_threshold', 0):,}"
        labels = record.get("labels")
        if expected := threshold.get("expected"):
            of_all = ", of all labels together" if labels else ""
            line += f"; expected precision {expected['precision']:.3f}, recall {expected['recall']:.3f}{of_all}"
            line += f" ({expected['note']})" if expected.get("note") else ""
        lines.append(line)
        for label, row in (threshold.get("expected") or {}).get("classes", {}).items():
            if labels and label not in labels:
                continue
            lines.append(f"  {label}: precision {row['precision']:.3f}, recall {row['recall']:.3f}")
    return lines


def _report_outside_grammar(request: Request, detector: AnsweringModel, records: Sequence[Mapping[str, Any]]) -> None:
    """Print how many complete answers the grammar that was sent to the server does not allow."""
    if request.grammar is None or request.model is None:
        return
    from coord_detect.grammar.served import answer_form, answer_pattern

    form = answer_form(locate_model(request.model), detector.config, ())
    pattern = answer_pattern(form, detector.config.data.markers)
    complete = [record for record in records if record["finish_reason"] == "stop"]
    outside = [record for record in complete if not pattern.fullmatch(record["text"])]
    if outside:
        first = outside[0]
        say(
            f"  {len(outside):,} of {counted(len(complete), 'answer')} are not what the grammar allows that was sent: "
            f"the server ignores it (--grammar {request.grammar}; docs/guides/gpu.md says which servers obey); the "
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
    excluded, pieces = ("unrecognised", "ignored_label", "other_label"), Counter[str]()
    for record in records:
        pieces.update({reason: n for reason, n in record.get("dropped", {}).items() if reason not in excluded})
    if pieces:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in pieces.most_common())
        say(f"  {counted(pieces.total(), 'piece of an answer is', 'pieces of answers are')} no box: {reasons}")


def _is_unscored(record: Mapping[str, Any]) -> bool:
    """Return whether all scores are 1 because probabilities are missing; the text of an answer may state scores too."""
    scores = {item["score"] for item in record["objects"]}
    return scores == {1.0} and not record.get("coord_logprobs")


def _reason(record: dict[str, Any]) -> str:
    return f"{record['image']}: {record.get('error', 'no answer')}"


def _about(detector: AnsweringModel) -> dict[str, str]:
    """Return what the pages name: the model without its folders, and how it decoded."""
    return {"model": PurePath(detector.engine.name).name, "decoding": detector.config.evaluation.decoding[0].name}


def _score(detector: AnsweringModel, sources: Sources, answered: Answered, reading: AnswerSettings) -> None:
    from coord_detect.answers.summary import summary
    from coord_eval import CeilingSettings, score

    config = detector.config
    assert sources.truth is not None  # else nothing is scored
    data = config.data
    evaluation = score(
        sources.truth,
        answered.folder / "predictions.jsonl",
        answers=reading,
        ceiling=CeilingSettings(markers=data.markers, max_objects=data.max_objects, order=data.order),
    )
    files = {source.name: source.path for source in sources.images}
    title = f"{counted(len(files), 'image')}, scored"
    evaluation.write_report(answered.folder, image_root=files.get, title=title, facts=_about(detector))
    for line in (*summary(evaluation), *(f"  note: {note}" for note in evaluation.notes)):
        say(line)
    say(f"report: {answered.folder / 'report.html'}")
