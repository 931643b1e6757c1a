"""Measures what fused views are worth, and what calibration does: AP, small objects, IoU, calls and seconds.

    uv run python apps/trainer/benchmarks/views.py seeds runs/seeds     # runs GROUP/seed-N of `compare`
    uv run python apps/trainer/benchmarks/views.py tiles runs/first-run # large images of many shapes, and tiles of them
    uv run python apps/trainer/benchmarks/views.py calibration runs/seeds/soft/seed-31
    uv run python apps/trainer/benchmarks/views.py memorised runs/memorise instances.json images

Raw answers and a line of results are kept for each run in --out, so that a second call answers nothing again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer
from PIL import Image

from coord_codec import read_instances
from coord_data.reading.read import read_source
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.finish import FUSED, Finish, answer_settings
from coord_detect.answers.objects import read_objects
from coord_detect.settings.decoding import Decoding
from coord_detect.views.asking import looks_of
from coord_detect.views.registry import check_views
from coord_eval import Evaluation, ReportSettings, score
from coord_trainer.config.run_config import load_run_config
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data.shapes import draw_shapes

app = typer.Typer()
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 10: 2.262}
"""The 97.5 % quantile of Student's t by the number of runs."""
_SETS: dict[str, tuple[str, ...]] = {
    "one answer": (),
    "mirror": ("mirror",),
    "scale": ("scale:1.25",),
    "mirror, scale": ("mirror", "scale:1.25"),
}
Out = Annotated[Path, typer.Option(help="folder of raw answers and results")]


def answered(
    detector: AnsweringModel, images: Sequence[tuple[Any, Image.Image]], words: Sequence[str], file: Path, batch: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the raw answers to images and their views, and calls and seconds by view; kept in `file`."""
    costs = file.with_suffix(".costs.json")
    if costs.is_file():
        return [json.loads(line) for line in file.read_text().splitlines()], json.loads(costs.read_text())
    question = detector.finish.question
    check_views(words, question)
    records = [
        {"image_id": i.image_id, "image": i.image, "width": im.width, "height": im.height, "views": []}
        for i, im in images
    ]
    seconds: dict[str, dict[str, float]] = {}
    for word in ("", *words):
        asked = [(n, None) for n in range(len(images))]
        if word:
            asked = [(n, look) for n, (_, im) in enumerate(images) for _, look in looks_of([word], *im.size, question)]
        start = time.perf_counter()
        for first in range(0, len(asked), batch):
            part = asked[first : first + batch]
            shown = [images[n][1] if look is None else look.show(images[n][1]) for n, look in part]
            pixels = part[0][1].pixels if part[0][1] is not None else 1.0
            for (n, look), answer in zip(part, detector.engine.answer(shown, None, pixels), strict=True):
                if look is None:
                    records[n] |= answer
                else:
                    records[n]["views"].append({"view": word, **answer})
        seconds[word] = {"calls": len(asked), "seconds": time.perf_counter() - start}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    costs.write_text(json.dumps(seconds))
    return records, seconds


def evaluated(
    detector: AnsweringModel,
    truth: Any,
    records: Sequence[dict[str, Any]],
    words: Sequence[str],
    boxes: str,
    suppress: str | None = None,
) -> Evaluation:
    """Return the evaluation of the answers to images with some of their views."""
    decoding = Decoding(boxes=boxes)
    reading = answer_settings(detector.config, decoding)
    finish = Finish(tuple(words), detector.finish.question)
    chosen = [{**r, "views": [v for v in r["views"] if v["view"] in words]} for r in records]
    if words:
        for record in chosen:
            found = read_objects(record, None, finish, reading)
            record |= {"objects": [item.to_record() for item in found], FUSED: dict(found.fused)}
    return score(truth, chosen, report=ReportSettings(diagnose=False), answers=replace(reading, fuse=suppress))


def scores(*arguments: Any) -> dict[str, float]:
    """Return the scores of `evaluated`."""
    found = evaluated(*arguments)
    row = {name: found.coco[name] for name in ("AP", "AP50", "AP75", "APs", "APm", "APl")}
    return {**row, "mean_iou": found.mean_iou, "F1": found.detection["0.5"]["f1"]}


def heldout(run: Path, limit: int | None = None) -> tuple[Path, list[tuple[Any, Image.Image]]]:
    """Return the ground truth and the held-out images of a run on generated shapes."""
    truth = run / "data" / "heldout.jsonl"
    instances = list(read_instances(truth).instances)[:limit]
    return truth, [(i, Image.open(run / "data" / i.image).convert("RGB")) for i in instances]


@app.command()
def seeds(runs: Path, out: Out = Path("runs/views"), batch: int = 100) -> None:
    """Answer the held-out images of the runs GROUP/seed-N of a comparison, and print means over seeds."""
    for run in sorted(path.parent.parent.parent for path in runs.glob("*/seed-*/checkpoints/*/complete.json")):
        name = f"{run.parent.name}-{run.name.removeprefix('seed-')}"
        if (out / f"{name}.json").is_file() or not (run / "evaluation.json").is_file():
            continue
        detector = AnsweringModel.load(run, load_run_config(None, [], trains=False))
        truth, images = heldout(run)
        records, costs = answered(detector, images, ("mirror", "scale:1.25"), out / f"{name}.jsonl", batch)
        rows: dict[str, Any] = {"costs": costs}
        for boxes in ("tokens", "best_iou"):
            for title, words in _SETS.items():
                rows[f"{boxes}, {title}"] = scores(detector, truth, records, words, boxes)
            rows[f"{boxes}, NMS alone"] = scores(detector, truth, records, (), boxes, "nms")
        (out / f"{name}.json").write_text(json.dumps(rows, indent=1))
        print(name, flush=True)
    summarise(out)


def summarise(out: Path) -> None:
    """Print a table of means and of differences to one answer, seed by seed."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(out.glob("*-[0-9]*.json")):
        if not file.name.endswith(".costs.json"):
            groups.setdefault(file.stem.rpartition("-")[0], []).append(json.loads(file.read_text()))
    for group, rows in groups.items():
        pairs = " | ".join(f"{name} | against one" for name in ("AP", "AP small", "mean IoU"))
        print(f"\n{group}, {len(rows)} seeds\n\n| boxes | views | {pairs} | F1 | calls an image | seconds |")
        print("|---" * 11 + "|")
        for boxes in ("tokens", "best_iou"):
            for title in (*_SETS, "NMS alone"):
                cells = []
                for metric in ("AP", "APs", "mean_iou"):
                    own = [row[f"{boxes}, {title}"][metric] for row in rows]
                    plain = [row[f"{boxes}, one answer"][metric] for row in rows]
                    cells += [interval(own), interval([a - b for a, b in zip(own, plain, strict=True)], sign=True)]
                words = ("", *_SETS.get(title, ()))
                spent = [[row["costs"][word] for word in words] for row in rows]
                calls = mean(sum(c["calls"] for c in costs) for costs in spent) / mean(c[0]["calls"] for c in spent)
                seconds = mean(sum(c["seconds"] for c in costs) for costs in spent)
                f1 = mean(row[f"{boxes}, {title}"]["F1"] for row in rows)
                print(f"| {boxes} | {title} | {' | '.join(cells)} | {f1:.3f} | {calls:.1f} | {seconds:.0f} |")


def interval(values: Sequence[float], sign: bool = False) -> str:
    """Return the mean, with half of its 95 % interval by Student's t if there are several values."""
    shown = f"{mean(values):{'+' if sign else ''}.3f}".replace("0.", ".")
    if len(values) < 2:
        return shown
    half = _STUDENT.get(len(values), 2.0) * stdev(values) / len(values) ** 0.5
    return f"{shown} ± {half:.3f}".replace("0.", ".")


@app.command()
def tiles(
    model: Path,
    out: Out = Path("runs/views"),
    images: int = 10,
    words: Annotated[list[str] | None, typer.Option("--views", help="views of tiles to compare")] = None,
    batch: int = 100,
) -> None:
    """Draw images of 1,024 pixels with 30 to 80 shapes of 60 to 110 pixels, and answer them whole and in tiles."""
    config = ShapesConfig(size=1024, max_objects=80, min_side=60 / 1024, max_side=110 / 1024, seed=3)
    drawn: list[tuple[Any, Image.Image]] = []
    for instance, image in draw_shapes(config, "large", 10_000):
        if len(instance.objects) >= 30:
            drawn.append((instance, image))
        if len(drawn) == images:
            break
    truth = out / "large.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    truth.write_text("".join(f"{i.model_dump_json(exclude_unset=True)}\n" for i, _ in drawn))
    print(f"{len(drawn)} images, {sum(len(i.objects) for i, _ in drawn)} shapes", flush=True)
    detector = AnsweringModel.load(model, load_run_config(None, [], trains=False))
    for word in words or ["tiles:192x192", "tiles:256x256", "tiles:256x256:0.5"]:
        file = out / f"large-{word.replace(':', '_')}.jsonl"
        records, costs = answered(detector, drawn, (word,), file, batch)
        for title, used in (("whole", ()), (word, (word,))):
            row = scores(detector, truth, records, used, "best_iou")
            cells = " | ".join(f"{row[name]:.3f}" for name in ("AP", "AP50", "mean_iou", "F1"))
            spent = [costs[w] for w in ("", *used)]
            calls, seconds = (sum(c[key] for c in spent) for key in ("calls", "seconds"))
            print(f"| {title} | {cells} | {calls / len(drawn):.0f} | {seconds / len(drawn):.1f} |", flush=True)


@app.command()
def calibration(run: Path, out: Out = Path("runs/views"), fitted: int = 50, tested: int = 250) -> None:
    """Fit a calibration to the answers to some held-out images that `seeds` kept, and test it on others."""
    from coord_eval.calibration.calibration import fit_calibration
    from coord_eval.resampling.bootstrap import reliability_with_intervals

    name = f"{run.parent.name}-{run.name.removeprefix('seed-')}"
    detector = AnsweringModel.load(run, load_run_config(None, [], trains=False))
    records = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
    instances = list(read_instances(run / "data" / "heldout.jsonl").instances)
    for title, words in _SETS.items():
        first, second = (
            evaluated(detector, instances[part], records[part], words, "best_iou")
            for part in (slice(fitted), slice(fitted, fitted + tested))
        )
        fit = fit_calibration(first)
        names = [*second.truth.categories, *second.detections.unknown]
        labels = [names[k] for k in second.detections.category_D.tolist()]
        after = second.with_scores(fit(second.detections.scores_D, labels), second.score_source)
        errors = [reliability_with_intervals(e) for e in (second, after)]
        cells = [f"{error['ece']:.3f} [{error['low']:.3f}, {error['high']:.3f}]" for error in errors]
        chosen = fit.choose(precision=0.9)
        kept = after.detections.scores_D >= chosen.value
        hits = after.ranked.hit_TD[0]
        precision, recall = hits[kept].mean(), hits[kept].sum() / (~second.truth.crowd_N).sum()
        cells += [f"{value:.3f}" for value in (chosen.precision, precision, chosen.recall, recall)]
        print(f"| {name} | {title} | {' | '.join(cells)} |", flush=True)


@app.command()
def memorised(model: Path, annotations: Path, images: Path, out: Out = Path("runs/views"), batch: int = 33) -> None:
    """Answer photographs that a model has memorised, and their mirror images, which it has not seen."""
    annotated = read_source(annotations, images, on_bad_box="drop_box").annotations
    opened = [(i, Image.open(images / i.image).convert("RGB")) for i in annotated.instances]
    detector = AnsweringModel.load(model, load_run_config(None, [], trains=False))
    records, _ = answered(detector, opened, ("mirror", "scale:1.25"), out / "memorised.jsonl", batch)
    for title, words in _SETS.items():
        row = scores(detector, annotated, records, words, "best_iou")
        print(f"| {title} | {row['AP']:.3f} | {row['AP50']:.3f} | {row['mean_iou']:.3f} |", flush=True)


if __name__ == "__main__":
    app()
