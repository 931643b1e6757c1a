"""A file of records on a full disk."""

import resource

import pytest

from coord_codec import RunError
from coord_detect.answers.resumable_file import RecordFile
from coord_trainer.folder import explain_full_disk


def test_full_disk_leaves_the_records_before_it(tmp_path):
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    file = RecordFile(tmp_path / "predictions.jsonl", "n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(RunError, match="no space left"), explain_full_disk(tmp_path):
            file.fill(range(200), lambda places: ([{"n": place, "text": "x" * 1000}] for place in places))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.cut_torn_lines() == 1
    found, new = file.fill(range(200), lambda places: ([{"n": place, "text": "y"}] for place in places))
    assert [record["n"] for record in found] == list(range(200)) and found[0]["text"] == "x" * 1000
    assert new == sum(record["text"] == "y" for record in found)
