"""Every reading with each of its components neutral, and the short cuts of the scan beside what they stand for."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from planted import COCO, SHARED_DATA, Draft, shapes, told_of_boxes, told_reading

from coord_data.formats.registry import open_source
from coord_data.inspection.numbers import geometry, laid_out, offsets, scan
from coord_data.inspection.numbers.differences import shifted
from coord_data.inspection.numbers.edges import EdgeMaps, Sample, is_inside
from coord_data.inspection.numbers.laid_out import LaidOut, is_tiny
from coord_data.inspection.numbers.meaning import Shift
from coord_data.inspection.numbers.offsets import KINDS, Offset
from coord_data.looking.engines import Execution, executed
from coord_data.reading.read import read_by
from coord_data.reading.rules import ReadingRules
from coord_data.sources.read_as import ReadAs


def steps_of(kind):
    """Return a step of a kind, and the same with each component neutral, one at a time."""
    step = kind.neutral + 4 * kind.least + np.zeros(kind.steps_KD.shape[1])
    neutral = [np.where(np.arange(len(step)) == k, kind.neutral, step) for k in range(len(step)) if len(step) > 1]
    return [(kind, sign * (s - kind.neutral) + kind.neutral) for s in (step, *neutral) for sign in (1, -1)]


@pytest.mark.parametrize(("kind", "step_D"), [case for kind in KINDS for case in steps_of(kind)])
def test_move_of_any_kind_is_told_and_undone_by_its_command(kind, step_D):
    boxes_N4 = np.array([[0.3, 0.4, 0.5, 0.7], [0.2, 0.2, 0.6, 0.5]])
    offset = Offset(kind, tuple(step_D.tolist()), float(step_D[0]), 0.1, 0.2, 9.0)
    finding, changes = geometry._offset_finding(offset, np.array([640.0, 480.0]), 2)
    assert finding.code in {kind.code, "too_large", "too_small"}
    size_N2 = np.array([[640.0, 480.0]] * 2)
    command = ReadAs.parse(",".join(map(str, changes))).of_format("xyxy", "unit")
    np.testing.assert_allclose(command.corners(boxes_N4, size_N2, size_N2), kind.move(boxes_N4, step_D), atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("step", [(0, 12), (12, 0), (0, -12), (-12, 0)])
def test_boxes_that_are_shifted_along_one_side_alone_are_named(step):
    draft = shapes(40)
    share = np.tile(step, 2) / 200
    found, _ = told_of_boxes(replace(draft, coco=True).moved(lambda b: b + share))
    assert [code for code, finding in found.items() if finding.severity == "error"] == ["shifted"]
    (change,) = told_reading(found["shifted"]).changes
    assert change.value == pytest.approx(0.06, abs=0.01)
    assert change.name == {(0, 12): "moved-down", (12, 0): "moved-right", (0, -12): "moved-up"}.get(step, "moved-left")


@pytest.mark.slow
@pytest.mark.shared
def test_photographs_whose_boxes_lie_too_low_are_named(tmp_path):
    from typer.testing import CliRunner

    from coord_data.cli import app

    folder = SHARED_DATA / "edges" / "strangers" / "vertical_shift"
    if not folder.is_dir():
        pytest.skip(f"the input is not at {folder}")
    words = ["inspect", str(folder / "instances.json"), "--images", str(folder / "img"), "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and '"shifted"' in (tmp_path / "o" / "findings.json").read_text()


@pytest.mark.parametrize(("x", "y", "words"), [(3, 0, "to the left of"), (0, 3, "above"), (0, -3, "below")])
def test_shift_along_one_side_is_told_without_the_other(x, y, words):
    assert shifted(Shift(x, y, in_pixels=True)) == f"the boxes lie about 3 px {words} their objects"


def random_corners(rng, count):
    low = rng.uniform(0.02, 0.6, (count, 2))
    boxes_N4 = np.concatenate([low, low + rng.uniform(0.01, 0.38, (count, 2))], axis=1) * rng.choice([0.35, 0.4, 1])
    boxes_N4[rng.random(count) < 0.01] -= 1
    return boxes_N4


def is_possible(boxes_N4):
    """Return whether 98 % of the boxes are inside, and 1 % of their ends reach beyond .35, of all boxes at once."""
    return is_inside(boxes_N4).mean() >= 0.98 and np.quantile(boxes_N4[:, 2:], 0.99) >= 0.35


@pytest.mark.parametrize("seed", range(8))
def test_shifts_along_both_axes_are_possible_as_their_boxes_are(seed, monkeypatch):
    monkeypatch.setattr(laid_out, "_AT_ONCE", 64)  # boxes are counted a range at a time
    rng = np.random.default_rng(seed)
    boxes_N4, unit_N2 = random_corners(rng, 200), rng.uniform(50, 200, (200, 2))
    steps_x, steps_y = rng.uniform(-8, 8, 7).tolist(), rng.uniform(-8, 8, 5).tolist()
    shifts = [Shift(x, y, in_pixels=True) for x in steps_x for y in steps_y]
    wanted = [is_possible(scan.shift_boxes(boxes_N4, shift, unit_N2)) for shift in shifts]
    own = LaidOut(boxes_N4.__getitem__, 200)
    assert scan._are_possible(own, unit_N2.__getitem__, steps_x, steps_y) == wanted
    moved = (LaidOut(scan.shift_boxes(boxes_N4, shift, unit_N2).__getitem__, 200) for shift in shifts)
    assert [not boxes.is_impossible for boxes in moved] == wanted


@pytest.mark.parametrize("count", [1, 2, 50, 99, 100, 101, 1000])
def test_short_cut_of_the_quantile_is_exact(count):
    rng = np.random.default_rng(count)
    for _ in range(40):
        ends_N = rng.uniform(0, 1, count) * rng.uniform(0.3, 0.5)
        ends = partial(np.array_split, ends_N, 3)
        assert is_tiny(int((ends_N < 0.35).sum()), count, ends, 0.35) == (float(np.quantile(ends_N, 0.99)) < 0.35)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.03])
@pytest.mark.parametrize("name", ["resized", "shifted, 3 %", "norm1000"])
def test_some_stray_boxes_hide_no_fault_of_the_others(name, share):
    """They lie in images whose pixels are looked at and in others: no sample of the boxes would do."""
    planted, rng = COCO[name](replace(shapes(60), coco=True)), np.random.default_rng(0)

    def with_strays(boxes_N4):
        is_stray_N1 = rng.random((len(boxes_N4), 1)) < share
        return np.where(is_stray_N1, boxes_N4 + rng.uniform(-0.6, 0.6, (len(boxes_N4), 1)), boxes_N4)

    strayed: Draft = replace(planted, corners=tuple(map(with_strays, planted.corners)))
    found, _ = told_of_boxes(strayed)
    assert {code for code, finding in found.items() if finding.severity == "error"} == {name.partition(",")[0]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resized, .8", "shifted, 3 %"])
def test_candidates_that_workers_share_give_the_same_findings(name, monkeypatch):
    monkeypatch.setattr(scan, "_SHARED", 0)
    draft, found = COCO[name](replace(shapes(40), coco=True)), []
    for workers in (1, 2):
        with executed(Execution(workers=workers)):
            found.append(told_of_boxes(draft)[0])
    assert found[0] == found[1] and name.partition(",")[0] in found[0]


def test_keypoint_on_the_left_or_the_upper_edge_is_labelled(tmp_path):
    """Without visibility a point at 0, 0 is not labelled, one on a single edge is."""
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    next(iter(shapes(1).images.values())).save(tmp_path / "images" / "a.png")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat]\nkpt_shape: [3, 2]\nflip_idx: [0, 1, 2]\n")
    (tmp_path / "labels" / "a.txt").write_text("0 .5 .5 1 1 0 .5 .5 0 0 0\n")
    evidence = read_by(open_source(tmp_path / "data.yaml"), ReadingRules(geometry="keypoints"))
    (instance,) = evidence.annotations.instances
    assert instance.targets[0].geometry.visibility == (2, 2, 0)


def test_step_is_refined_along_both_axes():
    draft = shapes(40)
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    sample, wrong = Sample(maps, np.arange(len(raw)), raw.image_N), np.tile([0.03, 0.04], 2)
    step_D = offsets._refined(KINDS[1], np.array([-0.018, -0.028]), raw.numbers_N4 + wrong, sample)
    np.testing.assert_allclose(step_D, [-0.03, -0.04], atol=0.006)
    # A step along one axis that is too small to be reported is none, to the last bit.
    along_x = raw.numbers_N4 + np.tile([0.03, 0.0], 2)
    step_x, step_y = offsets._refined(KINDS[1], np.array([-0.018, 0.001]), along_x, sample)
    assert step_x == pytest.approx(-0.03, abs=0.006) and step_y == 0.0
