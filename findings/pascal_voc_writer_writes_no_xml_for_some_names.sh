#!/usr/bin/env bash
# pascal-voc-writer 0.1.4: names go into its XML as they are, so that a class such as "cat & dog" or "<5 mm" is a file that no reader of XML
# opens; and it writes corners as they are given, although Pascal VOC counts pixels from 1. The faults are seen when the data is read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps pascal-voc-writer==0.1.4 jinja2==3.1.6 markupsafe==3.0.3
venv/bin/python - <<'PYTHON'
from importlib.metadata import version
from xml.etree import ElementTree

from pascal_voc_writer import Writer


def written(name):
    """Return the file of one box, which touches the left upper corner of its image."""
    writer = Writer("a.jpg", 100, 80)
    writer.addObject(name, 0, 0, 40, 60)
    writer.save("a.xml")
    return ElementTree.parse("a.xml")


faults = []
for name in ("cat & dog", "<5 mm"):
    try:
        written(name)
    except ElementTree.ParseError as error:
        faults.append(f"{name}: {error}")
first = written("cat").findtext("object/bndbox/xmin")
print("pascal-voc-writer", version("pascal-voc-writer"))
print("names that are no XML:", faults, "(expected none)")
print("first pixel of a box at the border of its image:", first, "(expected 1)")
raise SystemExit(not (len(faults) == 2 and first == "0"))
PYTHON
