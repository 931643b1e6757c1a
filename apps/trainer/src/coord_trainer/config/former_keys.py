"""Former keys and values of the configuration: each works until 0.3, and a printed line names the present one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from coord_codec import InputError
from coord_trainer.config.decoding import OLD_NAMES, WITHOUT_FEEDBACK, as_yaml, decoding_named
from coord_trainer.console import say_once

FORMER_KEYS: Mapping[str, str] = MappingProxyType(
    {"evaluation.pictures": "evaluation.images", "evaluation.readings": "evaluation.decoding"}
)
"""Each former key with the present one."""


def in_present_keys(values: Any) -> Any:
    """Return the settings of one file, or of one word of the command line, with present keys in place of former ones.

    Raises:
        InputError: a former key is given beside the present one, or has a value that no longer exists.

    Example:
        >>> in_present_keys({"evaluation": {"images": "train"}})
        {'evaluation': {'images': 'train'}}
    """
    if not isinstance(values, dict):
        return values
    for former, present in FORMER_KEYS.items():
        name, former_key = former.split(".")
        section, present_key = values.get(name), present.split(".")[1]
        if not isinstance(section, dict) or former_key not in section:
            continue
        if present_key in section:
            raise InputError(f"{former} and {present} are both given: leave the first out")
        value = section[former_key]
        shown = value
        if former == "evaluation.readings":
            value = _decodings(value)
            shown = as_yaml(value[0]) if len(value) == 1 else f"[{', '.join(map(as_yaml, value))}]"
        kept = {key: setting for key, setting in section.items() if key != former_key}
        values = values | {name: kept | {present_key: value}}
        say_once(f"note: {former} is now {present}: {shown} (the former key works until 0.3)")
    return values


def _decodings(names: Any) -> list[dict[str, Any]]:
    """Return the settings of the decodings that a value of the former key `evaluation.readings` names."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names:
        raise InputError(
            f"evaluation.readings: expected names of decodings, found {names!r}; use evaluation.decoding, for example "
            "{grammar: markers, boxes: best_iou}"
        )
    found = []
    for name in names:
        if name in WITHOUT_FEEDBACK:
            raise InputError(
                f"evaluation.readings: {name}, which generated the rounded expectation, no longer exists; use "
                f"evaluation.decoding={as_yaml(WITHOUT_FEEDBACK[name])}"
            )
        if decoding_named(str(name)) is None:
            raise InputError(
                f"evaluation.readings: {name!r} is not a decoding; use evaluation.decoding with grammar none, markers "
                f"or names, and boxes tokens, median, best_iou or expectation (former names: {', '.join(OLD_NAMES)})"
            )
        found.append(OLD_NAMES.get(name) or decoding_named(name).model_dump(exclude_defaults=True))
    return found
