"""A run that gets a signal in the middle of its fifth step, through the command line.

Arguments: CONFIG FOLDER SIGNAL [RANK].
With several ranks the signal comes on one of them only.
"""

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    from two_ranks import without_compiling

    from coord_trainer import cli
    from coord_trainer.swift.trainer import CoordTrainer

    without_compiling()
    config, folder, name, *chosen = sys.argv[1:]
    compute_loss, sent = CoordTrainer.compute_loss, []

    def signalled(trainer, *words, **more):
        if trainer.state.global_step == 4 and os.environ.get("RANK", "0") == (chosen or ["0"])[0] and not sent:
            sent.append(name)
            os.kill(os.getpid(), signal.Signals[name])
        return compute_loss(trainer, *words, **more)

    CoordTrainer.compute_loss = signalled
    sys.argv = [str(Path("coord-trainer")), "train", "-c", config, f"run.dir={folder}"]
    cli.main()
