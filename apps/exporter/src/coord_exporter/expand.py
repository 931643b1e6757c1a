"""`expand-vocab`: coordinate tokens for a checkpoint's tokenizer, configuration and weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coord_codec import CoordVocab

from .checkpoint import FLOATS, Checkpoint, open_checkpoint
from .companions import find_companions
from .errors import InputError
from .export import Export, write_export
from .new_rows import INITS, NOISE, NewRowsStep, make_rows
from .new_tokens import NewTokens, check_tokenizer, extend_tokenizer, find_new_tokens
from .recipe import Recipe, copy_of
from .staging import check_out
from .tables import HEAD, Tables, find_tables

_MULTIPLE = 64  # tables are padded to it, as Qwen's own: matrix products run at full speed


@dataclass(frozen=True)
class ExpandReport:
    """What an expansion did.

    Attributes:
        out: the checkpoint.
        added: how many tokens are new.
        first_coord: id of bin 0's token.
        reused: how many of the new ids lie in rows the base had as padding.
        rows_before: rows of the base's tables.
        rows_after: rows of the output's.
        warnings: what could not be checked or did not come along.
    """

    out: Path
    added: int
    first_coord: int
    reused: int
    rows_before: int
    rows_after: int
    warnings: tuple[str, ...]

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.out}: {self.added} tokens added, coordinates from id {self.first_coord}, "
            f"{self.rows_before} -> {self.rows_after} rows ({self.reused} new ids in padding the base had)"
        )


def expand_vocab(
    base: Path,
    out: Path,
    *,
    wildcard: bool = True,
    markers: bool = False,
    init: str = "mean",
    seed: int = 0,
    force: bool = False,
    max_shard_size: int | None = None,
    quiet: bool = False,
) -> ExpandReport:
    """Add the wildcard, the coordinate tokens and, if asked, the "obj" markers to a checkpoint.

    Existing ids never move. A base that has everything is copied as it is.

    Args:
        base: the checkpoint folder.
        out: the folder to make; it appears whole or not at all.
        wildcard: whether `<|coord_*|>` comes first, as the specification's ids have it.
        markers: whether `<obj_start>` and `<obj_end>` follow.
        init: "mean" or "smooth"; see `new_rows`.
        seed: of the rows' noise.
        force: whether an existing checkpoint folder is replaced.
        max_shard_size: bytes of tensors per file; None keeps the base's files.
        quiet: whether to show no progress.

    Raises:
        InputError: for anything about the base that forbids it; nothing was written.
        ExportError: if writing fails; nothing was written.
    """
    base, out = Path(base), Path(out)
    if init not in INITS:
        raise InputError(f"--init: expected one of {', '.join(INITS)}, found {init!r}")
    notes = check_out(out, (base,), force)
    checkpoint = open_checkpoint(base)
    tables, new = find_tables(checkpoint), find_new_tokens(base, wildcard=wildcard, markers=markers)
    rows = _check_rows(checkpoint, tables, new)
    rows_after = max(rows, -(-new.size // _MULTIPLE) * _MULTIPLE) if new.size > rows else rows
    recipes = _recipes(checkpoint, tables, new, rows_after=rows_after, init=init, seed=seed)
    companions, warnings = find_companions(base)
    export = Export(
        checkpoint,
        recipes,
        _with_vocab_size(checkpoint.config, rows_after),
        companions,
        _entry(new, rows, rows_after, init, seed) if new.tokens or rows_after != rows else None,
        extend_tokenizer(base, new),
    )

    def check(stage: Path) -> None:
        check_tokenizer(stage, new)

    write_export(export, out, force=force, max_shard_size=max_shard_size, quiet=quiet, verify=check)
    reused = max(0, min(rows, new.size) - new.vocabulary.size)
    return ExpandReport(out, len(new.tokens), new.first_coord, reused, rows, rows_after, (*notes, *warnings))


def _check_rows(base: Checkpoint, tables: Tables, new: NewTokens) -> int:
    """Tables, configuration and tokenizer must agree about the rows; returns how many there are."""
    path, rows = base.folder / "config.json", base.tensors[tables.embed].rows
    for name in (tables.embed, HEAD):
        if name in base.tensors and (
            base.tensors[name].rows != rows or base.tensors[name].dtype not in FLOATS
        ):
            raise InputError(f"{base.folder}: {name}: expected {rows} rows of floats")
    if (said := base.config.get("text_config", base.config).get("vocab_size")) != rows:
        raise InputError(f"{path}: vocab_size is {said}, the embedding has {rows} rows")
    if "lm_head.bias" in base.tensors:
        raise InputError(f"{base.folder}: lm_head.bias: a head with a bias cannot be extended")
    if not new.vocabulary.size:
        raise InputError(f"{base.folder / 'tokenizer.json'}: expected tokens, found none")
    taken = range(new.vocabulary.size, new.size)
    for name, value in (base.config | base.config.get("text_config", {})).items():
        if name.endswith("_token_id") and value in taken:
            raise InputError(
                f"{path}: {name} is {value}, an id without a token that would become a coordinate's"
            )
    return rows


def _recipes(
    base: Checkpoint, tables: Tables, new: NewTokens, *, rows_after: int, init: str, seed: int
) -> dict[str, Recipe]:
    recipes = {name: copy_of(tensor) for name, tensor in base.tensors.items()}
    rows = base.tensors[tables.embed].rows
    first = min(new.vocabulary.size, rows)
    # New tokens, then whatever padding the grown table has; padding the base had and no token takes stays.
    ids = range(first, rows_after if rows_after > rows else new.size)
    if not ids:
        return recipes
    coords = CoordVocab(new.first_coord).ids
    names = [name for name in (tables.embed, HEAD) if name in base.tensors]
    for k, name in enumerate(names):
        table = base.tensors[tables.embed if tables.tied else name]
        fresh = make_rows(table, first, ids, coords=coords, init=init, seed=seed + (0 if tables.tied else k))
        shape = (rows_after, *table.shape[1:])
        recipes[name] = replace(recipes[name], source=table, shape=shape, steps=(NewRowsStep(first, fresh),))
    return recipes


def _with_vocab_size(config: dict, rows: int) -> dict:
    changed = dict(config)
    if "vocab_size" in config:
        changed["vocab_size"] = rows
    if "vocab_size" in config.get("text_config", {}):
        changed["text_config"] = config["text_config"] | {"vocab_size": rows}
    return changed


def _entry(new: NewTokens, rows: int, rows_after: int, init: str, seed: int) -> dict:
    return {
        "kind": "expand-vocab",
        "tokens": [new.tokens[0], new.tokens[-1]] if new.tokens else [],
        "added": len(new.tokens),
        "first_coord": new.first_coord,
        "rows_before": rows,
        "rows": rows_after,
        "init": {"name": init, "seed": seed, "noise": NOISE},
    }
