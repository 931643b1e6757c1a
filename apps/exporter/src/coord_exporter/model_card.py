"""The model card of an export, README.md: its provenance, scores and the licence of the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from coord_codec.files import InputError, read_json
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.read import StoredCheckpoint

BASE_CARD = "README.base.md"
"""File name of the base's own card in an export."""


def write_card(base: StoredCheckpoint, name: str, adapter: Adapter, facts: dict[str, object]) -> str:
    """Return the text of a model card; `name` is the base's as given, `facts` are further rows by title."""
    from huggingface_hub.repocard_data import ModelCardData  # repocard itself imports 20 MB of the hub's client

    stated = _metadata_of(base.folder / "README.md")
    licence = {key: stated[key] for key in ("license", "license_name", "license_link") if key in stated}
    base_name = name if "/" in name and not Path(name).exists() else stated.get("base_model")
    data = ModelCardData(
        **licence, base_model=base_name, library_name="transformers", tags=["coordinate-tokens", "object-detection"]
    )
    run = _run_of(adapter.folder)
    manifest = _object_in(run / "manifest.json") if run else {}
    lines = {"base": base.name if base_name is None else base_name, "adapter": adapter.name}
    lines["licence of the base"] = licence.get("license", "not stated; look it up before you pass this on")
    digests = {k: v.get("digest") for k, v in _object(manifest.get("data")).items() if isinstance(v, dict)}
    lines |= {f"{kind} data digest": digest for kind, digest in digests.items() if digest}
    lines |= {key: manifest[key] for key in ("steps", "seed") if key in manifest}
    table = "\n".join(f"| {title} | {value} |" for title, value in (lines | facts).items() if value is not None)
    text = f"---\n{data.to_yaml()}\n---\n\n# {adapter.name if run is None else run.name}\n\n"
    text += (
        "A plain checkpoint that `coord-exporter` merged from a base and an adapter; `export.json` holds digests and "
    )
    text += f"versions.\n\n| provenance | |\n|---|---|\n{table}\n"
    if run and str(manifest.get("checkpoint")).endswith(adapter.name):
        config = run / "config.yaml"
        settings = _mapping(config.read_text(encoding="utf-8", errors="replace")) if config.is_file() else {}
        text += _scores(_object_in(run / "evaluation.json"), _object(settings.get("evaluation")))
    return text + _calibrations(_object(adapter.card.get("calibrations")))


def _scores(evaluation: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return the section of the scores, with the images they were taken on; empty where COCO's are not there."""
    if not (coco := _object(evaluation.get("coco"))):
        return ""
    ceiling, answers = _object(evaluation.get("ceiling")), _object(evaluation.get("format"))
    values = {**coco, "mean IoU": evaluation.get("mean_iou"), "quantisation ceiling, AP": ceiling.get("AP")}
    cells = {k: f"{v:.3f}" if v >= 0 else "nothing to measure" for k, v in values.items() if isinstance(v, float)}
    if {"parsed", "answers"} <= answers.keys():
        cells["answers that parse"] = f"{answers['parsed']} of {answers['answers']}"
    images = "images that the run names"
    scored = settings.get("images")
    if scored == "heldout":
        images = "held-out images"
    elif scored == "train":
        images = "images that it was trained on, which says nothing of others"
    rows = "\n".join(f"| {metric} | {value} |" for metric, value in cells.items())
    return f"\n## Scores of the run's own evaluation\n\nOn {images}.\n\n| metric | value |\n|---|---|\n{rows}\n"


def _calibrations(calibrations: dict[str, Any]) -> str:
    """Return the section of the calibrations in coordexp.json; empty if there are none."""
    rows = []
    for key, value in calibrations.items():
        rests_on, reliability = _object(_object(value).get("rests_on")), _object(_object(value).get("reliability"))
        errors = [_object(reliability.get(when)).get("ece") for when in ("before", "after")]
        cells = [f"{error:.3f}" if isinstance(error, float) else "not stated" for error in errors]
        boxes, *views = key.split(" ")
        fitted = f"{rests_on.get('images')} images, {rests_on.get('boxes')} boxes"
        rows.append(f"| {boxes} | {', '.join(views) or 'none'} | {fitted} | {' | '.join(cells)} |")
    if not rows:
        return ""
    head = "| boxes | further views | rests on | calibration error before | after |\n|---|---|---|---|---|\n"
    text = "\n## Calibration of the scores\n\nOf the adapter before it was merged; `predict` uses it.\n\n"
    return text + head + "\n".join(rows) + "\n"


def _object(value: object) -> dict[str, Any]:
    """Return a value that is a dictionary; empty for any other, as in the files of other programs."""
    return value if isinstance(value, dict) else {}


def _object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is no file or no object in it."""
    try:
        return _object(read_json(path))
    except InputError:
        return {}


def _metadata_of(card: Path) -> dict[str, Any]:
    """Return the YAML metadata of a model card; empty if there is no card or it cannot be parsed."""
    if not card.is_file():
        return {}
    parts = card.read_text(encoding="utf-8-sig", errors="replace").split("---\n", 2)
    return _mapping(parts[1]) if len(parts) == 3 and not parts[0].strip() else {}


def _mapping(text: str) -> dict[str, Any]:
    """Return a YAML mapping; empty where the text is none."""
    try:
        return _object(yaml.safe_load(text))
    except yaml.YAMLError:
        return {}


def _run_of(adapter: Path) -> Path | None:
    """Return the run folder that contains an adapter, None if there is none."""
    return next((folder for folder in adapter.resolve().parents[:2] if (folder / "manifest.json").is_file()), None)
