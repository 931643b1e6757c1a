#!/usr/bin/env bash
# labelformat 0.1.17: its CVAT reader refuses every file that begins with `<?xml version="1.0" encoding="utf-8"?>`, as all exports of CVAT do: it hands
# decoded text to lxml, which takes no declaration there. The same boxes without the declaration are read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps annotated-types==0.8.0 defusedxml==0.7.1 fsspec==2026.9.0 labelformat==0.1.17 lxml==6.1.3 numpy==2.4.6 pillow==12.3.0 pydantic-core==2.50.5 pydantic-xml==2.22.0 pydantic==2.14.4 pyyaml==6.0.4 typing-extensions==4.16.0 typing-inspection==0.4.5 tqdm==4.70.1
venv/bin/python - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

from labelformat.formats import CVATObjectDetectionInput

text = """<annotations><version>1.1</version>
<meta><task><labels><label><name>cat</name><attributes></attributes></label></labels></task></meta>
<image id="0" name="a.jpg" width="100" height="80">
<box label="cat" source="manual" occluded="0" xtl="10.00" ytl="20.00" xbr="40.00" ybr="60.00" z_order="0"></box>
</image></annotations>
"""
Path("plain.xml").write_text(text)
Path("cvat.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{text}')
(label,) = CVATObjectDetectionInput(Path("plain.xml")).get_labels()
print(f"labelformat {version('labelformat')}")
print(f"expected of both files: {label.objects[0].box}")
try:
    seen = str(list(CVATObjectDetectionInput(Path("cvat.xml")).get_labels()))
except ValueError as error:
    seen = f"ValueError: {error}"
print(f"seen of the file with a declaration, as CVAT writes it: {seen}")
assert "Unicode strings with encoding declaration are not supported" in seen
PYTHON
