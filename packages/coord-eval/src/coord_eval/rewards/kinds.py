"""The table of rewards: one row a kind, built in or a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coord_codec.registry import Registry
from coord_eval.rewards import measures
from coord_eval.rewards.judged import JudgedAnswers


@dataclass(frozen=True, kw_only=True)
class Reward:
    """One row of the table of rewards, `coord_eval.rewards.REWARDS`.

    Attributes:
        name: the kind, as `box_reward` takes it
        documentation: what it measures, in Markdown, for the guide
        partial: for what an answer that is not right in all is given a part
        measure: function of judged answers that returns a value in [0, 1] for each, 1 for the best
        sees_boxes: whether it depends on where the boxes are; one that does not is no reward alone, since an answer
            with any boxes can have it

    Example:
        >>> from coord_eval.rewards import Reward, box_reward, REWARDS, register_reward
        >>> def found(judged):
        ...     return (judged.hits_IT[:, 0] > 0).astype(float)
        >>> row = Reward(name="found", documentation="One hit at IoU .5.", partial="none", measure=found)
        >>> register_reward(row).name
        'found'
        >>> box_reward(["a cat: nowhere"], [[{"desc": "cat", "bbox": [0, 0, 1, 1]}]], kind="found")
        [0.0]
        >>> REWARDS.remove("found")
    """

    name: str
    documentation: str
    partial: str
    measure: Callable[[JudgedAnswers], np.ndarray]
    sees_boxes: bool = True


_ROWS = (
    Reward(
        name="f1",
        documentation="F1 of the boxes, each paired with at most one object of its label, mean over IoU .50, .55, ..., "
        ".95; dropped pieces count as boxes",
        partial="each object that is found, and each of ten thresholds that its IoU reaches",
        measure=measures.f1,
    ),
    Reward(
        name="recall",
        documentation="as `f1`, with recall weighing twice as much as precision (F2), for models that leave objects "
        "out",
        partial="as `f1`; a superfluous box costs a quarter of a missing one",
        measure=measures.recall,
    ),
    Reward(
        name="iou",
        documentation="2 Σ IoU of the pairs / (objects + boxes): F1 without thresholds",
        partial="every overlap with an object of its label, in proportion to the IoU",
        measure=measures.soft_f1,
    ),
    Reward(
        name="ap",
        documentation="average precision over all orders of the boxes, which have no scores, mean over the ten "
        "thresholds; labels are pooled",
        partial="as `f1`; of two answers with one F1, the one with more hits is higher",
        measure=measures.expected_ap,
    ),
    Reward(
        name="format",
        documentation="share of complete objects, without repair, among the pieces of the text: objects, dropped "
        "pieces, words outside objects of markers",
        partial="each complete object",
        measure=measures.well_formed,
        sees_boxes=False,
    ),
    Reward(
        name="duplicates",
        documentation="share of boxes that are no duplicates: no repeats, and no second box of an object",
        partial="each box that is none",
        measure=measures.no_duplicates,
        sees_boxes=False,
    ),
    Reward(
        name="count",
        documentation="Σ min / Σ max of the numbers of boxes and objects of each label",
        partial="each label, in proportion",
        measure=measures.count,
        sees_boxes=False,
    ),
)
REWARDS: Registry[Reward] = Registry("reward", ((row.name, row) for row in _ROWS))
"""All kinds of reward by name: the built-in ones, then those that were registered."""


def register_reward(reward: Reward) -> Reward:
    """Add a kind of reward for this process.

    Raises:
        InputError: if there is one of this name
    """
    return REWARDS.add(reward.name, reward)


def reward_table() -> str:
    """Return the table of the guide in Markdown."""
    rows = [f"| `{row.name}` | {row.documentation} | {row.partial} |" for row in REWARDS.values()]
    return "\n".join(["| kind | what it is | partial credit |", "|---|---|---|", *rows])
