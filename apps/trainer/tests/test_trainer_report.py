"""What the report says of the run itself."""

import json

import pytest

from coord_trainer.report_sections import run_sections

MANIFEST = {
    "seed": 7,
    "steps": 1200,
    "training_seconds": 495.7,
    "parameters": {"all": 1_697_904, "trained": 443_328, "offsets": 96_192},
    "data": {"train": {"images": 6000, "digest": "2428e94421146a47"}},
    "fingerprint": "4f37923a8bce8e0a",
    "git": {"revision": "451463c589fc3c0776684e5ab5e4782b0ba4d36e", "changed": True},
    "versions": {"torch": "2.15.0"},
}


def run_section(folder, manifest):
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (section,) = run_sections(folder)
    assert section.title == "Run"
    return section.html


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        (96_192, "443,328 of 1,697,904 (26.1%), 96,192 of them coordinate offsets<"),
        (0, "443,328 of 1,697,904 (26.1%)<"),
    ],
)
def test_the_report_says_how_many_parameters_learnt(tmp_path, offsets, told):
    html = run_section(tmp_path, MANIFEST | {"parameters": MANIFEST["parameters"] | {"offsets": offsets}})
    assert told in html
    for fact in ("1,200 in 496 s", "6,000, digest 2428e94421146a47", "4f37923a8bce8e0a", "torch 2.15.0"):
        assert fact in html
    assert "451463c589fc with changes" in html


def test_a_run_that_tells_little_has_a_report_all_the_same(tmp_path):
    assert run_sections(tmp_path) == []
    html = run_section(tmp_path, {"seed": 0, "git": None, "versions": {}})
    assert "parameters" not in html and "revision" not in html
