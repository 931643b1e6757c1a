"""What the tests of coord-data share: `helpers/` on the path, a folder with an image, a clean set, and the command."""

import sys
from pathlib import Path

import pytest
from PIL import Image

from coord_data import cli

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


@pytest.fixture
def place(tmp_path):
    """A folder with `images/a.png` of 64 x 48 pixels."""
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "images" / "a.png")
    return tmp_path


@pytest.fixture(scope="session")
def clean():
    """Forty generated images without a fault: nothing may change them."""
    from planted import shapes

    return shapes(40)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call `coord-data` in process, in the folder of the test: exit code, stderr, stdout."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["coord-data", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.err, captured.out

    return call


@pytest.fixture
def prepared(run):
    """Call `coord-data prepare`: exit code, and all that is said."""

    def call(*words):
        code, err, out = run("prepare", *words)
        return code, err + out

    return call
