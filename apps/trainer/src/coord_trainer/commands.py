"""The subcommands, each a few lines over the function that does the work."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from .config_files import load_run_config
from .console import say

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    help="Train Qwen3-VL to draw boxes with coordinate tokens. Without a command: the built-in first run.",
)
Config = Annotated[Path | None, typer.Option("-c", "--config", help="YAML config; see configs/")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...")]


@app.callback(invoke_without_command=True)
def first_run(context: typer.Context) -> None:
    """Train a tiny Qwen3-VL on generated pictures, score it and leave runs/first-run/report.html."""
    if context.invoked_subcommand is not None:
        return
    with as_file(files(__package__) / "first-run.yaml") as file:
        _train(load_run_config(file, []), Path("runs/first-run"))


@app.command()
def train(
    overrides: Overrides = None,
    config: Config = None,
    strict: Annotated[bool, typer.Option(help="any bad record is an error")] = False,
) -> None:
    """Train from a config; words like data.annotations=a.json override it."""
    words = [*(overrides or []), *(["data.strict=true"] if strict else [])]
    resolved = load_run_config(config, words)
    name = config.stem if config is not None else "first-run"
    _train(resolved, resolved.run.dir or Path("runs") / name)


def _train(resolved, folder: Path) -> None:
    from .scoring import summary
    from .training import train_and_score

    result = train_and_score(resolved, folder)
    if result.evaluation is not None:
        for line in summary(result.evaluation):
            say(line)
        say(f"report: {result.folder / 'report.html'}")
