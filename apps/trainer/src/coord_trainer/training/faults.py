"""Explains faults during training in one line: a loss that is not finite, a failing loss term, a failed process.

For a loss that is not finite, term, step and images are named.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from coord_codec import RunError
from coord_detect.console import say
from coord_losses import ObjectiveOutput, TermError


def refuse_non_finite_loss(output: ObjectiveOutput, loss: torch.Tensor, step: int, samples: Sequence[str]) -> None:
    """Raise a `RunError` with term, step (from 1) and images if a loss is not finite."""
    if bool(torch.isfinite(loss.detach())):
        return
    sums = {name: float(term.sum.detach()) for name, term in output.terms.items()}
    bad = {name: value for name, value in sums.items() if not math.isfinite(value)} or {"total": float(loss)}
    raise RunError(
        f"training diverged at step {step}: the loss term {', '.join(f'{name} is {v}' for name, v in bad.items())} "
        f"(images {', '.join(samples) or 'unknown'}); lower training.learning_rate, or examine these images with "
        "`inspect`"
    )


def refuse_non_finite_gradient(norm: float, step: int, scaled: bool) -> None:
    """Raise a `RunError` if the norm of a gradient is not finite, although its losses are.

    Under float16 (`scaled`) the scaler drops the step then, as it has to.
    """
    if math.isfinite(norm):
        return
    if not scaled:
        raise RunError(
            f"training diverged at step {step}: the norm of the gradient is {norm}, although the losses are finite; "
            "lower training.learning_rate"
        )
    say(f"  step {step}: the gradient overflowed in float16; the step is dropped, and the next are scaled less")


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
