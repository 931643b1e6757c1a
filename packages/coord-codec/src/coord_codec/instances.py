"""The record everything starts from: an image and its objects, boxes in [0, 1]."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from coord_codec.grid import CoordGrid
from coord_codec.markers import find_control_token
from coord_codec.tokens import tokens_to_ints

_GRID = CoordGrid()
_PositiveInt = Annotated[int, Field(gt=0, strict=True)]


class Object(BaseModel):
    """One object of an image. Further keys are kept.

    Attributes:
        desc: what it is, in words: not empty, without markers, coordinate tokens or other control tokens.
        bbox: (x1, y1, x2, y2) as fractions of the image's width and height, x1 < x2 and y1 < y2. Four
            coordinate tokens are read as their bins' coordinates.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    desc: Annotated[str, Field(strict=True)]
    bbox: tuple[float, float, float, float]

    @field_validator("desc")
    @classmethod
    def _check_desc(cls, desc: str) -> str:
        if not desc.strip():
            raise ValueError("expected a description, found an empty one")
        if token := find_control_token(desc):
            raise ValueError(
                f"expected plain words, found the control token {token} in {desc!r}: take it out"
            )
        try:
            desc.encode()
        except UnicodeEncodeError:
            raise ValueError(f"expected valid Unicode, found half a surrogate pair in {desc!r}") from None
        return desc

    @field_validator("bbox", mode="before")
    @classmethod
    def _check_bbox(cls, bbox: Any) -> tuple[float, ...]:
        return _read_box(bbox)


class Instance(BaseModel):
    """One image and its objects: a line of an instance file. Further keys are kept.

    A record that says `coord_space: "bins"` has its boxes read as whole bins; the instance holds them in
    [0, 1] and no longer says so.

    Attributes:
        image: path of the image, relative to the file the record stands in.
        objects: the objects; an image may have none.
        width: width of the image in pixels.
        height: height of the image in pixels.
        image_id: the data set's own id.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    image: Annotated[str, Field(min_length=1, strict=True)]
    width: _PositiveInt | None = None
    height: _PositiveInt | None = None
    image_id: Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)] | None = None
    objects: tuple[Object, ...]

    @model_validator(mode="before")
    @classmethod
    def _read_coord_space(cls, record: Any) -> Any:
        if not isinstance(record, Mapping) or "coord_space" not in record:
            return record
        record = dict(record)
        space = record.pop("coord_space")
        if space != "bins":
            raise ValueError(
                f"coord_space: expected 'bins' or no such key (boxes in [0, 1]), found {space!r}"
            )
        if isinstance(record.get("objects"), (list, tuple)):
            record["objects"] = [_call_bins(o) for o in record["objects"]]
        return record


class _Bins(tuple[Any, ...]):
    """A box whose numbers the record calls bins; the box's own check reads it and can name the field."""


def _call_bins(obj: Any) -> Any:
    box = obj.get("bbox") if isinstance(obj, Mapping) else None
    box = box.tolist() if box is not None and hasattr(box, "tolist") else box
    return {**obj, "bbox": _Bins(box)} if isinstance(box, (list, tuple)) else obj


def _read_box(bbox: Any) -> tuple[float, ...]:
    if hasattr(bbox, "tolist"):
        bbox = bbox.tolist()
    if not isinstance(bbox, (list, tuple)) or len(bbox) != 4:
        raise ValueError(f"expected four values x1, y1, x2, y2, found {bbox!r}")
    if any(isinstance(v, str) for v in bbox):
        box = tuple(_GRID.dequantize(k) for k in tokens_to_ints(bbox, _GRID))
    elif not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in bbox):
        raise ValueError(f"expected four numbers or four coordinate tokens, found {list(bbox)!r}")
    elif isinstance(bbox, _Bins):
        if any(v % 1 != 0 for v in bbox):  # true for infinity and NaN
            raise ValueError(f"expected whole numbers (coord_space is 'bins'), found {list(bbox)!r}")
        box = tuple(_GRID.dequantize(int(v)) for v in bbox)
    else:
        for value in bbox:
            _GRID.quantize(value)  # raises for what the grid cannot hold
        box = tuple(float(v) for v in bbox)
    x1, y1, x2, y2 = box
    if not (x1 < x2 and y1 < y2):
        raise ValueError(
            f"expected x1 < x2 and y1 < y2, found {list(bbox)!r}: the box has no area or swapped corners"
        )
    return box
