"""`prepare`: annotations of any format become instance JSONL, problems.jsonl and a summary, split by image."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from coord_codec import InputError, Instance, write_instances
from coord_codec.files import write_text
from coord_eval import decode_image
from coord_trainer.config.sections import DataSection
from coord_trainer.console import RunError, say
from coord_trainer.data.duplicates import near_duplicates, perceptual_hash
from coord_trainer.data.formats.raw import image_files, is_hidden
from coord_trainer.data.formats.registry import SUMMARY, recognise
from coord_trainer.data.image_set import ImageSet, load_annotated

_SHOWN = 5


def prepare(sources: Sequence[Path], out: Path, data: DataSection, split: float | None = None) -> None:
    """Write the usable records of `sources`, image paths relative to the files that hold them.

    Args:
        sources: files or folders of annotations; the last one may be the folder of their images
        out: a new folder, or (its name ends in .jsonl) a new file
        data: `images`, `format`, `on_bad_box`, `allow_outside` and `strict`
        split: share of the images that go to val.jsonl, chosen by their content

    Raises:
        InputError: bad annotations, or (strict) any bad record.
        RunError: `out` cannot be written.
    """
    single = out.suffix == ".jsonl"
    if single and split is not None:
        raise InputError(f"--split writes two files, but --out {out} is one; name a folder")
    chosen = _images_of(sources, data.images)
    sets = [load_annotated(path, images, str(path), data.strict, data) for path, images in chosen]
    folder = (out.parent if single else out).resolve()
    instances = list(_instances(sets, folder))
    parts = {out.name if single else "instances.jsonl": instances}
    near: list[dict[str, object]] = []
    if split is not None:
        parts, near = _split(instances, folder, split)
    listed = "".join(json.dumps(asdict(problem)) + "\n" for found in sets for problem in found.problems)
    base = os.path.commonpath([(found.base or found.root).resolve() for found in sets])
    shared = _shared(sets)
    facts = {
        "images": os.path.relpath(base, folder),
        "sources": [{"path": str(path), "digest": found.digest} for (path, _), found in zip(chosen, sets, strict=True)],
        "notes": dict(sum((Counter(found.annotations.notes) for found in sets), Counter())),
        "told": [*(line for found in sets for line in found.told), *shared],
        "problems": sum(len(found.problems) for found in sets),
        **({"near_duplicates": near} if split is not None else {}),
    }
    with _new_place(out, single) as place:
        for name, part in parts.items():
            write_instances(place / name, part)
            classes = Counter(target.desc for instance in part for target in instance.targets)
            counts = {"records": len(part), "boxes": classes.total(), "classes": dict(classes.most_common())}
            summary = json.dumps(counts | facts, indent=2, ensure_ascii=False)
            write_text((place / name).with_suffix(SUMMARY), summary + "\n")
        problems = place / (_problems_beside(out).name if single else "problems.jsonl")
        if listed or not single:
            write_text(problems, listed)
    for name, part in parts.items():
        say(f"{len(part)} records, {sum(len(i.targets) for i in part)} boxes in {out if single else out / name}")
    if data.allow_outside:
        say("images may lie outside their folder: whatever reads this takes data.allow_outside=true as well")
    _report(sets, shared, near, out.parent / problems.name if single else out / problems.name)


def written_to(out: Path) -> tuple[Path, ...]:
    """Return what `prepare` makes: a folder, or a file and those beside it.

    Example:
        >>> [path.name for path in written_to(Path("a.jsonl"))]
        ['a.jsonl', 'a.summary.json', 'a.problems.jsonl']
    """
    return (out, out.with_suffix(SUMMARY), _problems_beside(out)) if out.suffix == ".jsonl" else (out,)


def _problems_beside(out: Path) -> Path:
    return out.with_name(f"{out.stem}.problems.jsonl")


def _report(sets: Sequence[ImageSet], shared: Sequence[str], near: Sequence[dict[str, object]], problems: Path) -> None:
    for found in sets:
        for line in found.told:
            say(line)
        for reason, count in found.annotations.notes.items():
            say(f"{count} {reason}")
    for line in shared:
        say(line)
    if near:
        say(f"{len(near)} images of val look like one of train, for example {near[0]['val']} and {near[0]['train']}")
    faults = [problem for found in sets for problem in found.problems]
    for problem in faults[:_SHOWN]:
        say(f"left out: {problem}")
    if len(faults) > _SHOWN:
        say(f"{len(faults)} problems in all, see {problems}")


def _images_of(sources: Sequence[Path], images: Path | None) -> list[tuple[Path, Path | None]]:
    """Return the annotations, each with the folder of its images, which may be named as the last source."""
    if gone := next((path for path in sources[1:] if not path.exists()), None):
        raise InputError(f"{gone}: expected annotations, or a folder of images, found nothing there; check the path")
    *others, last = sources
    if images is None and others and last.is_dir():
        holding = [path.is_dir() and last.resolve().is_relative_to(path.resolve()) for path in others]
        if others[0].is_dir() and any(holding):
            return [(path, last if holds else None) for path, holds in zip(others, holding, strict=True)]
        if not others[0].is_dir() or _is_of_images(last, others[0]):
            return [(path, last) for path in others]
    return [(path, images) for path in sources]


def _is_of_images(folder: Path, annotations: Path) -> bool:
    """Whether a folder has no annotations, or no file but images where the other one has none."""
    try:
        recognise(folder)
    except InputError:
        return True
    files = [path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder)]
    return len(image_files(folder)) == len(files) and not image_files(annotations)


def _shared(sets: Sequence[ImageSet]) -> list[str]:
    """Say how many images stand in several sources, and so in several records."""
    if len(sets) == 1:
        return []
    paths: Counter[str] = Counter()
    for found in sets:
        root = found.root.resolve()
        paths.update({os.path.normpath(root / instance.image) for instance in found.instances})
    shared = [path for path, count in paths.items() if count > 1]
    return (
        [f"{len(shared)} images stand in several sources, in each as a record, such as {shared[0]}"] if shared else []
    )


def _instances(sets: Sequence[ImageSet], folder: Path) -> Iterator[Instance]:
    """Yield the instances with paths relative to `folder`; ids that two sources share are left out of both."""
    ids = Counter(instance.image_id for found in sets for instance in found.instances)
    shared = any(count > 1 for image_id, count in ids.items() if image_id is not None)
    if shared:
        say("image ids of several sources are the same: they are left out")
    for found in sets:
        root = os.path.relpath(found.root.resolve(), folder)
        for instance in found.instances:
            image = Path(os.path.normpath(Path(root) / instance.image)).as_posix()
            values = {"image": image} | ({"image_id": None} if shared else {})
            yield instance.model_copy(update=values)


def _split(
    instances: Sequence[Instance], folder: Path, share: float
) -> tuple[dict[str, list[Instance]], list[dict[str, object]]]:
    """Return the two sides, and which images of val look like one of train.

    The side follows from the content of the image: copies stay together, and adding images moves none.
    """
    sides: dict[str, list[Instance]] = {"train.jsonl": [], "val.jsonl": []}
    for instance in instances:
        digest = hashlib.sha256(_path(folder, instance).read_bytes()).digest()
        chosen = int.from_bytes(digest[:8], "big") < share * 2**64
        sides["val.jsonl" if chosen else "train.jsonl"].append(instance)
    for name, part in sides.items():
        if not part:
            raise InputError(f"--split {share:g}: no image falls into {name}; choose another share, or add images")
    train, val = ([perceptual_hash(decode_image(_path(folder, i))) for i in part] for part in sides.values())
    pairs = near_duplicates(val, train)
    first = {i: (j, bits) for i, j, bits in reversed(pairs)}
    near = [
        {"val": sides["val.jsonl"][i].image, "train": sides["train.jsonl"][j].image, "bits": bits}
        for i, (j, bits) in sorted(first.items())
    ]
    return sides, near


def _path(folder: Path, instance: Instance) -> Path:
    """Return the path of an image, which no .. leads through a folder that is not there yet."""
    return Path(os.path.normpath(folder / instance.image))


@contextmanager
def _new_place(out: Path, single: bool) -> Iterator[Path]:
    """Give the folder to write into; a new folder appears whole under its name, or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if single:
            yield out.parent
            return
        partial = out.with_name(f".{out.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        partial.mkdir()
        try:
            yield partial
            partial.replace(out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None
