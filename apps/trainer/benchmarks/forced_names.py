"""Calibration errors of scores where a grammar narrows answers: by what it allows, and by what is allowed without it.

uv run python apps/trainer/benchmarks/forced_names.py runs/first-run
"""

import argparse
from dataclasses import replace
from pathlib import Path

from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.records import prediction_records
from coord_detect.detection.image_sources import annotated_sources
from coord_detect.environment import set_environment
from coord_eval import ReportSettings, fit_calibration, score
from coord_trainer.config.run_config import load_run_config

THREE = ("red circle", "blue square", "green triangle")
WAYS = [("none", ()), ("markers", ()), ("names", ()), ("none", THREE), ("none", THREE[:1])]


def masked(model: AnsweringModel) -> AnsweringModel:
    """Return a model held to the same names, whose probabilities are those among these names alone."""
    section = model.config.evaluation
    held = section.model_copy(update={"decoding": (section.decoding[0].model_copy(update={"grammar": "names"}),)})
    config = model.config.model_copy(update={"evaluation": held})
    return replace(model, engine=replace(model.engine, config=config, names=model.engine.only, only=frozenset()))


def main(run: Path) -> None:
    """Print a row for each way."""
    set_environment()
    sources, truth = annotated_sources(run / "data" / "heldout.jsonl", None, "box", None, False)
    print("| decoding | names | scores among | boxes | right | error | calibrated |\n|---|---|---|---|---|---|---|")
    for grammar, only in WAYS:
        words = [f"evaluation.decoding.grammar={grammar}", "evaluation.decoding.boxes=best_iou"]
        model = AnsweringModel.load(run, load_run_config(None, words, trains=False), only=only, calibrated=False)
        wanted = set(only or sources.labels)
        kept = [i.model_copy(update={"objects": [o for o in i.objects if o.desc in wanted]}) for i in truth.instances]
        for among, asked in [("all", model), *([("these", masked(model))] if only else [])]:
            records = [record for some in prediction_records(asked, sources.images, 100) for record in some]
            scored = score(
                replace(truth, instances=tuple(kept)),
                records,
                answers=asked.reading,
                report=ReportSettings(diagnose=False),
            )
            fitted = fit_calibration(scored)
            before, after = fitted.reliability["before"], fitted.reliability["after"]
            counts = f"{fitted.rests_on['boxes']} | {fitted.rests_on['hits']}"
            print(f"| `{grammar}` | {len(wanted)} | {among} | {counts} | {before['ece']:.3f} | {after['ece']:.3f} |")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("run", type=Path, help="a run folder, such as that of the first run")
    main(words.parse_args().run)
