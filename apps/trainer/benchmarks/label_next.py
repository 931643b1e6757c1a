"""AP against the number of labelled images: those that `review --unlabelled` chooses against random ones.

    uv run python apps/trainer/benchmarks/label_next.py runs/first-run --seeds 0 --seeds 1 --seeds 2

The model of the first run is trained further on a task that it knows in part: a fourth colour, smaller shapes and up to
three of them. All trainings start from that model and have equally many steps. Finished runs are kept.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Annotated

import typer
from label_review import Out, drawn, train_further

from coord_codec import read_instances, write_instances
from coord_trainer.config.run_config import load_run_config
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.detect.image_sources import find_sources
from coord_trainer.review.label_next import label_next

CHANGED = ShapesConfig(colours=4, max_objects=3, min_side=0.15)


def main(
    model: Path,
    seeds: Annotated[list[int], typer.Option()] = [0],  # noqa: B006
    images: int = 450,
    count: int = 50,
    rounds: int = 2,
    steps: int = 120,
    out: Out = Path("runs/label-next"),
) -> None:
    """Print the AP of every number of labelled images, by seed and by the way of choosing."""
    drawn(out / "heldout", CHANGED.model_copy(update={"seed": 99}), 300)
    for seed in seeds:
        drawn(out / f"seed-{seed}" / "pool", CHANGED.model_copy(update={"seed": 1000 + seed}), images)
        start = list(range(count))
        begun = trained(model, out, seed, start, steps, "start")
        for way in ("chosen", "random"):
            labelled, run, draw = start, begun, random.Random(seed)
            for number in range(1, rounds + 1):
                rest = sorted(set(range(images)) - set(labelled))
                labelled = labelled + (chosen(run, count) if way == "chosen" else draw.sample(rest, count))
                assert len(set(labelled)) == len(labelled)
                run = trained(model, out, seed, labelled, steps, f"{way}-{number}")


def trained(model: Path, out: Path, seed: int, labelled: list[int], steps: int, name: str) -> Path:
    """Train on some images of the pool, and print the AP on the held-out ones; return the folder of the run."""
    folder, heldout = out / f"seed-{seed}", out / "heldout"
    pool = list(read_instances(folder / "pool" / "clean.jsonl").instances)
    write_instances(file := folder / f"{name}.jsonl", [pool[place] for place in labelled])
    more = {
        "data": {"heldout_annotations": str(heldout / "clean.jsonl"), "heldout_images": str(heldout)},
        "evaluation": {"images": "heldout"},
        "run": {"seed": seed},
    }
    run = train_further(model, file, folder / "pool", folder / name, steps, more)
    found = json.loads((run / "evaluation.json").read_text())["coco"]
    print(f"seed {seed}, {len(labelled)} labelled, {name}: AP {found['AP']:.3f}, AP50 {found['AP50']:.3f}", flush=True)
    return run


def chosen(run: Path, count: int) -> list[int]:
    """Return the places in the pool of the images that a model chooses."""
    asked = load_run_config(None, ["evaluation.batch_size=50", "evaluation.views=[mirror]"], trains=False)
    pool = find_sources([str(run.parent / "pool")])
    listed = label_next(run, pool, run.with_name(f"{run.name}-next"), count, asked, ())
    return [int(Path(json.loads(line)["path"]).stem) for line in listed.read_text().splitlines()]


if __name__ == "__main__":
    typer.run(main)
