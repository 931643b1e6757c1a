"""Answering many images into a folder: each answer is appended as it comes, and a second call goes on.

Over several processes (torchrun) each answers a share into a file of its own, which the first one puts together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from coord_codec import InputError
from coord_codec.files import parse_json_line, read_json, write_text
from coord_eval import ImageError, ImageFacts, decode_image, image_facts
from coord_trainer.answers.appended import cut_torn_lines
from coord_trainer.console import all_ranks_done, first_rank_first, is_first, rank, say, world_size
from coord_trainer.detect.detector import Detector
from coord_trainer.detect.objects import read_objects
from coord_trainer.detect.sources import Source, Sources

PREDICTIONS = "predictions.jsonl"
_FIELDS = frozenset({"image", "finish_reason"})
SESSION = "session.json"
"""What the answers of a folder depend on; a second call has to agree."""
_PIXEL_STEP = 1.15
"""Images whose numbers of pixels are within this factor are answered in one batch: prompts of one length."""


@dataclass(frozen=True)
class Answered:
    """The result of a session.

    Attributes:
        folder: with predictions.jsonl
        records: one of each image, sorted by the sources' order; `finish_reason` "error" where there is no answer
        new: how many were answered by this call
    """

    folder: Path
    records: tuple[dict[str, Any], ...]
    new: int

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Records without an answer; another call tries them again."""
        return [record for record in self.records if record["finish_reason"] == "error"]


def answer_sources(
    detector: Detector, sources: Sources, folder: Path, settings: dict[str, Any], *, batch: int, force: bool = False
) -> Answered:
    """Answer every image that has no answer in `folder` yet.

    Args:
        detector: the model
        sources: the images
        folder: made where it is not there; anything but an earlier session in it is refused
        settings: what answers depend on, kept in session.json
        batch: images that are answered together
        force: throw an earlier session's answers away

    Raises:
        InputError: the folder holds something else, or answers under other settings, or a session is at work in it
    """
    with first_rank_first("session"):
        lock = _open(folder, settings, force) if is_first() else None
    done = {record["image"]: record for record in _records(folder) if record["finish_reason"] != "error"}
    # Shares of all images, not of those that are left: another process may have answered some of these by now.
    todo = [source for source in sources.images[rank() :: world_size()] if source.name not in done]
    if done:
        left = sum(source.name not in done for source in sources.images)
        say(f"{folder}: {len(done)} answers are there already, {left} images are left")
    own = folder / (PREDICTIONS if world_size() == 1 else f"{PREDICTIONS}.{rank()}")
    new = 0
    share, bad = _openable(todo)
    with own.open("a", encoding="utf-8") as file, tqdm(total=len(share), desc="answering", unit="img") as bar:
        for record in bad:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        for group in _batches(share, batch):
            for record in _answer(detector, group):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                new += record["finish_reason"] != "error"
            file.flush()
            bar.update(len(group))
    all_ranks_done("answers")
    if lock is None:
        return Answered(folder, (), new)
    found = {record["image"]: record for record in _records(folder)}  # of two about one image the later one
    order = [found[source.name] for source in sources.images if source.name in found]
    write_text(folder / PREDICTIONS, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in order))
    for part in folder.glob(f"{PREDICTIONS}.*"):
        part.unlink()
    lock.release()
    return Answered(folder, tuple(order), new)


def _open(folder: Path, settings: dict[str, Any], force: bool) -> FileLock:
    before = folder / SESSION
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not before.is_file():
        raise InputError(f"--out: {folder} holds something else than answers; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"--out: another process is answering into {folder}; wait, or choose another folder") from None
    if force:
        for path in (*folder.glob(f"{PREDICTIONS}*"), before):
            path.unlink(missing_ok=True)
    if before.is_file():
        kept = read_json(before)
        for name, value in settings.items():
            if kept.get(name) != value:
                lock.release()
                raise InputError(
                    f"--out: the answers in {folder} were made with {name} {kept.get(name)!r}, now it is {value!r}; "
                    "choose another folder, or start anew with --force"
                )
    if torn := _repair(folder):
        say(f"{folder}: {torn} answers were cut off while they were written; their images are answered again")
    write_text(before, json.dumps(settings, indent=1) + "\n")
    return lock


def _repair(folder: Path) -> int:
    """Cut torn lines off the files of answers; returns how many there were."""
    return sum(cut_torn_lines(path, _FIELDS) for path in folder.glob(f"{PREDICTIONS}*"))


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(f"{PREDICTIONS}*")):
        with path.open("rb") as file:
            yield from (parse_json_line(line) for line in file if line.endswith(b"\n"))


def _openable(sources: Sequence[Source]) -> tuple[list[tuple[Source, int]], list[dict[str, Any]]]:
    """Return the sources with their numbers of pixels, and a failed record of each that no decoder opens."""
    good, bad = [], []
    for source in sources:
        facts = _tried(image_facts, source)
        if isinstance(facts, ImageFacts):
            good.append((source, facts.size[0] * facts.size[1]))
        else:
            bad.append(facts)
    return good, bad


def _tried(read: Callable[[Path], Any], source: Source) -> Any:
    """Return what is read of an image, or its failed record."""
    try:
        return read(source.path)
    except ImageError as error:
        return _failed(source, str(error))


def _batches(sources: Sequence[tuple[Source, int]], size: int) -> Iterator[list[Source]]:
    """Put images of nearly equal numbers of pixels together: their prompts are equally long."""

    def level(pair: tuple[Source, int]) -> int:
        step, pixels = 0, pair[1]
        while pixels > 1:
            pixels, step = int(pixels / _PIXEL_STEP), step + 1
        return step

    for _, group in groupby(sorted(sources, key=level), key=level):
        alike = [source for source, _ in group]
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _answer(detector: Detector, sources: Sequence[Source]) -> Iterator[dict[str, Any]]:
    decoded = [(source, _tried(decode_image, source)) for source in sources]
    yield from (record for _, record in decoded if isinstance(record, dict))
    opened = [(source, image) for source, image in decoded if not isinstance(image, dict)]
    answers = detector.engine.answer([image for _, image in opened]) if opened else []
    for (source, image), answer in zip(opened, answers, strict=True):
        head = {"image_id": source.image_id, "image": source.name, "width": image.width, "height": image.height}
        if answer["finish_reason"] == "error":
            yield {**head, **answer}
            continue
        found = read_objects({**head, **answer}, **detector.reading)
        yield {**head, **answer, "objects": [item.to_record() for item in found]}


def _failed(source: Source, reason: str) -> dict[str, Any]:
    return {"image_id": source.image_id, "image": source.name, "finish_reason": "error", "error": reason}
