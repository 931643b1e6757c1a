"""What all readers share: sources, fields of packed files, stated objects, and numbers in the layout of each format."""

import json
from pathlib import Path

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.reading.read import read_source
from coord_data.sources.raw import BAD_SIZE, RawImage, RawObject, csv_rows, image_size, is_number, number, query_of
from coord_data.sources.source import Source
from coord_data.sources.which_field import label_of, parse_fields, photograph


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        *((64, 48, (64, 48)), ("64", "48.0", (64, 48)), (64.9, 48, (64, 48)), (1, 1, (1, 1))),
        *((0, 48, None), (64, 0, None), (64, None, None), (None, 48, None), (-1, 48, None), (0.5, 48, None)),
        *(("wide", 48, None), (True, 48, None), (float("nan"), 48, None), (float("inf"), 48, None)),
    ],
)
def test_size_is_two_positive_integers_and_one_that_is_none_is_counted(width, height, size):
    assert image_size(width, height) == size
    image = RawImage("a.jpg", "a", notes=("n",), size=(1, 1)).sized(width, height)
    assert (image.size, image.notes) == (size, ("n",) if size else ("n", BAD_SIZE))


@pytest.mark.parametrize("values", [(None, None), (0, 0), ("", ""), (0, None)])
def test_size_that_is_not_stated_is_no_fault(values):
    assert RawImage("a.jpg", "a").sized(*values).notes == ()


def test_numbers_are_numbers_or_their_text():
    assert [number(v) for v in (1, 0, "2.5", " 3 ", "-1e3", 0.0)] == [1, 0, 2.5, 3, -1000, 0]
    for value in (True, False, None, "", "x", "1,5", [1], {}, 10**400):
        with pytest.raises(ValueError, match="expected a number, found"):
            number(value)
        assert not isinstance(value, str) or not is_number(value)
    assert is_number("0")


def test_object_keeps_its_notes_through_outlines_and_parts():
    stated = RawObject("cat", (), "a", as_box=("first",), notes=("n",))
    outlined = stated.outlined([5, 1, 9, 4, 2, 3], "second")
    assert (outlined.corners_xyxy, outlined.as_box, outlined.notes) == ((2, 1, 9, 4), ("first", "second"), ("n",))
    other = RawObject("cat", (8, 0, 12, 2), "b")
    for one, two, outlines in (
        (outlined, other, ([5, 1, 9, 4, 2, 3], [8, 0, 12, 0, 12, 2, 8, 2])),
        (other, outlined, ([8, 0, 12, 0, 12, 2, 8, 2], [5, 1, 9, 4, 2, 3])),
    ):
        joined = one.joined(two)
        assert (joined.corners_xyxy, joined.outlines, joined.where) == ((2, 0, 12, 4), outlines, one.where)
    assert stated.at(3, 4)[:3] == ("cat", (3, 4, 3, 4), "a") and stated.at(3, 4).is_point


def test_rows_of_a_table_know_the_line_they_begin_in():
    text = 'a,b\n\n"two\nlines",c\n , \nd;e,f\n'
    rows = list(csv_rows(text, Path("t.csv")))
    assert rows == [(1, ["a", "b"]), (3, ["two\nlines", "c"]), (6, ["d;e", "f"])]
    assert [cells for _, cells in csv_rows(text, Path("t.csv"), ";")][-1] == ["d", "e,f"]


@pytest.mark.parametrize("query", [None, "", "  ", 3, "<image>Find", ["x"]])
def test_question_that_is_none_is_no_query(query):
    assert query_of({"query": query}) == {} and query_of({"query": "a > b"}) == {"query": "a > b"}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["image"], "image"),
        (["depth", "image"], "image"),
        (["left", "image"], "image"),
        (["Picture", "left"], "Picture"),
        (["mask.png", "jpg"], "jpg"),
        (["canny_edge", "thing"], "thing"),
        (["depth", "mask"], None),
        ([], None),
        (["left", "right"], "refused"),
        (["image", "photo"], "refused"),
    ],
)
def test_photograph_is_the_only_one_of_its_kind(names, found):
    if found != "refused":
        assert photograph(names, {}, "a") == found
        return
    with pytest.raises(InputError, match=f"a: {names[0]} and {names[1]} may each be the image; .*image={names[0]}"):
        photograph(names, {}, "a")
    assert photograph(names, {"image": names[1]}, "a") == names[1]
    with pytest.raises(InputError, match="a: --fields image=x: expected one of"):
        photograph(names, {"image": "x"}, "a")


N, T = "number", "name"


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ({"category": N, "category_name": T}, "category_name"),
        ({"name": T, "label": N}, "name"),
        ({"name": T, "Label": T}, "Label"),
        ({"caption": T, "name": T}, "name"),
        ({"caption": T, "names": N}, "names"),
        ({"caption": T, "class_id": N}, "class_id"),
        ({"caption": T, "area": N}, "caption"),
        ({"text": N}, "text"),
        ({"area": N, "id": N}, None),
        ({"label": N, "class": N}, "refused"),
        ({"caption": T, "phrase": T}, "refused"),
    ],
)
def test_class_of_a_box_is_a_name_before_a_number_before_a_phrase(kinds, found):
    for own in (kinds, dict(reversed(kinds.items()))):
        if found == "refused":
            with pytest.raises(InputError, match="may each be the label"):
                label_of(own, {}, "a")
        else:
            assert label_of(own, {}, "a") == found
        assert label_of(own, {"label": next(iter(own))}, "a") == next(iter(own))


@pytest.mark.parametrize("text", ["image", "image=", "picture=a", "image=a,image=b", "", "=a"])
def test_fields_that_are_no_roles_are_refused(text):
    with pytest.raises(InputError, match="ROLE=NAME with the roles image, boxes, label, each once"):
        parse_fields(text)
    assert parse_fields(" boxes = a , label=b=c") == {"boxes": "a", "label": "b=c"}


R = {"image": "a.jpg", "objects": []}


@pytest.mark.parametrize(
    ("name", "text", "record"),
    [
        ("a.jsonl", json.dumps(R), R),
        ("a.ndjson", json.dumps(R), R),
        ("a.odgt", json.dumps(R), R),
        ("a.json", json.dumps(R), None),
        ("a.json", json.dumps(R) + "\n \n", None),
        ("a.json", json.dumps(R) + "\n" + json.dumps(R), R),
        ("a.txt", "\ufeff" + json.dumps(R) + "\n{}", R),
        ("a.json", json.dumps([R, {}]), R),
        ("a.json", "[]", None),
        ("a.json", "[3]", None),
        ("a.jsonl", "x", None),
        ("a.jsonl", "", None),
    ],
)
def test_first_record_is_that_of_lines_or_of_a_list(tmp_path, name, text, record):
    (tmp_path / name).write_text(text)
    source = Source(tmp_path / name)
    assert source.record == record
    if record:
        rows = [row for _, row in source.records()]
        assert rows[0] == R and len(rows) == 1 + (text.count("{}") or text.count("}\n{"))


def test_source_with_another_content_keeps_what_it_was_opened_with(tmp_path):
    for name in ("b.TXT", "a.txt", ".c.txt", "d/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source = Source(tmp_path / "a.txt", tmp_path, "csv")
    source.read_as, source.notes = "xyxy", ("note",)
    assert source.text == "a.txt" and source.head == "a.txt"
    again = source.with_content(b"[1]")
    assert (again.text, again.head, again.document) == ("[1]", "[1]", [1]) and source.text == "a.txt"
    assert (again.named, again.format, again.read_as, again.notes) == (tmp_path, "csv", "xyxy", ("note",))
    folder = Source(tmp_path)
    assert [path.name for path in folder.glob("*.txt", "*/*.txt")] == ["a.txt", "b.TXT", "e.txt"]
    assert folder.file(tmp_path / "a.txt") is folder.file(tmp_path / "a.txt") and folder.file(tmp_path) is folder
    with pytest.raises(InputError, match="expected a file of records, found a folder"):
        next(folder.records())


@pytest.mark.parametrize(
    ("text", "keys", "below", "first"),
    [
        ('{"info": {"a": 1, "b": 2}, "images": [{"id": 1}, {"id": 2}]}', {"info", "images"}, {"a", "b"}, {"id": 1}),
        ('{"images": [], "annotations": [{"id": 1}]}', {"images"}, set(), None),
        ('{"annotations": [{"id": 1}], "images": [{"id": 3}]}', {"annotations"}, set(), {"id": 3}),
        ('{\n"a": 1,\n"b": {"c": 2}}', {"a", "b"}, set(), None),
        ('{"a": {"b": ', set(), set(), None),
    ],
)
def test_keys_of_a_document_and_its_first_image_are_known_from_its_beginning(tmp_path, text, keys, below, first):
    (tmp_path / "a.json").write_text(text)
    source = Source(tmp_path / "a.json")
    found, found_below = source.keys
    assert found >= keys and found_below == below and source.first_image == first


SIZE = (200, 100)
CAR = (20, 10, 60, 50)
BOXES = {"xyxy": CAR, "xywh": (20, 10, 40, 40), "cxcywh": (40, 30, 40, 40)}
UNITS = {"pixels": (1, 1), "unit": (200, 100), "norm1000": (0.2, 0.1)}


def in_unit(layout, unit):
    return [value / side for value, side in zip(BOXES[layout], UNITS[unit] * 2, strict=True)]


def turns(box):
    answer = json.dumps([{"bbox_2d": box, "label": "car"}])
    return {
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}],
        "images": ["a.jpg"],
    }


def tags(box, **more):
    said = [{"role": "user", "content": "<ref-object>"}, {"role": "assistant", "content": "<bbox>"}]
    return {"messages": said, "images": ["a.jpg"], "objects": {"ref": ["car"], "bbox": [box], **more}}


def coco(box, **image):
    size = dict(zip(("width", "height"), SIZE, strict=True))
    row = {"id": 1, "image_id": 7, "category_id": 3, "bbox": box}
    images = [{"id": 7, **size, **image}]
    return {"images": images, "annotations": [row], "categories": [{"id": 3, "name": "car"}]}


def voc(box):
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    inner = "".join(f"<{side}>{value:.3f}</{side}>" for side, value in sides)
    return (
        f"<annotation><filename>a.jpg</filename><object><name>car</name><bndbox>{inner}</bndbox></object></annotation>"
    )


def csv(box):
    return f"image,label,xmin,ymin,xmax,ymax\na.jpg,car,{','.join(map(str, box))}\n"


OF_FORMATS = {
    "coco": ("xywh", "pixels", "a.json", lambda box: coco(box, file_name="a.jpg")),
    "lvis": ("xywh", "pixels", "a.json", lambda box: coco(box, coco_url="http://a.b/c/a.jpg", neg_category_ids=[3])),
    "jsonl": ("xyxy", "unit", "a.jsonl", lambda box: {"image": "a.jpg", "objects": [{"desc": "car", "bbox": box}]}),
    "jsonl of a list": (
        *("xyxy", "unit", "a.json"),
        lambda box: [{"image": "a.jpg", "objects": [{"desc": "car", "bbox": box}]}],
    ),
    "jsonl in bins": (
        *("xyxy", "norm1000", "a.jsonl"),
        lambda box: {"image": "a.jpg", "coord_space": "bins", "objects": [{"desc": "car", "bbox": [*map(int, box)]}]},
    ),
    "voc": ("xyxy", "pixels", "a.xml", voc),
    "yolo": ("cxcywh", "unit", "a.txt", lambda box: f"0 {' '.join(map(str, box))}\n"),
    "csv": ("xyxy", "pixels", "a.csv", csv),
    "csv in fractions": ("xyxy", "unit", "a.csv", csv),
    "qwen": ("xyxy", "norm1000", "a.jsonl", turns),
    "qwen-pixels": ("xyxy", "pixels", "a.jsonl", turns),
    "swift": ("xyxy", "pixels", "a.jsonl", tags),
    "swift in fractions": ("xyxy", "unit", "a.jsonl", lambda box: tags(box, bbox_type="norm1")),
    "screenspot": (
        *("xywh", "pixels", "a.jsonl"),
        lambda box: {"img_filename": "a.jpg", "instruction": "car", "bbox": box},
    ),
}


def written(folder, kind, numbers):
    _, _, name, content = OF_FORMATS[kind]
    text = content([float(f"{value:.9g}") for value in numbers])
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text) + "\n" * name.endswith("l"))
    image = "c/a.jpg" if kind == "lvis" else "a.jpg"
    (folder / image).parent.mkdir(exist_ok=True)
    Image.new("RGB", SIZE).save(folder / image)
    (folder / "classes.txt").write_text("car\n")
    return folder if name == "a.txt" else folder / name, kind.partition(" ")[0]


@pytest.mark.parametrize("kind", OF_FORMATS)
def test_numbers_of_a_source_are_known_as_it_states_them(tmp_path, kind):
    layout, unit, *_ = OF_FORMATS[kind]
    numbers = in_unit(layout, unit)
    path, format = written(tmp_path, kind, numbers)
    found = read_source(path, format=format)
    raw = found.raw
    assert (raw.layout, raw.unit, raw.format) == (layout, unit, format)
    assert raw.numbers_N4.tolist() == [pytest.approx(numbers)] and raw.image_N.tolist() == [0]
    assert (raw.files[0].rpartition("/")[2], raw.label(0), dict(raw.class_counts)) == ("a.jpg", "car", {"car": 1})
    assert [o.bbox for i in found.annotations.instances for o in i.objects] == [pytest.approx((0.1, 0.1, 0.3, 0.5))]


OTHER = {
    "percent": lambda x1, y1, x2, y2: (x1 / 2, y1, x2 / 2, y2),
    "norm999": lambda x1, y1, x2, y2: (x1 / 200 * 999, y1 / 100 * 999, x2 / 200 * 999, y2 / 100 * 999),
    "xyxy,pixels": lambda *box: box,
    "yxhw,pixels": lambda x1, y1, x2, y2: (y1, x1, y2 - y1, x2 - x1),
    "cxcywh,pixels": lambda x1, y1, x2, y2: ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    "mirrored,xyxy,pixels": lambda x1, y1, x2, y2: (200 - x2, y1, 200 - x1, y2),
    "moved-left:10px,xyxy,pixels": lambda x1, y1, x2, y2: (x1 - 10, y1, x2 - 10, y2),
}


@pytest.mark.parametrize(
    ("kind", "words"), [(k, w) for k in OF_FORMATS for w in OTHER if "xy" in w or "wh" in w or k != "screenspot"]
)
def test_source_of_any_format_is_read_in_another_order_and_unit(tmp_path, kind, words):
    layout, *_ = OF_FORMATS[kind]
    numbers = OTHER[words](*CAR)
    if words.startswith(("percent", "norm999")):
        x1, y1, x2, y2 = numbers
        if layout == "xywh":
            numbers = (x1, y1, x2 - x1, y2 - y1)
        elif layout == "cxcywh":
            numbers = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
    if kind == "jsonl in bins":
        numbers = tuple(map(round, numbers))
    path, format = written(tmp_path, kind, numbers)
    found = read_source(path, format=format, read_as=words).annotations
    tolerance = 0.006 if kind == "jsonl in bins" else 1e-4
    assert [o.bbox for i in found.instances for o in i.objects] == [pytest.approx((0.1, 0.1, 0.3, 0.5), abs=tolerance)]
