import ast
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

LAYERS = ["engine", "llm", "text", "chat", "server"]

# What each layer may need beyond its siblings; a new entry is a decision.
THIRD_PARTY = {
    "engine": {"msgspec", "numpy", "pyzmq"},
    "llm": {"msgspec", "prometheus-client"},
    "text": {"huggingface-hub", "msgspec", "tokenizers"},
    "chat": {"jinja2", "markupsafe", "msgspec"},
    "server": {"aiohttp", "msgspec", "numpy", "prometheus-client", "pyzmq"},
}
COMMANDS = {
    "engine": ["umbel-mock-engine = umbel_engine.mock_command:main"],
    "server": ["umbel = umbel_server.cli:main"],
}

each_layer = pytest.mark.parametrize("layer", LAYERS)


def distribution(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def test_the_workspace_builds_exactly_five_wheels(wheels):
    assert set(wheels) == {f"umbel-{layer}" for layer in LAYERS}


@each_layer
def test_a_wheel_is_pure_python_for_every_platform(wheels, layer):
    wheel = wheels[f"umbel-{layer}"]
    assert wheel.filename.endswith("-py3-none-any.whl")
    assert wheel.metadata["Requires-Python"] == ">=3.11"


@each_layer
def test_a_wheel_holds_its_one_package_and_nothing_else(wheels, layer):
    wheel = wheels[f"umbel-{layer}"]
    version = wheel.metadata["Version"]
    tops = {name.partition("/")[0] for name in wheel.names}
    assert tops == {f"umbel_{layer}", f"umbel_{layer}-{version}.dist-info"}


@each_layer
def test_a_wheel_holds_every_source_file_of_its_package(wheels, layer, root: Path):
    source = root / f"packages/{layer}/src"
    files = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= set(wheels[f"umbel-{layer}"].names)
    assert f"umbel_{layer}/__init__.py" in files


@each_layer
def test_a_wheel_says_that_it_is_typed(wheels, layer):
    wheel = wheels[f"umbel-{layer}"]
    assert f"umbel_{layer}/py.typed" in wheel.names
    assert "Typing :: Typed" in wheel.metadata.get_all("Classifier", [])


@each_layer
def test_a_wheel_carries_the_licence(wheels, layer, root: Path):
    wheel = wheels[f"umbel-{layer}"]
    assert wheel.metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.names)
    licence = (root / "LICENSE").read_bytes()
    assert (root / f"packages/{layer}/LICENSE").read_bytes() == licence


@each_layer
def test_the_readme_is_the_long_description(wheels, layer, root: Path):
    metadata = wheels[f"umbel-{layer}"].metadata
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = (root / f"packages/{layer}/README.md").read_text()
    assert str(metadata.get_payload()).strip() == readme.strip()
    assert metadata["Summary"].endswith(".")


@each_layer
def test_only_the_expected_third_party_packages_are_required(wheels, layer):
    required = {
        distribution(requirement)
        for requirement in wheels[f"umbel-{layer}"].requirements
        if "extra ==" not in requirement
    }
    siblings = {name for name in required if name.startswith("umbel-")}
    assert required - siblings == THIRD_PARTY[layer]


@each_layer
def test_the_commands_are_installed_by_the_layer_that_owns_them(wheels, layer):
    lines = wheels[f"umbel-{layer}"].entry_points.splitlines()
    assert [line for line in lines if "=" in line] == COMMANDS.get(layer, [])


def imported_packages(source: Path) -> set[str]:
    """Give the top-level packages that the modules of a folder import, wherever they do so."""
    packages: set[str] = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                packages.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                packages.add(node.module.partition(".")[0])
    return packages - sys.stdlib_module_names


@each_layer
def test_a_layer_requires_every_package_that_it_imports_by_itself(layer, root: Path):
    imported = imported_packages(root / f"packages/{layer}/src")
    # headless.py runs in the engine's environment alone.
    names = imported - {"vllm"} - {f"umbel_{other}" for other in LAYERS}
    distributions = importlib.metadata.packages_distributions()
    providers = {distributions[name][0].lower().replace("_", "-") for name in names}
    assert providers <= THIRD_PARTY[layer]
