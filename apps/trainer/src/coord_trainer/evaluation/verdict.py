"""Says whether a run has memorised the images it was trained on, and if not, why.

Answers to the training images can reach the quantisation ceiling. Below it something prevents them: the data, the
settings, too little training, or a fault between annotations and score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from coord_codec.counts import counted
from coord_codec.files import read_json, read_json_lines
from coord_eval import Evaluation
from coord_trainer.config.run_config import RunConfig
from coord_trainer.folder import earlier_manifest

TOLERANCE = 0.01
"""Difference in AP from the ceiling that counts as reached."""
_LEARNT = 0.05
"""Loss of the text, in nats per token, above which the targets are not memorised; it approaches 0."""
_PREVENTING = ("conflicting_boxes",)
"""Codes of the findings that no answer can satisfy."""


def memorising_verdict(config: RunConfig, evaluation: Evaluation, folder: Path, beyond_cap: int) -> str:
    """Return the verdict on an evaluation of the training images in one line: reached, or not reached, because.

    Of the run folder findings.json, metrics.jsonl and manifest.json are read where they exist; `beyond_cap`
    is the number of objects beyond `data.max_objects`.
    """
    scores = evaluation.shapes or {**evaluation.coco, "ceiling": evaluation.ceiling}
    ceiling = scores["ceiling"].get("AP")
    if ceiling is None or ceiling < 0:
        return "memorised: not known, since there is no quantisation ceiling"
    measured = f"AP {scores['AP']:.3f}, quantisation ceiling {ceiling:.3f}"
    if scores["AP"] >= ceiling - TOLERANCE:
        return f"memorised: reached ({measured})"
    ceiling_50 = scores["ceiling"].get("AP50", math.inf)
    reasons = list(_of_data(folder, beyond_cap))
    if config.data.augment.active:
        reasons.append("data.augment changes the images at every pass, which no model can know by heart")
    if of_training := _of_training(folder):
        reasons.append(of_training)
    elif cut_off := evaluation.format["truncated"]:  # who has not learnt to stop is cut off too
        reasons.append(f"{counted(cut_off, 'answer was', 'answers were')} cut off: raise evaluation.max_new_tokens")
    if not reasons and scores.get("AP50", -1.0) >= ceiling_50 - TOLERANCE:
        reasons = [
            f"sides of boxes are not exact yet, while every object is found (AP50 {scores['AP50']:.3f}): raise "
            "training.max_steps; if that does not help, look for a small offset between annotations and score"
        ]
    if not reasons:
        reasons = [
            "of none of the known reasons (equal files with different boxes, objects beyond data.max_objects, images "
            "that change, answers cut off, too little training): look for a fault between annotations and score"
        ]
    return f"memorised: not reached ({measured}), because {'; and because '.join(reasons)}"


def _of_data(folder: Path, beyond_cap: int) -> Iterator[str]:
    findings = folder / "findings.json"
    for finding in read_json(findings) if findings.is_file() else ():
        if finding["code"] in _PREVENTING:
            yield f"{finding['message']} ({finding['evidence']}; {finding['fix']})"
    if beyond_cap:
        yield f"{counted(beyond_cap, 'object')} beyond data.max_objects are not taught"


def _of_training(folder: Path) -> str | None:
    """Return that the loss of the text is still high, from the last lines of metrics.jsonl; None if it is not."""
    metrics = folder / "metrics.jsonl"
    lines = [line for _, line in read_json_lines(metrics)] if metrics.is_file() else []
    losses = [line["train_text_loss"] for line in lines if "train_text_loss" in line]
    if not losses or losses[-1] <= _LEARNT:
        return None
    facts = earlier_manifest(folder)
    seen, images = sum(facts.get("samples_seen", {}).values()), facts.get("data", {}).get("train", {}).get("images", 0)
    often = f", in which each image was seen {seen / images:.0f} times" if seen and images else ""
    return (
        f"the targets are not learnt yet: the last loss of the text, which approaches 0, is {losses[-1]:.2f} per token "
        f"after {counted(facts.get('steps', lines[-1]['step']), 'step')}{often}; raise training.max_steps, or try "
        "another training.learning_rate"
    )
