"""Teacher forcing: how likely a model finds the labels of an image, token by token, in one forward pass.

The labels are written as answers have them (`label_text.py`) after its own prompt. Each token is conditioned on the
labels before it, as in training, and so on faults in them: a label after a wrong one may look worse, or better, than
it is. Each label as an answer of its own measures worse, since its name is then judged as the first of an answer.

Shapes: B answers, T tokens, R rows, H hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import nn

from coord_codec import Instance
from coord_detect.answers.generate import prompt_inputs
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.model.coordinates import coordinate_statistics
from coord_detect.settings.record import Settings
from coord_detect.speed.passes import followed_by
from coord_eval.review import LabelLikelihood
from coord_trainer.review.label_text import LabelText, label_order, write_labels

TokensOfLabel = tuple[int, list[int], list[list[int]]]
"""Index of a label in its record, the places of its name in the answer, and those of each coordinate."""
Tokens = tuple[list[int], list[TokensOfLabel]]
"""Ids of an answer with its end, and its labels."""
WINDOW = 20
"""Number of bins to either side of a label's coordinate within which probability counts as near it."""
_ROWS = 512
"""Rows whose logits are computed at once: with a vocabulary of 150,000 tokens they take 300 MB."""


@dataclass(frozen=True)
class ForcedAnswer:
    """The labels of one image in the order of the answer, and the log-probability of its end after them.

    `beyond` counts labels beyond `data.max_objects`, which are not judged. There is no `end_logprob` if the
    image cannot be read.
    """

    labels: tuple[LabelLikelihood, ...]
    beyond: int = 0
    end_logprob: float | None = None


@dataclass(frozen=True)
class Forcing:
    """Computes the likelihoods of labels with one model.

    Attributes:
        checkpoint: the model
        config: prompt, markers, style, geometry and order
        names: the known names; empty if names are not limited
    """

    checkpoint: LoadedCheckpoint
    config: Settings
    names: frozenset[str] = frozenset()

    def __call__(
        self, images: Sequence[Image.Image], instances: Sequence[Instance], ids: Sequence[int | str]
    ) -> list[ForcedAnswer]:
        """Return the likelihoods of the labels of a batch of upright RGB images, named by the ids."""
        data, tokens = self.config.data, self.config.custom.coord_tokens.enabled
        orders = [label_order(instance, data) for instance in instances]
        written = [
            write_labels(instance, order, data, tokens) for instance, (order, _) in zip(instances, orders, strict=True)
        ]
        found = []
        for number, (labels, end) in enumerate(self._force(images, written)):
            objects = instances[number].objects
            judged = [
                LabelLikelihood(ids[number], index, objects[index].desc, tuple(objects[index].bbox), **values)
                for index, values in labels
            ]
            judged[-1:] = [replace(one, end_logprob=end) for one in judged[-1:]]
            found.append(ForcedAnswer(tuple(judged), orders[number][1], end))
        return found

    @torch.inference_mode()
    def _force(
        self, images: Sequence[Image.Image], answers: Sequence[LabelText]
    ) -> list[tuple[list[tuple[int, dict[str, Any]]], float]]:
        """Return index and likelihood of each label of each answer, and the log-probability of the answer's end."""
        # Tokens: which of them belong to a name or a coordinate of which label.
        read = [self._tokens(written) for written in answers]
        inputs = prompt_inputs(self.checkpoint, list(images), self.config.data.prompt)
        inputs = followed_by(inputs, [ids for ids, _ in read])
        prompt = inputs["input_ids"].shape[1] - max(len(ids) for ids, _ in read)
        places = [(row, place) for row, (ids, labels) in enumerate(read) for place in _needed(ids, labels)]

        # The model: hidden states of the rows before those tokens, then logits of a few rows at a time.
        hidden_RH = _hidden_rows(self.checkpoint.model, inputs, [(row, prompt + place - 1) for row, place in places])
        head = self.checkpoint.model.get_output_embeddings()
        targets = [read[row][0][place] for row, place in places]
        beginnings = self._beginnings(read)
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for start in range(0, len(places), _ROWS):
            part = slice(start, start + _ROWS)
            logits_RV = head(hidden_RH[part]).float()
            named = [beginnings.get(place) for place in places[part]]
            rows |= zip(places[part], self._statistics(logits_RV, targets[part], named), strict=True)

        # Labels: sums over their tokens.
        return [
            ([(label[0], self._values(rows, row, ids, label)) for label in labels], rows[row, len(ids) - 1]["log_p"])
            for row, (ids, labels) in enumerate(read)
        ]

    def _tokens(self, written: LabelText) -> Tokens:
        """Return the ids of an answer, and which of them belong to which label."""
        tokenizer = self.checkpoint.processor.tokenizer
        encoded = tokenizer(written.text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]

        def places(span: tuple[int, int]) -> list[int]:
            return [place for place, (a, b) in enumerate(offsets) if a < span[1] and b > span[0]]

        labels = [(one.index, places(one.name), [places(span) for span in one.coordinates]) for one in written.labels]
        return [*encoded["input_ids"], tokenizer.eos_token_id], labels

    def _beginnings(self, read: Sequence[Tokens]) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the tokens of a name before each place where known names leave a choice."""
        if self._known is None:
            return {}
        return {
            (row, name[0] + count): tuple(ids[place] for place in name[:count])
            for row, (ids, labels) in enumerate(read)
            for _, name, _ in labels
            for count in range(len(name) + 1)
        }

    @cached_property
    def _known(self) -> KnownNames | None:
        """The known names as tokens; None if names are not limited, or stand in JSON."""
        vocab, data, tokenizer = self.checkpoint.vocab, self.config.data, self.checkpoint.processor.tokenizer
        markers = data.marker_ids(tokenizer)
        if not self.names or markers is None or vocab is None:
            return None
        closers = list(vocab.ids) if len(markers) == 2 else [markers[1]]
        tokens = {tuple(tokenizer(name, add_special_tokens=False)["input_ids"]): name for name in sorted(self.names)}
        return KnownNames(tokens, closers)

    def _statistics(
        self, logits_RV: torch.Tensor, targets: Sequence[int], beginnings: Sequence[tuple[int, ...] | None]
    ) -> Iterator[dict[str, Any]]:
        """Yield the statistics of each row; `choices` are those that `KnownNames.choices` returns."""
        target_R = torch.tensor(targets, device=logits_RV.device)
        named = {"log_p": logits_RV.gather(1, target_R[:, None])[:, 0] - logits_RV.logsumexp(dim=1)}
        if (vocab := self.checkpoint.vocab) is not None:
            named["expected"] = coordinate_statistics(logits_RV, vocab)["expected"]
            p_RK = logits_RV[:, vocab.first_id : vocab.first_id + len(vocab.ids)].softmax(dim=1)
            named["entropy"] = torch.special.entr(p_RK).sum(dim=1)
            bins_K = torch.arange(p_RK.shape[1], device=p_RK.device)
            is_near_RK = (bins_K - (target_R - vocab.first_id)[:, None]).abs() <= WINDOW
            named["near"] = (p_RK * is_near_RK).sum(dim=1).clamp(max=1)
        chosen = {
            row: self._known.choices(logits_RV[row], beginning)
            for row, beginning in enumerate(beginnings)
            if self._known is not None and beginning is not None
        }
        flat = torch.cat(list(chosen.values())).tolist() if chosen else []
        read = {name: values.tolist() for name, values in named.items()}
        for row in range(len(targets)):
            found: dict[str, Any] = {name: values[row] for name, values in read.items()}
            if row in chosen:
                count = len(chosen[row])
                found["choices"], flat = flat[:count], flat[count:]
            yield found

    def _values(
        self, rows: Mapping[tuple[int, int], Any], row: int, ids: Sequence[int], label: TokensOfLabel
    ) -> dict[str, Any]:
        """Return the fields of `LabelLikelihood` of one label."""
        _, name, coordinates = label
        named = [rows[row, place]["log_p"] for place in name]
        found = [[rows[row, place] for place in places] for places in coordinates]
        values: dict[str, Any] = {
            "name_logprob_sum": sum(named),
            "name_logprob_mean": sum(named) / len(named),
            "coord_logprobs": tuple(sum(one["log_p"] for one in places) for places in found),
        }
        if self._known is not None:
            choices = [rows[row, place]["choices"] for place in (*name, name[-1] + 1)]
            logs = self._known.distribution([ids[place] for place in name], choices)
            values |= {"name_logprobs": logs, "name_entropy": sum(-math.exp(x) * x for x in logs.values())}
        if self.checkpoint.vocab is not None:
            for field, key in (("expected", "expected"), ("entropy", "entropy"), ("window_mass", "near")):
                values[f"coord_{field}"] = tuple(places[0][key] for places in found)
            values["window"] = WINDOW
        return values


class KnownNames:
    """The names of a closed set as tokens, and their probabilities in a place where one of them was generated.

    Args:
        names: the names by their tokens
        closers: tokens that may follow a complete name
    """

    def __init__(self, names: Mapping[tuple[int, ...], str], closers: Sequence[int]) -> None:
        self._names, self._closers = names, list(closers)
        self._further: dict[tuple[int, ...], list[int]] = {}
        self._below: dict[tuple[int, ...], list[str]] = {}
        for ids, name in sorted(names.items()):
            for count in range(len(ids) + 1):
                if count and ids[:count] not in self._below:
                    self._further.setdefault(ids[: count - 1], []).append(ids[count - 1])
                self._below.setdefault(ids[:count], []).append(name)

    def choices(self, logits_V: torch.Tensor, beginning: tuple[int, ...]) -> torch.Tensor:
        """Return the log-probabilities of the tokens that continue a name, the last one that of its end."""
        further = torch.tensor(self._further.get(beginning, []), dtype=torch.long, device=logits_V.device)
        parts = [logits_V[further]]
        if beginning in self._names:
            parts.append(logits_V[torch.tensor(self._closers, device=logits_V.device)].logsumexp(0)[None])
        return torch.cat(parts).log_softmax(dim=0)

    def distribution(self, name: Sequence[int], choices: Sequence[Sequence[float]]) -> dict[str, float]:
        """Return the log-probability of every known name, of which one was generated.

        That of the generated name is exact. Where names part from it together, only the total of these is
        known: each gets an equal share. `choices` has what `choices` gave before each token of the name, and
        after the last.
        """
        found: dict[str, float] = {}
        before = 0.0
        for count, logs in enumerate(choices):
            beginning = tuple(name[:count])
            further = self._further.get(beginning, [])
            own = name[count] if count < len(name) else None
            for token, log_p in zip(further, logs, strict=False):
                if token != own:
                    below = self._below[(*beginning, token)]
                    found |= dict.fromkeys(below, before + log_p - math.log(len(below)))
            if beginning in self._names:
                found[self._names[beginning]] = before + logs[len(further)]
            if own is not None:
                before += logs[further.index(own)]
        return found


def _needed(ids: Sequence[int], labels: Sequence[TokensOfLabel]) -> list[int]:
    """Return the places whose logits are needed: of names, the token after each, coordinates, and the end."""
    needed = {len(ids) - 1}
    for _, name, coordinates in labels:
        needed |= {*name, name[-1] + 1, *(place for places in coordinates for place in places)}
    return sorted(needed)


def _hidden_rows(model: Any, inputs: Mapping[str, torch.Tensor], places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return the hidden states [R, H] that the head gets at some places (row, column) of a batch."""
    rows_R, columns_R = torch.tensor(places).T
    taken: list[torch.Tensor] = []

    def take(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden_BTH = args[0]
        taken.append(hidden_BTH[rows_R.to(hidden_BTH.device), columns_R.to(hidden_BTH.device)])
        return (hidden_BTH[:, -1:],)

    hook = model.get_output_embeddings().register_forward_pre_hook(take)
    try:
        model(**inputs, use_cache=False)
    finally:
        hook.remove()
    return taken[0]
