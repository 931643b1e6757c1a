"""The model families, which `register_family` extends."""

from __future__ import annotations

from pathlib import Path

from coord_codec import InputError
from coord_codec.files import read_json
from coord_codec.registry import Registry
from coord_detect.families import gemma, internvl, qwen
from coord_detect.families.family import Family

_ROWS = (*qwen.ROWS, *internvl.ROWS, *gemma.ROWS)
FAMILIES: Registry[Family] = Registry("model_type", ((row.model_type, row) for row in _ROWS))
"""The families by the `model_type` of config.json."""


def register_family(family: Family) -> None:
    """Add a family of your own; a file that is named in `plugins` may call this.

    Args:
        family: the record; registering the same record again changes nothing

    Raises:
        ValueError: another record has its `model_type`.

    Example:
        >>> register_family(Family("My-VL", "my_vl", swift_model="qwen3_vl", swift_template="qwen3_vl"))
        >>> FAMILIES["my_vl"].entry
        'my_vl_coord'
        >>> FAMILIES.remove("my_vl")
    """
    FAMILIES.add(family.model_type, family)


def family_of(folder: Path) -> Family:
    """Return the family of a checkpoint; an `InputError` if its `model_type` is not in the table."""
    path = folder / "config.json"
    kind = read_json(path).get("model_type")
    if kind not in FAMILIES:
        raise InputError(
            f"{path}: model_type: expected {' or '.join(FAMILIES)}, found {kind!r}; use a checkpoint of one of these "
            "families, or register its own (docs/guides/how-to-add.md) in a file that plugins names"
        )
    return FAMILIES[kind]
