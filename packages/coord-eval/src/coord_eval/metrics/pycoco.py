"""pycocotools' classes without their printing; nothing process-wide is redirected, so that threads can score."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def _print_nothing(*_: object, **__: object) -> None:
    """Take the place of `print`."""


def _quiet(function: Callable[..., Any]) -> Any:
    """Return a copy of a function for which `print` prints nothing."""
    names = {**function.__globals__, "print": _print_nothing}
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


class QuietCOCO(COCO):  # type: ignore[misc]  # pycocotools has no types
    """pycocotools' index of annotations."""

    createIndex = _quiet(COCO.createIndex)


class QuietCOCOeval(COCOeval):  # type: ignore[misc]
    """pycocotools' evaluation."""

    evaluate = _quiet(COCOeval.evaluate)
    accumulate = _quiet(COCOeval.accumulate)
