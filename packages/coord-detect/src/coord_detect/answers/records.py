"""Generates the records of predictions.jsonl, in batches of similar prompt length or by concurrent requests.

An image that cannot be decoded, or that the model's processor refuses, gets a record with the reason.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from coord_codec.images import DEEP, LEAST_SPAN
from coord_detect.answers.finish import FUSED
from coord_detect.answers.resumable_file import Record, RecordFile
from coord_eval import ImageError, decode_image, image_facts

if TYPE_CHECKING:
    from PIL import Image

    from coord_data.reading.image_set import ImageSet
    from coord_detect.answers.answering_model import AnsweringModel
    from coord_detect.answers.objects import ImageDetections

_PIXEL_STEP = 1.15
"""Images whose pixel counts differ by less than this factor share a batch: their prompts are about equally long."""


NEARLY_UNIFORM = "images of more than 8 bits that nearly become uniform in 8; coord-data inspect says how to scale them"


@dataclass(frozen=True)
class ImageSource:
    """One image to answer, `held` if it was generated.

    Its name is the path relative to the root of all images, as predictions.jsonl has it, and its id too
    without annotations.
    """

    path: Path
    name: str
    image_id: int | str | None
    held: Image.Image | None = field(default=None, repr=False, compare=False)

    def open(self) -> Image.Image:
        """Return the image, upright and RGB."""
        return decode_image(self.path) if self.held is None else self.held

    def notes(self, image: Image.Image) -> tuple[str, ...]:
        """Return what decoding changed in the `image` of `open`, each as a note on several images."""
        if self.held is not None:
            return ()
        notes = image_facts(self.path).notes
        low, high = cast("tuple[int, int]", image.convert("L").getextrema()) if DEEP in notes else (0, 255)
        return (*notes, NEARLY_UNIFORM) if high - low < LEAST_SPAN else notes

    def pixels(self) -> int:
        """Return the number of its pixels."""
        width, height = image_facts(self.path).size if self.held is None else self.held.size
        return width * height


def sources_of(images: ImageSet, limit: int | None = None) -> list[ImageSource]:
    """Return the first images of a set; those without an id have their place as one."""
    held = images.held_in_memory
    return [
        ImageSource(images.root / i.image, i.image, place if i.image_id is None else i.image_id, held.get(i.image))
        for place, i in enumerate(images.instances[:limit])
    ]


def answer_into(
    file: RecordFile,
    detector: AnsweringModel,
    sources: Sequence[ImageSource],
    batch: int,
    raw: bool = False,
    title: str = "answering",
) -> tuple[list[Record], int]:
    """Answer the images that have no answer in a file yet, each rank its share; see `RecordFile.fill`.

    Equal sources are answered once. Returns a record for each image, and how many were made; nothing on the
    other ranks.
    """
    names = [source.name for source in sources]
    work = lambda places: prediction_records(detector, [sources[place] for place in places], batch, raw)  # noqa: E731
    records, new = file.fill(names, work, title)
    pairs = zip(records, sources, strict=False)  # other ranks have no records
    return [record | {"image_id": source.image_id} for record, source in pairs], new


def prediction_records(
    detector: AnsweringModel, sources: Sequence[ImageSource], batch: int, raw: bool = False
) -> Iterator[list[Record]]:
    """Yield lists of records as they are generated; failures have `finish_reason` "error".

    An engine with concurrent requests takes single images and ignores `batch`. `raw` leaves out the objects,
    for a reader that parses the answers, and the size and time of the files.
    """
    if concurrency := detector.engine.concurrency:
        one = partial(records_of, detector, batch=1, raw=raw)
        yield from _concurrently(lambda source: one([source]), sources, concurrency)
    else:
        readable: list[tuple[ImageSource, int]] = []
        failed: list[Record] = []
        for source in sources:
            pixels = _read_or_error(ImageSource.pixels, source)
            if isinstance(pixels, int):
                readable.append((source, pixels))
            else:
                failed.append(pixels)
        yield failed
        groups = _batches(readable, batch)
        elsewhere = getattr(detector.engine, "records", None)  # of an engine whose workers hold the model
        yield from elsewhere(groups, batch) if elsewhere else (records_of(detector, g, batch, raw) for g in groups)
    if (report := getattr(detector.engine, "report", None)) is not None:
        report()


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
        return int(math.log(pair[1], _PIXEL_STEP))

    for _, group in groupby(sorted(sources, key=size_class), key=size_class):
        similar = [source for source, _ in group]
        yield from (similar[start : start + size] for start in range(0, len(similar), size))


def records_of(detector: AnsweringModel, sources: Sequence[ImageSource], batch: int, raw: bool = False) -> list[Record]:
    """Return the records of images that are answered together; see `prediction_records`."""
    decoded = [(source, _read_or_error(ImageSource.open, source)) for source in sources]
    records = [record for _, record in decoded if isinstance(record, dict)]
    opened = [(source, image) for source, image in decoded if not isinstance(image, dict)]
    one_at_a_time = detector.engine.concurrency > 0  # several images are asked about beside this one
    answers = detector.answers([image for _, image in opened], at_once=1 if one_at_a_time else max(len(opened), batch))
    for (source, image), answer in zip(opened, answers, strict=True):
        facts = {"image_id": source.image_id, "image": source.name, "width": image.width, "height": image.height}
        notes = () if raw else source.notes(image)
        facts |= {"decoded": list(notes)} if notes else {}
        record = facts | ({} if raw else {"file": file_stamp(source.path)}) | answer
        if not raw and answer["finish_reason"] != "error":
            record = with_objects(record, detector.read(record))
        records.append(record)
    return records


def with_objects(record: Record, detections: ImageDetections) -> Record:
    """Return an answered record with its objects, its pieces that were dropped, and what was fused."""
    record = record | {"objects": [item.to_record() for item in detections]}
    record |= {"dropped": dict(detections.dropped)} if detections.dropped else {}
    return record | ({FUSED: dict(detections.fused)} if detections.fused else {})


def _read_or_error(read: Callable[[ImageSource], Any], source: ImageSource) -> Any:
    """Return the result of `read`, or a record with the reason of its failure."""
    try:
        return read(source)
    except ImageError as error:
        return {"image_id": source.image_id, "image": source.name, "finish_reason": "error", "error": str(error)}


def file_stamp(path: Path) -> Record | None:
    """Return path, size and modification time of a file, by which a replaced file is noticed; None if it is missing."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return {"path": str(path.resolve()), "bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}
