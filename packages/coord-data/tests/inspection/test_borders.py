"""Every border between two findings about all boxes, drawn: units by image, words of a difference, grades, the parts of
the evidence from pixels beside what they stand for."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from planted import COCO, shapes
from tables import boxes, figures

from coord_codec.box_transforms import INVERSE_TURN, LAYOUTS, TURNS
from coord_data.finding import Finding
from coord_data.inspection.numbers import edges
from coord_data.inspection.numbers import find_meaning as search
from coord_data.inspection.numbers.background import Background, _displacements, overlap
from coord_data.inspection.numbers.best_size import finite_mean
from coord_data.inspection.numbers.class_numbers import shifted_classes
from coord_data.inspection.numbers.differences import differences, reading_of
from coord_data.inspection.numbers.edges import EdgeMaps, Sample, is_inside, z_value
from coord_data.inspection.numbers.geometry import (
    _offset_finding,
    _severity,
    _unexplained,
    _with_command,
    examine_geometry,
)
from coord_data.inspection.numbers.laid_out import LaidOut
from coord_data.inspection.numbers.meaning import Meaning, Shift, fitted, read_as
from coord_data.inspection.numbers.mixture import in_one_unit
from coord_data.inspection.numbers.offsets import KINDS, Offset, find_offset
from coord_data.inspection.numbers.shuffle import _spans_its_image
from coord_data.inspection.numbers.trial import kept_inside, objection_to
from coord_data.sources.raw_boxes import ClassNumbers
from coord_data.sources.read_as import Change, Copy, ReadAs, inflate

PIXELS, FRACTIONS, CORNER = (10, 20, 200, 150), (0.1, 0.2, 0.4, 0.5), (0, 0, 1, 1)
OUTSIDE, MANY = (-0.2, 0.1, 1.9, 0.5), (100, 200, 900, 800)


@pytest.mark.parametrize(
    ("unit", "counts", "grade"),
    [
        ("pixels", {PIXELS: 19, FRACTIONS: 1}, "error"),
        ("pixels", {PIXELS: 20, FRACTIONS: 1}, "warning"),  # the reader keeps them, however few
        ("pixels", {PIXELS: 1, FRACTIONS: 18}, "error"),
        ("pixels", {PIXELS: 1, FRACTIONS: 19}, None),  # a set in another unit
        ("pixels", {PIXELS: 10, CORNER: 5}, None),  # a box of one pixel, in whole numbers
        ("pixels", {PIXELS: 10, (0, 0, 1, 0.5): 5}, "error"),
        ("pixels", {PIXELS: 10, (0, 0, 1, 1.5): 5}, None),
        ("pixels", {(1, 1, 9, 9): 10, FRACTIONS: 5}, None),  # the others are no pixels for sure
        ("pixels", {(1, 1, 10, 9): 10, FRACTIONS: 5}, "error"),
        ("unit", {FRACTIONS: 19, PIXELS: 1}, "error"),
        ("unit", {FRACTIONS: 20, PIXELS: 1}, None),  # which the reader refuses
        ("unit", {FRACTIONS: 10, OUTSIDE: 10}, None),  # that leave their image
        ("unit", {FRACTIONS: 10, (0, 0, 2, 1): 10}, None),
        ("unit", {FRACTIONS: 10, (0, 0, 2.1, 1): 10}, "error"),
        ("unit", {FRACTIONS: 10, (-2.1, 0, 0.1, 1): 10}, "error"),
        ("norm1000", {MANY: 10, FRACTIONS: 10}, None),
    ],
)
def test_images_in_another_unit_are_told_by_their_largest_number(unit, counts, grade):
    rows = [(n, "x", numbers) for n, numbers in enumerate(row for row, count in counts.items() for _ in range(count))]
    names = [f"{n}.png" for n in range(len(rows) + 3)]  # three have no box
    raw = boxes(names, rows, unit=unit)
    sizes_I2 = np.array([(300 + n, 200) for n in range(len(names))], float)
    changed, found = in_one_unit(raw, sizes_I2)
    if grade is None:
        assert found == [] and changed is raw
        return
    (first, usual), (second, other) = counts.items()
    assert [(f.code, f.severity, f.count) for f in found] == [("mixed_units", grade, other)]
    assert figures(found[0].message)[:2] == [other, usual + other]
    largest = [max(map(abs, row)) for row in (second, first)]
    assert figures(found[0].evidence)[:2] == pytest.approx([float(f"{v:.3g}") for v in largest])
    assert found[0].evidence.endswith(f"the first: {usual}.png")
    assert ("--read-as unit" in found[0].fix, "norm1000" in found[0].fix) == (unit == "pixels", unit != "pixels")
    factor_N4 = np.tile(sizes_I2[: len(rows)], 2) ** (1 if unit == "pixels" else -1)
    factor_N4[:usual] = 1
    np.testing.assert_allclose(changed.numbers_N4, raw.numbers_N4 * factor_N4)


def meaning(layout="xywh", unit="pixels", **more):
    return Meaning(layout, unit, LaidOut(lambda rows: np.zeros((1, 4))[rows], 1), 1.0, np.zeros(9), **more)


OWN = {"pixels": "xywh", "unit": "xyxy", "norm1000": "xyxy"}


@pytest.mark.parametrize(
    ("raw_unit", "other", "codes", "reading"),
    [
        ("pixels", meaning(), [], ""),
        ("pixels", meaning("xyxy"), ["xyxy"], "xyxy"),
        ("pixels", meaning("yxhw"), ["swapped_axes"], "yxhw"),
        ("pixels", meaning("cycxhw"), ["cxcywh", "swapped_axes"], "cycxhw"),
        ("pixels", meaning("yxyx"), ["yxyx"], "yxyx"),
        ("pixels", meaning(unit="stated"), [], "stated"),
        ("pixels", meaning(unit="percent"), ["percent"], "percent"),
        ("pixels", meaning(unit="norm1000"), ["norm1000"], "norm1000"),
        ("pixels", meaning("cxcywh", "unit"), ["cxcywh", "unit"], "cxcywh,unit"),
        ("unit", meaning("xyxy", "stated"), ["pixels"], "stated"),
        ("unit", meaning("xyxy", "pixels"), ["pixels"], "pixels"),
        ("pixels", meaning(unit="copy", copy=Copy("padded", 640)), ["padded"], "padded:640"),
        ("pixels", meaning(unit="copy", copy=Copy("longer", 640)), ["resized"], "longer:640"),
        ("pixels", meaning("xyxy", "copy", copy=Copy("times", 0.5)), ["xyxy", "resized"], "xyxy,times:0.5"),
        ("pixels", meaning(shift=Shift(3, -4, True)), ["shifted"], "moved-left:3px,moved-down:4px"),
        ("pixels", meaning(shift=Shift(-0.03, 0.04, False)), ["shifted"], "moved-right:3%,moved-up:4%"),
        ("pixels", meaning(turn=2), ["mirrored"], "mirrored"),
        ("pixels", meaning(turn=4), ["upside_down"], "upside-down"),
        *(("pixels", meaning(turn=k), ["rotated"], f"rotated:{v}") for k, v in ((3, 180), (6, 90), (8, 270))),
        (
            "pixels",
            meaning("xyxy", turn=2, shift=Shift(0, 2, True)),
            ["xyxy", "shifted", "mirrored"],
            "xyxy,moved-up:2px,mirrored",
        ),
    ],
)
def test_each_difference_has_its_code_and_the_reading_names_what_differs_alone(raw_unit, other, codes, reading):
    raw = boxes(["a"], [(0, "x", (1, 2, 3, 4))], layout=OWN[raw_unit], unit=raw_unit)
    own = meaning(OWN[raw_unit], raw_unit)
    assert [code for code, _ in differences(raw, own, other)] == codes
    assert str(reading_of(raw, own, other)) == reading
    told = dict(differences(raw, own, other))
    assert "swapped_axes" not in codes or (told["swapped_axes"] == "y precedes x") == (len(codes) > 1)
    for turn, degrees in ((3, 180), (6, 90), (8, 270)):
        assert other.turn != turn or f"by {degrees} degrees" in told["rotated"]


@pytest.mark.parametrize(
    ("format", "layout", "rows", "code"),
    [
        ("coco", "xyxy", [(0, 0, 999, 999), (1, 1, 999, 5)], "norm999"),
        ("coco", "xyxy", [(0, 0, 999, 999)], "norm1000"),  # twice
        ("coco", "xyxy", [(0, 0, 999, 999), (1, 1, 1000, 999)], "norm1000"),
        ("coco", "xywh", [(9, 9, 990, 990), (1, 1, 998, 5)], "norm999"),
        ("voc", "xywh", [(8, 8, 990, 990), (0, 0, 998, 5)], "norm999"),  # 1 was subtracted from the first two
        ("voc", "xyxy", [(8, 8, 999, 999), (0, 0, 999, 5)], "norm999"),
        ("voc", "xywh", [(9, 9, 990, 990), (1, 1, 998, 5)], "norm1000"),
    ],
)
def test_bins_that_end_at_999_are_no_thousandths(format, layout, rows, code):
    raw = replace(boxes(["a"], [(0, "x", row) for row in rows], layout="xyxy", unit="unit"), format=format)
    own, other = meaning("xyxy", "unit"), meaning(layout, "norm1000")
    assert differences(raw, own, other)[-1][0] == code and str(reading_of(raw, own, other)).endswith(code)


def evidence(z, inside=1.0):
    """Return a meaning whose nine images have evidence of about this z."""
    values_I = np.array([-4, -3, -2, -1, 0, 1, 2, 3, 4.0])
    low, high = -20.0, 20.0
    for _ in range(40):
        mean = (low + high) / 2
        low, high = (mean, high) if z_value(values_I + mean) < z else (low, mean)
    return replace(meaning(), evidence_I=values_I + mean, inside=inside)


def worse(than, z, inside):
    """Return a meaning that fits nearly as well as one of this z, which is better by a z of its own."""
    return replace(evidence(than), evidence_I=evidence(than).evidence_I - evidence(z).evidence_I / 100, inside=inside)


WORSE = (2.9, 0.95, False), (3.1, 0.95, True), (1.9, 0.94, False), (2.1, 0.94, True)


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        (evidence(2.9), evidence(0), False),
        (evidence(3.1), evidence(-9, 0.94), True),
        (evidence(3.1), evidence(2.9, 0.94), True),  # which has boxes outside, and no clear evidence
        (evidence(3.1), evidence(3.05, 0.94), False),
        *((evidence(6), worse(6, z, inside), wins) for z, inside, wins in WORSE),
    ],
)
def test_meaning_beats_another_by_its_own_evidence_and_by_the_difference(one, other, wins):
    assert one.beats(other, 3.0) == wins


def test_fitted_boxes_stay_in_their_images():
    draft = shapes(12)
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    sample = Sample(maps, np.arange(len(raw)), raw.image_N)
    small = read_as(sample, "xyxy", "unit", LaidOut(lambda rows: inflate(raw.numbers_N4[rows], 0.75), len(raw)))
    assert fitted(small, sample).inside >= 0.95 and fitted(small, sample).z > small.z
    beyond = read_as(sample, "xyxy", "unit", LaidOut(lambda rows: raw.numbers_N4[rows] + 5, len(raw)))
    assert beyond.inside == 0 and fitted(beyond, sample) is beyond


@pytest.mark.parametrize(
    ("background", "z", "grade"),
    [
        (None, -9, "error"),
        (Background(0.1, 0.05, 1.99), 5.0, "error"),
        (Background(0.1, 0.05, 1.99), 4.99, "warning"),
        (Background(0.1, 0.05, 2.0), 9.0, "warning"),
        (Background(0.1, np.nan, -np.inf), 9.0, "warning"),
    ],
)
def test_correction_by_the_pixels_alone_is_sure_if_nothing_beside_gains_as_much(background, z, grade):
    assert _severity(background, z) == grade


def test_background_explains_from_a_z_and_says_what_it_compared():
    assert [Background(0.1, 0.2, z).explains for z in (3.49, 3.5)] == [False, True]
    assert [Background(0.1, 0.2, z).is_ruled_out for z in (-np.inf, -9, 1.99, 2)] == [False, True, True, False]
    assert "no room" in Background(0.1, np.nan, -np.inf).words and figures(Background(0.1, 0.2, 1).words) == [0.2, 0.1]


def test_boxes_beside_lie_at_least_a_side_and_at_most_two_sides_away():
    sides = np.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.1]])
    steps = list(_displacements(sides))
    half = [(x, y) for x in np.arange(-2, 2.1, 0.25) for y in np.arange(-2, 2.1, 0.25) if max(abs(x), abs(y)) >= 1]
    wanted = [sides * step for step in half] + [np.tile((0.2, 0.2), (3, 1)) * step for step in half]
    np.testing.assert_allclose(steps, wanted)


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ((0.4, 0, 0.6, 1), True),
        ((0.5, 0, 0.6, 1), False),
        ((0, 0.5, 1, 1), False),
        ((0, 0.4, 1, 1), True),
        ((-1, -1, 0, 1), False),
        ((0.1, 0.1, 0.2, 0.2), True),
    ],
)
def test_boxes_overlap_by_more_than_a_side(other, wanted):
    one = np.array([[0, 0, 0.5, 0.5]])
    assert [overlap(one, np.array([other]))[0], overlap(np.array([other]), one)[0]] == [wanted, wanted]


@pytest.mark.parametrize(
    ("kind", "step", "least", "code", "grade", "words"),
    [
        (0, (0.9,), 0.9, "resized", "error", "about 11% too large"),
        (0, (1.25,), 1.25, "resized", "error", "about 20% too small"),
        (1, (0.05, -0.1), 0, "shifted", "error", "32 px to the left and 20 px below their objects"),
        (1, (-0.05, 0.1), 0, "shifted", "error", "32 px to the right and 20 px above their objects"),
        (2, (1.25,), 1.25, "too_small", "error", "about 20% smaller"),
        (2, (0.8,), 0.95, "too_large", "note", "about 25% larger"),
        (2, (0.8,), 1 / 1.15, "too_large", "warning", "about 25% larger"),
        (2, (0.8,), 1 / 1.149, "too_large", "note", "about 25% larger"),
    ],
)
def test_offset_is_graded_and_said_in_the_size_of_the_images(kind, step, least, code, grade, words):
    offset = Offset(KINDS[kind], step, least, 0.1, 0.2, 9.0)
    finding, _ = _offset_finding(offset, np.array([640.0, 200.0]), 7)
    assert (finding.code, finding.severity, finding.count) == (code, grade, 7) and words in finding.message
    doubtful, _ = _offset_finding(replace(offset, background=Background(0.1, 0.2, 3.0)), np.array([640.0, 200.0]), 7)
    assert doubtful.severity == ("warning" if grade == "error" else grade)
    assert ("not sure" in doubtful.evidence) == (doubtful.severity == "warning")


def test_command_mends_all_that_is_wrong_and_a_note_alone_besides():
    def told(code, grade):
        return Finding(code, grade, "m", "e", 1, "")

    offsets = [
        (told("shifted", "error"), (Change("moved-left", 3.0, True),)),
        (told("too_large", "note"), (Change("enlarged", 1.1),)),
        (told("resized", "warning"), (Change("scaled", 0.9),)),
    ]
    of_meaning = [told("xyxy", "error"), told("resized", "error"), told("padded", "error")]
    found = _with_command(ReadAs("xyxy"), of_meaning, offsets, str)
    wrong = "xyxy,moved-left:3px,scaled:0.9"
    copies = ", or use the copies and their sizes"
    assert [f.fix for f in found] == [wrong, wrong + copies, wrong + copies, wrong, f"{wrong},enlarged:1.1", wrong]
    assert [f.read_as for f in found] == [wrong] * 4 + [f"{wrong},enlarged:1.1", wrong]


@pytest.mark.parametrize(
    ("own", "images", "code", "few"),
    [
        (evidence(0, 0.69), 40, "unknown_numbers", False),
        (evidence(9, 0.69), 0, "unknown_numbers", False),
        (evidence(0, 0.7), 29, "no_evidence", True),
        (evidence(2.9, 1.0), 30, "no_evidence", False),
        (evidence(3.1, 1.0), 30, None, False),
        (evidence(0, 1.0), 0, None, False),
        (evidence(0, 1.0), 1, "no_evidence", True),
    ],
)
def test_boxes_that_nothing_confirms(own, images, code, few):
    found = _unexplained(own, SimpleNamespace(maps=range(images)), 7)
    assert [f.code for f in found] == [code] * bool(code) and all(f.count == 7 for f in found)
    assert not found or ("too few" in found[0].message) == few
    assert code != "no_evidence" or figures(found[0].evidence)[1] == images


@pytest.mark.parametrize(
    ("box", "margin", "wanted"),
    [
        ((0, 0, 1, 1), 0.0, True), ((0.2, 0.2, 0.2, 0.4), 0.0, False), ((0.2, 0.4, 0.3, 0.4), 0.0, False),
        ((0.3, 0.2, 0.2, 0.4), 0.0, False), ((-0.01, 0, 1.01, 1), 0.01, True), ((-0.011, 0, 1, 1), 0.01, False),
        ((0, -0.011, 1, 1), 0.01, False), ((0, 0, 1.011, 1), 0.01, False), ((0, 0, 1, 1.011), 0.01, False),
    ],
)  # fmt: skip
def test_box_is_inside_with_an_area_and_up_to_a_margin(box, margin, wanted):
    assert bool(is_inside(np.array(box), margin)) == wanted


def test_evidence_counts_from_five_images_and_ignores_what_is_unknown():
    values = np.array([1.0, 2, 3, 2.5])
    assert z_value(values) == 0 and z_value(np.append(values, np.nan)) == 0 and z_value(np.full(9, 2.0)) == 0
    assert z_value(np.append(values, 2)) > 2.9 and z_value(-np.append(values, 2)) == -z_value(np.append(values, 2))
    assert z_value(np.array([1.0, 2, 3, 2.5, 2, np.nan, np.inf])) == z_value(np.append(values, 2))
    assert finite_mean(np.array([0.5, np.nan, 1.5])) == 1.0 and finite_mean(np.full(3, np.nan)) == -1.0


def test_contrast_is_along_the_sides_without_those_at_the_border_and_of_the_own_image():
    draft = shapes(9)
    maps = EdgeMaps.of(draft.images.values())
    whole = np.array([[0, 0, 1, 1], [0.005, 0.005, 0.995, 0.995]])
    assert np.isnan(maps.along(whole, np.zeros(2, int))).all()
    one, along_x = np.array([[0.3, 0.0, 0.6, 1.0]]), maps.along(np.array([[0.3, 0.0, 0.6, 1.0]]), np.array([3]))
    mixed = (
        maps.along(np.array([[0.3, 0.0, 1.0, 1.0]]), np.array([3])),
        maps.along(np.array([[0.0, 0.0, 0.6, 1.0]]), np.array([3])),
    )
    assert along_x == pytest.approx((mixed[0] + mixed[1]) / 2) and one.shape == (1, 4)
    boxes_N4, image_N = np.concatenate(draft.corners), np.repeat(np.arange(9), [len(c) for c in draft.corners])
    own_I = maps.by_image(maps.contrast(boxes_N4, image_N), image_N)
    steps = np.random.default_rng(1).integers(1, 9, 4)
    others = [maps.by_image(maps.contrast(boxes_N4, (image_N + step) % 9), image_N) for step in steps]
    np.testing.assert_allclose(maps.evidence(boxes_N4, image_N), own_I - np.nanmean(others, axis=0))
    assert np.nanmean(own_I) > 0.1 > abs(np.nanmean(others))


def test_image_is_spanned_by_a_box_that_leaves_a_hundredth_on_each_side():
    rows = np.array(
        [
            [0.01, 0.01, 0.99, 0.99],
            *(
                [0.01 + 0.002 * (k == 0), 0.01 + 0.002 * (k == 1), 0.99 - 0.002 * (k == 2), 0.99 - 0.002 * (k == 3)]
                for k in range(4)
            ),
            [-0.5, 0, 1, 1],
        ]
    )
    assert _spans_its_image(rows).tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize(
    ("kind", "step", "wanted"),
    [
        (1, (-0.035, 0.05), (-0.03, 0.05)), (1, (-0.045, 0.0), (-0.045, 0.0)), (1, (0.105, 0.0), (0.1, 0.0)),
        (1, (-0.02, 0.0), (-0.02, 0.0)), (0, (1.115,), (1 / 0.9,)), (0, (1.05,), (1.05,)), (0, (1.3,), (1.3,)),
        (2, (1.1,), (1.1,)), (1, (0.0, 0.308), (0.0, 0.3)),
    ],
)  # fmt: skip
def test_move_ends_where_the_boxes_do_if_that_is_near(kind, step, wanted):
    boxes_N4 = np.array([[0.03, 0.2, 0.4, 0.6], [0.5, 0.2, 0.9, 0.7], [-0.2, 0.1, 0.3, 0.9], [0.2, 0.3, 0.7, 1.4]])
    assert kept_inside(Offset(KINDS[kind], step, 0, 0, 1, 9), boxes_N4).step == pytest.approx(wanted)
    nothing = Offset(KINDS[1], (0.5, 0.5), 0, 0, 1, 9)
    assert kept_inside(nothing, boxes_N4[2:]) is nothing


def test_move_that_would_be_too_small_to_be_told_is_kept():
    boxes_N4 = np.array([[0.008, 0.2, 0.4, 0.6]])
    assert kept_inside(Offset(KINDS[1], (-0.014, 0.0), 0, 0, 1, 9), boxes_N4).step == (-0.014, 0.0)


def test_boxes_that_were_outside_before_are_not_lost_by_a_reading():
    draft = shapes(6)
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    sample, own_N4 = Sample(maps, np.arange(len(raw)), raw.image_N), raw.numbers_N4.copy()
    own_N4[:3] += 2
    raw = raw.with_numbers(own_N4)
    assert objection_to(ReadAs.parse("moved-left:0.1%"), raw, own_N4, raw.stated_I2, sample) == ""
    assert objection_to(ReadAs.parse("moved-right:99%"), raw, own_N4, raw.stated_I2, sample).startswith(
        f"{len(raw) - 3} boxes of {len(raw)}"
    )


def test_sizes_stand_in_place_of_each_other_where_one_is_unknown():
    raw = boxes(
        ["a", "b", "c"], [(n, "x", (10, 20, 30, 40)) for n in range(3)], sizes=[(100, 200), (np.nan, np.nan), (50, 50)]
    )
    sizes_I2 = np.array([(np.nan, np.nan), (40, 80), (25, 100)], float)
    pixels, stated = (search._units(raw, sizes_I2)[name] for name in ("pixels", "stated"))
    assert pixels.tolist() == [[100, 200], [40, 80], [25, 100]] and stated.tolist() == [[100, 200], [40, 80], [50, 50]]
    same = boxes(["a"], sizes=[(100, 200)])
    assert "stated" not in search._units(same, np.array([[100.0, 200.0]]))
    corners = search.boxes_as(meaning("xyxy", "pixels"), raw, sizes_I2)
    np.testing.assert_allclose(corners, np.array([[10, 20, 30, 40]] * 3) / np.tile(pixels, 2))


@pytest.mark.parametrize(
    ("used", "names", "fix"),
    [
        (
            {1: 3, 2: 1, 0: 0},
            {0: "a", 1: "b"},
            'subtract 1 from the class of each object, or write in data.yaml: `names: {1: "a", 2: "b"}`',
        ),
        (
            {0: 3, 1: 1, 2: 0},
            {1: "a", 2: "b"},
            'add 1 to the class of each object, or write in data.yaml: `names: {0: "a", 1: "b"}`',
        ),
        ({-1: 3, 0: 1}, {0: "a", 1: "b"}, "add 1 to the class of each object"),
        ({1: 3, 2: 1, 7: 0}, {0: "a", 1: "b"}, "subtract 1 from the class of each object"),
    ],
)
def test_class_numbers_that_no_object_has_decide_nothing(used, names, fix):
    (finding,) = shifted_classes(ClassNumbers(used, names))
    assert finding.fix.startswith(fix) and finding.count == 4


@pytest.mark.parametrize("turn", [2, 3, 4, 6, 8])
def test_boxes_of_turned_images_fit_once_they_are_turned_back(turn):
    draft = shapes(24).moved(TURNS[INVERSE_TURN[turn]])
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    sample = Sample(maps, np.arange(len(raw)), raw.image_N)
    own = search.declared_meaning(raw, raw.stated_I2, sample)
    best = max(search.Search(own, raw, raw.stated_I2, sample).turns, key=lambda meaning: meaning.z)
    assert best.turn == turn and best.z > 3
    (change,) = best.read_as.changes
    np.testing.assert_allclose(change.undone(raw.numbers_N4, raw.stated_I2), TURNS[turn](raw.numbers_N4))


@pytest.mark.parametrize(
    ("name", "count", "wanted"),
    [
        ("norm1000", 30, "norm1000"),
        ("unit", 30, "unit"),
        ("xyxy", 30, "xyxy"),
        ("norm1000", 2, "norm1000"),
        ("resized", 30, None),
        (None, 30, None),
    ],
)
def test_range_of_the_numbers_decides_with_the_fewest_changes_where_pixels_say_nothing(name, count, wanted):
    drawn = replace(shapes(count), coco=True)
    raw, none = COCO.get(name, lambda draft: draft)(drawn).raw(), np.zeros(0, np.int64)
    found, _ = examine_geometry(raw, raw.stated_I2, Sample(EdgeMaps.of([]), none, none))
    assert [f.code for f in found] == [wanted] * bool(wanted)
    assert all("not confirmed by the pixels" in f.evidence for f in found)


@pytest.mark.parametrize(
    ("inside", "count", "decides"),
    [
        (7, 10, False),
        (6, 10, False),
        (5, 10, True),
        (680, 1000, True),
        (69, 100, False),
        (66, 100, False),
        (64, 100, True),
    ],
)
def test_share_of_wrong_boxes_has_to_be_low_beyond_its_own_error(inside, count, decides):
    raw = boxes(["a"], [(0, "x", (1, 2, 3, 4))] * count, sizes=[(100, 100)])
    sample = Sample(EdgeMaps.of([]), np.zeros(0, np.int64), np.zeros(0, np.int64))
    known = search.Search(replace(meaning("xyxy"), inside=inside / count), raw, raw.stated_I2, sample)
    known.__dict__["alternatives"] = [meaning("yxyx", "percent"), meaning("xyxy", "percent"), meaning("yxyx", "unit")]
    found = search._only_possible_range(known)
    assert (found and (found[0].layout, found[0].unit, found[1])) == (("xyxy", "percent", False) if decides else None)


@pytest.mark.slow
def test_placements_of_pixels_keep_them_on_images_of_another_size():
    raw = boxes(["a", "b"], [(n % 2, "x", (10, 10 + n, 90, 95)) for n in range(6)], sizes=[(100, 100), (200, 100)])
    sizes_I2, none = np.array([(100.0, 120), (200, 100)]), np.zeros(0, np.int64)
    for unit in ("pixels", "unit"):
        of_unit = replace(raw, unit=unit)
        own = search.declared_meaning(of_unit, sizes_I2, Sample(EdgeMaps.of([]), none, none))
        placed = search.candidate_placements(of_unit, sizes_I2, own, np.arange(6))
        for placement in placed[1:]:
            as_read = [
                (
                    u,
                    np.abs(
                        LAYOUTS[layout](raw.numbers_N4) / np.tile(np.broadcast_to(d, (2, 2))[raw.image_N], 2)
                        - placement.boxes_n4
                    ).max()
                    < 1e-9,
                )
                for u, d in search._units(of_unit, sizes_I2).items()
                for layout in LAYOUTS
            ]
            units = {u for u, is_same in as_read if is_same}
            if units and placement.turn == 1:
                assert placement.in_pixels == bool(units & {"pixels", "stated"}), units
        assert placed[0].in_pixels == (unit == "pixels")


@pytest.mark.parametrize(("size", "reach"), [((24, 17), 1), ((17, 24), 1), ((310, 9), 3)])
def test_gradient_is_ranked_after_the_largest_within_reach_along_its_axis(size, reach):
    pixels_HWC = np.random.default_rng(0).integers(0, 255, (*size[::-1], 3), np.uint8)
    for across in (False, True):
        lines = pixels_HWC.astype(int) if across else pixels_HWC.astype(int).transpose(1, 0, 2)
        step = np.abs(np.diff(lines, axis=0)).max(axis=2)
        near = (step[max(0, k - reach) : k + reach + 1].max(axis=0) for k in range(len(step)))
        wide = np.stack(list(near))
        equal = np.bincount(wide.ravel(), minlength=256)
        rank = ((np.concatenate([[0], np.cumsum(equal)[:-1]]) + equal / 2) / wide.size * 200).astype(int)
        sums = np.zeros((len(lines) + 1, lines.shape[1] + 1), int)
        sums[1:-1, 1:] = np.cumsum(rank[wide], axis=1)
        found = edges._running_sum(pixels_HWC, across=across)
        np.testing.assert_array_equal(found, sums if across else sums.T)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (2.4, 7.6, (2, 8)),
        (3.0, 3.2, (3, 5)),
        (-4.0, -2.0, (0, 2)),
        (9.0, 9.9, (8, 10)),
        (14.0, 20.0, (8, 10)),
        (0.0, 1.0, (0, 2)),
        (7.0, 9.0, (7, 9)),
    ],
)
def test_side_has_at_least_two_pixels_inside_the_image(low, high, wanted):
    found = edges._segment(np.array([low]), np.array([high]), np.array([10]))
    assert tuple(int(end[0]) for end in found) == wanted


@pytest.mark.parametrize("factor", [0.8, 1.3])
def test_least_factor_is_the_nearest_to_1_that_fits_as_well(factor):
    draft = shapes(30).moved(lambda b: inflate(b, factor))
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    sample, kind = Sample(maps, np.arange(len(raw)), raw.image_N), KINDS[2]
    offset = find_offset(raw.numbers_N4, sample, (kind,))
    onsets = {float(step): sample.onset(inflate(raw.numbers_N4, step)) for (step,) in kind.steps_KD}
    best_I = onsets[offset.step[0]]
    low, high = sorted((1.0, offset.step[0]))
    as_good = [step for step, onset_I in onsets.items() if low < step < high and z_value(best_I - onset_I) < 2]
    assert offset.least == min([*as_good, offset.step[0]], key=lambda step: abs(step - 1))
    assert abs(1 / offset.step[0] - factor) < 0.05 and (offset.step[0] > 1) == (factor < 1)
    before_I = sample.onset(raw.numbers_N4)
    assert (offset.before, offset.after) == pytest.approx((np.nanmean(before_I), np.nanmean(best_I)))
    assert offset.z == pytest.approx(z_value(best_I - before_I)) and offset.z_of_groups <= offset.z + 1e-9
