"""Instance files: every fault listed by line and field, nothing half-written."""

import errno
import json
import os
import subprocess
import sys
import threading

import pytest

from coord_codec import Instance, Problem, read_instances, write_instances

BOX = [0.1, 1 / 3, 2 / 3, 1.0]
GOOD = {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": BOX}]}


def write_lines(path, *lines):
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines) + b"\n")
    return path


def test_round_trip_keeps_every_key_and_value(tmp_path):
    records = [
        {"image": "Übung/猫.jpg", "width": 640, "height": 480, "image_id": 42, "objects": [],
         "source": {"url": None}},
        {"image": "b.jpg", "objects": [{"desc": "a \"b\"\n\u2028", "bbox": BOX, "id": 7, "_x": 1}]},
        {"image": "c.jpg", "image_id": None, "objects": []},
    ]  # fmt: skip
    path = tmp_path / "instances.jsonl"
    write_instances(path, (Instance(**r) for r in records))
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == records
    found = read_instances(path)
    assert found.instances == tuple(Instance(**r) for r in records)
    assert found.problems == () and found.skipped == 0
    assert list(tmp_path.iterdir()) == [path]


def test_token_boxes_are_written_as_numbers(tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl",
        {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [f"<|coord_{k}|>" for k in (1, 2, 3, 4)]}]},
        {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [1, 2, 3, 4]}], "coord_space": "bins"},
    )
    write_instances(tmp_path / "out.jsonl", read_instances(path, strict=True).instances)
    again = read_instances(tmp_path / "out.jsonl", strict=True).instances
    assert [i.objects[0].bbox for i in again] == [(0.001, 0.002, 0.003, 0.004)] * 2


def test_every_fault_of_every_line_is_listed(tmp_path):
    path = write_lines(
        tmp_path / "bad.jsonl",
        GOOD,
        b"",
        b'{"image": "a.jpg", ',
        [1, 2],
        {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": BOX}, {"desc": "", "bbox": [0, 0, 2, 1]}]},
        b'{"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [0, 0, NaN, 1]}]}',
        b'{"image": "\xff.jpg", "objects": []}',
        {"objects": [], "width": "640"},
        b"[" * 100_000,
        b'{"image": "a.jpg", "objects": [], "image_id": ' + b"9" * 5000 + b"}",
        GOOD,
    )
    found = read_instances(path)
    assert found.instances == (Instance(**GOOD),) * 2
    assert found.skipped == 8
    assert [(p.where, p.field) for p in found.problems] == [
        (f"{path}:3", ""),
        (f"{path}:4", ""),
        (f"{path}:5", "objects[1].desc"),
        (f"{path}:5", "objects[1].bbox"),
        (f"{path}:6", "objects[0].bbox"),
        (f"{path}:7", ""),
        (f"{path}:8", "image"),
        (f"{path}:8", "width"),
        (f"{path}:9", ""),
        (f"{path}:10", ""),
    ]
    messages = [p.message for p in found.problems]
    for message, word in zip(
        messages,
        ["not JSON", "found list", "empty", "outside [0, 1]", "nan", "UTF-8", "found none", "'640'", "", ""],
        strict=True,
    ):
        assert word in message and "pydantic" not in message and "Value error" not in message
    assert str(Problem("f:1", "a.b", "wrong")) == "f:1: a.b: wrong" and str(Problem("f:1", "", "wrong")) == "f:1: wrong"


def test_strict_raises_one_error_that_lists_the_first_few(tmp_path):
    bad = {"image": "a.jpg", "objects": [{"desc": "cat", "bbox": [0, 0, 2, 1]}]}
    path = write_lines(tmp_path / "bad.jsonl", GOOD, *[bad] * 7)
    with pytest.raises(ValueError) as caught:
        read_instances(path, strict=True)
    message = str(caught.value)
    assert message.startswith(f"7 invalid lines in {path}:\n{path}:2: objects[0].bbox: coordinate 2 is outside [0, 1]")
    assert message.endswith("and 2 more") and message.count("\n") == 6
    assert read_instances(write_lines(tmp_path / "good.jsonl", GOOD), strict=True).problems == ()


def test_edges_of_a_file(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"")
    assert read_instances(path).instances == ()
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n" + json.dumps(GOOD).encode())
    assert len(read_instances(str(path), strict=True).instances) == 2
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        read_instances(tmp_path / "none.jsonl")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "instances.jsonl"
    write_instances(path, [Instance(**GOOD)])
    before = path.read_bytes()

    def breaks_off():
        yield Instance(image="new.jpg", objects=[])
        raise RuntimeError("source ended")

    with pytest.raises(RuntimeError, match="source ended"):
        write_instances(path, breaks_off())
    with pytest.raises(ValueError):  # an extra value that has no JSON form
        write_instances(path, [Instance(**GOOD, extra=object())])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        write_instances(tmp_path / "no folder" / "x.jsonl", [Instance(**GOOD)])


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    write_instances(tmp_path / "link.jsonl", [Instance(**GOOD)])
    assert (tmp_path / "link.jsonl").is_symlink() and len(read_instances(tmp_path / "real.jsonl").instances) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_or_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write_instances(pipe, [Instance(**GOOD)])
    reader.join(timeout=30)
    assert pipe.is_fifo() and [json.loads(text) for text in received] == [GOOD]


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_the_old_file_and_nothing_else(tmp_path):
    """The operating system refuses more than a few kilobytes a file, in a process of its own."""
    pytest.importorskip("resource", reason="file size limits")
    path = tmp_path / "instances.jsonl"
    write_instances(path, [Instance(**GOOD)])
    before = path.read_bytes()
    code = """
import resource, sys
from coord_codec import Instance, write_instances
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_instances(sys.argv[1], [Instance(image="a.jpg", objects=[])] * 10_000)
except OSError as error:
    print("refused", error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", str(errno.EFBIG)]
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_usual_permissions(tmp_path):
    write_instances(tmp_path / "a.jsonl", [])
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a.jsonl").stat().st_mode == (tmp_path / "b").stat().st_mode
