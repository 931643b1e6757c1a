"""Hints about words that a user has probably meant otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from coord_codec.other_words import setting_hint


def yaml_word(value: Any, is_text: bool) -> str:
    """Return a hint about a word that YAML has converted to a boolean, or to a number if text is expected."""
    if isinstance(value, bool):
        word, hint = ("on", "how YAML reads yes and on") if value else ("off", "how YAML reads no and off")
        hint = f", which is {hint} (a boolean)"
    elif is_text and isinstance(value, int | float):
        word, hint = str(value), ", which YAML has read as a number"
    else:
        return ""
    return f"{hint}; put the word in quotes, on a command line '\"{word}\"'" if is_text else hint


def did_you_mean(word: str, known: Iterable[str], elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a hint that names the most similar of the `known` words; empty if none is similar.

    `elsewhere` has the words of other libraries, each with ours.
    """
    from difflib import get_close_matches

    known = list(known)
    initials = [name for name in known if "".join(part[:1] for part in name.split("_")) == word]  # lr
    other = elsewhere.get(word) or setting_hint(word)
    ours = [name for name in known if name in (other, other.rpartition(".")[2])]
    near = ours or get_close_matches(word, known, n=1) or initials
    return f"; did you mean {near[0]}?" if near else ""
