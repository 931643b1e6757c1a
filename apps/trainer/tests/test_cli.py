"""The command line: mistakes are one message with the right exit code, told before torch is imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from coco_document import coco_document
from PIL import Image

from coord_trainer import cli


@pytest.fixture
def coco(tmp_path):
    Image.new("RGB", (64, 64), (200, 0, 0)).save(tmp_path / "a.png")
    path = tmp_path / "a.json"
    path.write_text(json.dumps(coco_document([{"bbox": [0, 0, 32, 32]}, {"bbox": [0, 0, 0, 32]}])))
    (tmp_path / "base.yaml").write_text("custom: {coord_soft_ce_w1: {enabled: true}}")
    return path


SOFT = "custom.coord_soft_ce_w1.enabled=true"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", SOFT, "data.anotations=a.json"], "did you mean annotations?"),
        (["train", SOFT, "data.annotations=a.json", "data.images=nowhere", "evaluation.images=train"], "at nowhere"),
        (["train", "custom.coord_objective.use_geom_loss=true"], "use_coordexp_loss"),
        (["train", SOFT, "data.annotations=a.json", "data.images=.", "evaluation.images=train", "--strict"], "no area"),
        (["prepare", "a.json", ".", "--out", "a.png"], "exists already"),
        (["prepare", "a.json", ".", "--out", "a.png/below"], "a.png is a file, or is below one"),
        (["inspect", "a.json", "--model", ""], "model.path: string should have at least 1 character"),
        (["compare", "run.seed=1"], "base/shapes.yaml"),
        (["dance"], "dance"),
        (["train", "--run.dir", "x"], "settings are written without dashes: run.dir=VALUE"),
        (["--data.shapes.train=4"], "settings are written without dashes: data.shapes.train=VALUE"),
        (["data.anotations=a.json"], "did you mean annotations?"),
        (["data.shapes.train=4", "train"], "train: expected section.key=value"),
        (["config", "data.anot"], "did you mean data.annotations?"),
        (["train", SOFT, "training.epochs=3"], "did you mean num_train_epochs?"),
        (["train", SOFT, "training.batch_size=3"], "did you mean per_device_train_batch_size?"),
    ],
)
def test_mistake_is_one_message_and_exit_code_2(run, coco, tmp_path, words, told):
    before = sorted(p.name for p in tmp_path.iterdir())
    code, error, _ = run(*words)
    assert code == 2
    assert told in error
    assert "Traceback" not in error
    assert sorted(p.name for p in tmp_path.iterdir()) == before


COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
HEAVY = ("torch", "transformers", "peft", "swift", "numpy", "coord_eval", "coord_losses", "PIL")


LIGHT = [
    *((["--help"] if c is None else [c, "--help"], 0, "Usage") for c in (None, *COMMANDS)),
    (["trian", "data.annotations=a.json"], 2, "Did you mean 'train'?"),
    (["train", "--sead"], 2, "--sead"),
    (["train", "-c", "nowhere.yaml"], 2, "nowhere.yaml: no such config file"),
    (["train", SOFT, "data.order=sideways"], 2, "data.order"),
    (["train"], 2, "train -c configs/memorise.yaml data.annotations=instances.json"),
    (["train", "data.annotations=b.json"], 2, "train -c configs/dlora/sft_base.yaml model.path=CHECKPOINT data.annota"),
    (["train", "data.anotations=b.json"], 2, "did you mean annotations?"),
    (["run.sead=3"], 2, "did you mean seed?"),
    (["compare", "nowhere.yaml", "--base", "nowhere.yaml"], 2, "nowhere.yaml: no such config file"),
    (["evaluate", "a", "--out", ".", SOFT], 2, "exists already"),
    (["config"], 0, "data.order: top_left, given, random or size"),
]


@pytest.mark.slow
def test_help_and_mistakes_are_answered_without_heavy_imports(tmp_path):
    """All in one process, in which whatever a command loads stays loaded."""
    script = f"""
import sys
from pathlib import Path
from coord_trainer.cli import main
for words in {[words for words, *_ in LIGHT]!r}:
    sys.argv = ["coord-trainer", *words]
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code or 0
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    print("CODE", code, heavy, flush=True)
"""
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    done = subprocess.run(command, cwd=tmp_path, stdout=pipe, stderr=subprocess.STDOUT, text=True, check=True)
    answers = re.split(r"^CODE (.*)\n", done.stdout, flags=re.MULTILINE)
    for (words, code, told), text, ended in zip(LIGHT, answers[::2], answers[1::2], strict=False):
        assert told in text and "Traceback" not in text and ended == f"{code} []", f"{words}: {text}{ended}"
    assert len(answers) == 2 * len(LIGHT) + 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "adapter", "seed"),
    [
        ([], False, 0),
        (["run.seed=3"], False, 3),
        (["--adapter", "offset", "run.seed=4"], True, 4),
        (["run.seed=5", "--adapter=offset"], True, 5),
        (["first-run", "run.seed=6"], False, 6),
    ],
)
def test_first_run_takes_settings_without_a_command(run, monkeypatch, words, adapter, seed):
    started = []
    monkeypatch.setattr(cli.training, "_train", lambda config, name: started.append((config, name)))
    assert not run(*words)[0]
    ((config, name),) = started
    assert (config.custom.coord_offset.enabled, config.run.seed) == (adapter, seed)
    assert name == ("first-run-offset" if adapter else "first-run")


@pytest.mark.parametrize(
    ("given", "turns"), [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_threads_wait_awake_for_a_short_time_unless_told_otherwise(run, monkeypatch, given, turns):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, given.get(name, ""))
        if name not in given:
            monkeypatch.delenv(name)
    assert run("config", "data.max")[0] == 0
    assert os.environ.get("GOMP_SPINCOUNT") == turns


def test_config_lists_keys_of_a_prefix(run):
    from coord_trainer.config.reference import config_keys

    code, _, out = run("config", "evaluation.max")
    assert code == 0
    name, meaning = out.splitlines()
    assert name == "evaluation.max_new_tokens: whole number above 0 or null; default null"
    assert "longest answer" in meaning
    _, _, out = run("config", "--markdown")
    sections = {key.name.rpartition(".")[0] or key.name for key in config_keys()}
    assert {line.removeprefix("## ") for line in out.splitlines() if line.startswith("## ")} == sections
    assert "| `run.seed` | whole number of at least 0 | `0` | seed of" in out


@pytest.mark.slow
def test_train_refuses_a_checkpoint_that_wants_its_own_code(run, coco, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.Config"}}')
    places = ["data.annotations=a.json", "data.images=.", "evaluation.images=train"]
    code, error, _ = run("train", SOFT, *places, "model.path=model", f"run.dir={tmp_path / 'run'}")
    assert code == 2
    assert "auto_map" in error


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs more rights than this user has")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.slow
def test_train_on_a_full_disk_leaves_no_incomplete_checkpoint(run, coco, small_disk):
    words = ["data.annotations=a.json", "data.images=.", "evaluation.images=train", "training.max_steps=1"]
    code, error, _ = run("train", SOFT, *words, f"run.dir={small_disk / 'run'}")
    assert code == 1
    assert "no space left" in error
    assert "Traceback" not in error
    assert not list((small_disk / "run").glob("checkpoints/checkpoint-*"))
    assert not (small_disk / "run" / "report.html").exists()


LONG = f"data.prompt={'Find every object. ' * 20}"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["inspect", "a.json", "--images", ".", "--out", "o", LONG], 1, "in the data would spoil training"),
        (["compare", LONG], 2, "base/shapes.yaml"),
        (["prepare", "a" * 300, ".", "--out", "o"], 2, "the name is too long for a file"),
    ],
)
def test_long_word_is_no_traceback(run, coco, words, code, told):
    found, error, _ = run(*words)
    assert found == code and told in error and "Traceback" not in error


def test_inspect_finds_data_of_any_name(run, coco, tmp_path):
    place = tmp_path / "\U0001f600 'n \"# ü"
    place.mkdir()
    for name in ("a.json", "a.png"):
        (tmp_path / name).rename(place / name)
    code, error, told = run("inspect", place / "a.json", "--images", place, "--out", place / "o")
    assert (place / "o" / "findings.json").is_file(), error
    assert code in (0, 1) and "Traceback" not in error + told


@pytest.mark.parametrize(("words", "offline"), [([], "1"), (["model.download=true"], "0")])
def test_only_a_configuration_that_downloads_lets_hugging_face_out(monkeypatch, words, offline):
    from coord_trainer.cli.options import resolve_config

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    resolve_config(None, ["custom.coord_soft_ce_w1.enabled=true", *words], strict=False)
    assert os.environ["HF_HUB_OFFLINE"] == offline


def test_version_and_shell_completion_are_those_of_the_program(run):
    code, _, out = run("--version")
    assert code in (0, None) and re.fullmatch(r"coord-trainer \d+\.\d+\.\d+\n", out)
    assert "--install-completion" in run("--help")[2]


@pytest.mark.slow
def test_inspection_shows_what_the_model_receives_where_one_is_named(run, coco, monkeypatch):
    """And every set of a configuration is inspected, also behind one that is faulty."""
    from coord_codec import RunError
    from coord_trainer.inspection import report

    asked = []

    def inspect_data(config, out, **options):
        asked.append((out.as_posix(), config.data.annotations.name, options))
        if out.name == "one":
            raise RunError("faulty")

    monkeypatch.setattr(report, "inspect_data", inspect_data)
    (coco.parent / "run.yaml").write_text(f"data: {{annotations: {coco}, heldout_annotations: {coco}}}")
    for words, with_model in (([coco], False), ([coco, "--model", "m"], True), (["-c", "run.yaml"], True)):
        assert run("inspect", *words, "--out", "o", "--sample", 3, "--strict", "--min-side", 5)[0] in (0, None)
        place, name, options = asked.pop()
        assert (place, name) == ("o", "a.json")
        assert options == {"with_model": with_model, "strict": True, "sample": 3, "min_side": 5}
    (coco.parent / "b.json").write_text(coco.read_text())
    sources = "sources: [{name: one, annotations: a.json}, {name: two, annotations: b.json}]"
    (coco.parent / "several.yaml").write_text(f"{{data: {{{sources}}}, evaluation: {{images: none}}}}")
    code, error, _ = run("inspect", "-c", "several.yaml", "--out", "o")
    assert code == 1 and "faulty" in error, error
    assert [(place, name) for place, name, _ in asked] == [("o/one", "a.json"), ("o/two", "b.json")]


def test_comparison_is_asked_for_what_the_command_line_says(run, tmp_path, monkeypatch):
    from coord_trainer.comparison import plan
    from coord_trainer.comparison import run as comparison

    asked = []
    monkeypatch.setattr(plan, "plan_groups", lambda *planned: asked.append(planned))
    monkeypatch.setattr(comparison, "compare_configs", lambda *words, **named: asked.append((words, named)))
    for name in ("a.yaml", "b=c.yaml", "base.yaml"):
        (tmp_path / name).touch()
    words = ["a.yaml", "b=c.yaml", "run.threads=1", "--base", "base.yaml", "--seeds", "3,7", "--jobs", "5"]
    code, _, out = run("compare", *words, "--resamples", "9", "--out", "o", "--sweep", "s.yaml", "--dry-run")
    assert code in (0, None) and "page:" not in out
    configs, paths = [Path("a.yaml"), Path("b=c.yaml")], {"base": Path("base.yaml"), "sweep": Path("s.yaml")}
    assert asked[0] == (configs, paths["base"], ["run.threads=1"], paths["sweep"])
    ((given, overrides), named) = asked[1]
    assert (given, overrides) == (configs, ["run.threads=1"])
    assert named == paths | {"seeds": [3, 7], "out": Path("o"), "jobs": 5, "resamples": 9, "dry_run": True}
    run("compare", "a.yaml", "--base", "base.yaml")
    named = asked[3][1]
    assert (named["seeds"], named["jobs"], named["resamples"], named["dry_run"]) == ([0, 1, 2], 2, 1000, False)
    assert (named["out"], named["sweep"]) == (Path("runs/compare"), None)


@pytest.mark.parametrize(
    ("attention", "checked"), [("flash_attention_2", True), ("flash_attention_3", True), ("sdpa", False)]
)
def test_flash_attention_is_checked_where_it_is_asked_for(monkeypatch, attention, checked):
    from coord_detect.model import checkpoint
    from coord_trainer.cli.options import resolve_config

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(checkpoint, "with_usable_attention", lambda config: "checked")
    found = resolve_config(None, [SOFT, f"model.attention={attention}"], strict=True)
    assert (found == "checked") is checked and (checked or found.data.strict)
    assert checked or not resolve_config(None, [SOFT], strict=False).data.strict


def test_configuration_of_a_run_folder_is_that_of_its_checkpoints_unless_one_is_named(tmp_path, capsys):
    from coord_detect.model.checkpoints import mark_complete
    from coord_trainer.cli.options import find_model_and_config

    checkpoint = tmp_path / "checkpoints" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    mark_complete(checkpoint)
    assert find_model_and_config(tmp_path, None) == (checkpoint, None)
    (tmp_path / "config.yaml").touch()
    assert find_model_and_config(tmp_path, None) == (checkpoint, tmp_path / "config.yaml")
    assert find_model_and_config(tmp_path, Path("own.yaml")) == (checkpoint, Path("own.yaml"))
    assert capsys.readouterr().out.count("its checkpoint-1 is used") == 3
    assert find_model_and_config(checkpoint, None) == (checkpoint, None) and not capsys.readouterr().out


def test_review_is_asked_for_what_the_command_line_says(run, coco, monkeypatch):
    from coord_trainer.review import command

    asked = []
    monkeypatch.setattr(command, "review_annotations", lambda *words: asked.append(words))
    words = [coco, "--folds", 3, "-c", "base.yaml", "--images", coco.parent, "--out", "o", "--views", "mirror"]
    exports = ["--export", "coco", "--export", "coco"]
    code, error, _ = run("review", *words, *exports, "--force", "evaluation.max_new_tokens=7")
    assert code in (0, None), error
    request, resolved, training = asked.pop()
    assert (request.model, request.folds, request.exports, request.force) == (None, 3, ("coco",), True)
    assert (resolved.evaluation.views, resolved.evaluation.max_new_tokens) == (("mirror",), 7)
    assert training.custom.coord_soft_ce_w1.enabled
    assert run("review", *words, "--strict")[0] == 2 and not asked
