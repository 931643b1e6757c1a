"""Plans of a comparison: which folder holds which run, and which runs are compared."""

import json
from types import SimpleNamespace

import pytest
import yaml

from coord_codec import InputError
from coord_trainer.comparison import run as running
from coord_trainer.comparison.plan import LossGroup, default_base, differing_settings, plan_runs, read_seeds
from coord_trainer.comparison.run import _check_comparable, _compare_runs, _to_train, why_not_kept
from coord_trainer.config.run_config import check_run_config

CUSTOM = {"coord_soft_ce_w1": {"enabled": True}}


def group(name, **sections):
    return LossGroup(name, check_run_config({"custom": CUSTOM} | sections, "test"))


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", [0]), ("3", [0, 1, 2]), ("3,7", [3, 7]), ("7,", [7]), ("11-13,20", [11, 12, 13, 20]), ("5-5", [5])],
)
def test_seeds_are_a_number_or_a_list(text, seeds):
    assert read_seeds(text) == seeds


def test_base_is_that_beside_the_first_config_or_else_that_of_the_working_folder(tmp_path, monkeypatch):
    files = [tmp_path / name / "groups" / "a.yaml" for name in ("one", "two")]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"--base: no base/shapes\.yaml beside the configs"):
        default_base(files)
    made = []
    for folder in ("two", "configs", "one"):  # what lies beside the second config is not taken
        made.append(tmp_path / folder / "base" / "shapes.yaml")
        made[-1].parent.mkdir(parents=True)
        made[-1].touch()
        if folder != "two":
            assert default_base(files).resolve() == made[-1]
    assert default_base(files[1:]) == made[0] and default_base([]).resolve() == made[1]


def test_runs_have_the_threads_of_their_group_or_else_of_the_comparison(tmp_path):
    groups = [group("a"), group("b", run={"threads": 3})]
    for threads in (None, 1):
        runs = plan_runs(groups, [0, 5], tmp_path, threads)
        assert [(run.group.name, run.seed, run.config.run.threads) for run in runs] == [
            ("a", 0, threads), ("b", 0, 3), ("a", 5, threads), ("b", 5, 3)
        ]  # fmt: skip
        assert all(run.folder == run.config.run.dir == tmp_path / run.group.name / f"seed-{run.seed}" for run in runs)
        assert all(run.config.run.seed == run.seed for run in runs)


def test_settings_that_differ_are_named_with_the_value_of_each_group():
    groups = [group("a"), group("b", training={"max_steps": 3}), group("c", run={"threads": 3, "seed": 4})]
    assert differing_settings(groups) == {"training.max_steps": [None, 3, None], "run.seed": [0, 0, 4]}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"data": {"shapes": {"train": 5}}}, {}, "data.shapes"),
        ({"evaluation": {"images": "train"}}, {}, "evaluation.images is train in a and heldout in b"),
        ({"evaluation": {"images": "none"}}, {"evaluation": {"images": "none"}}, "nothing to compare"),
        ({"data": {"prompt": "Where?"}}, {}, None),
        ({}, {}, None),
    ],
)
def test_groups_of_other_images_are_not_compared(first, second, told):
    groups = [group("a", **first), group("b", **second)]
    if told is None:
        _check_comparable(groups)
    else:
        with pytest.raises(InputError, match=told):
            _check_comparable(groups)


def finished(tmp_path, run, status="finished", digests=None):
    run.folder.mkdir(parents=True, exist_ok=True)
    values = run.config.model_dump(mode="json")
    (run.folder / "config.yaml").write_text(yaml.safe_dump(values))
    data = {name: {"digest": digest} for name, digest in (digests or {"train": "t"}).items()}
    (run.folder / "manifest.json").write_text(json.dumps({"status": status, "data": data}))


def test_run_is_kept_where_settings_end_and_data_are_the_same(tmp_path, capsys):
    (run,), (other,) = (
        plan_runs([group("a", **more)], [0], tmp_path, 1) for more in ({}, {"training": {"max_steps": 3}})
    )
    assert why_not_kept(run, None) == "not there yet"
    finished(tmp_path, run)
    for digests, kept in (
        (None, True),
        ({"train": "t"}, True),
        ({"train": "u"}, False),
        ({"train": "t", "held": "h"}, False),
    ):
        assert (why_not_kept(run, digests) is None) is kept
    assert "training.max_steps is None there and 3 now" in why_not_kept(other, None)
    assert _to_train([run], {"train": "t"}) == [] and "finished before, kept" in capsys.readouterr().out
    assert _to_train([run], {"train": "u"}) == [run] and "trained anew" in capsys.readouterr().out
    finished(tmp_path, run, "interrupted")
    assert why_not_kept(run, {"train": "t"}) == "not finished (interrupted)"
    (run.folder / "manifest.json").write_text("{")
    assert "cannot be read" in why_not_kept(run, None)


def test_groups_are_compared_by_the_seeds_that_all_of_them_finished_under_the_decoding(tmp_path, monkeypatch, capsys):
    both = {"evaluation": {"decoding": [{}, {"grammar": "markers"}]}}
    groups = [group("a", **both), group("b"), group("c", **both)]
    runs = plan_runs(groups, [0, 1, 2], tmp_path, 1)
    (free, strict) = groups[0].config.evaluation.decoding
    seen = []

    class Stop(Exception):
        pass

    def compare(evaluations, resamples):
        seen.append({name: [run.seed for run in of_group] for name, of_group in evaluations.items()})
        raise Stop

    monkeypatch.setattr(running, "_scored", lambda run, decoding, images: SimpleNamespace(seed=run.seed))
    monkeypatch.setattr(running, "compare", compare)
    lost = {("b", 1), ("c", 2)}
    left = [run for run in runs if (run.group.name, run.seed) not in lost]
    for decoding, of in ((free, left), (strict, left), (strict, runs)):
        with pytest.raises(Stop):
            _compare_runs(of, decoding, None, tmp_path, 9)
    assert seen == [{"a": [0], "b": [0], "c": [0]}, {"a": [0, 1], "c": [0, 1]}, {"a": [0, 1, 2], "c": [0, 1, 2]}]
    assert _compare_runs(runs[:1], free, None, tmp_path, 9) is None and "nothing to compare" in capsys.readouterr().out
    assert _compare_runs([], free, None, tmp_path, 9) is None
