#!/usr/bin/env bash
# pascal-voc-writer 0.1.4: names go into its XML as they are, so that a class such as "cat & dog" or "<5 mm" is a file that no reader of XML
# opens. The annotations of a set are gone, and this is seen when the data is read.
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
    """Write one box of this name, and read the file."""
    writer = Writer("a.jpg", 100, 80)
    writer.addObject(name, 0, 0, 40, 60)
    writer.save("a.xml")
    ElementTree.parse("a.xml")


faults = []
for name in ("cat & dog", "<5 mm"):
    try:
        written(name)
    except ElementTree.ParseError as error:
        faults.append(f"{name}: {error}")
written("cat")
print("pascal-voc-writer", version("pascal-voc-writer"))
print("names that are no XML:", faults, "(expected none)")
raise SystemExit(len(faults) != 2)
PYTHON
