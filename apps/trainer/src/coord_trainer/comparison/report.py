"""Writes the report of a comparison as JSON and as one HTML file with tables and charts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec.counts import counted, fixed
from coord_codec.files import write_text
from coord_codec.html import Strong, fate_legend, figure, notes, page, safe, section, table, tiles
from coord_codec.html import columns as side_by_side
from coord_data.image_set import ImageSet
from coord_eval import figure_of
from coord_eval.html import changed_images, forest_plot, legend, series_styles
from coord_trainer.comparison.charts import curves, distributions, loss_curves
from coord_trainer.comparison.plan import differing_settings
from coord_trainer.comparison.results import (
    PARSED,
    GroupComparison,
    ScoredRun,
    best_decodings,
    columns,
    mean_and_interval,
    paired_difference,
    paired_figures,
    registered_figures,
)
from coord_trainer.config.decoding import Decoding

_SHOWN_IMAGES = 3
"""Most images that became better, and that became worse, of each group."""
_OVER_STEPS = {
    "AP/none": "AP of free answers",
    "AP/markers": "AP under the grammar",
    "eval_coord_diag/coord_token_ce": "CE per coordinate token, {images} (nats, full vocabulary)",
    "eval_coord_diag/coord_error_bins": "expected distance from the true bin, {images}",
    "eval_coord_diag/coord_vocab_mass": "mass on coordinate tokens, {images}",
    "eval_text_loss": "text CE, {images}",
}
"""Metrics of the scored images during training, with their titles in the report."""
_FOLDED = ("Why free and constrained answers differ", "Settings")
"""Sections that are folded at first."""
_WITH_KEY = ("Convergence", "Losses, term by term", "Where the boxes lie")
"""Sections whose charts share a legend of the groups."""
_REACHED = 0.5
"""AP whose first step is listed for each group."""


def write_comparison(out: Path, comparison: GroupComparison, images: ImageSet) -> Path:
    """Write comparison.json and report.html to `out`; returns the report's path."""
    write_text(out / "comparison.json", json.dumps(tabulated(comparison), indent=2) + "\n")
    styles = series_styles(group.name for group in comparison.groups)
    key = legend(styles)
    parts = {
        "Questions": _questions(comparison),
        "Images that became better or worse": _changed_images(comparison, images),
        "Metrics": metric_table(comparison),
        "Differences": _differences(comparison),
        "Why free and constrained answers differ": _mass_table(comparison),
        "Convergence": _steps_to_ap(comparison) + curves(comparison, styles, _curve_titles(comparison)),
        "Losses, term by term": loss_curves(comparison, styles),
        "Where the boxes lie": distributions(comparison, styles),
        "Settings": _settings_table(comparison),
    }
    means = {group: f"{_mean_ap(comparison, group, best):.3f}" for group, best in best_decodings(comparison).items()}
    mains = {
        "Metrics": "AP " + ", ".join(f"{group} {mean}" for group, mean in means.items()),
        "Differences": _gains_in_words(comparison),
        "Settings": f"{len(differing_settings(comparison.groups))} differ",
    }
    decodings = {group: decoding.name for group, decoding in best_decodings(comparison).items()}
    cells = [(f"AP of {group}", mean, f"decoding {decodings[group]}") for group, mean in means.items()]
    body = (
        tiles(cells)
        + notes(comparison.notes)
        + "\n".join(
            section(title, (key if title in _WITH_KEY else "") + html, mains.get(title, ""), folded=title in _FOLDED)
            for title, html in parts.items()
            if html
        )
    )
    title = f"{counted(len(comparison.groups), 'group')} compared"
    facts = {
        "comparison": out.name,
        "groups": ", ".join(styles),
        "runs": len(comparison.runs),
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    write_text(out / "report.html", page(title, body, facts=facts))
    return out / "report.html"


def _mean_ap(comparison: GroupComparison, group: str, decoding: Decoding) -> float:
    return float(np.mean([entry.evaluation.coco["AP"] for entry in comparison.scored[group, decoding]]))


def _gains_in_words(comparison: GroupComparison) -> str:
    """Return by how much the AP of each group exceeds that of the first under the group's best decoding."""
    best = best_decodings(comparison)
    pairs = {g.name: paired_difference(comparison, g.name, best[g.name]) for g in comparison.groups[1:]}
    gains = [f"{group} {fixed(pair.mean, 3, '+')}" for group, pair in pairs.items() if pair is not None]
    return "AP " + ", ".join(gains) if gains else ""


def tabulated(comparison: GroupComparison) -> dict[str, Any]:
    """Return the values of all tables, unrounded."""

    def row(group: str, decoding: Decoding, entries: Sequence[ScoredRun]) -> dict[str, Any]:
        paired = {name: paired_difference(comparison, group, decoding, name) for name in paired_figures()}
        return {
            "group": group,
            "decoding": decoding.name,
            "seeds": [run.seed for run in comparison.runs if run.group.name == group],
            "score_sources": sorted({entry.evaluation.score_source for entry in entries}),
            "metrics": {name: [_json_number(e.values[name]) for e in entries] for name in entries[0].values},
            "against_first": {name: asdict(pair) for name, pair in paired.items() if pair is not None},
        }

    rows = [row(*key, entries) for key, entries in comparison.scored.items()]
    return {"schema_version": 1, "resamples": comparison.resamples, "notes": comparison.notes, "rows": rows}


def _json_number(value: float) -> float | None:
    return None if np.isnan(value) else value


def _questions(comparison: GroupComparison) -> str:
    items = []
    for group in comparison.groups:
        name, colon, rest = group.question.partition(": ")
        question = rest if colon and " " not in name else group.question  # it may begin with the group's name
        items.append(f"<li><b>{safe(group.name)}</b>: {safe(question)}</li>")
    return f'<ul style="margin:0;padding-left:20px">{"".join(items)}</ul>'


def _with_interval(mean: float, half: float | None, sign: str = "") -> str:
    return fixed(mean, 3, sign) + (f" ± {half:.3f}" if half is not None else "")


def _decodings(comparison: GroupComparison) -> list[Decoding]:
    """Return every decoding of the comparison once, in the order of the groups' settings."""
    return list(dict.fromkeys(decoding for _, decoding in comparison.scored))


def _undefined(mean: float, goal: str) -> bool:
    """Return whether no metric of this size exists: COCO has -1 where no object is of this size."""
    return bool(np.isnan(mean)) or (goal == "high" and mean < 0)


def metric_table(comparison: GroupComparison) -> str:
    """Return the metrics of the groups side by side, each under its best decoding, and folded those of all decodings.

    Values are means over seeds with their intervals. Metrics that no group has are left out.
    """
    goals = {title: figure_of(name).goal for name, title in columns().items()} | {PARSED: "high"}

    def rows(decodings: Mapping[str, Decoding]) -> list[list[str]]:
        """Return a row for each metric of the groups, each under its decoding."""
        found = []
        for title, goal in goals.items():
            runs = [comparison.scored.get(key, ()) for key in decodings.items()]
            values = [[entry.values[title] for entry in entries] or [np.nan] for entries in runs]
            means = [mean_and_interval(of_seeds) for of_seeds in values]
            distances = [np.inf if _undefined(mean, goal) else _distance(mean, goal) for mean, _ in means]
            best = min(distances) if len(means) > 1 else np.nan
            cells = [
                "n/a" if far == np.inf else (Strong if far == best else str)(_with_interval(*mean))
                for far, mean in zip(distances, means, strict=True)
            ]
            if set(cells) != {"n/a"}:
                found.append([title, *cells])
        return found

    groups = [group.name for group in comparison.groups]
    chosen, used = best_decodings(comparison), _decodings(comparison)
    every = [[d.name, *row] for d in used for row in rows(dict.fromkeys(groups, d))]
    seeds = max(len(entries) for entries in comparison.scored.values())
    meanings = "<br>".join(f"<b>{safe(decoding.name)}</b>: {safe(decoding.meaning)}" for decoding in used)
    return (
        f"<p>Mean over {counted(seeds, 'seed')} ± half the 95 % interval of that mean (Student's t). "
        "Answers are ranked by their own probabilities if they have them; these are not comparable between "
        "decodings, which the constant score does not depend on. Bold: the best mean. "
        "<i>Any label</i>: localisation without class.</p>"
        + table(["", *(f"{group}, {decoding.name}" for group, decoding in chosen.items())], rows(chosen))
        + f"<details><summary>all decodings</summary>{table(['decoding', '', *groups], every, words=2)}</details>"
        + f"<p>{meanings}</p>"
    )


def _distance(value: float, goal: str) -> float:
    """Return how far a value is from the best one, up to a constant."""
    return {"high": -value, "low": value, "zero": abs(value)}[goal]


def summary_lines(comparison: GroupComparison) -> list[str]:
    """Return the table that is printed at the end: AP, AP50, mean IoU and registered metrics, means over seeds."""
    rows = [("group", "decoding", "AP", "AP50", "mean IoU", *registered_figures())]
    for group in comparison.groups:
        for decoding in _decodings(comparison):
            if (entries := comparison.scored.get((group.name, decoding))) is None:
                continue
            means = [
                _with_interval(*mean_and_interval([entry.values[name] for entry in entries])) for name in rows[0][2:]
            ]
            rows.append((group.name, decoding.name, *means))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def difference_table(comparison: GroupComparison) -> str:
    """Return the table of differences from the first group, by decoding; empty if no runs can be paired."""
    figures = ("AP", "AP_any_label", *registered_figures())
    rows = []
    for group in comparison.groups[1:]:
        for decoding in _decodings(comparison):
            pair = [paired_difference(comparison, group.name, decoding, name) for name in figures]
            if None not in pair:
                cells = (
                    (_with_interval(d.mean, d.over_seeds, "+"), f"[{fixed(d.low, 3, '+')}, {fixed(d.high, 3, '+')}]")
                    for d in pair
                )
                rows.append([group.name, decoding.name, *(text for texts in cells for text in texts)])
    if not rows:
        return ""
    titles = (columns()[name] for name in figures)
    head = ["group", "decoding", *(text for title in titles for text in (f"{title}, by seed", "over images"))]
    return (
        f"<p>Each group minus <b>{safe(comparison.groups[0].name)}</b> under the same decoding: seed by "
        f"seed, and over {counted(comparison.resamples, 'resample')} of the same images with seeds "
        "averaged. If an interval contains 0, the difference is not significant.</p>" + table(head, rows, words=2)
    )


def _mass_table(comparison: GroupComparison) -> str:
    """Return the table of probability mass on coordinate tokens, which explains why free decoding can fail.

    Columns without a value are left out; empty where no grammar was compared with free answers.
    """
    used = _decodings(comparison)
    if {decoding.grammar for decoding in used} <= {"none"} or len(used) < 2:
        return ""

    def shown(values: Sequence[float], form: str, statistic: Callable = np.mean) -> str:
        return form.format(statistic(values)) if len(values) else "n/a"

    rows = []
    for group in comparison.groups:
        key = "eval_coord_diag/coord_vocab_mass"
        last = [values[-1] for log in comparison.logs[group.name] if (values := _values(log, key))]
        row = {"group": group.name, "mass where the ground truth has a coordinate": shown(last, "{:.1%}")}
        for grammar, name in (("none", "free"), ("markers", "grammar")):
            entries = comparison.scored.get((group.name, Decoding(grammar=grammar)), [])
            mass, spread = ([v for e in entries for v in getattr(e, value)] for value in ("mass", "spread"))
            row[f"{name}: mass where one was generated"] = shown(mass, "{:.1%}")
            row[f"{name}: spread, bins"] = shown(1000 * np.array(spread), "{:.1f}", np.median)
        for decoding in used:
            entries = comparison.scored.get((group.name, decoding), [])
            row[f"AP {decoding.name}"] = shown([entry.evaluation.coco["AP"] for entry in entries], "{:.3f}")
        rows.append(row)
    head = [title for title in rows[0] if any(row[title] != "n/a" for row in rows)]
    return (
        "<p>Mass is the total probability of all coordinate tokens. A group that is never trained on when to generate "
        "coordinates can localise a box and still generate a word in place of its coordinates: free answers then "
        "contain no boxes, while answers under the grammar, which allows only coordinates there, contain them. Spread "
        "is the standard deviation of a coordinate over the coordinate tokens, median over answers.</p>"
        + table(head, [[row[title] for title in head] for row in rows])
    )


def _values(log: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [line[key] for line in log if key in line]


def _settings_table(comparison: GroupComparison) -> str:
    """Return the tables of the settings in which the groups differ, and of the facts that they share."""
    rows = [[name, *values] for name, values in differing_settings(comparison.groups).items()]
    manifests = [m for entries in comparison.manifests.values() for m in entries]
    facts = {
        "images": {f"{name} {d['images']} ({d['digest']})" for m in manifests for name, d in m["data"].items()},
        "first batches": {m["first_batches"].get("pictures") for m in manifests if m.get("first_batches")},
        "steps": {m.get("steps") for m in manifests},
        "revision": {(m.get("git") or {}).get("revision") for m in manifests},
    }
    shared = [[name, ", ".join(sorted(map(str, values)))] for name, values in facts.items()]
    return (
        "<p>Settings in which the groups differ:</p>"
        + table(["setting", *(group.name for group in comparison.groups)], rows)
        + "<p>Common to them (one digest of first batches a seed):</p>"
        + table(("", ""), shared, words=2)
    )


def _differences(comparison: GroupComparison) -> str:
    """Return the differences from the first group as a forest plot and as a table; empty if no runs can be paired."""
    rows = {
        f"{group.name}, {decoding.name}": pair
        for group in comparison.groups[1:]
        for decoding in _decodings(comparison)
        if (pair := paired_difference(comparison, group.name, decoding)) is not None
    }
    if not rows:
        return ""
    title = f"AP minus that of {comparison.groups[0].name}, with its 95 % interval over images"
    points = {name: (pair.mean, pair.low, pair.high) for name, pair in rows.items()}
    return side_by_side(figure(forest_plot(points, title), title), f"<div>{difference_table(comparison)}</div>")


def _curve_titles(comparison: GroupComparison) -> dict[str, str]:
    scored = comparison.groups[0].config.evaluation.images
    images = {"heldout": "held out", "train": "training images"}[scored]
    return {key: title.format(images=images) for key, title in _OVER_STEPS.items()}


def _steps_to_ap(comparison: GroupComparison) -> str:
    """Return the first step at which each seed of a group reached an AP of .5; empty without scores during training."""
    rows = []
    for group, logs in comparison.logs.items():
        for key in ("AP/none", "AP/markers"):
            curves_of_seeds = [[(line["step"], line[key]) for line in log if key in line] for log in logs]
            if not any(curves_of_seeds):
                continue
            first = [next((step for step, ap in curve if ap >= _REACHED), None) for curve in curves_of_seeds]
            shown = ", ".join("not reached" if step is None else f"{step:,}" for step in first)
            rows.append([group, key.removeprefix("AP/"), shown])
    return table(["group", "grammar", f"steps to an AP of {_REACHED}, by seed"], rows, words=2) if rows else ""


def _changed_images(comparison: GroupComparison, images: ImageSet) -> str:
    """Show the images of the first seed that changed most from the first group, each under its best decoding."""
    best = best_decodings(comparison)
    shown = {group: comparison.scored[group, best[group]][0].evaluation for group in best}
    first, *others = shown
    parts = []
    for other in others:
        both = {group: shown[group] for group in (first, other)}
        changed = changed_images(both, lambda name: images.root / name, _SHOWN_IMAGES)
        parts.append(f"<h3>{safe(other)} against {safe(first)}</h3>{changed}")
    legend = f"{fate_legend()}<p>First seed; the images with the largest change of F1.</p>"
    return legend + "".join(parts) if others else ""
