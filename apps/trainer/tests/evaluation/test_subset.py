"""Which images are answered during training."""

from types import SimpleNamespace

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
