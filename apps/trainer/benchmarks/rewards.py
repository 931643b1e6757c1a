"""Measures what rewards gain, and more steps of losses in the same processor time, on a model with faults of sequences.

    uv run python apps/trainer/benchmarks/rewards.py runs/rewards --seeds 0 --seeds 1 --seeds 2

The training images are generated shapes whose labels are spoilt: a share of the objects is left out, and a share of the
rest written twice. From the model that learns them, `reward` and `train` go on with the clean labels. Each run is a
folder and is not trained again in a second call, so that an interrupted measurement goes on.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer
import yaml

from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data.shapes import draw_shapes

app = typer.Typer()
_CONTINUED = {"warmup_steps": 5, "learning_rate": 1.0e-3, "freeze_vit": True}
_MUON = {"warmup_steps": 50, "learning_rate": 5.0e-3, "optimizer": "muon", "adam_beta2": 0.95}


def draw(out: Path, train: int, heldout: int, omitted: float, repeated: float) -> None:
    """Write the images and the annotations `clean`, `faulty` and `heldout` of a run, once."""
    if (out / "heldout.jsonl").is_file():
        return
    (out / "images").mkdir(parents=True, exist_ok=True)
    config, chance = ShapesConfig(max_objects=4, train=train), random.Random(0)
    annotations: dict[str, list[dict[str, Any]]] = {"clean": [], "faulty": [], "heldout": []}
    for part, count in (("train", train), ("heldout", heldout)):
        for instance, image in draw_shapes(config, part, count):
            name = f"images/{instance.image.replace('/', '-')}"
            image.save(out / name)
            objects = [{"desc": o.desc, "bbox": list(o.bbox)} for o in instance.objects]
            record = {"image": name, "image_id": instance.image_id, "width": image.width, "height": image.height}
            if part == "heldout":
                annotations["heldout"].append({**record, "objects": objects})
                continue
            kept = [o for o in objects if chance.random() >= omitted]
            spoilt = [o for k in kept for o in ([k, k] if chance.random() < repeated else [k])]
            annotations["clean"].append({**record, "objects": objects})
            annotations["faulty"].append({**record, "objects": spoilt})
    for name, records in annotations.items():
        (out / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")


def run(command: str, folder: Path, config: Mapping[str, Any]) -> float:
    """Return the processor seconds of a run of the trainer into `folder`, which is left as it is if it is there."""
    cost = folder.with_suffix(".seconds")
    if cost.is_file():
        return float(cost.read_text())
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(dict(config)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    resume = [f"run.resume={str(folder.exists()).lower()}"]
    subprocess.run(
        [str(Path(sys.executable).with_name("coord-trainer")), command, "-c", str(file), f"run.dir={folder}", *resume],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost.write_text(f"{seconds:.1f}")
    return seconds


def figures(folder: Path) -> dict[str, float]:
    """Return AP, F1 and the counts of a run's answers to the held-out images."""
    found = json.loads((folder / "evaluation.json").read_text())
    at_half = found["detection"]["0.5"]
    return {
        "AP": found["coco"]["AP"],
        **{name: at_half[name] for name in ("f1", "precision", "recall")},
        "duplicates": found["analysis"]["errors"]["duplicate"]["count"],
        "missed": found["analysis"]["errors"]["missed"]["count"],
    }


def section(out: Path, steps: int, labels: str, seed: int, **training: Any) -> dict[str, Any]:
    """Return the configuration that the runs share."""
    return {
        "run": {"seed": seed},
        "data": {"annotations": str(out / f"{labels}.jsonl"), "heldout_annotations": str(out / "heldout.jsonl")},
        "training": {
            "max_steps": steps,
            "per_device_train_batch_size": 32,
            "gradient_accumulation_steps": 1,
            "logging_steps": 25,
            "save_steps": steps,
            "report_to": ["none"],
            **training,
        },
        "evaluation": {"batch_size": 100, "decoding": [{"grammar": "none", "boxes": "tokens"}]},
    }


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="folder of data, runs and results")],
    seeds: Annotated[list[int], typer.Option(help="seeds of the training runs")] = [0, 1, 2],  # noqa: B006
    base_steps: int = 1500,
    reward_steps: int = 200,
    kind: str = "f1",
    omitted: float = 0.2,
    repeated: float = 0.1,
) -> None:
    """Train each seed's faulty model, go on by rewards and by losses, and print a table."""
    draw(out, 3000, 300, omitted, repeated)
    losses: dict[str, Any] = {"markers": "obj"}
    soft = {"custom": {"coord_soft_ce_w1": {"enabled": True}}}
    rows: dict[str, list[dict[str, float]]] = {}
    short = section(out, 1, "faulty", 0, eval_strategy="no", **_MUON) | soft
    short["data"] |= losses
    short["evaluation"]["max_new_tokens"] = 24  # as long as a trained model's answers; an untrained one does not end
    overhead = run("train", out / "overhead", short)  # imports, reading, answers: what each run costs beside its steps
    for seed in seeds:
        base = section(out, base_steps, "faulty", seed, eval_strategy="no", **_MUON) | soft
        base["data"] |= losses
        seconds_base = run("train", out / f"base-{seed}", base) - overhead
        start = str(out / f"base-{seed}/checkpoints/checkpoint-{base_steps}")
        rewarded = section(out, reward_steps, "clean", seed, **{**_CONTINUED, "learning_rate": 2.0e-4})
        rewarded |= {"model": {"path": start}, "reward": {"kind": kind, "answers": 8, "max_new_tokens": 44}}
        seconds = run("reward", out / f"reward-{kind}-{seed}", rewarded) - overhead
        steps = max(1, round(base_steps * seconds / seconds_base))
        more = section(out, steps, "clean", seed, eval_strategy="no", **_CONTINUED) | soft | {"model": {"path": start}}
        more["data"] |= losses
        seconds_more = run("train", out / f"losses-{kind}-{seed}", more) - overhead
        for name, folder, cost in (
            ("the faulty labels", f"base-{seed}", seconds_base),
            (f"{reward_steps} steps by {kind}", f"reward-{kind}-{seed}", seconds),
            ("losses in the same time", f"losses-{kind}-{seed}", seconds_more),
        ):
            rows.setdefault(name, []).append({"seconds": cost, **figures(out / folder)})
            print(seed, name, rows[name][-1], flush=True)
    columns = list(next(iter(rows.values()))[0])
    print("| after | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for name, runs in rows.items():
        cells = [[run[column] for run in runs] for column in columns]
        print(f"| {name} | " + " | ".join(_cell(values) for values in cells) + " |")


def _cell(values: list[float]) -> str:
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}" if max(values) <= 1 else f"{mean(values):.0f}"


if __name__ == "__main__":
    app()
