"""What the trainer's tests share: `helpers/` on the path, and one model and one run opened in ms-swift per worker."""

import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parent / "helpers"
PACKAGES = Path(__file__).parents[3] / "packages"
OF_PACKAGES = [str(PACKAGES / name / "tests" / "helpers") for name in ("coord-data", "coord-detect")]
sys.path[:0] = [str(HELPERS), *OF_PACKAGES]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The folder of the tiny Qwen3-VL of `tiny_config()`, with random weights; not to be changed."""
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint

    config, folder = tiny_config(), tmp_path_factory.mktemp("model")
    return Path(base_checkpoint(config, folder, draw_sets(config, folder / "data")[0]))


@pytest.fixture(scope="session")
def opened_run(tmp_path_factory, tiny_model):
    """The tiny Qwen3-VL opened in ms-swift: config, open run, training images, their samples."""
    pytest.importorskip("swift")
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.swift.open_run import open_run, sample_set

    folder = tmp_path_factory.mktemp("opened")
    config = tiny_config()
    train, _ = draw_sets(config, folder / "data")
    opened = open_run(config, folder, str(tiny_model), evaluates=False)
    return config, opened, train, sample_set(config, opened, train)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call the command line in process, in an empty folder: exit code, stderr, stdout."""
    from called import caller

    from coord_trainer import cli

    return caller(cli.main, "coord-trainer", monkeypatch, capsys, tmp_path)
