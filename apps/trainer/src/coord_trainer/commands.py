"""The subcommands, each a few lines over the function that does the work."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Literal

import typer

from .config import RunConfig
from .config_files import load_run_config
from .console import say

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train Qwen3-VL to draw boxes with coordinate tokens. Without a command: the built-in first run.",
)
ConfigFile = Annotated[Path | None, typer.Option("-c", "--config", help="YAML config; see configs/")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...")]
Strict = Annotated[bool, typer.Option("--strict", help="any bad record is an error")]
Out = Annotated[Path, typer.Option("--out", help="where the result goes; must not exist yet")]


@app.callback(invoke_without_command=True)
def first_run(
    context: typer.Context,
    adapter: Annotated[
        Literal["none", "offset"],
        typer.Option(help="offset: train LoRA and coordinate offsets on a frozen model"),
    ] = "none",
) -> None:
    """Train a tiny Qwen3-VL on generated pictures, score it and leave runs/first-run/report.html."""
    if context.invoked_subcommand is None:
        name = "first-run" if adapter == "none" else f"first-run-{adapter}"
        with as_file(files(__package__) / f"{name}.yaml") as file:
            _train(load_run_config(file, []), name)


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    strict: Strict = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="settings, vocabulary, rates and memory; no weights, no run")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="tell where a step's time goes")] = False,
) -> None:
    """Train from a config, score, report; words like data.annotations=a.json override it."""
    overrides = [*(overrides or []), *(["run.profile=true"] if profile else [])]
    if dry:
        from .dry_run import dry_run

        dry_run(_resolve(config, overrides, strict))
        return
    _train(_resolve(config, overrides, strict), config.stem if config is not None else "train")


@app.command()
def compare(
    words: Annotated[list[str], typer.Argument(metavar="CONFIG... [section.key=value]...")],
    *,
    seeds: Annotated[int, typer.Option(min=1, help="each group is trained with seeds 0..N-1")] = 3,
    base: Annotated[
        Path | None, typer.Option(help="the setting all configs are laid over, see configs/base")
    ] = None,
    sweep: Annotated[Path | None, typer.Option(help="variants of some configs, see configs/sweeps")] = None,
    out: Annotated[Path, typer.Option(help="finished runs in it are kept")] = Path("runs/compare"),
    jobs: Annotated[int, typer.Option(min=1, help="runs side by side, one thread each if several")] = 2,
    resamples: Annotated[int, typer.Option(min=0, help="draws of the pictures for intervals")] = 300,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="resolve and show, touch nothing")] = False,
) -> None:
    """Train several configs under one setting and the same seeds, read each in every way, write one report."""
    from .compare import compare_configs
    from .compare_plan import default_base

    files = [Path(word) for word in words if "=" not in word or Path(word).is_file()]
    overrides = [word for word in words if Path(word) not in files]
    report = compare_configs(
        files,
        overrides,
        seeds=seeds,
        base=base or default_base(files),
        sweep=sweep,
        out=out,
        jobs=jobs,
        resamples=resamples,
        dry_run=dry_run,
    )
    if report is not None:
        say(f"report: {report}")


@app.command()
def evaluate(
    checkpoint: Path, out: Out, overrides: Overrides = None, config: ConfigFile = None, strict: Strict = False
) -> None:
    """Answer, score and report with a checkpoint, on the pictures that evaluation.pictures names."""
    from .evaluating import evaluate_checkpoint
    from .scoring import summary

    for line in summary(evaluate_checkpoint(_resolve(config, overrides, strict), checkpoint, out)):
        say(line)
    say(f"report: {out / 'report.html'}")


@app.command()
def predict(
    checkpoint: Path, out: Out, overrides: Overrides = None, config: ConfigFile = None, strict: Strict = False
) -> None:
    """Write predictions.jsonl with a checkpoint, without scoring."""
    from .evaluating import predict_checkpoint

    say(f"{predict_checkpoint(_resolve(config, overrides, strict), checkpoint, out)} answers in {out}")


@app.command()
def prepare(annotations: Path, images: Path, out: Out, strict: Strict = False) -> None:
    """Turn COCO annotations into instance JSONL with boxes in [0,1], listing what is left out."""
    from .preparing import prepare_instances

    prepare_instances(annotations, images, out, strict)


@app.command()
def inspect(
    overrides: Overrides = None,
    config: ConfigFile = None,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="which picture, from 0")] = 0,
) -> None:
    """Show one training sample token by token: what is read, what is learnt, where the boxes are."""
    from .inspecting import inspect_sample

    inspect_sample(_resolve(config, overrides, False), number)


@app.command()
def doctor() -> None:
    """Check versions, devices and the seams in ms-swift that training depends on."""
    from .doctor import examine

    examine()


def _resolve(config: Path | None, overrides: list[str] | None, strict: bool) -> RunConfig:
    from .attention import with_usable_attention

    words = [*(overrides or []), *(["data.strict=true"] if strict else [])]
    return with_usable_attention(load_run_config(config, words))


def _train(resolved: RunConfig, name: str) -> None:
    from .ranks import part
    from .scoring import summary
    from .training import train_and_score

    result = train_and_score(resolved, resolved.run.dir or Path("runs") / name)
    part()
    if result.evaluation is not None:
        for line in summary(result.evaluation):
            say(line)
        say(f"report: {result.folder / 'report.html'}")
