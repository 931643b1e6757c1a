"""Samples of several ranks, without starting any; images that change during a run."""

import json

import pytest
from PIL import Image

from coord_trainer.config.sections import DataSection
from coord_trainer.console import RunError
from coord_trainer.data.image_set import load_annotated
from coord_trainer.data.samples import SampleSet, TargetWriter, WholeRounds


class Samples:
    def __len__(self):
        return 5

    def __getitem__(self, index):
        assert index < 5
        return {"input_ids": [7, 8, index], "labels": [-100, 8, index], "coord_layout": "layout", "coord_boxes": []}


@pytest.mark.parametrize(("number", "length"), [(1, 5), (2, 6), (3, 6), (5, 5), (8, 8)])
def test_whole_rounds_give_every_rank_as_many_samples_and_added_ones_are_not_learned(number, length):
    rounds = WholeRounds(Samples(), number)
    assert len(rounds) == length and length % number == 0
    for index in range(length):
        learned = [label for label in rounds[index]["labels"] if label != -100]
        assert learned == ([8, index] if index < 5 else [])
    assert all(rounds[index]["coord_layout"].objects == () for index in range(5, length))


@pytest.mark.parametrize("change", ["vanishes", "is cut"])
def test_image_that_changes_during_the_run_is_named(tmp_path, change):
    file = tmp_path / "1.png"
    Image.effect_noise((60, 40), 50).save(file)
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "1.png", "width": 60, "height": 40, "objects": []}))
    images = load_annotated(tmp_path / "a.jsonl", None, "train", strict=True)
    writer = TargetWriter(DataSection(preload=False), True, 0, None)
    samples = SampleSet(images, lambda sample, return_length: {"labels": [1]}, writer, None)
    assert samples[0]["coord_sample"] == "1.png"
    if change == "vanishes":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(RunError, match=rf"^{file}: became unreadable during the run \("):
        samples[0]
