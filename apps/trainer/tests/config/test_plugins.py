"""Loss terms of a user's own, registered by a plugin and weighted in the YAML, reach training, log and manifest."""

import hashlib
import json
from pathlib import Path

import pytest
from tiny_run import BASE, TINY, read_lines

from coord_codec import InputError
from coord_codec.registry import Registry
from coord_losses.terms import registry
from coord_trainer.config.run_config import check_run_config

PLUGIN = """
from coord_losses import register_term

def distance(inputs, power=1.0):
    return (inputs.expected_C - inputs.true_C).abs() ** power

register_term("distance", distance, needs="expectation", log_key="mean_distance", title="distance!", replace=True)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The file of a plugin, whose term is not registered after the test."""
    monkeypatch.setattr(registry, "_TERMS", Registry("term", registry._TERMS.items()))
    (tmp_path / "mine.py").write_text(PLUGIN)
    return str(tmp_path / "mine.py")


def objective_of(plugins=(), **keys):
    values = {"custom": {"coord_objective": keys}, "plugins": plugins}
    return check_run_config(values, "test").custom.objective


def test_label_smoothing_reaches_the_objective_and_trains_no_coordinate_alone():
    objective = objective_of(use_coord_ce=True, label_smoothing=0.1)
    assert objective.weights == {"text_ce": 1.0, "coord_ce": 1.0}
    assert objective.label_smoothing == 0.1
    plain = check_run_config(
        {"custom": {"coord_tokens": {"enabled": False}, "coord_objective": {"label_smoothing": 0.1}}}, "test"
    )
    assert plain.custom.loss_in_words == "text_ce 1; label smoothing 0.1"
    with pytest.raises(InputError, match="nothing trains the coordinates"):
        objective_of(label_smoothing=0.1)


def test_weights_and_options_of_registered_terms_reach_the_objective(plugin):
    objective = objective_of(plugins=[plugin], extra_weights={"distance": 2}, term_options={"distance": {"power": 0.5}})
    assert objective.weights == {"text_ce": 1.0, "distance": 2.0}
    assert objective.term_options == {"distance": {"power": 0.5}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"extra_weights": {"distanec": 1}},
            r"coord_objective\.extra_weights: there is no term 'distanec' .did you mean 'distance'..; the terms are .*",
        ),
        ({"extra_weights": {"distance": -1}}, r"coord_objective\.extra_weights\.distance: .*found -1"),
        ({"extra_weights": {"distance": 0}}, "every weight of the coordinate terms"),
        ({"extra_weights": {"distance": 1}, "term_options": {"distance": {"x": 1}}}, "'distance' does not take"),
        ({"use_coord_ce": True, "label_smoothing": 1}, r"coord_objective\.label_smoothing: .*found 1"),
        ({"extra_weights": {"box": 1}}, "the weight of 'box' is custom.coord_objective.lambda_coord"),
        ({"extra_weights": {"distance": 1}, "plugins": ["nowhere.py"]}, "nowhere.py: no such file"),
        ({"extra_weights": {"distance": 1}, "plugins": ["no_such_module"]}, "ModuleNotFoundError"),
    ],
)
def test_wrong_terms_and_plugins_are_named(keys, message, plugin):
    with pytest.raises(InputError, match=message):
        _ = objective_of(**{"plugins": [plugin], **keys})


def test_plugin_that_raises_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    for _ in range(2):  # a half-imported module must not pass the second time
        with pytest.raises(InputError, match=r"broken\.py: importing it raises ZeroDivisionError"):
            _ = objective_of(plugins=[str(tmp_path / "broken.py")])


@pytest.mark.slow
def test_run_with_a_plugin_trains_logs_and_records_its_term(tmp_path, forked):
    """In a process of its own: a registered term stays registered."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    terms = {"extra_weights": {"distance": 3.0}, "label_smoothing": 0.2}
    config = BASE | {
        "model": {"tiny": TINY},
        "training": BASE["training"] | {"max_steps": 2},
        "custom": {"coord_objective": terms},
        "plugins": ["mine.py"],
        "evaluation": {"images": "train", "limit": 2, "max_new_tokens": 24},
    }
    (tmp_path / "my.yaml").write_text(json.dumps(config))
    done = forked(Path(__file__).parents[2], "train", "-c", "my.yaml", "run.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in read_lines(tmp_path / "out") if "train_total_loss" in line)
    assert 0 < line["coord_diag/mean_distance"] < 1
    parts = 3 * line["coord_diag/mean_distance"]
    assert line["coord_diag/loss"] == pytest.approx(parts, rel=1e-6)
    assert line["train_total_loss"] == pytest.approx(line["train_text_loss"] + parts, rel=1e-6)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["plugins"] == {"mine.py": hashlib.sha256(PLUGIN.encode()).hexdigest()}
    told = "text_ce 1, distance 3; label smoothing 0.2"
    assert manifest["loss_terms"] == told
    report = (tmp_path / "out" / "report.html").read_text()
    assert told in report
    assert ">distance!<" in report
