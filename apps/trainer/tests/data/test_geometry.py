"""Shapes from the configuration to object slots: drawn, augmented, written, found again; what is for boxes alone."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from coord_codec import CoordVocab, InputError, Instance
from coord_detect.answers.summary import shape_line
from coord_detect.model.card import read_card
from coord_trainer.config.data_sources import AugmentConfig
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.sections import DataSection, ShapesConfig
from coord_trainer.data.augment import augment
from coord_trainer.data.batches import collate_samples
from coord_trainer.data.load import load_data, load_scored
from coord_trainer.data.shapes import draw_shapes
from coord_trainer.data.targets import TargetWriter
from coord_trainer.model.card import make_card

VOCAB = CoordVocab(first_id=100)
TRIANGLE = {"type": "polygon", "coordinates": [0.5, 0.1, 0.9, 0.5, 0.1, 0.5]}


def config(**sections):
    return check_run_config({"custom": {"coord_soft_ce_w1": {"enabled": True}}, **sections}, "test")


def test_matching_and_shape_boxes_reach_the_objective():
    flags = {"use_coordexp_loss": True, "use_geom_loss": True}
    matched = config(custom={"coord_objective": {**flags, "matching": "hungarian"}}).custom.objective
    assert (matched.matching, matched.shape_boxes) == ("hungarian", False)
    shaped = config(custom={"coord_objective": {**flags, "shape_boxes": True}}, data={"geometry": "oriented"})
    assert shaped.custom.objective.shape_boxes


@pytest.mark.parametrize("geometry", ["polygon", "oriented", "point"])
def test_drawn_shapes_fill_their_outline(geometry):
    for instance, image in draw_shapes(ShapesConfig(noise=0, max_objects=1, size=128), "train", 12, geometry):
        (found,) = instance.objects
        assert found.geometry.type == geometry
        x1, y1, x2, y2 = found.bbox
        pixels = np.asarray(image).astype(int)
        background = pixels[0, 0] if x1 > 0.02 or y1 > 0.02 else pixels[-1, -1]
        painted = np.abs(pixels - background).sum(axis=2) > 120
        rows, columns = np.nonzero(painted)
        box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert box == pytest.approx(np.array([x1, y1, x2, y2]) * 128, abs=1.5)
        if geometry != "point":
            points = np.array(found.geometry.coordinates).reshape(-1, 2) * 128
            (xs, ys), (xn, yn) = points.T, np.roll(points, -1, axis=0).T
            assert painted.sum() == pytest.approx(abs((xs * yn - xn * ys).sum()) / 2, rel=0.08)


def test_boxes_are_drawn_as_before_there_were_shapes():
    (instance, image), *_ = draw_shapes(ShapesConfig(), "train", 1)
    assert instance.objects[0].geometry is None
    again = next(iter(draw_shapes(ShapesConfig(), "train", 1, "point")))
    assert again[1].tobytes() == image.tobytes()  # points are the centres of the same boxes


@pytest.mark.parametrize("seed", range(5))
def test_augmented_polygon_lies_where_its_box_lies(seed):
    objects = [{"desc": "a", "geometry": TRIANGLE}]
    instance = Instance(image="a.png", width=100, height=80, image_id=1, objects=objects)
    image = Image.new("RGB", (100, 80))
    _, changed = augment(image, instance, AugmentConfig(flip=0.5, crop=1, min_crop=0.6, scale=0.5), seed)
    (found,) = changed.objects
    assert found.geometry.box == pytest.approx(found.bbox, abs=1e-6)


def test_collated_shapes_have_a_row_for_every_coordinate():
    data = DataSection(geometry="polygon", max_vertices=3, markers="obj")
    writer = TargetWriter(data, True, 0, VOCAB)
    square = {"type": "polygon", "coordinates": [0.2, 0.2, 0.4, 0.2, 0.4, 0.4, 0.2, 0.4]}
    instance = Instance(image="a.png", objects=[{"desc": "a", "geometry": s} for s in (TRIANGLE, square)])
    true = writer.true_coordinates(instance)
    assert [len(shape) for shape in true] == [6, 6]  # the square is simplified to three vertices
    from coord_codec import find_layout

    ids = [-100]
    for shape in true:
        ids += [1, 50, *(100 + VOCAB.grid.quantize(c) for c in shape), 2]
    layout = find_layout(ids, VOCAB, (1, 2), "polygon")
    sample = {"labels": ids, "coord_layout": layout, "coord_boxes": true, "coord_geometry": "polygon"}

    def collate(samples):
        labels = torch.tensor([s["labels"] for s in samples])
        return {"labels": labels, "attention_mask": torch.ones_like(labels)}

    slots = collate_samples([dict(sample), dict(sample)], collate, VOCAB)["coord_slots"]
    assert len(slots) == 4 and slots.fallbacks == slots.skipped == 0
    assert slots.coords.true_P.tolist() == pytest.approx([c for shape in (*true, *true) for c in shape])


def test_card_says_the_geometry_and_that_of_boxes_is_as_before(tmp_path):
    make_card(config(data={"geometry": "polygon", "max_vertices": 8}), {}, None).write(tmp_path)
    card = read_card(tmp_path)
    assert (card.geometry, card.max_vertices) == ("polygon", 8)
    make_card(config(), {}, None).write(tmp_path)
    assert json.loads((tmp_path / "coordexp.json").read_text())["geometry"] == "box"


def test_line_of_shape_scores_names_the_ceiling():
    ceiling = {"AP": 0.9, "AP50": 1.0, "mean": 0.97, "simplified": 3}
    line = shape_line(
        {"geometry": "polygon", "measure": "IoU", "AP": 0.5, "AP50": 0.8, "mean": 0.6, "ceiling": ceiling}
    )
    assert "AP 0.500 (ceiling 0.900)" in line and "3 outlines are simplified" in line


@pytest.mark.parametrize(
    ("geometry", "shapes", "refused"),
    [
        ("polygon", [None], True),
        ("oriented", [None], True),
        ("polygon", [None, TRIANGLE], False),
        ("point", [None], False),
    ],
)
def test_run_of_outlines_whose_annotations_have_boxes_alone_is_refused(tmp_path, geometry, shapes, refused):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    objects = [
        {"desc": "a", "bbox": [0.1, 0.2, 0.5, 0.6]} if s is None else {"desc": "a", "geometry": s} for s in shapes
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "a.png", "objects": objects}) + "\n")
    given = {"annotations": str(tmp_path / "a.jsonl"), "geometry": geometry}
    settings = config(data=given, evaluation={"images": "train"})
    for load in (load_data, load_scored):
        if refused:
            with pytest.raises(InputError, match=f"data.geometry is {geometry}, and the annotations have no shape but"):
                load(settings, tmp_path)
        else:
            assert load(settings, tmp_path)
