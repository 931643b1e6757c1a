"""Images and annotation files that have no partner, in formats with a file for each image.

An image without an annotation file may be one without objects, or its file was lost: a copy ended early, or names
differ. Which of them holds cannot be seen from one image, so their number is a note. Evidence makes it a warning:

| evidence | what it tells |
|---|---|
| annotation files without an image | no reader uses them; beside images without a file, the names may differ |
| the files of consecutive names end, or begin, within them | a copy ended early, see `_break_off` |
| a split has images and no file | the annotations of that split were forgotten, or are not public |
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from math import comb
from pathlib import Path, PurePosixPath

from coord_codec.counts import counted
from coord_codec.labels import normalize_label
from coord_data.finding import Finding
from coord_data.finding_codes import Severity
from coord_data.looking.image_paths import image_files, split_of
from coord_data.sources.raw import Reading

WITHOUT_LABELS = "images without a label file, taken as images without objects"
"""Note of the readers that read images without an annotation file."""
_UNLIKELY = 0.02
"""Chance below which files that are missing from one end of a series are no coincidence."""
_LEAST = 3
"""Least number of names on each side of the place where a series breaks off."""
_LONGER = 10
"""How many times as long as any gap in a series its missing end must be."""
_HASHES = 5
"""Least number of beginnings of the names in a folder for them to be hashes."""


@dataclass(frozen=True)
class Partners:
    """The images and the annotation files of a set, each with whether it has a partner.

    Attributes:
        images: whether an image has an annotation file, by its path
        files: whether an annotation file has an image, by its path
        read_alone: whether images without a file are read, as images without objects
        refused_alone: whether a file without an image is refused, which is told of each

    Example:
        >>> images = {f"{n}.jpg": n < 5 for n in range(10)}
        >>> [finding] = Partners(images, {f"{n}.txt": True for n in range(5)}).findings
        >>> finding.severity, finding.message
        ('warning', 'images without an annotation file, not read: 5 of 10')
    """

    images: Mapping[str, bool] = field(default_factory=dict)
    files: Mapping[str, bool] = field(default_factory=dict)
    read_alone: bool = False
    refused_alone: bool = False

    @property
    def findings(self) -> list[Finding]:
        """What has no partner, counted by side: a warning by evidence, else a note."""
        images, files = ([name for name, has in side.items() if not has] for side in (self.images, self.files))
        if not images and (not files or self.refused_alone):
            return []
        become = "read as images without objects" if self.read_alone else "not read"
        sides = (
            (f"images without an annotation file, {become}", images, self.images),
            ("annotation files without an image, not read", files, self.files),
        )
        message = "; ".join(f"{what}: {len(alone)} of {len(side)}" for what, alone, side in sides if alone)
        reasons = list(self._evidence(images, files))
        firsts = ", ".join(alone[0] for _, alone, _ in sides if alone)
        evidence = "; ".join([*reasons, f"the first: {firsts}"])
        missing = "copy what is missing, or give a file the name of its image; an image without objects has a file "
        fix = f"{missing}without any" if reasons else "add the files of those with objects"
        severity: Severity = "warning" if reasons else "note"
        return [Finding("without_partner", severity, message, evidence, len(images) + len(files), fix)]

    def _evidence(self, images: Sequence[str], files: Sequence[str]) -> Iterator[str]:
        """Yield why what has no partner is missing, rather than meant so."""
        if pairs := list(_written_differently(images, files)):
            yield f"{len(pairs)} with names that are only written differently: {pairs[0][1]} and {pairs[0][0]}"
        elif images and files:
            yield "both sides have some"
        elif files:
            yield "the objects of these files are lost"
        for side, what in ((self.images, "annotation files"), (self.files, "images")):
            for last, count, is_end in _break_off(side):
                word, where = ("end", "after") if is_end else ("begin", "before")
                yield f"the {what} {word} at {last}: the {count} names {where} it have none"
        for folder, count in _bare_splits(self.images).items():
            yield f"none of the {counted(count, 'image')} of {folder} has a file"


def partners_of(reading: Reading, is_folder: bool) -> Partners:
    """Return the partners of what a format with a file for each image has read; `is_folder` for all files of a folder.

    Images that are not read are those of the folders of the images that are, and of splits beside them. A file that
    cannot be read at all is no file without an image.
    """
    read = [image for image in reading.images if image.name]
    alone = [image for image in read if WITHOUT_LABELS in image.notes]
    others = [image for image in read if WITHOUT_LABELS not in image.notes]
    below = {path.relative_to(reading.root).as_posix() for path in image_files(reading.root)} if is_folder else set()
    has_image = {image.name: image.name in below or (reading.root / image.name).is_file() for image in others}
    images = {name: True for name, exists in has_image.items() if exists} | {image.name: False for image in alone}
    if not reading.reads_alone:
        faulty = {Path(image.where).stem for image in reading.images if not image.name}
        folders = {str(PurePosixPath(name).parent) for name in images}
        for name in sorted(below - images.keys()):
            path = PurePosixPath(name)
            belongs = not folders or str(path.parent) in folders or bool(split_of(path.parent.name))
            if belongs and path.stem not in faulty:
                images[name] = False
    files = {image.where: has_image[image.name] for image in others} | dict.fromkeys(reading.without_image, False)
    return Partners(images, files, reading.reads_alone, not reading.without_image)


def _stem(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).stem


def _written_differently(images: Sequence[str], files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield images and files without a partner whose names differ in case, spaces or Unicode form alone."""
    by_name = {normalize_label(_stem(image)): image for image in images}
    for file in files:
        if image := by_name.get(normalize_label(_stem(file))):
            yield PurePosixPath(image).name, Path(file).name


def _break_off(has_partner: Mapping[str, bool]) -> Iterator[tuple[str, int, bool]]:
    """Yield the last name with a partner of each series that breaks off, how many follow, and whether it is the end.

    A series is the names of a folder that begin alike up to their first digit, in the order of their numbers or in that
    of a listing, where 10 comes before 2; where a third of at least `_HASHES` beginnings have one name, as those of
    hashes, it is all names of the folder. It breaks off where at least `_LEAST` names at an end have none, ten times as
    many as any gap before, and chance, which places the k partners of n names anywhere, leaves the last m free with
    C(n - m, k) / C(n, k) below `_UNLIKELY` for all orders together.
    """
    series = [
        list(dict.fromkeys(tuple(sorted(names, key=key)) for key in (_by_number, _stem)))
        for names in _series(has_partner)
    ]
    tried = sum(map(len, series))
    for orders in series:
        ends = (end for names in orders for end in _free_ends(names, has_partner, tried))
        yield from islice(ends, 1)


def _free_ends(names: Sequence[str], has_partner: Mapping[str, bool], tried: int) -> Iterator[tuple[str, int, bool]]:
    """Yield where one order of a series breaks off, of `tried` orders in all, see `_break_off`."""
    total, count = len(names), sum(map(has_partner.__getitem__, names))
    for is_end in (True, False):
        runs = [
            (has, len(list(run))) for has, run in groupby(map(has_partner.__getitem__, names[:: 1 if is_end else -1]))
        ]
        missing = 0 if runs[-1][0] else runs[-1][1]
        gap = max((length for has, length in runs[:-1] if not has), default=0)
        if min(count, missing) < _LEAST or missing < _LONGER * gap:
            continue
        if comb(total - missing, count) * tried < _UNLIKELY * comb(total, count):
            yield PurePosixPath(names[-missing - 1] if is_end else names[missing]).name, missing, is_end


def _series(paths: Mapping[str, bool]) -> Iterator[list[str]]:
    """Yield the names of each series, see `_break_off`."""
    folders: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        folder, _, name = path.replace("\\", "/").rpartition("/")
        folders[folder][re.split(r"\d", name, maxsplit=1)[0]].append(path)
    for starts in folders.values():
        groups = [*starts.values()]
        are_hashes = len(groups) >= _HASHES and 3 * sum(len(group) == 1 for group in groups) >= len(groups)
        yield from [[path for group in groups for path in group]] if are_hashes else groups


def _by_number(path: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", _stem(path))
    return [(int(part), "") if part.isdecimal() else (-1, part.casefold()) for part in parts]


def _bare_splits(images: Mapping[str, bool]) -> dict[str, int]:
    """Return the number of images of each folder of a split in which none has a file, if others have some."""
    total, having = Counter[str](), Counter[str]()
    for name, has in images.items():
        folder = PurePosixPath(name).parent
        if any(map(split_of, folder.parts)):
            total[str(folder)] += 1
            having[str(folder)] += has
    return {folder: count for folder, count in total.items() if not having[folder] and any(images.values())}
