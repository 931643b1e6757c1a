"""The arguments of ms-swift's SFT that `training:` does not take, and why: `refused_arguments.tsv`.

A row holds names, or families of names (`*`), and either the keys of the configuration that they are `set_by`, or the
reason for which they are refused: they would have no effect, or break a promise of the trainer. A name by itself comes
before a family (`hub_token` before `hub_*`), so each argument has one reason.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from coord_trainer.config.tables import read_table

_ROWS = [(names.split(), set_by, reason) for names, set_by, reason in read_table("refused_arguments.tsv")]
OWNED_NAMES = {name: set_by for names, set_by, _ in _ROWS for name in names if set_by}
REFUSED_NAMES = {name: reason for names, _, reason in _ROWS for name in names if reason}


def refusal(name: str) -> str | None:
    """Return why an argument is not taken, as the end of a sentence that begins with its name; None for any other."""
    if name in OWNED_NAMES:
        return f"is set by {OWNED_NAMES[name]}; set it there"
    reasons = [REFUSED_NAMES[name]] if name in REFUSED_NAMES else refused_families(name)
    return f"is not supported: {reasons[0]}" if reasons else None


def refused_families(name: str) -> list[str]:
    """Return the reason of each family that a name belongs to."""
    return [reason for family, reason in REFUSED_NAMES.items() if "*" in family and fnmatchcase(name, family)]
