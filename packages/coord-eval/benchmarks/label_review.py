"""How well a review finds planted faults of labels: simulated detectors of several kinds, against other rules.

python packages/coord-eval/benchmarks/label_review.py [--coco FILE [--results FILE]] [--cleanlab FOLDER]

The constants are fitted by `apps/trainer/benchmarks/label_review.py fit`, to these sets and those of a trained model.
`--cleanlab` is a folder into which cleanlab is installed (`uv pip install --target FOLDER cleanlab`), for ObjectLab.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from coord_eval.boxes.iou import box_iou
from coord_eval.review import KINDS, Review, review
from coord_eval.review.confidence import compare
from coord_eval.review.probability import LABEL_KINDS

Boxes = np.ndarray


@dataclass
class Scene:
    """Objects of a set of images: boxes `xywh` in pixels."""

    size_I2: np.ndarray
    names: int
    image_N: np.ndarray
    name_N: np.ndarray
    box_N4: np.ndarray


@dataclass
class Detector:
    """What a simulated model does: shares, and the noise of a side in sizes of the box."""

    title: str
    missed: float = 0.06
    noise: float = 0.03
    confused: float = 0.03
    false_an_image: float = 0.2
    repeated: float = 0.03
    clutter: float = 0.0
    scored: bool = True
    informed: bool = True


DETECTORS = (
    Detector("good, with scores"),
    Detector("good, without scores", scored=False),
    Detector("detector with clutter", missed=0.04, noise=0.03, confused=0.05, false_an_image=2.0, clutter=1.5),
    Detector("confused, scores by chance", missed=0.1, noise=0.04, confused=0.12, informed=False),
    Detector("weak, with scores", missed=0.25, noise=0.06, confused=0.1, false_an_image=0.8),
)


def generated(draw: np.random.Generator, images: int, names: int = 8) -> Scene:
    """Return images of 640 x 480 with objects of 12 to 250 pixels.

    One object of ten has a neighbour of its name that covers much of it; otherwise two of one name hardly overlap.
    """
    rows: list[tuple[int, int, np.ndarray]] = []
    for image in range(images):
        own: list[tuple[int, np.ndarray]] = []
        for _ in range(1 + draw.poisson(5)):
            side = np.exp(draw.uniform(np.log(12), np.log(250)))
            w, h = side * np.exp(draw.normal(0, 0.3)), side * np.exp(draw.normal(0, 0.3))
            w, h = min(w, 600), min(h, 440)
            box = np.array([draw.uniform(0, 640 - w), draw.uniform(0, 480 - h), w, h])
            name = int(draw.integers(names))
            if own and draw.random() < 0.1:
                name, beside = own[-1]
                box = clipped(beside + draw.normal(0, 0.15, 4) * np.tile(beside[2:], 2), np.array([640.0, 480.0]))
                own.append((name, box))
            elif all(box_iou(box, other) < (0.3 if name == kind else 0.7) for kind, other in own):
                own.append((name, box))
        rows += [(image, name, box) for name, box in own]
    image, name, box = zip(*rows, strict=True)
    return Scene(np.tile([640.0, 480.0], (images, 1)), names, np.array(image), np.array(name), np.array(box))


def of_coco(path: Path) -> Scene:
    """Return the objects of a COCO file without its crowd regions and boxes below 2 pixels."""
    document = json.loads(path.read_text())
    number = {row["id"]: i for i, row in enumerate(document["images"])}
    names = {row["id"]: k for k, row in enumerate(document["categories"])}
    rows = [a for a in document["annotations"] if not a.get("iscrowd") and min(a["bbox"][2:]) >= 2]
    return Scene(
        np.array([(row["width"], row["height"]) for row in document["images"]], np.float64),
        len(names),
        np.array([number[a["image_id"]] for a in rows]),
        np.array([names[a["category_id"]] for a in rows]),
        np.array([a["bbox"] for a in rows], np.float64),
    )


def results_of(path: Path, coco: Path) -> list[dict[str, Any]]:
    """Return a results list with the images and names of `of_coco`."""
    document = json.loads(coco.read_text())
    number = {row["id"]: i for i, row in enumerate(document["images"])}
    names = {row["id"]: k + 1 for k, row in enumerate(document["categories"])}
    return [
        row | {"image_id": number[row["image_id"]], "category_id": names[row["category_id"]]}
        for row in json.loads(path.read_text())
    ]


def squash(value: np.ndarray | float) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-np.asarray(value)))


def another(draw: np.random.Generator, name: int, names: int) -> int:
    """Return another name."""
    return int((name + 1 + draw.integers(names - 1)) % names)


def clipped(box: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return a box inside its image, at least two pixels wide."""
    x1, y1 = np.clip(box[:2], 0, size - 2)
    x2, y2 = np.clip(box[:2] + box[2:], (x1 + 2, y1 + 2), size)
    return np.array([x1, y1, x2 - x1, y2 - y1])


def detect(draw: np.random.Generator, scene: Scene, model: Detector) -> list[dict[str, Any]]:
    """Return the results of a simulated model that has seen the true objects."""
    found: list[tuple[int, int, np.ndarray, float]] = []

    def shifted(box: np.ndarray, noise: float) -> np.ndarray:
        side = noise * draw.standard_t(4, 4) * np.tile(box[2:], 2) + draw.normal(0, 0.5, 4)
        return np.array([box[0] + side[0], box[1] + side[1], box[2] - side[0] + side[2], box[3] - side[1] + side[3]])

    for image, name, box in zip(scene.image_N.tolist(), scene.name_N.tolist(), scene.box_N4, strict=True):
        size = np.sqrt(box[2] * box[3])
        if draw.random() < min(model.missed * (48 / size) ** 0.5, 0.8):
            continue
        wrong = draw.random() < model.confused
        said = another(draw, name, scene.names) if wrong else name
        score = squash(draw.normal(0.0, 1.2) if wrong else draw.normal(2.4, 1.3))
        found.append((image, said, shifted(box, model.noise), float(score)))
        if draw.random() < model.repeated:
            found.append((image, said, shifted(found[-1][2], 0.01), float(score) * 0.98))
        for _ in range(draw.poisson(model.clutter)):
            low = another(draw, said, scene.names) if draw.random() < 0.6 else said
            found.append((image, low, shifted(box, 3 * model.noise), float(squash(draw.normal(-2.5, 0.9)))))
    for image, size in enumerate(scene.size_I2):
        for _ in range(draw.poisson(model.false_an_image)):
            side = np.exp(draw.uniform(np.log(12), np.log(250)))
            box = np.array([*draw.uniform(0, size), side, side * np.exp(draw.normal(0, 0.3))])
            found.append((image, int(draw.integers(scene.names)), box, float(squash(draw.normal(-1.2, 1.2)))))
    return [
        {
            "image_id": image,
            "category_id": name + 1,
            "bbox": clipped(box, scene.size_I2[image]).tolist(),
            "score": (score if model.informed else float(draw.random())) if model.scored else 1.0,
        }
        for image, name, box, score in found
    ]


@dataclass
class Spoilt:
    """A scene with planted faults.

    Attributes:
        scene: the labels
        kind_N: the fault of each label, empty for none
        source_N: the true object that each label comes from, -1 for a spurious one
        removed: the true objects whose label is missing
    """

    scene: Scene
    kind_N: list[str]
    source_N: list[int]
    removed: list[int]


def plant(draw: np.random.Generator, scene: Scene, rate: float) -> Spoilt:
    """Return labels of which a share has a fault, each kind equally often."""
    total = len(scene.image_N)
    chosen = draw.choice(total, round(rate * total), replace=False)
    kinds = [kind for kind in KINDS if scene.names > 1 or kind not in ("renamed", "mixed")]
    fault = dict(zip(chosen.tolist(), (kinds[k % len(kinds)] for k in range(len(chosen))), strict=True))
    rows: list[tuple[int, int, np.ndarray, str, int]] = []
    removed = []
    for n, (image, name, box) in enumerate(
        zip(scene.image_N.tolist(), scene.name_N.tolist(), scene.box_N4, strict=True)
    ):
        kind = fault.get(n, "")
        if kind == "missing":
            removed.append(n)
            continue
        if kind in ("", "duplicate", "spurious"):
            rows.append((image, name, box, "", n))
        if kind == "duplicate":
            jitter = draw.normal(0, 0.05, 4) * np.tile(box[2:], 2)
            rows.append((image, name, clipped(box + jitter, scene.size_I2[image]), kind, n))
        if kind == "spurious":
            w, h = scene.box_N4[draw.integers(total)][2:]
            others = scene.box_N4[scene.image_N == image]
            for _ in range(100):
                stray = clipped(np.array([*draw.uniform(0, scene.size_I2[image]), w, h]), scene.size_I2[image])
                if box_iou(stray, others).max() < 0.2:
                    break
            rows.append((image, int(draw.integers(scene.names)), stray, kind, -1))
        if kind in ("renamed", "moved", "mixed"):
            changed = box if kind == "renamed" else moved(draw, box, scene.size_I2[image])
            rows.append((image, name if kind == "moved" else another(draw, name, scene.names), changed, kind, n))
    image, name, box, kinds, source = zip(*rows, strict=True)
    labels = Scene(scene.size_I2, scene.names, np.array(image), np.array(name), np.array(box))
    return Spoilt(labels, list(kinds), list(source), removed)


def moved(draw: np.random.Generator, box: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return a box shifted by 30 % of a side, or with a side that is a third longer or shorter."""
    axis, sign = int(draw.integers(2)), float(draw.choice((-1, 1)))
    changed = box.copy()
    if draw.random() < 0.5:
        changed[axis] += sign * 0.3 * box[2 + axis]
    else:
        changed[2 + axis] *= 1 + sign / 3
    return clipped(changed, size)


def document(scene: Scene) -> dict[str, Any]:
    """Return COCO annotations."""
    return {
        "images": [
            {"id": i, "file_name": f"{i}.jpg", "width": int(w), "height": int(h)}
            for i, (w, h) in enumerate(scene.size_I2.tolist())
        ],
        "categories": [{"id": k + 1, "name": f"name {k}"} for k in range(scene.names)],
        "annotations": [
            {"id": n + 1, "image_id": i, "category_id": k + 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            for n, (i, k, box) in enumerate(
                zip(scene.image_N.tolist(), scene.name_N.tolist(), scene.box_N4.tolist(), strict=True)
            )
        ],
    }


def corners(box: np.ndarray) -> np.ndarray:
    """Return `x1, y1, x2, y2`."""
    return np.array([box[0], box[1], box[0] + box[2], box[1] + box[3]])


# ---------------------------------------------------------------- measures


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the probability that a faulty one ranks above a right one, ties counted half."""
    if not len(positive) or not len(negative):
        return float("nan")
    both = np.r_[positive, negative]
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    first = rank[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(first / len(positive) / len(negative))


@dataclass
class Ranking:
    """Suspicions of one method: of each label, and of each answer that may show a missing label.

    Attributes:
        label_N: how suspect each label is
        answer_D: how suspect each answer is of showing a missing label; 0 for one that is no candidate
        named_N: the kind that the method names; empty texts if it names none
    """

    label_N: np.ndarray
    answer_D: np.ndarray
    named_N: list[str]


@dataclass
class Case:
    """A spoilt set with the answers of a model."""

    truth: Scene
    spoilt: Spoilt
    model: Detector
    results: list[dict[str, Any]]

    @property
    def answer_table(self) -> np.ndarray:
        """Image, name and box of each answer, without its score."""
        rows = [(r["image_id"], r["category_id"] - 1, *r["bbox"]) for r in self.results]
        return np.array(rows, np.float64).reshape(-1, 6)


def make(scene: Scene, model: Detector, rate: float, seed: int) -> Case:
    """Return a case."""
    draw = np.random.default_rng([seed, round(1000 * rate), sum(map(ord, model.title))])
    spoilt = plant(draw, scene, rate)
    results = detect(draw, scene, model)
    return Case(scene, spoilt, model, results)


def judged(case: Case) -> tuple[Ranking, Review]:
    """Return the suspicions of `review`."""
    found = review(document(case.spoilt.scene), case.results, least=0.0)
    place: dict[tuple[int, int], int] = {}
    seen: dict[int, int] = {}
    for n, image in enumerate(case.spoilt.scene.image_N.tolist()):
        seen[image] = seen.get(image, -1) + 1
        place[image, seen[image]] = n
    label_N = np.zeros(len(place))
    named = [""] * len(place)
    for item in found.judged:
        n = place[item.image_id, item.object]
        label_N[n], named[n] = item.probability, item.kind
    rank: dict[tuple[int, int], int] = {}
    times: dict[int, int] = {}
    for d, result in enumerate(case.results):
        times[result["image_id"]] = times.get(result["image_id"], -1) + 1
        rank[result["image_id"], times[result["image_id"]]] = d
    answer_D = np.zeros(len(case.results))
    for finding in found.findings:
        if finding.kind == "missing":
            answer_D[rank[finding.image_id, finding.answer]] = finding.probability
    return Ranking(label_N, answer_D, named), found


def by_iou(case: Case) -> Ranking:
    """Return the plain rule: 1 - IoU of a label with its best answer, and score (1 - IoU) of an answer."""
    labels, answers = case.spoilt.scene, case.answer_table
    label_N, answer_D = np.ones(len(labels.image_N)), np.array([r["score"] for r in case.results])
    key_N, key_D = labels.image_N * 1000 + labels.name_N, (answers[:, 0] * 1000 + answers[:, 1]).astype(int)
    for key in np.union1d(key_N, key_D).tolist():
        own, said = np.nonzero(key_N == key)[0], np.nonzero(key_D == key)[0]
        if len(own) and len(said):
            iou = box_iou(answers[said, None, 2:], labels.box_N4[own][None])
            label_N[own] = 1 - iou.max(axis=0)
            answer_D[said] *= 1 - iou.max(axis=1)
    return Ranking(0.5 * label_N, answer_D, [])


def by_objectlab(case: Case) -> Ranking:
    """Return the suspicions of ObjectLab (Tkachenko et al. 2023, arXiv 2309.00832), as cleanlab computes it."""
    from cleanlab.object_detection import rank

    labels, answers, names = case.spoilt.scene, case.answer_table, case.truth.names
    images = len(labels.size_I2)
    score_D = np.array([r["score"] for r in case.results])
    own = [np.nonzero(labels.image_N == i)[0] for i in range(images)]
    given = [
        {"bboxes": np.array([corners(labels.box_N4[n]) for n in rows]).reshape(-1, 4), "labels": labels.name_N[rows]}
        for rows in own
    ]
    said = [[np.nonzero((answers[:, 0] == i) & (answers[:, 1] == k))[0] for k in range(names)] for i in range(images)]
    predicted = [
        np.array(
            [
                *(np.array([[*corners(answers[d, 2:]), score_D[d]] for d in rows]).reshape(-1, 5) for rows in parts),
                None,
            ],
            dtype=object,
        )[:-1]
        for parts in said
    ]
    keywords = {"labels": given, "predictions": predicted}
    badloc, swap = rank.compute_badloc_box_scores(**keywords), rank.compute_swap_box_scores(**keywords)
    overlooked = rank.compute_overlooked_box_scores(**keywords)
    label_N, answer_D = np.zeros(len(labels.image_N)), np.zeros(len(answers))
    for i in range(images):
        label_N[own[i]] = 1 - np.minimum(badloc[i], swap[i])
        order = np.concatenate(said[i])
        answer_D[order] = np.nan_to_num(1 - np.asarray(overlooked[i], np.float64), nan=0.0)
    return Ranking(label_N, answer_D, [])


def shows_removed(case: Case) -> np.ndarray:
    """Return for each answer the object whose label is missing and that it shows, -1 for none."""
    answers, shown_D = case.answer_table, np.full(len(case.results), -1)
    for n in case.spoilt.removed:
        here = np.nonzero(answers[:, 0] == case.truth.image_N[n])[0]
        if len(here):
            iou = box_iou(answers[here, 2:], case.truth.box_N4[n])
            shown_D[here[iou >= 0.5]] = n
    return shown_D


def measures(case: Case, ranking: Ranking) -> dict[str, float]:
    """Return AUROC by kind and of images, precision among the first n suspicions of n faults, and kinds named."""
    kinds = np.array(case.spoilt.kind_N)
    twins = {case.spoilt.source_N[n] for n in np.nonzero(kinds == "duplicate")[0]}
    is_twin_N = np.array([k == "" and s in twins for k, s in zip(kinds, case.spoilt.source_N, strict=True)])
    right_N = (kinds == "") & ~is_twin_N
    out = {}
    for kind in LABEL_KINDS:
        wrong_N = kinds == kind
        if kind == "duplicate":
            # Of two labels of one object either may be named.
            pairs = {s: max(ranking.label_N[np.array(case.spoilt.source_N) == s]) for s in twins}
            out[kind] = auroc(np.array(list(pairs.values())), ranking.label_N[right_N])
        else:
            out[kind] = auroc(ranking.label_N[wrong_N], ranking.label_N[right_N])
    shown_D = shows_removed(case)
    candidate_D = ranking.answer_D > 0
    # A missing label whose object the model does not see cannot be found: it ranks below all answers.
    found_by = [ranking.answer_D[shown_D == n].max(initial=-1.0) for n in case.spoilt.removed]
    out["missing"] = auroc(np.array(found_by), ranking.answer_D[shown_D < 0])

    images = len(case.truth.size_I2)
    suspect_I, faulty_I = np.full(images, -np.inf), np.zeros(images, bool)
    np.maximum.at(suspect_I, case.spoilt.scene.image_N, ranking.label_N)
    answer_image_D = case.answer_table[:, 0].astype(int)
    np.maximum.at(suspect_I, answer_image_D, ranking.answer_D)
    faulty_I[case.spoilt.scene.image_N[kinds != ""]] = True
    faulty_I[case.truth.image_N[case.spoilt.removed]] = True
    out["images"] = auroc(suspect_I[faulty_I], suspect_I[~faulty_I])

    planted = int((kinds != "").sum()) + len(case.spoilt.removed)
    value = np.r_[ranking.label_N, ranking.answer_D[candidate_D]]
    fault = np.r_[(kinds != "") | is_twin_N, shown_D[candidate_D] >= 0]
    first = np.argsort(-value, kind="stable")[:planted]
    out["precision"] = float(fault[first].mean()) if planted else float("nan")
    if ranking.named_N:
        wrong = np.nonzero(kinds != "")[0]
        out["kind named"] = (
            float(np.mean([ranking.named_N[n] == kinds[n] for n in wrong])) if len(wrong) else float("nan")
        )
    return out


def reliability(cases: list[tuple[Case, Ranking]], bins: int = 5) -> tuple[list[tuple[float, float, int]], float]:
    """Return mean probability, share of faults and number in bins of probability, and their mean gap."""
    values, faults = [], []
    for case, ranking in cases:
        kinds = np.array(case.spoilt.kind_N)
        twins = {case.spoilt.source_N[n] for n in np.nonzero(kinds == "duplicate")[0]}
        candidate_D = ranking.answer_D > 0
        is_twin = np.array([s in twins for s in case.spoilt.source_N])
        # Of two labels of one object one is a fault, whichever is named.
        keep_N = ~(is_twin & (ranking.label_N < 0.5) & (kinds == "duplicate"))
        values += [ranking.label_N[keep_N], ranking.answer_D[candidate_D]]
        faults += [
            ((kinds != "") | (is_twin & (ranking.label_N >= 0.5)))[keep_N],
            shows_removed(case)[candidate_D] >= 0,
        ]
    value, fault = np.concatenate(values), np.concatenate(faults)
    place = np.minimum((value * bins).astype(int), bins - 1)
    rows = [
        (float(value[place == b].mean()), float(fault[place == b].mean()), int((place == b).sum()))
        for b in range(bins)
        if (place == b).any()
    ]
    return rows, sum(abs(mean - share) * count for mean, share, count in rows) / len(value)


# ---------------------------------------------------------------- sets to fit to


def softmax_fit(
    x_NF: np.ndarray, kind_N: np.ndarray, offset_NK: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights [K, F] and biases [K] of a multinomial logistic regression; kind -1 is the reference.

    The offsets, the logarithms of the odds of each kind in the set of a label, are given: what is fitted are ratios of
    likelihoods, so that no figure learns how many faults a set has.
    """
    kinds = offset_NK.shape[1]
    scale_F = np.maximum(x_NF.std(axis=0), 1e-9)
    z = np.c_[x_NF / scale_F, np.ones(len(x_NF))]
    target = np.eye(kinds + 1)[kind_N][:, :kinds]
    weight, velocity, square = np.zeros((kinds, z.shape[1])), 0.0, 0.0
    for step in range(1, 3001):
        scores = np.clip(z @ weight.T + offset_NK, -30, 30)
        odds = np.exp(scores)
        p = odds / (1 + odds.sum(axis=1, keepdims=True))
        slope = (p - target).T @ z / len(z)
        slope[:, :-1] += penalty * weight[:, :-1]
        velocity, square = 0.9 * velocity + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weight = weight - 0.05 * (velocity / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return weight[:, :-1] / scale_F, weight[:, -1]


def kinds_of(case: Case, twin_N: np.ndarray) -> np.ndarray:
    """Return the kind of each label as its place in `LABEL_KINDS`, -1 for a right one.

    Of two labels of one object the one is the second that the evidence names so, since either may be.
    """
    own = np.array([LABEL_KINDS.index(k) if k else -1 for k in case.spoilt.kind_N])
    second = LABEL_KINDS.index("duplicate")
    is_pair = np.isin(case.spoilt.source_N, [case.spoilt.source_N[n] for n in np.nonzero(own == second)[0]])
    return np.where(is_pair, np.where(twin_N >= 0, second, -1), own)


def _cases(images: int, seeds: range) -> Iterator[Case]:
    for seed in seeds:
        for model in DETECTORS:
            for rate in (0.02, 0.1, 0.3):
                yield make(generated(np.random.default_rng(1000 + seed), images), model, rate, 1000 + seed)


def _evidence(case: Case) -> Any:
    """Return the evidence of a case, as `review` gathers it."""
    from coord_eval.intake.collecting import collect
    from coord_eval.intake.ground_truth import load_ground_truth
    from coord_eval.intake.predictions import load_predictions
    from coord_eval.review.evidence import gather
    from coord_eval.settings import AnswerSettings, LabelSettings

    truth = load_ground_truth(document(case.spoilt.scene))
    collected = collect(truth, load_predictions(case.results), AnswerSettings(), LabelSettings())
    compared = compare(truth, collected.detections, False)
    return gather(truth, collected.detections, compared, None, None)


def main(
    images: int = 150,
    seeds: int = 3,
    coco: Path | None = None,
    results: Path | None = None,
    cleanlab: Path | None = None,
) -> None:
    """Print the figures."""
    methods: dict[str, Any] = {
        "random": lambda case: Ranking(
            np.random.default_rng(0).random(len(case.spoilt.scene.image_N)),
            np.random.default_rng(1).random(len(case.results)),
            [],
        ),
        "plain IoU rule": by_iou,
    }
    if cleanlab is None:
        print("ObjectLab is skipped: name the folder of cleanlab with --cleanlab\n")
    else:
        sys.path.append(str(cleanlab))
        methods["ObjectLab"] = by_objectlab
    methods["review"] = lambda case: judged(case)[0]
    columns = [*KINDS, "images", "precision", "kind named"]
    title = "generated" if coco is None else coco.stem

    def scene(seed: int) -> Scene:
        return generated(np.random.default_rng(seed), images) if coco is None else of_coco(coco)

    models = DETECTORS if results is None else (Detector("results"),)
    given = None if results is None or coco is None else results_of(results, coco)

    def case_of(seed: int, model: Detector, rate: float) -> Case:
        case = make(scene(seed), model, rate, seed)
        return case if given is None else replace(case, results=given)

    kept: list[tuple[Case, Ranking]] = []
    for rate in (0.02, 0.1, 0.3):
        print(f"{title}, {rate:.0%} faults, {seeds} seeds, {len(models)} models\n")
        print(f"| method | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
        table: dict[str, list[dict[str, float]]] = {}
        for seed in range(seeds):
            for model in models:
                case = case_of(seed, model, rate)
                for name, rule in methods.items():
                    ranking = rule(case)
                    table.setdefault(name, []).append(measures(case, ranking))
                    if name == "review":
                        kept.append((case, ranking))
        for name, rows in table.items():
            means = [
                np.nanmean([row.get(c, np.nan) for row in rows]) if any(c in row for row in rows) else np.nan
                for c in columns
            ]
            print(f"| {name} | {' | '.join('-' if np.isnan(v) else f'{v:.3f}' for v in means)} |")
        print()
    rows, gap = reliability(kept)
    print(f"calibration error {gap:.4f}; probability, share of faults, number:")
    print(", ".join(f"{a:.2f} {b:.2f} {n}" for a, b, n in rows))
    for model in models:
        kinds: Counter[str] = Counter()
        labels = 0
        for seed in range(seeds):
            found = judged(case_of(seed, model, 0.0))[1]
            kinds.update(item.kind for item in found.findings if item.probability >= 0.5)
            labels += len(found.judged)
        share = kinds.total() / labels
        print(f"{labels} clean labels, {model.title}: {share:.2%} findings of at least .5, {dict(kinds)}")


if __name__ == "__main__":
    typer.run(main)
