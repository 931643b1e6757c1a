"""Tools of others, as they are: each reads our exports, and what each writes of one small truth is read here."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from environment import make, versions  # noqa: E402
from seen import ROWS, SIZE, TRUTH, Written, table  # noqa: E402

from coord_eval.labelling import EXPORTS  # noqa: E402

LOADERS = runpy.run_path(str(HERE / "loaders.py"))["LOADERS"]
FROM_ONE = ("datumaro voc", "labelformat voc", "globox voc", "pylabel voc")
"""Loaders that take VOC's first pixel, 1, for 0."""


@pytest.fixture(scope="module")
def python():
    """The Python of the environment with the tools."""
    try:
        return make()
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the environment of other tools cannot be made: {getattr(error, 'stderr', error)}")


def run(python, script, folder, *further):
    """Return what a script of the other environment prints."""
    done = subprocess.run([python, HERE / script, folder, *further], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def write_images(folder):
    (folder / "images").mkdir()
    for name in TRUTH:
        Image.new("RGB", SIZE).save(folder / "images" / name)


def write_exports(folder):
    """Write the truth in all forms that we export."""
    records = [
        {
            "image_id": number,
            "image": image,
            "width": SIZE[0],
            "height": SIZE[1],
            "objects": [{"desc": desc, "bbox_xyxy": box, "score": 0.9} for desc, *box in boxes],
        }
        for number, (image, boxes) in enumerate(TRUTH.items(), start=1)
    ]
    for export in EXPORTS.values():
        export(records, folder)


@pytest.fixture(scope="module")
def loaded(python, tmp_path_factory):
    """The boxes that each tool reads from our exports."""
    folder = tmp_path_factory.mktemp("exports")
    write_images(folder)
    write_exports(folder)
    return run(python, "loaders.py", folder)


@pytest.mark.parametrize("name", LOADERS)
def test_export_is_read_by_other_tools(loaded, name):
    found = loaded[name]
    assert not isinstance(found, str), found
    first = int(name in FROM_ONE)
    for image, boxes in TRUTH.items():
        got = sorted((label, *(round(value, 2) for value in box)) for label, *box in found.get(image, []))
        assert got == [(label, x1 + first, y1 + first, x2, y2) for label, x1, y1, x2, y2 in boxes], image


def task(number, image, boxes, rotation=0):
    """Return a task of Label Studio whose annotation has boxes in percent of the image."""
    result = [
        {
            "id": str(n),
            "type": "rectanglelabels",
            "from_name": "label",
            "to_name": "image",
            "original_width": SIZE[0],
            "original_height": SIZE[1],
            "image_rotation": 0,
            "value": {
                "x": 100 * x1 / SIZE[0],
                "y": 100 * y1 / SIZE[1],
                "width": 100 * (x2 - x1) / SIZE[0],
                "height": 100 * (y2 - y1) / SIZE[1],
                "rotation": rotation,
                "rectanglelabels": [label],
            },
        }
        for n, (label, x1, y1, x2, y2) in enumerate(boxes)
    ]
    times = dict.fromkeys(("created_at", "updated_at"), "2024-01-01T00:00:00Z")
    annotation = {"id": number, "completed_by": 1, "result": result, "was_cancelled": False, "lead_time": 1.0, **times}
    return {"id": number, "data": {"image": f"/data/upload/1/{image}"}, "annotations": [annotation]}


@pytest.fixture(scope="module")
def written(python, tmp_path_factory):
    """What each tool wrote."""
    folder = tmp_path_factory.mktemp("tools")
    write_images(folder)
    ids = {"cat": 3, "dog": 7}
    images = [{"id": n, "file_name": name, "width": SIZE[0], "height": SIZE[1]} for n, name in enumerate(TRUTH, 1)]
    rows = [(n, *box) for n, boxes in enumerate(TRUTH.values(), 1) for box in boxes]
    annotations = [
        {
            "id": n,
            "image_id": image,
            "category_id": ids[label],
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            "area": (x2 - x1) * (y2 - y1),
            "iscrowd": 0,
            "segmentation": [],
        }
        for n, (image, label, x1, y1, x2, y2) in enumerate(rows, 1)
    ]
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    truth = {"images": images, "categories": categories, "annotations": annotations}
    tasks = [task(n, image, boxes) for n, (image, boxes) in enumerate(TRUTH.items(), 1)]
    turned = [task(1, "a.jpg", [("cat", 50, 20, 80, 40)], rotation=30)]
    for name, content in (("truth", truth), ("tasks", tasks), ("turned", turned)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    errors = run(python, "writers.py", folder)
    assert not any(errors.values()), [error for error in errors.values() if error]
    write_exports(folder)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    pytest.importorskip("torch")
    (folder / "torch.json").write_text(json.dumps(run(sys.executable, "torch_tools.py", folder, packages)))
    return Written(folder)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.package}-{n}" for n, row in enumerate(ROWS)])
def test_what_a_tool_writes_is_as_the_table_says(written, row):
    row.check(written)


AS_GIVEN = [
    *("supervision_coco", "supervision_yolo", "datumaro_yolo", "labelformat_coco", "labelformat_voc"),
    *(
        "globox_coco",
        "globox_yolo",
        "sahi_coco",
        "labelstudio_yolo",
        "datumaro_dota",
        "labelformat_kitti",
        "scalabel_json",
    ),
]


@pytest.mark.parametrize("name", [*AS_GIVEN, "mmdet_detection/a.jsonl"])
def test_what_a_tool_writes_is_read_as_it_was_given(written, name):
    assert written.boxes(name) == TRUTH


def test_writers_of_the_table_of_tools_are_run():
    from coord_data.formats.tools import READ

    named = {word for tool in READ for word in re.findall(r"[a-z]+ [\d.]+", tool.writers)}
    assert named <= {f"{name} {version}" for name, version in versions().items()}


def test_page_shows_the_table():
    assert table() in (HERE.parents[1] / "docs" / "guides" / "other-tools.md").read_text()
