"""A file of records: resumed, torn, on a full disk, under other settings, about files of any name."""

import json
import resource

import pytest

from coord_codec import RunError
from coord_detect.answers.resumable_file import RecordFile, begin, discard
from coord_trainer.folder import explain_full_disk


def records_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def records(text="x", stop_after=None):
    """Work that makes a record for each place, one by one."""

    def work(places):
        for count, place in enumerate(places):
            if count == stop_after:
                raise KeyboardInterrupt
            yield [{"n": place, "text": text}]

    return work


def test_full_disk_leaves_the_records_before_it(tmp_path):
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    file = RecordFile(tmp_path / "predictions.jsonl", "n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(RunError, match="no space left"), explain_full_disk(tmp_path):
            file.fill(range(200), records("x" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.cut_torn_lines() == 1
    found, new = file.fill(range(200), records("y"))
    assert [record["n"] for record in found] == list(range(200)) and found[0]["text"] == "x" * 1000
    assert new == sum(record["text"] == "y" for record in found)


def test_part_goes_on_where_it_stopped_unless_the_records_would_be_others(tmp_path):
    path = tmp_path / "predictions.jsonl"
    part = tmp_path / "predictions.jsonl.part"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match="1 image was answered"):
            begin(path, {"model": "a"}, "n").fill(range(3), records(stop_after=1))
    with part.open("a") as file:
        file.write('{"n": 2, "te')  # torn
    found, new = begin(path, {"model": "a"}, "n").fill(range(3), records("y"))
    assert ([record["text"] for record in found], new) == (["x", "x", "y"], 1)
    file = begin(path, {"model": "b"}, "n")
    assert not records_of(part)
    assert file.fill(range(3), records())[1] == 3
    discard(file)
    assert not list(tmp_path.iterdir())


def test_newer_of_two_answers_counts_and_a_failure_after_an_answer_does_not(tmp_path):
    path, older = tmp_path / "predictions.jsonl", tmp_path / "earlier.jsonl"
    failure = {"n": 1, "finish_reason": "error"}
    older.write_text(json.dumps({"n": 1, "text": "oldest"}) + "\n" + json.dumps({"n": 2, "text": "kept"}) + "\n")
    rows = [{"n": 1, "text": "old"}, {"n": 1, "text": "new"}, failure]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    latest = RecordFile(path, "n", older=older).latest()
    assert {n: record["text"] for n, record in latest.items()} == {1: "new", 2: "kept"}
