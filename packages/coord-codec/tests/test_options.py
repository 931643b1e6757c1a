"""Options that are made of the fields of a record: their words become its values, and errors name the option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import typer
from pydantic import BaseModel, Field, model_validator
from typer.testing import CliRunner

from coord_codec import InputError
from coord_codec.commands.options import option, options_of, with_options
from coord_codec.settings import Setting, SettingsRecord, setting


def sides(word):
    try:
        return tuple(map(int, word.split("x")))
    except ValueError:
        raise InputError(f"size: expected WxH, found {word!r}") from None


@dataclass(frozen=True)
class Drawing(SettingsRecord):
    """A field of every kind."""

    order: str = setting("size", "order of the `boxes`", choices=("size", "given"))
    most: int = setting(10, "Most boxes.", least=1, most=20)
    deep: bool = setting(False, "Whether it is deep.")
    shown: bool = setting(True, "Whether it is shown.")
    names: Sequence[str] = setting(("a", "b"), "Names.")
    side: float | None = setting(None, "A side.", flag="--side -s")
    colour: str = setting("red", "A colour.", choices=lambda: ["red", "blue"])
    size: tuple[int, ...] | None = setting(None, "A size.", read=sides)
    line_key: str = setting("", "A key.")


class Rules(BaseModel):
    """The same of pydantic."""

    min_side: int = Field(0, ge=0, description="least side")
    max_side: int = Field(9, description="largest side")

    @model_validator(mode="after")
    def _in_order(self):
        if self.max_side < self.min_side:
            raise ValueError("largest below least")
        return self


app = typer.Typer(rich_markup_mode=None)
made = {}


@app.command()
@with_options(
    [option("extra", int, Setting("More.", 5))],
    drawing=options_of(Drawing),
    rules=options_of(Rules, "min_side", max_side="N"),
)
def draw(source: str, *, drawing: Drawing, rules: Rules, extra: int) -> None:
    """Draw."""
    made.update(source=source, drawing=drawing, rules=rules, extra=extra)


LINES = {
    "": {},
    "--order given": {"order": "given"},
    "--most 1": {"most": 1},
    "--most 20": {"most": 20},
    "--deep": {"deep": True},
    "--no-shown": {"shown": False},
    "--names c --names d": {"names": ["c", "d"]},
    "--side 0": {"side": 0.0},
    "-s 2.5": {"side": 2.5},
    "--colour blue": {"colour": "blue"},
    "--size 0x5": {"size": (0, 5)},
    "--line-key k": {"line_key": "k"},
    "--min-side 3": {"min_side": 3},
    "--max-side 0": {"max_side": 0},
    "--extra 0": {"extra": 0},
}


@pytest.mark.parametrize("line", LINES)
def test_words_of_a_line_are_the_values_of_the_records(line):
    result = CliRunner().invoke(app, ["a", *line.split()])
    assert result.exit_code == 0, result.output
    given = LINES[line]
    expected = {
        "source": "a",
        "drawing": Drawing(**{name: value for name, value in given.items() if hasattr(Drawing, name)}),
        "rules": Rules(**{name: value for name, value in given.items() if name in Rules.model_fields}),
        "extra": given.get("extra", 5),
    }
    assert made == expected


@pytest.mark.parametrize(
    "line",
    [
        *("--order x", "--most 0", "--most 21", "--no-deep", "--colour green", "--size x", "--min-side -1", "--side a"),
        *("--lead", "--extra 0.5"),
    ],
)
def test_word_that_no_field_takes_is_refused_by_its_option(line):
    result = CliRunner().invoke(app, ["a", *line.split()])
    assert result.exit_code == 2 and line.split()[0] in result.output


def test_help_shows_the_defaults_that_say_something():
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).output.split())
    defaults = {
        word for word in ("size", "10", "red", "0", "9", "5", "False", "shown", "None") if f"[default: {word}" in text
    }
    assert defaults == {"size", "10", "red", "0", "9", "5", "shown"}
    assert "Order of the boxes." in text and "1<=x<=20" in text and "x>=0" in text and "--max-side N" in text


def test_fault_between_fields_names_the_option_of_the_first():
    with pytest.raises(InputError, match=r"^--most: expected a number of at least 1 and at most 20, found 0"):
        options_of(Drawing, "most").made({"most": 0})
    with pytest.raises(InputError, match=r"^--min-side: .*greater than or equal to 0"):
        options_of(Rules, "min_side").made({"min_side": -1})
    with pytest.raises(InputError, match="largest below least"):
        options_of(Rules, "min_side", "max_side").made({"min_side": 5, "max_side": 4})
    values = {"most": None, "order": "given", "other": 3}
    assert options_of(Drawing, "most", "order").made(values) == Drawing("given") and values == {"other": 3}
