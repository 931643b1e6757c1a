"""Charts of a comparison: curves over steps, distributions of IoU, bins and errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coord_codec.counts import fixed
from coord_codec.html import figure
from coord_eval import Evaluation
from coord_eval.html import EDGES, INK, box_rows, chart, coordinate_chart, edge_errors, iou_chart, safe
from coord_losses import registered_terms
from coord_trainer.comparison.results import GroupComparison, best_decodings


def loss_curves(comparison: GroupComparison, styles: Mapping[str, Mapping[str, str]]) -> str:
    """Draw every loss term of every group, trained or only logged, and the gradient norm of each."""
    terms = {name: term for name, term in registered_terms().items() if term.trainable}
    losses = {"train_total_loss": "total"}
    losses |= {f"train_{term.loss_key}": f"{term.title}, weighted" for term in terms.values() if term.loss_key}
    diagnostics = {f"coord_diag/{term.log_key}": term.title for term in terms.values()}
    norms = {f"grad_norm/{name}": f"gradient norm of {term.title}" for name, term in terms.items()}
    total_norm = {"grad_norm": "gradient norm before clipping"}
    return curves(comparison, styles, losses | diagnostics | total_norm | norms)


def curves(comparison: GroupComparison, styles: Mapping[str, Mapping[str, str]], names: Mapping[str, str]) -> str:
    """Draw one chart for each of the named metrics that any group has logged."""
    figures = []
    for key, title in names.items():
        series = {}
        for group, logs in comparison.logs.items():
            seeds = [[(line["step"], line[key]) for line in log if key in line] for log in logs]
            # A term that is switched off is 0 throughout; an AP of 0 is a result.
            if any(y or key.startswith("AP/") for curve in seeds for _, y in curve):
                series[group] = seeds
        if series:
            figures.append(figure(_curve_chart(series, styles, title), title))
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def _curve_chart(series: Mapping[str, list], styles: Mapping[str, Mapping[str, str]], title: str) -> str:
    """Draw the curve of each group: the mean over seeds, and each seed as a pale line."""
    points = [point for seeds in series.values() for curve in seeds for point in curve]
    if len({x for x, _ in points}) < 2:
        return "<p>Fewer than two log lines: nothing to draw.</p>"
    low, high = min(0.0, *(y for _, y in points)), max(y for _, y in points)
    with chart(title) as drawn:
        for group, seeds in series.items():
            curves = [dict(curve) for curve in seeds if len(curve) > 1]
            for curve in curves if len(curves) > 1 else ():
                drawn.axes.plot(*zip(*curve.items(), strict=True), alpha=0.25, linewidth=1, **styles[group])
            common = sorted(set.intersection(*map(set, curves))) if curves else []
            means = [sum(curve[x] for curve in curves) / len(curves) for x in common]
            drawn.axes.plot(common, means, **styles[group])
        drawn.axes.set(xlabel="step", ylim=(low, high + 0.05 * (high - low or 1.0)))
    return drawn.svg


def distributions(comparison: GroupComparison, styles: Mapping[str, Mapping[str, str]]) -> str:
    """Draw IoU histograms, the bins of answers against those of the ground truth, and signed errors of each side."""
    best = best_decodings(comparison)
    scored = {g: [entry.evaluation for entry in comparison.scored[g, best[g]]] for g in best}
    charts = [figure(iou_chart(scored, styles), "IoU of every object with its answer (missed: 0)")]
    charts += [
        figure(coordinate_chart({group: seeds}, styles), f"{group}: coordinates answered, ground truth in grey")
        for group, seeds in scored.items()
    ]
    errors = {group: np.concatenate([_errors_in_bins(e) for e in seeds]) for group, seeds in scored.items()}
    sides = [
        figure(
            _error_chart({g: e[:, side] for g, e in errors.items()}, styles, f"{name}: answer minus ground truth"),
            f"Signed error of {name}, in bins (IoU of at least .5)",
        )
        for side, name in enumerate(EDGES)
    ]
    used = ", ".join(f"{group} {decoding.name}" for group, decoding in best.items())
    return (
        f"<p>All seeds together, each group under the decoding with its highest AP: {safe(used)}. Last "
        "charts: the line goes from 5 to 95 %, the bar covers the middle half, the stroke is the median; each row "
        f'gives the mean and the number of pairs.</p><div class="charts">{"".join(charts)}</div>'
        f'<div class="charts four" style="margin-top:22px">{"".join(sides)}</div>'
    )


def _errors_in_bins(evaluation: Evaluation) -> np.ndarray:
    """Return the signed errors [pairs, 4] of the edges of answers with an IoU of at least .5."""
    error_d4, image_d = edge_errors(evaluation)
    return error_d4 / np.tile(evaluation.truth.sizes_I2[image_d], 2) * evaluation.bins


def _error_chart(samples: Mapping[str, np.ndarray], styles: Mapping[str, Mapping[str, str]], title: str) -> str:
    spans = [np.abs(np.percentile(values, [5, 95])).max() for values in samples.values() if len(values)]
    reach = 1.1 * (max(spans, default=1.0) or 1.0)
    rows = {
        f"{group} {fixed(values.mean(), 2, '+')} ({len(values)})" if len(values) else f"{group} (0)": values
        for group, values in samples.items()
    }
    with chart(title, width=340, height=60 + 24 * len(rows)) as drawn:
        box_rows(drawn.axes, rows, [styles[group]["color"] for group in samples])
        drawn.axes.axvline(0, color=INK, linestyle="--", linewidth=1)
        drawn.axes.set(xlabel=title, xlim=(-reach, reach))
    return drawn.svg
