"""The table of boxes: units become pixels once, and rows are taken and joined without changing a number."""

import random

import numpy as np
import pytest

from coord_codec.box_table import BoxFlag, BoxTable, to_pixels


def drawn(draw, shapes=False):
    images = [(f"id{draw.randrange(6)}", f"{n}.jpg") for n in range(draw.randrange(1, 4))]
    images = list(dict(images).items())
    count = draw.randrange(6)
    vertices = [[[draw.random() * 99, draw.random()] for _ in range(draw.randrange(4))] for _ in range(count)]
    boxes = [[draw.random() * 9, draw.random() * 9, 10 + draw.random(), 11 + draw.random()] for _ in range(count)]
    labels = draw.sample(["cat", "dog", "owl"], 2)
    more = {}
    if shapes:
        starts = np.cumsum([0, *map(len, vertices)])
        more = {"vertices_V2": [point for shape in vertices for point in shape], "starts_N1": starts}
    table = BoxTable.of(
        [draw.randrange(len(images)) for _ in boxes],
        [draw.randrange(2) for _ in boxes],
        boxes,
        image_ids=[image_id for image_id, _ in images],
        names=[name for _, name in images],
        labels=labels,
        score_N=[draw.random() for _ in boxes],
        **more,
    )
    return table, vertices


def rows(table):
    """Every box of a table as plain values, with its image and label by name."""
    starts = [0] * (len(table) + 1) if table.starts_N1 is None else table.starts_N1.tolist()
    return [
        (
            table.image_ids[table.image_N[n]],
            table.labels[table.label_N[n]],
            table.boxes_N4[n].tolist(),
            table.sides_N2[n].tolist(),
            float(table.score_N[n]),
            [] if table.vertices_V2 is None else table.vertices_V2[starts[n] : starts[n + 1]].tolist(),
        )
        for n in range(len(table))
    ]


@pytest.mark.parametrize("shapes", [False, True])
def test_taken_and_joined_tables_have_the_rows_of_plain_lists(shapes):
    draw = random.Random(3)
    for _ in range(50):
        parts = [drawn(draw, shapes)[0] for _ in range(draw.randrange(1, 4))]
        joined = BoxTable.concatenate(parts)
        assert rows(joined) == [row for part in parts for row in rows(part)]
        assert len(set(joined.image_ids)) == len(joined.image_ids) == len(joined.names) == len(joined.sizes_I2)
        chosen = [draw.randrange(len(joined)) for _ in range(5)] if len(joined) else []
        assert rows(joined.take(chosen)) == [rows(joined)[n] for n in chosen]
        mask = joined.score_N > 0.5
        assert rows(joined.take(mask)) == [row for row in rows(joined) if row[4] > 0.5]


def test_columns_that_are_not_stated_are_derived_and_stay_those_of_their_rows():
    boxes = [[1, 2, 4, 9], [0, 0, 5, 5], [3, 3, 4, 5]]
    table = BoxTable.of([0, 0, 0], [0, 0, 0], boxes, image_ids=(7,), labels=("cat",))
    for taken in (table.take([2, -3]), table.take([False, True, True]).take([1])):
        assert taken.sides_N2.tolist()[0] == [1, 2] and taken.area_N.tolist()[0] == 2
        assert taken.row_N.tolist()[0] == taken.order_N.tolist()[0] == 2
        assert np.isnan(taken.score_N).all() and len(taken.score_N) == len(taken)
    assert table.take([2, -3]).row_N.tolist() == [2, 0]
    assert table.area_N.tolist() == [21, 25, 2]  # is known from now on
    moved = table.changed(boxes_N4=np.array(boxes, float) * 2)
    assert moved.sides_N2[0].tolist() == [6, 14] and moved.area_N.tolist() == [84, 100, 8]
    stated = BoxTable.of([0], [0], boxes[:1], image_ids=(7,), labels=("cat",), area_N=[3], score_N=[0.5])
    assert (stated.take([0]).area_N.tolist(), stated.take([0]).score_N.tolist()) == ([3], [0.5])


def test_the_first_table_that_has_an_image_names_it():
    first = BoxTable.of([], [], [], image_ids=[7], names=["a.jpg"], sizes_I2=[[4, 3]], labels=[])
    second = BoxTable.of([0], [0], [[0, 0, 1, 1]], image_ids=[7], names=["b.jpg"], labels=["cat"])
    joined = BoxTable.concatenate([first, second])
    assert (joined.names, joined.sizes_I2.tolist(), joined.labels) == (("a.jpg",), [[4, 3]], ("cat",))


@pytest.mark.slow
def test_pixels_are_those_of_whole_numbers_in_every_unit():
    """A whole pixel that was written in parts of the image with ten digits is that whole pixel again."""
    sides = np.array([37, 375, 500, 640, 999, 1000, 4096])
    for side in sides.tolist():
        pixels = np.arange(side + 1)
        for scale in (1, 100, 999, 1000):
            stated = np.array([float(f"{value * scale / side:.10g}") for value in pixels])
            assert (to_pixels(stated, side, scale) == pixels).all()
            assert [to_pixels(value, side, scale) for value in stated.tolist()] == pixels.tolist()


def test_the_order_is_multiply_divide_round():
    draw = random.Random(1)
    for _ in range(2000):
        value, side, scale = draw.randrange(1001), draw.randrange(1, 5000), draw.choice([1000, 999])
        assert to_pixels(value, side, scale) == round(value * side / scale * 1e6) / 1e6


def test_flags_are_bits():
    table = BoxTable.of(
        [0, 0, 0],
        [0, 0, 0],
        np.zeros((3, 4)),
        image_ids=[1],
        labels=["cat"],
        flags_N=[0, BoxFlag.CROWD, BoxFlag.CROWD | BoxFlag.CLIPPED],
    )
    assert table.has(BoxFlag.CROWD).tolist() == [False, True, True]
    assert table.has(BoxFlag.CLIPPED | BoxFlag.IGNORED).tolist() == [False, False, True]


@pytest.mark.parametrize("column", ["label_N", "score_N", "row_N", "sides_N2", "sizes_I2"])
def test_a_column_of_another_length_is_named(column):
    values = {"label_N": [0], column: [[0, 0]] * 3 if column.endswith("2") else [0, 1, 2]}
    with pytest.raises(ValueError, match=f"^{column}: expected the shape"):
        BoxTable.of([0], boxes_N4=[[0, 0, 1, 1]], image_ids=[1], labels=["cat"], **values)


def test_tables_with_and_without_shapes_are_not_joined():
    box = BoxTable.of([0], [0], [[0, 0, 1, 1]], image_ids=[1], labels=["cat"])
    shape = BoxTable.of([0], [0], [[0, 0, 1, 1]], image_ids=[1], labels=["cat"], vertices_V2=[[0, 0]], starts_N1=[0, 1])
    for parts in ([], [box, shape]):
        with pytest.raises(ValueError, match="expected one or more tables"):
            BoxTable.concatenate(parts)


def test_names_and_sizes_stay_with_their_images_and_tables_differ_in_every_column():
    def made(**changes):
        values = {"image_ids": [7, 8], "names": ["a", "b"], "sizes_I2": [[4, 3], [9, 9]], "labels": ["cat"], **changes}
        return BoxTable.of(**{"image_N": [0, 1], "label_N": [0, 0], "boxes_N4": [[0, 0, 1, 1]] * 2, **values})

    other = made(image_ids=[9, 8], names=["c", "d"], sizes_I2=[[1, 2], [5, 6]], order_N=[5, 4], flags_N=[1, 2])
    joined = BoxTable.concatenate([made(), other])
    assert (joined.image_ids, joined.names) == ((7, 8, 9), ("a", "b", "c"))
    assert joined.sizes_I2.tolist() == [[4, 3], [9, 9], [1, 2]] and joined.image_N.tolist() == [0, 1, 2, 1]
    assert joined.order_N.tolist() == [0, 1, 5, 4] and joined.flags_N.tolist() == [0, 0, 1, 2]
    shaped = {"vertices_V2": [[0, 0], [1, 1]], "starts_N1": [0, 1, 2]}
    changes = [
        *({"image_ids": [7, 9]}, {"names": ["a", "c"]}, {"sizes_I2": [[4, 3], [9, 8]]}, {"labels": ["dog"]}),
        *({"image_N": [0, 0]}, {"label_N": [0, 1], "labels": ["cat", "cat"]}, {"boxes_N4": [[0, 0, 1, 2]] * 2}),
        *({"sides_N2": [[1, 1], [1, 2]]}, {"area_N": [1, 2]}, {"score_N": [0.5, 0.5]}, {"order_N": [1, 0]}),
        *({"flags_N": [0, 1]}, {"row_N": [1, 0]}, shaped, {**shaped, "vertices_V2": [[0, 0], [1, 2]]}),
    ]
    tables = [made(), *(made(**change) for change in changes)]
    assert [[a == b for b in tables] for a in tables] == [
        [n == m for m in range(len(tables))] for n in range(len(tables))
    ]
    assert made(score_N=[np.nan, np.nan]) == made() and made() != "table"
    assert made().of_images([False, True]).names == ("b",) and made().of_images([False, True]).sizes_I2.tolist() == [
        [9, 9]
    ]
