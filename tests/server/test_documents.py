"""What the documents state, compared with the code that it is about."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from umbel_server.cli import make_parser, settings_of

ROOT = Path(__file__).resolve().parents[2]

DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
]
DOCUMENTS += [str(path.relative_to(ROOT)) for path in ROOT.glob("packages/*/README.md")]


def section(text, title):
    """Give the part of a document below a heading."""
    _, _, rest = text.partition(f"\n## {title}\n")
    assert rest
    return rest.partition("\n## ")[0]


def first_column(text):
    """Give what stands between backticks in the first column of a table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


class Recorder(dict):
    """An environment that notes which variables are read."""

    def __init__(self):
        super().__init__()
        self.read = set()

    def get(self, name, default=None):
        self.read.add(name)
        return default


def test_the_tables_that_are_written_from_the_code_are_up_to_date():
    script = ROOT / "scripts" / "tables.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_environment_variables_are_those_that_are_read(document_text):
    environ = Recorder()
    settings_of(make_parser().parse_args(["serve"]), (), environ)
    documented = first_column(section(document_text("docs/operations.md"), "Environment variables"))
    # The engine layer reads this one, for the sample model alone.
    assert set(documented) == environ.read | {"XDG_CACHE_HOME"}


async def test_the_routes_are_those_that_are_served(document_text, serve):
    server = await serve()
    documented = first_column(section(document_text("docs/compatibility.md"), "Routes"))
    routes = {f"{route.method} {route.resource.canonical}" for route in server.app.router.routes()}
    assert set(documented) == routes


async def test_the_documented_metrics_are_those_that_are_exposed(document_text, serve):
    server = await serve(tool_parser="hermes")
    await server.ask()
    text = (await server.get("/metrics")).text
    families = set(
        re.findall(r"^# TYPE vllm:(\w+) (?:counter|histogram|gauge)", text, re.MULTILINE)
    )
    exposed = {name for name in families if not name.endswith("_created")}
    documented = section(document_text("docs/operations.md"), "Metrics")
    names = set(first_column(documented)) - {"vllm:"}
    assert names <= exposed
    # Few engines have these caches and estimates.
    rare = ("mm_cache_", "external_prefix_cache_", "estimated_")
    assert {name for name in exposed - names if not name.startswith(rare)} == set()
    for name in re.findall(r"`(http_\w+)`", documented):
        assert f"\n{name}" in text


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_every_link_leads_somewhere(document_text, document):
    for target in re.findall(r"\]\(([^)]+)\)", document_text(document)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (ROOT / document).parent / path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_module_on_the_way_of_a_request_exists(document_text):
    way = section(document_text("docs/architecture.md"), "The way of a request")
    names = first_column(way)
    assert len(names) > 30
    folder = ""
    for name in names:
        if name.startswith("."):
            name = folder + name
        folder = name.rpartition(".")[0]
        package = name.partition(".")[0].removeprefix("umbel_")
        assert (ROOT / f"packages/{package}/src/{name.replace('.', '/')}.py").is_file(), name
