"""Trains the draft embeddings of a model on annotated images, and writes them into its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from coord_adapter import DRAFTS_FILE, Drafts, save_drafts
from coord_codec import InputError
from coord_codec.counts import counted
from coord_data.image_set import load_annotated
from coord_trainer.answers.speed.of_checkpoint import FAST_TOLERANCE
from coord_trainer.answers.speed.train_drafts import train_drafts
from coord_trainer.checkpoints import locate_model
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.targets import marker_ids
from coord_trainer.model.card import as_trained
from coord_trainer.model.checkpoint import open_checkpoint


def drafts_of_model(
    model: Path,
    annotations: Path,
    images: Path | None,
    config: RunConfig,
    steps: int,
    batch: int,
    seed: int,
    force: bool,
    strict: bool,
) -> Iterator[str]:
    """Train the draft embeddings of a model and write them into its folder; yields lines for the user.

    Raises:
        InputError: the model has draft embeddings already and `force` is false, or see `train_drafts`.
    """
    folder = locate_model(model)
    if (folder / DRAFTS_FILE).is_file() and not force:
        raise InputError(f"{folder / DRAFTS_FILE}: the model has draft embeddings; --force replaces them")
    resolved = as_trained(config, folder)
    rules = resolved.data.model_copy(update={"images": images, "strict": strict})
    annotated = load_annotated(annotations, rules)
    yield f"{annotations}: {counted(len(annotated), 'image')}, {counted(len(annotated.problems), 'problem')}"
    checkpoint = open_checkpoint(folder, resolved)
    rows_SH, agreement = train_drafts(checkpoint, resolved, annotated, steps=steps, batch=batch, seed=seed)
    assert checkpoint.vocab is not None  # or it was refused
    markers = marker_ids(resolved.data, checkpoint.processor.tokenizer)
    file = save_drafts(folder, Drafts(rows_SH, checkpoint.vocab.fingerprint(markers=markers)))
    yield f"{counted(rows_SH.numel(), 'parameter')} in {file}; the model is as it was"
    yield (
        f"drafts of {counted(agreement.coordinates, 'coordinate')} of other images: {_shares(agreement.equal)} are the "
        f"model's likeliest, {_shares(agreement.near)} at most {FAST_TOLERANCE} bins from it"
    )


def _shares(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0%}" for value in values)
