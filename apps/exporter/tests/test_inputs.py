"""What a user may name: hub ids in the cache, and the folders of training runs."""

import json
import shutil

import pytest

from coord_exporter import InputError
from coord_exporter.inputs import find_adapter, find_folder


def test_a_hub_id_is_found_in_the_cache_and_nowhere_else(cached):
    assert find_folder("some/base") == cached
    (cached.parents[1] / "refs" / "v2").write_text("4567")
    (cached.parent / "4567").mkdir()
    assert find_folder("some/base@v2") == cached.parent / "4567"
    for name in ("some/other", "some/base@v3"):
        with pytest.raises(InputError, match=rf"{name}: no folder of this name, .*: hf download {name.split('@')[0]}"):
            find_folder(name)
    for name in ("./base", "../base", ".some/base"):  # folders, which are missing
        assert str(find_folder(name)) == name.removeprefix("./")


def test_a_run_stands_for_its_last_complete_checkpoint_or_its_best(run):
    folder, chosen = find_adapter(run)
    assert folder.name == "checkpoint-10" and chosen == f"{run}: a training run; its checkpoint-10 is merged, the last"
    facts = json.loads((run / "manifest.json").read_text())
    facts["best_checkpoint"] = {"path": "checkpoints/checkpoint-5", "AP": 0.5}
    (run / "manifest.json").write_text(json.dumps(facts))
    folder, chosen = find_adapter(run)
    assert folder.name == "checkpoint-5" and chosen.endswith("the best by AP, 0.500")
    assert find_adapter(folder) == (folder, None)
    shutil.rmtree(run / "checkpoints" / "checkpoint-5")
    shutil.rmtree(run / "checkpoints" / "checkpoint-10")
    with pytest.raises(InputError, match="a training run without a complete checkpoint"):
        find_adapter(run)


@pytest.mark.parametrize("place", [".", "checkpoints/checkpoint-20"])
def test_a_run_that_trained_whole_models_needs_no_merge(tmp_path, place):
    (tmp_path / "checkpoints" / "checkpoint-20").mkdir(parents=True)
    (tmp_path / "checkpoints" / "checkpoint-20" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"checkpoint-20.* a whole model, which needs no merge"):
        find_adapter(tmp_path / place)


COMPLETE = {"adapter_config.json": 2, "adapter_model.safetensors": 1}


@pytest.mark.parametrize(
    ("listed", "manifest", "taken"),
    [
        (COMPLETE, True, True),
        (COMPLETE | {"coordexp.json": 99}, True, True),  # a calibration was added to the card
        (COMPLETE | {"adapter_model.safetensors": 2}, True, False),
        (COMPLETE | {"gone.json": 2}, True, False),
        (None, True, False),  # of our trainer, which lists its files last
        (None, False, True),  # of another one
    ],
)
@pytest.mark.parametrize("inside", ["checkpoints", "."])
def test_checkpoint_is_taken_where_all_its_files_are_whole(tmp_path, listed, manifest, taken, inside):
    run = tmp_path / "run"
    for step, files in ((9, COMPLETE), (10, listed)):
        checkpoint = run / inside / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        for name, size in (COMPLETE | {"coordexp.json": 2}).items():
            (checkpoint / name).write_bytes(b"{}"[:size])
        if files is not None:
            (checkpoint / "complete.json").write_text(json.dumps(files))
    if manifest:
        (checkpoint.parent.parent / "manifest.json").write_text("{}")
    folder, told = find_adapter(run)
    assert folder.name == f"checkpoint-{10 if taken else 9}" and told.endswith("is merged, the last")


def test_adapter_itself_comes_before_folders_inside_and_a_single_named_one_is_told(tmp_path):
    steps = [f"plain/checkpoint-{n}" for n in (3, 20, 100, 4, 31, 9)]
    for name in ("own", "own/first", "named/only", *steps, "several/a", "several/b", "both", "both/checkpoint-3"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "adapter_config.json").write_text("{}")
    assert find_adapter(tmp_path / "own/first") == (tmp_path / "own/first", None)
    folder, told = find_adapter(tmp_path / "own")
    assert folder == tmp_path / "own" and "its own adapter is taken" in told and "own/first" in told
    folder, told = find_adapter(tmp_path / "named")
    assert folder == tmp_path / "named" / "only" and "the only one" in told
    (tmp_path / "both" / "config.json").write_text("{}")  # of the model, as some trainers put beside an adapter
    assert find_adapter(tmp_path / "both") == (tmp_path / "both", None)
    assert find_adapter(tmp_path / "plain")[0].name == "checkpoint-100"
    assert find_adapter(tmp_path / "nothing") == (tmp_path / "nothing", None)
    with pytest.raises(InputError, match="several adapters"):
        find_adapter(tmp_path / "several")
