"""Charts as SVG text: the same on every call, safe, and where the values are."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from coord_eval.html import PALETTE, chart
from coord_eval.report.plot import box_rows, forest_plot

EVIL = "<script>alert(1)</script> $\\frac{1$ \u202e\0"


def paths(svg: str, colour: str) -> list[str]:
    found = re.findall(r'<path d="([^"]+)"[^>]*style="([^"]*)"', svg)
    return [d for d, style in found if colour in style]


def line_chart(series, alt, x_label=""):
    with chart(alt) as drawn:
        for name, (xs, ys) in series.items():
            drawn.axes.plot(xs, ys, label=name)
        drawn.axes.set(xlabel=x_label)
    return drawn.svg


def test_line_chart_is_the_same_text_twice_and_well_formed():
    series = {"a": ([0, 1, 2], [1.0, 0.5, 0.25]), "b": ([0, 2], [0.3, 0.2])}
    first, second = (line_chart(series, "loss", x_label="step") for _ in range(2))
    assert first == second
    ET.fromstring(first)
    assert 'aria-label="loss"' in first
    assert "step</text>" in first
    assert not re.search(r"<metadata|<style|<g id|\d\.\d{3}", first)


def test_chart_points_lie_where_their_values_are():
    with chart("F1", width=300, height=200, ink="#888888") as drawn:
        drawn.axes.plot([0, 1, 4], [0, 1, 2])
        drawn.axes.set(xlim=(0, 4), ylim=(0, 2))
    (line,) = paths(drawn.svg, f"stroke: {PALETTE[0]}")
    x, y = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", line), float).T
    assert (x[1] - x[0]) / (x[2] - x[0]) == pytest.approx(0.25, abs=1e-3)
    assert (y[1] - y[0]) / (y[2] - y[0]) == pytest.approx(0.5, abs=1e-3)
    assert y[2] < y[0]
    assert 'viewBox="0 0 300 200"' in drawn.svg


def test_chart_panels_have_bands_bars_and_outlines_in_the_colours_of_the_palette():
    with chart("two", panels=2, ink="#888888") as drawn:
        left, right = drawn.panels
        left.fill_between([0, 1], [0, 0], [1, 2], alpha=0.25, label="W1")
        right.bar([1, 2], [0.5, 0.75])
        right.stairs([0.2, 0.4], [0, 1, 2], color=PALETTE[1])
    assert len(paths(drawn.svg, f"fill: {PALETTE[0]}; fill-opacity: 0.25")) == 2  # area and legend
    assert len(paths(drawn.svg, f"fill: {PALETTE[0]}")) == 4
    assert len(paths(drawn.svg, PALETTE[1])) == 1
    assert "#888888" in drawn.svg
    assert 'viewBox="0 0 920 220"' in drawn.svg


def test_chart_text_is_escaped_and_no_mathematics():
    svg = line_chart({EVIL: ([0, 1], [0, 1])}, EVIL, x_label=EVIL)
    ET.fromstring(svg)
    assert "<script" not in svg
    assert svg.count("&lt;script&gt;") == 3
    assert "\\frac{1$ \\u202e\\u0000" in svg


def test_box_rows_draw_percentiles_from_top_to_bottom():
    values = np.arange(101.0)
    with chart("errors", width=400, height=200) as drawn:
        box_rows(drawn.axes, {"a": values, "none": [], "b": values / 2})
        drawn.axes.set(xlim=(0, 100))
    spans = {}
    for colour in (PALETTE[0], PALETTE[2]):
        drawn_paths = [np.array(re.findall(r"([\d.]+) ([\d.]+)", d), float) for d in paths(drawn.svg, colour)]
        spans[colour] = {tuple(np.ptp(p, axis=0) > 1): p for p in drawn_paths}
    box, line, stroke = (spans[PALETTE[0]][key] for key in ((True, True), (True, False), (False, True)))
    width = np.ptp(line[:, 0])  # from the 5th to the 95th percentile
    assert np.ptp(box[:, 0]) == pytest.approx(width * 50 / 90, abs=0.05)
    assert stroke[0, 0] == pytest.approx((line[0, 0] + line[1, 0]) / 2, abs=0.05)
    assert np.ptp(spans[PALETTE[2]][True, False][:, 0]) == pytest.approx(width / 2, abs=0.05)
    assert line[0, 1] < spans[PALETTE[2]][True, False][0, 1]
    assert re.findall(r">(\w+)</text>", drawn.svg)[-3:] == ["a", "none", "b"]


def test_more_series_than_colours_differ_in_their_lines():
    names = [f"run {k}" for k in range(30)]
    svg = line_chart({name: ([0, 1], [0, k]) for k, name in enumerate(names)}, "AP")
    found = re.findall(r'<path d="M[^"]+"[^>]*style="fill: none;([^"]*)"', svg)
    drawn = {re.sub(r"stroke-(dashoffset|linecap|width)[^;]*;?", "", style) for style in found if "--s" in style}
    assert len(drawn) == 30


@pytest.mark.parametrize(
    ("row", "colour"),
    [
        ((0.02, 0.01, 0.03), PALETTE[0]),
        ((-0.02, -0.03, -0.01), PALETTE[1]),
        ((0.02, 0.0, 0.03), None),  # an interval that ends at 0 tells nothing apart
        ((-0.02, -0.03, 0.0), None),
        ((0.0, 0.0, 0.0), None),
    ],
)
def test_differences_are_coloured_where_0_lies_outside(row, colour):
    drawn = forest_plot({"AP": row}, "differences")
    assert {own for own in (PALETTE[0], PALETTE[1]) if own in drawn} == {colour} - {None}


def corners(path):
    return np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path), float)


def test_marks_of_a_panel_stand_where_their_values_do_in_colours_of_their_own():
    with chart("marks", width=500, height=300, ink="#888888") as drawn:
        axes = drawn.axes
        axes.plot([0, 1], [5, 5], color="#123456")
        axes.plot([0, 1, 2, 3], [1, np.nan, 1, 2], label="line")
        axes.fill_between([0, 1, 2], [1, 2, 3], [4, 5, 6], label="area")
        axes.bar([5, 6], [2, 4], 0.5, label="bars")
        axes.stairs([1, 3], [7, 8, 9], color=PALETTE[4], fill=True)
        axes.stairs([1, 3], [7, 8, 9], color=PALETTE[5], label="steps")
        axes.plot([3], [3], "-", color=PALETTE[6], marker="s", markersize=8)
        axes.axvline(4, color=PALETTE[7], linestyle="--", linewidth=3)
        axes.set(xlim=(0, 10), ylim=(0, 10), title="T", xlabel="X", ylabel="Y", xticks=[0, 10], yticks=[0, 2.5, 10])
    svg = drawn.svg
    (line,) = (path for path in paths(svg, f"stroke: {PALETTE[0]};") if path.count("L") == 1 and path.count("M") == 2)
    low, high = corners(paths(svg, f"fill: {PALETTE[4]}")[0])[[0, -1]]  # from 7, 0 to 9, 0
    unit, x0, y0 = (high[0] - low[0]) / 2, low[0] - 7 * (high[0] - low[0]) / 2, low[1]
    rise = (y0 - corners(line)[0, 1]) / 1

    def at(*points):
        return pytest.approx(np.array([[x0 + unit * x, y0 - rise * y] for x, y in points]), abs=0.06)

    assert corners(line) == at((0, 1), (2, 1), (3, 2))
    assert re.findall("[ML]", line) == ["M", "M", "L"]  # what is unknown divides it
    assert corners(paths(svg, f"fill: {PALETTE[0]}")[0]) == at((0, 1), (1, 2), (2, 3), (2, 6), (1, 5), (0, 4))
    bars = [corners(path) for path in paths(svg, f"fill: {PALETTE[1]}")]
    assert bars[0] == at((4.75, 0), (5.25, 0), (5.25, 2), (4.75, 2))
    assert bars[1] == at((5.75, 0), (6.25, 0), (6.25, 4), (5.75, 4)) and len(bars) == 3  # one of them in the legend
    steps = [(7, 0), (7, 1), (8, 1), (8, 3), (9, 3), (9, 0)]
    assert (
        corners(paths(svg, f"fill: {PALETTE[4]}")[0]) == at(*steps) == corners(paths(svg, f"stroke: {PALETTE[5]}")[0])
    )
    (marker,) = paths(svg, f"fill: {PALETTE[6]}")
    assert np.ptp(corners(marker), axis=0) == pytest.approx([8, 8]) and corners(marker).mean(axis=0)[None] == at((3, 3))
    assert "stroke-width: 3; stroke-dasharray: 6 3" in svg
    assert re.findall(r">([^<]+)</text>", svg) == [
        "T",
        "0",
        "10",
        "X",
        "Y",
        "line",
        "area",
        "bars",
        "steps",
        "0.0",
        "2.5",
        "10.0",
    ]


@pytest.mark.parametrize(
    ("draw", "limits"),
    [
        (lambda axes: axes.bar([0, 1], [2, 4]), ["0", "2", "4"]),  # bars stand on the axis
        (lambda axes: axes.plot([0, 1], [0, 4]), ["0", "2", "4"]),
        (lambda axes: axes.plot([0, 1], [100, 300]), ["100", "200", "300"]),
        (lambda axes: axes.plot([0, 1], [7, 7]), ["6.50", "6.75", "7.00", "7.25", "7.50"]),
        (lambda axes: None, ["0", "0.5", "1"]),
    ],
)
def test_limits_of_a_panel_are_those_of_its_values(draw, limits):
    with chart("limits", height=220) as drawn:
        draw(drawn.axes)
    texts = re.findall(r'text-anchor="end"[^>]*>([^<]+)</text>', drawn.svg)
    assert [float(text) for text in texts] == [float(text) for text in limits]
    if limits[-1] == "4":
        floor = re.findall(r'd="M [\d.]+ ([\d.]+) L [\d.]+ \1" style="fill: none; stroke: currentColor"', drawn.svg)[-1]
        zero = re.findall(r'y="([\d.]+)" text-anchor="end"[^>]*>0</text>', drawn.svg)[0]
        stands = float(zero) - 4 == pytest.approx(float(floor))
        assert stands == ("fill:" in drawn.svg.replace("fill: none", ""))


def test_differences_stand_from_top_to_bottom_beside_their_names():
    svg = forest_plot({"AP": (0.02, 0.01, 0.03), "AR": (-0.02, -0.03, -0.01)}, "gains")
    first, second = (corners(paths(svg, f"stroke: var(--s{k}")[0]) for k in (0, 1))
    assert first[0, 1] == first[1, 1] < second[0, 1] and second[1, 0] < first[0, 0]
    places = re.findall(r'y="([\d.]+)" text-anchor="end"[^>]*>(A[PR])</text>', svg)
    assert [name for _, name in places] == ["AP", "AR"]
    assert [float(y) - 4 for y, _ in places] == pytest.approx([first[0, 1], second[0, 1]], abs=0.02)
