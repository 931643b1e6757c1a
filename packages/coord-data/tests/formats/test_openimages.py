"""Open Images: tables that are not what they should be are said in one line."""

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.reading.read import read_source

HEAD = "ImageID,LabelName,XMin,XMax,YMin,YMax\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            (HEAD + "1,Kätzchen,0.1,0.5,0.2,0.6\n").encode("latin-1"),
            r"not UTF-8 text .byte 41.; save the file as UTF-8",
        ),
        (b"", "expected a header of Open Images, found one without ImageID, LabelName, XMax"),
    ],
)
def test_openimages_table_that_cannot_be_read_is_an_input_error(tmp_path, content, told):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=told):
        read_source(tmp_path / "t.csv", format="openimages")


def test_openimages_tables_that_are_read_together_are_said(tmp_path):
    for name in ("train", "val"):
        (tmp_path / f"{name}.csv").write_text(HEAD + f"{name},cat,0.1,0.5,0.2,0.6\n")
        Image.new("RGB", (200, 100)).save(tmp_path / f"{name}.jpg")
    (note,) = read_source(tmp_path).notes
    assert "train.csv, val.csv are read together; name one of the files to read it alone" in note
    assert read_source(tmp_path / "val.csv").notes == ()
