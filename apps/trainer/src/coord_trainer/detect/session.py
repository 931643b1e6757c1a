"""Generates answers into an output folder: each answer is appended at once, and a second call resumes.

Under torchrun each process writes the answers to its share of the images to its own file; the first one merges them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import parse_json_line, read_json, write_text
from coord_trainer.answers.finish import BOXES_FILE
from coord_trainer.answers.resumable_file import cut_torn_lines, json_line
from coord_trainer.console import all_ranks_done, first_rank_first, is_first, rank, say, world_size
from coord_trainer.detect.detector import Detector
from coord_trainer.detect.image_sources import SESSION, Sources, is_session
from coord_trainer.detect.records import file_stamp, prediction_records
from coord_trainer.detect.written import remove_tracked

PREDICTIONS = "predictions.jsonl"
EARLIER = "earlier.jsonl"
"""Answers of earlier calls to images that the last call did not name; a call that names them reuses them."""
RESULTS = "coco_results.json"
DRAWN = "drawn"
PAGE = "index.html"
SCORED = ("report.html", "evaluation.json")
_MADE_ANEW = (RESULTS, BOXES_FILE, DRAWN, PAGE, *SCORED)
"""Output that every call writes again."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """The result of a session.

    Attributes:
        folder: the output folder
        records: a record for each image in the order of the sources; failures have `finish_reason` "error"
        new: number of images answered by this call
    """

    folder: Path
    records: tuple[Record, ...]
    new: int

    @property
    def failed(self) -> list[Record]:
        """Records without an answer, which the next call tries again."""
        return [record for record in self.records if record["finish_reason"] == "error"]


@contextmanager
def answer_sources(
    detector: Detector, sources: Sources, folder: Path, settings: dict[str, Any], *, batch: int, force: bool = False
) -> Iterator[Answered]:
    """Answer every image that has no answer in `folder` yet, and lock the folder until the block ends.

    Args:
        detector: the model
        sources: the images
        folder: the output folder, created if missing; it may hold only the output of earlier calls
        settings: the settings that answers depend on, written to session.json
        batch: images in a batch
        force: whether to discard the answers of earlier calls

    Raises:
        InputError: if the folder holds other files, or answers under other settings, or another process writes to it
    """
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    with ExitStack() as stack:
        with first_rank_first("session"):
            if is_first():
                stack.callback(_open(folder, settings, stamps, force).release)
        yield _answer_rest(detector, sources, folder, stamps, batch)


def _answer_rest(detector: Detector, sources: Sources, folder: Path, stamps: Mapping[str, Any], batch: int) -> Answered:
    earlier = _latest(_records(folder), stamps)
    done = {name for name, record in earlier.items() if _is_answered(record) and not _is_stale(record, stamps)}
    # Shares of all images, not of the missing ones: another process may have answered some of those by now.
    unique = list({source.name: source for source in sources.images}.values())  # annotations may name one twice
    todo = [source for source in unique[rank() :: world_size()] if source.name not in done]
    if existing := len(done & stamps.keys()):
        say(
            f"{folder}: {counted(existing, 'answer is', 'answers are')} there already, "
            f"{counted(len(unique) - existing, 'image')} left"
        )
    own = folder / (PREDICTIONS if world_size() == 1 else f"{PREDICTIONS}.{rank()}")
    count = 0
    with own.open("a", encoding="utf-8") as file, tqdm(total=len(todo), desc="answering", unit="img") as bar:
        try:
            for records in prediction_records(detector, todo, batch):
                file.writelines(map(json_line, records))
                file.flush()
                count += sum(map(_is_answered, records))
                bar.update(len(records))
        except KeyboardInterrupt:
            message = (
                f"interrupted: {counted(count, 'image was', 'images were')} answered into {own}; the same "
                "command resumes"
            )
            raise KeyboardInterrupt(message) from None
    all_ranks_done("answers")
    if not is_first():
        return Answered(folder, (), 0)
    latest = _latest(_records(folder), stamps)
    named = [latest[s.name] | {"image_id": s.image_id} for s in sources.images if s.name in latest]
    _write_answers(folder, named, [record for name, record in latest.items() if name not in stamps])
    return Answered(folder, tuple(named), len({r["image"] for r in named if _is_answered(r)} - done))


def _open(folder: Path, settings: dict[str, Any], stamps: Mapping[str, Any], force: bool) -> FileLock:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is a file; name a folder")
    try:
        if folder.exists() and not is_session(folder) and not all(map(_is_system_file, folder.iterdir())):
            raise InputError(f"--out: {folder} holds something else than answers; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(f"--out: another process is answering into {folder}; wait, or choose another folder") from None
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be written: {error.strerror}; choose another folder") from None
    try:
        if force:
            _discard_answers(folder)
        if torn := sum(cut_torn_lines(path, _is_record) for path in _parts(folder)):
            say(
                f"{folder}: {counted(torn, 'answer was', 'answers were')} cut off during the write; the "
                "image is answered again"
            )
        earlier = _latest(_records(folder), stamps)
        if any(map(_is_answered, earlier.values())):
            _check_settings(folder / SESSION, settings)
        _report_changed(folder, earlier, stamps)
        _write_answers(folder, earlier.values(), [])  # merges the files of an interrupted call before new answers come
        write_text(folder / SESSION, json.dumps(settings, indent=1) + "\n")
    except BaseException:
        lock.release()
        raise
    return lock


def _is_system_file(path: Path) -> bool:
    """Return whether a file is hidden or one that operating systems leave in folders."""
    return path.name.startswith(".") or path.name in ("Thumbs.db", "desktop.ini")


def _discard_answers(folder: Path) -> None:
    remove_tracked(folder)
    for path in (*_parts(folder), folder / SESSION):
        path.unlink(missing_ok=True)
    remove_made(folder, _MADE_ANEW)


def remove_made(folder: Path, names: Iterable[str]) -> None:
    """Remove output of an earlier call that this call does not write again; a user's own files in `drawn` stay."""
    for name in names:
        if name == DRAWN:
            remove_tracked(folder, DRAWN)
        else:
            (folder / name).unlink(missing_ok=True)


def _check_settings(session: Path, settings: Mapping[str, Any]) -> None:
    """Check that the existing answers were generated with these settings."""
    # Earlier versions knew no views, no threshold and no speed.
    known = {"views": [], "min_score": 0.0, "calibration": None, "speed": "plain"}
    earlier = known | read_json(session) if session.is_file() else {}
    for name, value in settings.items():
        if name in earlier and earlier[name] != value:
            raise InputError(
                f"--out: the answers in {session.parent} were made with {name} {earlier[name]!r}, now it is {value!r}; "
                "choose another folder, or start anew with --force"
            )


def _report_changed(folder: Path, earlier: Mapping[str, Record], stamps: Mapping[str, Any]) -> None:
    """Refuse other images with the same names; print how many image files have changed or are missing."""
    stale = [name for name, record in earlier.items() if _is_answered(record) and _is_stale(record, stamps)]
    for name in stale:
        if (place := earlier[name]["file"].get("path")) != stamps[name]["path"]:
            raise InputError(
                f"--out: {folder} holds answers to other images of the same names, {place} first; choose another "
                "folder, or start anew with --force"
            )
    if stale:
        say(
            f"{folder}: {counted(len(stale), 'image file has', 'image files have')} changed since the "
            "answer, which is made anew"
        )
    missing = sum(stamp is None and name in earlier and _is_answered(earlier[name]) for name, stamp in stamps.items())
    if missing:
        say(f"{folder}: {counted(missing, 'image file')} cannot be found now; the answers are kept")


def _is_stale(record: Record, stamps: Mapping[str, Any]) -> bool:
    """Return whether the image file of a record has changed since."""
    before, now = record.get("file"), stamps.get(record["image"])
    return None not in (before, now) and any(before.get(key) != now[key] for key in ("bytes", "mtime_ns"))


def _is_answered(record: Record) -> bool:
    return record["finish_reason"] != "error"


def _latest(records: Iterable[Record], stamps: Mapping[str, Any]) -> dict[str, Record]:
    """Return one record for each image: the last answer to the present file if there is one, else the last record."""
    latest: dict[str, Record] = {}

    def priority(record: Record) -> int:
        return 0 if _is_stale(record, stamps) else 1 + _is_answered(record)

    for record in records:
        before = latest.get(record["image"])
        if before is None or priority(record) >= priority(before):
            latest[record["image"]] = record
    return latest


def _write_answers(folder: Path, named: Iterable[Record], others: Iterable[Record]) -> None:
    """Write records of named images to predictions.jsonl and other answers to earlier.jsonl; remove merged files."""
    kept = [record for record in others if _is_answered(record)]
    if kept:
        write_text(folder / EARLIER, "".join(map(json_line, kept)))
        say(f"{folder}: {counted(len(kept), 'answer')} of images that this call does not name: see {EARLIER}")
    write_text(folder / PREDICTIONS, "".join(map(json_line, named)))
    for part in _parts(folder):
        if part.name != PREDICTIONS and not (kept and part.name == EARLIER):
            part.unlink()


def _is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a complete record of a call, and not one that was edited into something else."""
    if not isinstance(record.get("image"), str) or not isinstance(record.get("file", {}), dict | None):
        return False
    if record.get("finish_reason") == "error":
        return True
    objects = record.get("objects")
    return isinstance(record.get("text"), str) and isinstance(objects, list) and all(map(_is_object, objects))


def _is_object(item: Any) -> bool:
    return isinstance(item, dict) and {"desc", "bbox_xyxy", "score"} <= item.keys()


def _parts(folder: Path) -> list[Path]:
    """Return the files of answers, oldest first, without a user's copies beside them."""
    candidates = sorted(folder.glob(f"{PREDICTIONS}*"))
    own = [path for path in candidates if re.fullmatch(r"(\.\d+)?", path.name.removeprefix(PREDICTIONS))]
    return [path for path in (folder / EARLIER,) if path.is_file()] + own


def _records(folder: Path) -> Iterator[Record]:
    for path in _parts(folder):
        with path.open("rb") as file:
            yield from (parse_json_line(line) for line in file if line.endswith(b"\n"))
