"""What ms-swift declares is compared with what is installed before anything slow begins."""

from importlib import metadata

import pytest

from coord_codec import RunError
from coord_trainer.requirements import refuse_other_versions


def test_installed_versions_are_those_that_ms_swift_declares():
    refuse_other_versions()


@pytest.mark.parametrize(("found", "words"), [("5.24.0", r"<5\.20.*found 5\.24\.0"), (None, "nothing installed")])
def test_another_version_is_named_with_what_is_declared(monkeypatch, found, words):
    own = metadata.version

    def version(name):
        if name != "transformers":
            return own(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(RunError, match=f"transformers: ms-swift .* needs .*{words}"):
        refuse_other_versions()
