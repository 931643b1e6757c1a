"""`expand-vocab`: coordinate tokens for a checkpoint's tokenizer, configuration and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_adapter.initial_rows import INITS, NOISE, new_token_rows
from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, coord_tokens
from coord_codec.files import InputError
from coord_exporter.checkpoint.folder import Export, find_companions, write_export
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo, open_checkpoint, read_object
from coord_exporter.checkpoint.recipe import Recipe, copy_of, read_rows
from coord_exporter.checkpoint.staging import ExportError, check_out
from coord_exporter.sources import find_folder
from coord_exporter.steps import RowsStep
from coord_exporter.vocabulary import Tables, Vocabulary, find_tables, read_vocabulary

if TYPE_CHECKING:
    import torch

_MULTIPLE = 64  # tables are padded to it, as Qwen's own: matrix products run at full speed
_CHUNK_ROWS = 2048


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
        """Return one line for people."""
        return (
            f"{self.out}: {self.added} tokens added, coordinates from id {self.first_coord}, "
            f"{self.rows_before} -> {self.rows_after} rows ({self.reused} new ids in padding the base had)"
        )


@dataclass(frozen=True)
class NewTokens:
    """Tokens to add, in the order of their ids.

    Attributes:
        vocabulary: the vocabulary before.
        tokens: the tokens it lacks.
        first_coord: id of the token of bin 0 afterwards.
    """

    vocabulary: Vocabulary
    tokens: tuple[str, ...]
    first_coord: int

    @property
    def ids(self) -> dict[str, int]:
        """The new tokens' ids: the next free ones."""
        return {token: self.vocabulary.size + i for i, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """The vocabulary's size afterwards."""
        return self.vocabulary.size + len(self.tokens)


def expand_vocab(
    base: str | Path,
    out: str | Path,
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
        base: the checkpoint folder, or a hub id that the hub's cache holds
        out: the folder to make; it appears complete or not at all
        wildcard: whether `<|coord_*|>` comes first, as the specification's ids have it
        markers: whether `<obj_start>` and `<obj_end>` follow
        init: "mean" or "smooth"; see `coord_adapter.initial_rows`
        seed: of the rows' noise
        force: whether an existing folder is replaced that an export wrote
        max_shard_size: bytes of tensors per file; None keeps the base's files
        quiet: whether to show no progress

    Raises:
        InputError: for anything about the base that forbids it; nothing was written.
        ExportError: if writing fails; nothing was written.
    """
    base, out = find_folder(base), Path(out)
    if init not in INITS:
        raise InputError(f"--init: expected one of {', '.join(INITS)}, found {init!r}")
    warnings = check_out(out, (base,), force)
    checkpoint = open_checkpoint(base)
    tables, new = find_tables(checkpoint), find_new_tokens(base, wildcard=wildcard, markers=markers)
    rows = _check_rows(checkpoint, tables, new)
    rows_after = max(rows, -(-new.size // _MULTIPLE) * _MULTIPLE) if new.size > rows else rows
    companions, notes = find_companions(checkpoint)
    entry = {
        "kind": "expand-vocab",
        "tokens": [new.tokens[0], new.tokens[-1]] if new.tokens else [],
        "added": len(new.tokens),
        "first_coord": new.first_coord,
        "rows_before": rows,
        "rows": rows_after,
        "init": {"name": init, "seed": seed, "noise": NOISE},
    }
    export = Export(
        checkpoint,
        _recipes(checkpoint, tables, new, rows_after, init, seed),
        _with_vocab_size(checkpoint.config, rows_after),
        companions,
        entry if new.tokens or rows_after != rows else None,
        extend_tokenizer(base, new),
    )
    write_export(
        export,
        out,
        force=force,
        max_shard_size=max_shard_size,
        quiet=quiet,
        verify=lambda stage: check_tokenizer(stage, new),
    )
    reused = max(0, min(rows, new.size) - new.vocabulary.size)
    return ExpandReport(out, len(new.tokens), new.first_coord, reused, rows, rows_after, (*warnings, *notes))


def find_new_tokens(folder: Path, *, wildcard: bool, markers: bool) -> NewTokens:
    """Decide which tokens are added to a checkpoint's vocabulary.

    Raises:
        InputError: without a fast tokenizer, for an incomplete set of coordinate tokens, or where the
            wildcard can no longer come before them: nothing that has an id is moved.
    """
    vocabulary = read_vocabulary(folder)
    if vocabulary is None or not (folder / "tokenizer.json").exists():
        raise InputError(f"{folder}: tokenizer.json is missing; save the tokenizer with a fast class first")
    coords, wildcard_id = vocabulary.coord_vocab(), vocabulary.ids.get(WILDCARD_TOKEN)
    if coords is not None and wildcard and wildcard_id is None:
        raise InputError(
            f"{folder}: the tokenizer has the coordinate tokens without {WILDCARD_TOKEN}: putting it before "
            "them would move their ids; use --no-wildcard"
        )
    if coords is None and wildcard_id not in (None, vocabulary.size - 1):
        raise InputError(
            f"{folder}: {WILDCARD_TOKEN} has id {wildcard_id} and other tokens follow it; the coordinates cannot "
            "come behind it without moving ids: start from the original tokenizer"
        )
    wanted = [WILDCARD_TOKEN] if wildcard else []
    wanted += coord_tokens() + (list(MARKERS["obj"].tokens) if markers else [])
    missing = tuple(token for token in wanted if token not in vocabulary.ids)
    first = coords.first_id if coords else vocabulary.size + missing.index(coord_tokens()[0])
    return NewTokens(vocabulary, missing, first)


def extend_tokenizer(folder: Path, new: NewTokens) -> dict[str, dict]:
    """Return the tokenizer files with the new tokens in them, by file name; empty if there are none to add.

    Boxes are part of the answer, not control tokens: they are added as ordinary tokens, so that decoding with
    skip_special_tokens keeps them.
    """
    if not new.tokens:
        return {}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    files = {"tokenizer.json": read_object(folder / "tokenizer.json")}
    added = files["tokenizer.json"].setdefault("added_tokens", [])
    added += [{"id": token_id, "content": token} | plain for token, token_id in new.ids.items()]
    if (folder / "tokenizer_config.json").exists():
        content = read_object(folder / "tokenizer_config.json")
        if isinstance(content.get("added_tokens_decoder"), dict):
            content["added_tokens_decoder"] |= {str(i): {"content": t} | plain for t, i in new.ids.items()}
            files["tokenizer_config.json"] = content
    if (folder / "added_tokens.json").exists():
        files["added_tokens.json"] = read_object(folder / "added_tokens.json") | new.ids
    return files


def check_tokenizer(folder: Path, new: NewTokens) -> None:
    """Load the written tokenizer and check that every token is one and has its id, old ones as before.

    Raises:
        ExportError: naming the first that is not.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = tokenizer.get_vocab(with_added_tokens=True)
    for token, token_id in (new.vocabulary.ids | new.ids).items():
        if found.get(token) != token_id:
            raise ExportError(f"tokenizer: {token} would get id {found.get(token)} instead of {token_id}")
    try:
        coords = CoordVocab.from_tokenizer(_Encoder(tokenizer))
    except ValueError as error:
        raise ExportError(f"tokenizer: {error}") from None
    if coords.first_id != new.first_coord:
        raise ExportError(f"tokenizer: coordinates start at {coords.first_id} instead of {new.first_coord}")


class _Encoder:
    """The two methods of a Hugging Face tokenizer that `CoordVocab.from_tokenizer` calls."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids


def _check_rows(base: StoredCheckpoint, tables: Tables, new: NewTokens) -> int:
    """Tables, configuration and tokenizer must agree about the rows; returns how many there are."""
    path, rows = base.folder / "config.json", base.tensors[tables.embed].rows
    for name in {tables.embed, tables.head} & base.tensors.keys():
        if base.tensors[name].rows != rows or base.tensors[name].dtype not in FLOATS:
            raise InputError(f"{base.folder}: {name}: expected {rows} rows of floats")
    if (stated := base.config.get("text_config", base.config).get("vocab_size")) != rows:
        raise InputError(f"{path}: vocab_size is {stated}, the embedding has {rows} rows")
    if "lm_head.bias" in base.tensors:
        raise InputError(f"{base.folder}: lm_head.bias: a head with a bias cannot be extended")
    if not new.vocabulary.size:
        raise InputError(f"{base.folder / 'tokenizer.json'}: expected tokens, found none")
    taken = range(new.vocabulary.size, new.size)
    for name, value in (base.config | base.config.get("text_config", {})).items():
        if name.endswith("_token_id") and value in taken:
            raise InputError(f"{path}: {name} is {value}, an id without a token that would become a coordinate's")
    return rows


def _recipes(
    base: StoredCheckpoint, tables: Tables, new: NewTokens, rows_after: int, init: str, seed: int
) -> dict[str, Recipe]:
    recipes = {name: copy_of(tensor) for name, tensor in base.tensors.items()}
    rows = base.tensors[tables.embed].rows
    first = min(new.vocabulary.size, rows)
    # New tokens, then whatever padding the grown table has; padding the base had and no token takes stays.
    ids = range(first, rows_after if rows_after > rows else new.size)
    if not ids:
        return recipes
    coords = CoordVocab(new.first_coord).ids
    for k, name in enumerate(name for name in (tables.embed, tables.head) if name in base.tensors):
        table = base.tensors[tables.embed if tables.tied else name]
        own_seed = seed if tables.tied else seed + k
        fresh = new_token_rows(*_moments(table, first), ids, coords=coords, init=init, seed=own_seed)
        shape = (rows_after, *table.shape[1:])
        recipes[name] = replace(recipes[name], source=table, shape=shape, steps=(RowsStep(ids, fresh),))
    return recipes


def _moments(table: TensorInfo, trained: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation [H] of the first rows of a table, in two passes in float64."""

    def chunks() -> Iterable[torch.Tensor]:
        for lo in range(0, trained, _CHUNK_ROWS):
            yield read_rows(table, lo, min(lo + _CHUNK_ROWS, trained)).double()

    mean = sum(chunk.sum(0) for chunk in chunks()) / trained
    variance = sum(((chunk - mean) ** 2).sum(0) for chunk in chunks()) / trained
    return mean.float(), variance.sqrt().float()


def _with_vocab_size(config: dict, rows: int) -> dict:
    changed = dict(config)
    if "vocab_size" in config:
        changed["vocab_size"] = rows
    if "vocab_size" in config.get("text_config", {}):
        changed["text_config"] = config["text_config"] | {"vocab_size": rows}
    return changed
