"""Reads folders of text labels, a file an image and an object a line: DOTA's corners and KITTI's boxes, in pixels.

An image without a label file has no objects, counted, as in YOLO; a file without an image is a problem.

| format | rule |
|---|---|
| DOTA | four corners, a class and a difficulty; difficult objects are ignored, as in its devkit and in Pascal VOC |
| KITTI | the box of a line of `label_2`, whose class may be several words; `DontCare` is a region that is ignored |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

from coord_codec.commands.foreign import tool_of
from coord_codec.files import InputError, read_text
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.class_names import NAME_FILES
from coord_data.looking.image_paths import IMAGE_SUFFIXES, find_root, image_files
from coord_data.sources.partners import WITHOUT_LABELS
from coord_data.sources.raw import RawImage, RawObject, Reading, check, images_named, number
from coord_data.sources.source import Source

Line = Callable[[list[str], RawObject], RawObject]
"""Reads the words of a line."""
_PLACES = ("*.txt", "*[lL]abel*/*.txt", "*/*[lL]abel*/*.txt", "*[lL]abel*/*/*.txt", "*[aA]nn*/*.txt")
"""Where the first labels of a folder are looked for, without a look at all of its images."""
_LOOKED_AT = 16
_OF_CORNERS = "boxes of four corners, read as the upright box around them"
_DONT_CARE = "DontCare"
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?")


def _files(source: Source) -> list[Path]:
    if not source.is_dir:
        return [source.path]
    return [path for path in source.glob("*.txt", "*/**/*.txt") if path.name not in NAME_FILES]


def recognise(source: Source, tool: str) -> bool:
    """Return whether a file, or the first ones of a folder, are labels of a tool."""
    if not source.is_dir and source.path.suffix.lower() != ".txt":
        return False
    if not source.is_dir:
        return tool_of(source.path) == tool
    first = islice(chain.from_iterable(map(source.path.glob, _PLACES)), _LOOKED_AT)
    return next(filter(None, map(tool_of, first)), "") == tool


def read(source: Source, images: Path | None, line: Line) -> Reading:
    """Read the files of a folder; `line` reads the words of a line."""
    files = _files(source)
    folder = source.path if source.is_dir else source.path.parent
    root = find_root(images, folder / "images", folder / "image_2", folder)
    rows = [(str(path), _lines(path), _image_names(path, folder)) for path in files]
    read = list(images_named(root, rows, partial(_image, line)))
    if source.is_dir:
        named = {image.name for image in read}
        others = (path.relative_to(root).as_posix() for path in image_files(root))
        read += [RawImage(name, str(root / name), notes=(WITHOUT_LABELS,)) for name in others if name not in named]
    return Reading(read, root, reads_alone=source.is_dir)


def _lines(path: Path) -> list[str] | str:
    try:
        return read_text(path).splitlines()
    except InputError as error:
        return str(error)


def _image_names(path: Path, folder: Path) -> tuple[str, ...]:
    """Return candidate paths of the image of a label file: below its folder, that of the labels, or its name alone."""
    below = path.relative_to(folder).with_suffix("")
    stems = dict.fromkeys((below.as_posix(), Path(*below.parts[1:]).as_posix(), below.name))
    return tuple(f"{stem}{suffix}" for stem in stems for suffix in IMAGE_SUFFIXES)


def _image(line: Line, lines: Sequence[str], image: RawImage) -> RawImage:
    objects = [
        RawObject("", (), f"{image.where}:{place}").tried(partial(line, words))
        for place, text in enumerate(lines, 1)
        if (words := text.split()) and not text.startswith(("imagesource:", "gsd:"))
    ]
    return image._replace(objects=objects)


def _dota(words: list[str], stated: RawObject) -> RawObject:
    check(len(words) in (9, 10), "expected eight numbers, a class and a difficulty", " ".join(words))
    stated = stated._replace(desc=words[8], ignored=words[9:] not in ([], ["0"]))
    return stated.tried(lambda own: own.outlined([number(word) for word in words[:8]], _OF_CORNERS))


def _kitti(words: list[str], stated: RawObject) -> RawObject:
    of_class = next((n for n, word in enumerate(words) if n and _NUMBER.fullmatch(word)), len(words))
    values = words[of_class:]
    check(len(values) in (14, 15), "expected a class and 14 or 15 values, a line of KITTI", " ".join(words))
    desc = " ".join(words[:of_class])
    stated = stated._replace(desc=desc, ignored=desc == _DONT_CARE)
    return stated.tried(lambda own: own._replace(corners_xyxy=tuple(number(word) for word in values[3:7])))


def _format(name: str, title: str, about: str, text: str, geometries: Sequence[str], line: Line) -> AnnotationFormat:
    examples = {geometry: Example({f"{name}/a.txt": text}, name, f"{name}/images/a.jpg") for geometry in geometries}
    return AnnotationFormat(
        name, title, about, examples, partial(recognise, tool=title), partial(read, line=line), file_an_image=True
    )


DOTA = _format(
    "dota",
    "DOTA",
    "a text file an image: four corners in pixels, a class and a difficulty a line",
    "imagesource:GoogleEarth\ngsd:0.5\n20 10 60 10 60 40 20 40 cat 0\n",
    ("box", "polygon", "oriented"),
    _dota,
)
KITTI = _format(
    "kitti",
    "KITTI",
    "a text file an image in `label_2`: class, truncation, occlusion, angle, corners in pixels and seven more a line",
    "cat 0.00 0 -1.57 20.00 10.00 60.00 40.00 1.57 1.73 4.15 1.00 1.75 13.22 1.62\n",
    ("box",),
    _kitti,
)
