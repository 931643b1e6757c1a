"""Tables: the unit of their numbers, empty cells, and the text they are written in."""

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.reading.read import read_source

HEAD = "filename,xmin,ymin,xmax,ymax,label\n"
TENTHS = (0.1, 0.1, 0.5, 0.5)
FRACTIONS = "1.jpg,0.1,0.1,0.5,0.5,cat\n"
PIXELS = "1.jpg,20,10,100,50,cat\n"


def boxes(place, text, encoding="utf-8"):
    for n in range(3):
        Image.new("RGB", (200, 100)).save(place / f"{n}.jpg")
    (place / "t.csv").write_bytes(text.encode(encoding))
    found = read_source(place / "t.csv", on_bad_box="drop_box")
    read = {i.image: [o.bbox for o in i.objects] for i in found.annotations.instances}
    return read, [str(p) for p in found.annotations.problems], found.annotations.notes


@pytest.mark.parametrize(
    ("first", "rest", "of_first", "problem"),
    [
        ("0.jpg,0.1,0.1,1.0002,0.5,cat\n", FRACTIONS, [(0.1, 0.1, 1.0, 0.5)], ""),
        ("0.jpg,-0.001,0.2,0.5,0.5,cat\n", FRACTIONS, [(0, 0.2, 0.5, 0.5)], ""),
        ("0.jpg,0.1,0.1,1.08,0.5,cat\n", FRACTIONS, [], "lies outside its image"),
        ("0.jpg,nan,nan,nan,nan,nan\n", FRACTIONS, [], ""),
        ("0.jpg,NA,NaN,null,None,\n", PIXELS, [], ""),
        ("0.jpg,inf,1,2,3,cat\n", FRACTIONS, [], ":2: expected finite numbers, found inf, 1, 2, 3"),
        ("0.jpg,1,2,3,4,cat,5\n", PIXELS, [], ":2: expected 6 cells as in the first row, found 7"),
        ("0.jpg,0,0,1,1,cat\n", FRACTIONS, [(0, 0, 1, 1)], ""),
        ("0.jpg,0,0,0,0,cat\n", PIXELS, [], "no area"),
        (PIXELS.replace("1", "0", 1), FRACTIONS * 9, [], ":2: expected fractions like most boxes of the table"),
        (FRACTIONS.replace("1", "0", 1), PIXELS * 9, [], ":2: expected pixels like most boxes of the table"),
    ],
)
def test_table_unit_is_that_of_most_boxes(tmp_path, first, rest, of_first, problem):
    read, problems, _ = boxes(tmp_path, HEAD + first + rest)
    assert set(read["1.jpg"]) == {TENTHS} and read["0.jpg"] == of_first
    assert (len(problems) == 1 and problem in problems[0]) if problem else not problems


def test_table_with_many_boxes_of_both_units_is_refused(tmp_path):
    told = r"found 2 in fractions .the first in line 2. and 3 in pixels .line 4.; split it into two tables"
    with pytest.raises(InputError, match=told):
        boxes(tmp_path, HEAD + FRACTIONS * 2 + PIXELS * 3)


@pytest.mark.parametrize("size", ["nan,nan", "inf,1e999", "nan,100", "0,0", "-5,100"])
def test_table_size_that_is_none_is_read_from_the_image(tmp_path, size):
    read, problems, notes = boxes(tmp_path, f"width,height,{HEAD}{size},0.jpg,20,10,100,50,cat\n")
    assert (read, problems) == ({"0.jpg": [TENTHS]}, [])
    assert sum("stated image sizes" in note for note in notes) == (size != "nan,nan")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("\n \n" + HEAD + PIXELS, "utf-8"),
        (HEAD + PIXELS, "utf-16"),
        (HEAD.replace(",", "\t") + PIXELS.replace(",", "\t"), "utf-16"),
        (HEAD.replace("\n", "\r\n") + PIXELS + "\n,,,,,\n", "utf-8-sig"),
    ],
    ids=["leading blank lines", "utf-16", "Unicode text of Excel", "blank rows"],
)
def test_table_is_read_whatever_program_saved_it(tmp_path, text, encoding):
    assert boxes(tmp_path, text, encoding)[:2] == ({"1.jpg": [TENTHS]}, [])


@pytest.mark.parametrize("empty", ["", "nan", "NA"])
def test_table_without_header_may_begin_with_an_image_without_objects(tmp_path, empty):
    first = f"0.jpg{f',{empty}' * 5}\n"
    assert boxes(tmp_path, first + PIXELS)[:2] == ({"0.jpg": [], "1.jpg": [TENTHS]}, [])


def test_table_cells_keep_their_line_breaks_and_lines_are_those_of_the_file(tmp_path):
    (tmp_path / "t.csv").write_text(HEAD + '1.jpg,20,10,100,50,"wine\nglass"\n1.jpg,a,10,100,50,cat\n')
    Image.new("RGB", (200, 100)).save(tmp_path / "1.jpg")
    found = read_source(tmp_path / "t.csv", on_bad_box="drop_box").annotations
    assert [o.desc for o in found.instances[0].objects] == ["wine\nglass"]
    assert [p.where.rpartition(":")[2] for p in found.problems] == ["4"]


def test_box_of_four_corners_is_the_upright_box_around_them(tmp_path):
    head = "filename,label,x1,y1,x2,y2,x3,y3,x4,y4\n"
    read, problems, notes = boxes(tmp_path, head + "1.jpg,cat,60,10,100,30,60,50,20,30\n")
    assert (read, problems) == ({"1.jpg": [TENTHS]}, [])
    assert notes == {"boxes of four corners, read as the upright box around them": 1}


def test_descriptions_are_names_where_the_table_has_their_numbers_too_which_is_said(tmp_path):
    Image.new("RGB", (200, 100)).save(tmp_path / "1.jpg")
    (tmp_path / "t.csv").write_text("image,class,class_name,xmin,ymin,xmax,ymax\n1.jpg,0,cat,20,10,100,50\n")
    found = read_source(tmp_path / "t.csv")
    assert [o.desc for o in found.annotations.instances[0].objects] == ["cat"]
    assert any("read from the column class_name, not from class" in note for note in found.notes)


def test_rows_of_one_image_belong_together_however_they_write_its_path(tmp_path):
    rows = PIXELS + PIXELS.replace("1.jpg", "./1.jpg").replace("cat", "dog")
    assert boxes(tmp_path, HEAD + rows)[0] == {"1.jpg": [TENTHS, TENTHS]}


@pytest.mark.parametrize("above", ["", "sep=;\r\n", "\r\nsep=;\n"])
@pytest.mark.parametrize("header", [HEAD, ""])
def test_table_of_a_spreadsheet_with_decimal_commas_is_that_with_points(tmp_path, above, header):
    rows = "0.jpg,20.25,10,100.5,50,cat\n1.jpg,1.024,10,100,50,cat\n"
    with_points, problems, _ = boxes(tmp_path, header + rows)
    assert not problems and with_points["1.jpg"] == [(1.024 / 200, 0.1, 0.5, 0.5)]
    table = (header + rows).replace(",", ";").replace(".jpg", "_jpg").replace(".", ",").replace("_jpg", ".jpg")
    assert boxes(tmp_path, "\ufeff" + above + table.replace("\n", "\r\n"))[:2] == (with_points, [])


def test_number_with_a_comma_in_a_table_of_commas_is_refused(tmp_path):
    """It may be 1.024 or 1024."""
    _, problems, _ = boxes(tmp_path, HEAD + PIXELS + '0.jpg,"1,024",10,100,50,cat\n')
    assert len(problems) == 1 and "t.csv:3: expected a number, found '1,024'" in problems[0]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ("x_min,y_min,x_max,y_max", "20,10,100,50"),
        ("Left,Top,Width,Height", "20,10,80,40"),
        ("cx,cy,w,h", "60,30,80,40"),
        ("x_center,y_center,width,height", "0.3,0.3,0.4,0.4"),
    ],
)
@pytest.mark.parametrize("image", ["filename", "image_id", "ImageID"])
def test_columns_of_a_box_are_read_by_their_names(tmp_path, image, names, numbers):
    read, problems, _ = boxes(tmp_path, f"{image},label,{names}\n1.jpg,cat,{numbers}\n")
    assert not problems
    assert read == {"1.jpg": [pytest.approx(TENTHS)]}
