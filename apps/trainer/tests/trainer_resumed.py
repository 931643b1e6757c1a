"""One run that is never interrupted, then one that goes on: `torchrun ... trainer_resumed.py CONFIG WHOLE KILLED`."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    from trainer_zero import without_compiling

    from coord_trainer.config_files import check_run_config
    from coord_trainer.ranks import part
    from coord_trainer.training import train_and_score

    without_compiling()
    settings = json.loads(Path(sys.argv[1]).read_text())
    for folder, resume in ((sys.argv[2], False), (sys.argv[3], True)):
        of_run = {**settings["run"], "resume": resume}
        train_and_score(check_run_config({**settings, "run": of_run}, "test"), Path(folder))
    part()
