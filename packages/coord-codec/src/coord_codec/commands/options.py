"""Options that command lines share. Needs typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NewPlace = Annotated[Path, typer.Option("--out", help="The path of the result, which must not exist yet.")]
"""Option for the path of a result that must not exist yet."""
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Stop at any bad record of the annotations; otherwise bad records are left out and listed."
    ),
]
"""Option to stop at any bad record."""
