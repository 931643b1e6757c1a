"""Points from names of the specification to their names here."""

from __future__ import annotations

ELSEWHERE = {
    "merge_coord": "uv run apps/exporter merge (docs/guides/export.md)",
    "CoordSoftCEW1LossMixin": "coord_losses.CoordObjective, switched on by custom.coord_soft_ce_w1.enabled",
    "coord_tokens/": "packages/coord-codec (tokens, layout, target) and coord_trainer.swift",
    "coord_offset_adapter": "packages/coord-adapter (coord_adapter.install_coord_offset_adapter)",
}
"""Part of a name -> its name or place here; docs/guides/from-elsewhere.md has the same table."""


def pointer(word: str) -> str:
    """Return a hint that names the place of `word` here; empty if it is not a name of the specification."""
    return next((f"; it is now {place}" for name, place in ELSEWHERE.items() if name in word), "")
