"""Reads a folder of text files as predictions: YOLO's label files, one an image, and MOT results, one a video.

Both leave to the ground truth what they do not state: label files the size of each image, MOT results the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coord_codec.commands.foreign import ADVICE, tool_of
from coord_codec.counts import counted
from coord_codec.files import InputError, read_text
from coord_eval.intake.records import SourceRecords
from coord_eval.intake.results import Form

_NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")
"""Files that name the classes of label files, in the order in which they are looked for."""
_ABOVE = 3
"""Number of folders above that of the label files in which such a file may lie."""
_OUTSIDE = 0.5
"""How far a fraction may lie outside its image; numbers beyond are in another unit."""
_OUTLINES = 10
"""Numbers of a line from which lines that all have as many are no outlines, whose lengths differ, but keypoints."""


class _Classes(NamedTuple):
    """Names by class number, None where no file names them; keypoints of an object and numbers of a keypoint."""

    names: Mapping[int, str] | None = None
    keypoints: tuple[int, int] | None = None


def read_text_files(path: Path) -> SourceRecords:
    """Read a folder of text files, with `labels` below it as Ultralytics writes it, or one file of such a folder.

    A line of a label file is `class x y width height`, or `class x1 y1 x2 y2 ...` for an outline, in fractions of the
    image, and ends with a confidence if it was saved (`save_conf=True`); without one it is 1. The names of classes are
    those of data.yaml, classes.txt or obj.names in the folder or up to three folders above it. A line of MOT results is
    `frame, id, left, top, width, height, confidence, ...` in pixels.

    Raises:
        InputError: naming file and line
    """
    folder = path if path.is_dir() else path.parent
    root = path / "labels" if (path / "labels").is_dir() else folder
    found = sorted(root.rglob("*.txt")) if path.is_dir() else [path]
    files = [file for file in found if file.name not in _NAME_FILES]
    if not files:
        raise InputError(
            f"{path}: expected a folder with predictions (.json or .jsonl) or with a label file (.txt) for each image, "
            f"found {_content(path)}"
        )
    written = [file for file in files if file.stat().st_size]
    tool = tool_of(written[0]) if written else ""
    if tool == "MOT":
        return SourceRecords.placed((row for file in files for row in _of_mot(file)), form=Form.FRAMES)
    if tool not in ("", "YOLO labels"):
        raise InputError(f"{written[0]}: a file of {tool}, {ADVICE.replace('COCO JSON', 'a COCO results list')}")
    classes = _classes(folder)
    form = Form.CLASSES if classes.names is None else Form.LABELS
    return SourceRecords.placed(
        _of_labels(files, root, classes), form=form, images=[_image_of(file, root) for file in files]
    )


def _content(path: Path) -> str:
    kinds = sorted({file.suffix or file.name for file in path.iterdir()})
    return f"{', '.join(kinds[:5])} files" if kinds else "nothing"


def _lines(file: Path, separator: str | None) -> Iterator[tuple[list[float], str]]:
    """Yield the numbers of each line, and its place."""
    for n, line in enumerate(read_text(file).splitlines(), 1):
        words = line.split(separator)
        if not line.strip():
            continue
        try:
            yield [float(word) for word in words if word.strip()], f"{file}, line {n}"
        except ValueError:
            raise InputError(f"{file}, line {n}: expected numbers, found {line!r:.80}") from None


def _image_of(file: Path, root: Path) -> str:
    """Return the name of the image of a label file, without its suffix."""
    return file.relative_to(root).with_suffix("").as_posix()


def _of_labels(files: Sequence[Path], root: Path, classes: _Classes) -> Iterator[tuple[dict[str, Any], str]]:
    lines = [(_image_of(file, root), *line) for file in files for line in _lines(file, None)]
    # `track` writes the number of the object last, so that this is whole in all lines.
    tracked = all(v[-1] % 1 == 0 for _, v, _ in lines) and any(v[-1] > 1 for _, v, _ in lines if len(v) > 5)
    counts = {len(values) for _, values, _ in lines}
    if classes.keypoints is None and len(lines) > 2 and len(counts) == 1 and min(counts) - tracked > _OUTLINES:
        raise InputError(
            f"{root}: all {len(lines)} lines have {min(counts)} numbers, as keypoints have and outlines have not: "
            "put data.yaml with the names of classes and kpt_shape beside them"
        )
    for image, values, place in lines:
        number, *numbers = values[:-1] if tracked else values
        if number < 0 or number % 1 or len(numbers) < 4:
            raise InputError(
                f"{place}: expected a whole class number, x, y, width and height (or an outline), and a confidence, "
                f"found {values!r:.80}"
            )
        if classes.names is not None and number not in classes.names:
            known = counted(len(classes.names), "class", "classes")
            raise InputError(f"{place}: class {number:g} is not named: the list of names has {known}")
        category = int(number) if classes.names is None else classes.names[int(number)]
        record: dict[str, Any] = {"image": image, "category_id": category, "category": category}
        yield record | _shape(numbers, classes.keypoints, place), place


def _shape(numbers: list[float], keypoints: tuple[int, int] | None, place: str) -> dict[str, Any]:
    """Return box, outline or keypoints of a line, and its confidence."""
    each = keypoints[1] if keypoints else 2
    of_points = 4 + keypoints[0] * each if keypoints else 0
    has_score = len(numbers) == of_points + 1 if keypoints else len(numbers) % 2 == 1
    score = numbers[-1] if has_score else 1.0
    numbers = numbers[:-1] if has_score else numbers
    if keypoints and len(numbers) != of_points:
        raise InputError(
            f"{place}: expected {of_points} numbers, as kpt_shape {list(keypoints)} says, found {len(numbers)}"
        )
    places = numbers[:4] if keypoints else numbers
    if min(places) < -_OUTSIDE or max(places) > 1 + _OUTSIDE:
        raise InputError(f"{place}: expected fractions of the image, found {min(places):g} to {max(places):g}")
    if len(places) != 4:
        return {"segmentation": [places], "score": score}
    x, y, width, height = places
    box = {"bbox": [x - width / 2, y - height / 2, width, height], "score": score}
    points = [numbers[n : n + each] for n in range(4, len(numbers), each)]
    return box | ({"keypoints": [v for x, y, *seen in points for v in (x, y, *(seen or (2.0,)))]} if points else {})


def _of_mot(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for values, place in _lines(file, ","):
        if len(values) < 7 or values[0] % 1:
            raise InputError(f"{place}: expected frame, id, left, top, width, height, confidence, found {values!r:.80}")
        image = f"{file.stem}/{values[0]:.0f}"
        yield {"image": image, "category_id": 0, "bbox": values[2:6], "score": values[6]}, place


def _classes(folder: Path) -> _Classes:
    """Return what a file beside or above a folder says of the classes."""
    for place in (folder, *folder.resolve().parents[:_ABOVE]):
        for file in (place / name for name in _NAME_FILES):
            if file.is_file() and (found := _classes_in(file)).names:
                return found
    return _Classes()


def _classes_in(file: Path) -> _Classes:
    text = read_text(file)
    if file.suffix not in (".yaml", ".yml"):
        return _Classes({n: line for n, line in enumerate(map(str.strip, text.splitlines())) if line})
    try:
        import yaml
    except ImportError as error:
        raise InputError(f"{file}: the names of classes need PyYAML; pip install pyyaml") from error
    try:
        # As written: YAML would turn the name yes into True, and 12:30 into 750.
        values = yaml.load(text, Loader=yaml.BaseLoader)
        names, shape = (values.get(key) if isinstance(values, Mapping) else None for key in ("names", "kpt_shape"))
        if not isinstance(names, Mapping | list | None):
            raise TypeError(f"found {names!r:.80}")
        pairs = names.items() if isinstance(names, Mapping) else enumerate(names or ())
        count, each = map(int, shape) if shape else (0, 0)
        return _Classes({int(number): str(name) for number, name in pairs}, (count, each) if count else None)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(f"{file}: names: expected class names by number: {' '.join(str(error).split())}") from None
