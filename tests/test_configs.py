"""Every YAML that is shipped resolves, says in its first line what question it answers, and its commands run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from coord_detect.settings.decoding import Decoding
from coord_trainer.comparison.plan import differing_settings, plan_groups, result_settings
from coord_trainer.config.run_config import load_run_config

ROOT = Path(__file__).parents[1]
SHIPPED = sorted([*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("apps/trainer/src/coord_trainer/*.yaml")])
BASES = sorted(ROOT.glob("configs/base/*.yaml"))
GROUPS = sorted(ROOT.glob("configs/phase1/*.yaml"))
SWEEPS = sorted(ROOT.glob("configs/sweeps/*.yaml"))
WHOLE = [path for path in SHIPPED if path not in (*BASES, *SWEEPS)]


@pytest.mark.parametrize("file", WHOLE, ids=[path.name for path in WHOLE])
def test_it_resolves(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    # The memorising config leaves the data to whoever runs it.
    config = load_run_config(file, ["data.annotations=a.jsonl", "evaluation.images=train"])
    assert config.custom.trains_coordinates or not config.custom.coord_tokens.enabled


@pytest.mark.parametrize("file", SHIPPED, ids=[path.name for path in SHIPPED])
def test_its_first_line_asks_a_question(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# ") and "?" in first


@pytest.mark.parametrize("base", BASES, ids=[path.name for path in BASES])
def test_under_each_base_the_groups_differ_in_nothing_but_loss_flags(base):
    groups = plan_groups(GROUPS, base, [], None)
    assert {group.name for group in groups} >= {"a", "b", "c", "mixed", "soft"}
    rest, flags = [], []
    for group in groups:
        values = group.config.model_dump(mode="json")
        custom = values.pop("custom")
        flags.append([custom.pop("coord_objective"), custom.pop("coord_soft_ce_w1")])
        rest.append((values, custom))
    assert all(one == rest[0] for one in rest)
    assert all(one not in flags[:place] for place, one in enumerate(flags))


@pytest.mark.parametrize("file", GROUPS, ids=[path.name for path in GROUPS])
def test_a_group_says_nothing_but_custom(file):
    assert list(yaml.safe_load(file.read_text())) == ["custom"]


@pytest.mark.slow
@pytest.mark.parametrize("file", SWEEPS, ids=[path.name for path in SWEEPS])
def test_every_variant_of_a_sweep_resolves_to_settings_of_its_own(file):
    variants = {name: set(found) for name, found in yaml.safe_load(file.read_text()).items()}
    files = [path for path in GROUPS if path.stem in variants]
    assert {path.stem for path in files} == variants.keys()
    groups = plan_groups(files, BASES[-1], [], file)
    assert {group.name for group in groups} == {
        f"{name}-{found}" for name, kinds in variants.items() for found in kinds
    }
    settings = [result_settings(group.config) for group in groups]
    assert all(one not in settings[:place] for place, one in enumerate(settings))


def test_targets_are_a_row_beside_the_groups():
    files = [ROOT / "configs/phase1/a.yaml", *(ROOT / f"configs/targets/{name}.yaml" for name in ("digits", "json"))]
    a, digits, json = plan_groups(files, BASES[-1], [], None)
    assert set(differing_settings([digits, json])) == {"data.style"}
    assert {group.config.evaluation.decoding for group in (a, digits, json)} == {(Decoding(),)}


COMMAND = re.compile(r"^#   (uv run (?:[^\n]*\\\n#)*[^\n]*)$", re.MULTILINE)
"""A command in the head of a file, which may continue on the next lines."""
COMMANDS = [
    pytest.param(command.replace("\\\n#", " "), id=f"{path.stem}-{number}")
    for path in SHIPPED
    for number, command in enumerate(COMMAND.findall(path.read_text()))
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """The files that the commands name: annotations of a few generated shapes, and tiny checkpoints."""
    pytest.importorskip("swift")
    from drawn_coco import write_coco

    from coord_exporter import expand_vocab
    from coord_trainer.config.sections import TinyModelConfig
    from coord_trainer.data.shapes import CATEGORIES
    from coord_trainer.model.tiny import _build_model, build_processor, train_tokenizer

    folder = tmp_path_factory.mktemp("configs")
    (folder / "configs").symlink_to(ROOT / "configs")
    for split, images, file in (
        ("train", "images", "instances.json"),
        ("heldout", "images", "heldout.json"),
        ("train", "data/coco/train2017", "data/coco/instances_train2017.json"),
        ("heldout", "data/coco/val2017", "data/coco/instances_val2017.json"),
    ):
        (folder / images).mkdir(parents=True, exist_ok=True)
        instances = write_coco(folder / images, folder / file, split, 3)
    for part in ("ImageSets", "Annotations", "JPEGImages"):
        (folder / "VOC" / part).mkdir(parents=True)
    for split, instance in zip(("trainval", "test"), instances, strict=False):
        x1, y1, x2, y2 = (round(96 * side) for side in instance.objects[0].bbox)
        box = f"<xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax>"
        (folder / f"VOC/Annotations/{split}.xml").write_text(
            f"<annotation><filename>{split}.png</filename><size><width>96</width><height>96</height></size>"
            f"<object><name>shape</name><bndbox>{box}</bndbox></object></annotation>"
        )
        (folder / f"VOC/ImageSets/{split}.txt").write_text(split)
        shutil.copy(
            folder / "data/coco/val2017" / instance.image.replace("/", "-"), folder / f"VOC/JPEGImages/{split}.png"
        )
    tiny = TinyModelConfig(smooth_rows=False)
    processor = build_processor(train_tokenizer([*CATEGORIES, "Describe all objects"], coordinates=False), tiny)
    for size in ("2B", "8B"):
        plain = folder / f"checkpoints/Qwen3-VL-{size}-Instruct"
        processor.save_pretrained(plain)
        _build_model(processor, tiny).save_pretrained(plain)
    expand_vocab(
        folder / "checkpoints/Qwen3-VL-2B-Instruct", folder / "checkpoints/Qwen3-VL-2B-Instruct-coord", quiet=True
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command_in_the_head_of_a_file_runs_as_it_stands(command, workplace, forked):
    """Training and comparing up to the first step (`--dry-run`), on one rank and three images; all else whole."""
    command = command.replace("torchrun --nproc_per_node 2 ", "").replace("--count 20000", "--count 3")
    words = shlex.split(command)[2:]
    if words[1] == "expand-vocab":
        shutil.rmtree(workplace / words[3], ignore_errors=True)
    elif not (workplace / "checkpoints/Qwen3-VL-8B-Instruct-coord").exists():
        shutil.copytree(*(workplace / f"checkpoints/Qwen3-VL-{size}-Instruct-coord" for size in ("2B", "8B")))
    dry = ["--dry-run"] if words[1] in ("train", "compare") else []
    done = forked(ROOT / words[0], *words[1:], *dry, cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_of_a_file_is_found():
    named = sum(path.read_text().count("uv run ") for path in SHIPPED)
    assert named == len(COMMANDS) > 6
