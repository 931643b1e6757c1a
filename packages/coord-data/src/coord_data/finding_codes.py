"""The codes of findings: one row each, with what it is about, how severe it can be, and what it says."""

from __future__ import annotations

from typing import Literal, NamedTuple

from coord_codec.registry import Registry

Severity = Literal["error", "warning", "note"]
Subject = Literal["order", "unit", "place", "files", "records", "tokens"]

SUBJECTS: dict[Subject, str] = {
    "order": "the order of the four numbers",
    "unit": "their unit, or that of a resized or padded copy",
    "place": "their place",
    "files": "image files",
    "records": "records and labels",
    "tokens": "target texts; with `-c` or `--model`",
}
"""What a finding is about, in words."""


class FindingCode(NamedTuple):
    """A row of the table of codes.

    Attributes:
        subject: a key of `SUBJECTS`
        grades: the severities that it can have
        words: what it says, without figures
    """

    subject: Subject
    grades: tuple[Severity, ...]
    words: str


_GRADES: dict[str, tuple[Severity, ...]] = {
    "e": ("error",), "w": ("warning",), "n": ("note",), "ew": ("error", "warning"), "en": ("error", "note"),
    "wn": ("warning", "note"), "ewn": ("error", "warning", "note"),
}  # fmt: skip
_ROWS: dict[Subject, str] = {
    "order": """
        xywh ew the numbers are left, top, width and height
        xyxy ew they are left, top, right and bottom
        cxcywh ew they are the centre, width and height
        yxyx ew they are top, left, bottom and right
        swapped_axes ew y precedes x
    """,
    "unit": """
        pixels ew the numbers are pixels
        unit ew they are fractions of the sides
        norm1000 ew they are thousandths of the sides
        norm999 ew they are 0 to 999 over the sides
        percent ew they are percent of the sides
        mixed_units ew some boxes have another unit than the others
        resized ew they are those of a resized copy
        padded ew they are those of a padded copy
        unknown_numbers e they fit no known order and unit
    """,
    "place": """
        shifted ew all boxes lie beside their objects by the same step
        too_large ewn all boxes are larger than their objects
        too_small ew all boxes are smaller than their objects
        one_off wn boxes are a pixel off, as another first or last pixel would have it
        mirrored ew boxes are those of the mirrored image
        upside_down ew boxes are those of the image upside down
        rotated ew boxes are those of the rotated image
        exif ewn images have an EXIF orientation, which boxes may or may not follow
        shuffled e boxes are those of other images
        no_evidence n the pixels do not confirm the boxes
    """,
    "files": """
        size_mismatch ew images have other sizes than the annotations state
        unreadable_image ew images are missing or cannot be decoded
        deep_images ew images of more than 8 bits use little of their scale
        duplicate_images ewn images are there several times
        conflicting_boxes ew equal files have different boxes
        leakage ew held-out images are among the training images
        splits_together w several splits are read as one set
        without_partner wn images or annotation files have no partner
        small_images n images with a short side are left out, as asked
    """,
    "records": """
        duplicates ew objects are there several times
        class_names ew names of classes differ in case, spaces, punctuation or Unicode form alone
        similar_names ew rare names of classes are a letter away from frequent ones
        class_numbers e class numbers have no name, or start elsewhere
        same_names w several categories have one name
        predictions w the boxes have scores, as predictions have
        rare_classes n classes have few objects
        too_many_objects ew images have more objects than a target text
        no_boxes en no image has a box
        crowds ew many objects are crowd regions
        refused ew records or objects are refused
        box_and_outline ew boxes are not around the outline of the same object
        box_and_area ew boxes are smaller than the area stated for the same object
        reread n the boxes are read otherwise than the format has them, as asked
    """,
    "tokens": """
        long_samples ew samples are longer than the limit of tokens
        split_names n names of classes are several tokens
    """,
}
FINDING_CODES: Registry[FindingCode] = Registry(
    "finding",
    (
        (code, FindingCode(subject, _GRADES[grades], words))
        for subject, rows in _ROWS.items()
        for line in rows.strip().splitlines()
        for code, grades, words in [line.split(maxsplit=2)]
    ),
)
"""Every code. A check of your own adds a row, `FINDING_CODES.add("blurred", FindingCode("files", ("note",), ".."))`."""


def code_table() -> str:
    """Return the codes as a table in Markdown, by subject.

    Example:
        >>> print(code_table().splitlines()[2])
        | the order of the four numbers | `xywh` | error, warning | the numbers are left, top, width and height |
    """
    rows = [
        f"| {SUBJECTS[row.subject]} | `{code}` | {', '.join(row.grades)} | {row.words} |"
        for code, row in FINDING_CODES.items()
    ]
    return "\n".join(["| about | code | severity | what it says |", "|---|---|---|---|", *rows])
