"""Trains draft embeddings on a frozen model: they learn its own distributions of the coordinates behind the first.

The prompt and the true answer pass once without gradients. Those of all objects follow in a second pass over the
same keys and values, with the positions of the coordinates from which they draft: one attends to what is before the
object's first coordinate and to those before it, never to a coordinate. What it should answer is the distribution
that the model has there once it knows the coordinates before, since a draft is accepted if the model then agrees.

Shapes: B images, T tokens of the padded prompt, L tokens of the padded answers, S draft embeddings of an object, W = S
times the most objects of an image, N of the batch, V vocabulary, K coordinate tokens, H hidden size.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from coord_codec import InputError, Instance, find_layout
from coord_data.image_set import ImageSet
from coord_losses import soft_cross_entropy, wasserstein1
from coord_trainer.answers.speed.forced import ForcedTokens
from coord_trainer.answers.speed.of_checkpoint import FAST_TOLERANCE
from coord_trainer.answers.speed.passes import attention_mask, followed_by, position_shift
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.targets import TargetWriter, marker_ids
from coord_trainer.model.checkpoint import LoadedCheckpoint
from coord_trainer.model.prompt import prompt_tokens

_RATE = 0.05
"""Learning rate relative to the size of a coordinate's embedding."""
_HELD_OUT = 0.1
"""Share of the images that only measure."""
_KEPT_BYTES = 2**30
"""Prepared batches are kept for later epochs up to this size."""


@dataclass(frozen=True)
class Agreement:
    """How often drafted coordinates agree with the model, on images that the drafts were not trained on.

    Attributes:
        equal: share of drafted coordinates that are the model's likeliest, for each draft embedding
        near: share that is at most `FAST_TOLERANCE` bins away
        coordinates: number of drafted coordinates
    """

    equal: tuple[float, ...]
    near: tuple[float, ...]
    coordinates: int


@dataclass(frozen=True)
class _Batch:
    inputs: Mapping[str, torch.Tensor]
    answer_length: int
    first_BM: list[list[int]]
    """Positions of the first coordinate of each object in the answers."""


def train_drafts(
    checkpoint: LoadedCheckpoint, config: RunConfig, images: ImageSet, *, steps: int, batch: int, seed: int
) -> tuple[torch.Tensor, Agreement]:
    """Return the draft embeddings [S, H] of a frozen model and how often they agree with it.

    Args:
        checkpoint: the model; its weights stay as they are
        config: as the model was trained
        images: annotated images
        steps: optimizer steps
        batch: images of a step
        seed: of the initial rows and the order of the batches

    Raises:
        InputError: shapes vary in their number of coordinates, or there are too few images with objects.
    """
    trainer = _Drafts(checkpoint, config, images)
    usable = [index for index, instance in enumerate(images.instances) if instance.targets]
    order = random.Random(seed)
    order.shuffle(usable)
    groups = [usable[start : start + batch] for start in range(0, len(usable), batch)]
    held = max(1, round(len(groups) * _HELD_OUT))
    if len(groups) <= held:
        raise InputError(f"slots: expected more than {batch} images with objects, found {len(usable)}; name more")
    measured, trained = groups[:held], groups[held:]
    rows_SH = trainer.initial(seed)
    frozen = [parameter for parameter in checkpoint.model.parameters() if parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    rate = _RATE * trainer.row_size
    optimizer = torch.optim.AdamW([rows_SH], lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    bar = tqdm(total=steps, desc="drafts", unit="step", mininterval=1.0)
    for step, group in enumerate(_endless(trained, order, steps)):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / steps)) / 2
        logits_NK, targets_NK, _ = trainer.forward(trainer.batch(group), rows_SH)
        cross_entropy, distance = soft_cross_entropy(logits_NK, targets_NK), wasserstein1(logits_NK, targets_NK)
        loss = (cross_entropy.sum + distance.sum) / cross_entropy.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        bar.update()
    bar.close()
    for parameter in frozen:
        parameter.requires_grad_(True)
    return rows_SH.detach(), trainer.measure(measured, rows_SH.detach())


def _endless(groups: Sequence[list[int]], order: random.Random, steps: int) -> Iterator[list[int]]:
    """Yield the groups of as many steps, in another order in each epoch."""
    for step in range(steps):
        if step % len(groups) == 0:
            shuffled = order.sample(groups, len(groups))
        yield shuffled[step % len(groups)]


class _Drafts:
    """Prepares batches and passes the drafts through a frozen model."""

    def __init__(self, checkpoint: LoadedCheckpoint, config: RunConfig, images: ImageSet) -> None:
        if checkpoint.vocab is None:
            raise InputError("slots: the model answers in plain numbers; coordinate tokens alone are drafted")
        self._checkpoint, self._config, self._images, self._vocab = checkpoint, config, images, checkpoint.vocab
        tokenizer = checkpoint.processor.tokenizer
        self.forced = ForcedTokens.for_tokenizer(tokenizer, config.data, checkpoint.vocab)
        if self.forced.sides is None:
            raise InputError(f"slots: a {config.data.geometry} has no fixed number of coordinates to draft")
        self.count = self.forced.sides - 1
        if self.count < 1:
            raise InputError(f"slots: a {config.data.geometry} has no coordinates behind the first")
        self._markers = marker_ids(config.data, tokenizer)
        self._writer = TargetWriter(config.data, True, config.run.seed, checkpoint.vocab)
        self._kept: dict[tuple[int, ...], _Batch] = {}
        self._bytes = 0
        ids_K = torch.tensor(list(checkpoint.vocab.ids), device=checkpoint.model.device)
        with torch.no_grad():
            self._rows_KH = checkpoint.model.get_input_embeddings()(ids_K).float()
        self.row_size = float(self._rows_KH.square().mean().sqrt())

    def initial(self, seed: int) -> torch.Tensor:
        """Return the mean of the coordinates' embeddings S times [S, H], with noise that tells them apart."""
        mean_H = self._rows_KH.mean(dim=0)
        noise_SH = torch.randn(self.count, len(mean_H), generator=torch.Generator().manual_seed(seed))
        return (mean_H + 0.5 * self.row_size * noise_SH.to(mean_H)).requires_grad_()

    def batch(self, group: Sequence[int]) -> _Batch:
        """Return prompts and answers of images, from memory if they were prepared before."""
        key = tuple(group)
        if key not in self._kept:
            made = self._prepare([self._images.instances[i] for i in group], [self._images.image(i) for i in group])
            size = sum(value.nbytes for value in made.inputs.values() if isinstance(value, torch.Tensor))
            if self._bytes + size > _KEPT_BYTES:
                return made
            self._kept[key], self._bytes = made, self._bytes + size
        return self._kept[key]

    def _prepare(self, instances: Sequence[Instance], images: Sequence[Any]) -> _Batch:
        processor, data = self._checkpoint.processor, self._config.data
        answers = [
            processor.tokenizer(self._writer.text(instance), add_special_tokens=False)["input_ids"]
            for instance in instances
        ]
        inputs = followed_by(prompt_tokens(processor, self._checkpoint.system, images, data.prompt), answers)
        layouts = [find_layout(ids, self._vocab, self._markers, data.shape) for ids in answers]
        first = [[found.coord_positions[0] for found in layout.objects] for layout in layouts]
        return _Batch(inputs, max(map(len, answers)), first)

    def forward(self, batch: _Batch, rows_SH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return coordinate logits [N, K] of the drafts, distributions [N, K] of the model, and their numbers [N]."""
        model, device = self._checkpoint.model, self._checkpoint.model.device
        inputs = {name: value.to(device) for name, value in batch.inputs.items()}
        length = inputs["input_ids"].shape[1]
        prompt = length - batch.answer_length
        coordinates = slice(self._vocab.first_id, self._vocab.first_id + len(self._vocab.ids))
        with torch.no_grad():
            output = model(**inputs, use_cache=True, logits_to_keep=batch.answer_length)
            attended_BT = inputs["attention_mask"].bool()
            attended_BT[:, prompt:] = True
            shift_B, axes = position_shift(model, attended_BT)

        # Where the drafts of each object stand: from the place before the next coordinate of the answer.
        draft_S = torch.arange(self.count, device=device)
        ahead_S = (draft_S + 1) * self.forced.stride - 1
        most = max(map(len, batch.first_BM))
        first_BM = torch.tensor([[*row, *[-1] * (most - len(row))] for row in batch.first_BM], device=device)
        valid_BW = (first_BM >= 0).repeat_interleave(self.count, dim=1)
        place_BMS = prompt + first_BM.clamp(min=0)[..., None] + ahead_S
        place_BW = place_BMS.flatten(1)
        position_BW = place_BW + shift_B[:, None]

        # Which positions they attend to: all before the first coordinate, and the drafts of their object up to theirs.
        own_W = torch.arange(place_BW.shape[1], device=device)
        end_BW = (prompt + first_BM.clamp(min=0)).repeat_interleave(self.count, dim=1)
        seen_BWT = (torch.arange(length, device=device) < end_BW[..., None]) & attended_BT[:, None]
        same_WW = (own_W[:, None] // self.count == own_W // self.count) & (own_W <= own_W[:, None])
        seen_BWS = torch.cat([seen_BWT, same_WW.expand(len(seen_BWT), -1, -1)], dim=2)
        logits_BWV = model(
            inputs_embeds=rows_SH.repeat(most, 1).expand(len(seen_BWS), -1, -1).to(output.logits.dtype),
            position_ids=position_BW if axes is None else position_BW.expand(axes, -1, -1),
            attention_mask=attention_mask(model, seen_BWS),
            past_key_values=output.past_key_values,
            use_cache=True,
        ).logits

        # What they should answer: the model's distribution at that place of the true answer.
        within_BW = place_BW - prompt
        targets_BWK = output.logits[..., coordinates].gather(
            1, within_BW[..., None].expand(-1, -1, len(self._vocab.ids))
        )
        drafts_BW = draft_S.repeat(most).expand_as(valid_BW)
        logits_NK = logits_BWV[..., coordinates][valid_BW].float()
        return logits_NK, targets_BWK[valid_BW].float().softmax(dim=1), drafts_BW[valid_BW]

    @torch.no_grad()
    def measure(self, groups: Sequence[Sequence[int]], rows_SH: torch.Tensor) -> Agreement:
        """Return how often the drafted coordinates agree with the model."""
        distances, drafts = [], []
        for group in groups:
            logits_NK, targets_NK, draft_N = self.forward(self.batch(group), rows_SH)
            distances.append((logits_NK.argmax(dim=1) - targets_NK.argmax(dim=1)).abs().cpu())
            drafts.append(draft_N.cpu())
        distance_N, draft_N = torch.cat(distances), torch.cat(drafts)
        by_draft = [distance_N[draft_N == draft] for draft in range(self.count)]
        return Agreement(
            tuple(float((d == 0).float().mean()) for d in by_draft),
            tuple(float((d <= FAST_TOLERANCE).float().mean()) for d in by_draft),
            len(distance_N),
        )
