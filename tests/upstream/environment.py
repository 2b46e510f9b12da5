"""The environment that vLLM's tests run in: that of the engine, with more packages beside it."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

HERE = Path(__file__).parent

BUILD_REQUIREMENTS = ("setuptools-scm>=8,<11", "setuptools-rust>=1.9,<2", "wheel")
"""What telling the metadata of vLLM's source distribution takes, which pip asks for before it
gives the file; that of the engine's environment does the rest."""

REQUIREMENTS = ("pytest==8.4.2", "pytest-asyncio==1.2.0", "pytest-timeout==2.4.0", "orjson>=3.10")

REVISION = "0" * 40


def find_source(version, folder, python):
    """Give the folder of vLLM's source distribution, fetched from the package index if need be."""
    source = folder / f"vllm-{version}"
    if not source.is_dir():
        fetched = folder / "fetched"
        shutil.rmtree(fetched, ignore_errors=True)
        fetch_source(
            version, fetched, install(folder / "build", BUILD_REQUIREMENTS, python), python
        )
        with tarfile.open(next(fetched.glob("*.tar.gz"))) as archive:
            archive.extractall(fetched, filter="data")
        (fetched / source.name).rename(source)
        shutil.rmtree(fetched)
    return source


def fetch_source(version, destination, build, python):
    environment = {
        **os.environ,
        "PYTHONPATH": str(build),
        "VLLM_TARGET_DEVICE": "empty",
        "VLLM_VERSION_OVERRIDE": version,
    }
    command = [python, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    command += [
        "--no-build-isolation",
        "--no-binary",
        "vllm",
        "-d",
        destination,
        f"vllm=={version}",
    ]
    subprocess.run(command, env=environment, check=True)


def install(folder, requirements, python):
    """Give a folder with these packages, to be put before those of the engine's environment."""
    stamp = folder / "requirements"
    wanted = "\n".join(requirements)
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        command = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        # pip complains of what the engine's environment lacks, which this changes nothing about.
        subprocess.run(
            [*command, "--target", folder, *requirements], check=True, stderr=subprocess.DEVNULL
        )
        stamp.write_text(wanted)
    return folder


def make_hub_cache(folder, names, model):
    """Make a cache of the Hugging Face hub in which every one of these names is `model`."""
    for name in names:
        entry = folder / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = entry / "snapshots" / REVISION
        if snapshot.is_symlink() and snapshot.readlink() == model:
            continue
        shutil.rmtree(entry, ignore_errors=True)
        (entry / "refs").mkdir(parents=True)
        (entry / "refs" / "main").write_text(REVISION)
        snapshot.parent.mkdir()
        snapshot.symlink_to(model)
    return folder


COMMAND = """\
#!{python}
import sys

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()

from vllm.entrypoints.cli.main import main

sys.exit(main())
"""


def make_command(folder, python):
    """Give a folder with vLLM's command, which tests of its clients call; it runs the source."""
    folder.mkdir(exist_ok=True)
    command = folder / "vllm"
    command.write_text(COMMAND.format(python=python))
    command.chmod(0o755)
    return folder
