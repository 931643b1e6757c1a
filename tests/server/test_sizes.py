"""The three sizes of coord-detect in environments of their own: what each holds, and that it answers.

What the wheels of the workspace require is installed in the lowest versions, those of the lock, and the newest ones.
"""

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "packages" / "coord-detect" / "tests" / "helpers")]

import alone  # noqa: E402
from fakes import BOX, TEXT, chat_reply, served  # noqa: E402

pytestmark = pytest.mark.server
EXTRAS = {"plain": "", "model": "[model]", "adapter": "[model,adapter]"}
ANSWERS = {"plain": {"endpoint"}, "model": {"endpoint", "export", "checkpoint"}}
ANSWERS["adapter"] = ANSWERS["model"] | {"adapter"}
"""What each size answers with."""
ABSENT = {"adapter": ["swift", "deepspeed", "trl", "datasets"]}
ABSENT["model"] = [*ABSENT["adapter"], "peft", "coord_adapter"]
ABSENT["plain"] = [*ABSENT["model"], "torch", "torchvision", "transformers"]
"""What each does not hold."""
VERSIONS = ("lowest", "locked", "newest")
IMAGES, PACKAGES, MEGABYTES = 16, 75, 500
HELD = """
import json, sys
from importlib.metadata import distributions
from importlib.util import find_spec
names = {each.name.lower() for each in distributions()}
bytes_ = sum(file.locate().stat().st_size for each in distributions() for file in each.files if file.locate().is_file())
absent = [name for name in sys.argv[1:] if find_spec(name) is None]
print(json.dumps([sorted(names), bytes_ / 1e6, absent]))
"""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    return alone.build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module", params=product(VERSIONS, ANSWERS), ids="-".join)
def installed(request, wheels, tmp_path_factory):
    """An environment with one size, in the same place for all, so that bytecode is compiled once."""
    versions, size = request.param
    place = tmp_path_factory.getbasetemp() / "environment"
    place.mkdir()
    folder = ROOT / "packages" / "coord-detect"
    projects = [alone.read_project(file.parent) for file in ROOT.glob("packages/*/pyproject.toml")]
    *members, (name, _) = alone.installed_by(folder / "README.md")
    members += [(name, EXTRAS[size])] + [("coord-adapter", "")] * (size == "adapter")
    install, python = alone.new_environment(place, alone.running_python(), versions)
    install(*alone.named(projects, members, wheels, versions))

    def run(*words):
        given = {"cwd": place, "env": alone.variables(place), "capture_output": True, "text": True}
        return subprocess.run([str(word) for word in words], **given, check=False)

    yield SimpleNamespace(size=size, versions=versions, python=python, run=run)
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def asked(trained, adapter, tmp_path_factory):
    """Images, the models that a size may be asked for, and the boxes that this environment finds with each."""
    from coord_detect import predict
    from coord_detect.model.checkpoints import locate_model

    folder = tmp_path_factory.mktemp("asked")
    (folder / "images").mkdir()
    for image in sorted((trained / "data").glob("**/heldout/**/*.png"))[:IMAGES]:
        shutil.copy(image, folder / "images")
    checkpoint = locate_model(trained)
    merge = [sys.executable, ROOT / "apps" / "exporter", "merge", checkpoint, adapter, folder / "export"]
    subprocess.run(merge, check=True, capture_output=True)
    models = {"checkpoint": checkpoint, "adapter": adapter, "export": folder / "export"}
    boxes = {}
    for name, model in models.items():
        predict(model, folder / "images", folder / "here" / name, draw=False)
        boxes[name] = boxes_in(folder / "here" / name)
    with Image.open(next((folder / "images").iterdir())) as image:
        box = [round(side * length) for side, length in zip(BOX, 2 * image.size, strict=True)]
    boxes["endpoint"] = {name: [("cat", *box)] for name in boxes["export"]}
    assert sum(map(len, boxes["export"].values())) > IMAGES, "the model is not trained enough to find objects"
    return SimpleNamespace(images=folder / "images", models=models | {"endpoint": folder / "export"}, boxes=boxes)


def boxes_in(folder):
    """Return label and box, in whole pixels, of every object, by image."""
    records = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    return {
        each["image"]: [(one["desc"], *map(round, one["bbox_xyxy"])) for one in each["objects"]] for each in records
    }


def test_size_holds_no_more_than_it_says(installed, capsys):
    absent = ABSENT[installed.size]
    done = installed.run(installed.python, "-c", HELD, *absent)
    packages, megabytes, found_absent = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{installed.versions} {installed.size}: {len(packages)} packages, {megabytes:.0f} MB")
    assert found_absent == absent
    # The lowest torch brings CUDA's libraries in more parts.
    assert len(packages) <= PACKAGES or installed.versions == "lowest"
    assert installed.size != "plain" or megabytes <= MEGABYTES


@pytest.mark.parametrize("source", sorted(ANSWERS["adapter"]))
def test_size_answers_or_names_the_extra(installed, asked, source, tmp_path):
    words = ["predict", asked.models[source], asked.images, "--out", tmp_path / "out"]
    with served(lambda number, request: (200, chat_reply(TEXT))) as (url, _):
        words += ["--endpoint", url, "--name", "m"] if source == "endpoint" else []
        done = installed.run(installed.python.parent / "coord-detect", *words)
    if source not in ANSWERS[installed.size]:
        extra = "adapter" if source == "adapter" else "model"
        assert done.returncode == 2 and done.stderr.strip().endswith(f"pip install 'coord-detect[{extra}]'"), (
            done.stderr
        )
        assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()
        return
    assert done.returncode == 0, done.stdout + done.stderr
    found, expected = boxes_in(tmp_path / "out"), asked.boxes[source]
    same = sum(found[name] == boxes for name, boxes in expected.items())
    # Of other releases of torch a likely token may round to its neighbour, of those of the lock none.
    assert found.keys() == expected.keys() and same >= len(expected) - (installed.versions != "locked"), done.stdout
