"""How good the answers were along the way: every checkpoint of a run answered and scored like the last one."""

from __future__ import annotations

import json
from pathlib import Path

from .checkpoints import steps_of
from .config import RunConfig
from .console import say
from .picture_set import PictureSet
from .readings import READINGS
from .run_folder import write_text

FILE = "convergence.json"
_SHOWN = ("AP", "AP50", "AP75")


def score_checkpoints(config: RunConfig, folder: Path, pictures: PictureSet) -> Path:
    """Answer and score each checkpoint in `folder/checkpoints`; returns convergence.json, a list of rows.

    A row holds step, reading (the run's first and, where it is among them, `grammar`) and the scores.
    """
    from .predict import predict_pictures
    from .scoring import score_reading

    wanted = config.evaluation.readings
    chosen = tuple(dict.fromkeys((wanted[0], *(name for name in wanted if name == "grammar"))))
    section = config.evaluation.model_copy(update={"readings": chosen})
    config = config.model_copy(update={"evaluation": section})
    rows = []
    for checkpoint in sorted((folder / "checkpoints").glob("checkpoint-*"), key=steps_of):
        out = folder / "steps" / str(steps_of(checkpoint))
        out.mkdir(parents=True, exist_ok=True)
        predict_pictures(config, checkpoint, pictures, out / "predictions.jsonl")
        for place, name in enumerate(chosen):
            path = READINGS[name].folder(out, place == 0) / "predictions.jsonl"
            evaluation = score_reading(config, path, pictures, READINGS[name])
            scores = {key: evaluation.coco[key] for key in _SHOWN} | {"mean_iou": evaluation.mean_iou}
            rows.append({"step": steps_of(checkpoint), "reading": name, **scores})
        say(f"step {steps_of(checkpoint)}: AP {rows[-1]['AP']:.3f} ({rows[-1]['reading']})")
    write_text(folder / FILE, json.dumps(rows, indent=2) + "\n")
    return folder / FILE
