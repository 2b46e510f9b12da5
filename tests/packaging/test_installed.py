"""The environment that runs these tests must hold wheels, not the source tree."""

import importlib.metadata
import importlib.util
import json
import os
import sysconfig
from pathlib import Path

import pytest

LAYERS = ["engine", "llm", "text", "chat", "server"]


@pytest.fixture
def layers() -> list[str]:
    """The layer that the environment was made for, and those below it."""
    layer = os.environ.get("UMBEL_LAYER")
    if layer is None:
        pytest.skip("only tox makes environments with wheels")
    return LAYERS[: LAYERS.index(layer) + 1]


def test_only_the_layer_and_those_below_it_are_installed(layers):
    names = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    installed = {name for name in names if name.lower().startswith("umbel")}
    assert installed == {f"umbel-{layer}" for layer in layers}
    above = [layer for layer in LAYERS if layer not in layers]
    assert not [layer for layer in above if importlib.util.find_spec(f"umbel_{layer}")]


def test_the_packages_are_imported_from_site_packages(layers):
    site_packages = Path(sysconfig.get_path("purelib"))
    for layer in layers:
        spec = importlib.util.find_spec(f"umbel_{layer}")
        assert spec is not None
        assert spec.origin == str(site_packages / f"umbel_{layer}/__init__.py")


def test_the_packages_were_installed_from_wheels(layers):
    for layer in layers:
        text = importlib.metadata.distribution(f"umbel-{layer}").read_text("direct_url.json")
        assert text is not None
        origin = json.loads(text)
        assert origin["url"].endswith(".whl")
        assert "dir_info" not in origin
