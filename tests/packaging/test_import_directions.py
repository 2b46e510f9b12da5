import json
import subprocess
import sys

import pytest

LAYERS = ["engine", "llm", "text", "chat", "server"]
FORBIDDEN = ["torch", "transformers", "vllm"]

# Imports every module of a package in a new interpreter and tells what that looked for and loaded.
# The finder sees an import of a package that is not installed, and one that is caught, as well.
IMPORT_ALL = """
import importlib, importlib.abc, json, pkgutil, sys

package, watched = sys.argv[1], json.loads(sys.argv[2])
looked_for = set()

class Watcher(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in watched:
            looked_for.add(name)

sys.meta_path.insert(0, Watcher())
imported = [package]
for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
        imported.append(module.name)
json.dump({"imported": imported, "looked_for": sorted(looked_for)}, sys.stdout)
"""


def import_all(package: str, watched: list[str]) -> dict[str, list[str]]:
    command = [sys.executable, "-W", "error", "-c", IMPORT_ALL, package, json.dumps(watched)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_importing_every_module_of_a_layer_loads_neither_the_engine_nor_a_layer_above(layer):
    above = [f"umbel_{other}" for other in LAYERS[LAYERS.index(layer) + 1 :]]
    found = import_all(f"umbel_{layer}", FORBIDDEN + above)
    assert f"umbel_{layer}" in found["imported"]
    assert found["looked_for"] == []


def test_a_forbidden_import_is_seen_even_when_it_is_caught(tmp_path, monkeypatch):
    (tmp_path / "offender").mkdir()
    (tmp_path / "offender/__init__.py").write_text(
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import vllm\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_all("offender", FORBIDDEN)["looked_for"] == ["vllm"]


def test_the_command_starts_without_what_only_some_requests_need():
    heavy = ["numpy", "huggingface_hub", "gguf", "safetensors"]
    code = f"import sys, umbel_server.cli; print(sorted(set(sys.modules) & {set(heavy)!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
