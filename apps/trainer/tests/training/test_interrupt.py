"""Signals: training ends behind a step with a checkpoint, everything else at once."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

from coord_trainer.training import interrupt
from coord_trainer.training.interrupt import (
    Interrupted,
    Interruption,
    StopAtBoundary,
    TrainingClock,
    explain_resume,
    resume_command,
    seconds_of,
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_outside_of_steps_stops_at_once_with_the_exit_code_of_shells(number, code, tmp_path):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="had not begun") as raised, explain_resume(tmp_path), Interruption():
        os.kill(os.getpid(), number)
        pytest.fail("the run went on")
    assert raised.value.code == code and isinstance(raised.value, KeyboardInterrupt)
    assert signal.getsignal(number) is before


def test_first_signal_between_steps_is_noted_and_the_second_stops_at_once(capfd):
    control, arguments = TrainerControl(should_evaluate=True), SimpleNamespace(device="cpu")
    with Interruption() as interruption, interruption.between_steps():
        stop = StopAtBoundary(interruption)
        stop.on_step_end(arguments, None, control)
        assert not control.should_save and control.should_evaluate
        os.kill(os.getpid(), signal.SIGTERM)
        stop.on_step_end(arguments, None, control)
        assert control.should_save and control.should_training_stop and not control.should_evaluate
        control.should_save = True  # as `save_strategy: epoch` does
        stop.on_epoch_end(arguments, None, control)
        assert not control.should_save  # once is enough
        assert "a second one stops at once" in capfd.readouterr().err
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the run went on")
    assert interruption.signum == signal.SIGTERM


def test_signal_behind_an_error_does_not_replace_it():
    with pytest.raises(BaseException, match="no memory"), Interruption() as interruption:
        try:
            with interruption.between_steps():
                raise RuntimeError("no memory")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


def test_interruption_leaves_other_threads_and_child_processes_alone():
    before, inside = signal.getsignal(signal.SIGTERM), []

    def enter():
        with Interruption():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == [before]
    with Interruption() as interruption:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)  # a terminal sends it to all processes
            os._exit(7 if not interruption.signum else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_training_clock_counts_the_seconds_of_all_parts(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: now[0])
    clock, state = TrainingClock(), TrainerState()
    assert seconds_of(tmp_path) == 0
    now[0] = 150.0  # the model is loaded
    clock.on_train_begin(None, state, None)
    now[0] = 160.0
    clock.on_step_end(None, state, None)
    state.save_to_json(str(tmp_path / "trainer_state.json"))
    assert seconds_of(tmp_path) == 10
    later = TrainingClock(seconds_of(tmp_path))
    later.on_train_begin(None, TrainerState(), None)
    now[0] = 165.5
    assert later.seconds == 15.5


def test_resume_command_is_quoted_and_names_folder_and_ranks(tmp_path, monkeypatch):
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "config.yaml").touch()
    with pytest.raises(Interrupted, match="continue with") as raised, explain_resume(folder):
        raise KeyboardInterrupt
    assert raised.value.code == 130
    assert f"train -c '{folder}/config.yaml' 'run.dir={folder}' run.resume=true" in str(raised.value)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert resume_command(folder).endswith("(on 4 ranks, as before)")
