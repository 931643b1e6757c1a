"""Annotations packed with their images: Parquet as the hub stores it, tars as WebDataset reads them."""

import io
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from tar_files import tar

from coord_codec import InputError
from coord_data import ReadingRules, load_annotated, open_source
from coord_data.formats.boxes_as_stated import order_and_unit
from coord_data.formats.tar_members import objects_of

BOX = [20, 10, 40, 30]  # x, y, width, height: (.2, .2) to (.6, .8) of 100 x 50


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def encoded(seed, kind="JPEG"):
    pixels = np.random.default_rng(seed).integers(0, 255, (50, 100, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def hub(path, columns, features=None, paths=("a.jpg", "b.jpg")):
    """Write a Parquet file with the metadata that `datasets` writes into its schema."""
    rows = [{"bytes": encoded(n), "path": name} for n, name in enumerate(paths)]
    table = pa.table({"image": rows, **columns})
    if features is not None:
        table = table.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    pa.parquet.write_table(table, path)
    return path


def read(path, **rules):
    images = load_annotated(path, ReadingRules(**rules))
    return {
        instance.image: [(item.desc, *(round(v, 6) for v in item.bbox)) for item in instance.objects]
        for instance in images.instances
    }


def told(path, **rules):
    return "\n".join(load_annotated(path, ReadingRules(**rules)).notes)


LABEL = {"names": ["cat", "dog"], "_type": "ClassLabel"}
OF_LISTS = {"objects": [{"bbox": [BOX], "category": [1], "area": [1200.0], "id": [5]}, {"bbox": [], "category": []}]}
OF_OBJECTS = {"objects": [[{"bbox": BOX, "category": 1}], []]}
PLAIN = {"bboxes": [[BOX], []], "labels": [[1], []]}


@pytest.mark.parametrize(
    ("columns", "features"),
    [
        (OF_LISTS, {"objects": {"feature": {"bbox": {}, "category": LABEL}, "_type": "Sequence"}}),
        (OF_OBJECTS, {"objects": {"feature": {"bbox": {}, "category": LABEL}, "_type": "List"}}),
        (OF_OBJECTS, {"objects": [{"bbox": {}, "category": LABEL}]}),
        (PLAIN, {"bboxes": {}, "labels": {"feature": LABEL, "_type": "Sequence"}}),
    ],
    ids=["lists", "objects", "old list", "columns"],
)
def test_parquet_of_the_hub_has_its_boxes_and_the_names_of_its_schema(tmp_path, columns, features):
    path = hub(tmp_path / "train.parquet", columns, features)
    assert read(path) == {"a.jpg": [("dog", 0.2, 0.2, 0.6, 0.8)], "b.jpg": []}
    source = open_source(path)
    assert (source.format, source.named) == ("coco", path)


@pytest.mark.slow
def test_parquet_that_datasets_itself_writes_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    objects = {"bbox": datasets.List(datasets.Value("float32")), "category": datasets.ClassLabel(names=["cat", "dog"])}
    for n, kind in enumerate((datasets.List(objects), datasets.Sequence(objects))):
        features = datasets.Features({"image_id": datasets.Value("int64"), "image": datasets.Image(), "objects": kind})
        stated = [{"bbox": BOX, "category": 1}] if isinstance(kind, datasets.List) else {"bbox": [BOX], "category": [1]}
        pixels = [Image.open(io.BytesIO(encoded(n))) for n in (0, 1)]
        rows = {"image_id": [7, 8], "image": pixels, "objects": [stated, stated]}
        path = tmp_path / f"{n}.parquet"
        datasets.Dataset.from_dict(rows, features=features).to_parquet(path)
        found = load_annotated(open_source(path))
        assert [[(o.desc, o.bbox) for o in i.objects] for i in found.instances] == [[("dog", (0.2, 0.2, 0.6, 0.8))]] * 2
        assert [instance.image_id for instance in found.instances] == [7, 8]


def test_class_numbers_without_names_are_their_own_names_and_text_is_kept(tmp_path):
    assert read(hub(tmp_path / "a.parquet", OF_OBJECTS))["a.jpg"][0][0] == "1"
    text = {"objects": [[{"bbox": BOX, "category": "cat"}], []]}
    assert read(hub(tmp_path / "b.parquet", text))["a.jpg"][0][0] == "cat"


def test_numbers_in_another_order_are_read_as_the_user_says(tmp_path):
    corners = {"objects": [[{"bbox": [20, 10, 60, 40], "category": "cat"}], []]}
    found = read(hub(tmp_path / "a.parquet", corners), read_as="xyxy,pixels")
    assert found["a.jpg"] == [("cat", 0.2, 0.2, 0.6, 0.8)]


def test_shards_of_a_folder_are_one_set_with_every_image_once(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for shard in range(2):
        hub(folder / f"train-0000{shard}-of-00002.parquet", OF_OBJECTS, paths=("0.jpg", None))
    found = read(tmp_path / "data")
    assert len(found) == 4 and sum(map(len, found.values())) == 2
    assert sum(name.endswith("0.jpg") for name in found) == 2  # both shards have a 0.jpg
    hub(folder / "test-00000-of-00001.parquet", OF_OBJECTS)
    with pytest.raises(InputError, match="the splits test, train"):
        open_source(folder)


def test_rows_without_pixels_are_told(tmp_path):
    path = hub(tmp_path / "a.parquet", OF_OBJECTS)
    table = pa.parquet.read_table(path)
    rows = table["image"].to_pylist()
    for n, name in enumerate(("some", "none")):
        images = [{**row, "bytes": None} if k >= 1 - n else row for k, row in enumerate(rows)]
        pa.parquet.write_table(table.set_column(0, "image", pa.array(images)), tmp_path / f"{name}.parquet")
    assert set(read(tmp_path / "some.parquet")) == {"a.jpg"}
    assert "1 rows whose image is a path" in told(tmp_path / "some.parquet")
    with pytest.raises(InputError, match=r"found none; .*2 rows whose image is a path"):
        open_source(tmp_path / "none.parquet")


def test_parquet_without_boxes_is_refused_with_its_columns(tmp_path):
    with pytest.raises(InputError, match=r"one of boxes .*found image, label"):
        open_source(hub(tmp_path / "a.parquet", {"label": [1, 2]}))


@pytest.mark.parametrize(
    "record",
    [
        {"objects": [{"bbox": BOX, "category": "cat"}], "width": 100, "height": 50},
        {"annotations": [{"bbox": BOX, "label": "cat", "iscrowd": 0}]},
        {"boxes": [BOX], "labels": ["cat"]},
        [{"bbox": BOX, "class_name": "cat"}],
        {"objects": [{"desc": "cat", "bbox": [0.2, 0.2, 0.6, 0.8]}]},
    ],
    ids=["objects", "annotations", "lists", "bare list", "instance record"],
)
@pytest.mark.parametrize("json_first", [False, True])
def test_a_tar_has_the_boxes_of_the_json_beside_each_image(tmp_path, record, json_first):
    members = {"0/a.jpg": encoded(0), "0/a.json": json.dumps(record).encode()}
    path = tar(tmp_path / "set.tar", dict(sorted(members.items(), reverse=json_first)))
    assert read(path) == {"0/a.jpg": [("cat", 0.2, 0.2, 0.6, 0.8)]}


def test_what_a_tar_leaves_out_is_told_and_the_rest_is_read(tmp_path):
    record = json.dumps({"boxes": [BOX], "labels": ["cat"]}).encode()
    members = {"a.jpg": encoded(0), "a.json": record, "b.jpg": encoded(1), "c.jpg": encoded(2), "c.json": b"{"}
    members |= {"street.v1.jpg": encoded(3), "street.v1.json": record, "d.seg.png": encoded(4, "PNG"), "d.json": record}
    path = tar(tmp_path / "set.tar", members)
    assert set(read(path)) == {"a.jpg", "street.v1.jpg"}
    assert all(words in told(path) for words in ("1 images without annotations", "such as c.json", "1 images seg.png"))


def test_images_of_a_tar_without_a_field_of_boxes_are_counted(tmp_path):
    boxes = json.dumps({"boxes": [BOX], "labels": ["cat"]}).encode()
    records = {"a": boxes, "b": b'{"caption": "x"}', "c": b'{"caption": "y"}', "d": b"{}"}
    members = {f"{name}.jpg": encoded(n) for n, name in enumerate(records)}
    members |= {f"{name}.json": record for name, record in records.items()}
    path = tar(tmp_path / "set.tar", members)
    assert [len(objects) for objects in read(path).values()] == [1, 0, 0, 0]
    assert any("3 images whose JSON has no field of boxes" in note for note in [told(path)])


def test_a_tar_of_images_alone_is_an_archive_to_unpack(tmp_path):
    with pytest.raises(InputError, match="an archive; unpack it"):
        open_source(tar(tmp_path / "set.tar", {"a.jpg": encoded(0)}))


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    record = json.dumps({"boxes": [BOX], "labels": ["cat"]}).encode()
    with pytest.raises(InputError):
        open_source(tar(tmp_path / "set.tar", {"../a.jpg": encoded(0), "../a.json": record}))
    assert not (tmp_path / "a.jpg").exists()


def test_it_is_unpacked_once(tmp_path, monkeypatch):
    path = hub(tmp_path / "train.parquet", OF_OBJECTS)
    first = open_source(path).path
    monkeypatch.setattr("coord_data.formats.packed._unpack", None)
    assert open_source(path).path == first


def test_an_address_is_read_as_its_copy(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    from coord_data import load

    path = hub(tmp_path / "train.parquet", OF_OBJECTS)
    fsspec.filesystem("memory").pipe("/hub/train.parquet", path.read_bytes())
    assert len(load("memory://hub/train.parquet").instances) == 2


OF_CORNERS, OF_SIZE, OF_FRACTIONS = [100, 30, 180, 90], [100, 50, 40, 30], [0.1, 0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("stated", "read_as"),
    [
        ([OF_CORNERS] * 10 + [OF_SIZE], "xyxy,stated"),
        ([OF_CORNERS] * 9 + [OF_SIZE], None),
        ([OF_FRACTIONS, [0, 0, 2, 1.5]], "xyxy,unit"),
        ([OF_FRACTIONS, [0, 0, 2.1, 1.5]], None),
        ([[0.3, 0.3, 0.8, 0.8]], "xywh,unit"),  # fractions may leave the image by a tenth
        ([[0.3, 0.3, 0.81, 0.8]], "xyxy,unit"),
        ([[100, 30, 102, 70]], None),  # and pixels by two
        ([[100, 30, 103, 70]], "xyxy,stated"),
        ([OF_CORNERS, [100, 30, 100, 40]], None),  # no corners: nothing lies between
        ([OF_CORNERS, [100, 30, 20, 30]], None),
        ([[0, 0, 1, 1]], None),  # may be pixels as well
        ([[0, 0, 1, 1], [10, 10, 90, 80]], None),
        ([OF_CORNERS, (50, 20, 80, 60, 80 * 60)], None),  # by the area of the size
        ([OF_SIZE, (50, 20, 80, 60, 30 * 40)], None),
        ([(50, 20, 80, 60, 30 * 40)], "xyxy,stated"),
        ([(50, 20, 80, 60, 30 * 41)], None),  # by no area
        ([OF_CORNERS, [1, 2, 3], "a", None, [1, 2, 3, math.inf], [1, 2, True, 4]], "xyxy,stated"),  # none is a box
        ([[1, 2, 3]], None),
    ],
)
def test_order_and_unit_are_those_of_ten_boxes_against_one(stated, read_as):
    objects = [{"bbox": box[:4] if box else box, "area": box[4] if isinstance(box, tuple) else None} for box in stated]
    assert order_and_unit([objects], [(200, 100)])[0] == read_as


CAT, CATS = ("cat", 0.2, 0.2, 0.6, 0.8), {"bbox": [BOX], "category": ["cat"]}
BOXED = {"bbox": pa.array([BOX, BOX], pa.list_(pa.int64(), 4)), "label": ["cat", "dog"]}
SCENE = {"label": LABEL | {"names": ["street", "yard"]}, "objects": {"feature": {"bbox": {}, "category": LABEL}}}
DECIMALS = pa.array([[BOX], [BOX]], pa.list_(pa.list_(pa.decimal128(9, 2))))
TIMES = pa.array([[1_000_000_001], [5]], pa.list_(pa.timestamp("ns")))
COLUMNS = {
    "a class of the scene": ({"label": [1, 0], "objects": [{"bbox": [BOX], "category": [0]}] * 2}, SCENE, [CAT]),
    "decimals": ({"boxes": DECIMALS, "labels": [["cat"], ["cat"]]}, None, [CAT]),
    "times": ({"boxes": [[BOX], [BOX]], "labels": [["cat"], ["cat"]], "at": TIMES}, None, [CAT]),
    "a number beside a name": ({"objects": [CATS | {"category": [7], "category_name": ["cat"]}] * 2}, None, [CAT]),
    "lists of names beside a number": (
        {"bboxes": [[BOX], []], "labels": [[["a"]], []], "category": [[7], []]},
        None,
        [("7", *CAT[1:])],
    ),
    "one box a row": (BOXED, None, [CAT]),
    "fractions": ({"objects": [{"bbox": [[0.2, 0.2, 0.4, 0.6]], "category": ["cat"]}] * 2}, None, [CAT]),
    "corners that leave the image as sizes": (
        {"objects": [{"bbox": [[60, 20, 80, 40]], "category": ["cat"]}] * 2},
        None,
        [("cat", 0.6, 0.4, 0.8, 0.8)],
    ),
    "corners by their areas": ({"objects": [CATS | {"bbox": [[20, 10, 60, 40]], "area": [1200]}] * 2}, None, [CAT]),
    "phrases in fractions": ({"bbox": [[0.2, 0.2, 0.6, 0.8]] * 2, "instruction": ["cat", "dog"]}, None, [CAT]),
    "phrases in pixels": ({"bbox": [BOX] * 2, "instruction": ["cat", "dog"]}, None, [CAT]),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_what_belongs_to_a_box_of_parquet_is_sought_in_its_own_structure(tmp_path, case):
    columns, features, expected = COLUMNS[case]
    assert read(hub(tmp_path / "a.parquet", columns, features))["a.jpg"] == expected


def test_structures_with_times_uuids_and_ids_as_doubles_are_read(tmp_path):
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    times = pa.array([1_000_000_001], pa.timestamp("ns"))
    item = {"bbox": pa.array([BOX]), "category": pa.array(["cat"]), "at": times, "id": uuids}
    items = pa.StructArray.from_arrays(list(item.values()), list(item))
    columns = {"objects": pa.ListArray.from_arrays([0, 1, 1], items), "image_id": [7.0, 9.0]}
    found = load_annotated(hub(tmp_path / "a.parquet", columns))
    assert {i.image_id: [o.desc for o in i.objects] for i in found.instances} == {7: ["cat"], 9: []}


def test_boxes_of_rows_of_one_image_are_of_one_image(tmp_path):
    path = hub(tmp_path / "a.parquet", BOXED)
    table = pa.parquet.read_table(path)
    one = table.set_column(0, "image", pa.array([table["image"][0].as_py()] * 2))
    pa.parquet.write_table(one, path)
    assert read(path) == {"a.jpg": [CAT, ("dog", *CAT[1:])]}


def test_each_shard_has_its_own_order_of_names(tmp_path):
    for n, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        features = {"objects": {"feature": {"bbox": {}, "category": LABEL | {"names": names}}}}
        hub(tmp_path / f"train-0000{n}-of-00002-0123456789abcdef.parquet", OF_LISTS, features, paths=(f"{n}.jpg", None))
    found = read(tmp_path)
    assert [found[f"{n}.jpg"][0][0] for n in (0, 1)] == ["dog", "cat"]


def test_names_that_rewriting_lost_are_told(tmp_path):
    assert "classes are the numbers of category" in told(hub(tmp_path / "a.parquet", OF_LISTS))


@pytest.mark.parametrize("order", [("depth", "image"), ("image", "depth"), ("mask_overlay", "rgb")])
def test_photograph_is_the_image_column_of_its_kind_and_name(tmp_path, order):
    rows = {
        name: [{"bytes": encoded(n + 2 * (name in ("image", "rgb"))), "path": None}] for n, name in enumerate(order)
    }
    pa.parquet.write_table(pa.table({**rows, "objects": [CATS]}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    kept = {path.read_bytes() for path in source.path.parent.glob("*.jpg")}
    assert kept == {rows[name][0]["bytes"] for name in order if name in ("image", "rgb")}


SEVERAL = {
    "image": {"left": "image", "right": "image", "objects": "boxes"},
    "boxes": {"image": "image", "faces": "boxes", "hands": "boxes"},
    "label": {"image": "image", "objects": "two labels"},
}


@pytest.mark.parametrize("role", SEVERAL)
def test_several_columns_that_fit_are_refused_until_one_is_chosen(tmp_path, role):
    values = {"image": {"bytes": encoded(0), "path": "a.jpg"}, "boxes": CATS, "two labels": CATS | {"label": ["dog"]}}
    table = pa.table({name: [values[kind]] for name, kind in SEVERAL[role].items()})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"--fields {role}="):
        open_source(tmp_path / "a.parquet")
    choice = {"image": "right", "boxes": "hands", "label": "category"}[role]
    assert read(tmp_path / "a.parquet", fields=f"{role}={choice}") == {"a.jpg": [CAT]}
    with pytest.raises(InputError, match="expected one of"):
        read(tmp_path / "a.parquet", fields=f"{role}=nothing")
    with pytest.raises(ValueError, match="each once"):
        read(tmp_path / "a.parquet", fields=f"{role}=nothing,{role}={choice}")


SHARDS = {
    "hash of the hub": "train-0000{}-of-00002-0123456789abcdef.parquet",
    "Ray": "0d3cc24f3f1b4a3f8c1d_00000{}_000000.parquet",
    "Ray, two blocks": "7_00000{}_000000-0.parquet",
    "Spark": "part-0000{}-0d3cc24f-3f1b-4a3f-8c1d-0123456789ab-c000.snappy.parquet",
    "DuckDB": "data_{}.parquet",
}


@pytest.mark.parametrize("name", SHARDS.values(), ids=SHARDS)
def test_names_of_shards_are_no_splits(tmp_path, name):
    for n in range(2):
        hub(tmp_path / name.format(n), {"objects": [CATS, CATS]}, paths=(f"{n}.jpg", f"{n}b.jpg"))
    assert set(read(tmp_path)) == {"0.jpg", "0b.jpg", "1.jpg", "1b.jpg"}


STATED = json.dumps({"boxes": [BOX], "labels": ["cat"]}).encode()
TARS = {
    "a mask beside": {"a.jpg": 0, "a.mask.png": 1, "a.json": STATED},
    "a mask before": {"a.seg.png": 1, "a.jpg": 0, "a.json": STATED},
    "of a folder": {"./a.jpg": 0, "./a.json": STATED},
    "several JSONs": {"a.jpg": 0, "a.caption.json": b'{"text": "a cat"}', "a.json": STATED},
    "boxes in a JSON of their own": {"a.jpg": 0, "a.json": b'{"id": 3}', "a.boxes.json": STATED},
    "fractions": {"a.jpg": 0, "a.json": json.dumps([{"bbox": [0.2, 0.2, 0.4, 0.6], "label": "cat"}]).encode()},
}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("case", TARS)
def test_a_tar_has_one_photograph_and_one_json_with_boxes_of_each_key(tmp_path, case, mode):
    members = {name: encoded(value) if isinstance(value, int) else value for name, value in TARS[case].items()}
    path = tar(tmp_path / ("set.tar.gz" if mode == "w:gz" else "set.tar"), members, mode)
    assert read(path) == {"a.jpg": [CAT]}


@pytest.mark.parametrize(
    ("members", "choice"),
    [
        ({"a.left.jpg": 0, "a.right.jpg": 1, "a.json": STATED}, "image=left.jpg"),
        ({"a.jpg": 0, "a.boxes.json": STATED, "a.other.json": STATED}, "boxes=boxes.json"),
        (
            {"a.jpg": 0, "a.json": json.dumps({"hands": CATS, "faces": CATS | {"bbox": [[0, 0, 9, 9]]}}).encode()},
            "boxes=hands",
        ),
    ],
)
def test_several_members_that_fit_are_refused_until_one_is_chosen(tmp_path, members, choice):
    path = tar(tmp_path / "a.tar", {k: encoded(v) if isinstance(v, int) else v for k, v in members.items()})
    with pytest.raises(InputError, match=f"--fields {choice}"):
        open_source(path)
    assert list(read(path, fields=choice).values()) == [[CAT]]
    if choice == "boxes=hands":
        assert list(read(path, fields=f"{choice}.bbox").values()) == [[CAT]]


def test_fields_are_of_packed_files_alone(tmp_path):
    (tmp_path / "a.csv").write_text("image,label,xmin,ymin,xmax,ymax\na.jpg,cat,1,2,3,4\n")
    with pytest.raises(InputError, match="--fields chooses columns of Parquet"):
        read(tmp_path / "a.csv", fields="label=class")


def test_objects_of_lists_of_other_lengths_keep_what_belongs_to_each_box():
    record = {"objects": {"bbox": [BOX, BOX], "label": ["cat", "dog"], "size": [100, 50, 3]}}
    assert [item["category"] for item in objects_of(record)[0]] == ["cat", "dog"]


def stated_in(path, **chosen):
    """Return the images of the unpacked file, by name: what is stated of each, and of its objects by their class."""
    source = open_source(path, **chosen)
    document = source.document
    names = {row["id"]: row["name"] for row in document["categories"]}
    return [
        (
            {key: value for key, value in image.items() if key not in ("id", "file_name")},
            [
                (names.get(row["category_id"]), {k: v for k, v in row.items() if not k.endswith("id")})
                for row in document["annotations"]
                if row["image_id"] == image["id"]
            ],
        )
        for image in document["images"]
    ]


ITEM = {"bbox": BOX}
UNPACKED = {
    "two images of one id": ([[ITEM | {"label": "cat"}], [ITEM | {"label": "dog"}]], {"image_id": [7, 7]}),
    "an id that is none": ([[ITEM | {"label": "cat"}], [ITEM | {"label": "dog"}]], {"image_id": [7, None]}),
    "stated sizes": ([[ITEM | {"label": "cat"}], []], {"width": [0, 100.0], "height": [50, None]}),
    "values that are null": ([[ITEM | {"label": "cat", "area": None, "iscrowd": 0}], []], {}),
    "a crowd by another name": ([[ITEM | {"label": "cat", "is_crowd": True, "area": 4.5}], []], {}),
    "an object without a class": ([[ITEM | {"label": None}, ITEM | {"label": "cat"}], []], {}),
    "whole numbers in doubles": ([[ITEM | {"label": 3.0}], [ITEM | {"label": 3.5}]], {}),
}


@pytest.mark.parametrize("kind", ["parquet", "tar"])
@pytest.mark.parametrize("case", UNPACKED)
def test_all_that_is_stated_beside_a_box_is_unpacked_with_its_own_image(tmp_path, case, kind):
    objects, of_images = UNPACKED[case]
    if kind == "parquet":
        path = hub(tmp_path / "a.parquet", {"objects": objects, **of_images})
    else:
        records = [
            {"objects": own, **{key: values[n] for key, values in of_images.items()}} for n, own in enumerate(objects)
        ]
        members = {f"{n}.jpg": encoded(n) for n in range(2)}
        members |= {f"{n}.json": json.dumps(record).encode() for n, record in enumerate(records)}
        path = tar(tmp_path / "a.tar", members)

    def named(item):
        label = item["label"]
        kept = {k: v for k, v in item.items() if k not in ("label", "is_crowd") and v is not None}
        kept |= {"iscrowd": True} if "is_crowd" in item else {}
        return label if label is None else f"{label:g}" if isinstance(label, float) else label, kept

    sizes = [
        {k: values[n] for k, values in of_images.items() if k != "image_id" and values[n] is not None} for n in (0, 1)
    ]
    assert stated_in(path) == [(sizes[n], [named(item) for item in own]) for n, own in enumerate(objects)]


def test_rows_of_one_name_are_of_one_image_only_where_their_pixels_are_equal(tmp_path):
    one, other = encoded(0), encoded(1)
    rows = [("a.jpg", one, "cat"), ("a.jpg", other, "dog"), ("a.jpg", one, "cow"), ("b.jpg", one, "hen")]
    columns = {"image": [{"bytes": content, "path": name} for name, content, _ in rows], "label": [r[2] for r in rows]}
    crowd = {"bbox": [BOX] * 4, "area": [1.0, 2.0, 3.0, 4.0], "is_crowd": [0, 0, 1, 0], "other": [5] * 4}
    pa.parquet.write_table(pa.table({**columns, **crowd}), tmp_path / "a.parquet")
    assert [
        [(desc, row["area"], row["iscrowd"]) for desc, row in own] for _, own in stated_in(tmp_path / "a.parquet")
    ] == [[("cat", 1, 0), ("cow", 3, 1)], [("dog", 2, 0)], [("hen", 4, 0)]]
    assert [
        sorted({*row} & {"other", "is_crowd"}) for _, own in stated_in(tmp_path / "a.parquet") for _, row in own
    ] == [[]] * 4


def test_phrases_of_any_shard_and_images_of_another_choice_are_read_anew(tmp_path):
    fractions = {"bbox": [[0.2, 0.2, 0.6, 0.7]] * 2}
    hub(tmp_path / "train-0.parquet", {**fractions, "instruction": ["cat", "dog"]}, paths=("0.jpg", "1.jpg"))
    hub(tmp_path / "train-1.parquet", {**fractions, "label": ["cat", "dog"]}, paths=("2.jpg", "3.jpg"))
    assert open_source(tmp_path).read_as == "xyxy,unit"
    columns = {"bbox": [BOX, BOX], "label": ["cat", "dog"], "category": ["cow", "hen"]}
    path = hub(tmp_path / "b.parquet", columns)
    read_by = {name: read(path, fields=f"label={name}")["a.jpg"][0][0] for name in ("label", "category", "label")}
    assert read_by == {"label": "cat", "category": "cow"}


def test_file_of_a_folder_that_is_no_packed_file_is_named(tmp_path):
    hub(tmp_path / "data_0.parquet", OF_OBJECTS)
    (tmp_path / "data_1.parquet").write_text("no table")
    with pytest.raises(InputError, match=r"data_1.parquet: cannot be read"):
        open_source(tmp_path)


def test_all_that_was_left_out_is_told_beside_how_boxes_are_read(tmp_path):
    columns = {"objects": [CATS, CATS], "faces": [CATS, CATS], "label": ["street", "yard"]}
    path = hub(tmp_path / "a.parquet", columns)
    rows = pa.parquet.read_table(path)["image"].to_pylist()
    table = pa.parquet.read_table(path).set_column(0, "image", pa.array([rows[0], {**rows[1], "bytes": None}]))
    pa.parquet.write_table(table, path)
    notes = [note.removeprefix(f"{path}: ") for note in open_source(path).notes]
    assert [note[:30] for note in notes] == [
        "the boxes of faces.bbox are no",
        "1 rows whose image is a path o",
        "boxes are read as a corner and",
    ]


def test_numbers_of_a_class_outside_of_its_names_have_none_and_rows_without_a_name_are_counted_in_all(tmp_path):
    features = {"objects": {"feature": {"bbox": {}, "category": LABEL}}}
    objects = [[{"bbox": BOX, "category": n} for n in (-1, 0, 1, 2)], [{"bbox": BOX, "category": 1}]]
    path = hub(tmp_path / "a.parquet", {"objects": objects}, features, paths=(None, None))
    assert [[desc for desc, _ in own] for _, own in stated_in(path)] == [[None, "cat", "dog", None], ["dog"]]
    assert [image["file_name"] for image in open_source(path).document["images"]] == ["a-0000000.jpg", "a-0000001.jpg"]
    table = pa.parquet.read_table(path)
    rows = [{**row, "bytes": row["bytes"] if n else None} for n, row in enumerate(table["image"].to_pylist())]
    pa.parquet.write_table(table.set_column(0, "image", pa.array(rows)), path)
    assert [image["file_name"] for image in open_source(path).document["images"]] == ["a-0000001.jpg"]


def of_class(name, **more):
    return json.dumps({"boxes": [BOX], "labels": [name], **more}).encode()


MEMBERS = {
    "names of several folders": (
        {"0/a.jpg": 0, "1/a.jpg": 1, "0/a.json": of_class("cat"), "1/a.json": of_class("dog")},
        {"0/a.jpg": ["cat"], "1/a.jpg": ["dog"]},
        [],
    ),
    "names of several folders, and of a JSON of their own": (
        {"0/a.jpg": 0, "1/a.jpg": 1, "0/a.boxes.json": of_class("cat"), "1/a.boxes.json": of_class("dog")},
        {"0/a.jpg": ["cat"], "1/a.jpg": ["dog"]},
        [],
    ),
    "objects with a class beside those with a description": (
        {
            "a.jpg": 0,
            "a.json": json.dumps([{"desc": "cat", "bbox": BOX}]).encode(),
            "b.jpg": 1,
            "b.json": of_class("dog"),
        },
        {"b.jpg": ["dog"]},
        [],
    ),
    "a name that another one begins with": (
        {"a.jpg": 0, "a.v1.jpg": 1, "a.json": of_class("cat"), "a.v1.json": of_class("dog")},
        {"a.jpg": ["cat"], "a.v1.jpg": ["dog"]},
        [],
    ),
    "images alone, twice": (
        {"a.jpg": 0, "a.json": of_class("cat"), "b.jpg": 1, "c.jpg": 2},
        {"a.jpg": ["cat"]},
        ["2 images without annotations, left out"],
    ),
    "images beside, twice": (
        {
            "a.jpg": 0,
            "a.mask.png": 1,
            "a.json": of_class("cat"),
            "b.jpg": 2,
            "b.mask.png": 3,
            "b.json": of_class("dog"),
        },
        {"a.jpg": ["cat"], "b.jpg": ["dog"]},
        ["2 images mask.png beside others, or masks without a photograph, not read"],
    ),
    "one of two that cannot be read": (
        {"a.jpg": 0, "a.json": of_class("cat"), "a.more.json": b"{", "b.jpg": 1, "b.json": of_class("dog")},
        {"b.jpg": ["dog"]},
        ["1 images with JSON that cannot be read, such as a.more.json, left out"],
    ),
    "empty lists and objects": (
        {"a.jpg": 0, "a.json": b'{"objects": []}', "b.jpg": 1, "b.json": b"[]", "c.jpg": 2, "c.json": of_class("cat")},
        {"a.jpg": [], "b.jpg": [], "c.jpg": ["cat"]},
        [],
    ),
    "numbers and text in place of objects": (
        {"b.jpg": 0, "b.json": b"3", "c.jpg": 1, "b.v1.jpg": 2, "b.v1.json": b'"x"', "c.json": of_class("cat")},
        {"c.jpg": ["cat"]},
        ["2 images with JSON that cannot be read, such as b"],
    ),
    "suffixes in capitals": ({"a.JPG": 0, "a.json": of_class("cat")}, {"a.JPG": ["cat"]}, []),
}


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("case", MEMBERS)
def test_members_of_a_tar_belong_together_by_their_whole_names_and_are_counted(tmp_path, case, last_first):
    members, expected, notes = MEMBERS[case]
    order = list(members)[:: -1 if last_first else 1]
    path = tar(tmp_path / "a.tar", {k: encoded(v) if isinstance(v := members[k], int) else v for k in order})
    assert {image: [desc for desc, *_ in objects] for image, objects in read(path).items()} == expected
    *told, order = (note.removeprefix(f"{path}: ") for note in open_source(path).notes)
    assert all(note.startswith(start) for note, start in zip(told, notes, strict=True))
    assert order.startswith("boxes are read as")
