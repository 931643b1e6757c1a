"""A run that kills itself with SIGKILL while it saves its second checkpoint: `killed.py CONFIG FOLDER`."""

import json
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    from two_ranks import without_compiling

    from coord_trainer.config.run_config import check_run_config
    from coord_trainer.run import train_and_score
    from coord_trainer.swift.trainer import CoordTrainer

    without_compiling()
    save = CoordTrainer._save_optimizer_and_scheduler

    def save_or_die(trainer, folder):
        if trainer.state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        save(trainer, folder)

    CoordTrainer._save_optimizer_and_scheduler = save_or_die
    train_and_score(check_run_config(json.loads(Path(sys.argv[1]).read_text()), "test"), Path(sys.argv[2]))
