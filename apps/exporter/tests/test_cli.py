"""The command line as a user calls it: exit codes, messages, and what is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_checkpoint import make_adapter

from coord_exporter import InputError, cli
from coord_exporter.cli import main, parse_size

APP = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "peft", "torchvision", "pandas", "coord_trainer"}


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return stopped.value.code, shown.out, shown.err


@pytest.mark.slow
def test_merge_tells_what_it_did(bases, tmp_path, capsys):
    make_adapter(tmp_path / "adapter", bases(True), "separate")
    code, out, err = call(capsys, "merge", bases(True), tmp_path / "adapter", tmp_path / "out")
    assert code == 0
    assert "verified: 16 changed tensors equal PEFT's" in out
    assert "16 of 52 tensors changed" in out and "warning: embedding and head differ after merging" in err


BAD = [
    ["merge"],
    ["merge", "base", "adapter", "out", "--colour"],
    ["merge", "no-such", "adapter", "out"],
    ["merge", "no-such", "adapter", "out", "--max-shard-size", "big"],
    ["merge", "base", "adapter", "out", "--push", "me/model"],
    ["expand-vocab", "no-such", "out"],
    ["expand-vocab", "no-such", "out", "--init", "zeros"],
]
EACH = f"""
import contextlib, io, json, runpy, sys
for words in json.loads(sys.argv[1]):
    sys.argv, out, err = ["exporter", *words], io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_path({str(APP)!r}, run_name="__main__")
    except SystemExit as end:
        heavy = sorted({HEAVY} & set(sys.modules))
        print(json.dumps([end.code, out.getvalue(), err.getvalue(), heavy]))
"""


@pytest.mark.slow
def test_bad_usage_is_exit_code_2_and_help_has_examples_and_neither_needs_torch(tmp_path):
    helped = [[], ["merge"], ["expand-vocab"]]
    words = json.dumps([*BAD, *([*command, "--help"] for command in helped)])
    command = [sys.executable, "-c", EACH, words]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.splitlines()
    told = [json.loads(line) for line in lines]
    for (code, _, err, heavy), arguments in zip(told[: len(BAD)], BAD, strict=True):
        assert (code, heavy) == (2, []) and err and "Traceback" not in err, arguments
    for (code, out, _, heavy), command in zip(told[len(BAD) :], helped, strict=True):
        assert (code, heavy) == (0, []) and "Exit codes: 0 if" in out
        assert f"Usage: uv run apps/exporter {' '.join(command)}" in out
        assert not command or f"uv run apps/exporter {command[0]} " in out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_failed_export_is_exit_code_1(capsys, bases, tmp_path, monkeypatch):
    make_adapter(tmp_path / "adapter", bases(True))
    capsys.readouterr()  # transformers shows how it loads the base
    monkeypatch.setattr(os, "pwrite", lambda *a: (_ for _ in ()).throw(OSError(28, "full")))
    code, _, err = call(capsys, "merge", bases(True), tmp_path / "adapter", tmp_path / "out", "--quiet")
    assert code == 1 and err.startswith("error: OUT") and "the disk is full" in err


def test_options_of_expand_vocab_act(capsys, monkeypatch):
    given = []
    report = SimpleNamespace(warnings=(), summary=lambda: "done")
    monkeypatch.setattr(cli, "expand_vocab", lambda *words, **named: given.append((words, named)) or report)
    call(capsys, "expand-vocab", "base", "out")
    words = "--no-wildcard --markers --init smooth --seed 7 --force --max-shard-size 1KB --form 4 --quiet"
    call(capsys, "expand-vocab", "base", "out", *words.split())
    (plain, named), (_, asked) = given
    assert plain[0] == "base" and str(plain[1]) == "out"
    assert named == {"wildcard": True, "markers": False, "init": "mean", "seed": 0, "force": False, "quiet": False} | {
        "max_shard_size": parse_size(None),
        "form": None,
    }
    assert asked == {"wildcard": False, "markers": True, "init": "smooth", "seed": 7, "force": True, "quiet": True} | {
        "max_shard_size": 1000,
        "form": asked["form"],
    }
    assert asked["form"] is not None


KEPT = {"force": False, "max_shard_size": None, "verify": None, "quiet": False}
KEPT |= {"dtype": None, "keep_lora": None, "form": None}
GIVEN = "--force --max-shard-size 2KB --quiet --dtype float16 --form 4"
GIVEN_VALUES = {"force": True, "max_shard_size": 2000, "quiet": True, "dtype": "float16", "form": 4}


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("merge", "", KEPT),
        ("merge", f"{GIVEN} --verify", KEPT | GIVEN_VALUES | {"verify": True}),
        (
            "merge",
            f"{GIVEN} --no-verify --keep-lora l",
            KEPT | GIVEN_VALUES | {"verify": False, "keep_lora": Path("l")},
        ),
        ("merge", "--keep-lora l", KEPT | {"keep_lora": Path("l")}),
        ("merge", "--verify --keep-lora l", None),
        ("to-peft", "", {"force": False, "verify": True}),
        ("to-peft", "--force --no-verify", {"force": True, "verify": False}),
        ("from-peft", "", {"force": False}),
        ("from-peft", "--force", {"force": True}),
    ],
)
def test_options_act_and_warnings_are_told_beside_the_result(capsys, monkeypatch, command, words, expected):
    given = []
    report = SimpleNamespace(warnings=("one", "two"), verification=None, changed=1, tensors=1, rows=1, tables=2)
    function = command.replace("-", "_")
    monkeypatch.setattr(cli, function, lambda *words, **named: given.append((words, named)) or report)
    code, out, err = call(capsys, command, "base", "adapter", "out", *words.split())
    if expected is None:
        assert (code, given) == (2, []) and "--verify" in err
        return
    assert code == 0 and given == [(("base", "adapter", Path("out")), expected)]
    assert err == "warning: one\nwarning: two\n" and out.startswith("out: ") and out.count("\n") == 1


@pytest.mark.parametrize("seed", ["-1", str(2**64), "x"])
def test_expand_vocab_refuses_a_seed_that_is_none(capsys, seed):
    code, _, err = call(capsys, "expand-vocab", "base", "out", "--seed", seed)
    assert code == 2 and "'--seed'" in err


@pytest.mark.slow
def test_merge_builds_no_model(bases, adapters, tmp_path):
    words = ["merge", str(bases(False)), str(adapters / "dora"), "out", "--no-verify"]
    command = [sys.executable, "-c", EACH, json.dumps([words])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    code, _, err, heavy = json.loads(done.stdout)
    assert (code, heavy) == (0, ["torch"]), err
    assert (tmp_path / "out" / "config.json").exists()


@pytest.mark.slow
def test_script_of_the_specification_is_the_merge(bases, tmp_path):
    """By relative names, from any folder: it finds the base, and no adapter."""
    (tmp_path / "base").symlink_to(bases(False))
    command = [APP.parents[1] / "scripts" / "merge_coord.sh", "base", "adapter", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "error: adapter: expected an adapter folder, found nothing" in done.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5GB", 5 * 10**9),
        (" 1.5 mib ", 3 << 19),
        ("2KB", 2000),
        ("1KiB", 1024),
        ("3MB", 3 * 10**6),
        ("1TB", 10**12),
        ("1B", None),
        ("0GB", None),
        (None, None),
    ],
)
def test_parse_size(text, size):
    if size is None and text is not None:
        with pytest.raises(InputError, match="--max-shard-size: expected a size such as 5GB"):
            parse_size(text)
    else:
        assert parse_size(text) == size
