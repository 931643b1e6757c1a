"""Which images are answered during training."""

from contextlib import nullcontext
from dataclasses import make_dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from coord_codec import Instance, read_annotations
from coord_data.reading.image_set import ImageSet
from coord_trainer.config.run_config import check_run_config
from coord_trainer.evaluation import during_training
from coord_trainer.evaluation.during_training import SubsetScorer


@pytest.mark.parametrize(
    ("limit", "most", "places"),
    [
        (None, 100, [*range(10)]),
        (None, 10, [*range(10)]),
        (None, 4, [0, 2, 5, 7]),
        (6, 3, [0, 2, 4]),
        (6, 100, [*range(6)]),
        (99, 2, [0, 5]),
    ],
)
def test_subset_is_spread_evenly_over_the_images_that_are_scored(monkeypatch, tmp_path, limit, most, places):
    made = []
    monkeypatch.setattr(during_training, "detector_of", lambda *given: made.append(given))
    monkeypatch.setattr(during_training, "token_limit", lambda *given: 77)
    records = [Instance(image=f"{n}.png", width=4, height=4, image_id=n, objects=[]) for n in range(10)]
    images = ImageSet(
        "held", read_annotations(records), tmp_path, "d", {f"{n}.png": Image.new("RGB", (4, 4)) for n in range(10)}
    )
    processor = SimpleNamespace(tokenizer=None)
    for tokens in (None, 9):
        evaluation = {"limit": limit, "ap_images": most, "ap_steps": 1, "views": ["mirror"], "max_new_tokens": tokens}
        values = {"custom": {"coord_soft_ce_w1": {"enabled": True}}, "evaluation": evaluation}
        scorer = SubsetScorer(check_run_config(values, "test"), images, processor, "vocab")
        assert [instance.image_id for instance in scorer.images.instances] == places
        opened, config, shown, decoding, longest = made[-1]
        assert (opened.vocab, config.evaluation.views, shown, longest) == ("vocab", (), scorer.images, tokens or 77)
        assert decoding == config.evaluation.decoding[0]


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_ranks_share_the_subset_and_the_first_four_images_are_drawn(monkeypatch, tmp_path, ranks):
    asked = []
    parts = {"checkpoint": make_dataclass("Checkpoint", ["model"]), "engine": make_dataclass("Engine", ["checkpoint"])}
    detector = make_dataclass("Detector", ["engine", "read"])(
        parts["engine"](parts["checkpoint"](None)),
        lambda record, image: SimpleNamespace(drawn=lambda side: asked.append((record["image"], side)) or image),
    )

    def records(detector, share, batch, raw):
        asked.append((detector.engine.checkpoint.model, len(share), batch, raw))
        yield [{"image": name, "text": "x"} for name in share[:1]]
        yield [{"image": name, "text": "x"} for name in share[1:]]

    monkeypatch.setattr(during_training, "detector_of", lambda *_: detector)
    monkeypatch.setattr(during_training, "token_limit", lambda *_: 7)
    monkeypatch.setattr(during_training, "attend_to_whole_rows", lambda model: nullcontext())
    monkeypatch.setattr(during_training, "sources_of", lambda images: [one.image for one in images.instances])
    monkeypatch.setattr(during_training, "prediction_records", records)
    failing = []
    monkeypatch.setattr(during_training, "refuse_failures", failing.append)
    names = [f"{n}.png" for n in range(6)]
    instances = [
        Instance(image=name, width=8, height=8, image_id=n, objects=[{"desc": "a", "bbox": [0, 0, 0.5, 0.5]}])
        for n, name in enumerate(names)
    ]
    black = {name: Image.new("RGB", (8, 8)) for name in names}
    images = ImageSet("held", read_annotations(instances), tmp_path, "d", black)
    values = {"custom": {"coord_soft_ce_w1": {"enabled": True}}, "evaluation": {"ap_steps": 1, "batch_size": 5}}
    scorer = SubsetScorer(check_run_config(values, "test"), images, SimpleNamespace(tokenizer=None), "vocab")
    shares = [scorer.answer("model", rank, ranks) for rank in range(ranks)]
    assert [[record["image"] for record in share] for share in shares] == [names[rank::ranks] for rank in range(ranks)]
    assert asked == [("model", len(share), 5, True) for share in shares] and failing == shares
    asked.clear()
    assert detector.engine.checkpoint.model is None  # the run's model is not kept
    drawn = scorer.drawn([record for share in shares for record in share if record["image"] != "2.png"])
    assert [*drawn] == ["answers/1", "answers/2", "answers/4"]
    assert asked == [("0.png", 640), ("1.png", 640), ("3.png", 640)]
    for picture in drawn.values():
        white = [tuple(map(int, place)) for place in np.argwhere(picture.sum(axis=2) == 3 * 255)]
        assert {(0, 0), (0, 4), (4, 0), (4, 4)} <= set(white) and (2, 2) not in white and (7, 7) not in white
    assert not any(np.asarray(picture).any() for picture in black.values())
