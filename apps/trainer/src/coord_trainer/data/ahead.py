"""Draws the generated shapes in a forked process while this one imports the slow libraries."""

from __future__ import annotations

import multiprocessing
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from coord_codec import RunError
from coord_data.looking.processes import begin_worker, run_job
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.shapes import draw_shapes, drawn_ahead

_PIECE = 100
"""Images that are sent together: a tenth of a second's work, after which an interrupted process ends."""


@contextmanager
def drawing_ahead(config: RunConfig) -> Iterator[None]:
    """Draw the shapes of a run in a process of their own, from which `draw_set` takes them; it ends with the block.

    Only on Linux and before torch is imported, whose threads a forked process would lack.
    """
    if config.data.given or sys.platform != "linux" or "torch" in sys.modules:
        yield
        return
    shapes, geometry = config.data.shapes, config.data.geometry
    wanted = [(shapes, name, count, geometry) for name, count in (("train", shapes.train), ("heldout", shapes.heldout))]
    drawn = [draw_shapes(*each) for each in wanted]
    pool = ProcessPoolExecutor(
        1,
        multiprocessing.get_context("fork"),
        initializer=begin_worker,
        initargs=(lambda number: list(islice(drawn[number], _PIECE)),),
    )
    pieces = [deque(pool.submit(run_job, n) for _ in range(0, wanted[n][2], _PIECE)) for n in range(len(wanted))]
    token = drawn_ahead.set({repr(each): _received(own) for each, own in zip(wanted, pieces, strict=True)})
    pool.shutdown(wait=False)  # it ends when all are drawn
    try:
        yield
    finally:
        drawn_ahead.reset(token)
        for piece in chain(*pieces):
            piece.cancel()


def _received(pieces: deque[Future[list[Any]]]) -> Iterator[Any]:
    """Yield the images of the pieces, each of which is kept no longer than until it is read."""
    try:
        while pieces:
            yield from pieces.popleft().result()
    except BrokenProcessPool:
        raise RunError("the process that draws the images was killed from outside (is memory exhausted?)") from None
