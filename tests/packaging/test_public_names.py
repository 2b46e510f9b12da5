import importlib
import inspect
import json
from pathlib import Path

import pytest

LAYERS = ["engine", "llm", "text", "chat", "server"]

each_layer = pytest.mark.parametrize("layer", LAYERS)


@pytest.fixture
def public_names() -> dict[str, list[str]]:
    """The names that users may rely on, by package: adding or removing one is a decision."""
    names: dict[str, list[str]] = json.loads(
        Path(__file__).with_name("public_names.json").read_text()
    )
    return names


@each_layer
def test_the_public_names_are_the_pinned_ones(layer, public_names):
    package = importlib.import_module(f"umbel_{layer}")
    assert list(package.__all__) == public_names[f"umbel_{layer}"]


@each_layer
def test_the_public_names_are_sorted_and_listed_once(layer):
    names = importlib.import_module(f"umbel_{layer}").__all__
    # The order of ruff's RUF022: constants, classes, then functions.
    assert list(names) == sorted(set(names), key=lambda name: (name_kind(name), name))


def name_kind(name: str) -> int:
    if name.isupper():
        return 0
    return 1 if name[:1].isupper() else 2


@each_layer
def test_every_public_name_exists_and_is_documented(layer):
    package = importlib.import_module(f"umbel_{layer}")
    assert package.__doc__
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"umbel_{layer}.{name} has no docstring"
