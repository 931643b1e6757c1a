"""Answering many images into a folder: each answer is appended as it comes, and a second call goes on.

Over several processes (torchrun) each answers a share into a file of its own, which the first one puts together.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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
from coord_trainer.detect.sources import SESSION, Sources
from coord_trainer.detect.written import discard

PREDICTIONS = "predictions.jsonl"
EARLIER = "earlier.jsonl"
"""Answers of earlier calls about images that the last call did not name; a call that names them takes them up."""
RESULTS = "coco_results.json"
DRAWN = "drawn"
PAGE = "index.html"
_MADE_ANEW = (RESULTS, DRAWN, PAGE, "report.html", "evaluation.json")
"""What every call writes again."""
_FIELDS = frozenset({"image", "finish_reason"})


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
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    with ExitStack() as held:
        with first_rank_first("session"):
            if is_first():
                held.callback(_open(folder, settings, force).release)
            changed = _changed(folder, stamps)
            _keep_root(folder, sources.root.resolve(), changed)
        return _answer_left(detector, sources, folder, stamps, changed, batch)


def _answer_left(
    detector: Detector, sources: Sources, folder: Path, stamps: Mapping[str, Any], changed: set[str], batch: int
) -> Answered:
    done = {r["image"] for r in _records(folder) if r["finish_reason"] != "error"} - changed
    if changed:
        say(f"{folder}: {len(changed)} image files are others than were answered, and are answered again")
    # Shares of all images, not of those that are left: another process may have answered some of these by now.
    files = list({source.name: source for source in sources.images}.values())  # annotations may name one twice
    todo = [source for source in files[rank() :: world_size()] if source.name not in done]
    if there := len(done & stamps.keys()):
        say(f"{folder}: {there} answers are there already, {len(files) - there} images are left")
    own = folder / (PREDICTIONS if world_size() == 1 else f"{PREDICTIONS}.{rank()}")
    with own.open("a", encoding="utf-8") as file, tqdm(total=len(todo), desc="answering", unit="img") as bar:
        try:
            for records in answer_images(detector, todo, batch):
                file.writelines(map(_line, records))
                file.flush()
                bar.update(len(records))
        except KeyboardInterrupt:
            told = f"interrupted: {bar.n} images were answered into {own}; the same command goes on"
            raise KeyboardInterrupt(told) from None
    all_ranks_done("answers")
    if not is_first():
        return Answered(folder, (), 0)
    found = {record["image"]: record for record in _records(folder)}  # of two about one image the later one
    order = [found[s.name] | {"image_id": s.image_id} for s in sources.images if s.name in found]
    _put_together(folder, order, [found[name] for name in found if name in done and name not in stamps])
    new = {record["image"] for record in order if record["finish_reason"] != "error"} - done
    return Answered(folder, tuple(order), len(new))


def _open(folder: Path, settings: dict[str, Any], force: bool) -> FileLock:
    before = folder / SESSION
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is a file; name a folder")
    try:
        is_ours = before.is_file() or not folder.exists() or all(map(_says_nothing, folder.iterdir()))
        if not is_ours:
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
        kept = _agreed(before, settings)
        if torn := _repair(folder):
            say(f"{folder}: {torn} answers were cut off while they were written; their images are answered again")
        write_text(before, json.dumps(kept | settings, indent=1) + "\n")
    except BaseException:
        lock.release()
        raise
    return lock


def _says_nothing(path: Path) -> bool:
    """Return whether a file is one that systems leave in any folder."""
    return path.name.startswith(".") or path.name in ("Thumbs.db", "desktop.ini")


def _throw_away(folder: Path) -> None:
    discard(folder)
    for path in (*_parts(folder), folder / SESSION, *(folder / name for name in _MADE_ANEW)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _agreed(session: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what session.json holds, after a check that its answers were made with these settings."""
    if not session.is_file():
        return {}
    kept = read_json(session)
    if not isinstance(kept, dict):
        raise InputError(
            f"{session}: expected an object of settings, found {type(kept).__name__}; choose another folder for --out, "
            "or start anew with --force"
        )
    for name, value in settings.items():
        if name in kept and kept[name] != value:
            raise InputError(
                f"--out: the answers in {session.parent} were made with {name} {kept[name]!r}, now it is {value!r}; "
                "choose another folder, or start anew with --force"
            )
    return kept


def _changed(folder: Path, stamps: Mapping[str, str | None]) -> set[str]:
    """Return the images whose files are others now than those that were answered."""
    asked = (record for record in _records(folder) if record["image"] in stamps and record["finish_reason"] != "error")
    latest = {record["image"]: record.get("file") for record in asked}
    return {name for name, stamp in latest.items() if None not in (stamp, now := stamps[name]) and stamp != now}


def _keep_root(folder: Path, root: Path, changed: set[str]) -> None:
    """Note the folder of the images, below which names are; refuse those of another folder with the same names."""
    session = read_json(folder / SESSION)
    kept = session.get("images")
    if changed and kept not in (None, str(root)):
        raise InputError(
            f"--out: {folder} holds answers to other images of the same names, {kept}/{min(changed)} first; choose "
            "another folder, or start anew with --force"
        )
    if is_first():
        write_text(folder / SESSION, json.dumps(session | {"images": str(root)}, indent=1) + "\n")


def _put_together(folder: Path, order: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Write the answers of a call into one file, and those that it did not ask for into another."""
    if others:
        write_text(folder / EARLIER, "".join(map(_line, others)))
        say(f"{folder}: {len(others)} answers are of images that this call does not name; they are in {EARLIER}")
    write_text(folder / PREDICTIONS, "".join(map(_line, order)))
    for part in _parts(folder):
        if part.name != PREDICTIONS and not (others and part.name == EARLIER):
            part.unlink()


def _repair(folder: Path) -> int:
    """Cut torn lines off the files of answers; returns how many there were."""
    return sum(cut_torn_lines(path, _FIELDS) for path in _parts(folder))


def _parts(folder: Path) -> list[Path]:
    """Return the files of answers, the older first; a user's copies beside them are none."""
    found = sorted(folder.glob(f"{PREDICTIONS}*"))
    own = [path for path in found if re.fullmatch(r"(\.\d+)?", path.name.removeprefix(PREDICTIONS))]
    return [path for path in (folder / EARLIER,) if path.is_file()] + own


def _line(record: dict[str, Any]) -> str:
    """Return a record as a line; half a surrogate pair, of a file name or an answer, in ASCII, which keeps it."""
    line = json.dumps(record, ensure_ascii=False)
    return (line if line.isascii() or _is_text(line) else json.dumps(record)) + "\n"


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in _parts(folder):
        with path.open("rb") as file:
            yield from (parse_json_line(line) for line in file if line.endswith(b"\n"))
