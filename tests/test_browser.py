"""Pages in an installed Chromium: filters, order, keyboard, copying, no error, no request, three widths, two themes."""

import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from chromium import BROWSER, Chromium
from PIL import Image

from coord_codec import Instance
from coord_codec.pages import safe
from coord_data.cli import app as data_app
from coord_detect.answers.finish import ScoreThreshold
from coord_detect.answers.objects import ImageDetections
from coord_detect.detection.demo import build_demo, launch_demo
from coord_detect.detection.gallery import draw_answers
from coord_detect.detection.session import Answered
from coord_eval import compare, oracle_predictions, parse_answer, score
from coord_eval.labelling import DetectedObject
from coord_eval.review import apply_decisions, review
from coord_trainer.config.run_config import load_run_config

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: apt-get install chromium"),
]
EVIL = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
WIDTHS = (400, 1280, 2000)
PAGES = ("report", "comparison", "inspection", "predict")
CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report, a comparison and an inspection of eight images, in which cats 0 to 2 are called by a malicious name."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    truth = []
    for i in range(8):
        Image.fromarray(rng.integers(0, 255, (60, 80, 3), np.uint8)).save(folder / f"{i}.png")
        cat = {"desc": "cat", "bbox": [0.05 + 0.02 * i, 0.1, 0.5, 0.6]}
        dogs = [{"desc": "dog", "bbox": [0.55, 0.3, 0.9, 0.4 + 0.02 * k]} for k in range(i % 3)]
        truth.append(Instance(image=f"{i}.png", image_id=i, width=80, height=60, objects=[cat, *dogs]))
    first, second = oracle_predictions(truth), oracle_predictions(truth)
    for record in first[:3]:
        record["text"] = record["text"].replace("cat", EVIL)
    first[3]["text"] = ""
    second[4]["text"] = ""
    evaluation = score(truth, first)
    pages = {"report": evaluation.write_report(folder / "report", image_root=folder, title=EVIL)}
    comparison = compare({"base": evaluation, EVIL: score(truth, second)}, resamples=20)
    pages["comparison"] = comparison.write_report(folder / "comparison", image_root=folder)
    lines = [instance.model_dump_json(exclude_none=True) for instance in truth]
    (folder / "a.jsonl").write_text("\n".join(lines).replace("dog", json.dumps(EVIL)[1:-1]) + "\n")
    words = ["inspect", str(folder / "a.jsonl"), "--images", str(folder), "--out", str(folder / "inspected")]
    data_app(words, standalone_mode=False)
    pages["inspection"] = folder / "inspected" / "inspect.html"
    return pages | {"predict": predicted(folder, first)}


def predicted(folder, answers):
    """The page of `predict` for the answers, whose boxes have the names of the answers' objects."""
    records = []
    for i, answer in enumerate(answers):
        objects = [
            {
                "desc": item.desc,
                "bbox_xyxy": [v * side for v, side in zip(item.box, (80, 60) * 2, strict=True)],
                "score": 0.1 * i,
            }
            for item in parse_answer(answer["text"])
        ]
        records.append({**answer, "image": f"{i}.png", "finish_reason": "stop", "objects": objects})
    records.append({"image": EVIL, "finish_reason": "error", "error": EVIL})
    sources = SimpleNamespace(images=[SimpleNamespace(name=f"{i}.png", path=folder / f"{i}.png") for i in range(8)])
    (folder / "found").mkdir()
    return draw_answers(Answered(folder / "found", tuple(records), len(records)), sources)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_every_width_in_both_themes_without_errors_and_requests(browser, pages, name):
    backgrounds = set()
    for width in WIDTHS:
        for dark in (False, True):
            browser.open(pages[name], width=width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.problems == []
            assert browser.requests == [pages[name].resolve().as_uri()]
            backgrounds.add(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    assert browser.run("document.title") != "run"
    assert browser.run("document.querySelectorAll('script').length") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_page_without_script_has_its_text_tables_and_images(browser, pages, name):
    text = pages[name].read_text()
    browser.open(pages[name], script=False)
    browser.send("Emulation.setScriptExecutionDisabled", value=False)  # so that the test can ask
    shown = browser.run("[document.querySelectorAll('svg.overlay image').length, document.body.textContent]")
    assert shown[0] == len(re.findall("<image ", text)) > 0
    assert browser.run("document.querySelectorAll('table td').length") == text.count("<td")
    assert browser.run("getComputedStyle(document.querySelector('form.tools') ?? document.head).display") == "none"
    assert EVIL in shown[1] and safe(EVIL) in text


@pytest.mark.slow
def test_files_of_images_are_linked_relative_to_the_page(browser, pages):
    for name in ("report", "predict"):
        browser.open(pages[name])
        links = browser.run("[...document.querySelectorAll('.shot figcaption a')].map(a => a.getAttribute('href'))")
        assert len(links) == 8 and all((pages[name].parent / link).is_file() for link in links)
        assert not any(link.startswith(("/", "file:")) for link in links)


def names_shown(browser):
    shown = "[...document.querySelectorAll('.shot')].filter(s => !s.hidden)"
    return browser.run(f"{shown}.map(s => parseInt(s.textContent.match(/\\d+(?=\\.png)/)))")


def choose(browser, name, value):
    browser.run(
        f"(() => {{ const f = document.querySelector('form.tools'); f.elements[{json.dumps(name)}].value = "
        f"{json.dumps(value)}; f.dispatchEvent(new Event('input')); }})()"
    )


@pytest.mark.slow
def test_gallery_filters_by_finding_kind_label_and_text_and_sorts(browser, pages):
    browser.open(pages["report"])
    assert sorted(names_shown(browser)) == list(range(8))
    assert set(names_shown(browser)[:2]) == {0, 3}  # the lowest F1: only another name, and the empty answer
    named = browser.run("document.querySelector('a[data-filter*=label]').click()") or names_shown(browser)
    assert set(named) == {0, 1, 2}
    browser.run("document.querySelector('form.tools').reset()")
    choose(browser, "kind", "missed")
    assert set(names_shown(browser)) == {3}
    choose(browser, "kind", "")
    dog = browser.run("[...document.querySelectorAll('[name=label] option')].find(o => o.text == 'dog').value")
    choose(browser, "label", dog)
    assert set(names_shown(browser)) == {i for i in range(8) if i % 3}
    choose(browser, "label", "")
    choose(browser, "text", "6.PNG")
    assert names_shown(browser) == [6]
    assert browser.run("document.querySelector('output').textContent") == "1 of 8 images"
    choose(browser, "text", "")
    options = browser.run("[...document.querySelectorAll('[name=sort] option')].map(o => [o.text, o.value])")
    choose(browser, "sort", dict(options)["most objects"])
    counts = [1 + i % 3 for i in names_shown(browser)]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.slow
def test_slider_sets_the_score_from_which_boxes_are_drawn(browser, pages, tmp_path):
    """Two boxes of an image of three objects, at .9 and .2, and a false one at .5; the best threshold is .2."""
    browser.open(pages["report"])
    assert browser.run("document.querySelector('[name=threshold]')") is None  # all scores are equal
    boxes = [[4, 4, 20, 20], [30, 4, 20, 20], [56, 4, 20, 20]]
    truth = {
        "images": [{"id": 1, "file_name": "1.png", "width": 80, "height": 60}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": n, "image_id": 1, "category_id": 1, "bbox": box} for n, box in enumerate(boxes, 1)],
    }
    answers = [(boxes[0], 0.9), ([4, 34, 20, 20], 0.5), (boxes[1], 0.2)]
    rows = [{"image_id": 1, "category_id": 1, "bbox": box, "score": value} for box, value in answers]
    browser.open(score(truth, rows).write_report(tmp_path, image_root=pages["report"].parents[1]))

    def drawn():
        rects = "[...document.querySelectorAll('.shot rect:not(.ground)')].filter(r => getComputedStyle(r).display"
        fates = browser.run(f"{rects} != 'none').map(r => r.classList[0])")
        return {fate: fates.count(fate) for fate in ("hit", "false", "truth", "missed")}

    assert drawn() == {"hit": 2, "false": 1, "truth": 2, "missed": 1}
    choose(browser, "threshold", "0.7")
    assert drawn() == {"hit": 1, "false": 0, "truth": 1, "missed": 2}
    assert browser.run("document.querySelector('[name=threshold]').parentNode.textContent").strip() == "score from 0.7"
    browser.run("document.querySelector('.shot').focus()")
    browser.press("Enter")  # what is enlarged shows the same
    assert browser.run("[...document.querySelectorAll('dialog text')].filter(t => !t.closest('[hidden]')).length") == 3
    browser.press("Escape")
    browser.run("document.querySelector('form.tools').reset()")
    browser.wait_for("document.querySelectorAll('.shot .hit[hidden]').length == 0")
    assert drawn() == {"hit": 2, "false": 1, "truth": 2, "missed": 1}


@pytest.mark.slow
def test_gallery_obeys_the_keyboard(browser, pages):
    browser.open(pages["report"])
    order = names_shown(browser)
    number = "parseInt({}.textContent.match(/\\d+(?=\\.png)/))"
    browser.run("document.querySelector('.shot').focus()")
    browser.press("ArrowRight")
    assert browser.run(number.format("document.activeElement")) == order[1]
    browser.press("Enter")
    assert browser.run("document.querySelector('dialog').open")
    browser.press("ArrowRight")
    assert browser.run(number.format("document.querySelector('dialog')")) == order[2]
    browser.press("z")
    assert browser.run("document.querySelector('dialog').className") == "large"
    browser.run("new Promise(r => { const d = document.querySelector('dialog'); d.onclose = r; d.close(); })")
    assert browser.run(number.format("document.activeElement")) == order[2]
    browser.press("/")
    assert browser.run("document.activeElement.name") == "text"


@pytest.mark.slow
def test_table_sorts_and_is_copied_as_csv(browser, pages):
    browser.open(pages["report"])
    browser.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    classes = "[...document.querySelectorAll('#classes tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    browser.run("document.querySelector('#classes details').open = true")
    browser.run("document.querySelectorAll('#classes th')[1].click()")
    down = [int(row[1]) for row in browser.run(classes)]
    assert down == sorted(down, reverse=True) and len(set(down)) > 1
    browser.run("document.querySelectorAll('#classes th')[1].click()")
    assert [int(row[1]) for row in browser.run(classes)] == down[::-1]
    browser.run("document.querySelector('#classes button.copy').click()")
    copied = browser.run("navigator.clipboard.readText()")
    assert copied.splitlines()[1:] == [",".join(row) for row in browser.run(classes)]


@pytest.mark.slow
def test_review_is_decided_by_keyboard_kept_saved_and_loaded(browser, pages, tmp_path):
    """Three of forty dogs have another name; decisions survive a reload, and a file of them is applied."""
    box, size = [0.1, 0.1, 0.5, 0.6], {"width": 80, "height": 60}
    names = [EVIL if i < 3 else "dog" for i in range(40)]
    records = [
        {"image": f"{i}.png", "image_id": i, **size, "objects": [{"desc": name, "bbox": box}]}
        for i, name in enumerate(names)
    ]
    lines = tmp_path / "labels.jsonl"
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    text = json.dumps([{"bbox_2d": [100, 100, 500, 600], "label": "dog"}])
    found = review(lines, [{"image_id": i, "text": text} for i in range(40)])
    page = found.write(tmp_path / "review", image_root=pages["report"].parents[1])
    for width in (400, 1280):
        for dark in (False, True):
            browser.open(page, width=width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.problems == [] and browser.run("document.title") != "run"

    pressed = "[...document.querySelectorAll('button[aria-pressed=true]')].map(b => b.dataset.choice).sort()"
    browser.press("n")  # the first suspicion is chosen when the page opens
    assert browser.run(pressed) == ["name"]
    assert browser.run("document.activeElement.matches('.shot:not(:has([aria-pressed=true]))')")  # the next one
    browser.press("k")
    browser.press("x")  # no decision
    assert browser.run(pressed) == ["keep", "name"]
    browser.press("u")
    assert browser.run(pressed) == ["name"]
    browser.press("k")
    browser.run("document.querySelector('[name=undecided]').click()")
    assert browser.run("document.querySelectorAll('.shot:not([hidden])').length") == 1
    assert browser.run("document.querySelector('output.decided').textContent") == "0 of 1 decided (2 of all 3)"
    browser.open(page)  # kept in the browser
    assert browser.run(pressed) == ["keep", "name"]
    assert browser.run("document.querySelector('output.decided').textContent") == "2 of 3 decided"

    browser.run(
        "{ const make = URL.createObjectURL; URL.createObjectURL = (b) => { window.saved = b; return make(b); }; }"
    )
    browser.run("[...document.querySelectorAll('.tools button')].find(b => b.textContent == 'save decisions').click()")
    saved = browser.run("window.saved.text()")
    (tmp_path / "decisions.json").write_text(saved)
    apply_decisions(tmp_path / "decisions.json", lines, tmp_path / "new.jsonl")
    applied = [json.loads(line)["objects"][0]["desc"] for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert applied.count("dog") == 38 and applied.count(EVIL) == 2

    browser.run("localStorage.clear()")
    browser.open(page)
    assert browser.run(pressed) == []
    browser.run(f"window.given = new DataTransfer(); given.items.add(new File([{json.dumps(saved)}], 'd.json'))")
    chosen = "document.querySelector('input[type=file]')"
    browser.run(f"{chosen}.files = given.files; {chosen}.dispatchEvent(new Event('change'))")
    assert browser.run(f"new Promise(r => setTimeout(() => r({pressed}), 200))") == ["keep", "name"]


@dataclass(frozen=True)
class OneBox:
    """A detector that finds a box of a malicious name wherever it is asked to look."""

    model: SimpleNamespace

    def asking(self, *asked, **also):
        return self

    def predict(self, image, views, min_score):
        return ImageDetections((DetectedObject(EVIL, (8, 6, 40, 30), 0.5),), image.size, EVIL, "stop", image=image)


@pytest.mark.slow
def test_demo_draws_the_boxes_of_an_uploaded_image(browser, tmp_path):
    pytest.importorskip("gradio", reason="the demo's page needs gradio: uv sync --extra demo")
    Image.new("RGB", (80, 60), "white").save(tmp_path / "a.png")
    model = SimpleNamespace(
        engine=SimpleNamespace(name="/somewhere/of/the/server/model"),
        config=load_run_config(None, [], trains=False),
        threshold=ScoreThreshold(0.25),
        calibration=None,
        unknown_names=list,
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    page = build_demo(OneBox(model))
    launch_demo(page, server_port=port, prevent_thread_lock=True)
    try:
        browser.open(f"http://127.0.0.1:{port}", width=400)
        browser.wait_for("document.querySelector('h1')?.textContent == 'What does model find?'")
        browser.wait_for("document.querySelector('input[type=file]') != null")
        browser.upload("input[type=file]", tmp_path / "a.png")
        browser.wait_for("document.querySelector('img[src*=\"a.png\"]')?.complete")
        # A click is lost while the page is still being set up, which takes long where other tests run beside this one.
        press = "[...document.querySelectorAll('button')].find(b => b.textContent.trim() == 'Find').click()"
        pressed = f"(window.pressed = (window.pressed ?? -1) + 1) % 100 == 0 && {press}"
        browser.wait_for(f"[...document.images].some(i => i.naturalWidth == 320) || ({pressed}, false)", seconds=120)
        assert EVIL in browser.wait_for("[...document.querySelectorAll('textarea')].map(t => t.value).join() || null")
        assert "0.5" in browser.run("document.querySelector('table').textContent")
        assert browser.run("document.documentElement.scrollWidth") <= 400
        assert "somewhere" not in browser.run("document.documentElement.outerHTML")
        assert browser.run("document.title") != "run" and browser.problems == []
        addresses = {address.split("/")[2] for address in browser.requests if address.startswith("http")}
        assert addresses == {f"127.0.0.1:{port}"}
    finally:
        page.close()
