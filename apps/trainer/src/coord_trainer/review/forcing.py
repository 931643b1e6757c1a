"""Teacher forcing: how likely a model finds the labels of an image, token by token, in one forward pass.

The labels are written as the model would say them (`spoken.py`) after its own prompt. Each token is conditioned on the
labels before it, as in training, and so on faults in them: a label after a wrong one may look worse, or better, than
it is. With `context: "alone"` each label is an answer of its own, which no other label can spoil, but then a name is
judged as the first of an answer.

Shapes: B answers, T tokens, R rows, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from PIL import Image
from torch import nn

from coord_codec import Instance
from coord_trainer.answers.coordinates import coordinate_statistics
from coord_trainer.answers.generate import prompt_inputs
from coord_trainer.answers.grammar.markers import DescriptionTrie
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.targets import marker_ids
from coord_trainer.model.checkpoint import LoadedCheckpoint
from coord_trainer.review.spoken import Spoken, label_order, speak

Context = Literal["labels", "alone"]
Choice = tuple[list[int], list[int]]
"""Token ids that a label chooses among, and all ids that known names allow in their place."""
Tokens = tuple[list[int], list[tuple[int, list[int], list[list[int]]]]]
"""Ids of an answer with its end; of each label the index, and the places of its name and of each coordinate."""
NEAR = 0.02
"""Distance in [0, 1] from a label's coordinate within which probability counts as near it."""
_ROWS = 512
"""Rows whose logits are computed at once: with a vocabulary of 150,000 tokens they take 300 MB."""


@dataclass(frozen=True)
class ForcedLabel:
    """How likely one label is, given the image and what stands before it.

    Attributes:
        index: its place in the record's `objects`
        name_logprob: log-probability of its name, summed over tokens
        name_logprob_closed: the same normalised over the known names; None without known names, or in JSON
        coord_logprobs: log-probability of each coordinate, summed over the digits of a plain number
        coord_expected: expectation of each coordinate in [0, 1]; like all that follows None for plain numbers
        coord_spread: standard deviation of each coordinate in [0, 1]
        coord_entropy: entropy of each coordinate in nats, over the coordinate tokens
        coord_near: probability of the bins within `NEAR` of each coordinate of the label
    """

    index: int
    name_logprob: float
    name_logprob_closed: float | None
    coord_logprobs: tuple[float, ...]
    coord_expected: tuple[float, ...] | None = None
    coord_spread: tuple[float, ...] | None = None
    coord_entropy: tuple[float, ...] | None = None
    coord_near: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ForcedAnswer:
    """The labels of one image, and how likely the model finds it that there are no more.

    Attributes:
        labels: in the order of the answer
        beyond: number of labels beyond `data.max_objects`, which are not judged
        end_logprob: log-probability of the end of the answer after the last label; None where labels stand alone
    """

    labels: tuple[ForcedLabel, ...]
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
    config: RunConfig
    names: frozenset[str] = frozenset()

    def __call__(
        self, images: Sequence[Image.Image], instances: Sequence[Instance], context: Context = "labels"
    ) -> list[ForcedAnswer]:
        """Return the likelihoods of the labels of a batch of images.

        Args:
            images: upright and RGB
            instances: their records
            context: what a label is conditioned on: the labels before it, or (`alone`) the image only
        """
        data, tokens = self.config.data, self.config.custom.coord_tokens.enabled
        orders = [label_order(instance, data) for instance in instances]
        asked: list[tuple[int, Spoken]] = []
        for number, (instance, (indices, _)) in enumerate(zip(instances, orders, strict=True)):
            groups = [indices] if context == "labels" else [[index] for index in indices]
            asked += [(number, speak(instance, group, data, tokens)) for group in groups]
        found: list[list[ForcedLabel]] = [[] for _ in images]
        ends: list[float | None] = [None] * len(images)
        for start in range(0, len(asked), len(images) or 1):
            batch = asked[start : start + len(images)]
            answers = self._force([images[number] for number, _ in batch], [spoken for _, spoken in batch])
            for (number, _), (labels, end) in zip(batch, answers, strict=True):
                found[number] += labels
                ends[number] = end if context == "labels" else None
        return [
            ForcedAnswer(tuple(labels), beyond, end)
            for labels, (_, beyond), end in zip(found, orders, ends, strict=True)
        ]

    @torch.inference_mode()
    def _force(
        self, images: Sequence[Image.Image], answers: Sequence[Spoken]
    ) -> list[tuple[list[ForcedLabel], float | None]]:
        """Return the labels of each answer, and the log-probability of its end."""
        # Tokens: which of them belong to a name or a coordinate of which label.
        read = [self._tokens(spoken) for spoken in answers]
        inputs = self._inputs(images, [ids for ids, _ in read])
        prompt = inputs["input_ids"].shape[1] - max(len(ids) for ids, _ in read)
        places = [(row, place) for row, (ids, labels) in enumerate(read) for place in _needed(ids, labels)]

        # The model: hidden states of the rows before those tokens, then logits of a few rows at a time.
        hidden_RH = _hidden_rows(self.checkpoint.model, inputs, [(row, prompt + place - 1) for row, place in places])
        head = self.checkpoint.model.get_output_embeddings()
        targets = [read[row][0][place] for row, place in places]
        choices = self._choices(read, places)
        rows: dict[tuple[int, int], dict[str, float]] = {}
        for start in range(0, len(places), _ROWS):
            part = slice(start, start + _ROWS)
            logits_RV = head(hidden_RH[part]).float()
            rows |= zip(places[part], self._statistics(logits_RV, targets[part], choices[part]), strict=True)

        # Labels: sums over their tokens.
        return [
            ([self._label(rows, row, label) for label in labels], rows[row, len(ids) - 1]["log_p"])
            for row, (ids, labels) in enumerate(read)
        ]

    def _tokens(self, spoken: Spoken) -> Tokens:
        """Return the ids of an answer, and which of them belong to which label."""
        tokenizer = self.checkpoint.processor.tokenizer
        encoded = tokenizer(spoken.text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]

        def places(span: tuple[int, int]) -> list[int]:
            return [place for place, (a, b) in enumerate(offsets) if a < span[1] and b > span[0]]

        labels = [(one.index, places(one.name), [places(span) for span in one.coordinates]) for one in spoken.labels]
        return [*encoded["input_ids"], tokenizer.eos_token_id], labels

    def _inputs(self, images: Sequence[Image.Image], answers: Sequence[list[int]]) -> dict[str, torch.Tensor]:
        """Return the model's inputs: prompts padded on the left, then the answers padded on the right."""
        inputs = dict(prompt_inputs(self.checkpoint, list(images), self.config.data.prompt))
        prompt_BT = inputs["input_ids"]
        longest = max(map(len, answers))
        added = {
            "input_ids": prompt_BT.new_zeros(len(answers), longest),
            "attention_mask": prompt_BT.new_zeros(len(answers), longest),
        }
        for row, ids in enumerate(answers):
            added["input_ids"][row, : len(ids)] = torch.tensor(ids, device=prompt_BT.device)
            added["attention_mask"][row, : len(ids)] = 1
        for name, values in inputs.items():
            if values.shape == prompt_BT.shape:
                end = added.get(name, added["attention_mask"] * 0)
                inputs[name] = torch.cat([values, end.to(values.dtype)], dim=1)
        return inputs

    def _choices(self, read: Sequence[Tokens], places: Sequence[tuple[int, int]]) -> list[Choice | None]:
        """Return what the known names leave to choose at each place: what the label chooses, and all there is."""
        choices: dict[tuple[int, int], Choice] = {}
        trie, closers = self._trie
        for row, (ids, labels) in enumerate(read if trie is not None else ()):
            for _, name, _ in labels:
                tokens = [ids[place] for place in name]
                for count in range(len(name) + 1):
                    beginning = tuple(tokens[:count])
                    further = trie.following(beginning)
                    ends = closers if beginning and trie.left(beginning) == 0 else []
                    chosen = tokens[count : count + 1] or ends
                    if further:  # else the name can only end here
                        choices[row, name[0] + count] = chosen, [*further, *ends]
        return [choices.get(place) for place in places]

    @cached_property
    def _trie(self) -> tuple[DescriptionTrie | None, list[int]]:
        """The known names as the grammar has them, and the tokens that may follow a complete one."""
        vocab, data, tokenizer = self.checkpoint.vocab, self.config.data, self.checkpoint.processor.tokenizer
        markers = marker_ids(data, tokenizer)
        if not self.names or markers is None or vocab is None:
            return None, []
        known = [tokenizer(name, add_special_tokens=False)["input_ids"] for name in sorted(self.names)]
        return DescriptionTrie(known), list(vocab.ids) if len(markers) == 2 else [markers[1]]

    def _statistics(
        self, logits_RV: torch.Tensor, targets: Sequence[int], choices: Sequence[Choice | None]
    ) -> Iterator[dict[str, float]]:
        """Yield the statistics of each row."""
        target_R = torch.tensor(targets, device=logits_RV.device)
        named = {"log_p": logits_RV.gather(1, target_R[:, None])[:, 0] - logits_RV.logsumexp(dim=1)}
        if (vocab := self.checkpoint.vocab) is not None:
            named |= coordinate_statistics(logits_RV, vocab)
            del named["quantiles"]
            p_RK = logits_RV[:, vocab.first_id : vocab.first_id + len(vocab.ids)].softmax(dim=1)
            named["entropy"] = torch.special.entr(p_RK).sum(dim=1)
            bins_K = torch.arange(p_RK.shape[1], device=p_RK.device)
            is_near_RK = (bins_K - (target_R - vocab.first_id)[:, None]).abs() <= NEAR * vocab.grid.scale
            named["near"] = (p_RK * is_near_RK).sum(dim=1)
        chosen = [(row, choice) for row, choice in enumerate(choices) if choice is not None]
        named_C = [_total(logits_RV[row], some) - _total(logits_RV[row], every) for row, (some, every) in chosen]
        closed = dict(zip((row for row, _ in chosen), torch.stack(named_C).tolist() if named_C else (), strict=True))
        read = {name: values.tolist() for name, values in named.items()}
        for row in range(len(targets)):
            yield {name: values[row] for name, values in read.items()} | {"closed": closed.get(row, 0.0)}

    def _label(self, rows: Mapping[Any, Any], row: int, label: tuple[int, list[int], list[list[int]]]) -> ForcedLabel:
        index, name, coordinates = label
        closed = None
        if self._trie[0] is not None:
            closed = sum(rows[row, place]["closed"] for place in (*name, name[-1] + 1))
        found = [[rows[row, place] for place in places] for places in coordinates]
        log_p = tuple(sum(one["log_p"] for one in places) for places in found)
        named = sum(rows[row, place]["log_p"] for place in name)
        if self.checkpoint.vocab is None:
            return ForcedLabel(index, named, closed, log_p)
        statistics = (tuple(places[0][key] for places in found) for key in ("expected", "spread", "entropy", "near"))
        return ForcedLabel(index, named, closed, log_p, *statistics)


def _needed(ids: Sequence[int], labels: Sequence[tuple[int, list[int], list[list[int]]]]) -> list[int]:
    """Return the places whose logits are needed: of names, the token after each, coordinates, and the end."""
    needed = {len(ids) - 1}
    for _, name, coordinates in labels:
        needed |= {*name, name[-1] + 1, *(place for places in coordinates for place in places)}
    return sorted(needed)


def _total(logits_V: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """Return the log of the total probability of some tokens, up to the normalisation of all."""
    return logits_V[torch.tensor(ids, device=logits_V.device)].logsumexp(0)


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
