"""Loads the image sets that a run's configuration names, and prints summaries of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from coord_codec import Geometry, InputError
from coord_codec.coco.shapes import in_place_of
from coord_codec.counts import counted, counted_note
from coord_codec.files import read_json, write_text
from coord_data.reading.image_set import ImageSet, load_annotated
from coord_detect.console import say
from coord_detect.families.registry import FAMILIES
from coord_trainer.config.data_sources import SourceConfig
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.data.conversations import Conversations, load_conversations
from coord_trainer.data.mixture import Mixture, MixtureSource
from coord_trainer.data.queries import refers_to_sides
from coord_trainer.data.shapes import draw_set, keep


def source_configs(config: RunConfig) -> list[tuple[str, RunConfig]]:
    """Return the name of each annotated source and a configuration with that source only."""
    return [
        (name, config.model_copy(update={"data": section}))
        for name, section, source in _sources(config.data)
        if source is None or source.annotations is not None
    ]


def _sources(data: DataSection) -> list[tuple[str, DataSection, SourceConfig | None]]:
    """Return name and section of each source, and its entry in `data.sources`; None for `data.annotations`."""
    if not data.sources:
        return [("train", data, None)]
    rows = zip(_names(data.sources), data.sources, strict=True)
    return [(name, data.of_source(source), source) for name, source in rows]


def rules_of(config: RunConfig) -> DataSection:
    """Return the data section of a run, with the family's limit on the sides of an image if none is stated.

    The default is left where the family is not known before the model is opened: of a hub id, or in a plug-in file.
    """
    path = config.model.path
    if "max_side_ratio" in config.data.model_fields_set or path is None or not (Path(path) / "config.json").is_file():
        return config.data
    family = FAMILIES.get(read_json(Path(path) / "config.json").get("model_type"))
    return config.data if family is None else config.data.model_copy(update={"max_side_ratio": family.max_side_ratio})


def load_training(config: RunConfig) -> Mixture:
    """Load the training data of a run: `data.annotations`, or each of `data.sources`.

    Raises:
        InputError: the input is invalid; the message names the source.
    """
    return Mixture.of(_load_sets(config, heldout=False), config.run.seed)


def _load_sets(config: RunConfig, *, heldout: bool) -> list[MixtureSource]:
    """Load each source, and after them the held-out set if it is wanted."""
    data, scored = rules_of(config), config.evaluation.images == "train"
    sources = _sources(data)
    loaded = [_load(*source, scored) for source in sources]
    if heldout:
        loaded.append(_load("heldout", data.of_heldout(), None, scored=True))
    return loaded


def _load(name: str, section: DataSection, source: SourceConfig | None, scored: bool) -> MixtureSource:
    """Load a source: conversations, or the first `limit` images with a note on how many of them are not mirrored."""
    weight = None if source is None else source.weight
    if source is not None and source.conversations is not None:
        outside = section.allow_outside
        conversations = load_conversations(source.conversations, source.images, name, section.strict, outside)
        return MixtureSource(name, conversations, section, weight)
    assert section.annotations is not None
    images = load_annotated(section.annotations, section, name=name, scored=scored).first(section.limit)
    with_sides = sum(map(refers_to_sides, images.instances)) if section.augment.flip else 0
    if with_sides:
        note = f"{counted(with_sides, 'record contains', 'records contain')} left or right, not mirrored (augment.flip)"
        images = replace(images, notes=(*images.notes, note))
    return MixtureSource(name, images, section, weight)


def _refuse_without_shapes(sets: Sequence[ImageSet], data: DataSection) -> None:
    """Raise `InputError` if all shapes were made of boxes, which an IoU of outlines or masks would be said of."""
    sets = [images for images in sets if images.target_counts.any()]
    objects = sum(int(images.target_counts.sum()) for images in sets)
    if sets and all(_has_boxes_alone(images, data.shape) for images in sets):
        raise InputError(
            f"{', '.join(images.name for images in sets)}: data.geometry is {data.geometry}, and the annotations have "
            f"no shape but boxes ({counted(objects, 'object')}), whose corners would teach and measure no outline; set "
            "data.geometry=box, or annotate shapes"
        )


def _has_boxes_alone(images: ImageSet, kind: Geometry) -> bool:
    """Return whether every object has the shape that was derived from its box, for shapes with an extent."""
    derived = images.annotations.notes.get(in_place_of(kind), 0)
    if not kind.has_extent or int(images.target_counts.sum()) > derived:
        return False
    targets = (target for instance in images.instances for target in instance.targets)
    return all(t.geometry is None or t.geometry.coordinates == kind.from_box(t.bbox) for t in targets)


def _names(sources: Sequence[SourceConfig]) -> list[str]:
    """Return a name for each source; equal names are numbered."""
    names = [source.name or source.path.resolve().stem for source in sources]
    counts, used = Counter(names), Counter[str]()
    for index, name in enumerate(names):
        if counts[name] > 1:
            used[name] += 1
            names[index] = f"{name}-{used[name]}"
    return names


@dataclass(frozen=True)
class RunData:
    """The data of a run.

    Attributes:
        train: what is trained on
        heldout: the held-out images, if they are scored
        scores: which of them are predicted and scored, as `evaluation.images` says
    """

    train: Mixture
    heldout: ImageSet | None
    scores: Literal["heldout", "train", "none"]

    @property
    def scored(self) -> ImageSet | None:
        """The images to predict and score; None if there are none."""
        return {"heldout": self.heldout, "train": self.train.only, "none": None}[self.scores]

    def without_evidence(self) -> RunData:
        """Return the data without what only its examination needs."""
        sources = [
            source if source.images is None else replace(source, content=source.images.without_evidence())
            for source in self.train.sources
        ]
        heldout = None if self.heldout is None else self.heldout.without_evidence()
        return replace(self, train=replace(self.train, sources=tuple(sources)), heldout=heldout)

    def keep_generated(self) -> None:
        """Write ground truth and held-out images of generated sets to their folder."""
        sets = [*self.train.image_sets, *([] if self.heldout is None else [self.heldout])]
        for images in sets:
            if images.held_in_memory:
                keep(images)

    def facts(self) -> dict[str, Any]:
        """Return the facts for the manifest."""
        contents = [source.content for source in self.train.sources]
        facts: dict[str, Any] = {
            "train": {
                "digest": self.train.digest,
                "images": sum(map(len, self.train.image_sets)),
                "problems": sum(len(content.problems) for content in contents),
                "sources": self.train.facts(),
            }
        }
        if self.heldout is not None:
            facts[self.heldout.name] = {
                "digest": self.heldout.digest,
                "images": len(self.heldout),
                "problems": len(self.heldout.problems),
            }
        return facts

    def write(self, folder: Path) -> None:
        """Write generated images, print what was read and left out, and list every problem in `problems.jsonl`.

        Args:
            folder: the run folder
        """
        self.keep_generated()
        report_mixture(self.train)
        heldout = [] if self.heldout is None else [self.heldout]
        report_sets(folder, [*(source.content for source in self.train.sources), *heldout])


def load_data(config: RunConfig, folder: Path) -> RunData:
    """Load the annotated data of a run, or generate shapes.

    Args:
        config: of the run
        folder: the folder of generated images, to which nothing is written here (see `shapes.keep`)

    Raises:
        InputError: the input is invalid, or the held-out set is also trained on.
    """
    scores = config.evaluation.images
    if not config.data.given:
        sets = [MixtureSource(name, draw_set(config, name, folder), config.data) for name in ("train", "heldout")]
    else:
        sets = _load_sets(config, heldout=scores == "heldout")
    heldout = sets.pop().images if scores == "heldout" or not config.data.given else None
    train = Mixture.of(sets, config.run.seed)
    if heldout is not None and heldout.digest in [images.digest for images in train.image_sets]:
        raise InputError(
            "data.annotations and data.heldout_annotations hold the same data: name another held-out set, or set "
            "evaluation.images: train to measure memorising"
        )
    if config.data.given:
        if all(source.images is not None for source in train.sources):  # conversations may have shapes too
            _refuse_without_shapes(train.image_sets, config.data)
        _refuse_without_shapes([] if heldout is None else [heldout], config.data)
    return RunData(train, heldout, scores)


def load_scored(config: RunConfig, folder: Path) -> ImageSet:
    """Load or generate only the images that `evaluation.images` names.

    Raises:
        InputError: the input is invalid, or `evaluation.images` is none.
    """
    wanted = config.evaluation.images
    if wanted == "none":
        raise InputError("evaluation.images is none: set it to heldout or train")
    if not config.data.given:
        return keep(draw_set(config, wanted, folder))
    if wanted == "train":
        images = load_training(config).only
    else:
        images = _load("heldout", rules_of(config).of_heldout(), None, scored=True).images
    if images is None:
        raise InputError(
            f"evaluation.images is {wanted}, and conversations have no boxes to score: name data.heldout_annotations "
            "with evaluation.images=heldout"
        )
    _refuse_without_shapes([images], config.data)
    return images


def report_mixture(train: Mixture) -> None:
    """Print the share of each source if there are several."""
    if len(train.sources) == 1:
        return
    say(f"train: {counted(len(train), 'sample')} per epoch from {len(train.sources)} sources, digest {train.digest}")
    for source, count in zip(train.sources, train.plan.counts, strict=True):
        say(f"  {source.name}: {counted(count, 'sample')} ({count / len(train):.1%})")


def report_sets(folder: Path, sets: Sequence[ImageSet | Conversations]) -> None:
    """Print what was read and what was left out, and write every problem to `folder/problems.jsonl`."""
    path = folder / "problems.jsonl"
    problems = [{"set": data_set.name} | asdict(problem) for data_set in sets for problem in data_set.problems]
    if problems:
        write_text(path, "".join(json.dumps(line) + "\n" for line in problems))
    for data_set in sets:
        if isinstance(data_set, Conversations):
            images = sum(map(len, data_set.image_sizes))
            talks = f"{counted(len(data_set), 'conversation')} with {counted(images, 'image')}"
            say(f"{data_set.name}: {talks}, digest {data_set.digest}")
        else:
            found = counted(int(data_set.target_counts.sum()), "box", "boxes")
            say(f"{data_set.name}: {counted(len(data_set), 'image')}, {found}, digest {data_set.digest}")
            for line in data_set.notes:
                say(f"  {line}")
            for reason, number in data_set.annotations.notes.items():
                say(f"  {counted_note(number, reason)}")
        if data_set.problems:
            problems_found = counted(len(data_set.problems), "problem")
            say(
                f"  {problems_found}: these records are left out of training and scoring, see {path}; the first: "
                f"{data_set.problems[0]}"
            )
