"""What is common to all formats that are read into records."""

from pathlib import Path

import pytest
from PIL import Image

from coord_data.formats.collect import collect
from coord_data.reading.read import read_source
from coord_data.sources.raw import RawImage, RawObject, Reading


@pytest.mark.parametrize("box", ["10,10,10.01,10.01", "90,90,20,20", "10,10,900,90"])
def test_refused_object_is_not_taken_for_absent(tmp_path, box):
    """Else a query for it would teach that it is not there: too small to say, swapped, outside of the image."""
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(f"image,xmin,ymin,xmax,ymax,label\na.png,0,0,50,50,cat\na.png,{box},dog\n")
    (instance,) = read_source(tmp_path / "t.csv", None, "csv", on_bad_box="drop_box").annotations.instances
    assert [o.desc for o in instance.objects] == ["cat"] and instance.uncertain == ["dog"]


@pytest.mark.parametrize(
    "refused",
    [
        RawObject("dog", (10, 10, 900, 90), "b"),
        RawObject("dog", (-1, 10, 50, 10.001), "b", ignored=True),
        RawObject("dog", (-1, 10, 50, 90), "b", fault="unknown class"),
        RawObject("", (-1, 10, 50, 90), "b"),
        RawObject("dog", (-1, 10, 50, 90), "b", outlines=([0, 0, 9, 9],)),
        RawObject("dog", (-1, 10, 50, 90), "b", outlines=([-1, 0, 400, 0, 9, 9], [0, 0, 1, 1, 0, 1])),
    ],
)
def test_refused_object_is_in_no_other_count(refused):
    """Each would be clipped, ignored or noted too."""
    refused = refused._replace(notes=("occluded objects",), as_box=("outlines",))
    own = [RawObject("cat", (-0.5, 0, 50, 50), "a", notes=("occluded objects",))]
    for geometry in ("box", "polygon"):
        images = [RawImage("a.png", "a", objects, (100, 100), notes=("images",)) for objects in (own, [*own, refused])]
        wanted, found = (collect(Reading([i], Path()), "drop_box", {}.get, geometry) for i in images)
        assert len(wanted.notes) == 3 + (geometry == "polygon")
        if found.problems:
            assert found.notes == wanted.notes
        else:
            assert geometry == "box" and refused.outlines
