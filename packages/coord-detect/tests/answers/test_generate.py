"""What is recorded at a generated token, against probabilities computed from the logits."""

from itertools import accumulate

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab
from coord_detect.model.token_statistics import StepRecorder


def test_recorder_takes_distributions_over_the_coordinates():
    grid = CoordGrid()
    vocab = CoordVocab(5, grid)
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 1010, generator=generator, dtype=torch.float32) * 3
    recorder = StepRecorder(vocab)
    assert recorder(torch.zeros(3, 1, dtype=torch.long), scores) is scores
    p = torch.softmax(scores.double(), dim=1)
    inside = p[:, 5:1005]
    q, values = inside / inside.sum(dim=1, keepdim=True), torch.arange(1000).double() / 1000
    mean = (q * values).sum(dim=1)
    spread = ((q * (values - mean[:, None]) ** 2).sum(dim=1)) ** 0.5
    (found,) = recorder.steps
    for value, expected in (
        (found["expected"], mean),
        (found["spread"], spread),
        (found["mass"], inside.sum(dim=1)),
        (found["log_p"], p.max(dim=1).values.log()),
    ):
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-6)
    for row, quantiles in zip(q.tolist(), found["quantiles"].tolist(), strict=True):
        below = list(accumulate(row))
        at = [next(k for k, mass in enumerate(below) if mass >= (i + 0.5) / 7) for i in range(7)]
        assert quantiles == pytest.approx([k / 1000 for k in at])


def test_the_mass_of_the_coordinates_is_that_before_the_grammar():
    vocab = CoordVocab(2, CoordGrid(4))
    logits_BV = torch.tensor([[2.0, 1.0, 0.5, 0.0, -0.5, 0.3, 1.5]])
    banned = torch.tensor([True, True, False, False, False, False, True])
    recorder = StepRecorder(vocab, lambda ids, scores: scores.masked_fill(banned, -torch.inf))
    recorder(torch.zeros(1, 1, dtype=torch.long), logits_BV)
    weights = logits_BV[0].double().exp()
    assert recorder.steps[0]["mass"].item() == pytest.approx((weights[2:6].sum() / weights.sum()).item())
