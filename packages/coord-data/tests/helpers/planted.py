"""Generated images with planted faults, as the benchmark makes them, and what is found about them."""

import json
import os
import re
import runpy
from pathlib import Path

import numpy as np

from coord_data.inspection.examine import evidence_of, examination_of
from coord_data.inspection.numbers.edges import EdgeMaps, Sample
from coord_data.inspection.numbers.geometry import examine_geometry
from coord_data.inspection.rules import InspectionRules
from coord_data.sources.read_as import ReadAs

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "planted_faults.py"))
COCO, JSONL, DataSource, Draft, shapes = (
    BENCHMARK[name] for name in ("COCO", "JSONL", "DataSource", "Draft", "shapes")
)
centred, padded, read, sized = (BENCHMARK[name] for name in ("_centred", "padded", "read", "_sized"))
SHARED_DATA = Path(os.environ.get("COORDEXP_SHARED", Path(__file__).parents[5] / "shared")) / "data"


def examine(source, heldout=None, **more):
    """Return the examination of a source, which is compared with another one."""
    other = heldout and evidence_of(heldout.annotations, heldout.rules)
    return examination_of(source.annotations, InspectionRules.of(source.rules, **more), heldout=other)


def told(source, **more):
    """Return the codes of all findings but notes, and everything that was found."""
    found = examine(source, **more)
    return {f.code for f in found.findings if f.severity != "note"}, found


def told_of_boxes(draft):
    """Return the findings about the boxes of a draft by code, and the meaning of its numbers."""
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    found, meaning = examine_geometry(raw, raw.stated_I2, Sample(maps, np.arange(len(raw)), raw.image_N))
    return {finding.code: finding for finding in found}, meaning


def told_reading(finding):
    """Return the reading that the command of a finding names."""
    return ReadAs.parse(re.search(r"--read-as (\S+?)(?:,? |$)", finding.fix)[1])


def edit_records(source, change):
    """Change the records of an instance file in place."""
    records = [json.loads(line) for line in source.annotations.read_text().splitlines()]
    change(records)
    source.annotations.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
