"""From the words of an answer to the categories of a data set, in named layers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coord_eval.errors import InputError

#: The layers in the order in which they are tried; a label that none of them knows is ``unknown``.
LABEL_LAYERS = ("exact", "normalized", "synonym", "callback", "unknown")


def normalize_label(label: str) -> str:
    """Return the label in NFKC, case-folded, with ``_`` and ``-`` and runs of white space as one space."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    return " ".join(folded.replace("_", " ").replace("-", " ").split()).strip(" .,;:!\"'")


@dataclass
class LabelMatcher:
    """Finds the category of a label.

    Attributes:
        categories: The data set's names.
        synonyms: Further names, ``{"tv": ["television", "tv set"]}`` from category to its synonyms.
        callback: Called with a label that no other layer knows; returns a category or None.
    """

    categories: Sequence[str]
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    callback: Callable[[str], str | None] | None = None

    def __post_init__(self) -> None:
        self._exact = {name: i for i, name in enumerate(self.categories)}
        if len(self._exact) != len(self.categories):
            double = next(n for i, n in enumerate(self.categories) if n in self.categories[:i])
            raise InputError(f"categories: two are called {double!r}; labels in words cannot tell them apart")
        self._normalized: dict[str, int | None] = {}
        for name, index in self._exact.items():
            key = normalize_label(name)
            # Two categories that normalise alike (Polish and polish) are told apart by the exact layer alone.
            self._normalized[key] = None if key in self._normalized else index
        self._synonyms: dict[str, int] = {}
        for name, others in self.synonyms.items():
            if name not in self._exact:
                raise InputError(f"synonyms: {name!r} is not a category; the keys must be category names")
            for other in [others] if isinstance(others, str) else others:
                key = normalize_label(other)
                if self._synonyms.setdefault(key, self._exact[name]) != self._exact[name]:
                    raise InputError(f"synonyms: {other!r} stands for two categories; keep one")
        self._cache: dict[str, tuple[int | None, str]] = {}

    def match(self, label: str) -> tuple[int | None, str]:
        """Return the index of the category, None when unknown, and the layer that found it."""
        found = self._cache.get(label)
        if found is None:
            found = self._cache[label] = self._look_up(label)
        return found

    def _look_up(self, label: str) -> tuple[int | None, str]:
        if label in self._exact:
            return self._exact[label], "exact"
        key = normalize_label(label)
        if (index := self._normalized.get(key)) is not None:
            return index, "normalized"
        if key in self._synonyms:
            return self._synonyms[key], "synonym"
        if self.callback is not None and (name := self.callback(label)) is not None:
            if name not in self._exact:
                raise InputError(f"label callback: returned {name!r} for {label!r}, which is not a category")
            return self._exact[name], "callback"
        return None, "unknown"
