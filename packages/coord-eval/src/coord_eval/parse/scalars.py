"""Converts NumPy and torch values to plain Python numbers and lists, without importing either library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = frozenset({int, float, str, bool, list, dict, tuple, type(None)})


def plain(value: Any) -> Any:
    """Convert a NumPy or torch scalar or array to a number or list; return any other value unchanged.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain("a")
        (0.5, [1, 2], 'a')
    """
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def plain_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with `plain` values; the record itself if its values are plain already."""
    if _PLAIN.issuperset(map(type, record.values())):
        return record
    return {key: plain(value) for key, value in record.items()}


def plain_tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a COCO dictionary with `plain_record` applied to its records."""
    return {key: _plain_rows(rows) if isinstance(rows, list) else rows for key, rows in document.items()}


def _plain_rows(rows: Sequence[Any]) -> list[Any]:
    return [plain_record(row) if isinstance(row, Mapping) else row for row in rows]
