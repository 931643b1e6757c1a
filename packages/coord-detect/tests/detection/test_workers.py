"""What a worker of a Ray cluster does, without a cluster: what it opens, compares, copies and answers."""

import json
import os
from types import SimpleNamespace

import pytest
from fakes import RuleEngine, detector, make_images

from coord_codec import InputError
from coord_detect.answers.records import ImageSource, file_stamp
from coord_detect.detection import ray_engine
from coord_detect.detection.ray_engine import RayEngine, _address, _Worker

pa = pytest.importorskip("pyarrow", reason="needs the extra coord-detect[ray]")
fsspec = pytest.importorskip("fsspec", reason="needs the extra coord-data[remote]")


def model(*words, **facts):
    engine = RuleEngine()
    vars(engine).update({"names": ("cat",)} | facts)
    return detector(engine, *words)


def worker(facts=None, has_gpu=False, device=None, here=None):
    """Return a worker and the devices on which it was opened."""
    devices = []
    opening = SimpleNamespace(settings={"evaluation": {"device": device}} if device else {})
    opening.opened = lambda device: devices.append(device) or (here or model())
    return _Worker(opening, facts or ray_engine._facts(here or model()), has_gpu, 2), devices


@pytest.mark.parametrize(
    ("has_gpu", "asked", "opened"),
    [(False, None, "cpu"), (True, None, None), (True, "cpu", "cpu"), (False, "cuda", "cuda")],
)
def test_worker_opens_the_model_where_it_is_asked_to_and_without_a_gpu_on_its_cores(has_gpu, asked, opened):
    assert worker(has_gpu=has_gpu, device=asked)[1] == [opened]


def test_worker_whose_model_or_packages_differ_is_refused_by_what_differs():
    facts = ray_engine._facts(model())
    assert not {"model"} & facts.keys() and {"weights", "torch", "transformers", "names"} <= facts.keys()
    for name, other in (("names", ["dog"]), ("torch", "0.1"), ("weights", [["a", 3]]), ("min_score", 0.5)):
        with pytest.raises(InputError, match=f"a worker on .* has {name} .*, the machine of the command"):
            worker(facts | {name: other})
    with pytest.raises(InputError, match="has prompt 'Where"):
        worker(facts, here=model("data.prompt=Where?"))


def test_folder_and_time_of_weights_may_differ_and_their_sizes_not(tmp_path):
    for folder, content, time in (("a", b"abc", 1), ("b", b"abc", 2), ("c", b"abcd", 1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.safetensors").write_bytes(content)
        os.utime(tmp_path / folder / "model.safetensors", (time, time))
    one, same, other = (ray_engine._facts(model(name=str(tmp_path / folder))) for folder in "abc")
    assert one == same != other and one["weights"]


def test_worker_answers_files_and_copies_and_tells_which_cannot_be_read(tmp_path):
    photos = make_images(tmp_path, a=(40, 20), b=(8, 8))
    content, stamp = (photos / "b.png").read_bytes(), file_stamp(photos / "b.png")
    system = fsspec.filesystem("memory")
    for name, data in (("same", content), ("longer", content + b"x"), ("shorter", content[:-1])):
        system.pipe(f"/workers/{name}.png", data)
    rows = [[str(photos / "a.png"), "a.png", 7, None, None]]
    names = ("same", "longer", "shorter", "gone")
    rows += [["/nowhere.png", f"{n}.png", n, f"memory://workers/{n}.png", stamp] for n in names]
    rows.append(["/nowhere.png", "unstamped.png", 0, "memory://workers/same.png", None])
    ready = worker()[0]
    table = ready(pa.table({"part": [json.dumps(rows), json.dumps(rows[:1])]}))
    first, second = map(json.loads, table["records"].to_pylist())
    system.rm("/workers", recursive=True)
    found = {record["image"]: record for record in first}
    assert found.keys() == {row[1] for row in rows} and [record["image"] for record in second] == ["a.png"]
    assert {name: record["image_id"] for name, record in found.items()} == {row[1]: row[2] for row in rows}
    errors = {name: record["error"] for name, record in found.items() if "error" in record}
    assert errors.keys() == {"longer.png", "shorter.png", "gone.png"}
    for name in ("longer", "shorter"):
        told = f"memory://workers/{name}.png: cannot be read (it has changed since the command began)"
        assert errors[f"{name}.png"] == told
    assert found["a.png"]["file"] == file_stamp(photos / "a.png") and found["same.png"]["file"] == stamp
    assert (found["a.png"]["width"], found["same.png"]["width"], found["unstamped.png"]["file"]) == (40, 8, None)
    assert found["a.png"]["objects"][0]["bbox_xyxy"] == [10.0, 10.0, 30.0, 17.5]


def test_image_is_read_from_where_its_folder_or_file_was_copied_from(tmp_path):
    folder, file = tmp_path / "photos", tmp_path / "one.png"
    copies = {folder: "https://a.org/data/", file: "s3://b/one.png", tmp_path / "more": "s3://b/more"}
    engine = RayEngine("m", 9, None, frozenset(), frozenset(), None, {}, (1, 1, 0.0), copies)
    places = {
        folder / "a b" / "c#.png": "https://a.org/data/a%20b/c%23.png",
        file: "s3://b/one.png",
        tmp_path / "more" / "a b.png": "s3://b/more/a b.png",
        tmp_path / "photos2" / "a.png": None,
        folder: "https://a.org/data/",
    }
    for place, address in places.items():
        assert engine._row(ImageSource(place, "n", 3)) == [str(place), "n", 3, address, file_stamp(place)]
    assert _address(tmp_path, folder, "s3://b") is None
