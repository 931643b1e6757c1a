"""Measures the coverage of 95 % intervals, and how often a comparison of equal runs reports a difference.

Images are simulated: labels are uniform or follow Zipf's law, each label has its own recall, boxes are jittered, scores
are informative, and there are false positives. Two runs are two detectors of the same quality.

python packages/coord-eval/benchmarks/interval_coverage.py --sets 200 --resamples 200
"""

import numpy as np
import typer

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.comparison.compare import paired_differences
from coord_eval.match.matching import Scored
from coord_eval.metrics.draws import interval
from coord_eval.metrics.metric_table import HEADLINE, figures
from coord_eval.resampling.bootstrap import resample
from coord_eval.resampling.permutation import exchange_p_values

SHOWN = ("AP", "AP50", "f1", "mean_iou")
SETTINGS = {  # labels, exponent of Zipf's law, images
    "3 even labels, 150 images": (3, 0.0, 150),
    "30 Zipf labels, 150 images": (30, 1.0, 150),
    "80 Zipf labels, 150 images": (80, 1.0, 150),
    "30 long-tailed labels, 150 images": (30, 1.3, 150),
    "30 long-tailed labels, 15 images": (30, 1.3, 15),
    "80 Zipf labels, 1000 images": (80, 1.0, 1000),
}


def simulate(draw: np.random.Generator, labels: int, zipf: float, images: int, runs: int = 1) -> list[Scored]:
    """Return the matched answers of runs of the same quality to the same images."""
    share_K = np.arange(1, labels + 1) ** -zipf
    found_K = 0.35 + 0.5 * ((np.arange(labels) * 7) % labels + 0.5) / labels
    image_N = np.repeat(np.arange(images), draw.poisson(5, images))
    label_N = draw.choice(labels, len(image_N), p=share_K / share_K.sum())
    boxes_N4 = np.concatenate([draw.uniform(0, 400, (len(image_N), 2)), draw.uniform(30, 200, (len(image_N), 2))], 1)
    truth = GroundTruth(
        image_ids=tuple(range(images)),
        file_names=("",) * images,
        sizes_I2=np.full((images, 2), 640.0),
        sizes_known=True,
        categories=tuple(map(str, range(labels))),
        category_ids=tuple(range(labels)),
        image_N=image_N,
        category_N=label_N,
        boxes_N4=boxes_N4,
        area_N=boxes_N4[:, 2:].prod(1),
        crowd_N=np.zeros(len(image_N), bool),
    )
    result = []
    for _ in range(runs):
        hit = draw.random(len(image_N)) < found_K[label_N]
        false = draw.poisson(2, images)
        near = boxes_N4[hit] + draw.normal(0, 0.08, (hit.sum(), 4)) * boxes_N4[hit][:, [2, 3, 2, 3]]
        far = np.concatenate([draw.uniform(0, 400, (false.sum(), 2)), draw.uniform(30, 200, (false.sum(), 2))], 1)
        image_D = np.concatenate([image_N[hit], np.repeat(np.arange(images), false)])
        detections = Detections.of(
            truth,
            image_D=image_D,
            category_D=np.concatenate([label_N[hit], draw.choice(labels, false.sum(), p=share_K / share_K.sum())]),
            boxes_D4=np.maximum(np.concatenate([near, far]), 1.0),
            scores_D=np.concatenate([draw.beta(4, 2, hit.sum()), draw.beta(2, 4, false.sum())]),
            rank_D=np.zeros(len(image_D), int),
        )
        result.append(Scored(truth=truth, detections=detections, score_source="results", bins=1000))
    return result


def coverage(labels: int, zipf: float, images: int, sets: int, resamples: int, seed: int) -> dict[str, list[float]]:
    """Return for each metric: on many images, mean over sets of this size, and how often three intervals cover."""
    draw = np.random.default_rng(seed)
    many = 6000
    limit = figures(simulate(draw, labels, zipf, many)[0], np.ones((1, many), np.int32), SHOWN)
    drawn = [resample(simulate(draw, labels, zipf, images)[0], resamples, s, metrics=SHOWN) for s in range(sets)]
    rows = {}
    for name in SHOWN:
        mean = float(np.mean([found.point[name] for found in drawn]))
        percentile = [np.nanpercentile(found.draws[name], [2.5, 97.5]) for found in drawn]
        moved = [interval(found.point[name], found.draws[name], True) for found in drawn]
        ends = [(row["low"], row["high"]) for row in moved]
        rows[name] = [
            float(limit[name][0]),
            mean,
            float(np.mean([low <= mean <= high for low, high in percentile])),
            float(np.mean([low <= mean <= high for low, high in ends])),
            float(np.mean([low <= limit[name][0] <= high for low, high in ends])),
        ]
    return rows


def false_alarms(labels: int, zipf: float, images: int, sets: int, resamples: int, seed: int) -> float:
    """Return the share of comparisons of equal runs in which anything differs by an interval alone."""
    draw = np.random.default_rng(seed)
    found = 0
    for s in range(sets):
        runs = simulate(draw, labels, zipf, images, runs=2)
        drawn = {str(i): resample(run, resamples, s, metrics=HEADLINE) for i, run in enumerate(runs)}
        found += any(row.low > 0 or row.high < 0 for row in paired_differences(drawn, {})["1"].values())
    return found / sets


def adjusted_false_alarms(labels: int, zipf: float, images: int, sets: int, permutations: int, seed: int) -> float:
    """Return the same by permutation and Holm's method; the intervals, of two draws, play no part."""
    draw = np.random.default_rng(seed)
    found = 0
    for s in range(sets):
        runs = simulate(draw, labels, zipf, images, runs=2)
        drawn = {str(i): resample(run, 2, s, metrics=HEADLINE) for i, run in enumerate(runs)}
        p_values = {"1": exchange_p_values(runs[:1], runs[1:], permutations, s, HEADLINE)}
        found += any(row.differs for row in paired_differences(drawn, p_values)["1"].values())
    return found / sets


def main(sets: int = 200, resamples: int = 200, comparisons: int = 1000, seed: int = 1, only: int = -1) -> None:
    """Print the tables, a setting after the other; `--only 0` prints the first, `--sets 0` no intervals."""
    settings = list(SETTINGS.items())
    print("| setting | metric | 6000 images | mean at this size | covered: percentile | moved | moved, 6000 images |")
    print("|---|---|---|---|---|---|---|")
    for name, setting in settings if only < 0 else settings[only : only + 1]:
        if sets:
            for metric, row in coverage(*setting, sets, resamples, seed).items():
                print(f"| {name} | {metric} | " + " | ".join(f"{value:.3f}" for value in row) + " |", flush=True)
            alarms = false_alarms(*setting, sets, resamples, seed)
            print(f"{name}: equal runs differ in any interval {alarms:.3f} of {sets}", flush=True)
        if comparisons:
            alarms = adjusted_false_alarms(*setting, comparisons, resamples, seed)
            print(f"{name}: equal runs differ after permutation and Holm {alarms:.3f} of {comparisons}", flush=True)


if __name__ == "__main__":
    typer.run(main)
