"""Words of other libraries lead to ours, on command lines, among settings and names of modules."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from coord_codec.commands.program import Commands
from coord_codec.other_words import ARGUMENTS, missing_name, option_hint, setting_hint

app = typer.Typer(cls=Commands, rich_markup_mode=None)


@app.command()
def predict(
    words: Annotated[list[str], typer.Argument(metavar="MODEL [section.key=value]...")],
    min_score: float = 0.0,
    out: str = "",
) -> None:
    """Answer."""


@app.command()
def inspect(source: str, out: str = "") -> None:
    """Look."""


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (["predict", "m", "--conf", ".5"], "--min-score"),
        (["predict", "m", "--conf-thres", ".5"], "--min-score"),
        (["predict", "m", "--imgsz", "640"], "data.max_pixels=N"),
        (["predict", "m", "--output-dir", "x"], "--out"),
        (["predict", "m", "--outdir", "x"], "--out"),
        (["predict", "m", "--epochs", "3"], "training.num_train_epochs=N"),
        (["predict", "m", "--device", "0"], "nothing is needed"),
        (["detect", "m"], "predict"),
        (["Validate", "x"], "inspect"),
        (["train", "x"], "uv run apps/trainer train"),
    ],
)
def test_word_of_another_program_names_ours(line, ours):
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2
    assert ours in result.output
    assert "Possible options" not in result.output and "Did you mean" not in result.output


def test_option_that_nobody_knows_keeps_the_nearest_ones():
    result = CliRunner().invoke(app, ["predict", "m", "--min-scor", ".5"])
    assert result.exit_code == 2
    assert "--min-score" in result.output


def test_setting_of_a_training_is_no_hint_where_a_command_takes_no_settings():
    assert option_hint("--epochs", ["--out"]) == ""
    assert option_hint("--epochs", ["--out"], takes_settings=True) == "training.num_train_epochs=N"
    assert option_hint("--num-workers", ["--workers"]) == "--workers"
    assert option_hint("--num-workers", [], takes_settings=True) == "training.dataloader_num_workers=N"
    others = {ours for row in ARGUMENTS for ours in row.line if not ours.startswith("--") and "=" not in ours}
    hints = {option_hint(f"--{word}", []) for row in ARGUMENTS for word in row.words.split()}
    assert others and others <= hints  # a call is a hint everywhere
    assert CliRunner().invoke(app, ["inspect", "x", "--epochs", "3"]).exit_code == 2


def test_no_word_is_listed_twice_and_none_leads_to_itself():
    words = [word for row in ARGUMENTS for word in row.words.split()]
    assert len(words) == len(set(words))
    for row in ARGUMENTS:
        for word in row.words.split():
            assert option_hint(f"--{word}", [f"--{word}"], takes_settings=True) != f"--{word}"


@pytest.mark.parametrize(("word", "ours"), [("epochs", "training.num_train_epochs"), ("device", ""), ("colour", "")])
def test_setting_that_means_the_same(word, ours):
    assert setting_hint(word) == ours


def test_missing_name_of_a_module_names_the_call_or_the_nearest():
    assert "coord_eval.score" in str(missing_name("coord_eval", "COCOeval", ["score"]))
    assert "did you mean score?" in str(missing_name("coord_eval", "scoore", ["score"]))
    assert "mean" not in str(missing_name("coord_eval", "_wrapped", ["wrapped"]))
