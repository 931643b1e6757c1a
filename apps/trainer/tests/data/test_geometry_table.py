"""What holds for every geometry of the table: its configuration, augmentation, grammar, drawings and exports."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from coord_codec import GEOMETRIES, CoordGrid, CoordVocab, Geometry, Instance, geometry_of, register_geometry
from coord_detect.answers.objects import ImageDetections
from coord_detect.grammar.coord_grammar import CoordGrammar
from coord_detect.grammar.served import AnswerForm
from coord_eval.labelling.formats import EXPORTS
from coord_eval.labelling.objects import DetectedObject
from coord_trainer.config.data_sources import AugmentConfig
from coord_trainer.config.run_config import check_run_config
from coord_trainer.data.augment import augment

SIZE = (200, 100)


def config(name, **sections):
    data = {"geometry": name, "annotations": "a.jsonl", "markers": "obj"} | sections.pop("data", {})
    custom = {"coord_soft_ce_w1": {"enabled": True}} | sections.pop("custom", {})
    evaluation = {"images": "train"} | sections.pop("evaluation", {})
    return check_run_config({"data": data, "custom": custom, "evaluation": evaluation, **sections}, "test")


def found_in(kind):
    points = tuple((x * SIZE[0], y * SIZE[1]) for x, y in kind.outline(kind.example))
    x1, y1, x2, y2 = kind.to_box(kind.example)
    box = (x1 * SIZE[0], y1 * SIZE[1], x2 * SIZE[0], y2 * SIZE[1])
    if kind.is_box:
        return DetectedObject("cat", box, 0.5)
    return DetectedObject("cat", box, 0.5, kind.name, points, kind.example if not kind.has_points else ())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_configuration_takes_the_name_and_refuses_what_the_row_rules_out(name):
    kind = geometry_of(name)
    assert config(name).data.shape.name == name
    flags = {"use_coordexp_loss": True, "use_geom_loss": True, "shape_boxes": True}
    for section, is_allowed in (
        ({"data": {"annotations": None}}, kind.derives_from_box),
        ({"custom": {"coord_objective": flags}}, kind.has_extent and not kind.is_box),
        ({"custom": {"coord_objective": flags | {"shape_boxes": False, "matching": "hungarian"}}}, kind.is_box),
        ({"evaluation": {"decoding": {"grammar": "names", "boxes": "best_iou"}}}, kind.is_box),
        ({"data": {"augment": {"crop": 0.5}}}, kind.survives_crops),
    ):
        if is_allowed:
            config(name, **section)
        else:
            with pytest.raises(ValueError, match=f"data.geometry is {name}"):
                config(name, **section)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_mirrored_image_has_the_mirrored_shape(name):
    kind = geometry_of(name)
    shape = {"type": name, "coordinates": list(kind.example)}
    if kind.named:
        shape["names"] = [str(n) for n in range(len(kind.example) // 2)]
    instance = Instance(image="a.png", width=SIZE[0], height=SIZE[1], objects=[{"desc": "a", "geometry": shape}])
    _, mirrored = augment(Image.new("RGB", SIZE), instance, AugmentConfig(flip=1), 0)
    (obj,) = mirrored.objects
    assert obj.geometry.coordinates == pytest.approx(kind.flip(kind.arrange(kind.example)))
    (before,) = instance.objects
    assert obj.bbox == pytest.approx((1 - before.bbox[2], before.bbox[1], 1 - before.bbox[0], before.bbox[3]))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_grammar_closes_a_shape_after_its_numbers_of_coordinates_alone(name):
    kind = geometry_of(name).with_max_vertices(5)
    vocab = CoordVocab(10, CoordGrid(bins=20, scale=20))
    grammar = CoordGrammar(AnswerForm(vocab, (0, 1), None, None, kind, words=(6,)), 5, prompt_length=0)
    answer = [0, 6]
    for count in range(1, min(kind.longest, 12) + 1):
        answer.append(10 + count)  # ascending, as the corners of a box have to be
        scores = grammar(torch.tensor([answer]), torch.zeros(1, 40))[0]
        allowed = set(scores.isfinite().nonzero()[:, 0].tolist())
        assert (1 in allowed) == kind.fits(count)
        assert bool(allowed & set(vocab.ids)) == (count < kind.longest)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_drawing_shows_the_outline_and_every_export_takes_it(name, tmp_path):
    kind = geometry_of(name)
    item = found_in(kind)
    assert DetectedObject.from_record(json.loads(json.dumps(item.to_record()))) == item
    plain = Image.new("RGB", SIZE, "white")
    pixels = np.asarray(ImageDetections((item,), SIZE, "", "stop", image=plain).drawn().convert("L"))
    scale = pixels.shape[1] / SIZE[0]
    for x, y in kind.placed(kind.outline(kind.example)):
        column, row = round(x * SIZE[0] * scale), round(y * SIZE[1] * scale)
        assert pixels[row - 2 : row + 3, column - 2 : column + 3].min() < 200
    record = {"image": "a.png", "image_id": 1, "width": SIZE[0], "height": SIZE[1], "objects": [item.to_record()]}
    for export in EXPORTS.values():
        export([record], tmp_path)
    (annotation,) = json.loads((tmp_path / "coco.json").read_text())["annotations"]
    assert ("segmentation" in annotation) == (kind.closed and not kind.is_box)
    assert ("keypoints" in annotation) == (not kind.closed)


def test_crops_are_refused_for_lengths_whose_change_the_row_leaves_open():
    class Disc(Geometry):
        name, about = "disc", "x, y, radius"
        least = most = 3
        numbers = ("x", "y", "length")
        keys = ("disc", "disc_2d")
        example = (0.5, 0.5, 0.25)

        def arrange(self, coordinates):
            self.check_count(coordinates)
            return coordinates

        def from_box(self, bbox):
            return None

        def outline(self, coordinates):
            x1, y1, x2, y2 = self.box_of(coordinates)
            return (x1, y1), (x2, y1), (x2, y2), (x1, y2)

        def box_of(self, numbers, lib=None):
            x, y, radius = numbers
            return x - radius, y - radius, x + radius, y + radius

    register_geometry(Disc())
    try:
        with pytest.raises(ValueError, match=r"data.augment.crop is 0.5 but data.geometry is disc"):
            config("disc", data={"augment": {"crop": 0.5}})
        config("disc", data={"augment": {"flip": 0.5}})
    finally:
        GEOMETRIES.remove("disc")


def test_unknown_geometry_lists_the_rows_and_says_where_to_name_a_plugin(tmp_path):
    with pytest.raises(ValueError, match=r"data.geometry: expected one of box, .+ is named in plugins"):
        config("blob")
    (tmp_path / "broken.py").write_text("raise KeyError('x')")
    with pytest.raises(ValueError, match=r"broken.py: importing it raises KeyError"):
        config("blob", plugins=[str(tmp_path / "broken.py")])
