"""Samples of several ranks, without starting any; images that change during a run."""

import json
import os

import pytest
import torch
from PIL import Image

from coord_codec import Instance, RunError, read_annotations
from coord_data.looking import processes
from coord_data.reading.image_set import ImageSet, load_annotated
from coord_data.reading.rules import ReadingRules
from coord_trainer.config.sections import DataSection
from coord_trainer.data.mixture import Mixture, MixtureSource
from coord_trainer.data.samples import Samples, WholeRounds
from coord_trainer.data.targets import TargetWriter


class FiveSamples:
    def __len__(self):
        return 5

    def __getitem__(self, index):
        assert index < 5
        return {"input_ids": [7, 8, index], "labels": [-100, 8, index], "coord_layout": "layout", "coord_boxes": []}


@pytest.mark.parametrize(("number", "length"), [(1, 5), (2, 6), (3, 6), (5, 5), (8, 8)])
def test_whole_rounds_give_every_rank_as_many_samples_and_added_ones_are_not_learned(number, length):
    rounds = WholeRounds(FiveSamples(), number)
    assert len(rounds) == length and length % number == 0
    for index in range(length):
        learned = [label for label in rounds[index]["labels"] if label != -100]
        assert learned == ([8, index] if index < 5 else [])
    assert all(rounds[index]["coord_layout"].objects == () for index in range(5, length))


def samples_of(images, encode, writer):
    return Samples(Mixture.of_one(images, writer.data), encode, [writer], None)


@pytest.mark.parametrize("change", ["vanishes", "is cut"])
def test_image_that_changes_during_the_run_is_named(tmp_path, change):
    file = tmp_path / "1.png"
    Image.effect_noise((60, 40), 50).save(file)
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "1.png", "width": 60, "height": 40, "objects": []}))
    images = load_annotated(tmp_path / "a.jsonl", ReadingRules(strict=True))
    writer = TargetWriter(DataSection(order="random"), True, 0, None)
    samples = samples_of(images, lambda sample, return_length: {"labels": [1]}, writer)
    assert samples[0]["coord_sample"] == "1.png"
    if change == "vanishes":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(RunError, match=rf"^{file}: became unreadable during the run \("):
        samples[0]


@pytest.fixture
def many(tmp_path):
    """150 images in memory."""
    images = {f"{n}.png": Image.new("RGB", (8, 8), (n, n, n)) for n in range(150)}
    records = [Instance(image=name, width=8, height=8, image_id=n, objects=[]) for n, name in enumerate(images)]
    return ImageSet("train", read_annotations(records), tmp_path, "digest", images)


def encoded(sample, return_length):
    grey = sample["images"][0].getpixel((0, 0))[0]
    half = torch.full((2,), grey, dtype=torch.bfloat16)  # NumPy has no such type
    return {"labels": [grey], "pixel_values": half.float() / 7, "half": half, "process": os.getpid()}


@pytest.mark.slow
@pytest.mark.parametrize("piece", [1, 20_000, 16 << 20])
def test_samples_encoded_by_several_processes_are_those_of_one(many, monkeypatch, piece):
    monkeypatch.setattr("coord_trainer.data.samples._PIECE_BYTES", piece)
    writer = TargetWriter(DataSection(), True, 0, None)
    found = {}
    for cores in (1, 2):
        monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        samples = samples_of(many, encoded, writer)
        found[cores] = [samples[index] for index in range(len(samples))]
        by = {sample.pop("process") for sample in found[cores]}
        assert (os.getpid() in by) == (cores == 1 or piece > 150 * 1536)  # a single piece needs no process
    for one, other in zip(*found.values(), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in ("pixel_values", "half"))
        assert all(one[name] == other[name] for name in one.keys() - {"pixel_values", "half"})
    assert [sample["labels"] for sample in found[2]] == [[n] for n in range(150)]


@pytest.mark.slow
def test_image_that_cannot_be_encoded_ends_the_run_by_name(many, monkeypatch):
    monkeypatch.setattr("coord_trainer.data.samples._PIECE_BYTES", 1)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: {0, 1})
    del many.held_in_memory["140.png"]
    with pytest.raises(RunError, match=r"140\.png: became unreadable during the run"):
        samples_of(many, encoded, TargetWriter(DataSection(), True, 0, None))


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_true_boxes_follow_a_random_order_in_every_epoch(opened_run, epoch):
    """Boxes in the order of another epoch disagree with the text, and rounded labels would be trained on instead."""
    from coord_trainer.swift.open_run import sample_set

    config, opened, train, _ = opened_run
    shuffled = config.model_copy(update={"data": config.data.model_copy(update={"order": "random"})})
    samples = sample_set(shuffled, opened, train)
    slots = opened.collate([samples.sample(index, epoch) for index in range(8)])["coord_slots"]
    assert (slots.fallbacks, slots.skipped) == (0, 0)
    for index in range(8):
        found = slots.boxes_M4[slots.image_M == index].tolist()
        assert sorted(found) == sorted(list(box.bbox) for box in train.instances[index].objects)


def test_objects_beyond_the_most_of_each_source_are_counted_alone(many):
    """An image with fewer objects leaves no room for those of another."""
    records = [
        Instance(
            image="0.png",
            width=8,
            height=8,
            objects=[{"desc": "a", "bbox": (0, 0, n / 9, 1)} for n in range(1, 1 + count)],
        )
        for count in (1, 5, 0, 3)
    ]
    images = ImageSet("train", read_annotations(records), many.root, "digest", many.held_in_memory)
    parts = [MixtureSource(str(most), images, DataSection(max_objects=most)) for most in (3, 4, 9)]
    samples = Samples(Mixture.of(parts, 0), encoded, [TargetWriter(part.data, True, 0, None) for part in parts], None)
    assert samples.dropped_objects == 2 + 1


@pytest.mark.parametrize(
    ("data", "most", "kept"),
    [
        ({}, 150 * 64 * 24, False),
        ({}, 150 * 64 * 24 + 1, True),
        ({"max_pixels": 63}, 150 * 63 * 24 + 1, True),  # images are reduced to it first
        ({"order": "random"}, 1 << 40, False),
        ({"queries": "mixed"}, 1 << 40, False),
        ({"augment": {"flip": 0.5}}, 1 << 40, False),
    ],
)
def test_samples_are_kept_where_they_fit_and_do_not_vary(many, monkeypatch, data, most, kept):
    monkeypatch.setattr("coord_trainer.data.samples.PRELOAD_BYTES", most)
    monkeypatch.setattr(Samples, "_encode_all", lambda self, number: [])
    section = DataSection(**data)
    samples = samples_of(many, encoded, TargetWriter(section, True, 0, None))
    assert samples.kept is kept
    assert samples.keeps(149) is (kept or not data)


def test_added_samples_have_no_boxes_and_indices_count_from_both_ends(many):
    rounds = WholeRounds(FiveSamples(), 4)
    assert [rounds[index]["coord_boxes"] for index in (4, 5, 7)] == [[], None, None]
    samples = samples_of(many, encoded, TargetWriter(DataSection(order="random"), True, 0, None))
    assert samples[-1]["labels"] == samples[149]["labels"] == [149]
    with pytest.raises(IndexError):
        samples[150]


def test_sources_that_vary_are_made_anew_beside_those_that_are_kept(many, tmp_path):
    """Each source has its own images, writer and name; what is scored is that of the first epoch."""
    records = [Instance(image=f"{n}.png", width=8, height=8, image_id=None if n else 0, objects=[]) for n in (7, 0)]
    other = ImageSet("other", read_annotations(records), tmp_path, "digest", many.held_in_memory)
    seeds = []

    class Writer(TargetWriter):
        def text(self, instance, epoch=0):
            seeds.append(epoch)
            return super().text(instance, epoch)

    parts = [MixtureSource("a", many, DataSection()), MixtureSource("b", other, DataSection(order="random"))]
    writers = [Writer(part.data, True, 0, None) for part in parts]
    samples = Samples(Mixture.of(parts, 0), encoded, writers, None)
    assert not samples.kept and samples._kept[1] is None and len(samples) == 152
    seeds.clear()
    samples.set_epoch(3)
    found = [samples[150], samples[151], samples[0]]
    assert [one["coord_source"] for one in found] == [1, 1, 0] and seeds == [3, 3]
    assert [one["coord_sample"] for one in found] == ["7.png", "0", "0"] and found[0]["labels"] == [7]
    first = samples.of_first_epoch()
    assert first[150]["labels"] == [7] and seeds[-1] == 0
    assert samples[150]["labels"] == [7] and seeds[-1] == 3  # the other is left as it was


@pytest.mark.parametrize("augments", [True, False])
def test_images_are_augmented_in_training_alone(many, augments):
    writer = TargetWriter(DataSection(augment={"scale": 1.0, "min_scale": 0.5}), True, 0, None)
    samples = Samples(Mixture.of_one(many, writer.data), encoded, [writer], None, augments)
    sizes = {samples.drawn(0, epoch)[0].size for epoch in range(6)}
    assert (len(sizes) > 1) is augments and (sizes == {(8, 8)}) is not augments
    for epoch in range(6):
        image, _, instance = samples.drawn(0, epoch)
        assert image.size == (instance.width, instance.height)
