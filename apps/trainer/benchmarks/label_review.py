"""How well the review of labels finds planted faults, by a model of the first run on generated images.

uv run python apps/trainer/benchmarks/label_review.py judge MODEL [--seeds 3] [--images 500]
uv run python apps/trainer/benchmarks/label_review.py folds MODEL [--seeds 50,51] [--images 300] [--steps 250]
uv run python apps/trainer/benchmarks/label_review.py fit [--seeds 0,1] [--simulated 0]
uv run python apps/trainer/benchmarks/label_review.py measure [--cleanlab FOLDER] | summary
"""

from __future__ import annotations

import json
import random
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import typer

from coord_codec import Instance, Object, read_annotations, read_instances, write_instances
from coord_detect.model.checkpoints import locate_model
from coord_eval.boxes.iou import box_iou
from coord_eval.intake.collecting import collect
from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.intake.predictions import load_predictions
from coord_eval.review import LabelLikelihood, Review, review
from coord_eval.review.confidence import compare
from coord_eval.review.evidence import LABEL_FIGURES, gather
from coord_eval.review.findings import Proposal, ReviewFinding, places_in_images
from coord_eval.review.likelihood import goes_on, surprises
from coord_eval.review.probability import LABEL_KINDS
from coord_eval.review.weights import MISSING, AnswerWeights
from coord_eval.settings import AnswerSettings, LabelSettings
from coord_trainer.config.run_config import check_run_config, load_run_config
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data.shapes import CATEGORIES, draw_shapes

KINDS = ("renamed", "moved", "missing", "spurious", "duplicate", "mixed")
RATES = (0.02, 0.1, 0.3)
Out = Annotated[Path, typer.Option(help="folder of the results, which are kept")]
app = typer.Typer(help=__doc__, no_args_is_help=True)


@dataclass(frozen=True)
class Planted:
    """One fault: the record, its kind, the index of the label (None for a missing one), and the true object."""

    record: int
    kind: str
    index: int | None
    true: Object | None


def plant(
    clean: Sequence[Instance], rate: float, seed: int, names: Sequence[str] = CATEGORIES[:9]
) -> tuple[list[Instance], list[Planted]]:
    """Return records of which a share has one fault each, all kinds equally often."""
    rng = random.Random(seed)
    spoilt = rng.sample(range(len(clean)), round(rate * len(clean)))
    records, faults = list(clean), []
    for number, place in enumerate(spoilt):
        kind, objects = KINDS[number % len(KINDS)], list(clean[place].objects)
        index = rng.randrange(len(objects))
        obj = objects[index]
        if kind in ("renamed", "moved", "mixed"):
            name = obj.desc if kind == "moved" else rng.choice([n for n in names if n != obj.desc])
            objects[index] = Object(desc=name, bbox=obj.bbox if kind == "renamed" else shifted(obj.bbox, 0.3, rng))
        elif kind == "missing":
            del objects[index]
        else:
            own = obj.bbox if kind == "spurious" else shifted(obj.bbox, 0.05, rng)
            while kind == "spurious" and max(iou(own, o.bbox) for o in objects) > 0.1:
                w, h = rng.uniform(0.22, 0.5), rng.uniform(0.22, 0.5)
                x, y = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h)
                own = (x, y, x + w, y + h)
                if rng.random() < 0.01:
                    break
            objects.append(Object(desc=rng.choice(names) if kind == "spurious" else obj.desc, bbox=own))
            index = len(objects) - 1
        records[place] = clean[place].model_copy(update={"objects": tuple(objects)})
        faults.append(Planted(place, kind, None if kind == "missing" else index, obj))
    return records, faults


def shifted(box: Sequence[float], by: float, rng: random.Random) -> tuple[float, ...]:
    """Return a box moved by a share of its sides in a random direction, inside the image."""
    x1, y1, x2, y2 = box
    w, h = x2 - x1, y2 - y1
    x = min(max(x1 + rng.choice((-1, 1)) * by * w, 0), 1 - w)
    y = min(max(y1 + rng.choice((-1, 1)) * by * h, 0), 1 - h)
    return x, y, x + w, y + h


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the IoU of two boxes `(x1, y1, x2, y2)`."""
    rows = [np.array([[x1, y1, x2 - x1, y2 - y1]]) for x1, y1, x2, y2 in (a, b)]
    return float(box_iou(*rows)[0])


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Return the probability that a positive has a higher value than a negative; ties count half."""
    if not len(positive) or not len(negative):
        return float("nan")
    a, b = np.array(positive)[:, None], np.array(negative)[None]
    return float((a > b).mean() + (a == b).mean() / 2)


def measures(found: Review, records: Sequence[Instance], faults: Sequence[Planted]) -> dict[str, Any]:
    """Return AUROC of records and labels by kind, precision, calibration and named kinds of a review with `least=0`."""
    ids = [instance.image_id for instance in records]
    place_of = {place if image_id is None else image_id: place for place, image_id in enumerate(ids)}
    spoilt = {fault.record: fault for fault in faults}
    worst = [0.0] * len(records)
    for one in found.findings:
        place = place_of[one.image_id]
        worst[place] = max(worst[place], one.probability)
    clean = [worst[place] for place in range(len(records)) if place not in spoilt]
    row: dict[str, Any] = {"records": auroc([worst[place] for place in spoilt], clean)}
    for kind in KINDS:
        row[kind] = auroc([worst[fault.record] for fault in faults if fault.kind == kind], clean)

    # Suspicions: the right label, or an answer where the missing object is.
    def is_true(one: Any) -> bool:
        place = place_of[one.image_id]
        fault = spoilt.get(place)
        if fault is None or (one.object is None) != (fault.index is None):
            return False
        if one.object is not None:  # of two alike either may be the second
            is_twin = fault.kind == "duplicate" and records[place].objects[one.object].desc == fault.true.desc
            return one.object == fault.index or (
                is_twin and iou(records[place].objects[one.object].bbox, fault.true.bbox) > 0.5
            )
        size = np.tile((records[place].width, records[place].height), 2)
        return one.proposal is not None and iou(np.array(one.proposal.box_xyxy) / size, fault.true.bbox) >= 0.5

    first = found.findings[: len(faults)]
    row["precision"] = mean(map(is_true, first)) if first else float("nan")
    hits = {place_of[one.image_id] for one in first if is_true(one)}
    for kind in KINDS:
        of_kind = [fault.record for fault in faults if fault.kind == kind]
        row[f"recall {kind}"] = mean(place in hits for place in of_kind) if of_kind else float("nan")
    named = [one.kind == spoilt[place_of[one.image_id]].kind for one in first if is_true(one)]
    row["kind named"] = mean(named) if named else float("nan")

    # Calibration: of labels that are there, and of missing ones.
    p = np.array([one.probability for one in found.findings])
    y = np.array([is_true(one) for one in found.findings], float)
    bins = np.minimum((p * 10).astype(int), 9)
    row["ece"] = float(sum(abs(p[bins == b].mean() - y[bins == b].mean()) * (bins == b).mean() for b in set(bins)))
    row["expected"], row["true"] = float(p.sum()), float(y.sum())
    row["above half"], row["false above half"] = int((p >= 0.5).sum()), int(((p >= 0.5) & (y == 0)).sum())
    return row


@app.command()
def judge(
    model: Path, seeds: int = 3, images: int = 500, out: Out = Path("runs/label-review"), batch: int = 50
) -> None:
    """Plant faults into images that a model was not trained on, and review them with and without likelihoods."""
    from coord_detect.answers.answering_model import AnsweringModel
    from coord_detect.detection.image_sources import find_sources
    from coord_detect.detection.session import answer_sources
    from coord_trainer.review.forcing import Forcing
    from coord_trainer.review.judging import JudgedRecord
    from coord_trainer.review.judging import judge as judge_labels

    words = [f"evaluation.batch_size={batch}"]
    detector = AnsweringModel.load(model, load_run_config(None, words, trains=False), CATEGORIES[:9])
    forcing = Forcing(detector.engine.checkpoint, detector.config, frozenset(CATEGORIES[:9]))
    for seed in range(seeds):
        folder = out / f"seed-{seed}"
        clean = drawn(folder, ShapesConfig(seed=1000 + seed, max_objects=2), images)
        sources = find_sources([str(folder / "clean.jsonl")])
        with answer_sources(
            detector, sources, folder / "answers", {"model": str(model), "prompt": ""}, batch=batch
        ) as done:
            print(f"seed {seed}: {len(done.records)} answers", flush=True)
        (folder / "reading.json").write_text(
            json.dumps({name: getattr(detector.reading, name) for name in detector.reading.changed()})
        )
        for rate in (0.0, *RATES):
            records, _ = plant(clean, rate, seed)
            rows = [JudgedRecord(s, i, i.image_id) for s, i in zip(sources.images, records, strict=True)]
            (place := folder / f"labels-{rate:g}").mkdir(exist_ok=True)
            judge_labels(forcing, rows, place, {})
            print(f"seed {seed}, rate {rate:g}", flush=True)
    measure(out)


@app.command()
def measure(out: Out = Path("runs/label-review"), cleanlab: Path | None = None) -> None:
    """Review what `judge` has put there, without a model, and print means over seeds.

    `--cleanlab` is a folder into which cleanlab is installed, for ObjectLab.
    """
    for folder in sorted(out.glob("seed-*")):
        seed = int(folder.name.removeprefix("seed-"))
        clean = list(read_instances(folder / "clean.jsonl").instances)
        predictions = read_lines(folder / "answers" / "predictions.jsonl")
        settings = AnswerSettings(**json.loads((folder / "reading.json").read_text()))
        for rate in (0.0, *RATES):
            records, faults = plant(clean, rate, seed)
            some: dict[str, Any] = {"answers alone": None, "labels": read_forced(folder / f"labels-{rate:g}")}
            some["labels, without the end"] = [replace(one, end_logprob=None) for one in some["labels"]]
            found = {
                name: measures(
                    review(records, predictions, likelihoods=given, answers=settings, least=0.0), records, faults
                )
                | (figures(given, faults, records) if given else {})
                for name, given in some.items()
            }
            for name, ranked in by_rules(records, predictions, cleanlab).items():
                found[name] = measures(ranked, records, faults)
            (folder / f"rate-{rate:g}.json").write_text(json.dumps(found, indent=1))
    summary(out)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_forced(folder: Path) -> list[LabelLikelihood]:
    """Return the likelihoods that `judge` has put into a folder."""
    return [LabelLikelihood(**label) for line in read_lines(folder / "forced.jsonl") for label in line["labels"]]


def drawn(folder: Path, config: ShapesConfig, images: int) -> list[Instance]:
    """Return generated images, which are drawn unless they are there."""
    file = folder / "clean.jsonl"
    if not file.is_file():
        instances = []
        for instance, image in draw_shapes(config, "reviewed", images):
            path = folder / instance.image
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
            instances.append(instance)
        write_instances(file, instances)
    return list(read_instances(file).instances)


def train_further(
    model: Path, annotations: Path, images: Path, folder: Path, steps: int, more: Mapping[str, Any] = {}
) -> Path:
    """Train a model of the first run on annotations, into a folder that is kept if it is there; return the folder."""
    from coord_trainer.comparison.plan import LossGroup, PlannedRun
    from coord_trainer.comparison.run import train_all, why_not_kept

    settings: dict[str, Any] = {
        "model": {"path": str(locate_model(model).resolve())},
        "run": {"threads": 1, "dir": str(folder)},
        "data": {"markers": "obj", "annotations": str(annotations), "images": str(images)},
        "custom": {"coord_soft_ce_w1": {"enabled": True}},
        "training": {"max_steps": steps, "optimizer": "muon", "learning_rate": 2e-3, "warmup_steps": 5}
        | {"per_device_train_batch_size": 16, "logging_steps": 20, "save_steps": steps},
        "evaluation": {"images": "none", "batch_size": 50, "decoding": {"boxes": "best_iou"}},
    }
    for section, values in more.items():
        settings[section] = {**settings[section], **values}
    training = check_run_config(settings, folder.name)
    run = PlannedRun(LossGroup(folder.name, training), training.run.seed, training, folder)
    if why_not_kept(run, None) is not None and train_all([run], 1):
        raise SystemExit(f"the run failed, see {run.folder}.log")
    return folder


def figures(
    given: Sequence[LabelLikelihood], faults: Sequence[Planted], records: Sequence[Instance]
) -> dict[str, float]:
    """Return the AUROC of the name's and of the coordinates' likelihood alone, for the fault that each is about."""
    wrong = {(records[f.record].image_id, f.index): f.kind for f in faults}
    spoilt = {image for image, _ in wrong}
    values: dict[str, dict[str, list[float]]] = {"name": {}, "box": {}}
    for one in given:
        kind = wrong.get((one.image_id, one.object), "clean" if one.image_id not in spoilt else "beside")
        values["name"].setdefault(kind, []).append(-one.name_logprobs[one.desc])
        values["box"].setdefault(kind, []).append(float(np.mean(sorted(-x for x in one.coord_logprobs)[-2:])))
    clean = {name: of.get("clean", []) for name, of in values.items()}
    return {
        f"{name} likelihood, {kind}": auroc(values[name].get(kind, []), clean[name])
        for name, kinds in (("name", ("renamed", "spurious", "beside")), ("box", ("moved", "spurious", "beside")))
        for kind in kinds
    }


@app.command()
def fit(out: Out = Path("runs/label-review"), seeds: str = "0,1", simulated: int = 1) -> None:
    """Fit the constants of `coord_eval.review.weights` to measured sets, and to simulated ones of coord-eval.

    Args:
        out: where `judge` has put answers and likelihoods
        seeds: the sets to fit to, the others are left for a test; empty for simulated sets alone
        simulated: number of seeds of simulated sets, which have no likelihoods; 0 for none
    """
    other = simulations()
    missing = MISSING
    for likely in (False, True) if seeds else (False,):
        sets = [
            gathered(out / f"seed-{seed}", seed, rate, likely)
            for seed in map(int, filter(None, seeds.split(",")))
            for rate in (0.0, *RATES)
        ]
        for case in other["_cases"](80, range(0 if likely else simulated)):
            found = other["_evidence"](case)
            shows = (other["shows_removed"](case) >= 0)[found.answers_d]
            sets.append((found, other["kinds_of"](case, found.twin_N), shows, np.zeros(len(shows))))
        figures, x = np.concatenate([s[0].figures_dF for s in sets]), np.concatenate([s[0].figures_NF for s in sets])
        kinds, y = [s[1] for s in sets], np.where(np.concatenate([s[2] for s in sets]), 0, -1)
        offsets = []
        for own in kinds:
            counts = np.array([(own == k).sum() for k in range(len(LABEL_KINDS))]) + 0.01
            offsets.append(np.tile(np.log(counts / (own == -1).sum()), (len(own), 1)))
        kind_N, used = np.concatenate(kinds), np.arange(len(LABEL_FIGURES) - (0 if likely else 2))
        weight, bias = other["softmax_fit"](x[:, used], kind_N, np.concatenate(offsets), 1e-3 if likely else 1e-4)
        rows = np.zeros((len(LABEL_KINDS), len(LABEL_FIGURES)))
        rows[:, used] = weight
        print("WITH_LIKELIHOODS" if likely else "WITHOUT", f"rests on {len(x)} labels of {len(sets)} sets")
        for row in rows:
            print("        (" + ", ".join(f"{value:.2f}" for value in row) + "),")
        print("    bias=(" + ", ".join(f"{value:.2f}" for value in bias) + "),")
        print("    rates=(" + ", ".join(f"{(kind_N == k).mean():.4f}" for k in range(len(LABEL_KINDS))) + "),")
        if likely:  # the end of the answer, beside what the answers say already
            score = figures @ np.array(missing.figures) + missing.bias
            going = np.nan_to_num(np.concatenate([s[3] for s in sets]))
            weight, bias = other["softmax_fit"](going[:, None], y, score[:, None], 1e-3)
            print(f"GOES_ON ({len(y)} answers)", float(weight[0, 0].round(2)), float(bias[0].round(2)))
        else:
            weight, bias = other["softmax_fit"](figures, y, np.zeros((len(y), 1)), 1e-4)
            missing = AnswerWeights(tuple(weight[0].round(2).tolist()), float(bias[0].round(2)))
            print(f"MISSING ({len(y)} answers)", missing)


def simulations() -> dict[str, Any]:
    """Return the names of coord-eval's benchmark, which simulates detectors and has the rules of others."""
    return runpy.run_path(str(Path(__file__).parents[3] / "packages/coord-eval/benchmarks/label_review.py"))


def by_rules(
    records: Sequence[Instance], predictions: Sequence[Mapping[str, Any]], cleanlab: Path | None
) -> dict[str, Any]:
    """Return the suspicions of other rules: random order, the plain IoU rule, and ObjectLab if it is there."""
    other = simulations()
    names = {name: k for k, name in enumerate(CATEGORIES)}
    size = records[0].width or 0
    labels = [(i, k, o) for i, instance in enumerate(records) for k, o in enumerate(instance.objects)]
    corners = np.array([o.bbox for _, _, o in labels]) * size
    boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    scene = other["Scene"](
        np.full((len(records), 2), float(size)),
        len(names),
        np.array([i for i, _, _ in labels]),
        np.array([names[o.desc] for _, _, o in labels]),
        boxes,
    )
    place = {instance.image_id: i for i, instance in enumerate(records)}
    said = [(place[p["image_id"]], o) for p in predictions for o in p["objects"] if o["desc"] in names]
    results = []
    for image, o in said:
        x1, y1, x2, y2 = o["bbox_xyxy"]
        box = [x1, y1, x2 - x1, y2 - y1]
        results.append({"image_id": image, "category_id": names[o["desc"]] + 1, "bbox": box, "score": o["score"]})
    case = other["Case"](scene, other["Spoilt"](scene, [""] * len(labels), [], []), None, results)
    chance = np.random.default_rng(0)
    rules = {
        "random": lambda case: other["Ranking"](chance.random(len(labels)), chance.random(len(results)), []),
        "plain IoU rule": other["by_iou"],
    }
    if cleanlab is not None:
        sys.path.append(str(cleanlab))
        rules["ObjectLab"] = other["by_objectlab"]
    found = {}
    for title, rule in rules.items():
        ranking = rule(case)
        findings = [
            ReviewFinding(records[i].image_id, "", k, None, "", float(p), o.desc, None, None)
            for (i, k, o), p in zip(labels, ranking.label_N, strict=True)
        ] + [
            ReviewFinding(
                records[i].image_id,
                "",
                None,
                0,
                "",
                float(p),
                None,
                None,
                Proposal(o["desc"], tuple(o["bbox_xyxy"]), 0),
            )
            for (i, o), p in zip(said, ranking.answer_D, strict=True)
            if p > 0
        ]
        found[title] = SimpleNamespace(findings=sorted(findings, key=lambda one: -one.probability))
    return found


def gathered(folder: Path, seed: int, rate: float, likely: bool) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return the evidence of a measured set, the kind of each label, and of each answer without a label whether it
    shows a missing object, and how much the model expects one."""
    records, faults = plant(list(read_instances(folder / "clean.jsonl").instances), rate, seed)
    predictions, given = read_lines(folder / "answers" / "predictions.jsonl"), read_forced(folder / f"labels-{rate:g}")
    truth = load_ground_truth(records)
    collected = collect(
        truth,
        load_predictions(predictions),
        AnswerSettings(**json.loads((folder / "reading.json").read_text())),
        LabelSettings(),
    )
    detections = collected.detections
    places = places_in_images(truth.image_N)
    known = surprises(truth, places, given)[0] if likely else None
    found = gather(truth, detections, compare(truth, detections, False), None, known)
    wrong = {(fault.record, fault.index): fault for fault in faults if fault.index is not None}
    own = np.full(len(truth.image_N), -1)
    for n, place in enumerate(zip(truth.image_N.tolist(), places.tolist(), strict=True)):
        if place in wrong and wrong[place].kind != "duplicate":
            own[n] = LABEL_KINDS.index(wrong[place].kind)
    twins = {fault.record for fault in faults if fault.kind == "duplicate"}
    is_second = (found.twin_N >= 0) & np.isin(truth.image_N, list(twins))
    own[is_second] = LABEL_KINDS.index("duplicate")
    lost = {fault.record: fault.true for fault in faults if fault.kind == "missing"}
    shows = []
    for d in found.answers_d.tolist():
        image = int(detections.image_D[d])
        size = np.tile(truth.sizes_I2[image], 2)
        x, y, w, h = detections.boxes_D4[d]
        shows.append(image in lost and iou(np.array([x, y, x + w, y + h]) / size, lost[image].bbox) >= 0.5)
    goes = goes_on(truth, given)[detections.image_D[found.answers_d]]
    return found, own, np.array(shows, bool), goes


@app.command()
def folds(
    model: Path, seeds: str = "50", images: int = 300, steps: int = 250, count: int = 2, out: Out = Path("runs/folds")
) -> None:
    """Review records by a model that has never seen them, by one trained on them, faults included, and by folds."""
    from coord_detect.detection.image_sources import find_sources
    from coord_trainer.review.command import ReviewRequest, review_annotations

    asked = load_run_config(None, ["evaluation.batch_size=50"], trains=False)
    for seed in map(int, seeds.split(",")):
        pool = out / f"seed-{seed}"
        clean = drawn(pool, ShapesConfig(seed=1000 + seed, max_objects=2), images)
        for rate in RATES:
            folder = pool / f"{rate:g}"
            records, faults = plant(clean, rate, seed)
            folder.mkdir(exist_ok=True)
            write_instances(spoilt := folder / "spoilt.jsonl", records)
            run = train_further(model, spoilt, pool, folder / "trained", steps)
            training = load_run_config(run / "config.yaml", [])
            sources = find_sources([str(spoilt)], pool)
            found = {}
            for name, judge_model, parts in (("unseen", model, 0), ("trained", run, 0), ("folds", None, count)):
                request = ReviewRequest(judge_model, sources, spoilt.name, folder / f"by-{name}", parts)
                review_ = review_annotations(request, asked, training if parts else None)
                found[name] = measures(review_, records, faults)
                print(seed, rate, name, {key: round(value, 3) for key, value in found[name].items()}, flush=True)
            (pool / f"rate-{rate:g}.json").write_text(json.dumps(found, indent=1))
    summary(out)


@app.command()
def photographs(
    annotations: Path,
    images: Path,
    config: Path = Path("configs/memorise.yaml"),
    rate: float = 0.3,
    seed: int = 0,
    count: int = 2,
    most: int | None = None,
    out: Out = Path("runs/photographs"),
) -> None:
    """Review annotated images with planted faults by folds that are trained from random weights."""
    from coord_detect.detection.image_sources import find_sources
    from coord_trainer.review.command import ReviewRequest, review_annotations

    clean = [
        instance.model_copy(update={"objects": tuple(instance.targets)})
        for instance in read_annotations(annotations).instances
        if instance.targets
    ][:most]
    names = sorted({o.desc for instance in clean for o in instance.objects})
    records, faults = plant(clean, rate, seed, names)
    out.mkdir(parents=True, exist_ok=True)
    write_instances(spoilt := out / "spoilt.jsonl", records)
    training = load_run_config(config, [f"data.annotations={spoilt}", f"data.images={images}", "run.threads=1"])
    request = ReviewRequest(None, find_sources([str(spoilt)], images), spoilt.name, out / "folds", count)
    asked = load_run_config(None, ["evaluation.batch_size=11"], trains=False)
    found = measures(review_annotations(request, asked, training), records, faults)
    print(len(records), len(faults), {key: round(value, 3) for key, value in found.items()})


@app.command()
def summary(out: Out = Path("runs/label-review")) -> None:
    """Print a table of means over seeds."""
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for file in sorted(out.glob("seed-*/rate-*.json")):
        for name, row in json.loads(file.read_text()).items():
            found.setdefault((file.stem.removeprefix("rate-"), name), []).append(row)
    for (rate, name), rows in found.items():
        print(f"\n{rate}: {name}, {len(rows)} seeds")
        for key in rows[0]:
            values = [row[key] for row in rows if key in row and row[key] == row[key]]
            if values:
                print(f"  {key}: {mean(values):.3f} ({' '.join(f'{value:.3f}' for value in values)})")


if __name__ == "__main__":
    app()
