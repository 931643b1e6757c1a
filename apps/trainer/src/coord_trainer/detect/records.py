"""Generates the records of predictions.jsonl, in batches of similar prompt length or by concurrent requests.

An image that cannot be decoded, or that the model's processor refuses, gets a record with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coord_eval import ImageError, ImageFacts, decode_image, image_facts
from coord_trainer.answers.finish import FUSED
from coord_trainer.detect.detector import Detector
from coord_trainer.detect.image_sources import ImageSource

_PIXEL_STEP = 1.15
"""Images whose pixel counts differ by less than this factor share a batch: their prompts are about equally long."""

Record = dict[str, Any]


def prediction_records(detector: Detector, sources: Sequence[ImageSource], batch: int) -> Iterator[list[Record]]:
    """Yield lists of records as they are generated, one record for each image; failures have `finish_reason` "error".

    Args:
        detector: the model
        sources: the images, without duplicates
        batch: images in a batch; ignored by an engine with concurrent requests, which takes single images
    """
    if detector.engine.concurrency > 1:
        yield from _concurrently(lambda source: _records(detector, [source], 1), sources, detector.engine.concurrency)
        return
    readable: list[tuple[ImageSource, int]] = []
    failed: list[Record] = []
    for source in sources:
        facts = _read_or_error(image_facts, source)
        if isinstance(facts, ImageFacts):
            readable.append((source, facts.size[0] * facts.size[1]))
        else:
            failed.append(facts)
    yield failed
    yield from (_records(detector, group, batch) for group in _batches(readable, batch))


def _concurrently(work: Callable[[ImageSource], Any], sources: Sequence[ImageSource], count: int) -> Iterator[Any]:
    """Yield results in order of completion from `count` daemon threads, which do not delay the end of the process."""
    pending, results = iter(list(sources)), SimpleQueue[Any]()
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                source = next(pending, None)
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
            pending = iter(())


def _batches(sources: Sequence[tuple[ImageSource, int]], size: int) -> Iterator[list[ImageSource]]:
    """Batch images with similar pixel counts."""

    def size_class(pair: tuple[ImageSource, int]) -> int:
        step = 0
        pixels = pair[1]
        while pixels > 1:
            pixels, step = int(pixels / _PIXEL_STEP), step + 1
        return step

    for _, group in groupby(sorted(sources, key=size_class), key=size_class):
        similar = [source for source, _ in group]
        yield from (similar[start : start + size] for start in range(0, len(similar), size))


def _records(detector: Detector, sources: Sequence[ImageSource], batch: int) -> list[Record]:
    decoded = [(source, _read_or_error(decode_image, source)) for source in sources]
    records = [record for _, record in decoded if isinstance(record, dict)]
    opened = [(source, image) for source, image in decoded if not isinstance(image, dict)]
    one_at_a_time = detector.engine.concurrency > 1  # several images are asked about beside this one
    answers = detector.answers([image for _, image in opened], at_once=1 if one_at_a_time else max(len(opened), batch))
    for (source, image), answer in zip(opened, answers, strict=True):
        facts = {"image_id": source.image_id, "image": source.name, "width": image.width, "height": image.height}
        record = {**facts, "file": file_stamp(source.path), **answer}
        if answer["finish_reason"] != "error":
            detections = detector.read(record)
            record["objects"] = [item.to_record() for item in detections]
            record |= {"dropped": dict(detections.dropped)} if detections.dropped else {}
            record |= {FUSED: dict(detections.fused)} if detections.fused else {}
        records.append(record)
    return records


def _read_or_error(read: Callable[[Path], Any], source: ImageSource) -> Any:
    """Return the result of `read`, or a record with the reason of its failure."""
    try:
        return read(source.path)
    except ImageError as error:
        return {"image_id": source.image_id, "image": source.name, "finish_reason": "error", "error": str(error)}


def file_stamp(path: Path) -> Record | None:
    """Return path, size and modification time of a file, by which a replaced file is noticed; None if it is missing."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return {"path": str(path.resolve()), "bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}
