"""A command line that is called in process."""

import pytest


def caller(main, program, monkeypatch, capsys, folder):
    """Return a function that calls `main` in a folder with some words: exit code, stderr, stdout."""
    monkeypatch.chdir(folder)

    def call(*words):
        monkeypatch.setattr("sys.argv", [program, *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        told = capsys.readouterr()
        return stopped.value.code, told.err, told.out

    return call
