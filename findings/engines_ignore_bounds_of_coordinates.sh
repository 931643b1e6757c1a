#!/usr/bin/env bash
# outlines-core 0.2.14 and lm-format-enforcer 0.11.3: both take a JSON schema of four integers with `minimum` 0 and `maximum` 999, and ignore the bounds
# without a word; the number of items is kept. Both are behind structured output of servers. A model that is "held" to coordinates of 0 to 999 still
# writes -5 or 99999, and whoever relies on the schema draws boxes outside of their image.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps numpy==2.4.6 outlines-core==0.2.14 lm-format-enforcer==0.11.3 interegular==0.3.3 packaging==26.4 pyyaml==6.0.4 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 typing-inspection==0.4.5
venv/bin/python - <<'PYTHON'
import json
import re
from importlib.metadata import version

from lmformatenforcer import JsonSchemaParser
from outlines_core.json_schema import build_regex_from_schema

side = {"type": "integer", "minimum": 0, "maximum": 999}
schema = {"type": "array", "items": side, "minItems": 4, "maxItems": 4}
pattern = re.compile(build_regex_from_schema(json.dumps(schema)))


def enforcer_takes(text):
    """Say whether lm-format-enforcer lets a model write a text, letter by letter."""
    state = JsonSchemaParser(schema)
    for letter in text:
        if letter not in state.get_allowed_characters():
            return False
        state = state.add_character(letter)
    return state.can_end()


texts = ("[10, 20, 300, 400]", "[10, 20, 300]", "[-5, 20, 300, 99999]")
outlines = [pattern.fullmatch(text) is not None for text in texts]
enforcer = [enforcer_takes(text) for text in texts]
print("outlines-core", version("outlines-core"), "and lm-format-enforcer", version("lm-format-enforcer"))
print("expected: four integers of 0 to 999 alone: [True, False, False]")
print(f"seen of {', '.join(texts)}: outlines-core {outlines}, lm-format-enforcer {enforcer}")
assert outlines == enforcer == [True, False, True]
PYTHON
