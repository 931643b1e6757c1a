"""The command line as a user calls it: exit codes, messages, progress, and what is imported."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from export_tiny import make_adapter

from coord_exporter.cli import main
from coord_exporter.progress import Progress

APP = Path(__file__).parents[1]


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


def test_merge_and_its_messages(bases, tmp_path, capsys):
    make_adapter(tmp_path / "adapter", bases(True), "separate")
    code, out, err = call(capsys, "merge", bases(True), tmp_path / "adapter", tmp_path / "out")
    assert code == 0
    assert re.search(
        r"verified: largest logit difference 0\.\d+ \(tolerance 0\.\d+\), \d+ of 64 greedy tokens equal", out
    )
    assert "16 of 52 tensors changed" in out and "warning: embedding and head come out different" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["merge"],
        ["merge", "base", "adapter", "out", "--colour"],
        ["merge", "no-such", "adapter", "out"],
        ["merge", "no-such", "adapter", "out", "--max-shard-size", "big"],
        ["expand-vocab", "no-such", "out"],
        ["expand-vocab", "no-such", "out", "--init", "zeros"],
    ],
)
def test_bad_usage_is_exit_code_2(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *arguments)
    assert code == 2 and err and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_failed_export_is_exit_code_1(capsys, bases, tmp_path, monkeypatch):
    make_adapter(tmp_path / "adapter", bases(True))
    monkeypatch.setattr(os, "pwrite", lambda *a: (_ for _ in ()).throw(OSError(28, "full")))
    code, _, err = call(capsys, "merge", bases(True), tmp_path / "adapter", tmp_path / "out", "--quiet")
    assert code == 1 and err.startswith("error: OUT") and "the disk is full" in err


def test_app_folder_runs_and_merging_builds_no_model(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(False), "tied")
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['exporter', 'merge', {str(bases(False))!r}, {str(tmp_path / 'adapter')!r}, "
        f"{str(tmp_path / 'out')!r}, '--no-verify']\n"
        "try:\n"
        f"    runpy.run_path({str(APP)!r}, run_name='__main__')\n"
        "finally:\n"
        "    heavy = {'transformers', 'peft', 'safetensors', 'coord_adapter', 'torchvision', 'pandas'}\n"
        "    print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout and (tmp_path / "out" / "config.json").exists()


def test_help_needs_no_torch():
    script = "import sys, coord_exporter.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_progress_tells_bytes_and_time_left():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = Progress(4_000_000_000, "writing", stream)
    progress(1_000_000_000)
    assert "writing 1.00 of 4.00 GB (25%), 0:00 left" in stream.getvalue()
    assert "(25%), 0:30 left" in progress.line(progress._started + 10)
    progress(3_000_000_000)
    progress.finish()
    assert stream.getvalue().endswith("(100%), 0:00 left\n")


def test_progress_in_a_log_is_a_line_now_and_then():
    stream = io.StringIO()
    progress = Progress(100, "writing", stream)
    for _ in range(100):
        progress(1)
    progress.finish()
    assert stream.getvalue() == ""
