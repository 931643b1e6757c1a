"""Generates answers with a checkpoint from disk, free or under the grammar, with the probability of every box side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tqdm import tqdm
from transformers import LogitsProcessor, LogitsProcessorList

from coord_codec import CoordVocab, InputError
from coord_codec.files import read_json_lines, write_text
from coord_data.image_set import ImageSet
from coord_trainer.answers.finish import BOXES_FILE, FUSED, Finish, read_options
from coord_trainer.answers.grammar.markers import CoordGrammar
from coord_trainer.answers.grammar.matched import MatchedGrammar
from coord_trainer.answers.grammar.served import AnswerForm
from coord_trainer.answers.objects import read_objects
from coord_trainer.answers.resumable_file import append_answers, json_line, make_folder
from coord_trainer.answers.speed.of_checkpoint import check_speed, decode_fast, report_drafts, speed_of_answers
from coord_trainer.answers.token_limit import token_limit
from coord_trainer.checkpoints import weight_files
from coord_trainer.config.decoding import Decoding, prediction_files
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.data.targets import marker_ids
from coord_trainer.model.card import read_card
from coord_trainer.model.checkpoint import LoadedCheckpoint, open_checkpoint
from coord_trainer.model.prompt import prompt_tokens
from coord_trainer.model.token_statistics import StepRecorder
from coord_trainer.views.asking import answer_views
from coord_trainer.views.table import check_views
from coord_trainer.views.view import Question

_ANSWER_SETTINGS = {
    *("prompt", "markers", "style", "geometry", "max_vertices", "max_objects", "noise_objects"),
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
    call continues what an interrupted one left unfinished.

    Args:
        config: of the run
        checkpoint: its folder
        images: the images
        out: file of the answers
        threshold: arguments of `Finish.with_threshold`: the least score, or what it is to give; None keeps all boxes

    Raises:
        InputError: the model is not calibrated for a decoding, and `threshold` asks for a precision or recall
    """
    opened = open_checkpoint(checkpoint, config)
    tokenizer = opened.processor.tokenizer
    check_speed(opened, config)
    max_new_tokens = config.evaluation.max_new_tokens or token_limit(config, tokenizer, images.words)
    written: dict[Decoding, Path] = {}
    count = 0
    (first, _), *others = prediction_files(config.evaluation.decoding, out.parent)
    views = config.evaluation.views
    question = question_about(config, images, largest_image(opened.processor))
    check_views(views, question)
    card = read_card(checkpoint)
    finishes = {
        decoding: Finish(views, question, card and card.calibration_of(decoding, views, checkpoint)).with_threshold(
            **(threshold or {})
        )
        for decoding in config.evaluation.decoding
    }
    for decoding, path in ((first, out), *others):
        make_folder(path.parent)
        finish = finishes[decoding]
        source = written.setdefault(decoding.generation, path)
        if source != path:
            shutil.copyfile(source, path)  # the same answers; only their boxes are computed in another way
            finish_file(path, finish, config, decoding)
            continue
        depends_on = {
            "weights": weight_files(checkpoint),
            "images": [images.digest, config.evaluation.limit],
            "asked": [decoding.name, max_new_tokens, opened.system, config.model.dtype],
            "answers": config.data.model_dump(mode="json", include=_ANSWER_SETTINGS),
        }
        if (speed := speed_of_answers(opened, config)) != "plain":
            depends_on["speed"] = speed
        if views:
            depends_on["views"] = [list(views), question.labels, question.class_prompt]

        def answer_from(start: int, decoding: Decoding = decoding, finish: Finish = finish) -> Iterator[dict[str, Any]]:
            chosen = range(len(images))[: config.evaluation.limit][start:]
            return predict(opened, config, images, decoding, max_new_tokens, chosen, finish)

        count = append_answers(path, depends_on, answer_from)
        finish_file(path, finish, config, decoding)
    return count


def predict(
    checkpoint: LoadedCheckpoint,
    config: RunConfig,
    images: ImageSet,
    decoding: Decoding,
    max_new_tokens: int,
    chosen: Sequence[int] | None = None,
    finish: Finish | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the record of predictions.jsonl for each image, or for the `chosen` indices alone; see `answer_images`.

    With `finish` the raw answers to its views lie in the record, which are not fused yet.
    """
    finish = finish or Finish()

    def ask(asked: Sequence[Image.Image], prompt: str | None, pixels: float) -> list[dict[str, Any]]:
        further: dict[str, Any] = {} if prompt is None and pixels == 1 else {"prompt": prompt, "pixels": pixels}
        speed = config.evaluation.speed
        return answer_images(checkpoint, asked, config.data, decoding, max_new_tokens, names, speed=speed, **further)

    chosen = range(len(images))[: config.evaluation.limit] if chosen is None else chosen
    batch_size = config.evaluation.batch_size
    names = images.words if decoding.grammar == "names" else None
    bar = tqdm(total=len(chosen), desc=f"generating ({decoding.name})", unit="img", mininterval=0.5, leave=None)
    for start in range(0, len(chosen), batch_size):
        indices = chosen[start : start + batch_size]
        opened = [images.image(i) for i in indices]
        answers = answer_views(finish.views, opened, finish.question, ask, batch_size)
        for index, answer in zip(indices, answers, strict=True):
            instance = images.instances[index]
            yield {
                "image_id": instance.image_id if instance.image_id is not None else index,
                "image": instance.image,
                "width": instance.width,
                "height": instance.height,
                **answer,
            }
        bar.update(len(indices))
    bar.close()
    if config.evaluation.speed != "plain":
        report_drafts(checkpoint)


def largest_image(processor: Any) -> int | None:
    """Return the number of pixels above which a processor reduces images; None if it has no limit."""
    return dict(processor.image_processor.size).get("longest_edge")


@torch.inference_mode()
def answer_images(
    checkpoint: LoadedCheckpoint,
    images: Sequence[Image.Image],
    data: DataSection,
    decoding: Decoding,
    max_new_tokens: int,
    names: set[str] | None = None,
    *,
    prompt: str | None = None,
    pixels: float = 1.0,
    speed: str = "plain",
) -> list[dict[str, Any]]:
    """Generate answers to a batch of images; returns text, finish reason and probabilities of each.

    For each coordinate token the records also hold `coord_spread` and `coord_mass`, the total probability of all
    coordinate tokens (see `StepRecorder`).

    Args:
        checkpoint: the model
        images: upright and RGB
        data: prompt and markers
        decoding: how to decode
        max_new_tokens: see `token_limit`
        names: the only allowed descriptions, if the decoding limits them
        prompt: the user's message, None for that of `data`
        pixels: factor of the processor's limits on the size of an image
        speed: `plain` generates a token at a time; see `evaluation.speed`

    Raises:
        InputError: the decoding limits names and there are none, or the model cannot be decoded with this speed.
    """
    tokenizer = checkpoint.processor.tokenizer
    if decoding.grammar == "names" and not names:
        raise InputError(
            "evaluation.decoding.grammar: names limits answers to the names in the annotations; there are none"
        )
    markers = marker_ids(data, tokenizer)
    inputs = prompt_inputs(checkpoint, list(images), prompt or data.prompt, pixels)
    prompt_length = inputs["input_ids"].shape[1]
    filled_to = data.noise_objects if decoding.filled else None
    grammar = grammar_of(tokenizer, data, decoding.grammar, prompt_length, max_new_tokens, names, filled_to)
    if speed != "plain":
        found = decode_fast(checkpoint, inputs, data, max_new_tokens, grammar, names, decoding.filled, speed)
        pairs = zip(found.answers, found.statistics, strict=True)
        return [answer_record(checkpoint, ids, statistics, markers) for ids, statistics in pairs]
    recorder = StepRecorder(checkpoint.vocab, grammar, free_scores=decoding.filled)
    ids_BT = checkpoint.model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        logits_processor=LogitsProcessorList([recorder]),
    )
    pairs = zip(ids_BT[:, prompt_length:].tolist(), recorder.read(), strict=True)
    return [answer_record(checkpoint, ids, statistics, markers) for ids, statistics in pairs]


def question_about(config: RunConfig, images: ImageSet, max_pixels: int | None) -> Question:
    """Return the question that is asked about the images of a set; its labels are their classes, or their words."""
    data = config.data
    labels = tuple(sorted(images.classes or images.words))
    return Question(data.prompt, data.class_prompt, labels, data.geometry, max_pixels)


def finish_file(path: Path, finish: Finish, config: RunConfig, decoding: Decoding) -> None:
    """Fuse and calibrate the boxes of a file of answers, if anything does, and write boxes.json beside it."""
    if not finish.changes:
        return
    options = read_options(config, decoding)
    records = [record for _, record in read_json_lines(path)]
    for record in records:
        if record["finish_reason"] != "error":
            detections = read_objects(record, None, (), finish, **options)
            record |= {"objects": [item.to_record() for item in detections], FUSED: dict(detections.fused)}
    write_text(path, "".join(map(json_line, records)))
    counts = [record[FUSED] for record in records if FUSED in record]
    write_text(path.with_name(BOXES_FILE), json.dumps(finish.to_record(counts), indent=1) + "\n")


def grammar_of(
    tokenizer: Any,
    data: DataSection,
    grammar: str,
    prompt_length: int,
    max_new_tokens: int,
    names: set[str] | None = None,
    filled_to: int | None = None,
) -> LogitsProcessor | None:
    """Return the logits processor of one batch that keeps answers to a grammar; None for the grammar `none`.

    Args:
        tokenizer: of the checkpoint
        data: markers, style, geometry and number of objects
        grammar: `none`, `markers` or `names`
        prompt_length: tokens before the answers
        max_new_tokens: of an answer
        names: the only allowed descriptions, for `names`
        filled_to: the number of objects of every answer; None for up to `data.max_objects`
    """
    if grammar == "none":
        return None
    allowed = names if grammar == "names" else None
    shared = {"max_objects": filled_to or data.max_objects, "min_objects": filled_to or 0, "geometry": data.shape}
    if data.style == "json":
        form = AnswerForm.for_tokenizer(tokenizer, data.markers, style="json", names=allowed, **shared)
        return MatchedGrammar(tokenizer, form, prompt_length=prompt_length)
    return CoordGrammar.for_tokenizer(
        tokenizer,
        data.markers,
        prompt_length=prompt_length,
        max_new_tokens=max_new_tokens,
        descriptions=allowed,
        **shared,
    )


def prompt_inputs(checkpoint: LoadedCheckpoint, images: list, prompt: str, pixels: float = 1.0) -> Any:
    """Return the model's inputs for `images`: the checkpoint's system message, and each image with the prompt."""
    inputs = prompt_tokens(checkpoint.processor, checkpoint.system, images, prompt, pixels)
    return inputs.to(checkpoint.model.device)


def answer_record(
    checkpoint: LoadedCheckpoint,
    ids: Sequence[int],
    statistics: dict[str, list[Any]],
    marker_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    """Return text, finish reason, and the statistics of each coordinate and description, of an answer.

    Args:
        checkpoint: the model
        ids: the answer's tokens
        statistics: of each token, by name; see `StepRecorder.read`
        marker_ids: of the markers; None if answers have none
    """
    tokenizer = checkpoint.processor.tokenizer
    stopped = tokenizer.eos_token_id in ids
    ids = list(ids[: ids.index(tokenizer.eos_token_id)]) if stopped else list(ids)
    # Qwen's box markers are special tokens but part of the answer, so special tokens are kept.
    record: dict[str, Any] = {
        "text": tokenizer.decode(ids, skip_special_tokens=False),
        "finish_reason": "stop" if stopped else "length",
    }
    if checkpoint.vocab is None:
        return record
    sides = [position for position, token in enumerate(ids) if token in checkpoint.vocab.ids]
    log_p = statistics["log_p"]
    for key, name in (
        ("coord_logprobs", "log_p"),
        ("coord_expected", "expected"),
        ("coord_spread", "spread"),
        ("coord_quantiles", "quantiles"),
        ("coord_mass", "mass"),
    ):
        record[key] = [statistics[name][position] for position in sides]
    if marker_ids is not None:
        descriptions = _description_positions(ids, checkpoint.vocab, marker_ids)
        record["desc_logprobs"] = [log_p[i] for positions in descriptions for i in positions]
        record["desc_token_counts"] = [len(positions) for positions in descriptions]
    return record


def _description_positions(ids: Sequence[int], vocab: CoordVocab, marker_ids: tuple[int, ...]) -> list[list[int]]:
    """Return the token positions of the description after each start marker, even of malformed objects."""
    stops = {*marker_ids, *vocab.ids}
    descriptions: list[list[int]] = []
    open_object = False
    for position, token in enumerate(ids):
        if token == marker_ids[0]:
            descriptions.append([])
            open_object = True
        elif token in stops:
            open_object = False
        elif open_object:
            descriptions[-1].append(position)
    return descriptions
