"""Augmented images: every box is where its rectangle is in the pixels, corner by corner."""

import numpy as np
import pytest
from PIL import Image

from coord_codec import Instance, write_instances
from coord_trainer.config.data_sources import AugmentConfig
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.sections import DataSection
from coord_trainer.data.augment import augment
from coord_trainer.data.load import load_training
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import Samples
from coord_trainer.data.targets import TargetWriter

COLOURS = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250)}
BOXES = {"red": (0, 0, 30, 20), "green": (60, 10, 100, 40), "blue": (35, 50, 64, 80)}
WIDTH, HEIGHT = 100, 80


def picture():
    pixels = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    for name, (x1, y1, x2, y2) in BOXES.items():
        pixels[y1:y2, x1:x2] = COLOURS[name]
    objects = [
        {"desc": name, "bbox": (x1 / WIDTH, y1 / HEIGHT, x2 / WIDTH, y2 / HEIGHT)}
        for name, (x1, y1, x2, y2) in BOXES.items()
    ]
    return Image.fromarray(pixels), Instance(image="a.png", width=WIDTH, height=HEIGHT, image_id=1, objects=objects)


def seen(image):
    """Corners in pixels of each rectangle, from the pixels themselves."""
    pixels, found = np.asarray(image), {}
    for name, colour in COLOURS.items():
        rows, columns = np.nonzero((pixels == colour).all(axis=2))
        if len(rows):
            found[name] = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    return found


def stated(instance):
    w, h = instance.width, instance.height
    return {o.desc: tuple(v * s for v, s in zip(o.bbox, (w, h, w, h), strict=True)) for o in instance.objects}


def test_flip_mirrors_every_corner():
    image, instance = augment(*picture(), AugmentConfig(flip=1), 0)
    assert stated(instance) == {n: pytest.approx((100 - c, b, 100 - a, d)) for n, (a, b, c, d) in BOXES.items()}
    assert seen(image) == {name: (100 - c, b, 100 - a, d) for name, (a, b, c, d) in BOXES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("flip", [0, 0.5])
def test_crop_cuts_no_box_and_leaves_out_what_is_outside(flip):
    sizes, counts = set(), set()
    for seed in range(150):
        image, instance = augment(*picture(), AugmentConfig(crop=1, min_crop=0.3, flip=flip), seed)
        assert (instance.width, instance.height) == image.size
        there = {name: pytest.approx(box, abs=1e-9) for name, box in seen(image).items()}
        assert stated(instance) == there
        areas = {name: (c - a) * (d - b) for name, (a, b, c, d) in seen(image).items()}
        assert all(areas[n] == (BOXES[n][2] - BOXES[n][0]) * (BOXES[n][3] - BOXES[n][1]) for n in areas)
        sizes.add(image.size)
        counts.add(len(there))
    assert len(sizes) > 10 and {0, 3} <= counts


def test_scale_keeps_boxes_as_fractions():
    before, sizes = picture()[1], set()
    for seed in range(50):
        image, instance = augment(*picture(), AugmentConfig(scale=1, min_scale=0.4), seed)
        sizes.add(image.size)
        assert [o.bbox for o in instance.objects] == [pytest.approx(o.bbox, abs=1e-15) for o in before.objects]
        for name, corners in seen(image).items():  # the edge of a reduced rectangle is mixed with its surroundings
            assert np.abs(np.subtract(corners, stated(instance)[name])).max() <= 1.5
    assert min(sizes) < (50, 40) and all(w <= WIDTH and h <= HEIGHT for w, h in sizes)


def test_colour_changes_pixels_alone():
    image, instance = augment(*picture(), AugmentConfig(colour=0.5), 3)
    assert instance == picture()[1] and image.size == (WIDTH, HEIGHT)
    assert (np.asarray(image) != np.asarray(picture()[0])).any()


def test_same_seed_same_change():
    config = AugmentConfig(flip=0.5, crop=0.5, scale=0.5, colour=0.3)
    one, again, other = (augment(*picture(), config, seed) for seed in (1, 1, 2))
    assert one[0].tobytes() == again[0].tobytes() and one[1] == again[1]
    assert one[0].tobytes() != other[0].tobytes()


class Images:
    name, instances, classes = "train", (picture()[1],), ("red",)
    target_counts, image_sizes = np.array([3]), np.array([[WIDTH, HEIGHT]])

    def __len__(self):
        return 1

    def image(self, index):
        return picture()[0]


@pytest.mark.parametrize(
    ("query", "desc", "mirrored"),
    [
        ("the left cat", "red", False),
        ("RIGHTMOST", "red", False),
        ("cat", "man on the right.", False),
        ("bright cat upright, with leftovers", "red", True),
        (None, "turn_left", False),
        (None, "Left_eye", False),
        (None, "leftEye", False),
        (None, "lefthand", False),
        (None, "arrowright", False),
        (None, "red", True),
    ],
)
def test_what_names_a_side_is_not_mirrored_and_counted(tmp_path, query, desc, mirrored):
    image, instance = picture()
    objects = (instance.objects[0].model_copy(update={"desc": desc}),)
    record = instance.model_copy(update={"objects": objects} | ({"query": query} if query else {}))
    _, found = augment(image, record, AugmentConfig(flip=1), 0)
    assert (found.objects[0].bbox != record.objects[0].bbox) is mirrored
    image.save(tmp_path / record.image)
    write_instances(tmp_path / "a.jsonl", [record])
    for flip, counted in ((0, False), (1, not mirrored)):
        data = {"annotations": tmp_path / "a.jsonl", "augment": {"flip": flip}}
        values = {"data": data, "evaluation": {"images": "train"}, "custom": {"coord_soft_ce_w1": {"enabled": True}}}
        told = load_training(check_run_config(values, "test")).sources[0].content.notes
        assert ("1 record contains left or right, not mirrored (augment.flip)" in told) is counted


@pytest.mark.parametrize("query", ["find the blue one", None])
def test_crop_keeps_what_a_phrase_asks_for(query):
    image, instance = picture()
    record = instance.model_copy(update={"objects": instance.objects[2:]} | ({"query": query} if query else {}))
    counts, sizes = set(), set()
    for seed in range(150):
        cropped, found = augment(image, record, AugmentConfig(crop=1, min_crop=0.3), seed)
        counts.add(len(found.objects))
        sizes.add(cropped.size)
    assert counts == ({1} if query else {0, 1}) and len(sizes) > 20


@pytest.mark.parametrize("augments", [True, False])
def test_training_samples_alone_are_augmented_anew_in_each_epoch(augments):
    data = DataSection(augment={"flip": 0.5, "colour": 0.5})
    writer = TargetWriter(data, True, 0, None)
    samples = Samples(
        Mixture.of_one(Images(), data), lambda record, **_: record | {"labels": []}, [writer], None, augments
    )
    assert not samples.kept
    pixels = set()
    for epoch in range(6):
        pixels.add(samples.sample(0, epoch)["images"][0].tobytes())
    assert len(pixels) == (6 if augments else 1)
