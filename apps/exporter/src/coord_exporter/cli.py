"""The command line: `merge` and `expand-vocab`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from .errors import ExportError, InputError

app = typer.Typer(
    help="Turn a base and an adapter into a plain Hugging Face checkpoint.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

_Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it is a checkpoint folder.")]
_ShardSize = Annotated[
    str | None,
    typer.Option("--max-shard-size", help="Split the weights anew, e.g. 5GB; default: as in BASE."),
]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


@app.command("merge")
def merge_command(
    base: Annotated[
        Path, typer.Argument(metavar="BASE", help="Checkpoint folder the adapter was trained on.")
    ],
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="PEFT adapter folder.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to make; it appears whole or not at all.")
    ],
    *,
    force: _Force = False,
    max_shard_size: _ShardSize = None,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify", help="Compare with PEFT before OUT appears; default: bases up to 1 GiB."
        ),
    ] = None,
    quiet: _Quiet = False,
) -> None:
    """Merge LoRA, DoRA, saved modules and coordinate offsets into the weights."""
    from .layout import parse_size
    from .merging import merge

    started = time.monotonic()
    size = parse_size(max_shard_size) if max_shard_size else None
    report = merge(base, adapter, out, force=force, max_shard_size=size, verify=verify, quiet=quiet)
    _warn(report.warnings)
    if report.verification is not None:
        typer.echo(_verified(report.verification))
    seconds = time.monotonic() - started
    typer.echo(f"{out}: {report.changed} of {report.tensors} tensors changed, {seconds:.1f} s")


@app.command("expand-vocab")
def expand_command(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Checkpoint folder to extend.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to make; it appears whole or not at all.")
    ],
    *,
    wildcard: Annotated[
        bool, typer.Option(help="Add <|coord_*|> first, so that ids are the specification's.")
    ] = True,
    markers: Annotated[
        bool, typer.Option("--markers", help="Add <obj_start> and <obj_end> as well.")
    ] = False,
    init: Annotated[
        str, typer.Option(help="New rows: mean (plus noise) or smooth (functions of the bin).")
    ] = "mean",
    seed: Annotated[int, typer.Option(help="Seed of the new rows.")] = 0,
    force: _Force = False,
    max_shard_size: _ShardSize = None,
    quiet: _Quiet = False,
) -> None:
    """Add the coordinate tokens to tokenizer, configuration and weights."""
    from .expand import expand_vocab
    from .layout import parse_size

    size = parse_size(max_shard_size) if max_shard_size else None
    report = expand_vocab(
        base,
        out,
        wildcard=wildcard,
        markers=markers,
        init=init,
        seed=seed,
        force=force,
        max_shard_size=size,
        quiet=quiet,
    )
    _warn(report.warnings)
    typer.echo(report.summary())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 2 for bad input, 1 for an export that failed."""
    try:
        app(arguments)
    except InputError as error:
        _stop(error, 2)
    except ExportError as error:
        _stop(error, 1)


def _stop(error: Exception, code: int) -> None:
    typer.echo(f"error: {error}", err=True)
    sys.exit(code)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _verified(figures: dict) -> str:
    return (
        f"verified: largest logit difference {figures['max_difference']:.3g} (tolerance "
        f"{figures['tolerance']:.3g}), {figures['equal_tokens']} of {figures['tokens']} greedy tokens equal"
    )
