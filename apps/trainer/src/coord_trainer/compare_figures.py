"""The figures of a comparison, each drawn from finished runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coord_codec import CoordGrid
from coord_eval import Evaluation
from coord_eval.html import overlay, safe

from .charts import line_chart, outline_chart, spread_chart
from .compare_results import Comparison
from .picture_set import PictureSet

_SCALE = CoordGrid().scale
_EDGES = ("x1", "y1", "x2", "y2")
_TRUTH = "#1c2430"
_PICTURES = 6
_TERMS = {
    "train_total_loss": "total",
    "train_text_loss": "text CE",
    "train_coord_ce_loss": "coordinate CE, weighted",
    "train_coord_loss": "box (L1 + GIoU), weighted",
    "coord_diag/soft_ce": "soft CE",
    "coord_diag/w1": "W1",
    "coord_diag/gate": "gate",
    "grad_norm": "gradient norm before clipping",
    "grad_norm/text_ce": "gradient norm of text CE",
    "grad_norm/coord_ce": "gradient norm of coordinate CE",
    "grad_norm/soft_ce": "gradient norm of soft CE",
    "grad_norm/w1": "gradient norm of W1",
    "grad_norm/gate": "gradient norm of the gate",
    "grad_norm/box": "gradient norm of the box loss",
}
_EVALUATED = {
    "AP/greedy": "AP of free answers",
    "AP/grammar": "AP under the grammar",
    "eval_coord_diag/coord_token_ce": "CE per coordinate token, held out (nats, full vocabulary)",
    "eval_coord_diag/coord_error_bins": "expected distance from the true bin, held out",
    "eval_coord_diag/coord_vocab_mass": "mass on coordinate tokens, held out",
    "eval_text_loss": "text CE, held out",
}


def convergence(comparison: Comparison, colours: Mapping[str, str]) -> str:
    """What is measured on the scored pictures while training, against the step."""
    return _curves(comparison, colours, _EVALUATED)


def loss_curves(comparison: Comparison, colours: Mapping[str, str]) -> str:
    """Every term of every group, trained on or just looked at, and the pull of each."""
    return _curves(comparison, colours, _TERMS)


def _curves(comparison: Comparison, colours: Mapping[str, str], names: Mapping[str, str]) -> str:
    figures = []
    for key, title in names.items():
        series = {}
        for group, logs in comparison.logs.items():
            seeds = [[(line["step"], line[key]) for line in log if key in line] for log in logs]
            # A term that is switched off is 0 throughout; an AP of 0 is a result.
            if any(y or key.startswith("AP/") for curve in seeds for _, y in curve):
                series[group] = (colours[group], seeds)
        if series:
            figures.append(f"<div><h3>{safe(title)}</h3>{line_chart(series, 'step', title)}</div>")
    return f'<div class="charts">{"".join(figures)}</div>'


def distributions(comparison: Comparison, colours: Mapping[str, str]) -> str:
    """IoU histogram, bins answered against true bins, signed error of each edge."""
    reading = _drawn_reading(comparison)
    found = {g: [e.evaluation for e in comparison.scored[g, reading[g]]] for g in reading}
    steps = np.linspace(0, 1, 21)
    iou = {g: (colours[g], _share(_ious(es), steps)) for g, es in found.items()}
    used = ", ".join(f"{g} {name}" for g, name in reading.items())
    charts = [
        f"<div><h3>IoU of every object with its answer (missed: 0)</h3>"
        f"{outline_chart(steps, iou, 'IoU', 'share of objects')}</div>"
    ]
    truth = next(iter(found.values()))[0]
    cells = np.linspace(0, _SCALE, 51)
    for group, evaluations in found.items():
        shares = {
            "truth": (_TRUTH, _share(_bins(truth, truth.truth.boxes_N4, truth.truth.image_N), cells)),
            group: (colours[group], _share(_answered_bins(evaluations), cells)),
        }
        charts.append(
            f"<div><h3>{safe(group)}: bins answered, truth in black</h3>"
            f"{outline_chart(cells, shares, 'bin', 'share of coordinates')}</div>"
        )
    errors = {group: _errors(evaluations) for group, evaluations in found.items()}
    sides = [
        f"<div><h3>Signed error of {edge}, in bins (IoU of at least .5)</h3>"
        + spread_chart(
            {g: (colours[g], e[:, side]) for g, e in errors.items()}, f"{edge}: answer minus truth"
        )
        + "</div>"
        for side, edge in enumerate(_EDGES)
    ]
    return (
        f"<p>All seeds together. Each group in the reading with its highest AP: {safe(used)}. Boxes of the last "
        "charts: line 5 to 95 %, "
        f'bar the middle half, stroke the median.</p><div class="charts">{"".join(charts)}</div>'
        f'<div class="charts four" style="margin-top:22px">{"".join(sides)}</div>'
    )


def same_pictures(comparison: Comparison, pictures: PictureSet) -> str:
    """Truth and answers on the same pictures: the hardest, the easiest and some between for the first group."""
    reading = _drawn_reading(comparison)
    shown: dict[str, Evaluation] = {g: comparison.scored[g, reading[g]][0].evaluation for g in reading}
    first = next(iter(shown.values()))
    order = np.argsort(_image_f1(first), kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, _PICTURES).round().astype(int))
    html = []
    for image in order[places].tolist():
        cells = []
        for group, evaluation in shown.items():
            svg, _ = overlay(evaluation, image, pictures.root)
            f1 = _image_f1(evaluation)[image]
            cells.append(f"<figure>{svg}<figcaption>{safe(group)}: F1 {f1:.2f}</figcaption></figure>")
        columns = f"grid-template-columns:repeat({len(shown)},minmax(120px,300px))"
        html.append(f'<div class="row" style="{columns}">{"".join(cells)}</div>')
    legend = (
        '<p class="legend"><i class="truth"></i>truth <i class="hit"></i>answer, IoU ≥ .50 with its label '
        '<i class="false"></i>answer, false. First seed; from the worst to the best picture of the first group.</p>'
    )
    return legend + "".join(html)


def _image_f1(evaluation: Evaluation) -> np.ndarray:
    """F1 at IoU .5 of every picture, 1 where nothing was there and nothing answered."""
    truth, matches, images = evaluation.truth, evaluation.matches, len(evaluation.truth)
    objects_I = np.bincount(truth.image_N[~truth.crowd_N], minlength=images)
    hit_D = matches.iou_D >= 0.5
    counted_D = hit_D | (matches.crowd_D < 0.5)
    answered_I = np.bincount(evaluation.detections.image_D[counted_D], minlength=images)
    hits_I = np.bincount(evaluation.detections.image_D[hit_D], minlength=images)
    total_I = objects_I + answered_I
    return np.divide(2 * hits_I, total_I, out=np.ones(images), where=total_I > 0)


def _drawn_reading(comparison: Comparison) -> dict[str, str]:
    """The reading that is drawn: each group's best by mean AP, since free answers can be empty."""
    best = {}
    for group in comparison.groups:
        mine = {
            reading: entries for (name, reading), entries in comparison.scored.items() if name == group.name
        }
        best[group.name] = max(mine, key=lambda r: np.mean([e.evaluation.coco["AP"] for e in mine[r]]))
    return best


def _share(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    counts = np.histogram(values, edges)[0]
    return counts / max(counts.sum(), 1)


def _pooled(evaluations: list[Evaluation], read: Callable[[Evaluation], Any], width: int = 0) -> np.ndarray:
    parts = [read(evaluation) for evaluation in evaluations]
    return np.concatenate(parts) if parts else np.zeros((0, width) if width else 0)


def _ious(evaluations: list[Evaluation]) -> np.ndarray:
    return _pooled(evaluations, lambda e: e.matches.iou_N[~e.truth.crowd_N])


def _answered_bins(evaluations: list[Evaluation]) -> np.ndarray:
    return _pooled(evaluations, lambda e: _bins(e, e.detections.boxes_D4, e.detections.image_D))


def _bins(evaluation: Evaluation, boxes_N4: np.ndarray, image_N: np.ndarray) -> np.ndarray:
    return (_corners(evaluation, boxes_N4, image_N) * _SCALE).ravel()


def _corners(evaluation: Evaluation, boxes_N4: np.ndarray, image_N: np.ndarray) -> np.ndarray:
    """Pixel xywh to corners in [0, 1]."""
    sizes = np.tile(evaluation.truth.sizes_I2[image_N], 2)
    return np.concatenate([boxes_N4[:, :2], boxes_N4[:, :2] + boxes_N4[:, 2:]], axis=1) / sizes


def _errors(evaluations: list[Evaluation]) -> np.ndarray:
    def one(e: Evaluation) -> np.ndarray:
        pairs = np.nonzero(e.matches.iou_D >= 0.5)[0]
        mine = _corners(e, e.detections.boxes_D4[pairs], e.detections.image_D[pairs])
        objects = e.matches.object_D[pairs]
        return (mine - _corners(e, e.truth.boxes_N4[objects], e.truth.image_N[objects])) * _SCALE

    return _pooled(evaluations, one, width=4)
