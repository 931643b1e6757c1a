"""Finds the log-probabilities of the descriptions in an answer."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any


def description_fields(
    tokens: Sequence[Any],
    log_p: Sequence[float],
    markers: Sequence[Any],
    coordinates: Container[Any],
    log_end: Sequence[float] | None = None,
) -> dict[str, list[Any]]:
    """Return the fields of a prediction on the description after each start marker, even of malformed objects.

    All tokens are ids or all are texts. `log_end` has the log-probability at each place that a name ends there, which
    counts as part of a name that was forced: a longer one may begin with it.
    """
    found: list[list[float]] = []
    is_open = False
    for place, (token, value) in enumerate(zip(tokens, log_p, strict=False)):
        if token in markers or token in coordinates:
            if is_open and found[-1] and log_end is not None:
                found[-1][-1] += log_end[place]
            is_open = token == markers[0]
            found += [[]] if is_open else []
        elif is_open:
            found[-1].append(value)
    return {
        "desc_logprobs": [value for values in found for value in values],
        "desc_token_counts": list(map(len, found)),
    }
