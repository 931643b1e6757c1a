"""Greedy answers from a checkpoint on disk, free or under the grammar, with the probability of every box side."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import LogitsProcessorList

from .answer_records import answer_record, write_predictions
from .checkpoint_model import Checkpoint, open_checkpoint
from .config import RunConfig
from .errors import InputError
from .grammar import CoordGrammar
from .picture_set import PictureSet
from .readings import READINGS, Reading
from .samples import TargetWriter, marker_ids
from .step_recorder import StepRecorder

_SPARE_TOKENS = 16


def predict_pictures(config: RunConfig, checkpoint: Path, pictures: PictureSet, out: Path) -> int:
    """Answer `pictures` in every reading that `config` names; returns how many pictures.

    The first reading's predictions.jsonl is `out`; the others lie in folders of their own beside it.
    """
    opened = open_checkpoint(checkpoint, config)
    tokenizer = opened.processor.tokenizer
    room = config.evaluation.max_new_tokens or _longest_answer(config, pictures, tokenizer)
    written: dict[tuple[bool, ...], Path] = {}
    for place, name in enumerate(config.evaluation.readings):
        reading = READINGS[name]
        path = out if place == 0 else reading.folder(out.parent, first=False) / "predictions.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        said_alike = (reading.grammar, reading.feed_expectation, reading.known_names)
        same = written.setdefault(said_alike, path)
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
    names = {found.desc for instance in pictures.instances for found in instance.objects}
    if reading.known_names and not names:
        raise InputError(
            f"evaluation.readings: {reading.name} holds answers to the names in the annotations; there are none"
        )
    bar = tqdm(total=total, desc=f"generating ({reading.name})", unit="img", mininterval=0.5)
    for start in range(0, total, batch_size):
        indices = range(start, min(start + batch_size, total))
        images = [pictures.picture(i) for i in indices]
        inputs = _inputs(checkpoint, images, prompt)
        grammar = None
        if reading.grammar:
            grammar = CoordGrammar.for_tokenizer(
                checkpoint.processor.tokenizer,
                markers,
                prompt_length=inputs["input_ids"].shape[1],
                max_new_tokens=max_new_tokens,
                descriptions=names if reading.known_names else None,
            )
        recorder = StepRecorder(checkpoint.vocab, grammar, reading.feed_expectation)
        answers = _generate(checkpoint, inputs, max_new_tokens, recorder)
        for row, index in enumerate(indices):
            instance = pictures.instances[index]
            yield {
                "image_id": instance.image_id if instance.image_id is not None else index + 1,
                "image": instance.image,
                "width": instance.width,
                "height": instance.height,
                **answer_record(checkpoint, answers[row], recorder, row, marker_ids),
            }
        bar.update(len(indices))
    bar.close()


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
