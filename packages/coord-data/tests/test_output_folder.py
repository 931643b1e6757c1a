"""What two calls at once write to one place: the first one's, whole, and the second says so."""

import pytest

from coord_codec import RunError
from coord_data.preparing.output_folder import output_folder


@pytest.mark.parametrize("single", [False, True])
def test_second_of_two_calls_replaces_nothing_and_says_why(tmp_path, single):
    out = tmp_path / ("a.jsonl" if single else "out")
    with pytest.raises(RunError, match="in the meantime"), output_folder(out, single) as second:
        (second / "a.jsonl").write_text("second")
        with output_folder(out, single) as first:
            (first / "a.jsonl").write_text("first")
    assert (out if single else out / "a.jsonl").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
