"""Images and a detector become records of predictions.jsonl, in batches of one length or over several requests at once.

An image that no decoder opens, or that the model's processor refuses, is one record with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coord_eval import ImageError, ImageFacts, decode_image, image_facts
from coord_trainer.detect.detector import Detector
from coord_trainer.detect.sources import Source

_PIXEL_STEP = 1.15
"""Images whose numbers of pixels are within this factor are answered in one batch: prompts of one length."""

Record = dict[str, Any]


def answer_images(detector: Detector, sources: Sequence[Source], batch: int) -> Iterator[list[Record]]:
    """Yield records as they come, of each image one; `finish_reason` is "error" where there is no answer.

    Args:
        detector: the model
        sources: the images, none twice
        batch: images that are answered together; an engine with several requests at a time takes each by itself
    """
    if detector.engine.concurrency > 1:
        yield from _at_once(lambda source: _answered(detector, [source]), sources, detector.engine.concurrency)
        return
    good: list[tuple[Source, int]] = []
    bad: list[Record] = []
    for source in sources:
        facts = _tried(image_facts, source)
        if isinstance(facts, ImageFacts):
            good.append((source, facts.size[0] * facts.size[1]))
        else:
            bad.append(facts)
    yield bad
    yield from (_answered(detector, group) for group in _batches(good, batch))


def _at_once(work: Callable[[Source], Any], sources: Sequence[Source], count: int) -> Iterator[Any]:
    """Yield results as they come, from so many threads, which no stop of this process waits for."""
    left, results = iter(list(sources)), SimpleQueue[Any]()
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                source = next(left, None)
            if source is None:
                return
            try:
                results.put(work(source))
            except BaseException as error:
                results.put(error)

    for _ in range(min(count, len(sources))):
        threading.Thread(target=run, daemon=True).start()
    try:
        for _ in sources:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        with lock:
            left = iter(())


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


def _answered(detector: Detector, sources: Sequence[Source]) -> list[Record]:
    decoded = [(source, _tried(decode_image, source)) for source in sources]
    records = [record for _, record in decoded if isinstance(record, dict)]
    opened = [(source, image) for source, image in decoded if not isinstance(image, dict)]
    answers = detector.answers([image for _, image in opened])
    for (source, image), answer in zip(opened, answers, strict=True):
        head = {"image_id": source.image_id, "image": source.name, "width": image.width, "height": image.height}
        record = {**head, "file": file_stamp(source.path), **answer}
        if answer["finish_reason"] != "error":
            found = detector.read(record)
            record["objects"] = [item.to_record() for item in found]
            record |= {"dropped": dict(found.dropped)} if found.dropped else {}
        records.append(record)
    return records


def _tried(read: Callable[[Path], Any], source: Source) -> Any:
    """Return what is read of an image, or its failed record."""
    try:
        return read(source.path)
    except ImageError as error:
        return {"image_id": source.image_id, "image": source.name, "finish_reason": "error", "error": str(error)}


def file_stamp(path: Path) -> Record | None:
    """Return what changes when a file is replaced, and where it is; None where it cannot be asked."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return {"path": str(path.resolve()), "bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}
