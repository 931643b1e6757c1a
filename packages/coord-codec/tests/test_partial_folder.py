"""Folders in which an output is written: what a killed process left is removed, and nothing else."""

import shutil

import pytest

from coord_codec.commands.partial_folder import clear_leftovers, partial_folder


@pytest.mark.parametrize("name", ["out", "a.b (c)", "n" * 64, "n" * 65, "n" * 200])
def test_leftovers_of_an_output_are_removed_whatever_its_name_is_long(tmp_path, name):
    out, other = tmp_path / name, tmp_path / f"x{name}"
    with partial_folder(out) as partial, partial_folder(other) as of_other:
        (partial / "file").write_text("half")
        left = partial.with_name(partial.name.replace("-", "-").replace(partial.name[-12:-4], "0123abcd"))
        shutil.copytree(partial, left)
        shutil.copytree(of_other, of_other.with_name(of_other.name.replace(of_other.name[-12:-4], "0123abcd")))
        assert clear_leftovers(out) == [left]  # not the one that is being written, nor those of another output
        assert not left.exists() and partial.is_dir()
        assert len(list(tmp_path.iterdir())) == 3
    assert not partial.exists() and clear_leftovers(out) == []
