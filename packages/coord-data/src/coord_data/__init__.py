"""Read object annotations of any format, check them against the pixels, and prepare them for training."""

from coord_data.image_set import ImageSet, load_annotated
from coord_data.inspection.examine import Examination, examine
from coord_data.inspection.numbers.findings import Finding
from coord_data.prepare import prepare
from coord_data.rules import ReadingRules

__all__ = ["Examination", "Finding", "ImageSet", "ReadingRules", "examine", "load_annotated", "prepare"]
