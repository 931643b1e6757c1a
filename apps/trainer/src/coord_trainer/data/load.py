"""Loads the image sets that a run's configuration names, and prints summaries of them."""

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
from coord_data.image_set import ImageSet, load_annotated
from coord_data.large.store import is_large
from coord_data.processes import Outcome, meanwhile
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.config.sources import SourceConfig
from coord_trainer.console import is_first, say
from coord_trainer.data.conversations import Conversations, load_conversations
from coord_trainer.data.mixture import Mixture, Part
from coord_trainer.data.queries import names_a_side
from coord_trainer.data.shapes import draw_set, draw_sets, keep


def source_configs(config: RunConfig) -> list[tuple[str, RunConfig]]:
    """Return the name of each annotated source and a configuration with that source only."""
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
    """Generate the shapes of a run, or check its large files, in another process while the block runs.

    Yields an `Outcome` that holds the generated sets after the block.

    Raises:
        InputError: the input is invalid.
    """
    if not config.data.given:
        with meanwhile(partial(_draw, config)) as drawn:
            yield drawn
        return
    data = config.data
    scored = config.evaluation.pictures == "train"
    sets = [(name, single.data, scored) for name, single in source_configs(config)]
    if data.heldout_annotations is not None and config.evaluation.pictures == "heldout":
        heldout = {"annotations": data.heldout_annotations, "images": data.heldout_images}
        sets.append(("heldout", data.model_copy(update=heldout), True))
    large_sets = [named for named in sets if is_first() and is_large(named[1].annotations, named[1]) is not None]
    with meanwhile(partial(_check, large_sets)) if large_sets else nullcontext():
        yield Outcome(())


def _draw(config: RunConfig) -> list[ImageSet]:
    return [draw_set(config, name, Path()) for name in ("train", "heldout")]


def _check(sets: Sequence[tuple[str, DataSection, bool]]) -> None:
    for name, section, scored in sets:
        load_annotated(section.annotations, section.images, name, section.strict, section, scored)


def load_training(config: RunConfig) -> Mixture:
    """Load the training data of a run: `data.annotations`, or each of `data.sources`.

    Raises:
        InputError: the input is invalid; the message names the source.
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
        conversations = load_conversations(source.conversations, source.images, name, data.strict, outside)
        return Part(name, conversations, section, source.weight)
    images = load_annotated(source.path, section.images, name, data.strict, section, scored)
    return _part(name, images, section, source.weight)


def _part(name: str, images: ImageSet, section: DataSection, weight: float | None = None) -> Part:
    """Return the first `limit` images of a source, with a note on how many of them are not mirrored."""
    selected = images.first(section.limit)
    with_sides = sum(map(names_a_side, selected.instances)) if section.augment.flip else 0
    if with_sides:
        note = f"{with_sides} records contain left or right and are not mirrored (augment.flip)"
        selected = replace(selected, told=(*selected.told, note))
    return Part(name, selected, section, weight)


def _names(sources: Sequence[SourceConfig]) -> list[str]:
    """Return a name for each source; equal names are numbered."""
    names = [source.name or source.path.resolve().stem for source in sources]
    counts, used = Counter(names), Counter()
    for index, name in enumerate(names):
        if counts[name] > 1:
            used[name] += 1
            names[index] = f"{name}-{used[name]}"
    return names


def load_sets(config: RunConfig) -> tuple[Mixture, ImageSet | None]:
    """Load the training data and, if it is scored, the held-out set.

    Raises:
        InputError: the input is invalid, or the held-out set is also trained on.
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
    """Load or generate the sets, depending on the configuration."""
    if config.data.given:
        return load_sets(config)
    train, heldout = draw_sets(config, folder, drawn)
    return Mixture.of_one(train, config.data), heldout


def train_of(config: RunConfig, folder: Path) -> Mixture:
    """Load or generate the training data only."""
    if config.data.given:
        return load_training(config)
    return Mixture.of_one(keep(draw_set(config, "train", folder)), config.data)


def scored_set(config: RunConfig, train: Mixture, heldout: ImageSet | None) -> ImageSet | None:
    """Return the images to predict and score; None if there are none."""
    return {"heldout": heldout, "train": train.only, "none": None}[config.evaluation.pictures]


def load_scored(config: RunConfig, folder: Path) -> ImageSet:
    """Load or generate only the images that `evaluation.pictures` names.

    Raises:
        InputError: the input is invalid, or `evaluation.pictures` is none.
    """
    wanted = config.evaluation.pictures
    if wanted == "none":
        raise InputError("evaluation.pictures is none: set it to heldout or train")
    if not config.data.given:
        return keep(draw_set(config, wanted, folder))
    return _load_heldout(config) if wanted == "heldout" else load_training(config).only


def report_mixture(train: Mixture) -> None:
    """Print the share of each source if there are several."""
    if len(train.parts) == 1:
        return
    say(f"train: {len(train)} samples per epoch from {len(train.parts)} sources, digest {train.digest}")
    for part, count in zip(train.parts, train.plan.counts, strict=True):
        say(f"  {part.name}: {count:,} samples ({count / len(train):.1%})")


def report_sets(folder: Path, sets: Sequence[ImageSet | Conversations]) -> None:
    """Print what was read and what was left out, and write every problem to `folder/problems.jsonl`."""
    path = folder / "problems.jsonl"
    problems = [{"set": data_set.name} | asdict(problem) for data_set in sets for problem in data_set.problems]
    if problems:
        write_text(path, "".join(json.dumps(line) + "\n" for line in problems))
    for data_set in sets:
        if isinstance(data_set, Conversations):
            images = sum(map(len, data_set.image_sizes))
            say(f"{data_set.name}: {len(data_set)} conversations with {images} images, digest {data_set.digest}")
        else:
            boxes = data_set.target_counts.sum()
            say(f"{data_set.name}: {len(data_set)} images, {boxes} boxes, digest {data_set.digest}")
            for line in data_set.told:
                say(f"  {line}")
            for reason, count in data_set.annotations.notes.items():
                say(f"  {count} {reason}")
        if data_set.problems:
            say(
                f"  {len(data_set.problems)} problems: these records are left out of training and scoring, see {path}; "
                f"the first: {data_set.problems[0]}"
            )
