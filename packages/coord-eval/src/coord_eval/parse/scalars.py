"""Numbers of NumPy and torch as Python's own, without importing either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = frozenset({int, float, str, bool, list, dict, tuple, type(None)})


def plain(value: Any) -> Any:
    """Return a scalar or an array of NumPy or torch as a number or a list; anything else as it is.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain("a")
        (0.5, [1, 2], 'a')
    """
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def plain_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record whose values are `plain`; the record itself where they are already."""
    if _PLAIN.issuperset(map(type, record.values())):
        return record
    return {key: plain(value) for key, value in record.items()}


def plain_tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a COCO dictionary whose records are `plain_record`."""
    return {key: _plain_rows(rows) if isinstance(rows, list) else rows for key, rows in document.items()}


def _plain_rows(rows: Sequence[Any]) -> list[Any]:
    return [plain_record(row) if isinstance(row, Mapping) else row for row in rows]
