"""What parsing costs in bytes, and answers of too many numbers."""

import tracemalloc

import pytest

from coord_eval import parse_answer


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize("unit", ["{", "[", '{"bbox_2d": [', '{"bbox_2d": [1,'])
def test_parse_answer_memory_of_open_records_is_bounded(unit):
    def peak(count):
        tracemalloc.start()
        answer = parse_answer('{"bbox_2d": ' + unit * count)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size - 400 * len(answer.dropped)

    assert peak(2_000) < 800_000


def test_parse_answer_notes_a_repair_once():
    answer = parse_answer('{"bbox_2d": [1, 2, 3, 4], "bbox": [1, 2, 3, 4], "box": [1, 2, 3, 4], "label": "a"}')
    assert answer.objects[0].repairs == ("second_geometry",)


@pytest.mark.slow
def test_parse_answer_of_too_many_numbers_is_wrong_arity():
    answer = parse_answer('{"polygon": [' + "1, 2, " * 60_000 + '1], "label": "a"}')
    assert [drop.reason for drop in answer.dropped] == ["wrong_arity"]
