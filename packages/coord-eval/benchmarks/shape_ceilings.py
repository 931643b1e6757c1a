"""How much of COCO outlines a target text of so many vertices keeps: mean IoU and AP of the ground truth itself.

uv run python packages/coord-eval/benchmarks/shape_ceilings.py instances.json
"""

from pathlib import Path
from typing import Annotated

import typer

from coord_codec import read_annotations
from coord_codec.geometry.polygon import PolygonGeometry
from coord_eval import score


def main(path: Annotated[Path, typer.Argument(help="COCO annotations with outlines")]) -> None:
    """Print a row for each limit."""
    truth = read_annotations(path, geometry="polygon", on_bad_box="drop_image")
    for note, count in truth.notes.items():
        print(f"{count} {note}")
    print("vertices  AP     AP75   mean IoU  simplified, of", sum(len(i.targets) for i in truth.instances))
    for most in (4, 8, 16, 32, 64, 128):
        ceiling = score(truth, [], geometry=PolygonGeometry(most)).shapes["ceiling"]
        values = (most, ceiling["AP"], ceiling["AP75"], ceiling["mean"], ceiling["simplified"])
        print("{:8d}  {:.3f}  {:.3f}  {:.4f}    {}".format(*values))


if __name__ == "__main__":
    typer.run(main)
