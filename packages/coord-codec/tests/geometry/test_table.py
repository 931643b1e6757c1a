"""The table of geometries: what holds for every row, that of a user included; what is refused as a row."""

import math

import pytest

from coord_codec import (
    GEOMETRIES,
    CoordGrid,
    CoordVocab,
    Geometry,
    Instance,
    Object,
    annotate_coord_tokens,
    coordinates_of,
    encode_target,
    find_layout,
    geometry_of,
    ints_to_tokens,
    read_instances,
    register_geometry,
    write_instances,
)
from coord_codec.boxes import SmallBoxError
from coord_codec.geometry import Affine, geometry_table, read_shape
from coord_codec.geometry.base import MIRROR, QUARTER_TURN, wrap

GRID = CoordGrid()


class Ellipse(Geometry):
    """Centre, radii and the angle of the longer radius, in the unit square."""

    name = "ellipse"
    about = "x, y of the centre, the longer and the shorter radius, the angle of the longer one"
    least = most = 5
    numbers = ("x", "y", "length", "length", "angle")
    period = math.pi  # half a turn gives the same ellipse
    keys = ("ellipse", "ellipse_2d")
    example = (0.5, 0.5, 0.25, 0.125, 0.25)

    def arrange(self, coordinates):
        self.check_count(coordinates)
        x, y, long, short, angle = coordinates
        if min(long, short) <= 0:
            raise SmallBoxError("the ellipse has no area")
        if short > long:
            long, short, angle = short, long, angle + 0.5
        return x, y, long, short, wrap(angle) if short < long else 0.0

    def from_box(self, bbox):
        x1, y1, x2, y2 = bbox
        return self.arrange(((x1 + x2) / 2, (y1 + y2) / 2, (x2 - x1) / 2, (y2 - y1) / 2, 0.0))

    def outline(self, coordinates):
        x, y, long, short, angle = coordinates
        cos, sin = math.cos(angle * math.pi), math.sin(angle * math.pi)
        turns = [math.tau * k / 64 for k in range(64)]
        along = [(long * math.cos(turn), short * math.sin(turn)) for turn in turns]
        return tuple((x + a * cos - b * sin, y + a * sin + b * cos) for a, b in along)

    def box_of(self, numbers, lib=math):
        x, y, long, short, angle = numbers
        cos, sin = lib.cos(angle * math.pi), lib.sin(angle * math.pi)
        width = lib.sqrt((long * cos) ** 2 + (short * sin) ** 2)
        height = lib.sqrt((long * sin) ** 2 + (short * cos) ** 2)
        return x - width, y - height, x + width, y + height

    def transform(self, coordinates, change):
        x, y, long, short, angle = coordinates
        cos, sin = math.cos(angle * math.pi), math.sin(angle * math.pi)
        # The radii as columns of a matrix, changed; its singular values are the new radii.
        a, c = change.xx * long * cos + change.xy * long * sin, change.yx * long * cos + change.yy * long * sin
        b, d = change.xy * short * cos - change.xx * short * sin, change.yy * short * cos - change.yx * short * sin
        mean, gap = math.hypot(a + d, c - b) / 2, math.hypot(a - d, c + b) / 2
        turn = (math.atan2(c - b, a + d) + math.atan2(c + b, a - d)) / 2
        return self.arrange((*self._move((x, y), change), mean + gap, abs(mean - gap), turn / math.pi))


class Spoke(Geometry):
    """A centre, a length and an angle with a whole turn as its period; all that a row can leave to the base class."""

    name, about = "spoke", "x, y of an end, length, angle"
    least = most = 4
    numbers = ("x", "y", "length", "angle")
    keys = ("spoke", "spoke_2d")
    example = (0.25, 0.5, 0.125, 0.125)
    closed = False

    def arrange(self, coordinates):
        self.check_count(coordinates)
        return coordinates

    def from_box(self, bbox):
        return None

    def ends(self, x, y, length, angle, lib=math):
        return x + length * lib.cos(angle * math.tau), y + length * lib.sin(angle * math.tau)

    def outline(self, coordinates):
        return coordinates[:2], self.ends(*coordinates)

    def box_of(self, numbers, lib=math):
        x, y = self.ends(*numbers, lib)
        return min(x, numbers[0]), min(y, numbers[1]), max(x, numbers[0]), max(y, numbers[1])


OWN = (Ellipse(), Spoke())


@pytest.fixture(autouse=True)
def own_rows():
    built_in = dict(GEOMETRIES)  # one of them may have such a name
    for row in OWN:
        register_geometry(row, replace=True)
    yield
    for row in OWN:
        if row.name in built_in:
            register_geometry(built_in[row.name], replace=True)
        else:
            GEOMETRIES.remove(row.name)


BUILT_IN = geometry_table()
ROWS = list(dict.fromkeys((*GEOMETRIES, *(row.name for row in OWN))))


def record_of(name):
    kind = geometry_of(name)
    shape = {"type": name, "coordinates": list(kind.example)}
    if kind.named:
        shape |= {"names": [f"point {n}" for n in range(len(kind.example) // 2)]}
    return {"image": "a.jpg", "objects": [{"desc": "cat", "geometry": shape}]}


def in_pixels(points, size=(300.0, 200.0)):
    return [(x * size[0], y * size[1]) for x, y in points]


@pytest.mark.parametrize("name", ROWS)
def test_row_is_written_read_back_and_annotated(name, tmp_path):
    kind = geometry_of(name)
    instance = Instance.model_validate(record_of(name))
    (obj,) = instance.objects
    assert obj.geometry.coordinates == kind.arrange(kind.example)
    path = tmp_path / "a.jsonl"
    write_instances(path, [instance])
    assert read_instances(path).instances == (instance,)
    bins = kind.to_bins(obj.geometry.coordinates, GRID)
    assert len(bins) == len(kind.example)
    tokens = {"objects": [{"desc": "a", "geometry": {"type": name, "coordinates": ints_to_tokens(bins)}}]}
    assert annotate_coord_tokens(tokens)
    assert tokens["objects"][0]["_coord_token_ints"] == {name: bins}
    in_bins, in_tokens = record_of(name) | {"coord_space": "bins"}, record_of(name)
    for record, coordinates in ((in_bins, bins), (in_tokens, ints_to_tokens(bins))):
        record["objects"][0]["geometry"]["coordinates"] = coordinates
        assert Instance.model_validate(record).objects[0].geometry.coordinates == tuple(map(GRID.dequantize, bins))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("markers", [(1, 2), (1, 2, 3, 4), None])
def test_row_encodes_to_a_layout_with_its_bins(name, markers):
    kind, instance = geometry_of(name), Instance.model_validate(record_of(name))
    bins = kind.to_bins(coordinates_of(instance.objects[0], name), GRID)
    assert encode_target(instance, markers="obj", geometry=name).count("<|coord_") == len(bins)
    assert f'"{kind.keys[0]}": [' in encode_target(instance, style="json", geometry=name)
    assert f'"{kind.keys[1]}": {bins}' in encode_target(instance, style="json", form="numbers", geometry=name)
    vocab = CoordVocab(100)
    coords = [100 + k for k in bins]
    if markers is None:
        ids = [7]
        for k, coord in enumerate(coords):
            ids += [coord, 8 if k < len(coords) - 1 else 9]
    else:
        before = [markers[0], 7] if len(markers) == 2 else [markers[0], 7, *markers[1:3]]
        ids = [*before, *coords, markers[-1]]
    (found,) = find_layout(ids, vocab, markers, name).objects
    assert list(found.bins) == bins
    shorter = [token for token in ids if token != coords[-1]]
    assert kind.fits(len(bins) - 1) or not find_layout(shorter, vocab, markers, name).objects


@pytest.mark.parametrize("name", ROWS)
def test_box_around_row_encloses_its_outline(name):
    kind = geometry_of(name)
    x1, y1, x2, y2 = kind.to_box(kind.arrange(kind.example))
    xs, ys = zip(*kind.placed(kind.outline(kind.arrange(kind.example))), strict=True)
    assert (x1, y1, x2, y2) == pytest.approx((min(xs), min(ys), max(xs), max(ys)), abs=2e-3)
    assert kind.has_extent == (x1 < x2 and y1 < y2)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("change", [MIRROR, QUARTER_TURN, Affine(0.5, 0, 0, 0.5, 0.25, 0.25)])
def test_outline_of_changed_row_is_the_changed_outline(name, change):
    kind = geometry_of(name)
    shape = kind.arrange(kind.example)
    changed = kind.transform(shape, change)
    moved = {change(*point) for point in kind.outline(shape)}
    for x, y in kind.outline(changed):
        assert min(math.hypot(x - a, y - b) for a, b in moved) < 1e-2  # 64 points of the ellipse begin elsewhere
    if not kind.closed:
        assert [pytest.approx(p) for p in kind.outline(changed)] == [change(*p) for p in kind.outline(shape)]


def test_four_quarter_turns_are_none():
    for name in ROWS:
        kind = geometry_of(name)
        shape = turned = kind.arrange(kind.example)
        for _ in range(4):
            turned = kind.transform(turned, QUARTER_TURN)
        assert turned == pytest.approx(shape), name
        assert kind.flip(kind.flip(shape)) == pytest.approx(shape), name


def test_uneven_crop_is_exact_for_an_ellipse_and_refused_where_a_row_cannot_say():
    ellipse = read_shape({"type": "ellipse", "coordinates": (0.5, 0.5, 0.2, 0.1, 0.3)})
    window = Affine.window(0.2, 0.1, 0.6, 0.75)
    changed = geometry_of("ellipse").outline(ellipse.moved(0.2, 0.1, 0.6, 0.75).coordinates)
    exact = [window(*point) for point in geometry_of("ellipse").outline(ellipse.coordinates)]
    area = [sum(a * d - b * c for (a, b), (c, d) in zip(p, [*p[1:], p[0]], strict=True)) for p in (changed, exact)]
    assert area[0] == pytest.approx(area[1])
    (x1, y1), (x2, y2) = (tuple(f(p[k] for p in exact) for k in (0, 1)) for f in (min, max))
    assert geometry_of("ellipse").to_box(ellipse.moved(0.2, 0.1, 0.6, 0.75).coordinates) == pytest.approx(
        (x1, y1, x2, y2), abs=2e-3
    )
    with pytest.raises(ValueError, match="override transform"):
        read_shape({"type": "spoke", "coordinates": (0.5, 0.5, 0.2, 0.1)}).moved(0.2, 0.1, 0.6, 0.75)


def test_angle_rounded_to_a_whole_period_is_bin_zero_and_thin_lengths_are_refused():
    kind = geometry_of("ellipse")
    assert kind.to_bins((0.5, 0.5, 0.2, 0.1, 0.9996), GRID)[-1] == 0
    assert kind.to_bins((0.5, 0.5, 0.2, 0.1, 0.9994), GRID)[-1] == 999
    with pytest.raises(SmallBoxError, match="thinner than a bin"):
        kind.to_bins((0.5, 0.5, 0.2, 0.0004, 0.1), GRID)


@pytest.mark.parametrize("name", ROWS)
def test_number_of_shapes_is_counted_as_by_trying_all(name):
    kind = geometry_of(name)
    if kind.least > 4:
        return  # too many to try
    bins = 4 if kind.longest == kind.least else 2

    def count(prefix):
        total = int(kind.fits(len(prefix)))
        if len(prefix) >= min(kind.longest, 6):
            return total
        low, high = kind.next_bins(prefix, bins)
        return total + sum(count((*prefix, k)) for k in range(low, high))

    if not kind.fixed:
        kind = type("Short", (type(kind),), {"most": 6})()
    assert all(count((first,)) for first in range(*kind.next_bins((), bins))), "a bin that no shape begins with"
    for prefix in ((), (1,), (0, 1), (0, 1, 1))[: kind.least]:
        assert kind.num_shapes(prefix, bins) == count(prefix), prefix


def test_object_may_have_any_shape_and_its_box_is_within_the_image():
    ellipse = {"desc": "a", "geometry": {"type": "ellipse", "coordinates": [0.1, 0.5, 0.4, 0.2, 0]}}
    (obj,) = Instance.model_validate({"image": "a.jpg", "objects": [ellipse]}).objects
    assert obj.bbox == pytest.approx((0.0, 0.3, 0.5, 0.7))
    with pytest.raises(ValueError, match=r"expected 5 coordinates of the geometry ellipse \(.*\), found 4"):
        Object(desc="a", geometry={"type": "ellipse", "coordinates": [0.1, 0.5, 0.4, 0.2]})


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"name": "box"}, "one of this name already"),
        ({"name": "two words"}, "letters, digits"),
        ({"keys": ("own", "bbox_2d")}, "'bbox_2d' is a key of the geometry box"),
        ({"most": 6}, "in steps of 5"),
        ({"least": 1, "most": 1, "numbers": ("x",)}, "expected 1 < least"),
        ({"least": 10}, "least <= most"),
        ({"example": (0.5, 0.5, 0.1, 0.1)}, "is no valid shape: expected 5"),
        ({"box_of": Geometry.box_of}, "override box_of"),
    ],
)
def test_register_refuses_a_row_and_says_why(attributes, fault):
    row = type("Own", (Ellipse,), {"name": "own", "keys": ("own", "own_2d"), **attributes})()
    with pytest.raises(ValueError, match=fault):
        register_geometry(row)
    assert "own" not in GEOMETRIES


def test_unknown_name_lists_the_rows_and_says_how_to_add_one():
    with pytest.raises(ValueError, match=r"expected one of box, .*ellipse, spoke, found 'blob'.*register_geometry"):
        geometry_of("blob")


def test_table_in_markdown_has_a_line_for_each_row():
    lines = geometry_table().splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == ROWS


def test_angles_wrap_and_lengths_end_with_the_image():
    assert [wrap(angle) for angle in (-1e-20, 0.0, 0.25, 1.0, 1.25, -0.25)] == [0.0, 0.0, 0.25, 0.0, 0.25, 0.75]
    spoke = geometry_of("spoke")
    assert spoke.transform((0.25, 0.25, 0.75, 0.125), Affine(2, 0, 0, 2)) == (0.5, 0.5, 1.0, 0.125)
    assert spoke.flip((0.25, 0.25, 0.5, 0.125)) == (0.75, 0.25, 0.5, 0.375)
    assert spoke.transform((0.25, 0.25, 0.5, 0.125), QUARTER_TURN) == pytest.approx((0.75, 0.25, 0.5, 0.375))
    half = type("Half", (Spoke,), {"period": math.pi})()
    assert half.transform((0.25, 0.25, 0.5, 0.125), QUARTER_TURN) == pytest.approx((0.75, 0.25, 0.5, 0.625))


@pytest.mark.parametrize(
    ("least", "most", "numbers", "counts"),
    [
        (4, 4, ("x", "y"), "4"),
        (4, 8, ("x", "y"), "an even number from 4 to 8"),
        (3, 7, ("x", "y"), "a number in steps of 2 from 3 to 7"),
        (4, 7, ("x", "y", "length"), "a number in steps of 3 from 4 to 7"),
    ],
)
def test_numbers_of_coordinates_in_words(least, most, numbers, counts):
    kind = type("Own", (Spoke,), {"least": least, "most": most, "numbers": numbers})()
    assert kind.counts == counts and [n for n in range(10) if kind.fits(n)] == [*range(least, most + 1, len(numbers))]


def test_row_that_is_run_again_replaces_itself_alone():
    class Own(Spoke):
        name, keys = "own", ("own", "own_2d")

        def arrange(self, coordinates):
            return coordinates

    try:
        assert register_geometry(Own()) is not register_geometry(Own()) is GEOMETRIES["own"]
        other = type("Other", (Ellipse,), {"name": "own", "keys": ("own", "own_2d")})()
        with pytest.raises(ValueError, match="of this name already"):
            register_geometry(other)
    finally:
        GEOMETRIES.remove("own")
