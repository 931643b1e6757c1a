"""The settings that decide how the objects of annotations are read, whatever their format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from coord_codec.boxes import OnBadBox
from coord_codec.geometry import GeometryName, geometry_of
from coord_codec.problems import check_description


def _class_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        check_description(name)
    if not value or len(set(value)) < len(value):
        raise ValueError("expected one or more names of classes, each once")
    return value


def _reading(value: str) -> str:
    from coord_data.sources.read_as import ReadAs  # which loads NumPy

    return str(ReadAs.parse(value))


ClassNames = Annotated[tuple[str, ...], AfterValidator(_class_names)]


class ObjectRules(BaseModel):
    """How the objects of a source are read; frozen, and unknown names are refused.

    Example:
        >>> ObjectRules(classes=("cat", "dog")).on_bad_box
        'drop_image'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    images: Path | None = Field(
        None,
        description="folder that image paths in the training annotations are relative to; depends on the format when "
        "not given, for instance JSONL the file's own folder",
    )
    on_bad_box: OnBadBox = Field(
        "drop_image",
        description="for a faulty object: leave its image out, leave the object out, or raise an error; an object "
        "smaller than a bin is left out alone, or is an error",
    )
    allow_outside: bool = Field(
        False, description="also open images outside the image folder, by links or paths with .. in them"
    )
    classes: ClassNames | None = Field(
        None,
        description="the only descriptions that are trained, scored and queried, others are left out and counted; all "
        "in the annotations when not given",
    )
    geometry: Annotated[GeometryName, AfterValidator(lambda name: geometry_of(name).name)] = Field(
        "box",
        description="geometry of the targets: box, point, polygon, oriented box of four corners, or keypoints; read "
        "from `segmentation` and `keypoints` of COCO files, else derived from the box",
    )
    read_as: Annotated[str, AfterValidator(_reading)] | None = Field(
        None,
        description="order and unit of the four numbers of each box, if not as the format has them, such as "
        "xyxy,percent; `inspect` names what fits the pixels",
    )
    max_side_ratio: Annotated[float, Field(ge=1)] | None = Field(
        200,
        description="largest ratio of the longer to the shorter side of an image, beyond which it is left out; null "
        "for any. Training takes that of the model's family when not given: 200 for Qwen's, whose image processor "
        "takes no more",
    )
    strict: bool = Field(
        False, description="raise an error at a bad record, which otherwise is listed and neither trained nor scored"
    )
