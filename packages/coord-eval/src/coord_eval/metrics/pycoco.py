"""pycocotools' classes without their printing; nothing process-wide is redirected, so that threads can score."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from types import FunctionType
from typing import Any

import numpy as np
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


_accumulate = _quiet(COCOeval.accumulate)


class QuietCOCOeval(COCOeval):  # type: ignore[misc]
    """pycocotools' evaluation, a category after the other, since its records of all would take most of the memory."""

    def evaluate(self: Any) -> None:
        """Evaluate and accumulate; of a category only the images with an object or a box, as others count nothing."""
        self._prepare()
        of_all, parts = self.params, []
        images: dict[int, list[int]] = {}
        for image, category in sorted({*self._gts, *self._dts}):
            images.setdefault(category, []).append(image)
        for categories in [[category] for category in of_all.catIds] or [[]]:
            self.params = self._paramsEval = own = copy(of_all)
            own.catIds = categories
            own.imgIds = [image for category in categories for image in images.get(category, ())]
            pairs = [(image, category) for category in categories for image in own.imgIds]
            self.ious = {pair: self.computeIoU(*pair) for pair in pairs}
            self.evalImgs = [self.evaluateImg(*pair, area, own.maxDets[-1]) for area in own.areaRng for pair in pairs]
            _accumulate(self)
            parts.append(self.eval)
        axes = {"precision": 2, "recall": 1}
        self.eval = {name: np.concatenate([part[name] for part in parts], axis) for name, axis in axes.items()}

    def accumulate(self) -> None:
        """Do nothing, as `evaluate` has done it."""
