"""Losses of TRL's trainers, and inside wrappings, beside those of the live model, into docs/guides/adapter.md.

    uv run python benchmarks/losses_of_others.py [--wrappings]

Each trains two steps in an environment with TRL (tests/foreign/trl_losses.py, which says what is compared);
the wrappings are those of tests/wrapped_losses.py, on two ranks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOREIGN = ROOT / "tests" / "foreign"
GUIDE = ROOT / "docs" / "guides" / "adapter.md"
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


def wrapped_table() -> str:
    """Return the table of wrappings: each loss beside its reference, or the beginning of the refusal."""
    command = [sys.executable, ROOT / "tests" / "wrapped_losses.py"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = ["| wrapping | loss by | loss | from live logits | largest error of gradients |", "|---|---|---|---|---|"]
    for line in done.stdout.splitlines():
        if not line.startswith('{"wrapping"'):
            continue
        row = json.loads(line)
        cells = (
            f"refused: {row['error'].partition(',')[0]} | | "
            if "error" in row
            else (f"{row['found']:.6f} | {row['expected']:.6f} | {max(row['gap'].values()):.1e}")
        )
        lines.append(f"| {row['wrapping']} | {row['loss']} | {cells} |")
    for row in measure("sft", "dpo", "--wrapped"):
        found, expected = row["fused"], row["dense"]
        moved = max(abs(found["moved"][name] / whole - 1) for name, whole in expected["moved"].items())
        cells = f"{found['loss'][-1]:.6f} | {expected['loss'][-1]:.6f} | {moved:.1e}"
        lines.append(f"| {row['wrapping']} | TRL's {row['trainer'].upper()}, step 2 | {cells} |")
    return "\n".join(lines) + "\n"


def write(name: str, made: str) -> None:
    """Write a table of the guide between its marks."""
    begin, end = (f"<!-- {word}: {name} -->\n" for word in ("begin", "end"))
    above, _, rest = GUIDE.read_text().partition(begin)
    _, _, below = rest.partition(end)
    GUIDE.write_text(above + begin + made + end + below)


def main() -> None:
    """Measure, and write the tables."""
    if "--wrappings" not in sys.argv:
        write("losses of others", table(measure(), measure("--without-moved-rows")))
    write("losses in wrappings", wrapped_table())


if __name__ == "__main__":
    main()
