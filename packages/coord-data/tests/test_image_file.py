"""Images that cannot be trained on are said, whatever their name."""

from collections import Counter

import pytest

from coord_data.image_file import is_outside, look_at


@pytest.mark.parametrize("name", ["a" * 300 + ".jpg", "b/" + "a" * 300 + ".jpg", "a" * 300 + "/b.jpg", "a\0.jpg"])
def test_look_at_names_an_image_whose_name_no_file_can_have(tmp_path, name):
    problem = look_at(tmp_path, tmp_path, name, (None, None), decode=False, notes=Counter())
    assert problem is not None and problem.field == "image" and not is_outside(tmp_path / name, tmp_path)
