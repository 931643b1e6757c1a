"""Finds the images that a command line names: by folders, files, patterns, or annotations to score against."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from itertools import takewhile
from pathlib import Path

from coord_codec import AnnotationSet, InputError, geometry_of
from coord_codec.coco.shapes import in_place_of
from coord_codec.counts import counted, counted_note
from coord_codec.files import read_json
from coord_data.looking.image_paths import IMAGE_SUFFIXES, is_hidden
from coord_detect.answers.records import ImageSource
from coord_eval import ImageError, image_facts

SESSION = "session.json"
"""File of the settings that the answers in a folder depend on; a second call must have the same."""
_SESSION_KEYS = {"model", "prompt"}
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Sources:
    """All images to answer, sorted by name, relative to `root`, with annotations to score against.

    `notes` are about files and records that were left out, `labels` those of all annotations, also of images
    that `first` leaves out.
    """

    root: Path
    images: tuple[ImageSource, ...]
    truth: AnnotationSet | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def first(self, count: int | None) -> Sources:
        """Return the first `count` images with a note about it; all images for None."""
        if count is None or count >= len(self.images):
            return self
        truth = self.truth and self.truth.select(self.truth.instances[:count])
        note = f"the first {count} of {counted(len(self.images), 'image')} are answered; evaluation.limit is {count}"
        return replace(self, images=self.images[:count], truth=truth, notes=(*self.notes, note))


def find_sources(
    words: Sequence[str], images: Path | None = None, geometry: str = "box", strict: bool = False
) -> Sources:
    """Find the images that the arguments of the command line name.

    `words` are folders (searched recursively), image files, patterns such as `photos/*.jpg`, or one
    annotation file, whose images lie in `images` and whose objects are to have the `geometry`.

    Raises:
        InputError: if an argument matches nothing, or no image is found
    """
    if any(is_annotation_file(word) for word in words):
        if len(words) > 1:
            raise InputError(f"{' '.join(words)}: name one file of annotations alone, or images alone")
        return _from_annotations(Path(words[0]), images, geometry, strict)
    if strict:
        raise InputError("--strict is about the records of annotations, and images alone have none")
    if images is not None:
        raise InputError(f"--images {images}: it goes with a file of annotations; name the folder as a source instead")
    paths: dict[Path, None] = {}
    skipped: Counter[str] = Counter()
    notes: list[str] = []
    for word in words:
        files, others, messages = _expand(word)
        skipped.update(others)
        notes += messages
        # `Path.absolute` keeps `..`, with which a name could point out of the folder.
        paths |= dict.fromkeys(Path(os.path.abspath(path)) for path in files)  # noqa: PTH100
    if not paths:
        drawn = "; images that an earlier call has drawn are not answered" if notes else ""
        raise InputError(f"{' '.join(words)}: no image there; expected files in {', '.join(IMAGE_SUFFIXES)}{drawn}")
    # Not the common folder of all images, since names would change when images are added.
    root = Path(os.path.commonpath([os.path.abspath(_folder_of(word)) for word in words]))  # noqa: PTH100
    names = [Path(os.path.relpath(path, root)).as_posix() for path in paths]
    sources = [ImageSource(path, name, name) for path, name in zip(paths, names, strict=True)]
    if skipped:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common(6))
        notes.append(
            f"{counted(skipped.total(), 'file that is no image was', 'files that are no images were')} "
            f"skipped ({kinds})"
        )
    return Sources(root, tuple(sorted(sources, key=lambda source: source.name)), None, tuple(notes))


def annotated_sources(
    annotations: Path, images: Path | None, geometry: str, limit: int | None, strict: bool
) -> tuple[Sources, AnnotationSet]:
    """Find the first `limit` images of a file of annotations, as `find_sources` does, and return its annotations too.

    Raises:
        InputError: if it is no file of annotations, or names no image
    """
    sources = find_sources([str(annotations)], images, geometry, strict).first(limit)
    if sources.truth is None:
        raise InputError(f"{annotations}: expected a file of annotations, .json, .jsonl or .csv")
    return sources, sources.truth


def is_session(folder: Path) -> bool:
    """Return whether a folder is the output folder of an earlier call."""
    try:
        session = read_json(folder / SESSION)
    except (InputError, OSError):
        return False
    return isinstance(session, dict) and session.keys() >= _SESSION_KEYS


def is_annotation_file(word: str) -> bool:
    """Return whether an argument names annotations."""
    return Path(word).suffix.lower() in (".json", ".jsonl", ".csv")


def _folder_of(word: str) -> str:
    """Return the folder that an argument names, or the folder of its file or pattern."""
    if Path(word).is_dir():
        return word
    if Path(word).exists() or not _MAGIC.search(word):
        return os.path.dirname(word) or "."  # noqa: PTH120
    fixed = list(takewhile(lambda part: not _MAGIC.search(part), Path(word).parts))
    return str(Path(*fixed)) if fixed else "."


def _expand(word: str) -> tuple[list[Path], list[str], list[str]]:
    """Return image files that an argument names, the suffix (or name) of each other file, and messages."""
    path = Path(word)
    if path.is_file():
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            try:
                image_facts(path)
            except ImageError as error:
                hint = "; `prepare` converts annotations of other kinds to instances.jsonl"
                raise InputError(f"{word}: expected an image or annotations: {error}{hint}") from None
        return [path], [], []
    messages = []
    if path.is_dir():
        entries = [file for file in sorted(path.rglob("*")) if not is_hidden(file, path)]
        files = [file for file in entries if file.is_file()]
        if links := [file for file in entries if file.is_symlink() and not file.is_file()]:
            note = "links to folders or to nothing are not followed"
            messages.append(f"{len(links)} {note}, {links[0]} first; name the folders themselves")
    else:
        # `Path.glob` does not take absolute patterns.
        files = [Path(match) for match in sorted(glob(word, recursive=True)) if Path(match).is_file()]  # noqa: PTH207
        if not files and "://" in word:
            raise InputError(
                f"{word}: a URL, and nothing is downloaded here; name a file or a folder, or let `predict` "
                "or coord_data.remote.image_folder copy it first"
            )
        if not files:
            setting = "; settings are written section.key=value" if "=" in word else ""
            raise InputError(f"{word}: no such file or folder, and no file matches it as a pattern{setting}")
    sessions = {parent for parent in {parent for file in files for parent in file.parents} if is_session(parent)}
    if sessions:
        files = [file for file in files if sessions.isdisjoint(file.parents)]
        messages.append(f"{min(sessions)}: the output of an earlier call, whose drawn images are not answered")
    chosen = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    others = [file.suffix.lower() or file.name for file in files if file.suffix.lower() not in IMAGE_SUFFIXES]
    return chosen, others, messages


def _from_annotations(file: Path, images: Path | None, geometry: str, strict: bool) -> Sources:
    from coord_data.reading.read import read_source  # with all formats, of which images alone need none

    if images is not None and not images.is_dir():
        raise InputError(f"--images: expected a folder of images, found nothing of that kind at {images}")
    # An image with a bad record is answered nevertheless.
    annotated = read_source(file, images, on_bad_box="drop_box", geometry=geometry)
    truth = annotated.annotations
    if strict and truth.problems:
        raise InputError(f"{truth.problems[0]} ({len(truth.problems)} such problems; --strict is on)")
    root = images or truth.root or file.parent
    if any(instance.image_id is None for instance in truth.instances):  # then all images are identified by name
        without_ids = (instance.model_copy(update={"image_id": None}) for instance in truth.instances)
        truth = replace(truth, instances=tuple(without_ids))
    sources = [ImageSource(root / i.image, i.image, i.image_id) for i in truth.instances]
    if not sources:
        raise InputError(f"{file}: no image is left to answer; the first problem: {next(iter(truth.problems), 'none')}")
    if not any(source.path.is_file() for source in sources):
        raise InputError(
            f"{file}: none of its {counted(len(sources), 'image')} is below {root}, {sources[0].name} first; "
            "name their folder (--images)"
        )
    notes = list(annotated.notes)
    shapeless = in_place_of(geometry_of(geometry))
    if derived := truth.notes.get(shapeless):
        notes.append(counted_note(derived, shapeless))
    if truth.problems:
        notes.append(f"{counted(len(truth.problems), 'bad record')} of {file} left out; the first: {truth.problems[0]}")
    labels = tuple(sorted({o.desc for i in truth.instances for o in i.targets}))
    return Sources(root, tuple(sources), truth, tuple(notes), labels)
