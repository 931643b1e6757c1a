"""How images are looked at reaches the workers, and parts are kept until all sets of images are done."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coord_data.looking import engines, parts, processes
from coord_data.looking.engines import Execution, executed, execution, run_jobs
from coord_data.looking.image_paths import ImageIndex, find_root, found_here, image_files, in_any_case, split_of
from coord_data.looking.parts import look_at_set


@pytest.mark.parametrize("fails", [(False, False), (True, False), (False, True), ()])
def test_parts_are_removed_once_all_sets_are_done_and_each_set_has_its_own(tmp_path, fails):
    folders = []
    with executed(Execution(2, parts=tmp_path / "kept")):
        for is_failure in fails:
            with contextlib.suppress(KeyError), execution().next_set() as folder:
                folder.mkdir(parents=True)
                folders.append(folder.name)
                if is_failure:
                    raise KeyError
    assert folders == ["set-0", "set-1"][: len(fails)] and (tmp_path / "kept").exists() == any(fails)
    assert execution() == Execution()
    with Execution().next_set() as folder:
        assert folder is None


def test_jobs_get_the_workers_of_the_context(monkeypatch):
    calls = []
    monkeypatch.setattr(engines, "in_processes", lambda work, jobs, **more: calls.append(more) or iter(()))
    for workers in (None, 1, 3):
        with executed(Execution(workers)):
            assert list(run_jobs(str, [1])) == []
    assert calls == [{"workers": None}, {"workers": 1}, {"workers": 3}]


@pytest.mark.parametrize(
    ("beside", "workers", "wanted"),
    [(1, None, 8), (2, None, 4), (3, None, 2), (8, None, None), (9, None, None), (2, 3, 3), (1, 1, None)],
)
def test_processes_share_the_cores_with_those_beside_them(monkeypatch, beside, workers, wanted):
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(range(8)))

    class Asked(Exception):
        pass

    def pool(cores, *_, **__):
        raise Asked(cores)

    monkeypatch.setattr(processes, "ProcessPoolExecutor", pool)
    found = processes.in_processes(str, [1, 2, 3], beside, workers)
    if wanted is None:
        assert list(found) == [(1, "1"), (2, "2"), (3, "3")]
    else:
        with pytest.raises(Asked, match=f"^{wanted}$"):
            list(found)
    assert list(processes.in_processes(str, iter([7]), beside, workers)) == [(7, "7")]


@pytest.mark.slow
def test_every_part_is_looked_at_with_its_thumbnails_and_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART", 3)
    names = [f"{n}.png" for n in range(8)]
    for n, name in enumerate(names):
        Image.new("RGB", (20 + n, 10), (n, n, n)).save(tmp_path / name)
    for kept in ((), (0, 2, 3, 5, 7), range(8), (6,)):
        with executed(Execution(1)):
            found = look_at_set(names, tmp_path, tmp_path, kept)
        assert found.compared == list(kept) and found.sizes[:, 0].tolist() == list(range(20, 28))
        assert all(found.thumbnail(k).size[0] == 20 + k for k in kept)
    (tmp_path / "in").mkdir()
    outside = look_at_set(names, tmp_path, tmp_path / "in")
    assert len(outside.faults) == 8 and all("outside the folder" in fault for fault in outside.faults.values())
    assert len(look_at_set([], tmp_path)) == 0


def test_images_below_a_folder_are_those_of_any_case_that_are_not_hidden(tmp_path):
    for name in ("b.JPG", "a.png", "x/c.webp", ".d.png", ".x/e.png", "f.txt", "x/.y/g.png", "h.tiff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    below = tmp_path / ".x"
    assert [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)] == [
        "a.png",
        "b.JPG",
        "h.tiff",
        "x/c.webp",
    ]
    assert image_files(below) == [below / "e.png"]  # the folder that is named may be hidden itself
    assert (
        sorted(path.name for path in tmp_path.glob(in_any_case("*.jpg"))) == ["b.JPG"]
        and in_any_case("*.t1") == "*.[tT][11]"
    )
    assert find_root(None, tmp_path / "no", tmp_path / "x", tmp_path) == tmp_path / "x"
    assert (
        find_root(None, tmp_path / "no", tmp_path / "a.png") == tmp_path / "a.png"
        and find_root(below, tmp_path) == below
    )
    words = "train Training val VALID validation test testing tests trains".split()
    assert [split_of(word) for word in words] == ["train"] * 2 + ["val"] * 3 + ["test"] * 2 + ["", ""]


@pytest.mark.parametrize(
    ("files", "stated", "found"),
    [
        (["my cat.jpg"], ["my%20cat.jpg"], {"my%20cat.jpg": "my cat.jpg"}),
        (["my cat.jpg"], ["https://x.org/d/my%20cat.jpg?v=1"], {"https://x.org/d/my%20cat.jpg?v=1": "my cat.jpg"}),
        (["a.jpg"], [r"C:\me\a.jpg", "a.jpg"], {}),  # another record names it
        (["a.jpg", "b.jpg"], [r"C:\me\a.jpg", "b.jpg"], {r"C:\me\a.jpg": "a.jpg"}),
        (["a.jpg"], ["/home/me/a.jpg", "/home/you/a.jpg"], {}),
        (["x/a.jpg", "y/a.jpg"], ["/home/x/a.jpg"], {"/home/x/a.jpg": "x/a.jpg"}),
        (["x/a.jpg", "y/a.jpg"], ["/home/a.jpg"], {}),
        (["a%20b.jpg"], ["a%20b.jpg"], {}),
        (["a.png"], ["a.jpg"], {}),
        (["a.jpg"], ["a.JPG"], {"a.JPG": "a.jpg"}),
    ],
)
def test_names_of_another_machine_mean_an_image_that_no_other_record_names(tmp_path, files, stated, found):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {name: image.name for name, image in found_here(stated, tmp_path).items()} == found


@pytest.mark.parametrize(
    ("files", "stated", "fault"),
    [
        (
            ["1/a.jpg", "2/a.jpg", "3/a.jpg", "4/a.jpg", "5/a.jpg"],
            "a.jpg",
            "found 1/a.jpg and 2/a.jpg and 3/a.jpg and 2 more; write",
        ),
        (["1/a.jpg", "2/a.jpg", "3/a.jpg"], "a", "found 1/a.jpg and 2/a.jpg and 3/a.jpg; write"),
        (["1/a.jpg"], "2/a.jpg", "image 2/a.jpg: not found, and 1/a.jpg lies in another folder"),
    ],
)
def test_image_that_may_be_several_is_none(tmp_path, files, stated, fault):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (found,) = ImageIndex(tmp_path).find_all([(stated,)])
    assert fault in found.fault and found.name == stated and Path(stated).name and np.size(found.notes) == 0
