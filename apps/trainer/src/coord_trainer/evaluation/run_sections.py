"""The trainer's sections of a report: curves from metrics.jsonl, and facts of the run from manifest.json."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from coord_codec.counts import counted
from coord_codec.files import read_json, read_json_lines
from coord_codec.pages import figure, safe, table
from coord_detect.model.checkpoints import AP, answer_scores
from coord_eval import ReportSection
from coord_eval.html import PALETTE, chart
from coord_losses import registered_terms
from coord_trainer.config.run_config import RunConfig
from coord_trainer.training.metrics import STEP_TIME

_MARKERS = ("", "s", "^", "x")
"""Markers of the curves, the next one for each round of the palette."""


def trained_keys(config: RunConfig) -> set[str]:
    """Return the names, in metrics.jsonl after `coord_diag/`, of the loss terms that have a weight."""
    terms = registered_terms()
    return {terms[name].log_key for name in config.custom.objective.weights}


def run_sections(folder: Path, trained: Collection[str] | None = None) -> list[ReportSection]:
    """Return the trainer's sections of a report: loss curves from metrics.jsonl, facts from manifest.json.

    The curves are of the terms that have a weight, `trained` (see `trained_keys`); None shows all that are
    logged.
    """
    sections = []
    metrics, manifest = folder / "metrics.jsonl", folder / "manifest.json"
    if metrics.exists():
        lines = [line for _, line in read_json_lines(metrics)]
        sections.append(ReportSection("Training", _scores_during_training(lines) + _curves(lines, trained)))
    if manifest.exists():
        sections.append(ReportSection("Run", _facts(read_json(manifest))))
    return sections


def _curves(lines: list[dict[str, Any]], trained: Collection[str] | None = None) -> str:
    table = [term for term in registered_terms().values() if term.trainable]
    losses = {f"train_{term.loss_key}": term.title for term in table if term.loss_key}
    terms = {f"coord_diag/{term.log_key}": term.title for term in table}
    untrained = [term for term in table if trained is not None and term.log_key not in trained]
    measured = {f"coord_diag/{term.log_key}": term.title for term in untrained}
    shown = {
        "AP during training": {AP: "AP"},
        "Loss curves": {"train_total_loss": "total", **losses, "coord_diag/loss": "other terms"},
        "Loss terms, without their weights": {key: title for key, title in terms.items() if key not in measured},
        "Terms of weight 0: measured, not trained": measured,
        "Learning rate": {"learning_rate": "learning rate"},
        "Gradient norm before clipping": {"grad_norm": "gradient norm"},
        "Seconds per step, without evaluations and checkpoints": {STEP_TIME: "seconds"},
    }
    return _charts(shown, lines) or "<p>Fewer than two log lines: nothing to draw.</p>"


def _charts(shown: Mapping[str, Mapping[str, str]], lines: list[dict[str, Any]]) -> str:
    """Return a chart for each title, of the logged values with at least two points.

    What was measured on the evaluation images too is dashed, in the colour of the same value during training.
    """
    charts = []
    for title, names in shown.items():
        evaluation_names = [f"eval_{key.removeprefix('train_')}" for key in names]
        measured, evaluated = (_logged(keys, lines) for keys in (names, evaluation_names))
        if not any(len(points) > 1 for points in measured):
            continue
        rows = zip(names.values(), measured, evaluated, strict=True)
        with chart(title, width=560, height=260) as drawn:
            for place, (name, points, dashed) in enumerate(row for row in rows if len(row[1]) > 1):
                again, slot = divmod(place, len(PALETTE))
                marker = _MARKERS[again % len(_MARKERS)]
                xs, ys = zip(*points, strict=True)
                drawn.axes.plot(xs, ys, "-", color=PALETTE[slot], label=name, marker=marker)
                if dashed:
                    xs, ys = zip(*dashed, strict=True)
                    drawn.axes.plot(xs, ys, "--", color=PALETTE[slot], marker=marker or "o")
            drawn.axes.set(xlabel="step")
        dashes = "; dashed: on the evaluation images" if any(evaluated) else ""
        charts.append(figure(drawn.svg, title + dashes))
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _logged(keys: Iterable[str], lines: list[dict[str, Any]]) -> list[list[tuple[int, float]]]:
    """Return step and value of each key's points."""
    kept = {key: key == AP for key in keys}  # an AP of 0 is a result, a term of 0 is switched off
    return [[(line["step"], line[key]) for line in lines if key in line and (line[key] or kept[key])] for key in kept]


def _scores_during_training(lines: list[dict[str, Any]]) -> str:
    scores = answer_scores(lines)
    if not scores:
        return ""
    step, best = max(scores, key=lambda score: score[1])
    return f"<p>AP during training was highest at step {step}: {best:.3f} ({len(scores)} scorings).</p>"


def _source(source: dict[str, Any], manifest: dict[str, Any]) -> str:
    seen = manifest.get("samples_seen", {}).get(source["name"])
    return (
        f"{source['records']:,} {source['kind']}, {source['share']:.1%} of the samples, digest {source['digest']}"
        + ("" if seen is None else f"; {counted(seen, 'sample')} seen")
    )


def _facts(manifest: dict[str, Any]) -> str:
    """Return a table of the run's facts in manifest.json: parameters, steps, data and versions."""
    rows = []
    if parameters := manifest.get("parameters"):
        share = parameters["trained"] / max(parameters["all"], 1)
        trained = f"{parameters['trained']:,} of {parameters['all']:,} ({share:.1%})"
        offsets = f", {parameters['offsets']:,} of them coordinate offsets" if parameters["offsets"] else ""
        rows.append(("trained parameters", trained + offsets))
    if "steps" in manifest:
        earlier = manifest.get("resumed_from")
        note = f"; {earlier['steps']:,} in {earlier['training_seconds']:.0f} s before it was resumed" if earlier else ""
        rows.append(("steps", f"{manifest['steps']:,} in {manifest['training_seconds']:.0f} s{note}"))
    rows.append(("seed", manifest["seed"]))
    if terms := manifest.get("loss_terms"):
        rows.append(("loss terms and their weights", terms))
    for name, data in manifest.get("data", {}).items():
        left_out = (
            f"; {counted(data['problems'], 'record')} left out, see problems.jsonl" if data.get("problems") else ""
        )
        rows.append((f"images, {name}", f"{data['images']:,}, digest {data['digest']}{left_out}"))
        if len(sources := data.get("sources", ())) > 1:
            rows += [(f"source {source['name']}", _source(source, manifest)) for source in sources]
    if count := manifest.get("failed_evaluations", {}).get("count"):
        rows.append(("evaluations that failed", f"{count:,}; the last: {manifest['failed_evaluations']['which'][-1]}"))
    if manifest.get("fingerprint"):
        rows.append(("fingerprint of the vocabulary", manifest["fingerprint"]))
    if revision := (manifest.get("git") or {}).get("revision"):
        changes = " with changes" if manifest["git"]["changed"] else ""
        rows.append(("revision", f"{revision[:12]}{changes}"))
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return table(("", ""), rows) + f"<p>{safe(versions)}</p>"
