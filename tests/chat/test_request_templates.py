"""Templates of requests, which run in processes of their own: what they may take, and see."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import jinja2
import pytest

from umbel_chat import ChatLlm, ChatModel, ChatRequest, ChatTemplate, InvalidChatError, rendering
from umbel_chat import processes as module
from umbel_chat.messages import Message
from umbel_chat.processes import MIB, RenderingProcesses, TemplateLimits
from umbel_text import TextLlm, TextModel

Ask = Callable[..., ChatRequest]

LIMITS = TemplateLimits()
CONVERSATION: list[Message] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were started; none may be left."""
    started: list[subprocess.Popen[bytes]] = []

    class Watched(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    yield started
    assert [process for process in started if process.returncode is None] == []


def render(source: str, limits: TemplateLimits = LIMITS, **variables: object) -> str:
    """Render the template of a request for the usual conversation."""
    renderer = RenderingProcesses(limits).compile(source)
    template = ChatTemplate(None).replaced(source, renderer)
    return template.render(CONVERSATION, template_kwargs=variables)


def refusal(source: str, limits: TemplateLimits = LIMITS) -> str:
    with pytest.raises(InvalidChatError) as caught:
        render(source, limits)
    assert caught.value.parameter is None
    return str(caught.value)


def test_what_python_would_have_to_load_is_refused_in_words() -> None:
    assert refusal("{{ 'x'.encode('cp1252') }}") == (
        "The chat template needs a part of Python that it cannot have here."
    )


def test_when_the_server_ends_so_does_what_runs() -> None:
    processes = RenderingProcesses(TemplateLimits(seconds=60))
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(processes.run, endless, {})
        while not processes._running:
            time.sleep(0.01)
        processes.close()
        with pytest.raises((InvalidChatError, RuntimeError)):
            running.result(timeout=20)
    with pytest.raises(RuntimeError, match="no chat template is rendered any more"):
        processes.run("x", {})


# What it gives is what the model's own would give.


GOOD = {
    "what jinja2 imports late": (
        "{{ messages | pprint }}{{ 'a b c d e f' | wordwrap(3) }}{{ lipsum() is string }}"
        "{{ '<b>a</b>' | striptags }}{{ '\\N{EM DASH}' }}{{ 'http://a.example' | urlize }}{{ 'ä€😀' | upper }}"
    ),
    "filters, tests and globals": (
        "{{ messages | tojson(indent=1) }}{{ 3000000 | filesizeformat }}{{ {'a': 1} | xmlattr }}"
        "{{ [3, 1] | sort | join(',') }}{{ 'a' is in ['a'] }}{{ dict(a=1) }}{{ 'x' | urlencode }}"
        "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% set ns.n = ns.n + i %}"
        "{% if i == 5 %}{% break %}{% endif %}{% endfor %}{{ ns.n }}"
        "{% generation %}{{ messages | map(attribute='role') | list }}{% endgeneration %}"
        "{{ messages | groupby('role') }}{{ cycler(1, 2).next() }}{{ '%5.1f' | format(1) }}"
    ),
    "arguments": "{{ x }}{{ y is defined }}{{ tools }}{{ documents }}{{ add_generation_prompt }}",
    "what has no place in UTF-8": "{{ x.surrogate }}{{ '\\ud800' }}",
    "nothing": "",
}
ARGUMENTS: dict[str, object] = {
    "x": {"surrogate": "\udfff", "numbers": [10**30, 0.1, float("inf"), True, None]},
    "tools": [{"type": "function"}],
    "unused": object(),
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_it_renders_as_the_model_s_own_would(source: str) -> None:
    here = ChatTemplate(source).render(CONVERSATION, template_kwargs=ARGUMENTS)
    assert render(source, **ARGUMENTS) == here


BAD = [
    "{{ raise_exception('Only two roles, please.') }}",
    "{{ messages[0].missing.field }}",
    "{{ missing() }}",
    "{{ 1 / 0 }}",
    "{{ [] | first | upper }}{{ messages.__class__.x }}",
    "{% include '/etc/passwd' %}",
    "{{ x | no_filter }}",
    "{% if %}",
    "{% for x in y %}" * 30 + "{% endfor %}" * 30,
]


@pytest.mark.parametrize("source", BAD)
def test_it_fails_in_the_words_that_the_model_s_own_would_fail_in(source: str) -> None:
    with pytest.raises(Exception) as caught:
        ChatTemplate(source).render(CONVERSATION)
    assert refusal(source) == str(caught.value).removeprefix("the chat template is not valid: ")


def test_the_final_message_is_continued() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}"
    template = ChatTemplate(None).replaced(source, RenderingProcesses(LIMITS).compile(source))
    rendered = template.render(
        [{"role": "assistant", "content": "So "}],
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert rendered == "<assistant>So"


def test_special_tokens_and_contents_are_as_for_any_template(
    text_model: TextModel, ask: Ask
) -> None:
    model = ChatModel("m", ChatTemplate("", {"eos_token": "<e>"}), trust_request_template=True)
    chat = ChatLlm(model, TextLlm(text_model))
    source = "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}{{ eos_token }}"
    source = "{% for m in messages %}" + source.replace("messages[0]", "m") + "{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat.render(ask(parts, chat_template=source)) == "[a][b]<e>"


def test_the_date_is_that_of_the_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    for zone in ("EAST-14", "WEST+10"):
        monkeypatch.setenv("TZ", zone)
        times.append(datetime.fromisoformat(render("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}")))
    # A day lies between them, less the time that the second one took to come.
    assert timedelta(hours=23) < times[0] - times[1] <= timedelta(hours=24)
    assert render("{{ strftime_now('%%été') }}") == "%été"


def test_it_never_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja2.Environment, "__init__", pytest.fail)
    assert render("{{ messages[0].content }}") == "Hi"


# What it may take.


ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro again(n) %}{% for i in range(9) %}{{ again(n + 1) if n < 99 }}{% endfor %}"
    "{% endmacro %}{{ again(0) }}",
    # Constants are worked out when the template is compiled.
    "{{ 9 ** (9 ** 9) }}",
    "{% set n = 9 %}{{ n ** (n ** n) }}",
    "{% for a in range(99999) %}{% set b = messages | pprint | urlize | wordwrap(1) %}{% endfor %}",
]


def test_a_template_that_does_not_end_is_ended() -> None:
    limits = TemplateLimits(seconds=1.5)
    with ThreadPoolExecutor(len(ENDLESS)) as threads:
        refusals = set(threads.map(lambda source: refusal(source, limits), ENDLESS))
    assert refusals == {"The chat template of the request took longer than the limit of 1.5 s."}


GREEDY = [
    "{% set ns = namespace(x='ab') %}"
    "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 'x' | center(10 ** 9) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'x'.ljust(10 ** 9) }}",
    "{{ range(9999) | join('x' * 99999) }}",
    "{{ ((range(99999) | list) * 999) | length }}",
    "{{ ('a' * 9999).replace('a', 'b' * 99999) }}",
    "{{ (['x' * 99999] * 9999) | join | upper }}",
    "{% set x %}{% for i in range(99999) %}{{ messages[0].content * 9999 }}{% endfor %}{% endset %}",
]


def test_a_template_that_takes_much_memory_is_ended() -> None:
    limits = TemplateLimits(memory=64 * MIB)
    with ThreadPoolExecutor(4) as threads:
        refusals = set(threads.map(lambda source: refusal(source, limits), GREEDY))
    assert refusals == {
        "The chat template of the request took more memory than the limit of 64 MiB."
    }


def test_the_text_has_a_limit_in_bytes() -> None:
    limits = TemplateLimits(output=MIB)
    assert render("{{ 'é' * (512 * 1024) }}", limits) == "é" * 512 * 1024
    words = "The chat template of the request made more text than the limit of 1 MiB."
    assert refusal("{{ 'é' * (512 * 1024) }}.", limits) == words
    assert refusal("{{ raise_exception('x' * (1024 * 1024 + 1)) }}", limits) == words


def test_a_long_template_is_not_even_looked_at(started: list[subprocess.Popen[bytes]]) -> None:
    limits = TemplateLimits(source=10)
    assert render("0123456789", limits) == "0123456789"
    del started[:]
    assert refusal("01234567890", limits) == (
        "The chat template of the request has 11 characters, more than the limit of 10."
    )
    assert started == []


DEEP = [
    "{{ " + "(" * 99_999,
    "{{ " + "[" * 500 + "]" * 500 + " }}",
    "{{ " + "-" * 9_999 + "1 }}",
    "{{ " + "1+" * 9_999 + "1 }}",
    "{{ x" + ".a" * 9_999 + " }}",
    "{{ x" + "|upper" * 9_999 + " }}",
    "{{ " + "not " * 9_999 + "1 }}",
    "{% if 1 %}" * 400 + "{% endif %}" * 400,
    "{% for x in y %}" * 400 + "{% endfor %}" * 400,
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "{% for m in [messages] recursive %}{{ loop([m]) }}{% endfor %}",
]


def test_what_is_nested_too_deeply_is_the_request_s_fault() -> None:
    with ThreadPoolExecutor(4) as threads:
        refusals = list(threads.map(refusal, DEEP))
    assert [
        words for words in refusals if "recursion" not in words and "too many" not in words
    ] == []


def test_arguments_nested_too_deeply_are_the_request_s_fault() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidChatError, match="too deeply nested"):
        render("{{ x }}", x=nested)


# What it can see.


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Put some lines in the place of the program, after READY if they are to come then."""

    def program(lines: str, ready: bool = True) -> None:
        path = tmp_path / "program.py"
        begin = "import os, sys, signal, time\n" + ("os.write(0, b'R')\n" if ready else "")
        path.write_text(begin + lines)
        monkeypatch.setattr(rendering, "__file__", str(path))

    return program


PROBE = """
import json, resource
sys.path.append({folder!r})
import rendering
rendering.prepare(sys.argv[4:])
found = {{
    "environment": dict(os.environ),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "folder": os.getcwd(),
    "isolated": sys.flags.isolated,
    "modules": sorted(name for name in sys.modules if name.startswith(("umbel", "msgspec"))),
    "arguments": sys.argv[1:4],
}}
rendering.confine(5, 64 << 20)
def attempt(work):
    try:
        work()
    except (OSError, MemoryError) as error:
        return type(error).__name__
found["opened"] = attempt(lambda: open("/etc/passwd"))
found["piped"] = attempt(os.pipe)
found["taken"] = attempt(lambda: bytearray(128 << 20))
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
text = json.dumps(found).encode()
os.write(0, rendering.DONE + len(text).to_bytes(8, "big") + text)
"""


def test_the_process_has_nothing_of_this_one(
    program: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(PROBE.format(folder=str(Path(rendering.__file__).parent)))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with (tmp_path / "open").open("w") as file:
        assert file.fileno() > 2
        found = json.loads(RenderingProcesses(LIMITS).run("", {}))
    # Python itself may set how characters are encoded.
    assert found["environment"].keys() - {"LC_CTYPE"} == {"TZ"}
    assert found["descriptors"] == [0, 1, 2]
    assert (found["folder"], found["isolated"]) == ("/", 1)
    assert found["modules"] == ["umbel_chat", "umbel_chat.content_format", "umbel_chat.environment"]
    assert found["arguments"] == ["5", str(512 * MIB), str(32 * MIB)]
    assert (found["opened"], found["piped"], found["taken"]) == (
        "OSError",
        "OSError",
        "MemoryError",
    )
    assert found["core"] == [0, 0]


# What becomes of the process.


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended the process that ran it: SIGSEGV."),
        ("os._exit(3)", "ended the process that ran it: exit status 3."),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "took longer than the limit of 2 s."),
        ("os.write(0, b'D' + bytes(7) + b'\\x09half')", "ended the process that ran it: "),
        ("os.write(0, b'D' + b'\\xff' * 8); time.sleep(99)", "ended the process that ran it: "),
        ("os.close(0); time.sleep(99)", "ended the process that ran it: "),
        ("time.sleep(99)", "took longer than the limit of 2 s."),
    ],
)
def test_a_process_that_ends_or_hangs_refuses_the_request(
    program: Callable[..., None], lines: str, words: str
) -> None:
    program(lines)
    said = refusal("", TemplateLimits(seconds=2))
    assert said.startswith(f"The chat template of the request {words}")


def test_a_process_that_does_not_begin_is_no_fault_of_the_request(
    program: Callable[..., None],
) -> None:
    program("os._exit(3)", ready=False)
    with pytest.raises(RuntimeError, match="exit status 3"):
        render("")


def test_a_process_that_takes_no_job_is_not_waited_for(program: Callable[..., None]) -> None:
    program("time.sleep(99)")
    with pytest.raises(InvalidChatError, match="took longer"):
        RenderingProcesses(TemplateLimits(seconds=1)).run("", {"x": "x" * 10 * MIB})


def test_no_more_than_the_limit_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    most: list[int] = []
    all_in, lock = threading.Event(), threading.Lock()

    class Held:
        def __init__(self, *_: object) -> None:
            with lock:
                running.append(1)
                most.append(len(running))
                if len(running) == 2:
                    all_in.set()

        def __enter__(self) -> "Held":
            return self

        def __exit__(self, *_: object) -> None:
            with lock:
                running.pop()

        def ask(self, job: bytes) -> tuple[bytes, bytes]:
            assert all_in.wait(20)
            # Whoever were to come beside these would come now.
            time.sleep(0.01)
            return rendering.DONE, b""

    monkeypatch.setattr(module, "_Process", Held)
    processes = RenderingProcesses(TemplateLimits(at_once=2))
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: processes.run("", {}), range(12)))
    assert max(most) == 2


def test_what_interrupts_the_waiting_ends_the_process(
    program: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    started: list[subprocess.Popen[bytes]],
) -> None:
    program("time.sleep(99)")

    def interrupted(self: object, size: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Process, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RenderingProcesses(LIMITS).run("", {})
    assert len(started) == 1
