"""A comparison as one HTML file: tables, curves and the same pictures under each group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coord_eval.html import page, safe

from .charts import COLOURS, legend
from .compare_figures import convergence, distributions, loss_curves, same_pictures
from .compare_results import BOOTSTRAPPED, METRICS, Comparison, paired_difference
from .compare_tables import difference_table, mass_table, metric_table, settings_table
from .picture_set import PictureSet
from .run_folder import write_text

_CHARTS = """
main { max-width: 1700px; }
section table { font-size: 12.5px; }
th:not(.n), td:not(.n) { white-space: nowrap; }
td, th { padding-left: 4px; padding-right: 4px; }
td.n { padding-left: 10px; }
th.n { padding-left: 10px; white-space: normal; overflow-wrap: normal; }
svg.chart { height: auto; display: block; }
svg.chart text { font: 11px system-ui, sans-serif; fill: #5c6878; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr));
  gap: 22px 28px; }
.charts.four { grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); }
.charts h3, .row h3 { font-size: 14px; margin: 0 0 4px; }
.row { display: grid; gap: 10px; margin: 0 0 18px; }
tr.first td { border-top: 2px solid var(--line); }
td.best { font-weight: 650; }
"""


def write_comparison(out: Path, comparison: Comparison, pictures: PictureSet) -> Path:
    """Write comparison.json and report.html to `out`; returns the report's path."""
    write_text(out / "comparison.json", json.dumps(numbers(comparison), indent=2) + "\n")
    colours = {group.name: COLOURS[place % len(COLOURS)] for place, group in enumerate(comparison.groups)}
    parts = [
        _questions(comparison),
        _card("Metrics", metric_table(comparison)),
        _card("Differences", difference_table(comparison)),
        _card("Why free and constrained answers differ", mass_table(comparison)),
        _card("Convergence", legend(colours) + convergence(comparison, colours)),
        _card("Losses, term by term", legend(colours) + loss_curves(comparison, colours)),
        _card("Where the boxes lie", legend(colours) + distributions(comparison, colours)),
        _card("The same pictures under each group", same_pictures(comparison, pictures)),
        _card("Settings", settings_table(comparison)),
    ]
    body = "\n".join(parts)
    write_text(out / "report.html", page("Comparison", body, style=_CHARTS))
    return out / "report.html"


def numbers(comparison: Comparison) -> dict[str, Any]:
    """Everything in the tables, unrounded."""
    rows = []
    for (group, reading), entries in comparison.scored.items():
        seeds = [run.seed for run in comparison.runs if run.group.name == group]
        values = {name: [read(entry.evaluation) for entry in entries] for name, read in METRICS.items()}
        differences = {
            metric: difference.__dict__
            for metric in BOOTSTRAPPED
            if (difference := paired_difference(comparison, group, reading, metric)) is not None
        }
        rows.append(
            {
                "group": group,
                "reading": reading,
                "seeds": seeds,
                "score_sources": sorted({entry.evaluation.score_source for entry in entries}),
                "metrics": values,
                "against_first": differences,
            }
        )
    return {"schema_version": 1, "resamples": comparison.resamples, "notes": comparison.notes, "rows": rows}


def _questions(comparison: Comparison) -> str:
    items = "".join(
        f"<li><b>{safe(group.name)}</b>: {safe(_without_name(group.question))}</li>"
        for group in comparison.groups
    )
    notes = "".join(f"<li>{safe(note)}</li>" for note in comparison.notes)
    notes = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'{notes}<section><h2>Questions</h2><ul style="margin:0;padding-left:20px">{items}</ul></section>'


def _without_name(question: str) -> str:
    """The question after the group's own name, where it begins with one."""
    name, colon, rest = question.partition(": ")
    return rest if colon and " " not in name else question


def _card(title: str, html: str) -> str:
    return f"<section><h2>{safe(title)}</h2>{html}</section>" if html else ""
