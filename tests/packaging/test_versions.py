import itertools
import re
import tomllib
from pathlib import Path

import pytest

LAYERS = ["engine", "llm", "text", "chat", "server"]


def test_all_layers_have_one_version(wheels):
    assert len({wheel.metadata["Version"] for wheel in wheels.values()}) == 1


@pytest.mark.parametrize(("layer", "below"), list(itertools.pairwise(reversed(LAYERS))))
def test_a_layer_requires_exactly_the_same_version_of_the_one_below(wheels, layer, below):
    wheel = wheels[f"umbel-{layer}"]
    siblings = [line for line in wheel.requirements if line.startswith("umbel-")]
    assert siblings == [f"umbel-{below}=={wheel.metadata['Version']}"]


def test_the_lowest_layer_requires_no_sibling(wheels):
    assert not [line for line in wheels["umbel-engine"].requirements if line.startswith("umbel")]


def test_every_package_is_built_with_the_same_pinned_backend(root: Path):
    required = set()
    for layer in LAYERS:
        settings = tomllib.loads((root / f"packages/{layer}/pyproject.toml").read_text())
        required.update(settings["build-system"]["requires"])
    assert len(required) == 1
    assert re.fullmatch(r"hatchling==[\d.]+", required.pop())


def test_the_changelog_has_an_entry_for_the_version(wheels, root: Path):
    version = wheels["umbel-server"].metadata["Version"]
    changelog = (root / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE)
