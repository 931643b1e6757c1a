"""What is recorded at a generated token, against probabilities computed from the logits."""

import json
import resource
from itertools import accumulate

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab, RunError
from coord_trainer.answers.resumable_file import append_answers
from coord_trainer.folder import explain_full_disk
from coord_trainer.model.token_statistics import StepRecorder


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
    for found, expected in (
        (recorder.expected[0], mean),
        (recorder.spread[0], spread),
        (recorder.mass[0], inside.sum(dim=1)),
        (recorder.log_p[0], p.max(dim=1).values.log()),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
    for row, quantiles in zip(q.tolist(), recorder.quantiles[0].tolist(), strict=True):
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
    assert recorder.mass[0].item() == pytest.approx((weights[2:6].sum() / weights.sum()).item())


def test_answers_on_a_full_disk_leave_the_older_file(tmp_path):
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    path = tmp_path / "predictions.jsonl"
    path.write_text("older\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(RunError, match="no space left"), explain_full_disk(tmp_path):
            append_answers(path, {}, lambda start: ({"text": "x" * 1000} for _ in range(start, 200)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "older\n"
    assert append_answers(path, {}, lambda start: ({"text": str(n)} for n in range(start, 200))) == 200
    lines = path.read_text().splitlines()
    assert len(lines) == 200 and "xxx" in lines[0] and '"199"' in lines[-1]
    assert [file.name for file in tmp_path.iterdir()] == ["predictions.jsonl"]


def test_answers_go_on_where_they_stopped_unless_they_would_be_others(tmp_path):
    path = tmp_path / "predictions.jsonl"

    def stops(start):
        yield {"n": start}
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            append_answers(path, {"model": "a"}, stops)
    with (tmp_path / "predictions.jsonl.part").open("a") as part:
        part.write('{"n": 2, "te')  # torn
    assert not path.exists()
    assert append_answers(path, {"model": "a"}, lambda start: iter([{"n": start}])) == 3
    assert path.read_text() == '{"n": 0}\n{"n": 1}\n{"n": 2}\n'
    with pytest.raises(KeyboardInterrupt):
        append_answers(path, {"model": "a"}, stops)
    assert append_answers(path, {"model": "b"}, lambda start: iter([{"n": start}])) == 1
    assert path.read_text() == '{"n": 0}\n'


def test_answers_about_files_of_any_name_are_appended(tmp_path):
    """A name that is not UTF-8 has lone surrogates in Python, which a UTF-8 file cannot hold unescaped."""
    records = [{"image": "caf\udce9.png", "text": "日本"}, {"image": "日本.png", "text": "x"}]
    path = tmp_path / "predictions.jsonl"
    assert append_answers(path, {}, lambda start: iter(records[start:])) == 2
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == records
