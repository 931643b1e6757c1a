"""Which images a command line names: folders, files, patterns, or annotations that the answers are then scored by."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from itertools import takewhile
from pathlib import Path

from coord_codec import AnnotationSet, InputError
from coord_codec.files import read_json
from coord_eval import ImageError, image_facts
from coord_trainer.data.formats.raw import IMAGE_SUFFIXES, is_hidden
from coord_trainer.data.formats.registry import read_source

SESSION = "session.json"
"""What the answers of a folder depend on; a second call has to agree."""
_SAYS_IT_IS_ONE = {"model", "prompt"}
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Source:
    """One image to answer.

    Attributes:
        path: of the file
        name: relative to the root of all images; what predictions call it
        image_id: of the annotations, None where they have none; of images alone the name
    """

    path: Path
    name: str
    image_id: int | str | None


@dataclass(frozen=True)
class Sources:
    """All images to answer.

    Attributes:
        root: the folder that names are relative to
        images: sorted by name
        truth: annotations to score the answers by, None without
        notes: what was passed over
        labels: of the annotations, also of images that `first` leaves out
    """

    root: Path
    images: tuple[Source, ...]
    truth: AnnotationSet | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

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
    notes: list[str] = []
    for word in words:
        files, others, told = _expand(word)
        passed_over.update(others)
        notes += told
        # `Path.absolute` keeps `..`, by which a name would lead out of every folder.
        found |= dict.fromkeys(Path(os.path.abspath(path)) for path in files)  # noqa: PTH100
    if not found:
        answered = "; what an earlier call has drawn is none to answer" * bool(notes)
        raise InputError(f"{' '.join(words)}: no image there; known are files in {', '.join(IMAGE_SUFFIXES)}{answered}")
    # Not the folder that all images have in common: the names would change when others are added.
    root = Path(os.path.commonpath([os.path.abspath(_folder_of(word)) for word in words]))  # noqa: PTH100
    names = [Path(os.path.relpath(path, root)).as_posix() for path in found]
    sources = [Source(path, name, name) for path, name in zip(found, names, strict=True)]
    if passed_over:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in passed_over.most_common(6))
        notes.append(f"{passed_over.total()} files that are no images were passed over ({kinds})")
    return Sources(root, tuple(sorted(sources, key=lambda source: source.name)), None, tuple(notes))


def is_session(folder: Path) -> bool:
    """Return whether a folder holds the answers of an earlier call."""
    try:
        session = read_json(folder / SESSION)
    except (InputError, OSError):
        return False
    return isinstance(session, dict) and session.keys() >= _SAYS_IT_IS_ONE


def _annotates(word: str) -> bool:
    return Path(word).suffix.lower() in (".json", ".jsonl", ".csv")


def _folder_of(word: str) -> str:
    """Return the folder that a word names, or that its file or pattern lies in."""
    if Path(word).is_dir():
        return word
    if Path(word).exists() or not _MAGIC.search(word):
        return os.path.dirname(word) or "."  # noqa: PTH120
    fixed = list(takewhile(lambda part: not _MAGIC.search(part), Path(word).parts))
    return str(Path(*fixed)) if fixed else "."


def _expand(word: str) -> tuple[list[Path], list[str], list[str]]:
    """Return the image files that a word names, suffixes or else names of the other files, and what is to be told."""
    path = Path(word)
    if path.is_file():
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            try:
                image_facts(path)
            except ImageError as error:
                turned = "; `prepare` turns annotations of other kinds into instances.jsonl"
                raise InputError(f"{word}: expected an image or annotations: {error}{turned}") from None
        return [path], [], []
    told = []
    if path.is_dir():
        every = [file for file in sorted(path.rglob("*")) if not is_hidden(file, path)]
        files = [file for file in every if file.is_file()]
        if links := [file for file in every if file.is_symlink() and not file.is_file()]:
            told.append(f"{len(links)} links to folders, or to nothing, are not followed, {links[0]} first; name them")
    else:
        # An absolute pattern is none for `Path.glob`.
        files = [Path(match) for match in sorted(glob(word, recursive=True)) if Path(match).is_file()]  # noqa: PTH207
        if not files and "://" in word:
            raise InputError(f"{word}: a URL, and nothing is downloaded here; name a file or a folder")
        if not files:
            setting = "; settings are written section.key=value" * ("=" in word)
            raise InputError(f"{word}: no such file or folder, and no file matches it as a pattern{setting}")
    sessions = {parent for parent in {parent for file in files for parent in file.parents} if is_session(parent)}
    if sessions:
        files = [file for file in files if sessions.isdisjoint(file.parents)]
        told.append(f"{min(sessions)}: the answers of an earlier call, whose drawn images are none to answer")
    chosen = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    others = [file.suffix.lower() or file.name for file in files if file.suffix.lower() not in IMAGE_SUFFIXES]
    return chosen, others, told


def _annotated(file: Path, images: Path | None, geometry: str, strict: bool) -> Sources:
    if images is not None and not images.is_dir():
        raise InputError(f"--images: expected a folder of images, found nothing of that kind at {images}")
    # An image with a bad record is answered all the same.
    found = read_source(file, images, on_bad_box="drop_box", geometry=geometry)
    truth = found.annotations
    if strict and truth.problems:
        raise InputError(f"{truth.problems[0]} ({len(truth.problems)} such problems; --strict is on)")
    root = images or truth.root or file.parent
    if any(instance.image_id is None for instance in truth.instances):  # then all are known by their names
        nameless = (instance.model_copy(update={"image_id": None}) for instance in truth.instances)
        truth = replace(truth, instances=tuple(nameless))
    sources = [Source(root / i.image, i.image, i.image_id) for i in truth.instances]
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
    labels = tuple(sorted({o.desc for i in truth.instances for o in i.targets}))
    return Sources(root, tuple(sources), truth, tuple(notes), labels)
