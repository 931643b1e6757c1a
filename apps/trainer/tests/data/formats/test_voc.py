"""Pascal VOC: which image a file describes, which files are read, and where corners count from."""

from pathlib import Path

import pytest
from PIL import Image

from coord_trainer.data.formats.registry import read_source

BOX = ("21", "11", "100", "50")
READ = (0.1, 0.1, 0.5, 0.5)


def voc(filename, box=BOX, folder="", shape="", extra=""):
    sides = "".join(f"<{side}>{v}</{side}>" for side, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return (
        f"<annotation><folder>{folder}</folder><filename>{filename}</filename>"
        "<size><width>200</width><height>100</height></size>"
        f"<object><name>cat</name>{shape or f'<bndbox>{sides}</bndbox>'}{extra}</object></annotation>"
    )


def write(place: Path, images, annotations, under="Annotations"):
    for name in images:
        (place / "JPEGImages" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 100)).save(place / "JPEGImages" / name)
    for name, text in annotations.items():
        (place / under / name).parent.mkdir(parents=True, exist_ok=True)
        (place / under / name).write_text(text)
    return place


@pytest.mark.parametrize(
    ("images", "annotations", "wanted"),
    [
        (
            ["cam1/0.jpg", "cam2/0.jpg"],
            {"1.xml": voc("0.jpg", folder="cam1"), "2.xml": voc("0.jpg", folder="cam2")},
            ["cam1/0.jpg", "cam2/0.jpg"],
        ),
        (["cam1/1.jpg", "cam2/0.jpg"], {"1.xml": voc("0.jpg", folder="cam1")}, []),
        (["0.jpg"], {"1.xml": voc("0.jpg", folder="VOC2012")}, ["0.jpg"]),
        (["1.jpg"], {"1.xml": voc("/home/me/0.jpg")}, ["1.jpg"]),
        (["sub/1.jpg"], {"1.xml": voc("")}, ["sub/1.jpg"]),
    ],
)
def test_voc_folder_is_part_of_the_name_of_the_image(tmp_path, images, annotations, wanted):
    found = read_source(write(tmp_path, images, annotations)).annotations
    assert [i.image for i in found.instances] == wanted
