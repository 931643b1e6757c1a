"""Reader of YOLO text labels in Ultralytics' format: `class cx cy width height` per line, in fractions of the image.

Images lie in a folder `images` and their labels under the same path in a folder `labels` beside it (or next to the
images); `data.yaml`, `classes.txt` or `obj.names` names the classes. A data set without any label file is an error; an
empty label file states that its image has no objects.

| line | rule |
|---|---|
| five numbers | a box |
| six numbers | the sixth, a confidence or track id, is ignored and counted; where it is neither, as an angle, refused |
| seven numbers, of which the last are a confidence and a track id in every row | a box; both are ignored and counted |
| seven or more, an odd count, else | a polygon, or corners of an oriented box; as a box the one around it, counted |
| with `kpt_shape: [K, D]` in `data.yaml` | a box and K keypoints of D numbers each; as a box without them, counted |
| poses without `kpt_shape` | refused where their numbers make no sense as outlines: they have the count of a polygon |
| image without a label file | an image without objects, counted |
| label file without an image | not read, counted, a warning of `inspect` |
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from coord_codec.counts import counted
from coord_codec.files import InputError, read_text
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.class_names import DATA_FILES, NAME_FILES, ClassList, classes_of, find_classes, read_data_file
from coord_data.formats.label_files import (
    Labelled,
    find_labels,
    first_line,
    is_label,
    label_folders,
    labels_without_image,
)
from coord_data.formats.poses import SLACK, are_poses, begin_with_boxes
from coord_data.looking.image_paths import image_files
from coord_data.sources.partners import WITHOUT_LABELS
from coord_data.sources.raw import RawImage, RawObject, Reading, number
from coord_data.sources.source import Source

_SPLITS = ("train", "val", "valid", "test")
_HELD_OUT = ("val", "test")
_OUTLINES = "polygons or rotated boxes, read as the box around them"
_ORIENTED = "rows of four corners (YOLO OBB), read as the box around them; --geometry oriented reads them as they are"
_SAME_MIDDLE = 2e-3
"""Twice the distance of two middles that are one: labels have few decimals."""
_SAMPLED = 200
"""Number of label files whose rows are checked for their sense."""
_SIXTH = "labels with a sixth number, which is not read"
_SIXTH_1 = "labels whose sixth number is 1, which is not read"
_TRACKED = "labels with a sixth and a seventh number, a confidence and a track id, which are not read"
_SUPERVISELY = frozenset(("colors", "train_labels"))
"""Keys of the data_config.yaml that Supervisely writes."""
_CUT_CENTRES = "boxes by Supervisely, whose centres are cut off to whole pixels, moved where they were"


def recognise(source: Source) -> bool:
    """Return whether a source is a data.yaml with names, or a folder of images with numeric labels."""
    if not source.is_dir:
        return source.path.suffix in DATA_FILES and "names" in read_data_file(source)
    patterns = ("data*.yaml", "data*.yml", "obj.data")
    yamls = [source.file(path) for path in source.glob(*patterns)]
    if any("names" in read_data_file(file) for file in yamls):
        return True
    folders = dict.fromkeys(image.parent for image in image_files(source.path))
    places = dict.fromkeys(place for folder in folders for place in label_folders(folder, source.path))
    return has_labels(source, (path for place in places for path in Source(place).glob("*.txt")))


def has_labels(source: Source, further_files: Iterable[Path] = ()) -> bool:
    """Return whether a folder, its folder `labels` or the files `further_files` contain numeric labels."""
    is_labels = "labels" in (source.path.name, source.path.resolve().name)  # `.` and links have other names
    labels = chain(source.glob("*.txt", "**/*.txt" if is_labels else "labels/**/*.txt"), further_files)
    first_lines = (first_line(path) for path in labels if path.name not in NAME_FILES)
    return any(is_label(line) for line in islice(filter(None, first_lines), 20))


def read(source: Source, images: Path | None) -> Reading:
    """Read the images of a folder, or the training images that a data.yaml names, with their labels."""
    classes, told = _classes(source)
    top, paths, notes = (
        _folder_images(source, images) if source.is_dir else _images_of(source.path, read_data_file(source))
    )
    if not paths:
        raise InputError(f"{source.path}: YOLO labels, but no images found there; {_where_images_are(source, images)}")
    root = images or top
    labelled = find_labels(paths, source.path, images) if source.is_dir and images else find_labels(paths, top)
    notes = (*told, *notes, *_notes_on_files(labelled, source.path))
    images_read = [_image(pair, root, classes) for pair in labelled]
    if not classes.kpt_shape:
        images_read = _without_angles(images_read)
        images_read = _without_tracks(images_read, source.path)
        _refuse_poses(images_read, source.path)
    if any(read_data_file(source.file(path)).keys() >= _SUPERVISELY for path in _yamls(source)):
        images_read = _recentred(images_read, root)
    without_image = tuple(map(str, labels_without_image(labelled)))
    return Reading(
        images_read, root, notes, classes.names, layout="cxcywh", reads_alone=True, without_image=without_image
    )


def _classes(source: Source) -> tuple[ClassList, tuple[str, ...]]:
    """Return the classes of a folder or a data.yaml, and a note where another folder names them."""
    if source.is_dir:
        classes, names = find_classes(source)
        return classes, (f"{source.path}: class names are read from {names}",) * (names.parent != source.path)
    values = read_data_file(source) if source.path.suffix in DATA_FILES else {}
    if "names" not in values:
        raise InputError(
            f"{source.path}: expected the data.yaml of YOLO labels, with names, found none; name that file, or the "
            "folder with images and labels"
        )
    return classes_of(values, source.path), ()


def _where_images_are(source: Source, images: Path | None) -> str:
    """Return what to do where no image is found: images of formats that are not read are named."""
    kinds = ("**/*.heic", "**/*.heif", "**/*.dng", "**/*.dcm")
    others = [path for kind in kinds for path in Source(images or source.path).glob(kind)]
    if not others:
        return "name their folder with --images"
    return f"{len(others)} such as {others[0].name} have a format that is not read: convert them to JPEG"


def _notes_on_files(labelled: Sequence[Labelled], path: Path) -> tuple[str, ...]:
    """Return a note on label files that several images have."""
    if shared := [label for label, count in Counter(row.label for row in labelled).items() if label and count > 1]:
        return (f"{path}: several images have the label file {shared[0]} ({len(shared)} such files in all)",)
    return ()


def _refuse_poses(images: Sequence[RawImage], path: Path) -> None:
    """Raise an `InputError` if the outlines of the first images make sense as poses alone."""
    rows = [box.outlines[0] for image in images[:_SAMPLED] for box in image.objects if box.outlines]
    if not rows or not are_poses(rows):
        return
    points = len(rows[0]) - 4
    shapes = " or ".join(f"[{points // each}, {each}]" for each in (3, 2) if points % each == 0)
    raise InputError(
        f"{path}: the labels have {len(rows[0]) + 1} numbers a row, which fit class, centre, size and keypoints, and "
        f"no outlines; write kpt_shape: {shapes} in data.yaml"
    )


class HeldOut(NamedTuple):
    """Images of the splits `val` and `test` of a data.yaml.

    Attributes:
        root: folder of the data set
        names: path of each existing image, relative to `root` if it lies below it
        notes: notes for the user on these images
    """

    root: Path
    names: tuple[str, ...]
    notes: tuple[str, ...]


def held_out(source: Source | Path, images: Path | None = None) -> HeldOut | None:
    """Return the images that a data.yaml names under `val` and `test`; None if it names neither.

    Their labels are not read. A note reports a split that does not exist or equals the training images, which are
    those of the folder that the user named.
    """
    source = Source(source) if isinstance(source, Path) else source
    file = next(iter(_yamls(source)), None)
    values = {} if file is None else read_data_file(source.file(file))
    splits = [name for name in _HELD_OUT if values.get(name)]
    if file is None or not splits:
        return None
    top, train, _ = _folder_images(source, images) if source.is_dir else _images_of(file, values)
    train_paths = {path.resolve() for path in train}
    held_out_paths: dict[Path, Path] = {}
    notes = []
    for split in splits:
        try:
            split_images = {path.resolve(): path for path in _images_of(file, values, split)[1]}
        except InputError as error:
            notes.append(f"{error}; it is not compared with the training images")
            continue
        existing = {key: path for key, path in split_images.items() if key.is_file()}
        if not existing:
            notes.append(f"{file}: {split}: expected images, found none; nothing is held out by it")
        elif existing.keys() == train_paths:
            notes.append(f"{file}: {split} names the training images: nothing is held out by it")
        else:
            count = counted(len(existing), "image")
            notes.append(f"{file}: {split} holds out {count}; the training images are searched for copies of them")
            held_out_paths |= existing
        if missing := len(split_images) - len(existing):
            notes.append(f"{file}: {split}: {missing} of {counted(len(split_images), 'image')} do not exist")
    return HeldOut(top, tuple(_name(path, top) for path in held_out_paths.values()), tuple(notes))


def _yamls(source: Source) -> list[Path]:
    """Return the files of a source that can be its data.yaml."""
    files = [source.path / name for name in NAME_FILES] if source.is_dir else [source.path]
    return [file for file in files if file.suffix in DATA_FILES and file.is_file()]


def _folder_images(source: Source, images: Path | None) -> tuple[Path, list[Path], tuple[str, ...]]:
    """Return the result of `_images_of` for a data.yaml in a folder that names training images, else all images."""
    folder = source.path
    notes: tuple[str, ...] = ()
    file = next((path for path in _yamls(source) if read_data_file(source.file(path)).get("train")), None)
    if file is not None:
        try:
            top, image_paths, notes = _images_of(file, read_data_file(source.file(file)))
            if not image_paths:
                raise InputError(f"{file}: train: expected images, found none")
        except InputError as error:
            notes = (f"{error}; all images of the folder are read",)
        else:
            if images is None or all(path.absolute().is_relative_to(images.absolute()) for path in image_paths):
                return top, image_paths, notes
            notes = ()  # the user named the images of another split
    image_paths = image_files(images or folder)
    start = len((images or folder).parts)
    parts = ([part for part in path.parts[start:-1] if part in _SPLITS] for path in image_paths)
    count = Counter(splits[0] for splits in parts if splits)
    if len(count) > 1:
        listed = ", ".join(f"{name} {count[name]}" for name in _SPLITS if count[name])
        notes += (f"{images or folder}: {listed} images are read together; name one of the folders to read it alone",)
    return folder, image_paths, notes


def _images_of(file: Path, values: Mapping[str, Any], split: str = "train") -> tuple[Path, list[Path], tuple[str, ...]]:
    """Return the folder of the data set, the images of a split, and notes for the user."""
    path = str(values.get("path") or ".")
    tops = [file.parent / spelled for spelled in _spellings(path)]
    top = next((folder for folder in tops if folder.is_dir()), None)  # `path` is often a path of another machine
    notes: tuple[str, ...] = ()
    if top is None:
        notes = (f"{file}: path: {tops[0]} does not exist; its images are searched for beside the file",)
    stated = values.get(split) or "images"
    entries = stated if isinstance(stated, list) else [stated]
    paths: dict[str, Path] = {}
    listed = 0
    for entry in map(str, entries):
        # Roboflow writes ../train/images, Darknet data/train.txt.
        spelled = [*_spellings(entry), *_spellings(entry.removeprefix("../")), *_spellings(entry.removeprefix("data/"))]
        places = list(dict.fromkeys(start / name for start in (*tops, file.parent) for name in spelled))
        place = next((place for place in places if place.exists()), None)
        if place is None:
            expected = "expected a folder of images, or a list of them, found nothing at"
            raise InputError(f"{file}: {split}: {expected} {' or '.join(map(str, places))}")
        images = image_files(place) if place.is_dir() else _listed_images(place, top or file.parent)
        folder = place.resolve()
        for image in images:
            key = folder / image.relative_to(place) if place.is_dir() else image.absolute()
            paths.setdefault(os.path.normpath(key), image)
        listed += len(images)
    if listed > len(paths):
        notes += (f"{file}: {split}: {listed - len(paths)} images are named more than once, and read once",)
    if others := [name for name in _HELD_OUT if split == "train" and values.get(name)]:
        notes += (f"{file}: the training images are read; name the folder of {' or '.join(others)} to read it",)
    return top or file.parent, list(paths.values()), notes


def _spellings(path: str) -> list[str]:
    """Return a path as written, and with slashes in place of backslashes."""
    return list(dict.fromkeys((path, path.replace("\\", "/"))))


def _listed_images(file: Path, top: Path) -> list[Path]:
    """Return the images of a list, a path per line, relative to the folder of the list or of the data set."""
    paths, missing = [], []
    for line in filter(None, map(str.strip, read_text(file).splitlines())):
        name = line.replace("\\", "/")
        # CVAT writes data/ before each path.
        candidates = [start / part for part in (name, name.removeprefix("data/")) for start in (file.parent, top)]
        existing = next((candidate for candidate in candidates if candidate.is_file()), None)
        paths.append(existing or candidates[0])
        missing += [] if existing else [candidates]
    if paths and len(missing) == len(paths):
        tried = " or ".join(dict.fromkeys(map(str, missing[0])))
        raise InputError(f"{file}: none of the {len(paths)} listed images exists; the first was expected at {tried}")
    return paths


def _image(labelled: Labelled, root: Path, classes: ClassList) -> RawImage:
    path, label, fault = labelled
    name = _name(path, root)
    if label is None:
        return RawImage(name, str(path), fault=fault, notes=(WITHOUT_LABELS,))
    try:
        lines = enumerate(map(str.split, read_text(label).splitlines()), start=1)
    except InputError as error:
        return RawImage(name, str(label), fault=str(error))
    read = (RawObject("", (), f"{label}:{n}").tried(partial(_numbered, words, classes)) for n, words in lines if words)
    return RawImage(name, str(label), list(read))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path.resolve())


def _numbered(words: list[str], classes: ClassList, stated: RawObject) -> RawObject:
    values = [number(word) for word in words]
    class_number = int(values[0]) if values[0].is_integer() else None
    desc = classes.names.get(class_number, "") if class_number is not None else ""
    stated = stated._replace(desc=desc, unit="fractions", class_number=class_number)
    return stated.tried(partial(_object, values, classes))


def _object(values: list[float], classes: ClassList, stated: RawObject) -> RawObject:
    if values[0] not in classes.names:
        raise InputError(f"class {values[0]:g} has no name: there are {len(classes.names)}, counted from 0")
    if classes.kpt_shape:
        return _pose(stated, values, classes, *classes.kpt_shape)
    if len(values) == 6:
        stated = stated._replace(notes=(_SIXTH,), further=values[5])
    if len(values) in (5, 6):
        return _centred(stated, values[1:5])
    if len(values) >= 7 and len(values) % 2:
        outline = values[1:]
        note = _ORIENTED if len(outline) == 8 and _is_parallelogram(outline) else _OUTLINES
        return stated.outlined(outline, note)
    expected = "expected class, centre and size (5 numbers) or a polygon (an odd count of numbers)"
    if len(values) > 5 and len(values) % 3 == 2:
        points = (len(values) - 5) // 3
        expected += f", or {points} keypoints, which need kpt_shape: [{points}, 3] in data.yaml"
    raise InputError(f"{expected}, found {len(values)} numbers")


def _is_parallelogram(outline: Sequence[float]) -> bool:
    """Return whether both diagonals of four corners have the same middle, as those of a rotated rectangle have."""
    first, second = ((outline[at] + outline[at + 4], outline[at + 1] + outline[at + 5]) for at in (0, 2))
    return math.dist(first, second) < _SAME_MIDDLE


def _without_angles(images: Sequence[RawImage]) -> list[RawImage]:
    """Return the images with refused objects where the sixth numbers are neither confidences nor track ids."""
    sixth = [stated.further for image in images for stated in image.objects if _SIXTH in stated.notes]
    if sixth and all(value == 1 for value in sixth):
        renamed = {_SIXTH: _SIXTH_1}
        return [
            image._replace(objects=[o._replace(notes=tuple(renamed.get(n, n) for n in o.notes)) for o in image.objects])
            for image in images
        ]
    if all(0 <= value <= 1 or value.is_integer() for value in sixth):
        return list(images)
    fault = (
        "expected a confidence or a track id as the sixth number, of which the set has others, up to "
        f"{max(sixth):g}: write rotated boxes by their four corners (YOLO OBB), or keep the first five numbers"
    )

    def refused(stated: RawObject) -> RawObject:
        return stated._replace(fault=stated.fault or fault) if _SIXTH in stated.notes else stated

    return [image._replace(objects=list(map(refused, image.objects))) for image in images]


def _without_tracks(images: Sequence[RawImage], path: Path) -> list[RawImage]:
    """Return the images with boxes in place of triangles where all rows end with confidence and track id."""
    outlines = [stated.outlines[0] for image in images for stated in image.objects if stated.outlines]
    # The numbers after the class can be a box, a confidence and a track id.
    have_tracks = all(len(row) == 6 and 0 <= row[4] <= 1 and row[5] % 1 == 0 for row in outlines)
    if not outlines or not have_tracks or not begin_with_boxes(outlines):
        return list(images)
    if max(map(max, outlines)) <= 1 + SLACK:
        raise InputError(
            f"{path}: expected boxes or polygons, found {counted(len(outlines), 'row')} of seven numbers that can be "
            "both: for boxes with a confidence and a track id, keep the first five numbers of each row; for triangles, "
            "write one of their vertices twice"
        )

    def box(stated: RawObject) -> RawObject:
        if not stated.outlines:
            return stated
        return _centred(stated._replace(outlines=(), as_box=(), notes=(_TRACKED,)), stated.outlines[0][:4])

    return [image._replace(objects=list(map(box, image.objects))) for image in images]


def _recentred(images: Sequence[RawImage], root: Path) -> list[RawImage]:
    """Return the images with the boxes of Supervisely, whose centres are cut off to whole pixels, where they are."""
    from coord_data.looking.image_file import ImageFolder  # which loads NumPy

    folder = ImageFolder(root)

    def moved(stated: RawObject, size: tuple[int, int]) -> RawObject:
        if stated.fault or stated.outlines or len(stated.corners_xyxy) != 4:
            return stated
        x1, y1, x2, y2 = (
            round(value * 2 * side) / 2 for value, side in zip(stated.corners_xyxy, size * 2, strict=True)
        )
        # The centre of an even number of pixels lies a pixel before that of their edges, of an odd one half a pixel.
        dx, dy = (1 - extent % 2 / 2 for extent in (x2 - x1, y2 - y1))
        moved = ((x1 + dx) / size[0], (y1 + dy) / size[1], (x2 + dx) / size[0], (y2 + dy) / size[1])
        return stated._replace(corners_xyxy=moved, notes=(*stated.notes, _CUT_CENTRES))

    sizes = (folder.size(image.name) if image.objects and image.name else None for image in images)
    pairs = zip(images, sizes, strict=True)
    return [
        image if size is None else image._replace(objects=[moved(stated, size) for stated in image.objects])
        for image, size in pairs
    ]


def _centred(stated: RawObject, numbers: list[float]) -> RawObject:
    """Return an object with the box of a centre and a size."""
    cx, cy, width, height = numbers
    fault = ""
    if max(numbers) > 2:
        fault = f"expected fractions of the image, found {numbers}: pixels?"
    elif width < 0 or height < 0:
        fault = f"expected a width and height of at least 0, found {width:g} x {height:g}"
    corners = (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)
    return stated._replace(corners_xyxy=corners, fault=fault)


def _pose(stated: RawObject, values: list[float], classes: ClassList, points: int, numbers_each: int) -> RawObject:
    """Return an object with the box and the keypoints of a row; without visibility a point at 0, 0 is not labelled."""
    if len(values) != 5 + points * numbers_each:
        raise InputError(
            f"kpt_shape is [{points}, {numbers_each}]: expected class, centre, size and {points} keypoints "
            f"({5 + points * numbers_each} numbers), found {len(values)} numbers"
        )
    keypoints: list[float] = []
    for at in range(5, len(values), numbers_each):
        x, y = values[at : at + 2]
        keypoints += [x, y, values[at + 2] if numbers_each == 3 else 2.0 * bool(x or y)]
    left_out = ("keypoints left out: only the boxes of poses (kpt_shape) are read",) * points
    stated = stated._replace(keypoints=keypoints, keypoint_names=classes.keypoint_names, as_box=left_out)
    return _centred(stated, values[1:5])


def _example(row: str, more: str = "") -> Example:
    files = {"data.yaml": f"train: images\nnames: [cat]\n{more}", "labels/a.txt": f"0 {row}\n"}
    return Example(files, "data.yaml", "images/a.jpg")


FORMAT = AnnotationFormat(
    "yolo",
    "YOLO labels",
    "a text file an image, with class, centre and size a line in fractions, and the class names in `data.yaml`",
    {
        "box": _example("0.4 0.5 0.4 0.6"),
        "polygon": _example("0.2 0.2 0.6 0.2 0.6 0.8 0.4 0.8 0.2 0.8"),
        "oriented": _example("0.2 0.2 0.6 0.2 0.6 0.8 0.2 0.8"),
        "keypoints": _example("0.4 0.5 0.4 0.6 0.2 0.2 2 0.6 0.8 1", "kpt_shape: [2, 3]\nflip_idx: [1, 0]\n"),
    },
    recognise,
    read,
    has_label_files=has_labels,
    file_an_image=True,
)
