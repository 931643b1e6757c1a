"""The sets of a run as its configuration names them, and what is printed about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from coord_codec import InputError
from coord_codec.files import write_text
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.config.sources import SourceConfig
from coord_trainer.console import is_first, say
from coord_trainer.data.conversations import Conversations, load_conversations
from coord_trainer.data.image_set import ImageSet, draw_set, draw_sets, keep, load_annotated
from coord_trainer.data.large.store import is_large
from coord_trainer.data.mixture import Mixture, Part
from coord_trainer.data.parallel.processes import Outcome, meanwhile
from coord_trainer.data.queries import names_a_side


def source_configs(config: RunConfig) -> list[tuple[str, RunConfig]]:
    """Return name and configuration of each annotated source, as if it were the only one."""
    data = config.data
    if not data.sources:
        return [("train", config)]
    return [
        (name, config.model_copy(update={"data": data.of_source(source)}))
        for name, source in zip(_names(data.sources), data.sources, strict=True)
        if source.annotations is not None
    ]


@contextmanager
def preparing(config: RunConfig) -> Iterator[Outcome[Sequence[ImageSet]]]:
    """Draw the shapes of a run while the block runs, or check its large files, so that loading them takes no time.

    Yields where to find the sets that were drawn.

    Raises:
        InputError: bad input.
    """
    if not config.data.given:
        with meanwhile(partial(_draw, config)) as drawn:
            yield drawn
        return
    data = config.data
    scored = config.evaluation.pictures == "train"
    sets = [(name, alone.data, scored) for name, alone in source_configs(config)] if data.given else []
    if data.heldout_annotations is not None and config.evaluation.pictures == "heldout":
        heldout = {"annotations": data.heldout_annotations, "images": data.heldout_images}
        sets.append(("heldout", data.model_copy(update=heldout), True))
    large = [found for found in sets if is_first() and is_large(found[1].annotations, found[1]) is not None]
    with meanwhile(partial(_check, large)) if large else nullcontext():
        yield Outcome(())


def _draw(config: RunConfig) -> list[ImageSet]:
    return [draw_set(config, name, Path()) for name in ("train", "heldout")]


def _check(sets: Sequence[tuple[str, DataSection, bool]]) -> None:
    for name, section, scored in sets:
        load_annotated(section.annotations, section.images, name, section.strict, section, scored)


def load_training(config: RunConfig) -> Mixture:
    """Read what a run trains on: `data.annotations`, or each of `data.sources`.

    Raises:
        InputError: bad input, naming the source.
    """
    data, scored = config.data, config.evaluation.pictures == "train"
    if data.annotations is not None:
        images = load_annotated(data.annotations, data.images, "train", data.strict, data, scored)
        return Mixture.of([_part("train", images, data)], config.run.seed)
    names = _names(data.sources)
    parts = [_load(source, name, data, scored) for source, name in zip(data.sources, names, strict=True)]
    return Mixture.of(parts, config.run.seed)


def _load(source: SourceConfig, name: str, data: DataSection, scored: bool) -> Part:
    section = data.of_source(source)
    if source.conversations is not None:
        outside = section.allow_outside
        found = load_conversations(source.conversations, source.images, name, data.strict, outside)
        return Part(name, found, section, source.weight)
    images = load_annotated(source.path, section.images, name, data.strict, section, scored)
    return _part(name, images, section, source.weight)


def _part(name: str, images: ImageSet, section: DataSection, weight: float | None = None) -> Part:
    """Return the first `limit` images of a source, which says how many of them are not mirrored."""
    taken = images.first(section.limit)
    sides = sum(map(names_a_side, taken.instances)) if section.augment.flip else 0
    if sides:
        line = f"{sides} records say left or right: they are not mirrored (augment.flip)"
        taken = replace(taken, told=(*taken.told, line))
    return Part(name, taken, section, weight)


def _names(sources: Sequence[SourceConfig]) -> list[str]:
    """Return a name for each source; those that would be the same are numbered."""
    names = [source.name or source.path.resolve().stem for source in sources]
    times, seen = Counter(names), Counter()
    for number, name in enumerate(names):
        if times[name] > 1:
            seen[name] += 1
            names[number] = f"{name}-{seen[name]}"
    return names


def load_sets(config: RunConfig) -> tuple[Mixture, ImageSet | None]:
    """The training data and, when it is scored, the held-out set.

    Raises:
        InputError: bad input, or when a held-out set turns out to be trained on.
    """
    train = load_training(config)
    if config.evaluation.pictures != "heldout":
        return train, None
    heldout = _load_heldout(config)
    if heldout.digest in [images.digest for images in train.image_sets]:
        raise InputError(
            "data.annotations and data.heldout_annotations hold the same data: name another held-out set, or set "
            "evaluation.pictures: train to measure memorising"
        )
    return train, heldout


def _load_heldout(config: RunConfig) -> ImageSet:
    data = config.data
    return load_annotated(data.heldout_annotations, data.heldout_images, "heldout", data.strict, data, scored=True)


def sets_of(config: RunConfig, folder: Path, drawn: Sequence[ImageSet] = ()) -> tuple[Mixture, ImageSet | None]:
    """`load_sets` or `draw_sets`, whichever the configuration asks for."""
    if config.data.given:
        return load_sets(config)
    train, heldout = draw_sets(config, folder, drawn)
    return Mixture.of_one(train, config.data), heldout


def train_of(config: RunConfig, folder: Path) -> Mixture:
    """Read or draw what a run trains on, and nothing else."""
    if config.data.given:
        return load_training(config)
    return Mixture.of_one(keep(draw_set(config, "train", folder)), config.data)


def scored_set(config: RunConfig, train: Mixture, heldout: ImageSet | None) -> ImageSet | None:
    """Return the images that are answered and scored; None for none."""
    return {"heldout": heldout, "train": train.only, "none": None}[config.evaluation.pictures]


def load_scored(config: RunConfig, folder: Path) -> ImageSet:
    """Read or draw the images that `evaluation.pictures` names, and no others.

    Raises:
        InputError: bad input, or none are named.
    """
    wanted = config.evaluation.pictures
    if wanted == "none":
        raise InputError("evaluation.pictures is none: set it to heldout or train")
    if not config.data.given:
        return keep(draw_set(config, wanted, folder))
    return _load_heldout(config) if wanted == "heldout" else load_training(config).only


def report_mixture(train: Mixture) -> None:
    """Print the shares of several sources."""
    if len(train.parts) == 1:
        return
    say(f"train: {len(train)} samples an epoch from {len(train.parts)} sources, digest {train.digest}")
    for part, count in zip(train.parts, train.plan.counts, strict=True):
        say(f"  {part.name}: {count:,} of them ({count / len(train):.1%})")


def report_sets(folder: Path, sets: Sequence[ImageSet | Conversations]) -> None:
    """Print what was read and what was left out; `folder/problems.jsonl` lists every problem."""
    path = folder / "problems.jsonl"
    listed = [{"set": found.name} | asdict(problem) for found in sets for problem in found.problems]
    if listed:
        write_text(path, "".join(json.dumps(line) + "\n" for line in listed))
    for found in sets:
        if isinstance(found, Conversations):
            images = sum(map(len, found.image_sizes))
            say(f"{found.name}: {len(found)} conversations with {images} images, digest {found.digest}")
        else:
            boxes = found.target_counts.sum()
            say(f"{found.name}: {len(found)} images, {boxes} boxes, digest {found.digest}")
            for line in found.told:
                say(f"  {line}")
            for reason, count in found.annotations.notes.items():
                say(f"  {count} {reason}")
        if found.problems:
            say(
                f"  {len(found.problems)} problems: these records are left out of training and scoring, see {path}; "
                f"the first: {found.problems[0]}"
            )
