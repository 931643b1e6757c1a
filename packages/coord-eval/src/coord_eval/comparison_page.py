"""The page of a comparison: differences as a forest plot, images that became better or worse, and tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.counts import counted, fixed
from coord_codec.html import columns, fate_legend, figure, notes, page, safe, section, table
from coord_eval.metric_table import figure_of, headline
from coord_eval.report.images import f1_of_images
from coord_eval.report.overlay import overlay, shown_name
from coord_eval.report.photograph import ImageRoot
from coord_eval.report.plot import MatplotlibMissingError, forest_plot
from coord_eval.report_page import headline_first

if TYPE_CHECKING:
    from coord_eval.comparison import Comparison, Difference

_CHANGED = 6
"""Images that became better, and those that became worse, of each run."""


def comparison_page(comparison: Comparison, image_root: str | ImageRoot | None = None) -> str:
    """Return the page of a comparison.

    Args:
        comparison: the comparison
        image_root: see `Comparison.write_report`
    """
    first, *others = comparison.metrics
    root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root
    if root is None and comparison.runs:
        root = comparison.runs[first].truth.root
    method = (
        f"{counted(comparison.resamples, 'resample')} of the images, seed {comparison.seed}, 95 % intervals; "
        "p from a permutation test over images, adjusted by Holm's method over the headline metrics of all runs: at "
        "most 5 % of comparisons of equal runs have one below .05"
    )
    parts = [notes(comparison.notes)]
    for run in others:
        title = f"{run} against {first}"
        main = comparison.differences[run].get("AP")
        figure_shown = (
            f"AP {fixed(main.value, 3, '+')} [{fixed(main.low, 3, '+')}, {fixed(main.high, 3, '+')}]" if main else ""
        )
        parts.append(section(title, _differences(comparison, run), figure_shown))
        if comparison.runs:
            parts.append(section(f"Images that changed: {title}", _changed_images(comparison, run, root)))
    parts.append(section("Metrics", _metric_table(comparison), f"{len(comparison.metrics)} runs"))
    facts = {"runs": ", ".join(comparison.metrics), "date": time.strftime("%Y-%m-%d %H:%M"), "method": method}
    return page(f"{', '.join(others)} against {first}", "\n".join(parts), facts=facts)


def _metric_table(comparison: Comparison) -> str:
    runs = list(comparison.metrics)
    rows = {}
    for metric in dict.fromkeys(name for run in runs for name in comparison.metrics[run]):
        cells = (comparison.metrics[run].get(metric) for run in runs)
        shown = ("n/a" if c is None else "{value:.3f} [{low:.3f}, {high:.3f}]".format(**c) for c in cells)
        rows[metric] = (metric, *shown)
    return headline_first(("", *runs), rows)


def _differences(comparison: Comparison, run: str) -> str:
    """Return a run's differences from the first run as a forest plot and as tables."""
    differences = comparison.differences[run]
    head = ("", "difference", "paired 95 % interval", "better in", "p (Holm)")
    rows = {
        name: (name, fixed(d.value, 4, "+"), _span(d, 4), f"{100 * d.share_better:.1f} %", d.p_text)
        for name, d in differences.items()
    }
    shares = {n: d for n, d in differences.items() if n in headline() and figure_of(n).is_share}
    points = {name: (d.value, d.low, d.high) for name, d in shares.items()}
    caption = "differences of the headline metrics with their paired 95 % intervals; coloured where 0 lies outside"
    try:
        plot = figure(forest_plot(points, caption), caption) if points else ""
    except MatplotlibMissingError as missing:
        plot = f"<p>{safe(missing)}</p>"
    gains = [(name, fixed(gain, 3, "+")) for name, gain in comparison.class_gains[run].items()]
    by_class = table(("label", "AP gained"), gains, sortable=True) if gains else ""
    folded = f"<details><summary>AP gained by label</summary>{by_class}</details>" if by_class else ""
    return columns(plot, f"<div>{headline_first(head, rows)}{folded}</div>")


def _span(difference: Difference, digits: int) -> str:
    return f"[{fixed(difference.low, digits, '+')}, {fixed(difference.high, digits, '+')}]"


def _changed_images(comparison: Comparison, run: str, root: ImageRoot | None) -> str:
    """Show the images whose F1 changed most under both runs, side by side: first better ones, then worse ones."""
    first = next(iter(comparison.metrics))
    both = {name: comparison.runs[name] for name in (first, run)}
    f1 = {name: f1_of_images(evaluation) for name, evaluation in both.items()}
    change_I = f1[run] - f1[first]
    order = np.argsort(-change_I, kind="stable").tolist()
    better = [image for image in order[:_CHANGED] if change_I[image] > 0]
    worse = [image for image in order[::-1][:_CHANGED] if change_I[image] < 0]
    missing = None
    parts = []
    for title, chosen in (("Better", better), ("Worse", worse)):
        parts.append(f"<h3>{title}: {int((change_I > 0).sum() if title == 'Better' else (change_I < 0).sum())}</h3>")
        for image in chosen:
            cells = []
            for name, evaluation in both.items():
                svg, problem = overlay(evaluation, image, root)
                missing = missing or problem
                cells.append(figure(svg, f"{shown_name(evaluation.truth, image)}, {name}: F1 {f1[name][image]:.2f}"))
            parts.append(f'<div class="row">{"".join(cells)}</div>')
    note = f"<p>Boxes are drawn without their images: {safe(missing)}.</p>" if missing else ""
    return f"{fate_legend()}{note}{''.join(parts)}"
