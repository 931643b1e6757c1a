"""`prepare`: files and folders go in; records, problems, a summary and a split by image content come out."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from coord_codec import InputError, read_instances
from coord_data.duplicates import near_duplicates, perceptual_hash
from coord_data.image_set import load_annotated
from coord_data.preparation import prepare
from coord_data.rules import ReadingRules
from coord_trainer.config.sections import DataSection

RNG = np.random.default_rng(5)


def picture(seed):
    coarse = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC)


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "images").mkdir()
    images, rows = [], []
    for n in range(40):
        picture(n).save(tmp_path / "images" / f"{n}.png")
        images.append({"id": n, "file_name": f"{n}.png", "width": 64, "height": 48})
        rows.append({"id": n, "image_id": n, "category_id": 1, "bbox": [4, 4, 32, 32]})
    rows[3]["bbox"] = [4, 4, 90, 32]
    rows[4]["bbox"] = [4, 4, 0, 32]
    document = {"images": images, "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    return tmp_path


def test_prepared_folder_is_read_back_as_the_same_set(coco, capsys):
    out = coco / "out" / "prepared"
    prepare([coco / "a.json", coco / "images"], out, DataSection())
    assert {p.name for p in out.iterdir()} == {"instances.jsonl", "instances.summary.json", "problems.jsonl"}
    before = load_annotated(coco / "a.json", ReadingRules(images=coco / "images"))
    after = load_annotated(out)
    assert [(i.image_id, i.objects) for i in after.instances] == [(i.image_id, i.objects) for i in before.instances]
    assert after.image(7).tobytes() == picture(7 + 1).tobytes()  # the image of record 3 went with its box
    listed = [json.loads(line) for line in (out / "problems.jsonl").read_text().splitlines()]
    assert [line["is_box"] for line in listed] == [True, True]
    summary = json.loads((out / "instances.summary.json").read_text())
    assert (summary["records"], summary["boxes"], summary["problems"]) == (39, 38, 2)
    assert summary["classes"] == {"cat": 38}
    told = capsys.readouterr().out
    assert "39 records, 38 boxes" in told and "1 images left out with an object that was refused" in told


def test_old_form_writes_a_file(coco):
    prepare([coco / "a.json", coco / "images"], coco / "x" / "a.jsonl", DataSection())
    assert {p.name for p in (coco / "x").iterdir()} == {"a.jsonl", "a.summary.json", "a.problems.jsonl"}
    assert len(load_annotated(coco / "x" / "a.jsonl")) == 39


def test_last_source_that_is_not_there_is_named(coco):
    with pytest.raises(InputError, match=r"imgs: expected annotations, or a folder of images, found nothing there"):
        prepare([coco / "a.json", coco / "imgs"], coco / "out", DataSection())


def test_folders_of_labels_and_images_are_one_source(tmp_path):
    for name in ("labels", "images"):
        (tmp_path / name).mkdir()
    picture(0).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_text("0 .5 .5 .5 .5")
    (tmp_path / "classes.txt").write_text("cat")
    prepare([tmp_path / "labels", tmp_path / "images"], tmp_path / "out", DataSection())
    (instance,) = read_instances(tmp_path / "out" / "instances.jsonl").instances
    assert (instance.image, instance.objects[0].bbox) == ("../images/a.png", (0.25, 0.25, 0.75, 0.75))


def test_paths_of_a_folder_that_is_prepared_again_do_not_lead_through_it(coco):
    prepare([coco / "a.json", coco / "images"], coco / "one" / "a", DataSection())
    prepare([coco / "one" / "a"], coco / "two", DataSection())
    assert read_instances(coco / "two" / "instances.jsonl").instances[0].image == "../images/0.png"


@pytest.mark.parametrize(("text", "told"), [("", "found an empty file"), ("image,label,x,y,w,h\n", "are no records")])
def test_files_without_records_are_told(tmp_path, text, told):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        prepare([tmp_path / "a.csv"], tmp_path / "out", DataSection())


def test_strict_and_error_write_nothing(coco):
    for settings in ({"strict": True}, {"on_bad_box": "error"}):
        with pytest.raises(InputError, match=r"no area|outside its image"):
            prepare([coco / "a.json", coco / "images"], coco / "out", DataSection(**settings))
        assert not (coco / "out").exists()


def test_several_sources_with_the_same_ids_lose_them(coco, capsys):
    prepare([coco / "a.json", coco / "a.json"], coco / "out", DataSection(images=coco / "images", annotations=coco))
    found = read_instances(coco / "out" / "instances.jsonl").instances
    assert len(found) == 78 and all(i.image_id is None for i in found)
    assert "several sources share image ids" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["yolo", "voc"])
def test_last_folder_inside_another_source_is_that_of_its_images(tmp_path, capsys, kind):
    place, other = tmp_path / "ds", tmp_path / "other"
    for folder in (place, other):
        images = folder / "images" if kind == "yolo" else folder
        images.mkdir(parents=True)
        picture(len(folder.name)).save(images / "a.png")
        if kind == "yolo":
            (folder / "labels").mkdir()
            (folder / "labels" / "a.txt").write_text("0 .5 .5 .2 .2")
            (folder / "classes.txt").write_text("cat")
        else:
            sides = "<xmin>3</xmin><ymin>3</ymin><xmax>30</xmax><ymax>30</ymax>"
            (folder / "a.xml").write_text(
                f"<annotation><object><name>cat</name><bndbox>{sides}</bndbox></object></annotation>"
            )
    last = place / "images" if kind == "yolo" else place
    for name, sources in {"one": [place, last], "two": [other, place, last]}.items():
        prepare(sources, tmp_path / name, DataSection())
        assert len(read_instances(tmp_path / name / "instances.jsonl").instances) == len(sources) - 1
    assert "several sources" not in capsys.readouterr().out
    prepare([place, place, other], tmp_path / "three", DataSection())
    assert "1 images have a record in each of several sources, such as" in capsys.readouterr().out


_SLOW = """
import sys, time
from coord_trainer import cli
from coord_data import preparation

written = preparation.write_instances
preparation.write_instances = lambda *given: (written(*given), print("written", flush=True), time.sleep(60))
cli.main()
"""


@pytest.mark.parametrize("out", ["out", "out.jsonl"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_stopped_call_leaves_nothing_and_what_a_killed_one_leaves_is_removed(coco, run, sent, code, out):
    words = ["prepare", "a.json", "images", "--out", out]
    for name in (f".{out}.other.1-01234567.tmp", f".{out}.1-0.tmp"):  # of nobody's call for `out`
        (coco / name).mkdir()
    before = {path.name for path in coco.iterdir()}
    command = [sys.executable, "-c", _SLOW, *words]
    with subprocess.Popen(command, cwd=coco, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "written\n"
        (partial,) = {path.name for path in coco.iterdir()} - before
        if code < 0:
            assert run(*words)[0] == 0  # which leaves alone what a living process writes into
            assert (coco / partial).is_dir()
        for path in coco.glob("out*"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        process.send_signal(sent)
        _, error = process.communicate(timeout=30)
    assert process.returncode == code and "Traceback" not in error
    left = {path.name for path in coco.iterdir()} - before
    assert left == ({partial} if sent == signal.SIGKILL else set())
    found, error, told = run(*words)
    assert found == 0, error
    assert (f"{partial}: removed; an earlier call was killed" in told) == bool(left)
    assert {path.name for path in coco.iterdir() if path.name[0] == "."} <= before


def test_split_follows_the_content_of_images_and_tells_near_duplicates(coco, capsys):
    data = DataSection()
    prepare([coco / "a.json", coco / "images"], coco / "one", data, split=0.3)
    sides = {
        name: {i.image.rpartition("/")[2] for i in read_instances(coco / "one" / f"{name}.jsonl").instances}
        for name in ("train", "val")
    }
    assert len(sides["train"]) + len(sides["val"]) == 39 and 4 <= len(sides["val"]) <= 20
    assert not json.loads((coco / "one" / "val.summary.json").read_text())["near_duplicates"]
    # A copy stays on its side under any name; the same photograph saved smaller may not, and is told.
    chosen = sorted(sides["val"])[0]
    document = json.loads((coco / "a.json").read_text())
    document["images"] += [
        {"id": 99, "file_name": "copy.png", "width": 64, "height": 48},
        {"id": 100, "file_name": "small.png", "width": 48, "height": 36},
    ]
    (coco / "b.json").write_text(json.dumps(document))
    (coco / "images" / "copy.png").write_bytes((coco / "images" / chosen).read_bytes())
    small = picture(int(chosen[:-4])).resize((48, 36))
    for shade in range(50):  # in the first shade of a pixel that lands on the other side
        small.putpixel((0, 0), (shade, shade, shade))
        small.save(coco / "images" / "small.png")
        if int(hashlib.sha256((coco / "images" / "small.png").read_bytes()).hexdigest()[:16], 16) >= 0.3 * 2**64:
            break
    prepare([coco / "b.json", coco / "images"], coco / "two", data, split=0.3)
    found = {i.image.rpartition("/")[2] for i in read_instances(coco / "two" / "val.jsonl").instances}
    assert found == sides["val"] | {"copy.png"}
    told = json.loads((coco / "two" / "val.summary.json").read_text())["near_duplicates"]
    pairs = {(row["val"].rpartition("/")[2], row["train"].rpartition("/")[2]) for row in told}
    assert pairs == {(chosen, "small.png"), ("copy.png", "small.png")}
    assert "2 images of val look like one of train" in capsys.readouterr().out


def test_near_duplicates_are_those_of_a_naive_count():
    one, other = (RNG.random((20, 64)) < 0.5 for _ in range(2))
    other[3] = one[5]
    other[4, 4:] = one[6, 4:]
    naive = [
        (i, j, int((one[i] != other[j]).sum())) for i in range(20) for j in range(20) if (one[i] != other[j]).sum() <= 4
    ]
    assert near_duplicates(list(one), list(other)) == naive and len(naive) == 2
    assert near_duplicates([], list(other)) == []


def test_perceptual_hash_survives_compression_and_resizing(tmp_path):
    photograph = picture(1)
    photograph.save(tmp_path / "a.jpg", quality=60)
    with Image.open(tmp_path / "a.jpg") as saved:
        hashes = [perceptual_hash(photograph), perceptual_hash(saved), perceptual_hash(photograph.resize((100, 75)))]
    assert len(near_duplicates(hashes[:1], hashes[1:])) == 2
    assert not near_duplicates(hashes[:1], [perceptual_hash(picture(n)) for n in range(2, 20)])
