"""The tables of a comparison: metrics, probability mass, and the settings in which the groups differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coord_eval.html import safe

from .compare_plan import differing_settings
from .compare_results import METRICS, Comparison, PairedDifference, mean_and_interval, paired_difference
from .readings import READINGS


def metric_table(comparison: Comparison) -> str:
    """Every metric of every group and reading: mean and interval over seeds."""
    best = {
        (reading, name): max(
            mean_and_interval([read(e.evaluation) for e in entries])[0]
            for (_, r), entries in comparison.scored.items()
            if r == reading
        )
        for name, read in METRICS.items()
        for reading in READINGS
        if any(r == reading for _, r in comparison.scored)
    }
    rows = []
    for group in comparison.groups:
        mine = [reading for reading in READINGS if (group.name, reading) in comparison.scored]
        for place, reading in enumerate(mine):
            entries = comparison.scored[group.name, reading]
            cells = [f"<td>{safe(group.name) if not place else ''}</td><td>{safe(reading)}</td>"]
            for name, read in METRICS.items():
                mean, half = mean_and_interval([read(entry.evaluation) for entry in entries])
                alone = len(comparison.groups) > 1 and name != "parsed"
                mark = " best" if alone and mean == best[reading, name] else ""
                shown = f"{mean:.1%}" if name == "parsed" else _value(mean, half)
                cells.append(f'<td class="n{mark}">{shown}</td>')
            rows.append(f"<tr{' class=first' if not place else ''}>{''.join(cells)}</tr>")
    seeds = max(len(entries) for entries in comparison.scored.values())
    return (
        f"<p>Mean over {seeds} seed{'s' * (seeds > 1)} ± half the 95 % interval of that mean (Student's t). "
        "Answers are ranked by their own probabilities where they have them, which differ in kind "
        "between readings; the constant score is free of that. Bold: the best mean of a reading. "
        "<i>Any label</i>: localisation without class.</p>"
        + _table(["group", "reading", *METRICS], rows, words=2)
        + "<p>"
        + "<br>".join(
            f"<b>{safe(name)}</b>: {safe(reading.meaning)}"
            for name, reading in READINGS.items()
            if any(r == name for _, r in comparison.scored)
        )
        + "</p>"
    )


def _value(mean: float, half: float | None) -> str:
    return f"{mean:.3f}" + (f" ± {half:.3f}" if half is not None else "")


def difference_table(comparison: Comparison) -> str:
    """AP with and without labels against the first group in the same reading; empty where nothing can be paired."""
    first, rows = comparison.groups[0].name, []
    for group in comparison.groups[1:]:
        for reading in READINGS:
            found = [
                paired_difference(comparison, group.name, reading, metric)
                for metric in ("AP", "AP_any_label")
            ]
            if None not in found:
                cells = "".join(_difference_cells(difference) for difference in found)
                rows.append(f"<tr><td>{safe(group.name)}</td><td>{safe(reading)}</td>{cells}</tr>")
    if not rows:
        return ""
    head = ["group", "reading", "AP, by seed", "over pictures", "AP any label, by seed", "over pictures"]
    return (
        f"<p>Each group less <b>{safe(first)}</b> in the same reading: seed by seed, and over "
        f"{comparison.resamples} draws of the same pictures with seeds averaged. An interval that holds 0 decides "
        "nothing.</p>" + _table(head, rows, words=2)
    )


def _difference_cells(difference: PairedDifference) -> str:
    half = f" ± {difference.over_seeds:.3f}" if difference.over_seeds is not None else ""
    return (
        f'<td class="n">{difference.mean:+.3f}{half}</td>'
        f'<td class="n">[{difference.low:+.3f}, {difference.high:+.3f}]</td>'
    )


def mass_table(comparison: Comparison) -> str:
    """Where free decoding fails though the coordinates are known: no probability on coordinate tokens."""
    rows = []
    for group in comparison.groups:
        masses = [_last(log, "eval_coord_diag/coord_vocab_mass") for log in comparison.logs[group.name]]
        masses = [mass for mass in masses if mass is not None]
        cells = [f"<td>{safe(group.name)}</td>", _cell(np.mean(masses) if masses else None, "{:.1%}")]
        for reading in ("greedy", "grammar"):
            entries = comparison.scored.get((group.name, reading), [])
            seen = np.concatenate([e.mass for e in entries]) if entries else np.array([])
            spread = np.concatenate([e.spread for e in entries]) if entries else np.array([])
            cells.append(_cell(seen.mean() if len(seen) else None, "{:.1%}"))
            cells.append(_cell(1000 * np.median(spread) if len(spread) else None, "{:.1f}"))
        for reading in READINGS:
            entries = comparison.scored.get((group.name, reading), [])
            values = [entry.evaluation.coco["AP"] for entry in entries]
            cells.append(_cell(np.mean(values) if values else None, "{:.3f}"))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = [
        "group",
        "mass where the truth has a coordinate",
        "free: mass where one was said",
        "spread, bins",
        "grammar: mass",
        "spread, bins",
        *(f"AP {reading}" for reading in READINGS),
    ]
    return (
        "<p>Mass is the probability that the model gives all coordinate tokens together. A group that is never "
        "taught which vocabulary to speak can know where a box lies and still say a word there: free answers then "
        "hold no boxes, while the grammar, which lets only coordinates through, brings them to light. Spread is the "
        "standard deviation of a coordinate over the coordinate tokens, median over answers.</p>"
        + _table(head, rows)
    )


def _last(log: Sequence[dict[str, Any]], key: str) -> float | None:
    found = [line[key] for line in log if key in line]
    return found[-1] if found else None


def _cell(value: float | None, form: str) -> str:
    return f'<td class="n">{"n/a" if value is None else form.format(value)}</td>'


def _table(head: Sequence[str], rows: Sequence[str], words: int = 1) -> str:
    names = "".join(
        f"<th{' class=n' if place >= words else ''}>{safe(name)}</th>" for place, name in enumerate(head)
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def settings_table(comparison: Comparison) -> str:
    """Everything in which the groups differ, and what they have in common."""
    rows = [
        f"<tr><td>{safe(name)}</td>{''.join(f'<td class=n>{safe(value)}</td>' for value in values)}</tr>"
        for name, values in differing_settings(comparison.groups).items()
    ]
    manifests = [m for entries in comparison.manifests.values() for m in entries]
    facts = {
        "pictures": {
            f"{name} {d['images']} ({d['digest']})" for m in manifests for name, d in m["data"].items()
        },
        "first batches": {m["first_batches"].get("pictures") for m in manifests if m.get("first_batches")},
        "steps": {m.get("steps") for m in manifests},
        "revision": {(m.get("git") or {}).get("revision") for m in manifests},
    }
    shared = "".join(
        f"<tr><td>{safe(name)}</td><td>{safe(', '.join(map(str, sorted(map(str, values)))))}</td></tr>"
        for name, values in facts.items()
    )
    return (
        "<p>Everything in which the groups differ:</p>"
        + _table(["setting", *(group.name for group in comparison.groups)], rows)
        + f"<p>Common to them (one digest of first batches a seed):</p><table>{shared}</table>"
    )
