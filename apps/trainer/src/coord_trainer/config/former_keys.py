"""Former keys and values of the configuration: each works until 0.3, and a printed line names the present one."""

from __future__ import annotations

from typing import Any

from coord_codec import InputError
from coord_trainer.config.decoding import OLD_NAMES, WITHOUT_FEEDBACK, as_yaml, decoding_named
from coord_trainer.console import say_once


def in_present_keys(values: Any) -> Any:
    """Return the settings of one file, or of one word of the command line, with present keys in place of former ones.

    Raises:
        InputError: a former key is given beside the present one, or has a value that no longer exists.

    Example:
        >>> in_present_keys({"evaluation": {"images": "train"}})
        {'evaluation': {'images': 'train'}}
    """
    section = values.get("evaluation") if isinstance(values, dict) else None
    if not isinstance(section, dict):
        return values
    section = dict(section)
    for former, present, convert in (("pictures", "images", lambda value: value), ("readings", "decoding", _decodings)):
        if former not in section:
            continue
        if present in section:
            raise InputError(f"evaluation.{former} and evaluation.{present} are both given: leave the first out")
        section[present] = convert(section.pop(former))
        shown = section[present]
        if former == "readings":
            shown = as_yaml(shown[0]) if len(shown) == 1 else f"[{', '.join(map(as_yaml, shown))}]"
        say_once(f"note: evaluation.{former} is now evaluation.{present}: {shown} (the former key works until 0.3)")
    return values | {"evaluation": section}


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
