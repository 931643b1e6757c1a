"""Names of the specification that live under another name: a word goes in, a pointer comes out."""

from __future__ import annotations

ELSEWHERE = {
    "merge_coord": "uv run apps/exporter merge (docs/guides/export.md)",
    "CoordSoftCEW1LossMixin": "coord_losses.CoordObjective, switched on by custom.coord_soft_ce_w1.enabled",
    "coord_tokens/": "packages/coord-codec (tokens, layout, target) and coord_trainer.swift",
    "coord_offset_adapter": "packages/coord-adapter (coord_adapter.install_coord_offset_adapter)",
}
"""Part of a name -> where it lives now; docs/guides/from-elsewhere.md has the same table."""


def pointer(word: str) -> str:
    """Return the end of a message that says where `word` lives now; empty where it is not known."""
    return next((f"; it lives in {place}" for name, place in ELSEWHERE.items() if name in word), "")
