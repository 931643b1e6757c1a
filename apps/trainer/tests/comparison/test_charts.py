"""The loss curves of a comparison go over the table of terms."""

import re
from types import SimpleNamespace

import pytest

from coord_eval.html import series_styles
from coord_losses import register_term, registered_terms
from coord_losses.terms import registry
from coord_trainer.comparison.charts import loss_curves


@pytest.fixture
def own_term():
    yield register_term(
        "own", lambda inputs: inputs.expected_C, needs="expectation", log_key="mine/own", title="a term of one's own"
    )
    del registry._TERMS["own"]


def test_every_trainable_term_has_a_curve_of_its_title_whoever_registered_it(own_term):
    terms = [term for term in registered_terms().values() if term.trainable]
    keys = {f"coord_diag/{term.log_key}": term.title for term in terms}
    log = [{"step": step} | dict.fromkeys(keys, 1.0 / step) for step in (1, 2, 3)]
    html = loss_curves(SimpleNamespace(logs={"a": [log]}), series_styles("a"))
    titles = {title.replace("&#x27;", "'") for title in re.findall(r"<figcaption>(.*?)</figcaption>", html)}
    assert own_term in terms and titles == set(keys.values())
