"""Schedules AP measurements during training, keeps the best checkpoint, and stops training early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from transformers import TrainerCallback

from coord_trainer.checkpoints import AP, answer_scores, scores_since_best
from coord_trainer.console import say


class AnswerScorer(Protocol):
    """Generates and scores a model's answers to a fixed set of images."""

    def answer(self, model: Any, rank: int, ranks: int) -> list[dict[str, Any]]:
        """Return the answers to this rank's share of the images."""
        ...

    def score(self, answers: list[dict[str, Any]]) -> Mapping[str, float]:
        """Return `AP` and other scores of the answers to all images."""
        ...


class AnswerSchedule(TrainerCallback):
    """Requests scores every few steps and at the last step; saves the best checkpoint, and stops if AP no longer rises.

    It has to precede callbacks that cancel an evaluation.

    Args:
        scorer: generates and scores the answers
        every: steps between two measurements
        patience: number of consecutive measurements without a higher AP until training stops; None never stops

    Attributes:
        due: whether the next evaluation scores answers
        alone: whether that evaluation only scores answers, without evaluation losses
    """

    def __init__(self, scorer: AnswerScorer, every: int, patience: int | None = None) -> None:
        self.scorer, self._every, self._patience = scorer, every, patience
        self.due = self.alone = False

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        self.due = state.global_step % self._every == 0 or state.global_step >= state.max_steps
        self.alone = self.due and not control.should_evaluate
        control.should_evaluate = control.should_evaluate or self.due

    def on_evaluate(self, args, state, control, metrics=None, **kwargs) -> None:  # noqa: D102
        self.due = self.alone = False
        if AP not in (metrics or {}):
            return
        scores = answer_scores(state.log_history)
        waited, (step, value) = scores_since_best(scores), max(scores, key=lambda score: score[1])
        best = "the best so far" if not waited else f"the best was {value:.3f} at step {step}"
        say(f"  step {state.global_step}: AP {metrics[AP]:.3f}, {best}")
        control.should_save = control.should_save or not waited
        if self._patience is not None and waited >= self._patience:
            control.should_save = control.should_training_stop = True
            say(f"  training stops: AP has not risen in {waited} measurements (evaluation.ap_patience)")
