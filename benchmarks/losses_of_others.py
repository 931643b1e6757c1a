"""Losses of TRL's trainers beside those of the live model with offsets, into docs/guides/adapter.md.

    uv run python benchmarks/losses_of_others.py

Each trains two steps in an environment with TRL (tests/foreign/trl_losses.py, which says what is compared).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOREIGN = ROOT / "tests" / "foreign"
GUIDE = ROOT / "docs" / "guides" / "adapter.md"
BEGIN, END = "<!-- begin: losses of others -->\n", "<!-- end: losses of others -->\n"
sys.path.insert(0, str(FOREIGN))

from environment import make  # noqa: E402


def measure(*words: str) -> list[dict]:
    """Return the outcomes of `trl_losses.py`, a row each."""
    (packages,) = make(FOREIGN / "trl.txt").parents[1].glob("lib/python*/site-packages")
    environment = os.environ | {"PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, FOREIGN / "trl_losses.py", *words]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"trainer"')]


def table(rows: list[dict], broken: list[dict]) -> str:
    """Return the table of a guide."""
    lines = ["| trainer | loss, step 2 | from live logits | gradient's norm | from live logits | rows not lent |"]
    lines += ["|---|---|---|---|---|---|"]
    stopped = {row["trainer"]: "error" in row["fused"] for row in broken}
    for row in rows:
        cells = [f"{row[how][key][-1]:.6f}" for key in ("loss", "grad_norm") for how in ("fused", "dense")]
        seen = {True: "stops in step 1", False: "**goes on**"}.get(stopped.get(row["trainer"]), "")
        lines.append(f"| {row['trainer'].upper()} | {' | '.join(cells)} | {seen} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the table between its marks."""
    text = GUIDE.read_text()
    above, _, rest = text.partition(BEGIN)
    _, _, below = rest.partition(END)
    GUIDE.write_text(above + BEGIN + table(measure(), measure("--without-moved-rows")) + END + below)


if __name__ == "__main__":
    main()
