"""Fills a file with records: appended as they are made, continued by a later call, divided over the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from coord_codec.counts import counted
from coord_codec.files import InputError, parse_json_line, write_text
from coord_detect.console import all_ranks_done, first_rank_first, is_first, rank, say, world_size

Record = dict[str, Any]


@dataclass(frozen=True)
class RecordFile:
    """A file with one record for each key, such as the answers to images by their names.

    Under torchrun each rank appends the records of its share to a file of its own beside `path`, which the first rank
    merges.

    Attributes:
        path: the file
        key: the field of a record that holds its key
        older: a further file, of records that count less than those of `path`
        stamps: size and time of the image file of each key; a record that was made of another file is not kept
    """

    path: Path
    key: str = "image"
    older: Path | None = None
    stamps: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def parts(self) -> list[Path]:
        """The files of records, oldest first, without a user's copies beside them."""
        candidates = sorted(self.path.parent.glob(f"{self.path.name}*"))
        own = [path for path in candidates if re.fullmatch(r"(\.\d+)?", path.name.removeprefix(self.path.name))]
        return [path for path in (self.older,) if path is not None and path.is_file()] + own

    def cut_torn_lines(self) -> int:
        """Remove lines that are no records, such as an incomplete last one; returns how many were removed."""
        removed = 0
        for path in self.parts:
            lines = path.read_bytes().splitlines(keepends=True)
            complete = [line for line in lines if line.endswith(b"\n") and self._is_record(line)]
            if len(complete) != len(lines):
                write_text(path, b"".join(complete).decode())
            removed += len(lines) - len(complete)
        return removed

    def _is_record(self, line: bytes) -> bool:
        try:
            return isinstance(parse_json_line(line)[self.key], str | int)
        except (ValueError, KeyError):
            return False

    def latest(self) -> dict[Any, Record]:
        """Return one record for each key: the last answer to the present file if there is one, else the last record."""
        latest: dict[Any, Record] = {}

        def priority(record: Record) -> int:
            return 0 if self.is_stale(record) else 1 + is_answered(record)

        for record in self._records():
            before = latest.get(record[self.key])
            if before is None or priority(record) >= priority(before):
                latest[record[self.key]] = record
        return latest

    def is_stale(self, record: Record) -> bool:
        """Return whether the image file of a record has changed since."""
        before, now = record.get("file"), self.stamps.get(record[self.key])
        if before is None or now is None:
            return False
        return any(before.get(fact) != now[fact] for fact in ("bytes", "mtime_ns"))

    def fill(
        self, keys: Sequence[Any], work: Callable[[list[int]], Iterable[Sequence[Record]]], title: str = "answering"
    ) -> tuple[list[Record], int]:
        """Append a record for each key that has none; returns those of all keys, and how many are new.

        `work` yields the records of the keys at some places, as soon as they are made. Every rank has to call
        it after the first one has written its file. The other ranks return nothing.
        """
        places = {key: place for place, key in reversed(list(enumerate(keys)))}
        unique = list(dict.fromkeys(keys))
        found = self.latest()
        done = {key for key, record in found.items() if is_answered(record) and not self.is_stale(record)}
        if kept := len(done & places.keys()):
            left = counted(len(unique) - kept, "image")
            say(f"{self.path.parent}: {counted(kept, 'answer is', 'answers are')} there already, {left} left")
        # Shares of all keys, not of the missing ones: another rank may have added some of those by now.
        todo = [places[key] for key in unique[rank() :: world_size()] if key not in done]
        self._append(work, todo, title)
        all_ranks_done("answers")
        if not is_first():
            return [], 0
        latest = self.latest()
        if rest := [places[key] for key in unique if key not in latest]:
            say(f"{self.path.parent}: {counted(len(rest), 'image')} of other ranks, which do not see it, are left")
            self._append(work, rest, title)
            latest = self.latest()
        new = sum(is_answered(latest[key]) for key in unique if key not in done)
        return [latest[key] for key in keys], new

    def write(self, records: Iterable[Record]) -> None:
        """Replace all records, and remove the files that ranks have written."""
        write_text(self.path, "".join(map(json_line, records)))
        for part in self.parts:
            if part not in (self.path, self.older):
                part.unlink()

    def _append(self, work: Callable[[list[int]], Iterable[Sequence[Record]]], places: list[int], title: str) -> None:
        own = self.path if world_size() == 1 else self.path.with_name(f"{self.path.name}.{rank()}")
        count = 0
        bar = tqdm(total=len(places), desc=title, unit="img", mininterval=0.5)
        with own.open("a", encoding="utf-8") as file, bar:
            try:
                for records in work(places):
                    file.writelines(map(json_line, records))
                    file.flush()
                    count += sum(map(is_answered, records))
                    bar.update(len(records))
            except KeyboardInterrupt as error:
                if error.args:  # that of a run, which names the command that resumes it
                    raise
                message = f"{counted(count, 'image was', 'images were')} answered into {own}"
                raise KeyboardInterrupt(f"interrupted: {message}; the same command resumes") from None

    def _records(self) -> Iterator[Record]:
        for path in self.parts:
            with path.open("rb") as file:
                yield from (parse_json_line(line) for line in file if line.endswith(b"\n"))


def begin(path: Path, depends_on: Mapping[str, Any], key: str = "image") -> RecordFile:
    """Return `path.part`, whose records an earlier call may have begun; `discard` removes it in the end.

    A part that was begun with other values of `depends_on` is deleted; `key` is the field that holds a
    record's key.
    """
    file = RecordFile(path.with_name(f"{path.name}.part"), key)
    with first_rank_first("records"):
        if is_first():
            begun_with, values = _settings_of(file), json.dumps(dict(depends_on))
            if not (begun_with.is_file() and begun_with.read_text(encoding="utf-8") == values):
                discard(file)
                write_text(begun_with, values)
            file.cut_torn_lines()
            file.write(file.latest().values())
    return file


def discard(file: RecordFile) -> None:
    """Remove a file that `begin` returned, with what it depends on."""
    for path in (*file.parts, _settings_of(file)):
        path.unlink(missing_ok=True)


def _settings_of(file: RecordFile) -> Path:
    return file.path.with_name(f"{file.path.name}.json")


def is_answered(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an answer, and not a failure."""
    return record.get("finish_reason") != "error"


def json_line(record: Mapping[str, Any]) -> str:
    """Return a record as a JSON line; one with lone surrogates, of a file name or an answer, is escaped to ASCII."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(record)
    return f"{line}\n"


def make_folder(folder: Path) -> None:
    """Create a folder of results if it is missing; an `InputError` if a file is in its place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: it is a file, or is below one; name another folder") from None


def unfinished(folder: Path) -> Path:
    """Return the file that marks the folder of an evaluation which has not finished."""
    return folder / ".unfinished"
