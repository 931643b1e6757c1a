"""Callbacks of a run, called as transformers calls them."""

import json
from types import SimpleNamespace

import pytest

from coord_codec import RunError
from coord_trainer.evaluation.during_training import AnswerSchedule
from coord_trainer.training import callbacks, interrupt
from coord_trainer.training.callbacks import EachEpoch, MetricsFile, StepTime, TrainingProgress
from coord_trainer.training.metrics import STEP_TIME


def state(step=3, most=9, first=True, **more):
    return SimpleNamespace(global_step=step, max_steps=most, epoch=1.5, is_world_process_zero=first, **more)


@pytest.mark.parametrize(
    ("given", "logs", "written"),
    [
        (state(), {"train_total_loss": 2.0}, True),
        (state(first=False), {"train_total_loss": 2.0}, False),
        (state(), None, False),
        (state(), {}, False),
        (state(), {"train_runtime": 4.0}, False),  # of a run that was interrupted
        (state(9), {"train_runtime": 4.0}, True),
    ],
)
def test_lines_of_the_first_rank_are_written_and_the_summary_at_the_end_alone(tmp_path, given, logs, written):
    MetricsFile(tmp_path / "m.jsonl").on_log(None, given, None, logs=logs)
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()] if written else []
    assert (tmp_path / "m.jsonl").exists() is written
    assert lines == ([{"step": given.global_step, "epoch": 1.5, **logs}] if written else [])


@pytest.mark.parametrize("name", ["train_total_loss", "loss"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_loss_that_is_not_finite_ends_the_run_on_each_rank_and_is_in_the_file(tmp_path, name, value):
    for first in (True, False):
        with pytest.raises(RunError, match="at step 3"):
            MetricsFile(tmp_path / "m.jsonl").on_log(None, state(first=first), None, logs={name: value})
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 1
    MetricsFile(tmp_path / "m.jsonl").on_log(None, state(), None, logs={"train_total_loss": 1.0, "loss": value})


def test_time_of_a_step_is_the_mean_without_pauses_and_begins_anew(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock[0])
    measured = StepTime()
    clock[0] += 50  # what comes before the first step
    measured.on_train_begin(None, state(4), None)
    assert measured.since_last(4) == {}
    clock[0] += 6
    with measured.paused():
        clock[0] += 1000
    assert measured.since_last(6) == {STEP_TIME: 3.0}
    assert measured.since_last(6) == {}
    clock[0] += 5
    assert measured.since_last(7) == {STEP_TIME: 5.0}


def test_progress_is_shown_by_the_first_rank_from_where_it_goes_on(capsys):
    progress = TrainingProgress()
    progress.on_train_begin(None, state(4), None)
    assert (progress._bar.n, progress._bar.total) == (4, 9)
    progress.on_step_end(None, state(7), None)
    assert progress._bar.n == 7
    progress.on_log(None, state(7), None, logs={"eval_total_loss": 3.0})
    assert "step 7: evaluation loss 3.000\n" in capsys.readouterr().out  # nothing was trained yet
    progress.on_train_end(None, state(9), None)
    other = TrainingProgress()
    other.on_train_begin(None, state(first=False), None)
    for call in (other.on_step_end, other.on_train_end):
        call(None, state(), None)
    other.on_log(None, state(), None, logs={"eval_total_loss": 3.0})
    assert other._bar is None and not capsys.readouterr().out


def test_epochs_count_from_0_whole_ones_alone():
    begun = []
    for epoch in (None, 0.0, 1.0, 1.999):
        EachEpoch(begun.append).on_epoch_begin(None, SimpleNamespace(epoch=epoch), None)
    assert begun == [0, 0, 1, 1]


def control(**given):
    flags = dict.fromkeys(("should_evaluate", "should_save", "should_training_stop"), False)
    return SimpleNamespace(**flags | given)


def test_best_checkpoint_is_saved_and_others_are_not(capsys):
    """Equal scores do not count as better, and a checkpoint that is due anyway stays due."""
    schedule, history = AnswerSchedule(None, 2, patience=2), []
    told = []
    for step, (value, due) in enumerate([(0.5, False), (0.5, False), (0.4, True), (0.7, False)], start=1):
        history.append({"step": step, "eval_AP": value})
        schedule.due = schedule.alone = True
        found = control(should_save=due)
        schedule.on_evaluate(None, state(step, log_history=history), found, metrics={"eval_AP": value})
        told.append((found.should_save, found.should_training_stop))
        assert not schedule.due and not schedule.alone
    assert told == [(True, False), (False, False), (True, True), (True, False)]
    lines = capsys.readouterr().out
    assert "step 3: AP 0.400, the best was 0.500 at step 1" in lines and "step 4: AP 0.700, the best so far" in lines
    found = control()
    schedule.on_evaluate(None, state(log_history=history), found, metrics={"eval_total_loss": 1.0})
    schedule.on_evaluate(None, state(log_history=history), found, metrics=None)
    assert found == control()


@pytest.mark.parametrize(
    ("step", "evaluates", "due", "alone"),
    [
        (1, False, False, False),
        (1, True, False, False),
        (2, False, True, True),
        (2, True, True, False),
        (9, False, True, True),
    ],
)
def test_scores_are_due_beside_losses_or_alone(step, evaluates, due, alone):
    schedule, found = AnswerSchedule(None, 2), control(should_evaluate=evaluates)
    schedule.on_step_end(None, state(step), found)
    assert (schedule.due, schedule.alone, found.should_evaluate) == (due, alone, evaluates or due)


def test_signal_of_any_rank_saves_and_stops_without_a_further_evaluation(monkeypatch):
    args, signals = SimpleNamespace(device="cpu"), interrupt.Interruption()
    stop = interrupt.StopAtBoundary(signals)
    found = control(should_evaluate=True)
    stop.on_step_end(args, None, found)
    stop.on_epoch_end(args, None, found)
    assert found == control(should_evaluate=True) and signals.signum == 0
    monkeypatch.setattr(interrupt, "largest_over_ranks", lambda number, device: 15)  # another rank's
    stop.on_step_end(args, None, found)
    assert found == control(should_save=True, should_training_stop=True) and signals.signum == 15
    found.should_evaluate = True  # as transformers asks for at the end of an epoch
    stop.on_epoch_end(args, None, found)
    assert (found.should_save, found.should_evaluate, found.should_training_stop) == (False, False, True)
