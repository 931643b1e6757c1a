"""Which images a command line names: folders, files, patterns, or annotations that the answers are then scored by."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path

from coord_codec import AnnotationSet, InputError
from coord_trainer.data.formats.raw import IMAGE_SUFFIXES, is_hidden
from coord_trainer.data.formats.registry import read_source

SESSION = "session.json"
"""What the answers of a folder depend on; a second call has to agree."""


@dataclass(frozen=True)
class Source:
    """One image to answer.

    Attributes:
        path: of the file
        name: relative to the root of all images; what predictions call it
        image_id: of the annotations, else the name, which stays the same when images are added
    """

    path: Path
    name: str
    image_id: int | str


@dataclass(frozen=True)
class Sources:
    """All images to answer.

    Attributes:
        root: the folder that names are relative to
        images: sorted by name
        truth: annotations to score the answers by, None without
        notes: what was passed over
    """

    root: Path
    images: tuple[Source, ...]
    truth: AnnotationSet | None = None
    notes: tuple[str, ...] = ()

    def first(self, count: int | None) -> Sources:
        """The first `count` images, which is said; all of them for None."""
        if count is None or count >= len(self.images):
            return self
        truth = self.truth and self.truth.select(self.truth.instances[:count])
        note = f"the first {count} of {len(self.images)} images are answered; evaluation.limit is {count}"
        return replace(self, images=self.images[:count], truth=truth, notes=(*self.notes, note))


def find_sources(
    words: Sequence[str], images: Path | None = None, geometry: str = "box", strict: bool = False
) -> Sources:
    """Find the images that the words name.

    Args:
        words: folders (searched to any depth), image files, patterns such as `photos/*.jpg`, or one file of
            annotations of any format that is a file
        images: the folder of the images of annotations
        geometry: the shape of their objects that answers are scored by
        strict: make any bad record of annotations an error

    Raises:
        InputError: a word names nothing, or there is no image at all.
    """
    if any(_annotates(word) for word in words):
        if len(words) > 1:
            raise InputError(f"{' '.join(words)}: name one file of annotations alone, or images alone")
        return _annotated(Path(words[0]), images, geometry, strict)
    if strict:
        raise InputError("--strict is about the records of annotations, and images alone have none")
    if images is not None:
        raise InputError(f"--images {images}: it goes with a file of annotations; name the folder as a source instead")
    found: dict[Path, None] = {}
    passed_over: Counter[str] = Counter()
    for word in words:
        files, others = _expand(word)
        passed_over.update(others)
        # `Path.absolute` keeps `..`, by which a name would lead out of every folder.
        found |= dict.fromkeys(Path(os.path.abspath(path)) for path in files)  # noqa: PTH100
    if not found:
        raise InputError(f"{' '.join(words)}: no image there; known are files in {', '.join(IMAGE_SUFFIXES)}")
    parents = [path.parent for path in found]
    root = Path(os.path.commonpath(parents))
    sources = [Source(path, path.relative_to(root).as_posix(), path.relative_to(root).as_posix()) for path in found]
    kinds = ", ".join(f"{count} {suffix}" for suffix, count in passed_over.most_common(6))
    notes = (f"{passed_over.total()} files that are no images were passed over ({kinds})",) * bool(passed_over)
    return Sources(root, tuple(sorted(sources, key=lambda source: source.name)), None, notes)


def _annotates(word: str) -> bool:
    return Path(word).suffix.lower() in (".json", ".jsonl", ".csv")


def _expand(word: str) -> tuple[list[Path], list[str]]:
    """Return the image files that a word names, and the suffixes, or else names, of the other files that it names."""
    path = Path(word)
    if path.is_file():
        return [path], []
    if path.is_dir():
        sessions = {file.parent for file in path.rglob(SESSION)}  # what was drawn is no image to answer
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not is_hidden(file, path)]
        files = [file for file in files if sessions.isdisjoint(file.parents)]
        if not files and path in sessions:
            raise InputError(f"{word}: the answers of an earlier call, whose drawn images are none to answer")
    else:
        # An absolute pattern is none for `Path.glob`.
        files = [Path(match) for match in sorted(glob(word, recursive=True)) if Path(match).is_file()]  # noqa: PTH207
        if not files and "://" in word:
            raise InputError(f"{word}: a URL, and nothing is downloaded here; name a file or a folder")
        if not files:
            raise InputError(f"{word}: no such file or folder, and no file matches it as a pattern")
    chosen = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    return chosen, [file.suffix.lower() or file.name for file in files if file.suffix.lower() not in IMAGE_SUFFIXES]


def _annotated(file: Path, images: Path | None, geometry: str, strict: bool) -> Sources:
    # An image with a bad record is answered all the same.
    found = read_source(file, images, on_bad_box="drop_box", geometry=geometry)
    truth = found.annotations
    if strict and truth.problems:
        raise InputError(f"{truth.problems[0]} ({len(truth.problems)} such problems; --strict is on)")
    root = images or truth.root or file.parent
    sources = [
        Source(root / i.image, i.image, i.image_id if i.image_id is not None else number)
        for number, i in enumerate(truth.instances, start=1)
    ]
    if not sources:
        raise InputError(f"{file}: no image is left to answer; the first problem: {next(iter(truth.problems), 'none')}")
    if not any(source.path.is_file() for source in sources):
        raise InputError(
            f"{file}: none of its {len(sources)} images is below {root}, {sources[0].name} first; "
            "name their folder with --images"
        )
    notes = list(found.notes)
    if truth.problems:
        notes.append(f"{len(truth.problems)} records of {file} are bad and left out; the first: {truth.problems[0]}")
    return Sources(root, tuple(sources), truth, tuple(notes))
