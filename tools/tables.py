"""Writes the tables of READMEs and guides from the rows in the code, and the list of findings from their scripts.

    uv run python tools/tables.py            # writes what has changed
    uv run python tools/tables.py --check    # exit code 1 if something would change

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, in any Markdown file of the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n.*?<!-- end of table -->", re.DOTALL)
PIN = re.compile(r"\b([A-Za-z][A-Za-z0-9_.-]*)==([0-9][A-Za-z0-9.]*)")


def main(check: Annotated[bool, typer.Option("--check", help="Only say which files would change.")] = False) -> None:
    """Write every table of every Markdown file."""
    changed = []
    for path in markdown_files():
        text = path.read_text(encoding="utf-8")
        written = BLOCK.sub(lambda found: block(found["name"]), text)
        if written == text:
            continue
        changed.append(path.relative_to(ROOT))
        if not check:
            path.write_text(written, encoding="utf-8")
    for path in changed:
        print(f"{path}: {'is not' if check else 'written'} as the rows in the code")
    if check and changed:
        print("run: uv run python tools/tables.py", file=sys.stderr)
        raise typer.Exit(1)


def markdown_files() -> list[Path]:
    """Return the READMEs and guides in which a table may stand."""
    folders = [ROOT, *ROOT.glob("packages/*"), *ROOT.glob("apps/*")]
    beside = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [*beside, *sorted(ROOT.glob("docs/**/*.md"))]


def block(name: str) -> str:
    """Return a table with the comments around it.

    Raises:
        SystemExit: there is no table of that name
    """
    if name not in TABLES:
        sys.exit(f"table: expected one of {', '.join(TABLES)}, found {name!r}")
    return f"<!-- table: {name} -->\n{TABLES[name]().strip()}\n<!-- end of table -->"


def rows_of(header: list[str], rows: list[list[str]]) -> str:
    """Return rows of cells as a table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(re.sub(r"\| +(?=\|)", "| ", line) for line in lines)


def annotation_formats() -> str:
    """Return the formats of annotations that are read."""
    from coord_data import format_table

    return format_table()


def annotation_tools() -> str:
    """Return the tools and data sets by what identifies their files."""
    from coord_data.formats.tools import tool_table

    return tool_table()


def geometries() -> str:
    """Return the geometries of targets."""
    from coord_codec.geometry import geometry_table

    return geometry_table()


def rewards() -> str:
    """Return the kinds of rewards."""
    from coord_eval.rewards.kinds import reward_table

    return reward_table()


def answer_formats() -> str:
    """Return the formats of answers that are parsed."""
    from coord_eval.parse.formats import FORMATS

    rows = [[f"`{row.name}`", f"`` {row.example} ``".replace("|", r"\|"), row.divisor] for row in FORMATS.values()]
    return rows_of(["format", "one object", "numbers are divided by"], rows)


def scoring_settings() -> str:
    """Return the records of settings that `coord_eval.score` takes."""
    from typer.main import get_command

    from coord_codec.settings import settings_table
    from coord_eval import AnswerSettings, CeilingSettings, CocoParams, LabelSettings, ReportSettings
    from coord_eval.cli import app

    command = get_command(app).commands["score"]
    records = {"answers": AnswerSettings, "labels": LabelSettings, "ceiling": CeilingSettings}
    options = {word for option in command.params for word in option.opts}
    return settings_table({**records, "report": ReportSettings, "report.params": CocoParams}, options)


def loss_terms() -> str:
    """Return the loss terms."""
    from coord_losses import registered_terms

    rows = []
    for term in registered_terms().values():
        weight = f"`{term.weight_field}`" if term.weight_field else f'`extra_weights["{term.name}"]`'
        trained = weight if term.trainable else "measured only"
        rows.append([f"`{term.name}`", trained, term.element, term.formula, term.unit, term.source])
    return rows_of(["term", "weight", "an element is a", "value", "unit", "source"], rows)


def metrics() -> str:
    """Return the metrics of `evaluation.json`."""
    from coord_eval import METRICS

    places = {"top": "", "analysis": "analysis."}
    rows = [[f"`{places[row.place]}{row.name}`", row.documentation] for row in METRICS.values() if row.place in places]
    return rows_of(["key in `evaluation.json`", "what it is"], rows)


def loss_groups() -> str:
    """Return the groups of losses: presets of Python and configurations, by the same names."""
    from coord_losses import ObjectiveConfig

    rows = []
    for preset, trains in ObjectiveConfig.presets().items():
        name = preset.removeprefix("group_")
        rows.append([name.upper() if name != preset else name, trains, f"`{preset}`", f"`configs/phase1/{name}.yaml`"])
    return rows_of(["group", "terms", "preset", "config"], rows)


def families() -> str:
    """Return the model families of the trainer."""
    from coord_detect import FAMILIES

    rows = []
    for family in FAMILIES.values():
        markers = f"`{family.native_markers}`" if family.native_markers else "none: `data.markers=obj`"
        thinks = "yes, trained and asked without" if family.empty_thought else "no"
        packed = "refused" if "packing" in family.cannot else "yes"
        rows.append([family.name, f"`{family.model_type}`", family.sizes, markers, thinks, packed])
    header = ["family", "`model_type`", "published sizes", "objects' markers known", "thinks"]
    return rows_of([*header, "rows packed (`data.packing`)"], rows)


def findings() -> str:
    """Return what the scripts in `findings/` show: the packages that each installs, and its first comment."""
    rows = []
    for path in sorted((ROOT / "findings").glob("*.sh")):
        text = path.read_text(encoding="utf-8")
        comment = []
        for line in text.splitlines()[1:]:
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# ").strip())
        packages = dict.fromkeys(f"{name} {version}" for name, version in PIN.findall(text))
        said = " ".join(filter(None, comment)).replace("|", r"\|")
        rows.append([f"`{path.name}`", ", ".join(packages), said])
    return rows_of(["script", "seen with", "what it shows"], rows)


def finding_codes() -> str:
    """Return the codes of the findings, with subject, severities and words."""
    from coord_data.finding_codes import code_table

    return code_table()


def numbers() -> str:
    """The claims that are quoted elsewhere, from the first line of their sections in RESULTS.md."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^### (.+)\n\n> Quoted: (.+)", text, re.MULTILINE)
    rows = [[claim, section, *facts] for section, line in quoted for claim, *facts in [line.split(" | ")]]
    place = "`packages/coord-eval/tests/metrics/test_coco.py`"
    data = f"pycocotools' own example results of 100 images of val2014; {place}"
    rows.append(["COCO's published example", "none: a test", data, "anything about other images"])
    return rows_of(["claim", "section of RESULTS.md", "data and repetitions", "what it does not show"], rows)


def writers() -> str:
    """Return who wrote a file of boxes, and how each counts pixels."""
    from coord_data.formats.writers import writer_table

    return writer_table()


TABLES: dict[str, Callable[[], str]] = {
    "annotation-formats": annotation_formats,
    "writers": writers,
    "annotation-tools": annotation_tools,
    "geometries": geometries,
    "answer-formats": answer_formats,
    "rewards": rewards,
    "scoring-settings": scoring_settings,
    "loss-terms": loss_terms,
    "metrics": metrics,
    "loss-groups": loss_groups,
    "families": families,
    "findings": findings,
    "numbers": numbers,
    "finding-codes": finding_codes,
}

if __name__ == "__main__":
    typer.run(main)
