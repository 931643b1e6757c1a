"""Explains faults during training in one line: a loss that is not finite, a failing loss term, a failed process.

For a loss that is not finite, term, step and images are named; the run stops, or leaves that batch out.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from coord_codec import RunError
from coord_losses import ObjectiveOutput, TermError
from coord_trainer.console import say

_PRINTED = 10
"""Number of skipped batches that are printed; problems.jsonl lists all."""


class NonFiniteLoss:
    """Handles losses and gradients that are not finite, as `run.on_nan` says.

    Args:
        policy: `stop` ends the run, `skip` leaves the micro-batch, or the step, out
        problems: the file that lists what is skipped

    Attributes:
        skipped: micro-batches and steps left out on this rank
    """

    def __init__(self, policy: Literal["stop", "skip"] = "stop", problems: Path | None = None) -> None:
        self._policy = policy
        self._problems = problems
        self.skipped = 0

    def leaves_out(self, output: ObjectiveOutput, loss: torch.Tensor, step: int, samples: Sequence[str]) -> bool:
        """Return whether a micro-batch has to be left out because its loss is not finite.

        Args:
            output: of the objective
            loss: total loss
            step: number of the optimizer step, from 1
            samples: ids of the images

        Raises:
            RunError: the loss is not finite, and the policy is `stop`.
        """
        if bool(torch.isfinite(loss.detach())):
            return False
        sums = {name: float(term.sum.detach()) for name, term in output.terms.items()}
        bad = {name: value for name, value in sums.items() if not math.isfinite(value)} or {"total": float(loss)}
        terms = ", ".join(f"{name} is {value}" for name, value in bad.items())
        images = ", ".join(samples) or "unknown"
        if self._policy == "stop":
            raise RunError(
                f"training diverged at step {step}: the loss term {terms} (images {images}); lower "
                "training.learning_rate, examine these images with `inspect`, or leave such batches out with "
                "run.on_nan=skip"
            )
        self._note(f"the loss term {terms}; its batch is left out (images {images})", step)
        self._list(images, "loss", f"{terms} at step {step}: left out")
        return True

    def drops_step(self, norm: float, step: int, scaled: bool = False) -> bool:
        """Return whether a step has to be dropped because its gradient is not finite, although its losses are.

        Args:
            norm: of the gradient
            step: number of the optimizer step, from 1
            scaled: whether the gradient was scaled for float16; its scaler drops the step then, as it has to

        Raises:
            RunError: the gradient is not finite, it was not scaled, and the policy is `stop`.
        """
        if math.isfinite(norm):
            return False
        if scaled:
            self._note("the gradient overflowed in float16; the step is dropped, and the next are scaled less", step)
            return True
        if self._policy == "stop":
            raise RunError(
                f"training diverged at step {step}: the norm of the gradient is {norm}, although the losses are "
                "finite; lower training.learning_rate, or drop such steps with run.on_nan=skip"
            )
        self._note(f"the norm of the gradient is {norm}; the step is dropped", step)
        self._list("all", "gradient", f"its norm is {norm} at step {step}: the step is dropped")
        return True

    def _note(self, what: str, step: int) -> None:
        self.skipped += 1
        if self.skipped <= _PRINTED:
            say(f"  step {step}: {what}")

    def _list(self, where: str, field: str, message: str) -> None:
        if self._problems is not None:
            line = {"set": "train", "where": where, "field": field, "message": message}
            with self._problems.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


@contextmanager
def name_failing_term() -> Iterator[None]:
    """Turn an exception from a loss term's function, of a plugin or with wrong options, into one line."""
    try:
        yield
    except TermError as error:
        logging.getLogger("swift.coord_trainer").exception("a loss term failed")
        raise RunError(
            f"{error}; see custom.coord_objective.term_options and plugins, and swift.log for the traceback"
        ) from error


@contextmanager
def explain_worker_failure() -> Iterator[None]:
    """Turn the failure of a process that encodes samples into one line.

    torch re-raises such an error with the traceback of the process in its message.
    """
    try:
        yield
    except RunError as error:
        raise RunError(str(error).rsplit(f"{RunError.__name__}: ", 1)[-1].strip()) from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error) or "Caught " in str(error):
            raise
        raise RunError(
            f"a process that encodes images ended ({str(error).splitlines()[0]}): memory may have run out; lower "
            "training.dataloader_num_workers or data.max_pixels, and continue with run.resume=true"
        ) from error


def loss_without_gradient(parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
    """Return a zero that gives every trained parameter a gradient of zero.

    Data parallelism requires a gradient of each parameter, and zero times the loss would be NaN.
    """
    return sum((parameter.sum() * 0 for parameter in parameters if parameter.requires_grad), start=torch.zeros(()))
