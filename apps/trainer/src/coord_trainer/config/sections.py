"""The sections of a `RunConfig`, each frozen and validated on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from coord_data.reading.rules import ReadingRules
from coord_detect.settings.base import Fraction, Probability, Section, Seed
from coord_detect.settings.rules import Rule
from coord_detect.settings.sections import Answering, Asking, Loading, in_order
from coord_trainer.config.data_sources import AugmentConfig, Queries, SourceConfig
from coord_trainer.config.swift_arguments import shards_weights


class RunSection(Section):
    """Folder, seed and conduct of the run."""

    dir: Path | None = Field(None, description="run folder; `runs/` and the config's name when not given")
    seed: Seed = Field(0, description="seed of initial weights, batches and dropout")
    profile: bool = Field(False, description="measure a few steps and report where their time goes")
    resume: bool = Field(False, description="continue the run in `run.dir` from its newest complete checkpoint")
    threads: PositiveInt | None = Field(None, description="CPU threads that torch uses; all cores when not given")
    gradient_norms: bool = Field(
        False, description="log each loss term's gradient norm on logging steps (one extra backward pass per term)"
    )


RUN_RULES = (
    *(
        Rule(
            lambda c, name=name: bool(c.run.gradient_norms and c.training.get(name)),
            ("run.gradient_norms", f"training.{name}"),
            "a term's own gradient cannot be computed under it; switch one of the two off",
        )
        for name in ("deepspeed", "gradient_checkpointing")
    ),
)
"""Contradictions of the section `run` with others."""


class TinyModelConfig(Section):
    """Sizes of the built-in model with random weights, which is used without `model.path`."""

    hidden: PositiveInt = Field(96, description="hidden width of the language model")
    layers: PositiveInt = Field(3, description="layers of the language model")
    heads: PositiveInt = Field(3, description="attention heads of language model and vision tower")
    ffn: PositiveInt = Field(192, description="width of the language model's feed-forward layers")
    vision_hidden: PositiveInt = Field(96, description="hidden width of the vision tower")
    vision_layers: PositiveInt = Field(3, description="layers of the vision tower")
    position_side: PositiveInt = Field(6, description="side of the vision tower's grid of learned positions")
    tied: bool = Field(True, description="embedding and output head share one table")
    smooth_rows: bool = Field(
        True,
        description="initialise coordinate tokens and patch positions with smooth functions of their position, so "
        "that neighbouring bins begin with similar rows",
    )
    min_pixels: PositiveInt = Field(32 * 32, description="images of fewer pixels are enlarged")
    max_pixels: PositiveInt = Field(96 * 96, description="images of more pixels are reduced")

    @model_validator(mode="after")
    def _heads_divide(self) -> TinyModelConfig:
        for name in ("hidden", "vision_hidden"):
            if getattr(self, name) % (4 * self.heads):
                raise ValueError(f"model.tiny.{name} must be a multiple of 4 x heads, found {getattr(self, name)}")
        in_order("model.tiny.min_pixels", self.min_pixels, "model.tiny.max_pixels", self.max_pixels)
        return self


class ModelSection(Loading):
    """A checkpoint (`path`: folder or hub id), or without one the built-in tiny model."""

    path: str | None = Field(
        None, min_length=1, description="folder of a checkpoint of a known family, or a hub id with `model.download`"
    )
    download: bool = Field(False, description="allow network access, to download a hub id")
    fused_head: bool = Field(
        True,
        description="compute head and loss in chunks, without the logits of all tokens at once; false uses the "
        "unfused implementation of the same objective, for comparison",
    )
    tiny: TinyModelConfig = Field(default_factory=TinyModelConfig, description="sizes of the built-in tiny model")


class ShapesConfig(Section):
    """The generated data set: coloured shapes with sub-pixel boxes on noise."""

    train: PositiveInt = Field(6000, description="number of training images")
    heldout: PositiveInt = Field(500, description="number of held-out images")
    size: PositiveInt = Field(96, description="side of an image in pixels")
    max_objects: PositiveInt = Field(3, description="most objects in an image")
    colours: Annotated[int, Field(ge=1, le=4)] = Field(
        3, description="number of colours in names (red, green, blue, yellow), each with three shapes"
    )
    min_side: Fraction = Field(0.22, description="shortest side of an object, as a fraction of the image's")
    max_side: Fraction = Field(0.5, description="longest side of an object, as a fraction of the image's")
    noise: NonNegativeFloat = Field(8.0, description="standard deviation of the pixel noise, on a scale of 255")
    seed: Seed = Field(1, description="seed of the images, which `run.seed` does not change")

    @model_validator(mode="after")
    def _sidesin_order(self) -> ShapesConfig:
        in_order("data.shapes.min_side", self.min_side, "data.shapes.max_side", self.max_side)
        return self


class DataSection(Asking, ReadingRules):
    """Annotations and images, or without annotations the generated shapes."""

    annotations: Path | None = Field(
        None,
        description="training annotations: a file or folder of any format that `prepare` reads; generated shapes when "
        "not given",
    )
    heldout_annotations: Path | None = Field(
        None, description="annotations of the images that are scored with `evaluation.images: heldout`"
    )
    heldout_images: Path | None = Field(None, description="folder of the held-out images")
    shapes: ShapesConfig = Field(
        default_factory=ShapesConfig, description="the generated data set, used without `data.annotations`"
    )
    sources: tuple[SourceConfig, ...] = Field(
        (),
        description="several sources that one run trains on, instead of `data.annotations`; settings that a source "
        "leaves out are taken from this section",
    )
    limit: PositiveInt | None = Field(
        None,
        description="number of usable images to train on, from the first, for a trial; all when not given. `inspect` "
        "and the scoring of held-out images ignore it",
    )
    queries: Queries = Field(
        "all",
        description="what a training sample asks for, drawn anew in each epoch: all objects, those of one class, "
        "those of a few classes, or one of these three; a record with a `query` asks for that phrase",
    )
    negatives: Probability = Field(
        0.25,
        description="share of the queries by class that ask only for classes not in the image; their answer is empty",
    )
    augment: AugmentConfig = Field(
        default_factory=AugmentConfig, description="changes of the training images and their boxes"
    )
    packing: bool = Field(
        False,
        description="pack a rank's batch into one row without padding, in which each sample attends to itself; unlike "
        "ms-swift's packing it needs no flash-attn",
    )

    @property
    def varies(self) -> bool:
        """Whether samples differ between epochs, so that encoded ones cannot be kept."""
        return self.order == "random" or self.augment.active or self.queries != "all"

    @property
    def given(self) -> bool:
        """Whether there are annotations to train on, so that no shapes are generated."""
        return self.annotations is not None or bool(self.sources)

    @property
    def most_objects(self) -> int:
        """The most objects of a target; generated shapes may have fewer than `max_objects`."""
        return self.max_objects if self.given else min(self.max_objects, self.shapes.max_objects)

    def of_source(self, source: SourceConfig) -> DataSection:
        """Return the section of one source; settings that it leaves out are taken from this section."""
        shared = DataSection.model_fields.keys() & SourceConfig.model_fields.keys()
        own_settings = {name: getattr(source, name) for name in shared if getattr(source, name) is not None}
        return self.model_copy(update={"sources": (), "images": None, **own_settings})

    def of_heldout(self) -> DataSection:
        """Return the section of the held-out set, which is read whole and not augmented."""
        files = {"annotations": self.heldout_annotations, "images": self.heldout_images}
        return self.model_copy(update={**files, "limit": None, "augment": AugmentConfig()})

    @model_validator(mode="after")
    def _settings_agree(self) -> DataSection:
        if self.sources and (self.annotations is not None or self.images is not None):
            key = "annotations" if self.annotations is not None else "images"
            raise ValueError(f"data.sources and data.{key} are both given: name it within a source, or leave one out")
        has_weight = [source.weight is not None for source in self.sources]
        if any(has_weight) and not all(has_weight):
            number = has_weight.index(False)
            raise ValueError(f"data.sources.{number}.weight: give every source a weight or none, found none here")
        for prefix in ("", "heldout_"):
            annotations, images = getattr(self, f"{prefix}annotations"), getattr(self, f"{prefix}images")
            if images is not None and annotations is None:
                raise ValueError(f"data.{prefix}images is given but data.{prefix}annotations is not: name both")
        if self.limit is not None and not self.given:
            raise ValueError("data.limit: the number of generated shapes is data.shapes.train; set that")
        if self.heldout_annotations is not None and not self.given:
            raise ValueError("data.heldout_annotations is given but data.annotations is not: name both")
        return self


DATA_RULES = (
    Rule(
        lambda c: bool(c.data.augment.crop) and not c.data.shape.survives_crops,
        ("data.augment.crop", "data.geometry"),
        "its lengths and angles differ in a crop of other proportions; leave crops out, or override transform in the "
        "geometry",
    ),
    Rule(
        lambda c: not c.data.shape.derives_from_box and not c.data.given,
        ("data.geometry", "data.annotations"),
        "generated shapes have no such geometry",
    ),
    Rule(
        lambda c: bool(c.data.sources) and not any(source.annotations for source in c.data.sources),
        ("data.sources",),
        "expected at least one source with annotations, found only conversations",
    ),
)
"""Contradictions of the section `data` with others."""


class EvaluationSection(Answering):
    """What is generated and scored after training."""

    images: Literal["heldout", "train", "none"] = Field(
        "heldout",
        description="images to generate answers for and to score: held-out, the training set (memorising), or none",
    )
    overlays: PositiveInt = Field(24, description="number of images that the report shows with their boxes")
    ap_steps: PositiveInt | None = Field(
        None, description="steps between two measurements of AP during training; never when not given"
    )
    ap_images: PositiveInt = Field(
        100, description="number of images for these measurements, always the same, spread evenly over the scored ones"
    )
    ap_patience: PositiveInt | None = Field(
        None,
        description="number of consecutive measurements without a higher AP until training stops; never if not set",
    )


_BEST_BY_AP = "the best checkpoint is then the one with the highest AP; leave one of the two out"
EVALUATION_RULES = (
    Rule(
        lambda c: c.evaluation.ap_patience is not None and c.evaluation.ap_steps is None,
        ("evaluation.ap_patience", "evaluation.ap_steps"),
        "early stopping needs AP during training; set both or neither",
    ),
    Rule(
        lambda c: c.evaluation.ap_steps is not None and c.evaluation.images == "none",
        ("evaluation.ap_steps", "evaluation.images"),
        "there are no images to score during training; set evaluation.images to heldout or train",
    ),
    Rule(
        lambda c: bool(c.training.get("early_stop_interval")) and c.evaluation.images == "none",
        ("training.early_stop_interval", "evaluation.images"),
        "early stopping needs an evaluation loss; set evaluation.images to heldout or train, or leave it out",
    ),
    *(
        Rule(
            lambda c, name=name: c.evaluation.ap_steps is not None and name in c.training,
            ("evaluation.ap_steps", f"training.{name}"),
            because,
        )
        for name, because in (
            ("metric_for_best_model", _BEST_BY_AP),
            ("greater_is_better", _BEST_BY_AP),
            ("early_stop_interval", "evaluation.ap_patience then decides when to stop; leave one of the two out"),
        )
    ),
    Rule(
        lambda c: c.evaluation.ap_steps is not None and shards_weights(c.training.get("deepspeed")),
        ("evaluation.ap_steps", "training.deepspeed"),
        "it shards the weights (stage 3), and answers need a complete model on each rank; use zero2, or score "
        "checkpoints afterwards (evaluate)",
    ),
    Rule(
        lambda c: c.evaluation.images == "train" and len(c.data.sources) > 1,
        ("evaluation.images", "data.sources"),
        "each has its own prompt; name data.heldout_annotations with evaluation.images: heldout, or set it to none",
    ),
    Rule(
        lambda c: c.evaluation.images == "heldout" and c.data.given and c.data.heldout_annotations is None,
        ("evaluation.images", "data.heldout_annotations"),
        "name it, or set evaluation.images to train (memorising) or none",
    ),
)
"""Contradictions of the section `evaluation` with others."""
