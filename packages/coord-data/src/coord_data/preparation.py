"""`prepare`: converts annotations of any format to instance JSONL, problems.jsonl and a summary, split by image."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from coord_codec import InputError, Instance, Problem, RunError, write_instances
from coord_codec.arguments import expect
from coord_codec.counts import counted, counted_note
from coord_codec.files import write_text
from coord_data.alike import boxes_by_image, duplicates_in, same_boxes_of
from coord_data.duplicates import is_same, near_duplicates
from coord_data.formats.coco import SUMMARY
from coord_data.formats.registry import open_source
from coord_data.image_file import ImageFile, look_at
from coord_data.image_paths import image_files, is_hidden
from coord_data.image_set import ImageSet, load_annotated
from coord_data.rules import ReadingRules
from coord_data.source import Source

_LOG = logging.getLogger(__name__)
_SHOWN = 5


DropDuplicates = Literal["exact", "near"]
"""Which images are left out: equal files, or also copies of another size or quality."""


def prepare(
    sources: Sequence[Path | Source],
    out: Path,
    data: ReadingRules,
    split: float | None = None,
    *,
    drop_duplicates: DropDuplicates | None = None,
    count: int | None = None,
    seed: int = 0,
) -> None:
    """Write the usable records of `sources`, with image paths relative to the written files.

    Args:
        sources: files or folders of annotations, or what `open_source` returned for them; the last one may be the
            folder of their images
        out: a new folder, or a new file if its name ends in .jsonl
        data: `images`, `format`, `on_bad_box`, `allow_outside`, `read_as` and `strict`
        split: share of the images that go to val.jsonl, chosen by a hash of their content
        drop_duplicates: keep the first of equal files, or also of copies; all images if None
        count: number of images that are drawn from those that are left, in their order; all if None
        seed: decides which images are drawn

    Raises:
        InputError: the annotations are invalid, (`strict`) any record is, or there are fewer images than `count`.
        RunError: `out` cannot be written.
    """
    expect("sources", sources, Sequence)
    for i, source in enumerate(sources):
        expect(f"sources[{i}]", source, Path, Source)
    expect("out", out, Path)
    expect("data", data, ReadingRules)
    single = out.suffix == ".jsonl"
    if single and split is not None:
        raise InputError(f"--split writes two files, but --out {out} is one; name a folder")

    # Read the sources.
    sets = [
        load_annotated(path, data.model_copy(update={"images": images}), name=str(_named(path)))
        for path, images in _images_of(sources, data.images)
    ]
    folder = (out.parent if single else out).resolve()
    instances = list(_instances(sets, folder))
    faults = [problem for loaded in sets for problem in loaded.problems]
    facts: dict[str, object] = {
        "images": os.path.relpath(os.path.commonpath([(s.base or s.root).resolve() for s in sets]), folder),
        "sources": [{"path": loaded.name, "digest": loaded.digest} for loaded in sets],
        "notes": dict(sum((Counter(loaded.annotations.notes) for loaded in sets), Counter())),
        "told": [*(line for loaded in sets for line in loaded.notes), *_note_shared(sets)],
        "problems": len(faults),
    }

    # Choose the images.
    files = [] if split is None and drop_duplicates is None else [file for loaded in sets for file in _looks(loaded)]
    dropped: list[dict[str, object]] = []
    if drop_duplicates is not None:
        kept, dropped = _without_duplicates(instances, files, drop_duplicates)
        instances, files = [instances[i] for i in kept], [files[i] for i in kept]
        facts["dropped_duplicates"] = dropped
    if count is not None:
        kept = _drawn(instances, count, seed)
        instances, files = [instances[i] for i in kept], [files[i] for i in kept] if files else []
        facts["drawn"] = {"count": count, "seed": seed}
    parts = {out.name if single else "instances.jsonl": instances}
    near: list[dict[str, object]] = []
    if split is not None:
        parts, near = _split(instances, files, split)
        facts["near_duplicates"] = near

    # Write the files.
    problems = _problems_beside(out) if single else out / "problems.jsonl"
    left_out = [*faults, *(_problem_of_copy(row) for row in dropped)]
    with _output_folder(out, single) as output:
        for name, part in parts.items():
            write_instances(output / name, part)
            classes = Counter(target.desc for instance in part for target in instance.targets)
            counts = {"records": len(part), "boxes": classes.total(), "classes": dict(classes.most_common())}
            summary = json.dumps(counts | facts, indent=2, ensure_ascii=False)
            write_text((output / name).with_suffix(SUMMARY), summary + "\n")
        if left_out or not single:
            write_text(output / problems.name, "".join(json.dumps(asdict(problem)) + "\n" for problem in left_out))

    # Report what was done.
    for name, part in parts.items():
        boxes = counted(sum(len(i.targets) for i in part), "box", "boxes")
        _LOG.info(f"{counted(len(part), 'record')}, {boxes} in {out if single else out / name}")
    if drop_duplicates is not None:
        _LOG.info(_dropped_line(dropped))
    if data.allow_outside:
        _LOG.info("images may lie outside their folder: set data.allow_outside=true wherever this is read")
    _report(sets, near, faults, problems)


def written_to(out: Path) -> tuple[Path, ...]:
    """Return the paths that `prepare` writes: a folder, or a file and the files beside it.

    Example:
        >>> [path.name for path in written_to(Path("a.jsonl"))]
        ['a.jsonl', 'a.summary.json', 'a.problems.jsonl']
    """
    return (out, out.with_suffix(SUMMARY), _problems_beside(out)) if out.suffix == ".jsonl" else (out,)


def _problems_beside(out: Path) -> Path:
    return out.with_name(f"{out.stem}.problems.jsonl")


def _problem_of_copy(row: Mapping[str, object]) -> Problem:
    return Problem(str(row["image"]), "image", f"left out (--drop-duplicates), as {row['kept']} is kept: {row['how']}")


def _report(
    sets: Sequence[ImageSet], near: Sequence[dict[str, object]], faults: Sequence[Problem], problems: Path
) -> None:
    for loaded in sets:
        for line in loaded.notes:
            _LOG.info(line)
        for reason, count in loaded.annotations.notes.items():
            _LOG.info(counted_note(count, reason))
    for line in _note_shared(sets):
        _LOG.info(line)
    if near:
        _LOG.info(
            f"{counted(len(near), 'image of val looks', 'images of val look')} like one of train, for example "
            f"{near[0]['val']} and {near[0]['train']}"
        )
    for problem in faults[:_SHOWN]:
        _LOG.info(f"left out: {problem}")
    if len(faults) > _SHOWN:
        _LOG.info(f"{len(faults)} problems in all, see {problems}")


def _images_of(sources: Sequence[Path | Source], images: Path | None) -> list[tuple[Path | Source, Path | None]]:
    """Return the annotations with their image folders; the last source may be the image folder of all others."""
    paths = [_named(source) for source in sources]
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


def _named(source: Path | Source) -> Path:
    return source.named if isinstance(source, Source) else source


def _is_of_images(folder: Path, annotations: Path) -> bool:
    """Return whether a folder has no annotations, or only images while the annotations' folder has none."""
    try:
        open_source(folder)
    except InputError:
        return True
    files = [path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder)]
    return len(image_files(folder)) == len(files) and not image_files(annotations)


def _note_shared(sets: Sequence[ImageSet]) -> list[str]:
    """Return a note if images occur in several sources, and so in several records."""
    if len(sets) == 1:
        return []
    paths: Counter[str] = Counter()
    for loaded in sets:
        root = loaded.root.resolve()
        paths.update({os.path.normpath(root / instance.image) for instance in loaded.instances})
    shared = [path for path, count in paths.items() if count > 1]
    return (
        [f"{counted(len(shared), 'image has', 'images have')} a record in each of several sources, such as {shared[0]}"]
        if shared
        else []
    )


def _instances(sets: Sequence[ImageSet], folder: Path) -> Iterator[Instance]:
    """Yield the instances with paths relative to `folder`; all image ids are left out if sources share any."""
    ids = Counter(instance.image_id for loaded in sets for instance in loaded.instances)
    shared = any(count > 1 for image_id, count in ids.items() if image_id is not None)
    if shared:
        _LOG.info("several sources share image ids: all image ids are left out")
    for loaded in sets:
        root = os.path.relpath(loaded.root.resolve(), folder)
        for instance in loaded.instances:
            image = Path(os.path.normpath(Path(root) / instance.image)).as_posix()
            values = {"image": image} | ({"image_id": None} if shared else {})
            yield instance.model_copy(update=values)


def _looks(loaded: ImageSet) -> Iterator[ImageFile]:
    """Yield what a look at each image of a set told; the images of a large set are looked at here."""
    for instance in loaded.instances:
        if loaded.evidence is not None and (file := loaded.evidence.folder.look_at(instance.image)).digest:
            yield file
        else:
            yield look_at(loaded.root / instance.image)


def _without_duplicates(
    instances: Sequence[Instance], files: Sequence[ImageFile], which: DropDuplicates
) -> tuple[list[int], list[dict[str, object]]]:
    """Return the indices of the records that are kept, and the images that are left out, each with the one kept.

    Several records of one image are no duplicates of each other.
    """
    look_of = {instance.image: file for instance, file in zip(instances, files, strict=True)}
    names, boxes = list(look_of), boxes_by_image(instances)
    kept_as = list(range(len(names)))
    how: dict[int, str] = {}
    pairs = duplicates_in(names, list(look_of.values()), boxes)
    for pair in sorted(pairs, key=lambda pair: (pair.first, pair.second)):
        if pair.kind == "equal" or (pair.kind == "copy" and which == "near"):
            # The earlier image may itself be left out for a still earlier one.
            kept_as[pair.second] = min(kept_as[pair.second], kept_as[pair.first])
            how.setdefault(pair.second, pair.how)
    dropped: list[dict[str, object]] = [
        {
            "image": names[at],
            "kept": names[original],
            "how": how[at],
            "same_boxes": same_boxes_of(names[at], names[original], boxes),
        }
        for at, original in enumerate(kept_as)
        if original != at
    ]
    left_out = {row["image"] for row in dropped}
    return [i for i, instance in enumerate(instances) if instance.image not in left_out], dropped


def _drawn(instances: Sequence[Instance], count: int, seed: int) -> list[int]:
    """Return the indices of the records of `count` images that are drawn, all records of an image together."""
    names = list(dict.fromkeys(instance.image for instance in instances))
    if not 0 < count <= len(names):
        raise InputError(f"--count: expected 1 to {len(names)}, the number of usable images, found {count}")
    drawn = set(random.Random(seed).sample(names, count))
    return [i for i, instance in enumerate(instances) if instance.image in drawn]


def _dropped_line(dropped: Sequence[dict[str, object]]) -> str:
    other = sum(not row["same_boxes"] for row in dropped)
    line = f"{counted(len(dropped), 'duplicate image')} left out (--drop-duplicates)"
    if dropped:
        line += f", for example {dropped[0]['image']}, as {dropped[0]['kept']} is kept"
    return line + (f"; {other} of them had other boxes, which are lost" if other else "")


def _split(
    instances: Sequence[Instance], files: Sequence[ImageFile], share: float
) -> tuple[dict[str, list[Instance]], list[dict[str, object]]]:
    """Return the instances of both splits, and the images of val that look like one in train.

    The split of an image depends on its content: copies, at any size and quality, stay together.

    Args:
        instances: the records
        files: what a look at the image of each told
        share: share of the images that go to val.jsonl
    """
    hashes = [file.look for file in files if file.look is not None]
    greys = [file.grey for file in files if file.grey is not None]
    assert len(hashes) == len(greys) == len(files)  # images that cannot be decoded are left out
    pairs = [(i, j, bits) for i, j, bits in near_duplicates(hashes, hashes) if i < j]
    group = list(range(len(files)))
    for i, j, _ in pairs:
        if is_same(greys[i], greys[j]):
            old, new = sorted((group[i], group[j]), key=lambda at: files[at].digest, reverse=True)
            group = [new if at == old else at for at in group]
    in_val = [int(files[at].digest[:16], 16) < share * 2**64 for at in group]
    splits = {
        "train.jsonl": [instance for instance, is_val in zip(instances, in_val, strict=True) if not is_val],
        "val.jsonl": [instance for instance, is_val in zip(instances, in_val, strict=True) if is_val],
    }
    for name, part in splits.items():
        if not part:
            raise InputError(f"--split {share:g}: no image was assigned to {name}; choose another share, or add images")
    near: dict[int, tuple[int, int]] = {}
    for i, j, bits in pairs:
        if in_val[i] != in_val[j]:
            val, train = (i, j) if in_val[i] else (j, i)
            near.setdefault(val, (train, bits))
    listed: list[dict[str, object]] = [
        {"val": instances[val].image, "train": instances[train].image, "bits": bits}
        for val, (train, bits) in sorted(near.items())
    ]
    return splits, listed


@contextmanager
def _output_folder(out: Path, single: bool) -> Iterator[Path]:
    """Yield a hidden folder to write into, which becomes `out` at the end; with `single` its files are moved there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(out)
        partial = out.with_name(f".{out.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        partial.mkdir()
        try:
            with _locked(partial):
                yield partial
                if not single:
                    partial.replace(out)
                    return
                # The records last: without their summary they would be read as if their images lay beside them.
                for file in sorted(partial.iterdir(), key=lambda file: file.name == out.name):
                    file.replace(out.with_name(file.name))
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None


def _clear_leftovers(out: Path) -> None:
    """Remove the hidden folders of earlier calls for `out` that were killed: nobody holds their locks any more."""
    name = re.compile(rf"\.{re.escape(out.name[:64])}\.\d+-[0-9a-f]{{8}}\.tmp")
    for folder in [path for path in out.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]:
        with suppress(OSError), _locked(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder)
                _LOG.info(f"{folder}: removed; an earlier call was killed while it wrote there")


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end of the block or of this process; yields whether that was possible.

    It is not if another process holds the lock, or if the file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        locked = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)
