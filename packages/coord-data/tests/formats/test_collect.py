"""What is common to all formats that are read into records."""

import pytest
from PIL import Image

from coord_data.reading.read import read_source


@pytest.mark.parametrize("box", ["10,10,10.01,10.01", "90,90,20,20", "10,10,900,90"])
def test_refused_object_is_not_taken_for_absent(tmp_path, box):
    """Else a query for it would teach that it is not there: too small to say, swapped, outside of the image."""
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(f"image,xmin,ymin,xmax,ymax,label\na.png,0,0,50,50,cat\na.png,{box},dog\n")
    (instance,) = read_source(tmp_path / "t.csv", None, "csv", on_bad_box="drop_box").annotations.instances
    assert [o.desc for o in instance.objects] == ["cat"] and instance.uncertain == ["dog"]
