"""Answers scored while a model is trained: when it is their turn, which checkpoint is the best, when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from transformers import TrainerCallback

from coord_trainer.checkpoints import AP, answer_scores, scores_since_best
from coord_trainer.console import say


class AnswerScorer(Protocol):
    """Lets a model answer a fixed set of images, and scores the answers."""

    def answer(self, model: Any, rank: int, ranks: int) -> list[dict[str, Any]]:
        """Return the answers to this rank's share of the images."""
        ...

    def score(self, answers: list[dict[str, Any]]) -> Mapping[str, float]:
        """Return `AP` and other scores of the answers to all images."""
        ...


class AnswerSchedule(TrainerCallback):
    """Asks for scores every few steps and at the last one; keeps the best checkpoint and stops when none gets better.

    Goes before callbacks that call an evaluation off.

    Args:
        scorer: what is asked
        every: steps between two scorings
        patience: stop after so many scorings in a row without a higher AP; None never stops

    Attributes:
        due: whether the next evaluation scores answers
        alone: whether it does nothing else
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
        beside = "the best so far" if not waited else f"the best was {value:.3f} at step {step}"
        say(f"  step {state.global_step}: AP {metrics[AP]:.3f}, {beside}")
        control.should_save = control.should_save or not waited
        if self._patience is not None and waited >= self._patience:
            control.should_save = control.should_training_stop = True
            say(f"  training stops: AP has not risen in {waited} scorings (evaluation.ap_patience)")
