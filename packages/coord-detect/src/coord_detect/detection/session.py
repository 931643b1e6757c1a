"""The output folder of `predict` and `review`: whose it is, the settings of its answers, and its lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock, Timeout

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import read_json, write_text
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.finish import BOXES_FILE
from coord_detect.answers.records import answer_into, file_stamp
from coord_detect.answers.resumable_file import Record, RecordFile, is_answered, json_line
from coord_detect.console import first_rank_first, is_first, say
from coord_detect.detection.image_sources import SESSION, Sources, is_session
from coord_detect.detection.written import remove_tracked
from coord_detect.model.checkpoints import weight_files

if TYPE_CHECKING:
    from coord_detect.answers.local import LocalEngine
    from coord_detect.served.endpoint import EndpointEngine

PREDICTIONS = "predictions.jsonl"
EARLIER = "earlier.jsonl"
"""Answers of earlier calls to images that the last call did not name; a call that names them reuses them."""
RESULTS = "coco_results.json"
DRAWN = "drawn"
PAGE = "index.html"
SCORED = ("report.html", "evaluation.json")
_MADE_ANEW = (RESULTS, BOXES_FILE, DRAWN, PAGE, *SCORED)
"""Output that every call writes again."""


@dataclass(frozen=True)
class Answered:
    """The result of a session: a record for each image in the order of the sources, `new` ones among them."""

    folder: Path
    records: tuple[Record, ...]
    new: int

    @property
    def failed(self) -> list[Record]:
        """Records without an answer, which the next call tries again."""
        return [record for record in self.records if not is_answered(record)]


@contextmanager
def answer_sources(
    detector: AnsweringModel,
    sources: Sources,
    folder: Path,
    settings: dict[str, Any],
    *,
    batch: int,
    force: bool = False,
) -> Iterator[Answered]:
    """Answer every image that has no answer in `folder` yet, and lock the folder until the block ends.

    `settings`, which answers depend on, are written to session.json; `force` discards the answers of earlier
    calls.

    Raises:
        InputError: if the folder holds other files, or answers under other settings, or another process writes to it
    """
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    file = RecordFile(folder / PREDICTIONS, older=folder / EARLIER, stamps=stamps)
    with ExitStack() as stack:
        with first_rank_first("session"):
            if is_first():
                stack.callback(_open(folder, settings, file, force).release)
        records, new = answer_into(file, detector, sources.images, batch)
        if is_first():
            _write_answers(file, records, [record for name, record in file.latest().items() if name not in stamps])
        yield Answered(folder, tuple(records), new)


def session_settings(detector: AnsweringModel, server: str | None = None) -> dict[str, Any]:
    """Return the settings that answers depend on; `server` is the kind of server that decodes under a grammar."""
    config, engine, finish = detector.config, detector.engine, detector.finish
    urls = getattr(engine, "urls", ())
    served = bool(urls)
    decoding = config.evaluation.decoding[0].name
    return {
        "model": engine.name if served else str(Path(engine.name).resolve()),
        "weights": None if served else weight_files(Path(engine.name)),
        "endpoint": " ".join(sorted(url.rstrip("/") for url in urls)) or None,
        "prompt": config.data.prompt,
        "system": cast("EndpointEngine", engine).system if served else None,
        "chat_template_kwargs": dict(cast("EndpointEngine", engine).chat_template_kwargs) if served else None,
        "answers": [config.data.style, config.data.markers, config.data.geometry],
        "decoding": " ".join(filter(None, ("server", server, decoding))) if served else decoding,
        "labels": sorted(detector.labels),
        "names": [] if served else sorted(cast("LocalEngine", engine).names),
        "only": list(detector.forced),
        "dtype": None if served else config.model.dtype,
        "max_new_tokens": engine.max_new_tokens,
        "pixels": [config.data.min_pixels, config.data.max_pixels],
        "views": [*finish.views, *(finish.question.labels if "classes" in finish.views else ())],
        "calibration": finish.calibration and finish.calibration.rests_on,
        "min_score": finish.threshold.value,
    }


def _open(folder: Path, settings: dict[str, Any], file: RecordFile, force: bool) -> FileLock:
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
            remove_tracked(folder)
            for path in (*file.parts, folder / SESSION):
                path.unlink(missing_ok=True)
            remove_made(folder, _MADE_ANEW)
        if torn := file.cut_torn_lines():
            say(
                f"{folder}: {counted(torn, 'answer was', 'answers were')} cut off during the write; the "
                "image is answered again"
            )
        earlier = file.latest()
        if any(map(is_answered, earlier.values())):
            _check_settings(folder / SESSION, settings)
        _report_changed(file, earlier)
        _write_answers(file, earlier.values(), [])  # merges the files of an interrupted call before new answers come
        write_text(folder / SESSION, json.dumps(settings, indent=1) + "\n")
    except BaseException:
        lock.release()
        raise
    return lock


def _is_system_file(path: Path) -> bool:
    """Return whether a file is hidden or one that operating systems leave in folders."""
    return path.name.startswith(".") or path.name in ("Thumbs.db", "desktop.ini")


def remove_made(folder: Path, names: Collection[str]) -> None:
    """Remove output of an earlier call that this call does not write again; images that a user changed stay."""
    remove_tracked(folder, [DRAWN] if DRAWN in names else [])
    for name in set(names) - {DRAWN}:
        (folder / name).unlink(missing_ok=True)


def _check_settings(session: Path, settings: Mapping[str, Any]) -> None:
    """Check that the existing answers were generated with these settings."""
    earlier = read_json(session) if session.is_file() else {}
    for name, value in settings.items():
        if name in earlier and earlier[name] != value:
            raise InputError(
                f"--out: the answers in {session.parent} were made with {name} {earlier[name]!r}, now it is {value!r}; "
                "choose another folder, or start anew with --force"
            )


def _report_changed(file: RecordFile, earlier: Mapping[str, Record]) -> None:
    """Refuse other images with the same names; print how many image files have changed or are missing."""
    folder, stamps = file.path.parent, file.stamps
    stale = [name for name, record in earlier.items() if is_answered(record) and file.is_stale(record)]
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
    missing = sum(stamp is None and name in earlier and is_answered(earlier[name]) for name, stamp in stamps.items())
    if missing:
        say(f"{folder}: {counted(missing, 'image file')} cannot be found now; the answers are kept")


def _write_answers(file: RecordFile, named: Iterable[Record], others: Iterable[Record]) -> None:
    """Write records of named images to predictions.jsonl and other answers to earlier.jsonl."""
    older, kept = file.path.with_name(EARLIER), [record for record in others if is_answered(record)]
    if kept:
        write_text(older, "".join(map(json_line, kept)))
        say(f"{older.parent}: {counted(len(kept), 'answer')} of images that this call does not name: see {EARLIER}")
    file.write(named)
    if not kept:
        older.unlink(missing_ok=True)
