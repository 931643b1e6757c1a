"""`load`, `inspect` and `prepare`: the commands in Python, with results that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.files import read_json
from coord_codec.other_words import argument_hint, use
from coord_codec.pages import fragment, notes, table
from coord_data.formats.coco import SUMMARY
from coord_data.formats.registry import open_source
from coord_data.inspection.examine import Examination, evidence_of
from coord_data.inspection.find_data import examine_named, find_data
from coord_data.inspection.rules import InspectionRules
from coord_data.preparing.preparation import prepare as write_prepared
from coord_data.preparing.preparation import written_to
from coord_data.reading.image_set import ImageSet, load_annotated
from coord_data.reading.rules import ReadingRules
from coord_data.remote import image_folder, local_path

if TYPE_CHECKING:
    from coord_data.sources.source import Source

Rules = TypeVar("Rules", bound=ReadingRules)


@dataclass(frozen=True)
class Prepared:
    """What `prepare` has written.

    Attributes:
        out: the folder, or the file of records
        summaries: the summary of each file of records: its counts, classes and notes
    """

    out: Path
    summaries: dict[str, dict[str, Any]]

    def __repr__(self) -> str:
        parts = (f"{name}: {s['records']:,} records, {s['boxes']:,} boxes" for name, s in self.summaries.items())
        return f"<Prepared: {self.out}: {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = [(name, s["records"], s["boxes"], s["problems"]) for name, s in self.summaries.items()]
        return fragment(table(("file", "records", "boxes", "left out"), rows) + notes([f"written to {self.out}"]))


def load(annotations: str | Path, images: str | Path | None = None, **rules: Any) -> ImageSet:
    """Read annotations of any format, and check every image.

    Args:
        annotations: a file, or a folder of them
        images: folder that image paths are relative to; found beside the annotations if it is not given
        rules: fields of `ReadingRules`, such as `format="yolo"` or `read_as="xyxy,percent"`

    Raises:
        InputError: the annotations are unreadable, no image is usable, or a rule is invalid.

    Example:
        >>> load("nowhere.json")
        Traceback (most recent call last):
        coord_codec.files.InputError: nowhere.json: expected annotations, found nothing there; check the path
    """
    path, folder = _found(annotations, images)
    return load_annotated(path, _rules(ReadingRules, images=folder, **rules), name=path.stem)


def inspect(
    annotations: str | Path, images: str | Path | None = None, *, heldout: str | Path | None = None, **rules: Any
) -> Examination:
    """Examine data before training: the findings about annotations and images, with evidence and remedy.

    Args:
        annotations: a file, a folder of them, or a folder written by `prepare`
        images: folder that image paths are relative to
        heldout: held-out annotations, which are compared with the data
        rules: fields of `InspectionRules`, such as `max_objects=50`, `min_side=32` or `format="yolo"`

    Raises:
        InputError: the annotations cannot be read, or a rule is invalid.
    """
    path, folder = _found(annotations, images)
    read_by = _rules(InspectionRules, images=folder, **rules)
    held = None if heldout is None else evidence_of(local_path(heldout), read_by.model_copy(update={"images": None}))
    return examine_named(open_source(path, read_by.format, read_by.fields), read_by, held)


def prepare(
    sources: str | Path | Source | Sequence[str | Path | Source],
    out: str | Path,
    data: ReadingRules | None = None,
    split: float | None = None,
    *,
    images: str | Path | None = None,
    **options: Any,
) -> Prepared:
    """Convert annotations of any format to instance JSONL, and list what is left out.

    Args:
        sources: files or folders of annotations; the last one may be the folder of their images
        out: a new folder, or a new file if its name ends in .jsonl
        data: how they are read; the fields of `ReadingRules` may be given by name instead
        split: share of the images that go to val.jsonl, chosen by a hash of their content
        images: folder that image paths are relative to
        options: `drop_duplicates`, `join_boxes`, `count`, `seed` and `as_part` of the command, and fields of
            `ReadingRules`

    Raises:
        InputError: the annotations are invalid, have no box, or `out` exists.
    """
    named = [sources] if isinstance(sources, str) or not isinstance(sources, Sequence) else sources
    paths = [local_path(source) if isinstance(source, str) else source for source in named]
    rules = {name: options.pop(name) for name in list(options) if name in ReadingRules.model_fields}
    if data is None:
        data = _rules(ReadingRules, images=image_folder(images) if images is not None else None, **rules)
    elif rules or images is not None:
        raise InputError(f"data: it has all rules; put {next(iter(rules), 'images')} into it")
    expect("out", out, str, Path)
    place = Path(out)
    if taken := [path for path in written_to(place) if path.exists()]:
        raise InputError(f"out: {taken[0]} exists already; choose another name or move it away")
    write_prepared(paths, place, data, split, **options)
    files = [place] if place.suffix == ".jsonl" else sorted(place.glob(f"*{SUMMARY}"))
    read = {file.name.removesuffix(SUMMARY).removesuffix(".jsonl"): file.with_suffix("") for file in files}
    return Prepared(place, {f"{name}.jsonl": read_json(file.with_suffix(SUMMARY)) for name, file in read.items()})


def _found(annotations: str | Path, images: str | Path | None) -> tuple[Path, Path | None]:
    return find_data(local_path(annotations), image_folder(images) if images is not None else None)


def _rules(kind: type[Rules], **values: Any) -> Rules:
    try:
        return kind(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            known = f"known are {', '.join(kind.model_fields)}"
            raise InputError(f"{name}: no such rule; {known}{use(argument_hint(name))}") from None
        raise InputError(f"{name}: {fault['msg'].removeprefix('Value error, ')}") from None
