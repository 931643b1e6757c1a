"""The configuration of one of several data sources, with the settings that a source can have of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from coord_codec.boxes import OnBadBox
from coord_data.reading.rules import Format
from coord_data.sources.object_rules import ClassNames
from coord_detect.settings.base import Fraction, Probability, Section
from coord_detect.settings.prompts import ClassPrompt, Prompt

Queries = Literal["all", "per_class", "class_list", "mixed"]


def _folder_name(value: str) -> str:
    if not value.strip() or value in (".", "..") or set(value) & set("/\\") or not value.isprintable():
        raise ValueError("expected a name that a folder can have: not empty, no .., without / and \\")
    return value


FolderName = Annotated[str, AfterValidator(_folder_name)]


class AugmentConfig(Section):
    """Random changes of training images and their boxes, drawn anew in each epoch; none by default."""

    flip: Probability = Field(
        0.0,
        description="probability of mirroring an image left to right; never if the record's text contains left or "
        "right in English",
    )
    crop: Probability = Field(
        0.0,
        description="probability of a crop that cuts no box; objects outside it are left out of the answer, but a "
        "record that asks for a phrase keeps all",
    )
    min_crop: Fraction = Field(0.5, description="smallest side of a crop, as a fraction of the image's")
    scale: Probability = Field(0.0, description="probability of reducing the size of an image")
    min_scale: Fraction = Field(0.5, description="smallest factor by which the sides are multiplied")
    colour: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="brightness, contrast and saturation are multiplied by factors of 1 - colour to 1 + colour"
    )

    @property
    def active(self) -> bool:
        """Whether any image is changed."""
        return bool(self.flip or self.crop or self.scale or self.colour)


class SourceConfig(Section):
    """One of several sources: annotated images, or conversations without boxes; `data` has the defaults."""

    name: FolderName | None = Field(
        None, description="name of the source in reports; the file's or folder's name when not given"
    )
    annotations: Path | None = Field(None, description="annotations of any format that `prepare` reads")
    conversations: Path | None = Field(
        None, description="conversations of text and any number of images in ms-swift's JSONL; they train only the text"
    )
    images: Path | None = Field(None, description="folder that its image paths are relative to")
    weight: PositiveFloat | None = Field(
        None,
        description="its share of the samples is its weight divided by the sum of all; by size if no source has one",
    )
    format: Format | None = Field(None, description="format of its annotations")
    limit: PositiveInt | None = Field(None, description="number of its usable images to train on, from the first")
    on_bad_box: OnBadBox | None = Field(None, description="what happens to its faulty objects")
    allow_outside: bool | None = Field(None, description="whether its images may be outside their folder")
    classes: ClassNames | None = Field(None, description="its class list")
    prompt: Prompt | None = Field(None, description="its user's message")
    class_prompt: ClassPrompt | None = Field(None, description="its user's message of a query")
    queries: Queries | None = Field(None, description="what its samples ask for")
    negatives: Probability | None = Field(None, description="its share of queries for classes not in the image")
    augment: AugmentConfig | None = Field(None, description="changes of its images")

    @property
    def path(self) -> Path:
        """The file or folder of the annotations or conversations."""
        path = self.annotations or self.conversations
        assert path is not None  # checked below
        return path

    @model_validator(mode="after")
    def _one_kind(self) -> SourceConfig:
        if (self.annotations is None) == (self.conversations is None):
            found = "neither" if self.annotations is None else "both"
            raise ValueError(f"expected either annotations or conversations, found {found}")
        if self.conversations is not None:
            allowed = {"name", "conversations", "images", "weight", "allow_outside"}
            for name in sorted(self.model_fields_set - allowed):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"conversations have their own text and no boxes: {name} has no effect; leave it out"
                    )
        return self
