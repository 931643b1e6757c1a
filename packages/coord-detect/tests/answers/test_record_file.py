"""A file of records while it is filled: a process that is ended loses none, and a changed image is answered anew."""

import json
import os
import signal

import pytest
from fakes import RuleEngine, detector, lines

from coord_detect.answers.records import answer_into, file_stamp
from coord_detect.answers.resumable_file import RecordFile, begin, discard


class EndingEngine(RuleEngine):
    """Ends its process by its id, in place of the third answer."""

    def answer(self, images):
        if len(self.batches) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().answer(images)


def test_records_are_in_the_file_before_the_next_is_made(tmp_path, sources):
    file = RecordFile(tmp_path / "predictions.jsonl")
    if not (child := os.fork()):
        try:
            answer_into(file, detector(EndingEngine()), sources.images, batch=1)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL and len(lines(tmp_path)) == 2
    engine = RuleEngine()
    records, new = answer_into(file, detector(engine), sources.images, batch=1)
    assert (len(records), new, len(engine.batches)) == (4, 2, 2)


@pytest.mark.parametrize("fact", ["bytes", "mtime_ns"])
def test_every_fact_of_an_image_alone_makes_its_answer_stale(tmp_path, sources, fact):
    path = tmp_path / "predictions.jsonl"
    answer_into(RecordFile(path), detector(), sources.images, batch=2)
    changed = sources.images[-1]
    before = changed.path.stat()
    if fact == "bytes":
        changed.path.write_bytes(changed.path.read_bytes() + b" ")
    os.utime(changed.path, ns=(before.st_atime_ns, before.st_mtime_ns + (fact == "mtime_ns")))
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    (recorded,) = (record["file"] for record in lines(tmp_path) if record["image"] == changed.name)
    assert [name for name, value in stamps[changed.name].items() if recorded[name] != value] == [fact]
    engine = RuleEngine()
    _, new = answer_into(RecordFile(path, stamps=stamps), detector(engine), sources.images, batch=2)
    assert new == len(engine.batches) == 1


def test_answer_to_the_present_file_counts_before_a_later_one_to_an_earlier_file(tmp_path):
    """As two calls of `predict` may leave them, of which one was begun before the image changed."""
    stamp, other = {"bytes": 1, "mtime_ns": 1}, {"bytes": 1, "mtime_ns": 2}
    rows = [("present", stamp), ("earlier", other)]
    path = tmp_path / "predictions.jsonl"
    file = RecordFile(path, stamps={"a": stamp})
    file.write([{"image": "a", "text": text, "file": found} for text, found in rows])
    assert file.latest()["a"]["text"] == "present"
    failed = {"image": "a", "finish_reason": "error", "file": stamp}
    file.write([{"image": "a", "text": "stale", "file": other}, failed])
    assert file.latest()["a"]["finish_reason"] == "error"


def records(text="x", stop_after=None):
    """Work that makes a record for each place, one by one."""

    def work(places):
        for count, place in enumerate(places):
            if count == stop_after:
                raise KeyboardInterrupt
            yield [{"n": place, "text": text}]

    return work


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
    assert not part.read_text()
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
