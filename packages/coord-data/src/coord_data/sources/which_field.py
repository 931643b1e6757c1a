"""Decides which column or member is the image, the boxes and their classes: by kind and name, else the user's choice.

What belongs to a box is sought in the structure that holds the box. Several that fit are refused by name, and `fields`
(`--fields image=photo,boxes=objects,label=category_name`) chooses one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from coord_codec.files import InputError

BOXES = ("bbox", "bboxes", "boxes", "box", "bounding_box", "bounding_boxes")
LISTS = ("objects", "annotations", "instances", "detections")
"""Names of the field with the objects of an image."""
_LABELS = (
    frozenset(
        "category categories category_name category_names category_id category_ids label labels label_name label_names "
        "label_id class classes class_name class_names class_id class_label desc".split()
    ),
    frozenset("name names".split()),
    frozenset("instruction phrase caption expression sentence query referring_expression text".split()),
)
"""Names of the field with the class of a box; those of a group count where no field has one of a group before."""
PHRASES = _LABELS[2]
_PHOTOGRAPHS = frozenset("image images img photo photograph picture rgb jpg jpeg png webp bmp tif tiff".split())
_BESIDE = frozenset(
    "mask masks matte alpha seg segm segmentation semantic instance instances panoptic depth disparity normal normals "
    "flow edge edges canny label labels gt annotated overlay visualization preview thumbnail thumb heatmap "
    "conditioning ir infrared thermal crop crops".split()
)
"""Words of the names of images beside the photograph."""
ROLES = ("image", "boxes", "label")


def parse_fields(text: str) -> dict[str, str]:
    """Return the name that is chosen for each role.

    Example:
        >>> parse_fields("image=photo, label=category_name")
        {'image': 'photo', 'label': 'category_name'}
    """
    words = (word.partition("=") for word in text.split(","))
    pairs = [(role.strip(), name.strip()) for role, _, name in words]
    if not all(role in ROLES and name for role, name in pairs) or len(dict(pairs)) < len(pairs):
        raise InputError(f"fields: expected ROLE=NAME with the roles {', '.join(ROLES)}, each once, found {text!r}")
    return dict(pairs)


def only(fitting: Sequence[str], role: str, where: str) -> str | None:
    """Return the only name that fits a role; None if there is none.

    Raises:
        InputError: several fit.
    """
    if len(fitting) > 1:
        raise InputError(
            f"{where}: {' and '.join(fitting)} may each be the {role}; choose one with --fields {role}={fitting[0]}"
        )
    return fitting[0] if fitting else None


def chosen(names: Sequence[str], role: str, fields: Mapping[str, str], where: str) -> str | None:
    """Return the name that the user chose for a role, which must be among some names; None without a choice."""
    if (wanted := fields.get(role)) is None:
        return None
    if wanted not in names:
        raise InputError(f"{where}: --fields {role}={wanted}: expected one of {', '.join(names)[:300]}")
    return wanted


def photograph(names: Sequence[str], fields: Mapping[str, str], where: str) -> str | None:
    """Return the name of the photograph among the names of images; None if there is none.

    Example:
        >>> photograph(["depth", "image"], {}, "a.parquet"), photograph(["mask.png", "jpg"], {}, "a.tar")
        ('image', 'jpg')
    """
    if wanted := chosen(names, "image", fields, where):
        return wanted
    plain = [name for name in names if _BESIDE.isdisjoint(re.split(r"[\W_]+", name.lower()))]
    named = [name for name in plain if name.lower() in _PHOTOGRAPHS]
    return only(named if len(named) == 1 else plain, "image", where)


def label_of(kinds: Mapping[str, str], fields: Mapping[str, str], where: str) -> str | None:
    """Return the field with the class of a box; None if there is none.

    Args:
        kinds: `name` (text, or a number that has one) or `number` of each field of the structure that holds the box
        fields: the user's choices
        where: the file, for messages

    Example:
        >>> label_of({"category": "number", "category_name": "name"}, {}, "a.parquet")
        'category_name'
        >>> label_of({"category_id": "number", "name": "name"}, {}, "a.parquet")
        'name'
        >>> label_of({"category_id": "number", "caption": "name"}, {}, "a.parquet")
        'category_id'
    """
    if wanted := chosen(list(kinds), "label", fields, where):
        return wanted
    groups = [[name for name in kinds if name.lower() in names] for names in _LABELS]
    named = [[name for name in group if kinds[name] == "name"] for group in groups]
    # Numbers come before phrases, which name one object rather than a class.
    for fitting in (*named[:2], *groups[:2], named[2], groups[2]):
        if fitting:
            return only(fitting, "label", where)
    return None
