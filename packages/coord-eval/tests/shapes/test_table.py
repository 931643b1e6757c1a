"""What holds for every geometry of the table: its examples are parsed, scored at their ceiling and drawn."""

import pytest

from coord_codec import GEOMETRIES, MARKERS, CoordGrid, Instance, encode_target, geometry_of
from coord_eval import AnswerSettings, parse_answer, score
from coord_eval.shapes.similarity import SIMILARITIES, similarity_of

GRID = CoordGrid()
FORMS = [("json", "obj", form) for form in ("tokens", "numbers")]
FORMS += [("markers", family, form) for family in MARKERS for form in ("tokens", "numbers")]


def image_of(kind, count=2):
    """An image with the example of a geometry and its mirror image."""
    examples = [kind.arrange(kind.example), kind.flip(kind.example)][:count]
    shapes = [{"type": kind.name, "coordinates": list(example)} for example in examples]
    if kind.named:
        shapes = [{**shape, "names": ["a", "b"][: len(kind.example) // 2]} for shape in shapes]
    objects = [{"desc": desc, "geometry": shape} for desc, shape in zip(("cat", "dog"), shapes, strict=False)]
    return Instance(image="a.png", image_id=1, width=200, height=100, objects=objects)


@pytest.mark.parametrize(("style", "markers", "form"), FORMS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_target_of_every_geometry_is_parsed_to_its_bins(name, style, markers, form):
    kind = geometry_of(name)
    image = image_of(kind)
    text = encode_target(image, style=style, markers=markers, form=form, order="given", geometry=name)
    answer = parse_answer(text, geometry=name)
    assert (answer.status, answer.truncated, [item.desc for item in answer]) == ("ok", False, ["cat", "dog"])
    ordinals = [index for item in answer if form == "tokens" for index in item.coord_indices]
    assert ordinals == list(range(answer.coord_count))
    for found, true in zip(answer, image.objects, strict=True):
        bins = kind.to_bins(true.geometry.coordinates, GRID)
        assert (found.geometry, found.completeness, list(found.bins)) == (name, "complete", bins)
        assert found.box == pytest.approx(kind.to_box(tuple(map(GRID.dequantize, bins))), abs=6e-4)
        shape = () if kind.is_box else tuple(map(GRID.dequantize, bins))
        assert found.coordinates == pytest.approx(shape)
        assert found.points == (kind.outline(found.coordinates) if shape else ())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_target_that_is_cut_off_keeps_complete_objects_only(name):
    kind = geometry_of(name)
    text = encode_target(image_of(kind), markers="obj", order="given", geometry=name)
    answer = parse_answer(text[: text.rindex("<|coord_")], geometry=name)
    assert (len(answer), answer.truncated) == (1, True)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_perfect_answers_of_every_geometry_reach_their_ceiling_and_are_drawn(name, tmp_path):
    kind = geometry_of(name)
    image = image_of(kind)
    text = encode_target(image, markers="obj", geometry=name)
    evaluation = score([image], [{"image_id": 1, "text": text}], answers=AnswerSettings(geometry=name))
    if kind.is_box:
        assert evaluation.shapes == {} and evaluation.coco["AP"] == pytest.approx(1)
    else:
        shapes, measure = evaluation.shapes, similarity_of(kind)
        assert shapes["AP"] == pytest.approx(shapes["ceiling"]["AP"]) == pytest.approx(1)
        assert shapes["mean"] == pytest.approx(shapes["ceiling"]["mean"])
        assert shapes["mean"] > 0.97
        assert {"AP", *measure.names} <= shapes.keys() and shapes["measure"] == measure.about
        nothing = score([image], [{"image_id": 1, "text": ""}], answers=AnswerSettings(geometry=name))
        assert nothing.shapes["AP"] == nothing.shapes["mean"] == 0
    report = evaluation.write_report(tmp_path).read_text()
    element = "<rect" if kind.is_box else "<polygon" if kind.closed else "<path"
    assert report.count(f"{element} ") + report.count(f"{element}\n") >= 4  # two objects and two answers
    assert ("Average precision and recall (COCO)" in report) == kind.has_extent


def test_unknown_measure_is_named():
    class Blob(type(geometry_of("polygon"))):
        similarity = "blobness"

    with pytest.raises(ValueError, match=r"geometry polygon: similarity: expected mask_iou, .+'blobness'"):
        similarity_of(Blob())
    assert {row.similarity for row in GEOMETRIES.values() if not row.is_box} <= SIMILARITIES.keys()


def test_boxes_from_distributions_are_refused_for_shapes():
    image = image_of(geometry_of("polygon"), 1)
    text = encode_target(image, markers="obj", geometry="polygon")
    record = {"image_id": 1, "text": text, "coord_expected": [0.5] * 6}
    with pytest.raises(ValueError, match="no distribution to take its box from"):
        score([image], [record], answers=AnswerSettings(geometry="polygon", boxes="expected"))
