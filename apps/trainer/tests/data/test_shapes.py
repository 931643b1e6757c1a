"""The generated shapes: seeded, drawn where their boxes are, on every bin."""

import os
import signal
import sys

import numpy as np
import pytest

from coord_codec import RunError
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data import shapes
from coord_trainer.data.ahead import drawing_ahead
from coord_trainer.data.shapes import CATEGORIES, COLOURS, draw_sets, draw_shapes, drawn_ahead, make_shapes


@pytest.mark.slow
def test_shapes_are_seeded_and_their_boxes_are_where_the_paint_is(tmp_path):
    config = ShapesConfig(noise=0)
    for instance, image in draw_shapes(config, "train", 20):
        pixels = np.asarray(image).astype(float)
        for found in instance.objects:
            colour = np.array(COLOURS[found.desc.split()[0]])
            x1, y1, x2, y2 = (v * config.size for v in found.bbox)
            rows, columns = np.nonzero(np.abs(pixels - colour).max(axis=2) < 80)
            inside = (columns > x1 - 2) & (columns < x2 + 1) & (rows > y1 - 2) & (rows < y2 + 1)
            painted = (columns[inside].min(), rows[inside].min(), columns[inside].max() + 1, rows[inside].max() + 1)
            assert painted == pytest.approx((x1, y1, x2, y2), abs=3)
    again = [make_shapes(ShapesConfig(), "train", 4, tmp_path).digest for _ in range(2)]
    other = make_shapes(ShapesConfig(), "heldout", 4, tmp_path).digest
    assert again[0] == again[1] != other


@pytest.mark.slow
@pytest.mark.parametrize("colours", [1, 3, 4])
def test_names_are_of_so_many_colours(colours):
    config = ShapesConfig(colours=colours, max_objects=6, min_side=0.1, max_side=0.3)
    found = {o.desc for instance, _ in draw_shapes(config, "train", 150) for o in instance.objects}
    assert found == set(CATEGORIES[: 3 * colours])


@pytest.mark.slow
def test_shape_boxes_use_the_whole_grid_of_bins():
    boxes = [found.bbox for instance, _ in draw_shapes(ShapesConfig(), "train", 1500) for found in instance.objects]
    assert len({round(1000 * side) for box in boxes for side in box}) > 950


def test_ground_truth_of_the_shapes_stands_in_the_run_folder(tmp_path):
    from coord_data.reading.image_set import load_annotated
    from coord_data.reading.rules import ReadingRules

    values = {"data": {"shapes": {"train": 3, "heldout": 2}}, "custom": {"coord_soft_ce_w1": {"enabled": True}}}
    train, heldout = draw_sets(check_run_config(values, "test"), tmp_path / "data")
    read = load_annotated(tmp_path / "data" / "heldout.jsonl", ReadingRules(strict=True), name="heldout")
    assert read.instances == heldout.instances
    assert read.image(1).tobytes() == heldout.image(1).tobytes()
    assert len((tmp_path / "data" / "train.jsonl").read_text().splitlines()) == len(train) == 3


@pytest.fixture
def config(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # as at the start of a command
    values = {"data": {"shapes": {"train": 205, "heldout": 3}}, "custom": {"coord_soft_ce_w1": {"enabled": True}}}
    return check_run_config(values, "test")


def test_shapes_drawn_in_another_process_are_the_same(config, tmp_path, monkeypatch, capsys):
    expected = draw_sets(config, tmp_path / "here")
    capsys.readouterr()
    with drawing_ahead(config):
        monkeypatch.setattr(shapes, "draw_shapes", None)  # nothing is drawn here
        found = draw_sets(config, tmp_path / "ahead")
    assert [one.digest for one in found] == [one.digest for one in expected]
    assert "205/205" in capsys.readouterr().err and drawn_ahead.get(None) is None


@pytest.mark.slow
def test_faults_of_the_drawing_process_are_those_of_drawing_here(config, tmp_path, monkeypatch):
    monkeypatch.setattr(shapes, "_free_box", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), drawing_ahead(config):
        draw_sets(config, tmp_path)
    monkeypatch.setattr(shapes, "_free_box", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RunError, match="killed from outside"), drawing_ahead(config):
        draw_sets(config, tmp_path)
    assert drawn_ahead.get(None) is None
