"""Parts of pages: each object, label and section once, at its place, and none that is not there."""

import re

import pytest

from coord_codec import geometry_of
from coord_codec.pages import (
    Card,
    Drawn,
    Gallery,
    Strong,
    coloured_text,
    image_svg,
    label_key,
    label_slots,
    notes,
    number,
    outline_svg,
    page,
    section,
    table,
)
from coord_codec.pages.boxes import MEANINGS
from coord_codec.pages.spans import LONGEST


@pytest.mark.parametrize(("value", "text"), [(0, "0.000"), (0.0004, "0.000"), (1, "1.000"), (-1, "n/a")])
def test_metric_of_zero_is_a_number_and_one_below_it_is_undefined(value, text):
    assert number(value) == text


def test_boxes_found_are_thinner_than_answers_and_errors_thicker_in_crowded_images_too():
    style = page("Boxes", "")
    rule = r"^{} \.{}\b[^{{]*{{[^}}]*stroke-width: ([\d.]+)"
    for kind in ("overlay", "fine"):
        width = {
            name: float(re.search(rule.format(rf"\.{kind}", name), style, re.M)[1]) for name in ("truth", "casing")
        }
        plain = float(re.search(rf"^\.{kind} rect\b[^{{]*{{[^}}]*stroke-width: ([\d.]+)", style, re.M)[1])
        errors = [
            float(w)
            for w in re.findall(rf"^\.{kind} \.(?:missed|false)\b[^{{]*{{[^}}]*stroke-width: ([\d.]+)", style, re.M)
        ]
        assert width["truth"] < plain < min(errors) and plain < width["casing"]


def test_cells_are_aligned_by_their_column_and_long_ones_are_broken():
    html = table(["a", "b"], [["x" * 61, "y" * 60], ["x", "y" * 61], ["x", Strong("<z>")]], words=1)
    assert re.findall(r"<t[hd](?![a-z])([^>]*)>(?=(.{1,8}))", html) == [
        ("", "a</th><t"),
        (" class=n", "b</th></"),
        ("", "xxxxxxxx"),
        (" class=n", "yyyyyyyy"),
        ("", "x</td><t"),
        (' class="n long"', "yyyyyyyy"),
        ("", "x</td><t"),
        (" class=n", "<b>&lt;z"),
    ]
    assert "sortable" in table(["a"], [], sortable=True) and "sortable" not in html


@pytest.mark.parametrize(
    ("spans", "parts"),
    [
        ([], ["abcdef"]),
        ([(0, 6, "k", "t")], ["[abcdef]"]),
        ([(-3, 2, "k", "t")], ["[ab]", "cdef"]),
        ([(4, 99, "k", "t")], ["abcd", "[ef]"]),
        ([(1, 3, "k", "t"), (3, 5, "k", "t")], ["a", "[bcde]", "f"]),
        ([(1, 5, "k", "t"), (2, 3, "l", "u")], ["a", "[b]", "{c}", "[de]", "f"]),
        ([(3, 3, "k", "t"), (9, 12, "k", "t")], ["abcdef"]),
    ],
)
def test_text_is_coloured_where_its_spans_are(spans, parts):
    marks = {"[": '<i class="k" title="t">', "{": '<i class="l" title="u">', "]": "</i>", "}": "</i>"}
    expected = "".join(marks.get(letter, letter) for letter in "".join(parts))
    assert coloured_text("abcdef", spans) == f'<pre class="answer">{expected}</pre>'


@pytest.mark.parametrize("beyond", [0, 1, 1200])
def test_long_text_is_cut_and_the_rest_is_counted(beyond):
    html = coloured_text("x" * (LONGEST + beyond), [(LONGEST - 1, LONGEST + 5, "k", "t")])
    assert html.count("x</i>") == 1 and (f"… {beyond:,} further" in html) == bool(beyond)


def test_nine_labels_have_nine_colours_and_each_further_nine_a_number():
    slots = list(label_slots(map(str, range(30))).values())
    assert [slot // 9 for slot in slots] == [n // 9 for n in range(30)] and len(set(slots)) == 30
    assert label_slots(["a", "b", "a"]) == label_slots(["a", "b"]) and label_slots(["b"])["b"] == label_slots("b")["b"]


@pytest.mark.parametrize(
    ("count", "most", "more"), [(2, 60, ""), (5, 5, ""), (6, 5, "1 more"), (1500, 60, "1,440 more")]
)
def test_key_of_labels_tells_how_many_it_leaves_out(count, most, more):
    html = label_key({f"label {n}": n for n in range(count)}, most)
    assert html.count("<i ") == min(count, most) and (f"… and {more}" in html if more else "…" not in html)
    assert re.findall(r"</i>(\d+): label 1[0-9]<", html)[:1] == (["2"] if min(count, most) > 10 else [])
    assert label_key({"a": 0}) == "" and "open" in label_key({"a": 0, "b": 1}, folded=False) and " open" not in html


def texts(svg):
    return [(kind.split(), label) for kind, label in re.findall(r'<text class="([^"]*)"[^>]*>([^<]*)</text>', svg)]


def test_labels_of_missed_objects_stand_before_false_ones_and_those_before_others():
    box = (0.0, 0.0, 0.05, 0.05)
    fates = ("hit", "false", "truth", "missed", "crowd")
    svg = image_svg("a", (480, 480), [Drawn(f"a {fate}", box, fate, slot=n) for n, fate in enumerate(fates)])
    assert [label for _, label in texts(svg)] == ["missed: a missed", "✗ a false", "a hit", "a truth", "a crowd"]
    assert [kind[0] for kind, _ in texts(svg)] == ["c3", "c1", "c0", "c2", "c4"]
    hidden = [Drawn("a", box, "missed", above=0.5), Drawn("b", box, "hit")]
    assert [label for _, label in texts(image_svg("a", (9, 9), hidden, threshold=0.1))] == ["b", "missed: a"]


def test_label_that_finds_no_room_is_hidden_and_one_that_is_not_named_is_not_written():
    svg = image_svg("a", (100, 20), [Drawn("label", (0.0, 0.0, 1.0, 1.0)) for _ in range(40)])
    over = [kind[-1] == "over" for kind, _ in texts(svg)]
    assert over[0] is False and over[-1] is True and over == sorted(over)
    assert texts(image_svg("a", (9, 9), [Drawn("a", (0, 0, 1, 1), named=False)])) == []
    (_, short), (_, empty) = texts(
        image_svg("a", (99, 99), [Drawn("x" * 29, (0, 0, 1, 1)), Drawn(" ", (0, 0, 0.1, 1))])
    )
    assert (short, empty) == ("x" * 27 + "…", "(no label)")


def test_boxes_are_drawn_where_they_lie_the_larger_first():
    drawn = [Drawn("small", (0.5, 0.25, 0.75, 0.5), tip="<tip>"), Drawn("large", (0, 0, 1, 1), slot=10)]
    svg = image_svg("a.jpg", (200, 100), drawn)
    assert 'viewBox="0 0 480 240"' in svg
    rects = re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="(.*?)"><title>(.*?)<', svg
    )
    assert rects == [
        ("0.0", "0.0", "480.0", "240.0", "plain c1", "large"),
        ("240.0", "60.0", "120.0", "60.0", "plain c0", "&lt;tip&gt;"),
    ]
    assert "M240 60H360V120H240z" in svg and re.findall(r'<text class="number c1"[^>]*>(\d)<', svg) == ["2"]
    for count, fine in (40, False), (41, True):
        assert ('class="overlay fine"' in image_svg("a", (9, 9), [Drawn("a", (0, 0, 1, 1))] * count)) == fine
    assert image_svg("a", (1000, 1), []).count('height="1"') == 1


def test_thresholds_of_a_box_are_attributes_and_what_lies_beyond_is_hidden():
    for above, up_to, bounds, hidden in (
        (None, None, "", False),
        (0.25, None, ' data-above="0.25"', True),
        (0.1, 0.5, ' data-above="0.1" data-up-to="0.5"', False),
        (None, 0.2, ' data-up-to="0.2"', True),
        (0.0, 0.25, ' data-above="0" data-up-to="0.25"', False),
    ):
        assert Drawn("a", (0, 0, 1, 1), above=above, up_to=up_to).bounds(0.25) == bounds + " hidden" * hidden


def test_outline_is_closed_or_a_cross_at_each_labelled_point():
    assert outline_svg([(1, 2), (3, 4), (5, 6)], geometry_of("polygon")) == '<polygon points="1.0,2.0 3.0,4.0 5.0,6.0"'
    crosses = outline_svg([(10, 20), (0, 0), (30, 40)], geometry_of("keypoints"))
    assert crosses == '<path d="M5.0,20.0h10M10.0,15.0v10M25.0,40.0h10M30.0,35.0v10"'


def test_sections_of_one_name_are_told_apart_and_listed_from_three_on():
    parts = [section(title, "", figure) for title, figure in (("A b", "7"), ("A-b", ""), ("!", ""), ("A b", ""))]
    two, four = page("t", "".join(parts[:2])), page("t", "".join(parts))
    assert re.findall(r'<section id="([^"]*)"', two) == ["a-b", "a-b-2"] and "<nav" not in two
    assert re.findall(r'<section id="([^"]*)"', four) == ["a-b", "a-b-2", "part", "a-b-3"]
    assert re.findall(r'<li><a href="#([^"]*)">(.*?)</a>(.*?)</li>', four) == [
        ("a-b", "A b", " <b>7</b>"),
        ("a-b-2", "A-b", ""),
        ("part", "!", ""),
        ("a-b-3", "A b", ""),
    ]
    assert " open" in section("a", "") and " open" not in section("a", "", folded=True)
    told = page("<t>", "", facts={"of": 0, "by": "<x>"})
    assert "<dt>of</dt><dd>0</dd>" in told and "<dd>&lt;x&gt;</dd>" in told and "<title>&lt;t&gt;</title>" in told
    assert notes([]) == "" and notes(["<a>", "b"]) == '<ul class="notes"><li>&lt;a&gt;</li><li>b</li></ul>'


def test_gallery_is_filtered_by_what_its_cards_have_and_sorted_both_ways():
    images = Gallery(["dog", "Cat", "cow", "ant"], budget=100)
    images.add(
        Card("<i>", "one", objects=[("hit", 0, "small"), ("hit", 0, "small"), ("missed", 3, "")], values=(0.5, 12345.6))
    )
    images.add(
        Card('<rect class="truth">', "two", "<p>more</p>", [("false", 1, "large")], search="<q>", link="a b.jpg")
    )
    html = images.html(kinds={"hit": "found"}, sorts=[("size", True), ("name", False)])
    menus = {
        name: re.findall(r'value="([^"]*)">([^<]*)<', listed)
        for name, listed in re.findall(r'<select name="(\w+)".*?>(.*?)</select>', html)
    }
    assert menus == {
        "label": [("", "all labels"), ("3", "ant"), ("1", "Cat"), ("0", "dog")],
        "kind": [("", "all images"), ("hit", "found")],
        "size": [("", "all sizes"), ("large", "large"), ("small", "small")],
        "sort": [("0-", "size"), ("1+", "name")],
    }
    assert re.findall(r'data-objects="([^"]*)" data-values="([^"]*)" data-search="([^"]*)"', html) == [
        ("hit.0.small missed.3.", "0.5 1.235e+04", ""),
        ("false.1.large", "", "&lt;q&gt;"),
    ]
    assert html.count(">file</a>") == 1 and 'name="truth"' in html and 'type="range"' not in html
    images.scores = (0.1, 0.25, 0.9)
    assert 'min="0.1" max="0.9" value="0.25"' in images.html() and '<select name="kind"' not in images.html()
    assert not images.is_full
    images.add(Card("x" * 40, "", "y" * 30))  # the details count too
    assert images.is_full and images.tokens(["cow", "ant", "cow"]) == [("", 2, ""), ("", 3, "")]


def test_gallery_without_images_says_whether_any_failed(tmp_path):
    images = Gallery()
    assert "There is no image" in images.html()
    images.read("a.png", tmp_path / "a.png")
    assert "No image can be shown" in images.html() and set(MEANINGS) == {"hit", "false", "truth", "missed"}


def test_style_and_script_of_a_page_stand_behind_those_of_all_and_each_threshold_has_its_casing():
    html = page("t", "", style=".own{}", script="own();")
    assert ".own{}</style>" in html and "own();</script>" in html
    boxes = [Drawn("a", (0, 0, 1, 1), above=above) for above in (None, 0.2, 0.4)]
    assert image_svg("a", (9, 9), boxes, threshold=0.3).count('class="casing"') == 3
    outline = Drawn("a", (0, 0, 1, 1), points=[(0, 0), (1, 0), (1, 1)], kind=geometry_of("polygon"))
    assert "casing" not in image_svg("a", (9, 9), [outline])  # which is of boxes
    assert image_svg("a", (9, 9), [outline, boxes[0]]).count("H") == 2
    assert "fine" not in image_svg("a", (9, 9), [Drawn("a", (0, 0, 1, 1), above=0.5)] * 50, threshold=0.1)
    assert coloured_text("a\nb", []) == '<pre class="answer">a\nb</pre>'


def test_five_problems_are_listed_and_a_full_budget_leaves_room_for_one_more(tmp_path):
    images = Gallery(budget=4)
    for n in range(7):
        images._problems[str(n)] = ["a"]
    images.add(Card("xxxx", ""))
    assert len(images.notes) == 5 and not images.is_full
