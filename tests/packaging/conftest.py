import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


class Wheel(NamedTuple):
    """What a test looks at in a wheel."""

    filename: str
    names: list[str]
    metadata: Message
    entry_points: str

    @property
    def requirements(self) -> list[str]:
        return self.metadata.get_all("Requires-Dist", [])


def read_wheel(path: Path) -> Wheel:
    with ZipFile(path) as archive:
        names = archive.namelist()

        def read(suffix: str) -> str:
            found = [name for name in names if name.endswith(f".dist-info/{suffix}")]
            return archive.read(found[0]).decode() if found else ""

        metadata = Parser().parsestr(read("METADATA"))
        return Wheel(path.name, names, metadata, read("entry_points.txt"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The workspace's folder."""
    return ROOT


@pytest.fixture(scope="session")
def wheels() -> dict[str, Wheel]:
    """Every wheel that the workspace builds, by the name of its distribution."""
    subprocess.run([sys.executable, ROOT / "scripts/wheels.py", "build"], check=True)
    built = [read_wheel(path) for path in sorted((ROOT / "dist").glob("*.whl"))]
    return {str(wheel.metadata["Name"]): wheel for wheel in built}
