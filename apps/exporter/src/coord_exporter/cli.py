"""The command line: `merge`, `expand-vocab`, `to-peft` and `from-peft`."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coord_codec.commands.program import Commands, version_option
from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_exporter.convert import from_peft, to_peft
from coord_exporter.expand import expand_vocab
from coord_exporter.merge import merge

_EXIT_CODES = "Exit codes: 0 if OUT is complete, 1 if writing or verifying failed, 2 for bad usage or bad input."
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Turn a base and an adapter into a plain Hugging Face checkpoint.",
    epilog=_EXIT_CODES,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


@app.callback()
def _common(version: Annotated[bool, version_option("coord-exporter")] = False) -> None:
    """Options before a command."""


_Base = Annotated[
    str,
    typer.Argument(
        metavar="BASE",
        help="The checkpoint folder that the adapter was trained on, or a hub id in the local hub cache.",
    ),
]
_Adapter = Annotated[
    str,
    typer.Argument(
        metavar="ADAPTER", help="The PEFT adapter folder, or a run folder (its best or last checkpoint is used)."
    ),
]
_Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to create; it is complete or does not appear.")]
_Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace OUT if it was written by an export, and take another base than the adapter's own."
    ),
]
_ShardSize = Annotated[
    str | None,
    typer.Option(
        "--max-shard-size",
        metavar="SIZE",
        help="Split the weights into files of at most this size, such as 5GB or 500MB. By default the files of BASE "
        "are kept.",
    ),
]
_Form = Annotated[
    int | None,
    typer.Option(
        help="Write configuration, tokenizer and processor files as transformers 4 did (--form 4), for programs that "
        "read no others. By default the form of BASE is kept."
    ),
]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *lines, _EXIT_CODES])


@app.command(
    "merge",
    epilog=_examples(
        "uv run apps/exporter merge base adapter merged",
        "uv run apps/exporter merge base adapter merged --verify --max-shard-size 5GB",
    ),
)
def merge_command(
    base: _Base,
    adapter: _Adapter,
    out: _Out,
    *,
    force: _Force = False,
    max_shard_size: _ShardSize = None,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Compare every tensor with PEFT's before OUT appears. Default: --verify for bases of up to 1 GiB.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="The dtype of all weights: bfloat16, float16 or float32. Default: the dtypes of BASE."),
    ] = None,
    keep_lora: Annotated[
        Path | None,
        typer.Option(
            metavar="LORA",
            help="Merge only the rows of embedding and head, and write the LoRA as a plain adapter of OUT into this "
            "folder, for servers that hold several adapters.",
        ),
    ] = None,
    form: _Form = None,
    quiet: _Quiet = False,
) -> None:
    """Merge LoRA, DoRA, saved modules and coordinate offsets into the weights."""
    started = time.monotonic()
    max_bytes = parse_size(max_shard_size)
    if keep_lora is not None and verify:
        raise InputError("--verify: it compares whole merges, and --keep-lora leaves the LoRA out; use one of the two")
    report = merge(
        base,
        adapter,
        out,
        force=force,
        max_shard_size=max_bytes,
        verify=verify,
        quiet=quiet,
        dtype=dtype,
        keep_lora=keep_lora,
        form=form,
    )
    _warn(report.warnings)
    if figures := report.verification:
        typer.echo(f"verified: {figures['compared']} changed tensors equal PEFT's")
    seconds = time.monotonic() - started
    typer.echo(f"{out}: {report.changed} of {counted(report.tensors, 'tensor')} changed, {seconds:.1f} s")


@app.command(
    "expand-vocab",
    epilog=_examples(
        "uv run apps/exporter expand-vocab Qwen3-VL-2B base",
        "uv run apps/exporter expand-vocab Qwen3-VL-2B base --markers --init smooth",
    ),
)
def expand_command(
    base: Annotated[str, typer.Argument(metavar="BASE", help="The checkpoint folder to extend, or a cached hub id.")],
    out: _Out,
    *,
    wildcard: Annotated[bool, typer.Option(help="Add <|coord_*|> before the coordinate tokens.")] = True,
    markers: Annotated[bool, typer.Option("--markers", help="Add <obj_start> and <obj_end> as well.")] = False,
    init: Annotated[
        str,
        typer.Option(
            help="Initial values of new rows: 'mean' is the mean of the table plus noise, 'smooth' makes rows of "
            "neighbouring bins similar."
        ),
    ] = "mean",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The seed of the new rows' noise.")] = 0,
    force: _Force = False,
    max_shard_size: _ShardSize = None,
    form: _Form = None,
    quiet: _Quiet = False,
) -> None:
    """Add the coordinate tokens to tokenizer, configuration and weights."""
    report = expand_vocab(
        base,
        out,
        wildcard=wildcard,
        markers=markers,
        init=init,
        seed=seed,
        force=force,
        max_shard_size=parse_size(max_shard_size),
        quiet=quiet,
        form=form,
    )
    _warn(report.warnings)
    typer.echo(report.summary())


@app.command("to-peft", epilog=_examples("uv run apps/exporter to-peft base adapter plain-adapter"))
def to_peft_command(
    base: _Base,
    adapter: _Adapter,
    out: _Out,
    *,
    force: _Force = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Load the result with plain PEFT before OUT appears.")
    ] = True,
) -> None:
    """Write coordinate offsets as PEFT's trainable_token_indices, which peft loads without this project."""
    report = to_peft(base, adapter, out, force=force, verify=verify)
    _warn(report.warnings)
    typer.echo(
        f"{out}: {counted(report.rows, 'row')} in {counted(report.tables, 'table')}; PeftModel.from_pretrained reads it"
    )


@app.command("from-peft", epilog=_examples("uv run apps/exporter from-peft base plain-adapter adapter"))
def from_peft_command(base: _Base, adapter: _Adapter, out: _Out, *, force: _Force = False) -> None:
    """Write PEFT's trainable_token_indices as coordinate offsets, to continue training with them."""
    report = from_peft(base, adapter, out, force=force)
    _warn(report.warnings)
    typer.echo(f"{out}: offsets of {counted(report.rows, 'id')} in {counted(report.tables, 'table')}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 2 for bad input, 1 for an export that failed."""
    installed = Path(sys.argv[0]).name == "coord-exporter"
    app(arguments, prog_name=None if installed else "uv run apps/exporter")


def parse_size(text: str | None) -> int | None:
    """Return the bytes of a size such as 5GB, 500MB or 2GiB; None stays None, other text is refused."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"--max-shard-size: expected a size such as 5GB or 500MB, found {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
