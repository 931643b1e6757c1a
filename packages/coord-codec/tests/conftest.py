import pytest


@pytest.fixture
def coco():
    """A COCO document without faults: two images, two categories, three annotations of which one is a crowd region."""
    return {
        "images": [
            {"id": 9, "file_name": "b.jpg", "width": 200, "height": 100},
            {"id": 4, "file_name": "a.jpg", "width": 64.0, "height": 48},
        ],
        "categories": [{"id": 3, "name": "dog"}, {"id": 1, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 3, "bbox": [20, 10, 100, 50], "area": 1234.5},
            {"id": 2, "image_id": 4, "category_id": 1, "bbox": [0, 0, 64, 48]},
            {"id": 3, "image_id": 4, "category_id": 1, "bbox": [8, 8, 16, 16], "iscrowd": 1, "area": 77},
        ],
    }
