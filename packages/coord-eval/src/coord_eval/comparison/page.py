"""The page of a comparison: differences as a forest plot, images that became better or worse, and tables."""

from __future__ import annotations

import time
from pathlib import Path

from coord_codec.counts import counted, fixed
from coord_codec.pages import columns, fate_legend, figure, notes, page, safe, section, table
from coord_eval.comparison.differences import Differences, with_seeds
from coord_eval.metrics.metric_table import figure_of
from coord_eval.page_options import ImageRoot
from coord_eval.report.changed import changed_images
from coord_eval.report.page import headline_first
from coord_eval.report.plot import forest_plot


def comparison_page(comparison: Differences, image_root: str | ImageRoot | None = None) -> str:
    """Return the page of a comparison; for `image_root` see `Comparison.write_report`."""
    first, *others = comparison.metrics
    root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root
    if root is None and comparison.runs:
        root = comparison.runs[first][0].truth.root
    method = (
        f"{counted(comparison.resamples, 'resample')} of the images, seed {comparison.seed}, 95 % intervals; "
        "p from a permutation test over images, adjusted by Holm's method over the headline metrics of all runs: at "
        "most 5 % of comparisons of equal runs have one below .05"
    )
    if (seeds := max(map(len, comparison.runs.values()), default=1)) > 1:
        method += f"; mean over {seeds} seeds ± half its 95 % interval (Student's t), images of the first seed"
    parts = [f"<p>{safe(comparison.verdict(run))}</p>" for run in others] + [notes(comparison.notes)]
    for run in others:
        title = f"{run} against {first}"
        main, shown = comparison.differences[run].get("AP"), ""
        if main:
            shown = f"AP {fixed(main.value, 3, '+')} [{fixed(main.low, 3, '+')}, {fixed(main.high, 3, '+')}]"
        parts.append(section(title, _differences(comparison, run), shown))
        both = {name: comparison.runs[name][0] for name in (first, run)} if comparison.runs else {}
        if both and (changed := changed_images(both, root)):
            parts.append(section(f"Images that changed: {title}", fate_legend() + changed))
    if comparison.training:
        parts.append(section("Training", comparison.training.html(), "bands: from the lowest to the highest seed"))
    parts.append(section("Metrics", _metric_table(comparison), f"{len(comparison.metrics)} runs"))
    facts = {"runs": ", ".join(comparison.metrics), "date": time.strftime("%Y-%m-%d %H:%M"), "method": method}
    return page(f"{', '.join(others)} against {first}" if others else first, "\n".join(parts), facts=facts)


def _metric_table(comparison: Differences) -> str:
    runs = comparison.metrics
    rows = {}
    for metric in dict.fromkeys(name for own in runs.values() for name in own):
        rows[metric] = (metric, *(with_seeds(own[metric], 3) if metric in own else "n/a" for own in runs.values()))
    return headline_first(("", *runs), rows)


def _differences(comparison: Differences, run: str) -> str:
    """Return a run's differences from the first run as a forest plot and as tables."""
    differences = comparison.differences[run]
    seeds = any(d.over_seeds is not None for d in differences.values())
    head = ("", "difference", *["over seeds"] * seeds, "paired 95 % interval", "better in", "p (Holm)")
    rows: dict[str, tuple[str, ...]] = {}
    for name, d in differences.items():
        over_seeds = [f"± {d.over_seeds:.4f}"] if seeds else []
        interval = f"[{fixed(d.low, 4, '+')}, {fixed(d.high, 4, '+')}]"
        rows[name] = (name, fixed(d.value, 4, "+"), *over_seeds, interval, f"{100 * d.share_better:.1f} %", d.p_text)
    shares = {n: d for n, d in differences.items() if figure_of(n).headline and figure_of(n).is_share}
    points = {name: (d.value, d.low, d.high) for name, d in shares.items()}
    caption = "differences of the headline metrics with their paired 95 % intervals; coloured where 0 lies outside"
    plot = figure(forest_plot(points, caption), caption) if sum(map(any, points.values())) > 1 else ""
    gains = [(name, fixed(gain, 3, "+")) for name, gain in comparison.class_gains[run].items()]
    by_class = table(("label", "AP gained"), gains, sortable=True) if gains else ""
    folded = f"<details><summary>AP gained by label</summary>{by_class}</details>" if by_class else ""
    return columns(plot, f"<div>{headline_first(head, rows)}{folded}</div>")
