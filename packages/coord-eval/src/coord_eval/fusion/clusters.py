"""Groups boxes of one label that are one object: weighted boxes fusion, with boxes that a tile's edge has cut.

Boxes are taken by descending score. Each joins the group whose fused box it overlaps most, if by more than a threshold,
and the group's box becomes the mean of its members, weighted by score (Solovyev et al. 2021).

A side of a box is cut if it lies on an inner edge of its view's region: the object may go on beyond it. Such a side has
no vote on where the object ends; if all members are cut there, the outermost counts. Two boxes of which one is cut are
one object if the box that they give together, seen through the region of either, is the box that was found there.

Shapes: N boxes, K groups; boxes and regions are `x1, y1, x2, y2`.
"""

from __future__ import annotations

import numpy as np

from coord_eval.boxes.iou import box_iou

_LEAST_WEIGHT = 1e-12
"""Weight of a box of score 0 in the mean, so that a group of such boxes has one."""


def group_boxes(
    boxes_N: np.ndarray, rows: list[int], threshold: float, *, join_only: bool = False
) -> list[tuple[list[int], np.ndarray]]:
    """Return the rows, by descending score, and the fused box of each group of boxes of one label.

    Args:
        boxes_N: records with `box`, `weighed` (score times the weight of the view), `cut` (whether each side lies on an
            inner edge of the view's region) and `region` (the part of the image that the view shows)
        rows: the boxes of the label
        threshold: IoU above which a box joins a group
        join_only: whether boxes that no edge has cut stay alone
    """
    if len(rows) == 1:
        return [(rows, boxes_N["box"][rows[0]])]
    by_score = np.array(rows)[np.argsort(-boxes_N["weighed"][rows], kind="stable")]
    groups = _Groups(boxes_N[by_score], threshold, join_only)
    for n, row in enumerate(by_score.tolist()):
        groups.add(n, row)
    groups.join_cut()
    return [(members, groups.box_K4[k]) for k, members in enumerate(groups.members) if members]


class _Groups:
    """The groups: sums over the members whose side is not cut, and the outermost sides and regions of all members."""

    def __init__(self, boxes_n: np.ndarray, threshold: float, join_only: bool) -> None:
        self._threshold, self._join_only = threshold, join_only
        box_n4, region_n4 = boxes_n["box"], boxes_n["region"]
        weight_n4 = np.where(boxes_n["cut"], 0.0, np.maximum(boxes_n["weighed"], _LEAST_WEIGHT)[:, None])
        self._any_cut = bool(boxes_n["cut"].any())
        self._gap = 1e-6 * float(np.ptp(region_n4))
        self.members: list[list[int]] = []
        # Each box is a row until it is added; the rows of groups stand before those of the boxes that are left.
        self._rows_5K4 = np.stack([weight_n4 * box_n4, weight_n4, box_n4, region_n4, box_n4])
        self.sum_K4, self.weight_K4, self.outer_K4, self.region_K4, self.box_K4 = self._rows_5K4

    def add(self, n: int, row: int) -> None:
        """Add the next box to the most similar group, or as a group of its own; `row` names it."""
        k = len(self.members)
        self._rows_5K4[:, k] = self._rows_5K4[:, n]
        self.members.append([row])
        if self._joined(k, k):
            self.members.pop()

    def join_cut(self) -> None:
        """Join groups with a cut side to others, until none fits: an object may span more than two tiles."""
        any_joined = self._any_cut
        while any_joined:
            any_joined = False
            for k, members in enumerate(self.members):
                if members and not self.weight_K4[k].all():
                    any_joined |= self._joined(k, len(self.members))

    def _joined(self, k: int, among: int) -> bool:
        """Join group k to the most similar one of the first `among`; return whether one is similar enough."""
        if not among:
            return False
        similarity_K = np.zeros(among) if self._join_only else _iou(self.box_K4[:among], self.box_K4[k])
        if self._any_cut:
            cut_K = (self.weight_K4[:among] == 0).any(axis=1) | (self.weight_K4[k] == 0).any()
            similarity_K = np.where(cut_K, self._agreement(k, among), similarity_K)
            similarity_K[[i for i, members in enumerate(self.members[:among]) if i == k or not members]] = -1
        into = int(similarity_K.argmax())
        if similarity_K[into] <= self._threshold:
            return False
        self.members[into] += self.members[k]
        self.members[k] = []
        self._rows_5K4[:2, into] += self._rows_5K4[:2, k]
        self._rows_5K4[2:4, into] = _outer(self._rows_5K4[2:4, into], self._rows_5K4[2:4, k])
        self.box_K4[into] = _sides(self.sum_K4[into], self.weight_K4[into], self.outer_K4[into])
        return True

    def _agreement(self, k: int, among: int) -> np.ndarray:
        """Return how well the box that two groups give together agrees with what was found in the region of either."""
        sum_K4, weight_K4, outer_K4, region_K4, box_K4 = self._rows_5K4[:, :among]
        sum_4, weight_4, outer_4, region_4, box_4 = self._rows_5K4[:, k]
        fused_K4 = _sides(sum_K4 + sum_4, weight_K4 + weight_4, _outer(outer_K4, outer_4))
        common_K4 = _inner(region_K4, region_4)
        adjoining_K = (common_K4[:, 2:] - common_K4[:, :2] >= -self._gap).all(axis=1)
        agreement_K = np.minimum(_iou(_inner(fused_K4, region_K4), box_K4), _iou(_inner(fused_K4, region_4), box_4))
        return np.where(adjoining_K, agreement_K, 0.0)


def _sides(sum_4: np.ndarray, weight_4: np.ndarray, outer_4: np.ndarray) -> np.ndarray:
    sides: np.ndarray = np.divide(sum_4, weight_4, out=np.array(outer_4, np.float64), where=weight_4 > 0)
    return sides


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the smallest box [..., 4] around two."""
    return np.concatenate([np.minimum(a[..., :2], b[..., :2]), np.maximum(a[..., 2:], b[..., 2:])], axis=-1)


def _inner(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the part [..., 4] that two boxes have in common; its sides are swapped if there is none."""
    return np.concatenate([np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])], axis=-1)


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return box_iou(as_xywh(a), as_xywh(b))


def as_xywh(box: np.ndarray) -> np.ndarray:
    """Return `x, y, width, height` [..., 4] of corners, whose sides are at least 0."""
    return np.concatenate([box[..., :2], np.maximum(box[..., 2:] - box[..., :2], 0)], axis=-1)
