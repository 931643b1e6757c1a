"""`prepare`: converts annotations of any format to instance JSONL, problems.jsonl and a summary, split by image."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from coord_codec import InputError, Instance, Problem
from coord_codec.arguments import expect
from coord_codec.counts import counted, counted_note
from coord_codec.files import atomic_write, write_text
from coord_codec.records import phrase_of
from coord_data.formats.coco import SUMMARY
from coord_data.formats.registry import open_source
from coord_data.inspection.numbers.without_pixels import REREAD, findings_of_set
from coord_data.looking.image_file import ImageFolder
from coord_data.looking.image_paths import image_files, is_hidden
from coord_data.looking.looks import Looks, merge
from coord_data.preparing.choice import Choice
from coord_data.preparing.output_folder import output_folder
from coord_data.preparing.selection import Dropped, drawn, split_by_content, without_duplicates
from coord_data.reading.image_set import ImageSet, load_annotated
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records
from coord_data.sources.source import Source

_LOG = logging.getLogger(__name__)
_SHOWN = 5

RECORDS, LOOKS = "instances.jsonl", "looks.parquet"
"""Names of the records of a folder that is not split, and of what looks at the images of a part told."""

PART = "part"
"""Key of the summary of a part: its rules, and whether its records have ids."""


def prepare(
    sources: Sequence[Path | Source], out: Path, data: ReadingRules, split: float | None = None, **chosen: Any
) -> None:
    """Write the usable records of `sources`, with image paths relative to the written files.

    Args:
        sources: files or folders of annotations, or what `open_source` returned for them; the last one may be the
            folder of their images
        out: a new folder, or a new file if its name ends in .jsonl
        data: `images`, `format`, `on_bad_box`, `allow_outside`, `read_as` and `strict`
        split: share of the images that go to val.jsonl, chosen by a hash of their content
        chosen: further fields of `Choice`

    Raises:
        InputError: the annotations are invalid or have no box, (`strict`) any record is invalid, there are fewer
            images than `count`, or images are chosen from a part.
        RunError: `out` cannot be written.
    """
    expect("sources", sources, Sequence)
    for i, source in enumerate(sources):
        expect(f"sources[{i}]", source, Path, Source)
    expect("out", out, Path)
    expect("data", data, ReadingRules)
    choice = Choice(split, **chosen)
    folder = choice.folder_of(out)
    sets = _load(sources, data)
    faults = [problem for loaded in sets for problem in loaded.problems]
    records, has_ids = with_unique_ids(_moved(sets, folder))
    if not choice.as_part:
        _require_boxes(records, sets, faults)
    facts = _facts(sets, folder, faults)
    if data.read_as is not None:
        facts[REREAD] = str(data.read_as)
    if choice.as_part:
        facts[PART] = {"rules": data.model_dump(mode="json", exclude={"images", "format"}), "has_ids": has_ids}
    names, looks = _looks(sets, records) if choice.needs_looks else ([], Looks.of(()))
    write_chosen(out, records, names, looks, facts, faults, choice)
    if data.allow_outside:
        _LOG.info("images may lie outside their folder: allow that wherever this is read (--allow-outside)")


def has_boxes(records: Records) -> bool:
    """Return whether there is a box, or a phrase, which may have no answer."""
    return bool(records.class_counts) or any(map(phrase_of, records))


def write_chosen(
    out: Path,
    records: Records,
    names: Sequence[str],
    looks: Looks,
    facts: dict[str, Any],
    faults: Sequence[Problem],
    choice: Choice,
) -> None:
    """Choose and write records, and say so.

    The paths of the images, each once, and what a look at each told may be empty if `choice` needs no looks. What
    is chosen is added to `facts`, what the summary says of the sources; `faults` is what was left out.
    """
    instances: Sequence[Instance] = records
    dropped: list[Dropped] = []
    near: list[dict[str, object]] = []
    if choice.drop_duplicates is not None:
        instances, dropped = without_duplicates(instances, names, looks, choice.drop_duplicates, join=choice.join_boxes)
        facts["dropped_duplicates"] = [asdict(row) for row in dropped]
    if choice.count is not None:
        instances = drawn(instances, choice.count, choice.seed)
        facts["drawn"] = {"count": choice.count, "seed": choice.seed}
    parts: Mapping[str, Sequence[Instance]] = {out.name if out.suffix == ".jsonl" else RECORDS: instances}
    if choice.split is not None:
        parts, near = split_by_content(instances, names, looks, choice.split)
        facts["near_duplicates"] = near
    written = {name: Records.of(part) for name, part in parts.items()}
    _write(out, written, facts, [*faults, *(row.problem for row in dropped)], looks if choice.as_part else None)
    _report(out, written, facts, near, faults)
    if choice.drop_duplicates is not None:
        _report_duplicates(dropped, choice.join_boxes)


def _report_duplicates(dropped: Sequence[Dropped], join_boxes: bool) -> None:
    """Say how many duplicates were left out, and what became of boxes that only they have."""
    line = f"{counted(len(dropped), 'duplicate image')} left out (--drop-duplicates)"
    if dropped:
        line += f", for example {dropped[0].image}, as {dropped[0].kept} is kept"
    if other := sum(not row.same_boxes for row in dropped):
        become = "joined" if join_boxes else "lost; --join-boxes keeps them"
        line += f"; {other} of them had other boxes, which are {become}"
    _LOG.info(line)


def written_to(out: Path) -> tuple[Path, ...]:
    """Return the paths that `prepare` writes: a folder, or a file and the files beside it.

    Example:
        >>> [path.name for path in written_to(Path("a.jsonl"))]
        ['a.jsonl', 'a.summary.json', 'a.problems.jsonl']
    """
    return (out, out.with_suffix(SUMMARY), _problems_of(out)) if out.suffix == ".jsonl" else (out,)


def _problems_of(out: Path) -> Path:
    return out.with_name(f"{out.stem}.problems.jsonl") if out.suffix == ".jsonl" else out / "problems.jsonl"


def _images_of(sources: Sequence[Path | Source], images: Path | None) -> list[tuple[Path | Source, Path | None]]:
    """Return the annotations with their image folders; the last source may be the image folder of all others."""
    paths = [_named_path(source) for source in sources]
    if missing := next((path for path in paths[1:] if not path.exists()), None):
        raise InputError(f"{missing}: expected annotations, or a folder of images, found nothing there; check the path")
    *others, last = paths
    if images is None and others and last.is_dir():
        contains_images = [path.is_dir() and last.resolve().is_relative_to(path.resolve()) for path in others]
        if others[0].is_dir() and any(contains_images):
            return [
                (source, last if contains else None)
                for source, contains in zip(sources[:-1], contains_images, strict=True)
            ]
        if not others[0].is_dir() or _is_of_images(last, others[0]):
            return [(source, last) for source in sources[:-1]]
    return [(source, images) for source in sources]


def _load(sources: Sequence[Path | Source], data: ReadingRules) -> list[ImageSet]:
    """Return the images and records of each source."""
    return [
        load_annotated(path, data.model_copy(update={"images": images}), name=str(_named_path(path)))
        for path, images in _images_of(sources, data.images)
    ]


def _require_boxes(records: Records, sets: Sequence[ImageSet], faults: Sequence[Problem]) -> None:
    """Raise an `InputError` with the reason if no image has a box."""
    if not has_boxes(records):
        images = f"{counted(len(records), 'image')} of {', '.join(loaded.name for loaded in sets)}"
        raise InputError(f"{images}: expected boxes, found none; {_why_empty(sets, records, faults)}")


def _why_empty(sets: Sequence[ImageSet], instances: Sequence[Instance], faults: Sequence[Problem]) -> str:
    """Return why no image has a box."""
    if faults:
        return f"the first problem: {faults[0]}"
    objects = [item for instance in instances for item in instance.objects]
    if objects:
        is_or_are = (
            "the only object is a crowd region" if len(objects) == 1 else f"all {len(objects)} objects are crowds"
        )
        return (
            f"{is_or_are} (iscrowd), which no model is trained on; some tools write an object with a hole so: set "
            "iscrowd to 0 where it is one object"
        )
    notes = [counted_note(count, note) for loaded in sets for note, count in loaded.annotations.notes.items()]
    return "; ".join(notes) or "check that these are the files with the labels"


def _named_path(source: Path | Source) -> Path:
    """Return the path that the user named."""
    return source.named if isinstance(source, Source) else source


def _is_of_images(folder: Path, annotations: Path) -> bool:
    """Return whether a folder has no annotations, or only images while the annotations' folder has none."""
    try:
        open_source(folder)
    except InputError:
        return True
    files = [path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder)]
    return len(image_files(folder)) == len(files) and not image_files(annotations)


def _moved(sets: Sequence[ImageSet], folder: Path) -> list[Records]:
    """Return the records of each set with paths relative to `folder`."""
    return [with_paths_from(loaded.root.resolve(), folder, Records.of(loaded.instances)) for loaded in sets]


def with_paths_from(root: Path, folder: Path, records: Records) -> Records:
    """Return records whose paths are relative to `folder` instead of `root`."""
    start = os.path.relpath(root, folder)
    names = [os.path.normpath(os.path.join(start, name)) for name in records.names]  # noqa: PTH118 - of a million names
    return records.renamed([PurePath(name).as_posix() for name in names])


def with_unique_ids(parts: Sequence[Records], *, have_ids: bool = True) -> tuple[Records, bool]:
    """Return all records, and whether they keep their ids: all ids are left out if several records share one."""
    joined = Records.joined(parts)
    ids = Counter(image_id for image_id in joined.image_id_texts if image_id is not None)
    if have_ids and not (shared := any(count > 1 for count in ids.values())):
        return joined, True
    if have_ids and shared:
        _LOG.info("several sources share image ids: all image ids are left out")
    return joined.without_ids(), False


def _looks(sets: Sequence[ImageSet], records: Records) -> tuple[list[str], Looks]:
    """Return the path of each image once, as the written records have it, and what a look at each image told."""
    parts = list[Looks]()
    for loaded in sets:
        folder = ImageFolder(loaded.root) if loaded.evidence is None else loaded.evidence.folder
        parts.append(folder.look_at_all(Records.of(loaded.instances).names, label=f"{loaded.name} images"))
    return looks_by_name(records.names, parts)


def looks_by_name(names: Sequence[str], parts: Sequence[Looks]) -> tuple[list[str], Looks]:
    """Return each name once, and the look at it."""
    numbered, first = list[Looks](), 0
    for looks in parts:
        numbered.append(looks.numbered(np.arange(first, first + len(looks))))
        first += len(looks)
    first_place: dict[str, int] = {}
    for i, name in enumerate(names):
        first_place.setdefault(name, i)
    return list(first_place), merge(numbered).take(np.array(list(first_place.values()), np.int64))


def _facts(sets: Sequence[ImageSet], folder: Path, faults: Sequence[Problem]) -> dict[str, Any]:
    """Return what the summary says of the sources."""
    findings = [str(finding) for loaded in sets for finding in findings_of_set(loaded)]
    return {
        "images": os.path.relpath(os.path.commonpath([(s.base or s.root).resolve() for s in sets]), folder),
        "sources": [{"path": loaded.name, "digest": loaded.digest} for loaded in sets],
        "notes": dict(sum((Counter(loaded.annotations.notes) for loaded in sets), Counter())),
        "told": [*(line for loaded in sets for line in loaded.notes), *_note_shared(sets), *findings],
        "problems": len(faults),
    }


def _note_shared(sets: Sequence[ImageSet]) -> list[str]:
    """Return a note if images occur in several sources, and so in several records."""
    roots = [(loaded.root.resolve(), Records.of(loaded.instances).names) for loaded in sets if len(sets) > 1]
    places = [sorted({os.path.normpath(root / name) for name in names}) for root, names in roots]
    shared = [path for path, count in Counter(chain(*places)).items() if count > 1]
    images = counted(len(shared), "image has", "images have")
    return [f"{images} a record in each of several sources, such as {shared[0]}"] if shared else []


def _write(
    out: Path,
    parts: Mapping[str, Records],
    facts: Mapping[str, object],
    left_out: Sequence[Problem],
    looks: Looks | None,
) -> None:
    """Write the records of each part with a summary, the problems, and looks without their thumbnails."""
    single = out.suffix == ".jsonl"
    with output_folder(out, single) as output:
        for name, part in parts.items():
            with atomic_write(output / name) as file:
                file.writelines(f"{line}\n" for line in part.lines())
            classes = part.class_counts
            counts = {"records": len(part), "boxes": classes.total(), "classes": dict(classes.most_common())}
            summary = json.dumps({**counts, **facts}, indent=2, ensure_ascii=False)
            write_text((output / name).with_suffix(SUMMARY), summary + "\n")
        if left_out or not single:
            lines = "".join(json.dumps(asdict(problem)) + "\n" for problem in left_out)
            write_text(output / _problems_of(out).name, lines)
        if looks is not None:
            light = replace(looks, thumbnails={}).numbered(np.arange(len(looks)))
            light.write(output / LOOKS, PART)


def _report(
    out: Path,
    parts: Mapping[str, Records],
    facts: Mapping[str, Any],
    near: Sequence[Mapping[str, object]],
    faults: Sequence[Problem],
) -> None:
    """Say what was written, and what was noted on the way."""
    for name, part in parts.items():
        boxes = counted(int(part.target_counts.sum()), "box", "boxes")
        _LOG.info(f"{counted(len(part), 'record')}, {boxes} in {out if out.suffix == '.jsonl' else out / name}")
    for line in (*facts["told"], *(counted_note(count, reason) for reason, count in facts["notes"].items())):
        _LOG.info(line)
    if near:
        _LOG.info(
            f"{counted(len(near), 'image of val looks', 'images of val look')} like one of train, for example "
            f"{near[0]['val']} and {near[0]['train']}"
        )
    for problem in faults[:_SHOWN]:
        _LOG.info(f"left out: {problem}")
    if len(faults) > _SHOWN:
        _LOG.info(f"{len(faults)} problems in all, see {_problems_of(out)}")
