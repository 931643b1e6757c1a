"""Greedy answers from a checkpoint on disk, free or under the grammar, with the probability of every box side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForImageTextToText, AutoProcessor, LogitsProcessorList

from coord_codec import CoordVocab

from .config import RunConfig
from .errors import InputError
from .grammar import CoordGrammar
from .offsets import base_of, is_adapter, put_on
from .picture_set import PictureSet
from .pixels import set_pixels
from .readings import READINGS, Reading
from .samples import TargetWriter, marker_ids
from .step_recorder import StepRecorder

_SPARE_TOKENS = 16


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to answer, with the processor and vocabulary that belong to it."""

    model: Any
    processor: Any
    vocab: CoordVocab | None


def open_checkpoint(path: Path, config: RunConfig) -> Checkpoint:
    """Load a whole checkpoint, or an adapter and its base, from disk: no network and none of its own code.

    Raises:
        InputError: when there is no complete checkpoint at `path`.
    """
    adapter = is_adapter(path)
    source = base_of(path) if adapter else path
    try:
        processor = AutoProcessor.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        model = AutoModelForImageTextToText.from_pretrained(
            source,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=config.model.attention,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: not a complete checkpoint ({str(error).splitlines()[0]})") from None
    set_pixels(processor, config.data)
    vocab = CoordVocab.from_tokenizer(processor.tokenizer) if config.custom.coord_tokens.enabled else None
    if adapter:
        markers = marker_ids(config.data, processor.tokenizer)
        model = put_on(model, path, vocab.fingerprint(markers=markers) if vocab is not None else None)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Checkpoint(model.eval().to(device), processor, vocab)


def predict_pictures(config: RunConfig, checkpoint: Path, pictures: PictureSet, out: Path) -> int:
    """Answer `pictures` in every reading that `config` names; returns how many pictures.

    The first reading's predictions.jsonl is `out`; the others lie in folders of their own beside it.
    """
    opened = open_checkpoint(checkpoint, config)
    tokenizer = opened.processor.tokenizer
    room = config.evaluation.max_new_tokens or _longest_answer(config, pictures, tokenizer)
    written: dict[tuple[bool, bool], Path] = {}
    for place, name in enumerate(config.evaluation.readings):
        reading = READINGS[name]
        path = out if place == 0 else reading.folder(out.parent, first=False) / "predictions.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        same = written.setdefault((reading.grammar, reading.feed_expectation), path)
        if same != path:
            shutil.copyfile(same, path)  # the same answers, read in another way
            continue
        answers = predict(
            opened,
            pictures,
            config.data.prompt,
            marker_ids=marker_ids(config.data, tokenizer),
            markers=config.data.markers,
            max_new_tokens=room,
            batch_size=config.evaluation.batch_size,
            limit=config.evaluation.limit,
            reading=reading,
        )
        count = write_predictions(path, answers)
    return count


def _longest_answer(config: RunConfig, pictures: PictureSet, tokenizer) -> int:
    """Room for the longest true answer, and some; an answer that needs more is reported as cut off."""
    writer = TargetWriter(config.data, config.custom.coord_tokens.enabled, config.run.seed, None)
    texts = (writer.text(instance) for instance in pictures.instances)
    return max(len(tokenizer(text)["input_ids"]) for text in texts) + _SPARE_TOKENS


@torch.inference_mode()
def predict(
    checkpoint: Checkpoint,
    pictures: PictureSet,
    prompt: str,
    *,
    marker_ids: tuple[int, ...] | None,
    max_new_tokens: int,
    batch_size: int,
    limit: int | None = None,
    markers: str = "qwen",
    reading: Reading = READINGS["greedy"],
) -> Iterator[dict[str, Any]]:
    """Yield one record of the predictions contract per picture, in order.

    Beside what the contract names, each coordinate token comes with its `coord_spread` and with `coord_mass`,
    the probability that the model gave all coordinate tokens together (see `StepRecorder`).
    """
    total = min(len(pictures), limit or len(pictures))
    bar = tqdm(total=total, desc=f"generating ({reading.name})", unit="img", mininterval=0.5)
    for start in range(0, total, batch_size):
        indices = range(start, min(start + batch_size, total))
        images = [pictures.picture(i) for i in indices]
        inputs = _inputs(checkpoint, images, prompt)
        recorder = _recorder(checkpoint, reading, markers, inputs["input_ids"].shape[1], max_new_tokens)
        answers = _generate(checkpoint, inputs, max_new_tokens, recorder)
        for row, index in enumerate(indices):
            instance = pictures.instances[index]
            yield {
                "image_id": instance.image_id if instance.image_id is not None else index + 1,
                "image": instance.image,
                "width": instance.width,
                "height": instance.height,
                **_answer(checkpoint, answers[row], recorder, row, marker_ids),
            }
        bar.update(len(indices))
    bar.close()


def _recorder(
    checkpoint: Checkpoint, reading: Reading, markers: str, prompt_length: int, max_new_tokens: int
) -> StepRecorder:
    grammar = None
    if reading.grammar:
        grammar = CoordGrammar.for_tokenizer(
            checkpoint.processor.tokenizer,
            markers,
            prompt_length=prompt_length,
            max_new_tokens=max_new_tokens,
        )
    return StepRecorder(checkpoint.vocab, grammar, reading.feed_expectation)


def _inputs(checkpoint: Checkpoint, images: list, prompt: str) -> Any:
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
    processor = checkpoint.processor
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor(
        text=[text] * len(images), images=images, padding=True, padding_side="left", return_tensors="pt"
    ).to(checkpoint.model.device)


def _generate(
    checkpoint: Checkpoint, inputs: Any, max_new_tokens: int, recorder: StepRecorder
) -> list[list[int]]:
    tokenizer = checkpoint.processor.tokenizer
    ids_BT = checkpoint.model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        logits_processor=LogitsProcessorList([recorder]),
    )
    return ids_BT[:, inputs["input_ids"].shape[1] :].tolist()


def _answer(
    checkpoint: Checkpoint,
    ids: Sequence[int],
    recorder: StepRecorder,
    row: int,
    marker_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    tokenizer = checkpoint.processor.tokenizer
    stopped = tokenizer.eos_token_id in ids
    ids = list(ids[: ids.index(tokenizer.eos_token_id)]) if stopped else list(ids)
    # Qwen's box markers count as special tokens: they are the answer, so nothing is skipped.
    record: dict[str, Any] = {
        "text": tokenizer.decode(ids, skip_special_tokens=False),
        "finish_reason": "stop" if stopped else "length",
    }
    if checkpoint.vocab is not None:
        sides = [position for position, token in enumerate(ids) if token in checkpoint.vocab.ids]
        record["coord_logprobs"] = [recorder.log_p[i][row].item() for i in sides]
        record["coord_expected"] = [recorder.expected[i][row].item() for i in sides]
        record["coord_spread"] = [recorder.spread[i][row].item() for i in sides]
        record["coord_mass"] = [recorder.mass[i][row].item() for i in sides]
    if checkpoint.vocab is not None and marker_ids is not None:
        words = _description_positions(ids, checkpoint.vocab, marker_ids)
        record["desc_logprobs"] = [recorder.log_p[i][row].item() for found in words for i in found]
        record["desc_token_counts"] = [len(found) for found in words]
    return record


def _description_positions(
    ids: Sequence[int], vocab: CoordVocab, marker_ids: tuple[int, ...]
) -> list[list[int]]:
    """Positions of the description after each start marker, well-formed or not, for scores by description."""
    stops = {*marker_ids, *vocab.ids}
    found: list[list[int]] = []
    open_object = False
    for position, token in enumerate(ids):
        if token == marker_ids[0]:
            found.append([])
            open_object = True
        elif token in stops:
            open_object = False
        elif open_object:
            found[-1].append(position)
    return found


def write_predictions(path: Path, records: Iterator[dict[str, Any]]) -> int:
    """Write predictions.jsonl under a temporary name and rename it; returns how many answers there are."""
    temporary = path.with_name(f".{path.name}.partial")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count
