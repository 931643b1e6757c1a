"""`expand-vocab`: adds the coordinate tokens to a checkpoint's tokenizer, configuration and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_adapter.initial_rows import INITS, NOISE, new_token_rows
from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, coord_tokens
from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_exporter.checkpoint.folder import Export, find_companions, write_export
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo, open_checkpoint, read_object
from coord_exporter.checkpoint.recipe import Recipe, copy_of, read_rows
from coord_exporter.checkpoint.staging import ExportError, check_out
from coord_exporter.form4 import check_form, in_form
from coord_exporter.inputs import find_folder
from coord_exporter.steps import RowsStep
from coord_exporter.vocabulary import Tables, Vocabulary, find_tables, read_vocabulary, with_one_tie

if TYPE_CHECKING:
    import torch

_MULTIPLE = 64  # the number of rows is padded to a multiple, as in Qwen: matrix products are faster
_CHUNK_ROWS = 2048
_PER_LAYER = "embed_tokens_per_layer.weight"
"""Ending of the name of Gemma's second table of tokens, which its layers add; Gemma 3n leaves out those beyond it."""


@dataclass(frozen=True)
class ExpandReport:
    """Result of `expand_vocab`.

    Attributes:
        out: the checkpoint
        added: number of new tokens
        first_coord: id of the token of bin 0
        reused: number of new ids whose rows were padding in the base
        rows_before: number of rows of the base's tables
        rows_after: number of rows of the output's tables
        warnings: checks that were not possible, and files that were not copied
    """

    out: Path
    added: int
    first_coord: int
    reused: int
    rows_before: int
    rows_after: int
    warnings: tuple[str, ...]

    def summary(self) -> str:
        """Return the report as one line of text."""
        return (
            f"{self.out}: {counted(self.added, 'token')} added, coordinates from id {self.first_coord}, "
            f"{self.rows_before} -> {self.rows_after} rows ({self.reused} new ids in padding rows of the base)"
        )


@dataclass(frozen=True)
class NewTokens:
    """Tokens to add, in the order of their ids.

    Attributes:
        vocabulary: the vocabulary before
        tokens: the tokens to add
        first_coord: id of the token of bin 0 afterwards
    """

    vocabulary: Vocabulary
    tokens: tuple[str, ...]
    first_coord: int

    @property
    def ids(self) -> dict[str, int]:
        """Ids of the new tokens: the next free ones."""
        return {token: number for number, token in enumerate(self.tokens, self.vocabulary.size)}

    @property
    def size(self) -> int:
        """Size of the vocabulary afterwards."""
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
    form: int | None = None,
) -> ExpandReport:
    """Add the wildcard, the coordinate tokens and optionally the "obj" markers to a checkpoint.

    Existing ids do not change. A base that has all tokens already is copied unchanged.

    Args:
        base: the checkpoint folder, or a hub id in the local hub cache
        out: the folder to create; it is complete or does not appear
        wildcard: whether to add `<|coord_*|>` before the coordinate tokens
        markers: whether to add `<obj_start>` and `<obj_end>` after them
        init: "mean" or "smooth"; see `coord_adapter.initial_rows`
        seed: seed of the new rows' noise
        force: whether to replace an existing folder that an export wrote
        max_shard_size: bytes of tensors per file; None keeps the base's files
        quiet: whether to show no progress
        form: 4 writes the small files as transformers 4 did; None keeps the base's

    Raises:
        InputError: if the base cannot be expanded; nothing was written
        ExportError: if writing fails; nothing was written
    """
    base = find_folder(base)
    out = Path(out)
    if init not in INITS:
        raise InputError(f"--init: expected one of {', '.join(INITS)}, found {init!r}")
    check_form(form)
    check_out(out, (base,), force)
    checkpoint = open_checkpoint(base)
    tables = find_tables(checkpoint)
    new = find_new_tokens(base, wildcard=wildcard, markers=markers)
    rows = _check_rows(checkpoint, tables, new)
    rows_after = max(rows, -(-new.size // _MULTIPLE) * _MULTIPLE) if new.size > rows else rows
    companions, left_out = find_companions(checkpoint)
    config, config_notes = with_one_tie(checkpoint, tables.tied)
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
        _with_vocab_size(config, rows_after),
        companions,
        entry if new.tokens or rows_after != rows else None,
        extend_tokenizer(base, new),
    )
    write_export(
        in_form(export, form),
        out,
        force=force,
        max_shard_size=max_shard_size,
        quiet=quiet,
        verify=lambda stage: check_tokenizer(stage, new),
    )
    reused = max(0, min(rows, new.size) - new.vocabulary.size)
    notes = [*left_out, *config_notes]
    if (rowless := new.vocabulary.size - rows) > 0:
        notes.append(
            f"{base}: the tables have {rows:,} rows and the tokenizer {new.vocabulary.size:,} tokens: "
            f"{counted(rowless, 'older token')}, ids {rows} to {new.vocabulary.size - 1}, got new rows too; if that is "
            "not meant, take the tokenizer that was saved with the weights"
        )
    if rows_after % _MULTIPLE:
        notes.append(
            f"the tables have {rows_after:,} rows, no multiple of {_MULTIPLE}: products with the head may take several "
            "times as long on a GPU; load the base, call resize_token_embeddings(pad_to_multiple_of=64), and save it"
        )
    return ExpandReport(out, len(new.tokens), new.first_coord, reused, rows, rows_after, tuple(notes))


def find_new_tokens(folder: Path, *, wildcard: bool, markers: bool) -> NewTokens:
    """Decide which tokens are added to a checkpoint's vocabulary.

    Raises:
        InputError: without a fast tokenizer, for an incomplete set of coordinate tokens, or if the wildcard could
            precede them only by changing existing ids
    """
    vocabulary = read_vocabulary(folder)
    if vocabulary is None:
        raise InputError(f"{folder}: tokenizer.json is missing; save the tokenizer with a fast class first")
    coords = vocabulary.coord_vocab()
    wildcard_id = vocabulary.ids.get(WILDCARD_TOKEN)
    if coords is not None and wildcard and wildcard_id is None:
        raise InputError(
            f"{folder}: the tokenizer has the coordinate tokens without {WILDCARD_TOKEN}: adding it before "
            "them would change their ids; use --no-wildcard"
        )
    if coords is None and wildcard_id not in (None, vocabulary.size - 1):
        raise InputError(
            f"{folder}: {WILDCARD_TOKEN} has id {wildcard_id} and other tokens follow it; the coordinate tokens cannot "
            "follow it without changing ids: start from the original tokenizer"
        )
    wanted = [WILDCARD_TOKEN] if wildcard else []
    wanted += coord_tokens() + (list(MARKERS["obj"].tokens) if markers else [])
    missing = tuple(token for token in wanted if token not in vocabulary.ids)
    first = coords.first_id if coords else vocabulary.size + missing.index(coord_tokens()[0])
    return NewTokens(vocabulary, missing, first)


def extend_tokenizer(folder: Path, new: NewTokens) -> dict[str, dict[str, Any]]:
    """Return the tokenizer files with the new tokens, by file name; empty if there is nothing to add.

    They are added as ordinary tokens, so that decoding with skip_special_tokens keeps the coordinates of an answer.
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
    """Raise `ExportError` if the written tokenizer does not encode every token, old or new, as its id."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids_by_token = tokenizer.get_vocab(with_added_tokens=True)
    for token, token_id in (new.vocabulary.ids | new.ids).items():
        if ids_by_token.get(token) != token_id:
            raise ExportError(f"tokenizer: {token} would get id {ids_by_token.get(token)} instead of {token_id}")
    try:
        coords = CoordVocab.from_tokenizer(_Encoder(tokenizer))
    except ValueError as error:
        raise ExportError(f"tokenizer: {error}") from None
    if coords.first_id != new.first_coord:
        raise ExportError(f"tokenizer: coordinate tokens start at {coords.first_id} instead of {new.first_coord}")


class _Encoder:
    """The two methods of a Hugging Face tokenizer that `CoordVocab.from_tokenizer` calls."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


def _check_rows(base: StoredCheckpoint, tables: Tables, new: NewTokens) -> int:
    """Check that tables, configuration and tokenizer agree about the number of rows, and return it."""
    path = base.folder / "config.json"
    rows = base.tensors[tables.embed].rows
    for name in {tables.embed, tables.head} & base.tensors.keys():
        if base.tensors[name].rows != rows or base.tensors[name].dtype not in FLOATS:
            found = f"{base.tensors[name].rows} of {base.tensors[name].dtype}"
            raise InputError(
                f"{base.folder}: {name}: expected {rows} rows of floats as in the embedding, found {found}"
            )
    if (stated := base.config.get("text_config", base.config).get("vocab_size")) != rows:
        raise InputError(f"{path}: vocab_size is {stated}, the embedding has {rows} rows")
    if (bias := f"{tables.head.removesuffix('.weight')}.bias") in base.tensors:
        raise InputError(f"{base.folder}: {bias}: a head with a bias cannot be extended")
    for name, tensor in base.tensors.items():
        if name.endswith(_PER_LAYER) and tensor.rows < new.size and base.config.get("model_type") != "gemma3n":
            raise InputError(
                f"{base.folder}: {name}: has {tensor.rows} rows, one for each token beside its embedding; {new.size} "
                "tokens cannot be looked up in it: take another model"
            )
    if not new.vocabulary.size:
        raise InputError(f"{base.folder / 'tokenizer.json'}: expected tokens, found none")
    taken = range(new.vocabulary.size, new.size)
    for name, value in (base.config | base.config.get("text_config", {})).items():
        if name.endswith("_token_id") and value in taken:
            raise InputError(f"{path}: {name} is {value}, an unused id that a new coordinate token would get")
    return rows


def _recipes(
    base: StoredCheckpoint, tables: Tables, new: NewTokens, rows_after: int, init: str, seed: int
) -> dict[str, Recipe]:
    recipes = {name: copy_of(tensor) for name, tensor in base.tensors.items()}
    rows = base.tensors[tables.embed].rows
    first = min(new.vocabulary.size, rows)
    # Initialise the rows of new tokens and new padding; padding rows of the base that no token uses do not change.
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
    """Return mean and standard deviation [H] of the first rows of a table, computed in two passes in float64."""

    def chunks() -> Iterable[torch.Tensor]:
        for lo in range(0, trained, _CHUNK_ROWS):
            yield read_rows(table, lo, min(lo + _CHUNK_ROWS, trained)).double()

    mean = reduce(add, (chunk.sum(0) for chunk in chunks())) / trained
    variance = reduce(add, (((chunk - mean) ** 2).sum(0) for chunk in chunks())) / trained
    return mean.float(), variance.sqrt().float()


def _with_vocab_size(config: dict[str, Any], rows: int) -> dict[str, Any]:
    changed = dict(config)
    if "vocab_size" in config:
        changed["vocab_size"] = rows
    if "vocab_size" in config.get("text_config", {}):
        changed["text_config"] = config["text_config"] | {"vocab_size": rows}
    return changed
