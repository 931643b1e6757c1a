"""The trainer's own part of the report: how the loss fell, as inline SVG, and what the run was."""

from __future__ import annotations

import json
from pathlib import Path

from coord_eval import ReportSection
from coord_eval.html import safe, table

_WIDTH, _HEIGHT, _PAD = 640, 200, 36
_COLOURS = ("#2563eb", "#16a34a", "#dc2626", "#9333ea", "#ea580c", "#0891b2")
_CURVES = {
    "train_total_loss": "total",
    "train_text_loss": "text",
    "train_coord_ce_loss": "coordinate CE",
    "train_coord_loss": "geometry",
    "coord_diag/loss": "soft CE + W1 + gate",
}


def run_sections(folder: Path) -> list[ReportSection]:
    """Loss curves from metrics.jsonl and the run's facts from manifest.json."""
    sections = []
    metrics = folder / "metrics.jsonl"
    if metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        sections.append(ReportSection("Training", _curves(lines)))
    manifest = folder / "manifest.json"
    if manifest.exists():
        sections.append(ReportSection("Run", _facts(json.loads(manifest.read_text(encoding="utf-8")))))
    return sections


def _facts(manifest: dict) -> str:
    """What was trained, on what, by which versions; all of it is in manifest.json."""
    rows = []
    if parameters := manifest.get("parameters"):
        share = parameters["trained"] / max(parameters["all"], 1)
        learnt = f"{parameters['trained']:,} of {parameters['all']:,} ({share:.1%})"
        offsets = f", {parameters['offsets']:,} of them coordinate offsets" * bool(parameters["offsets"])
        rows.append(("parameters that learnt", learnt + offsets))
    if "steps" in manifest:
        rows.append(("steps", f"{manifest['steps']:,} in {manifest['training_seconds']:.0f} s"))
    rows.append(("seed", manifest["seed"]))
    for name, data in manifest.get("data", {}).items():
        rows.append((f"pictures, {name}", f"{data['images']:,}, digest {data['digest']}"))
    if manifest.get("fingerprint"):
        rows.append(("fingerprint of the vocabulary", manifest["fingerprint"]))
    if revision := (manifest.get("git") or {}).get("revision"):
        rows.append(("revision", revision[:12] + " with changes" * bool(manifest["git"]["changed"])))
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return table(("", ""), rows) + f"<p>{safe(versions)}</p>"


def _curves(lines: list[dict]) -> str:
    series = {
        label: [(line["step"], line[key]) for line in lines if line.get(key)]
        for key, label in _CURVES.items()
    }
    series = {label: points for label, points in series.items() if len(points) > 1}
    if not series:
        return "<p>Fewer than two log lines: nothing to draw.</p>"
    last = max(points[-1][0] for points in series.values())
    top = max(value for points in series.values() for _, value in points)
    x = lambda step: _PAD + (_WIDTH - 2 * _PAD) * step / last  # noqa: E731
    y = lambda value: _HEIGHT - _PAD + (2 * _PAD - _HEIGHT) * value / top  # noqa: E731
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img" aria-label="loss curves" '
        'font-family="system-ui, sans-serif" font-size="9" fill="#374151">'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        level = y(share * top)
        parts.append(
            f'<line x1="{_PAD}" x2="{_WIDTH - _PAD}" y1="{level:.1f}" y2="{level:.1f}" stroke="#e5e7eb"/>'
        )
        parts.append(f'<text x="{_PAD - 6}" y="{level + 4:.1f}" text-anchor="end">{share * top:.2g}</text>')
    for index, (label, points) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(f'<text x="{_PAD + 8 + index * 110}" y="14" fill="{colour}">{label}</text>')
    parts.append(f'<text x="{_PAD}" y="{_HEIGHT - 12}">0</text>')
    parts.append(f'<text x="{_WIDTH - _PAD}" y="{_HEIGHT - 12}" text-anchor="end">step {last}</text></svg>')
    return "".join(parts)
