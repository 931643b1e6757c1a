"""Training curves of several runs, by their logs: values, times, resumed runs, other lengths, missing values."""

import json
import re

import pytest

from coord_eval import training_curves

TITLES = {"loss": "total", "text": "text", "box": "box"}


def log(steps, rate=2.0, scale=1.0, **more):
    """Lines at some steps: the loss is 100 / step; the AP, at even steps and in lines of its own, step / 10."""
    lines = []
    for step in steps:
        lines.append({"step": step, "loss": scale * 100 / step, "seconds_per_step": rate, **more})
        if step % 2 == 0:
            lines.append({"step": step, "eval_AP": scale * step / 10})
    return lines


def test_curve_of_seeds_is_their_mean_between_the_lowest_and_the_highest():
    seeds = [log((1, 2, 4, 8)), log((1, 2, 4, 8), rate=4.0, scale=0.5)]
    curve = training_curves({"a": seeds}, TITLES).curves["total"]["a"]
    assert curve.steps == [1, 2, 4, 8] and curve.seeds == 2
    assert curve.high == [100, 50, 25, 12.5] and curve.low == [50, 25, 12.5, 6.25]
    assert curve.mean == [(h + low) / 2 for h, low in zip(curve.high, curve.low, strict=True)]
    assert curve.seconds == [3, 6, 12, 24]  # 2 and 4 seconds a step


def test_share_of_the_best_ap_is_reached_at_the_first_step_that_has_it():
    found = training_curves({"a": [log(range(1, 11))], "b": [log(range(1, 11), scale=0.5, rate=1.0)]}, TITLES)
    assert found.best_ap == 1.0
    steps = {run: {row.share: row.steps for row in rows} for run, rows in found.reached.items()}
    assert steps["a"] == {0.5: [6], 0.8: [8], 0.9: [10], 0.95: [10]}  # measured at even steps; .5 of 1 is 5, so 6
    assert steps["b"] == {0.5: [10], 0.8: [None], 0.9: [None], 0.95: [None]}  # .5 itself is reached
    assert [row.seconds for row in found.reached["b"]] == [[10.0], [None], [None], [None]]
    assert [str(row) for row in found.reached["b"]] == ["step 10, 10 s", *["not reached"] * 3]
    both = training_curves({"a": [log(range(1, 11)), log(range(1, 11), scale=0.5)]}, TITLES).reached["a"]
    assert both[0].target == pytest.approx(0.375) and both[0].steps == [4, 8]
    assert both[3].steps == [8, None] and "not reached by 1 seed" in str(both[3])


def test_resumed_run_counts_each_step_once():
    whole = log(range(1, 9))
    lost = [*log(range(1, 6)), {"step": 6, "loss": 999.0, "seconds_per_step": 50.0}, *log(range(5, 9))]
    found, expected = (training_curves({"a": [lines]}, TITLES) for lines in (lost, whole))
    assert found.curves == expected.curves and found.reached == expected.reached
    assert expected.notes == ()
    assert any(note.startswith("a: 2 steps repeated") for note in found.notes)


def test_runs_of_other_lengths_and_missing_values_are_told():
    logs = {"a": [log(range(1, 9), text=1.0), log(range(1, 5), text=0.5)], "b": [log(range(1, 9), box=0.0)]}
    found = training_curves(logs, TITLES)
    assert found.curves["total"]["a"].steps == [1, 2, 3, 4] and found.curves["total"]["b"].steps[-1] == 8
    assert found.curves["text"].keys() == {"a"} and "box" not in found.curves
    lengths, missing = [next(n for n in found.notes if word in n) for word in ("numbers of steps", "text")]
    assert "a 4 and 8, b 8" in lengths and missing.endswith("b, or 0 throughout")


def test_run_without_times_or_ap_has_what_it_has():
    lines = [{"step": step, "loss": 1.0 / step, "note": "text", "flag": True} for step in (1, 2)]
    found = training_curves({"a": [lines], "b": [log((1, 2))]}, TITLES)
    assert found.curves["total"]["a"].seconds == [None, None] and found.reached.keys() == {"b"}
    assert any(note.startswith("a: no seconds_per_step") for note in found.notes)
    alone = training_curves({"a": [lines]}, TITLES)
    assert alone.best_ap is None and alone.reached == {} and list(alone.lines()) == list(alone.notes)
    assert training_curves({"a": [[]]}, TITLES).curves == {}


def test_time_after_the_last_timed_line_goes_on_at_its_rate():
    lines = [*log((1, 2), rate=1.0), *log((4,), rate=3.0), {"step": 6, "eval_AP": 0.9}]
    (row, *_) = training_curves({"a": [lines]}, TITLES).reached["a"]
    assert (row.steps, row.seconds) == ([6], [1 + 1 + 2 * 3 + 2 * 3])


def test_values_that_are_no_numbers_are_left_out():
    lines = [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 3.0}]
    assert training_curves({"a": [lines]}, TITLES).curves["total"]["a"].steps == [2]


def test_page_and_json_hold_the_curves():
    found = training_curves({"<a>": [log(range(1, 9)), log(range(1, 9), scale=0.9)], "b": [log(range(1, 9))]}, TITLES)
    page = found.html()
    assert "<a>" not in page and page.count("<svg xmlns") == len(found.curves) == 1
    assert len(re.findall("fill-opacity: 0.18", page)) == 2  # a band over steps, and one over time
    lines = re.findall(r'd="M [^L"]+(?:L [^L"Z]+){7}" style="fill: none; stroke: var\(--s(\d)', page)
    assert sorted(lines) == ["0", "0", "1", "1"]  # of eight points, over steps and over time
    point = training_curves({"a": [[{"step": 1, "loss": 2.0}]]}, TITLES).html()
    assert point.count('style="fill: var(--s0,') == 1  # a line of one point would not be seen
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["curves"]["total"]["b"]["steps"] == list(range(1, 9))
    assert values["reached"]["b"][0]["steps"] == [4]
    assert sum("50 %" in line for line in found.lines()) == 2


def test_what_a_resumed_run_does_not_log_again_is_gone_and_every_resume_is_counted():
    lines = [*log(range(1, 7)), {"step": 5, "loss": 20.0, "seconds_per_step": 2.0}, *log((6, 7))]
    lines += [{"step": 6, "loss": 30.0, "seconds_per_step": 2.0}, *log((7, 8))]
    lines[6] |= {"text": 9.0}  # of the step 5 before the first resume, which neither one logs again
    found = training_curves({"a": [lines]}, TITLES)
    curve = found.curves["total"]["a"]
    assert dict(zip(curve.steps, curve.mean, strict=True)) == {
        **{s: 100 / s for s in (1, 2, 3, 4, 7, 8)}, 5: 20, 6: 30
    }  # fmt: skip
    assert "text" not in found.curves and curve.seconds == [2.0 * step for step in range(1, 9)]
    assert found.best_ap == 0.8 and found.reached["a"][0].steps == [4]
    assert any(note.startswith("a: 4 steps repeated") for note in found.notes)  # 5 and 6, then 6 and 7


def test_times_are_told_where_every_seed_has_them_and_flags_are_no_values():
    timed, untimed = (
        log(range(1, 5)),
        [{k: v for k, v in row.items() if k != "seconds_per_step"} for row in log((1, 2, 3, 4))],
    )
    for seeds in ([timed, untimed], [untimed, timed]):
        found = training_curves({"a": seeds}, TITLES)
        assert found.curves["total"]["a"].seconds == [None] * 4
        assert any(note.startswith("a: no seconds_per_step") for note in found.notes)
        assert str(found.reached["a"][0]) == "step 2" and "not reached" not in str(found.reached["a"][0])
    flags = [{"step": step, "loss": True, "text": 1} for step in (1, 2)]
    found = training_curves({"a": [flags]}, TITLES)
    assert [*found.curves] == ["text"] and not any("total" in note for note in found.notes)
