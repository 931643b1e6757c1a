"""A run in progress: its folder, lock and manifest, its signals, and its errors in words a user can act on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from coord_detect.console import is_first, say
from coord_trainer.config.run_config import RunConfig
from coord_trainer.folder import (
    Manifest,
    check_same_data,
    earlier_manifest,
    explain_full_disk,
    explain_lost_evaluation,
    lock_run_folder,
    open_run_folder,
    prepare_resume,
    refuse_second_run,
    write_config,
)
from coord_trainer.training.interrupt import Interrupted, Interruption, explain_resume


@dataclass
class Run:
    """Context manager of a run; only the first rank writes files.

    Within the block a signal (`interruption`) stops the run with the command that resumes it, a full disk is
    named as such, and an error after training names the command that scores the checkpoint. At its end the
    manifest states how the run ended, and the folder is unlocked.
    """

    config: RunConfig
    folder: Path
    interruption: Interruption = field(default_factory=Interruption)
    _stack: ExitStack = field(default_factory=ExitStack)
    _manifest: Manifest | None = None

    def __enter__(self) -> Run:
        """Handle signals."""
        self._stack.enter_context(self.interruption)
        self._stack.enter_context(explain_resume(self.folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Record how the run ended, unlock the folder, and raise an error in words that a user can act on."""
        return self._stack.__exit__(kind, error, trace)

    def open_folder(self, data: dict[str, Any]) -> None:
        """Create and lock the folder, or prepare its resume, on the first rank; before that nothing is written.

        Raises:
            InputError: another run uses the folder, or the run cannot be resumed with these settings and data.
            RunError: the folder cannot be written to.
        """
        refuse_second_run(self.folder)
        if self.config.run.resume:
            check_same_data(self.folder, earlier_manifest(self.folder).get("data", {}), data)
            prepare_resume(self.config, self.folder)
        else:
            moved = open_run_folder(self.folder)
            earlier = f" (the older one is now {moved})" if moved else ""
            say(f"run folder {self.folder}{earlier}")
        self._stack.callback(lock_run_folder(self.folder).release)
        with explain_full_disk(self.folder):
            write_config(self.folder, self.config)

    def begin(self, data: dict[str, Any]) -> None:
        """Begin the manifest with the facts about the data."""
        self._stack.enter_context(explain_full_disk(self.folder))
        self._manifest = Manifest(self.folder, self.config, writes=is_first())
        self._stack.enter_context(self._manifest)
        self._manifest.update(data=data)

    def record(self, **facts: Any) -> None:
        """Add facts to the manifest."""
        assert self._manifest is not None  # `begin` was called
        self._manifest.update(**facts)

    def stop_if_interrupted(self) -> None:
        """Raise `Interrupted` if a signal was received during training, whose checkpoint is saved by now."""
        if self.interruption.signum:
            raise Interrupted(self.interruption.signum)

    def scoring(self, checkpoint: Path) -> ExitStack:
        """Return a context for what follows training, whose errors name the command that scores `checkpoint`."""
        stack = ExitStack()
        stack.enter_context(explain_lost_evaluation(self.folder, checkpoint))
        stack.enter_context(explain_full_disk(self.folder))
        return stack
