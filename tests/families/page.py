"""Writes and reads the page of the guides about all families: `uv run python tests/families/page.py` writes it anew."""

import tempfile
from pathlib import Path

import transformers
from path import NOT_TRIED, REFUSED, WORKS, walk
from tiny_zoo import CLASSES

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "every-family.md"
MARK = "<!-- written by tests/families/page.py -->"
OF = "transformers "


def row(family, outcome):
    return f"| `{family}` | {outcome.kind} | {outcome.reason.replace('|', '/')} |".replace("  ", " ")


def read():
    """Return the rows of the page by family."""
    return {line.split("`")[1]: line for line in PAGE.read_text().splitlines() if line.startswith("| `")}


def is_of_this_transformers():
    return f"{OF}{transformers.__version__}." in PAGE.read_text()


def write():
    """Try every family, and replace what stands below the mark."""
    outcomes = {}
    for family in CLASSES:
        with tempfile.TemporaryDirectory() as folder:
            outcomes[family] = walk(family, Path(folder))
        print(row(family, outcomes[family]), flush=True)
    kinds = [outcome.kind for outcome in outcomes.values()]
    counts = [f"{kinds.count(kind)} {kind}" for kind in (WORKS, REFUSED, NOT_TRIED)]
    lines = [f"{OF}{transformers.__version__}. Of {len(outcomes)} families: {', '.join(counts)}.", ""]
    lines += ["| family (`model_type`) | result | reason |", "|---|---|---|"]
    lines += [row(family, outcome) for family, outcome in outcomes.items()]
    above, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(above + MARK + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    write()
