"""One generated answer as a record of the predictions contract, and the file that holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coord_codec import CoordVocab

from .checkpoint_model import Checkpoint
from .step_recorder import StepRecorder


def answer_record(
    checkpoint: Checkpoint,
    ids: Sequence[int],
    recorder: StepRecorder,
    row: int,
    marker_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    """Text, how it ended, and what was recorded at every box side and description.

    Args:
        checkpoint: what answered.
        ids: the tokens generated, padding included.
        recorder: looked at every step of the batch.
        row: of this answer in the batch.
        marker_ids: the markers of objects; None where answers have none.
    """
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
