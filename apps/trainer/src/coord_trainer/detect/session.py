"""Answering many images into a folder: each answer is appended as it comes, and a second call goes on.

Over several processes (torchrun) each answers a share into a file of its own, which the first one puts together.
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
from coord_codec.files import parse_json_line, read_json, write_text
from coord_trainer.answers.appended import cut_torn_lines
from coord_trainer.console import all_ranks_done, first_rank_first, is_first, rank, say, world_size
from coord_trainer.detect.answering import answer_images, file_stamp
from coord_trainer.detect.detector import Detector
from coord_trainer.detect.sources import SESSION, Sources, is_session
from coord_trainer.detect.written import remove_tracked

PREDICTIONS = "predictions.jsonl"
EARLIER = "earlier.jsonl"
"""Answers of earlier calls about images that the last call did not name; a call that names them takes them up."""
RESULTS = "coco_results.json"
DRAWN = "drawn"
PAGE = "index.html"
SCORED = ("report.html", "evaluation.json")
_MADE_ANEW = (RESULTS, DRAWN, PAGE, *SCORED)
"""What every call writes again."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """The result of a session.

    Attributes:
        folder: with predictions.jsonl
        records: one of each image, sorted by the sources' order; `finish_reason` "error" where there is no answer
        new: how many were answered by this call
    """

    folder: Path
    records: tuple[Record, ...]
    new: int

    @property
    def failed(self) -> list[Record]:
        """Records without an answer; another call tries them again."""
        return [record for record in self.records if record["finish_reason"] == "error"]


@contextmanager
def answer_sources(
    detector: Detector, sources: Sources, folder: Path, settings: dict[str, Any], *, batch: int, force: bool = False
) -> Iterator[Answered]:
    """Answer every image that has no answer in `folder` yet; no other process works in it until the block ends.

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
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    with ExitStack() as held:
        with first_rank_first("session"):
            if is_first():
                held.callback(_open(folder, settings, stamps, force).release)
        yield _answer_left(detector, sources, folder, stamps, batch)


def _answer_left(detector: Detector, sources: Sources, folder: Path, stamps: Mapping[str, Any], batch: int) -> Answered:
    known = _newest(_records(folder), stamps)
    done = {name for name, record in known.items() if _is_answered(record) and not _is_stale(record, stamps)}
    # Shares of all images, not of those that are left: another process may have answered some of these by now.
    files = list({source.name: source for source in sources.images}.values())  # annotations may name one twice
    todo = [source for source in files[rank() :: world_size()] if source.name not in done]
    if there := len(done & stamps.keys()):
        say(f"{folder}: {there} answers are there already, {len(files) - there} images are left")
    own, count = folder / (PREDICTIONS if world_size() == 1 else f"{PREDICTIONS}.{rank()}"), 0
    with own.open("a", encoding="utf-8") as file, tqdm(total=len(todo), desc="answering", unit="img") as bar:
        try:
            for records in answer_images(detector, todo, batch):
                file.writelines(map(_line, records))
                file.flush()
                count += sum(map(_is_answered, records))
                bar.update(len(records))
        except KeyboardInterrupt:
            told = f"interrupted: {count} images were answered into {own}; the same command goes on"
            raise KeyboardInterrupt(told) from None
    all_ranks_done("answers")
    if not is_first():
        return Answered(folder, (), 0)
    found = _newest(_records(folder), stamps)
    order = [found[s.name] | {"image_id": s.image_id} for s in sources.images if s.name in found]
    _put_together(folder, order, [record for name, record in found.items() if name not in stamps])
    return Answered(folder, tuple(order), len({r["image"] for r in order if _is_answered(r)} - done))


def _open(folder: Path, settings: dict[str, Any], stamps: Mapping[str, Any], force: bool) -> FileLock:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is a file; name a folder")
    try:
        if folder.exists() and not is_session(folder) and not all(map(_says_nothing, folder.iterdir())):
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
            _throw_away(folder)
        if torn := sum(cut_torn_lines(path, _is_record) for path in _parts(folder)):
            say(f"{folder}: {torn} answers were cut off while they were written; their images are answered again")
        known = _newest(_records(folder), stamps)
        if any(map(_is_answered, known.values())):
            _agree(folder / SESSION, settings)
        _tell_changed(folder, known, stamps)
        _put_together(folder, known.values(), [])  # parts of a call that was stopped are older than what comes now
        write_text(folder / SESSION, json.dumps(settings, indent=1) + "\n")
    except BaseException:
        lock.release()
        raise
    return lock


def _says_nothing(path: Path) -> bool:
    """Return whether a file is one that systems leave in any folder."""
    return path.name.startswith(".") or path.name in ("Thumbs.db", "desktop.ini")


def _throw_away(folder: Path) -> None:
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


def _agree(session: Path, settings: Mapping[str, Any]) -> None:
    """Check that the answers were made with these settings."""
    kept = read_json(session) if session.is_file() else {}
    for name, value in settings.items():
        if name in kept and kept[name] != value:
            raise InputError(
                f"--out: the answers in {session.parent} were made with {name} {kept[name]!r}, now it is {value!r}; "
                "choose another folder, or start anew with --force"
            )


def _tell_changed(folder: Path, known: Mapping[str, Record], stamps: Mapping[str, Any]) -> None:
    """Refuse other images of the same names; say how many files are others now, and how many are out of reach."""
    stale = [name for name, record in known.items() if _is_answered(record) and _is_stale(record, stamps)]
    for name in stale:
        if (place := known[name]["file"].get("path")) != stamps[name]["path"]:
            raise InputError(
                f"--out: {folder} holds answers to other images of the same names, {place} first; choose another "
                "folder, or start anew with --force"
            )
    if stale:
        say(f"{folder}: {len(stale)} image files are others than were answered, and are answered again")
    gone = sum(stamp is None and name in known and _is_answered(known[name]) for name, stamp in stamps.items())
    if gone:
        say(f"{folder}: {gone} image files are out of reach now; their answers are kept")


def _is_stale(record: Record, stamps: Mapping[str, Any]) -> bool:
    """Return whether the image file of a record is another one now."""
    before, now = record.get("file"), stamps.get(record["image"])
    return None not in (before, now) and any(before.get(key) != now[key] for key in ("bytes", "mtime_ns"))


def _is_answered(record: Record) -> bool:
    return record["finish_reason"] != "error"


def _newest(records: Iterable[Record], stamps: Mapping[str, Any]) -> dict[str, Record]:
    """Return a record of each image: the last answer to the file that is there now, else what became of it last."""
    found: dict[str, Record] = {}

    def worth(record: Record) -> int:
        return 0 if _is_stale(record, stamps) else 1 + _is_answered(record)

    for record in records:
        before = found.get(record["image"])
        if before is None or worth(record) >= worth(before):
            found[record["image"]] = record
    return found


def _put_together(folder: Path, named: Iterable[Record], others: Iterable[Record]) -> None:
    """Write the answers of a call into one file, and those that it did not ask for into another."""
    kept = [record for record in others if _is_answered(record)]
    if kept:
        write_text(folder / EARLIER, "".join(map(_line, kept)))
        say(f"{folder}: {len(kept)} answers are of images that this call does not name; they are in {EARLIER}")
    write_text(folder / PREDICTIONS, "".join(map(_line, named)))
    for part in _parts(folder):
        if part.name != PREDICTIONS and not (kept and part.name == EARLIER):
            part.unlink()


def _is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a record that a call wrote, and nobody changed into something else."""
    if not isinstance(record.get("image"), str) or not isinstance(record.get("file", {}), dict | None):
        return False
    if record.get("finish_reason") == "error":
        return True
    objects = record.get("objects")
    return isinstance(record.get("text"), str) and isinstance(objects, list) and all(map(_is_object, objects))


def _is_object(item: Any) -> bool:
    return isinstance(item, dict) and {"desc", "bbox_xyxy", "score"} <= item.keys()


def _parts(folder: Path) -> list[Path]:
    """Return the files of answers, the older first; a user's copies beside them are none."""
    found = sorted(folder.glob(f"{PREDICTIONS}*"))
    own = [path for path in found if re.fullmatch(r"(\.\d+)?", path.name.removeprefix(PREDICTIONS))]
    return [path for path in (folder / EARLIER,) if path.is_file()] + own


def _line(record: Record) -> str:
    """Return a record as a line; half a surrogate pair, of a file name or an answer, in ASCII, which keeps it."""
    line = json.dumps(record, ensure_ascii=False)
    return (line if line.isascii() or _is_text(line) else json.dumps(record)) + "\n"


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(folder: Path) -> Iterator[Record]:
    for path in _parts(folder):
        with path.open("rb") as file:
            yield from (parse_json_line(line) for line in file if line.endswith(b"\n"))
