"""Sums of several ranks, of which not all have objects, against the means over one batch."""

import pytest
import tiny_models
import torch

from coord_losses import LossTerm, ObjectiveOutput, supervised_rows
from coord_losses.hf.metrics import StepMetrics
from coord_losses.hf.patch import PatchState


def outputs(vocab_size=60):
    """The objective's output on a batch with objects, on one of text alone, and on both together."""
    words = [{"input_ids": [7, 8, 9, 4], "labels": [-100, 8, 9, 4]} for _ in range(2)]
    samples = [*tiny_models.samples(2), *words]
    torch.manual_seed(0)
    table_VV = torch.randn(vocab_size, vocab_size, dtype=torch.float64)
    found = []
    for part in (samples[:2], samples[2:], samples):
        batch = tiny_models.collator()(part)
        rows_NV, targets_N = supervised_rows(table_VV[batch["input_ids"]], batch["labels"])
        found.append(tiny_models.objective()(rows_NV, targets_N, batch["objects"]))
    return found


def test_ranks_with_and_without_objects_log_the_means_of_the_whole_batch():
    with_objects, text, whole = outputs()
    assert not any(int(term.count) for term in text.diagnostics().values())
    ranks = [PatchState(tiny_models.objective(), fused=True) for _ in range(2)]
    for state, output in zip(ranks, (with_objects, text), strict=True):
        state.add(output, output.diagnostics())
    expected = PatchState(tiny_models.objective(), fused=True)
    expected.add(whole, whole.diagnostics())
    other = ranks[1].metrics._vector
    assert ranks[0].flush(lambda vector: vector + other) == pytest.approx(expected.flush(), rel=1e-9)
    assert ranks[0].flush() == {}


def test_restored_sums_go_on():
    with_objects, text, _ = outputs()
    whole, first, second = (StepMetrics(with_objects.weights) for _ in range(3))
    for metrics in (whole, first):
        metrics.add(with_objects, with_objects.diagnostics(), fallback_boxes=2)
    second.restore(first.sums())
    for metrics in (whole, second):
        metrics.add(text, {})
    assert second.flush() == pytest.approx(whole.flush())


def test_what_was_measured_as_zero_is_logged_and_what_was_not_measured_is_not():
    terms = {"text_ce": LossTerm(torch.tensor(6.0), torch.tensor(2))}
    output = ObjectiveOutput(terms, {"text_ce": 1.0}, {"tokens": torch.tensor(3)}, dict)
    metrics = StepMetrics(output.weights, measured=("mine", "other"))
    assert metrics.flush() == {}
    metrics.add(output, {"mine": LossTerm(torch.tensor(0.0), torch.tensor(4))}, fallback_boxes=2)
    metrics.add(output, {}, fallback_boxes=3)
    sums = metrics.flush()
    assert (sums["fallback_boxes"], sums["batches"], sums["tokens"]) == (5, 2, 6)
    assert metrics.means(sums) == ({"text_ce": 2.0}, {"mine": 0.0}) and metrics.flush() == {}
