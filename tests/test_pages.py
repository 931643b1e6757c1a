"""The pages: true to the tree, and every command in them starts as written."""

import importlib
import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "RESULTS.md",
    *sorted(ROOT.glob("packages/*/README.md")),
    *sorted(ROOT.glob("apps/*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [*ROOT.glob("packages/*/src"), *ROOT.glob("apps/*/src")]


def commands(page):
    """The command lines of a page's bash blocks that start a program or a script of ours, without what precedes it."""
    for block in re.findall(r"^```bash[^\n]*\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and "=" in words[0]:  # a variable of the environment
                words.pop(0)
            started = words[2:] if words[:2] == ["uv", "run"] else words[:1] == ["coord-eval"] and words
            while started and started[0] in ("--extra", "--with"):
                started = started[2:]
            if started and started[0] == "torchrun":
                started = started[started.index("apps/trainer") :]
            if started:
                yield started


WRITTEN = {name for page in PAGES for name in re.findall(r'^```python title="([^"]+)"', page.read_text(), re.MULTILINE)}
"""Files that a page lets its reader write."""

COMMANDS = sorted({tuple(words) for page in PAGES for words in commands(page)})


def parse(app, words):
    """Let typer parse a command line without carrying it out."""
    import click
    import typer

    group = typer.main.get_command(app)
    context = group.make_context("app", list(words), resilient_parsing=False)
    if isinstance(group, click.Group):
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        command.make_context(name, rest, parent=context)


@cache
def help_of(script, *command):
    """Return the help of a script or a command of it, in this process: importing torch takes longer than all else."""
    path, words = list(sys.path), sys.argv
    sys.path.insert(0, str((ROOT / script).parent))
    sys.argv = [script, *command, "--help"]
    try:
        with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    finally:
        sys.path[:], sys.argv = path, words
    assert not ended.value.code
    return printed.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words)[:90] for words in COMMANDS])
def test_command_of_a_page_starts_as_written(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    if words[0] in ("apps/trainer", "apps/exporter", "coord-eval", "coord-detect"):
        from coord_detect.cli.main import app as detection
        from coord_eval.cli import app as evaluation
        from coord_exporter.cli import app as exporter
        from coord_trainer.cli import app as trainer

        apps = {"apps/trainer": trainer, "apps/exporter": exporter}
        parse((apps | {"coord-eval": evaluation, "coord-detect": detection})[words[0]], words[1:])
        if words[0] == "apps/trainer":
            from coord_trainer.config.reference import config_keys
            from coord_trainer.config.swift_arguments import argument_table

            settings = {word.partition("=")[0] for word in words if re.fullmatch(r"[a-z_]+\.[\w.]+=.*", word)}
            taken = {f"training.{name}" for name in argument_table()}
            assert settings <= taken | {key.name for key in config_keys()}
    elif words[0] == "python" and words[1] not in WRITTEN:
        options = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        text = help_of(words[1])
        if words[2:] and words[2].isidentifier() and f"│ {words[2]} " in text:
            text = help_of(*words[1:3])
        assert options <= set(re.findall(r"--[\w-]+", text))
    else:
        assert words[0] in ("python", "pytest", "mkdocs"), words


def test_files_that_the_architecture_names_are_there():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    facts = re.findall(r"`(coord_\w+/[\w/.]*)`", text)
    assert facts
    for name in facts:
        assert any((source / name).exists() for source in SOURCES), name
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for source in SOURCES
        for path in source.rglob("*.py")
    }
    for dotted in re.findall(r"`(coord_\w+(?:\.\w+)+)`", text):
        module = max((m for m in modules if f"{dotted}.".startswith(f"{m}.")), key=len)
        value = importlib.import_module(module)
        for name in dotted.removeprefix(module).split(".")[1:]:
            value = getattr(value, name)


def test_links_of_pages_outside_the_documentation_lead_somewhere():
    """mkdocs checks those inside."""
    for page in (page for page in PAGES if "docs" not in page.relative_to(ROOT).parts):
        for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"
