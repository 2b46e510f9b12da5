"""The program of a process that compiles or renders one template that nobody vouches for.

`umbel_chat.processes` starts it by its path: `python -I -S rendering.py CPU MEMORY OUTPUT PATH...`,
with limits in seconds and bytes, and the folders that jinja2 is found in.  Its standard input is a
socket: it says READY there, reads a job until the end, a marshalled (source, variables), and writes
one answer: a letter, the size of the rest, and UTF-8.  The process is a second wall around the
sandbox of jinja2: it has nothing to give away, and whatever it takes goes with it.
"""

import codecs
import contextlib
import json
import marshal
import os
import resource
import sys
import types

READY = b"R"
DONE = b"D"
"""Precedes the text, or what is known of the template when there are no variables, as JSON."""
FAILED = b"F"
"""Precedes the words in which the template failed."""
OUT_OF_MEMORY = b"M"
TOO_LONG = b"L"

SIZE_BYTES = 8
"""The size is big-endian."""

SOCKET = 0

LOADED_LATE = ("html", "jinja2.constants", "jinja2.debug", "pprint", "textwrap", "unicodedata")
"""What jinja2 would import when a template needs it, when no file can be opened any more."""


def main() -> None:
    """Do one job within limits."""
    cpu, memory, output = map(int, sys.argv[1:4])
    prepare(sys.argv[4:])
    confine(cpu, memory)
    os.write(SOCKET, READY)
    try:
        letter, text = answer_to(read_job(), output)
    except MemoryError:
        letter, text = OUT_OF_MEMORY, b""
    write(letter + len(text).to_bytes(SIZE_BYTES, "big"))
    write(text)
    # There is nothing to tidy up, and what the template left behind may take long to free.
    os._exit(0)


def prepare(folders: list[str]) -> None:
    """Import all that a template can need."""
    # The package without its own __init__, which imports every layer.
    package = types.ModuleType("umbel_chat")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["umbel_chat"] = package
    sys.path.extend(folders)
    for name in ("umbel_chat.environment", *LOADED_LATE):
        __import__(name)
    codecs.lookup("unicode_escape")


def confine(cpu: int, memory: int) -> None:
    """Give up whatever rendering does not need; `memory` is in bytes on top of what is used now."""
    # When the system itself runs out of memory, this process goes before the server does.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    # It ends this process even if nobody is left to kill it; one more second makes it a SIGXCPU.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    limits = {
        resource.RLIMIT_AS: used_memory() + memory,
        # A core would have the conversation in it.
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def used_memory() -> int:
    """Give the bytes of address space that are in use."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()


def read_job() -> tuple[str, dict[str, object] | None]:
    """Read the source, and the variables unless the template is only to be described."""
    chunks = []
    while chunk := os.read(SOCKET, 1 << 20):
        chunks.append(chunk)
    # Both ends are the same Python, and the other one is trusted.
    job: tuple[str, dict[str, object] | None] = marshal.loads(b"".join(chunks))  # noqa: S302
    return job


def answer_to(job: tuple[str, dict[str, object] | None], output: int) -> tuple[bytes, bytes]:
    """Compile and render; `output` is the most bytes of text."""
    from umbel_chat.environment import CompiledTemplate, reason_of

    source, variables = job
    try:
        template = CompiledTemplate(source)
        if variables is None:
            text = json.dumps(
                {"used": sorted(template.used), "content_format": template.content_format}
            )
        else:
            text = template.render(variables)
        letter = DONE
    except MemoryError:
        raise
    except OSError:
        letter, text = FAILED, "The chat template needs a part of Python that it cannot have here."
    except Exception as error:
        letter, text = FAILED, reason_of(error)
    encoded = text.encode("utf-8", "surrogatepass")
    return (letter, encoded) if len(encoded) <= output else (TOO_LONG, b"")


def write(data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(SOCKET, rest) :]


if __name__ == "__main__":
    main()
