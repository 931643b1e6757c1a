"""The settings that decide how annotations are read and which records are left out."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from coord_data.sources.object_rules import ObjectRules


def format_name(value: str) -> str:
    """Return the name of a format.

    Raises:
        ValueError: there is no format of this name.
    """
    from coord_data.formats.registry import FORMATS  # the readers, which only a stated format needs here

    if value != "auto" and value not in FORMATS:
        raise ValueError(f"expected auto or one of {', '.join(FORMATS)}, found {value!r}")
    return value


def _fields(value: str) -> str:
    from coord_data.sources.which_field import parse_fields

    return ",".join(f"{role}={name}" for role, name in parse_fields(value).items())


Format = Annotated[str, AfterValidator(format_name)]
"""Name of an annotation format, a row of `coord_data.formats.annotation_format.FORMATS`, or `auto`."""


class ReadingRules(ObjectRules):
    """How annotations of any format are read, and which format they have; frozen, and unknown names are refused.

    Example:
        >>> ReadingRules(format="yolo").on_bad_box
        'drop_image'
    """

    fields: Annotated[str, AfterValidator(_fields)] | None = Field(
        None,
        description="which columns of a Parquet file, or members of a tar, are the image, the boxes and their classes, "
        "where several fit: image=photo,boxes=objects,label=category_name",
    )
    format: Format = Field("auto", description="format of the annotations; auto detects it from their content")
