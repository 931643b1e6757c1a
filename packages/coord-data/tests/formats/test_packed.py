"""Annotations packed with their images: Parquet as the hub stores it, tars as WebDataset reads them."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from tar_files import tar

from coord_codec import InputError
from coord_data import ReadingRules, load_annotated, open_source
from coord_data.formats.packed import objects_of

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
    images = load_annotated(open_source(path), ReadingRules(**rules))
    return {
        instance.image: [(item.desc, *(round(v, 6) for v in item.bbox)) for item in instance.objects]
        for instance in images.instances
    }


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


def test_rows_without_pixels_are_told(tmp_path, caplog):
    caplog.set_level("INFO")
    path = hub(tmp_path / "a.parquet", OF_OBJECTS)
    table = pa.parquet.read_table(path)
    rows = table["image"].to_pylist()
    for n, name in enumerate(("some", "none")):
        images = [{**row, "bytes": None} if k >= 1 - n else row for k, row in enumerate(rows)]
        pa.parquet.write_table(table.set_column(0, "image", pa.array(images)), tmp_path / f"{name}.parquet")
    assert set(read(tmp_path / "some.parquet")) == {"a.jpg"} and "1 rows whose image is a path" in caplog.text
    with pytest.raises(InputError, match="found none; 2 rows whose image is a path"):
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


def test_what_a_tar_leaves_out_is_told_and_the_rest_is_read(tmp_path, caplog):
    caplog.set_level("INFO")
    record = json.dumps({"boxes": [BOX], "labels": ["cat"]}).encode()
    members = {"a.jpg": encoded(0), "a.json": record, "b.jpg": encoded(1), "c.jpg": encoded(2), "c.json": b"{"}
    members |= {"street.v1.jpg": encoded(3), "street.v1.json": record, "d.seg.png": encoded(4, "PNG"), "d.json": record}
    assert set(read(tar(tmp_path / "set.tar", members))) == {"a.jpg", "street.v1.jpg", "d.seg.png"}
    assert "2 images without annotations" in caplog.text
    assert "such as c.json" in caplog.text


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


def test_objects_of_lists_of_other_lengths_keep_what_belongs_to_each_box():
    record = {"objects": {"bbox": [BOX, BOX], "label": ["cat", "dog"], "size": [100, 50, 3]}}
    assert [item["category"] for item in objects_of(record)] == ["cat", "dog"]
