"""What several ranks are given, without starting any."""

import pytest

from coord_trainer import ranks
from coord_trainer.samples import WholeRounds
from coord_trainer.step_metrics import StepMetrics


class Samples:
    def __len__(self):
        return 5

    def __getitem__(self, index):
        assert index < 5
        return {
            "input_ids": [7, 8, index],
            "labels": [-100, 8, index],
            "coord_layout": "layout",
            "coord_boxes": [],
        }


@pytest.mark.parametrize(("number", "length"), [(1, 5), (2, 6), (3, 6), (5, 5), (8, 8)])
def test_every_rank_gets_as_many_samples_and_what_is_added_is_not_learnt(number, length):
    rounds = WholeRounds(Samples(), number)
    assert len(rounds) == length and length % number == 0
    for index in range(length):
        learnt = [label for label in rounds[index]["labels"] if label != -100]
        assert learnt == ([8, index] if index < 5 else [])
    assert all(rounds[index]["coord_layout"].objects == () for index in range(5, length))


class Store(dict):
    def set(self, key, value):
        self[key] = value.encode()

    def wait(self, keys, timeout):
        assert all(key in self for key in keys)


def test_the_others_follow_the_first_rank_and_stop_when_it_fails(monkeypatch):
    store, order = Store(), []
    monkeypatch.setattr(ranks, "_store", lambda: store)
    monkeypatch.setattr(ranks, "_turns", {})
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with ranks.first_rank_first("block"):
        order.append(0)
    with pytest.raises(KeyError), ranks.first_rank_first("block"):
        raise KeyError
    monkeypatch.setattr(ranks, "_turns", {})
    monkeypatch.setenv("RANK", "1")
    with ranks.first_rank_first("block"):
        order.append(1)
    with pytest.raises(SystemExit), ranks.first_rank_first("block"):
        order.append(2)
    assert order == [0, 1]


def test_one_process_waits_for_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(ranks, "_store", None)
    with ranks.first_rank_first("block"):
        assert ranks.is_first()


def test_sums_go_on_from_a_checkpoint():
    import torch

    from coord_losses import ObjectiveConfig

    first, second = (StepMetrics(ObjectiveConfig.soft(), torch.device("cpu")) for _ in range(2))
    first._vector += torch.arange(len(first._vector), dtype=torch.float64) / 3
    second.go_on_from(first.sums(torch.clone))
    assert torch.equal(first._vector, second._vector)
