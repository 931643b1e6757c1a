"""What a user may name: hub ids in the cache, and the folders of training runs."""

import json
import shutil

import pytest

from coord_exporter import InputError
from coord_exporter.inputs import find_adapter, find_folder


def test_a_hub_id_is_found_in_the_cache_and_nowhere_else(cached):
    assert find_folder("some/base") == cached
    with pytest.raises(InputError, match=r"some/other: no folder of this name, .*: hf download some/other"):
        find_folder("some/other")


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
