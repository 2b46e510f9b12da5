"""From a conversation to its samples."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from umbel_chat import (
    ChatDelta,
    ChatLlm,
    ChatModel,
    ChatRequest,
    ChatTemplate,
    ContentDelta,
    InvalidChatError,
    InvalidMessageError,
    OutputEvent,
    Tool,
)
from umbel_engine import ABORTED, EngineRequestError, Finish, Samples
from umbel_engine.mock import MockEngine, MockStep, made_up_logprobs, per_child, tokens
from umbel_text import InvalidRequestError, TextLlm, TextModel, Tokenizer

Connect = Callable[..., Awaitable[tuple[ChatLlm, MockEngine]]]
Ask = Callable[..., ChatRequest]


async def collect(samples: Samples[ChatDelta]) -> list[list[ChatDelta]]:
    """Read every sample to its end."""
    deltas: list[list[ChatDelta]] = [[] for _ in samples]
    async for index, delta in samples:
        deltas[index].append(delta)
    return deltas


def content_of(deltas: Sequence[ChatDelta]) -> str:
    return "".join(delta.content for delta in deltas)


async def settle(chat_llm: ChatLlm) -> None:
    """Wait until the engine has seen everything that was sent before."""
    await chat_llm.text.llm.client.call("get_supported_tasks")


class Numbered:
    """A processor that counts what it is fed, and signs with its own number."""

    watched_ids: frozenset[int] = frozenset()
    reasoning_tokens = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.fed: list[tuple[str, list[int]]] = []
        self.finishes = 0

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        self.fed.append((text, list(token_ids)))
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[OutputEvent]:
        self.finishes += 1
        return [ContentDelta(f"#{self.number}")]


class Workshop:
    """Makes numbered processors and keeps them."""

    def __init__(self) -> None:
        self.made: list[Numbered] = []

    def __call__(self) -> Numbered:
        self.made.append(Numbered(len(self.made)))
        return self.made[-1]


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


# The prompt.


async def test_a_conversation_is_rendered_and_tokenized_once_for_all_samples(
    connect: Connect, ask: Ask, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_llm, engine = await connect()
    render, encode = ChatTemplate.render, tokenizer.encode
    calls = []

    def count_render(template: ChatTemplate, *arguments: object, **options: object) -> str:
        calls.append("render")
        return render(template, *arguments, **options)

    def count_encode(text: str, add_special_tokens: bool = True) -> list[int]:
        calls.append("encode")
        return encode(text, add_special_tokens)

    monkeypatch.setattr(ChatTemplate, "render", count_render)
    monkeypatch.setattr(tokenizer, "encode", count_encode)
    async with chat_llm.chat_n(ask("Hi", max_tokens=2), 4) as samples:
        await collect(samples)
    assert calls == ["render", "encode"]
    prompt = encode("<user>Hi<|end|><assistant>", False)
    assert [add.prompt_token_ids for add in engine.adds] == [prompt] * 4


async def test_a_request_that_was_lowered_before_is_not_rendered_again(
    connect: Connect, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_llm, engine = await connect()
    lowered = chat_llm.lower(ask(max_tokens=2), 2)
    monkeypatch.setattr(ChatTemplate, "render", pytest.fail)
    async with chat_llm.chat_n(lowered, 2) as samples:
        await collect(samples)
    assert [add.prompt_token_ids for add in engine.adds] == [lowered.text.prompt_token_ids] * 2


async def test_the_engine_is_asked_for_what_the_request_says(connect: Connect, ask: Ask) -> None:
    chat_llm, engine = await connect()
    request = ask(
        request_id="chatcmpl-9",
        arrival_time=12.5,
        cache_salt="salt",
        data_parallel_rank=0,
        priority=3,
        session_id="session",
        trace_headers={"traceparent": "00"},
        seed=40,
        max_tokens=2,
    )
    async with chat_llm.chat_n(request, 2):
        adds = await engine.wait_adds(2)
        assert chat_llm.text.llm.in_flight.response_ids == ["chatcmpl-9"]
    for index, add in enumerate(adds):
        assert add.request_id.startswith(f"{index}_chatcmpl-9-")
        assert (add.external_req_id, add.arrival_time) == ("chatcmpl-9", 12.5)
        assert (add.sampling_params.seed, add.sampling_params.max_tokens) == (40 + index, 2)
        assert (add.cache_salt, add.priority, add.session_id) == ("salt", 3, "session")
        assert (add.data_parallel_rank, add.trace_headers) == (0, {"traceparent": "00"})


@pytest.fixture
def without_engine(chat_model: ChatModel, text_model: TextModel) -> ChatLlm:
    return ChatLlm(chat_model, TextLlm(text_model))


def test_the_last_message_can_be_continued(without_engine: ChatLlm, ask: Ask) -> None:
    messages = [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "One, two"},
    ]
    request = ask(messages=messages, add_generation_prompt=False, continue_final_message=True)
    assert without_engine.render(request) == "<user>Count.<|end|><assistant>One, two"
    request = ask(messages=messages, add_generation_prompt=False)
    assert without_engine.render(request).endswith("One, two<|end|>")


def test_special_tokens_are_left_to_the_template_unless_asked_for(
    without_engine: ChatLlm, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = without_engine.text.model.tokenizer
    asked = []
    monkeypatch.setattr(tokenizer, "encode", lambda text, add: asked.append(add) or [1])
    for request in (ask(), ask(add_special_tokens=True)):
        without_engine.lower(request)
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "(kind)"),
        ({"mood": "stern"}, "(stern)"),
        ({"style": "short"}, "(kind)[short]"),
        ({"unknown": 1}, "(kind)"),
    ],
)
def test_arguments_of_the_request_come_before_those_of_the_model(
    without_engine: ChatLlm,
    ask: Ask,
    given: dict[str, object],
    expected: str,
) -> None:
    model = msgspec.structs.replace(without_engine.model, template_arguments={"mood": "kind"})
    chat_llm = ChatLlm(model, without_engine.text)
    prompt = chat_llm.render(ask(template_arguments=given))
    assert prompt == f"<user>Hi<|end|><assistant>{expected}"
    # The model's own are not changed by it.
    assert model.template_arguments == {"mood": "kind"}


def test_without_arguments_of_the_model_those_of_the_request_are_taken(
    without_engine: ChatLlm, ask: Ask
) -> None:
    assert without_engine.render(ask()) == "<user>Hi<|end|><assistant>"
    prompt = without_engine.render(ask(template_arguments={"mood": "stern"}))
    assert prompt == "<user>Hi<|end|><assistant>(stern)"


LOOPS_OVER_PARTS = (
    "{% for message in messages %}"
    "{% for part in message.content %}[{{ part.text }}]{% endfor %}"
    "{% endfor %}"
)
PRINTS_CONTENT = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "content_format", "expected"),
    [
        (PRINTS_CONTENT, None, "a\nb"),
        (PRINTS_CONTENT, "string", "a\nb"),
        (LOOPS_OVER_PARTS, None, "[a][b]"),
        (LOOPS_OVER_PARTS, "openai", "[a][b]"),
        (LOOPS_OVER_PARTS, "string", "[][][]"),  # the characters of the string
        (
            PRINTS_CONTENT,
            "openai",
            "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]",
        ),
    ],
)
def test_content_has_the_format_that_was_set_or_else_the_one_that_was_detected(
    without_engine: ChatLlm, ask: Ask, source: str, content_format: str | None, expected: str
) -> None:
    model = ChatModel("m", ChatTemplate(source), content_format)
    chat_llm = ChatLlm(model, without_engine.text)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat_llm.render(ask(parts)) == expected


TOOL = Tool("f", {"type": "function", "function": {"name": "f"}})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "Hi"),
        ({"tools": []}, "Hi"),
        ({"tools": [TOOL]}, "1 tools: [Hi]"),
        ({"tools": [TOOL], "tool_choice": "auto"}, "1 tools: [Hi]"),
        ({"template_arguments": {"tools": [{}, {}]}}, "2 tools: [Hi]"),
        ({"tools": [TOOL], "template_arguments": {"tools": None}}, "1 tools: [Hi]"),
        ({"tools": [TOOL], "chat_template": "{{ tools | length }}"}, "1"),
    ],
)
def test_requests_with_tools_get_the_template_for_them(
    without_engine: ChatLlm, ask: Ask, fields: dict[str, object], expected: str
) -> None:
    model = ChatModel(
        "m",
        ChatTemplate(PRINTS_CONTENT),
        tool_template=ChatTemplate("{{ tools | length }} tools: " + LOOPS_OVER_PARTS),
        trust_request_template=True,
    )
    chat_llm = ChatLlm(model, without_engine.text)
    assert chat_llm.render(ask(**fields)) == expected
    chat_llm.close()


def test_without_a_template_for_tools_all_requests_get_the_same(
    without_engine: ChatLlm, ask: Ask
) -> None:
    chat_llm = ChatLlm(ChatModel("m", ChatTemplate(PRINTS_CONTENT)), without_engine.text)
    assert chat_llm.render(ask(tools=[TOOL])) == "Hi"


# Faults.


async def test_a_refused_request_sends_nothing(
    connect: Connect, ask: Ask, workshop: Workshop
) -> None:
    chat_llm, engine = await connect(None, workshop)
    with pytest.raises(InvalidMessageError) as caught:
        chat_llm.chat(ask(messages=[{"content": "Hi"}]))
    assert caught.value.parameter is not None
    assert caught.value.parameter.endswith(".role")
    with pytest.raises(InvalidChatError, match="Provide at least one message"):
        chat_llm.chat(ask(messages=[]))
    with pytest.raises(InvalidChatError, match="m is not a multimodal model"):
        chat_llm.chat(ask([{"type": "image_url", "image_url": {"url": "http://x"}}]))
    with pytest.raises(InvalidChatError, match="are not compatible"):
        chat_llm.chat(ask(continue_final_message=True))
    with pytest.raises(InvalidRequestError, match="n must be 1 when using greedy"):
        chat_llm.chat_n(ask(temperature=0.0), 2)
    with pytest.raises(InvalidRequestError, match="maximum context length is 256 tokens"):
        chat_llm.chat(ask("a" * 300))
    with pytest.raises(InvalidRequestError, match="max_completion_tokens=999 cannot be greater"):
        chat_llm.chat(ask(max_tokens=999, max_tokens_name="max_completion_tokens"))
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
            chat_llm.chat_n(ask(), n)
    await settle(chat_llm)
    assert engine.adds == []
    assert workshop.made == []


def test_a_conversation_is_read_before_it_is_checked_for_sampling(
    without_engine: ChatLlm, ask: Ask
) -> None:
    with pytest.raises(InvalidMessageError):
        without_engine.lower(ask(messages=[{"content": "Hi"}], top_p=7.0), 1)
    with pytest.raises(InvalidRequestError, match="top_p"):
        without_engine.lower(ask(top_p=7.0), 1)


def test_a_model_without_a_template_refuses_every_conversation(
    without_engine: ChatLlm, ask: Ask
) -> None:
    chat_llm = ChatLlm(ChatModel("m", ChatTemplate(None)), without_engine.text)
    with pytest.raises(InvalidChatError, match="default chat template is no longer allowed"):
        chat_llm.lower(ask())


def test_without_an_engine_conversations_are_lowered_but_not_answered(
    without_engine: ChatLlm, ask: Ask
) -> None:
    assert without_engine.lower(ask(), 2).text.prompt_token_ids
    with pytest.raises(RuntimeError, match="lowers requests only"):
        without_engine.chat_n(ask(), 2)


# The answers.


async def test_every_sample_has_a_processor_of_its_own(
    connect: Connect, ask: Ask, tokenizer: Tokenizer, workshop: Workshop
) -> None:
    answers = ("one", "two words", "3")
    chat_llm, _ = await connect(
        per_child(*(tokens(*tokenizer.encode(answer)) for answer in answers)), workshop
    )
    async with chat_llm.chat_n(ask(), 3) as samples:
        assert len(workshop.made) == 3
        deltas = await collect(samples)
    assert [content_of(each) for each in deltas] == ["one#0", "two words#1", "3#2"]
    for processor, answer in zip(workshop.made, answers, strict=True):
        assert "".join(text for text, _ in processor.fed) == answer
        assert [token_id for _, ids in processor.fed for token_id in ids] == tokenizer.encode(
            answer
        )
        assert processor.finishes == 1
    assert len(workshop.made) == 3


async def test_processors_are_made_anew_for_every_request(
    connect: Connect, ask: Ask, tokenizer: Tokenizer, workshop: Workshop
) -> None:
    chat_llm, _ = await connect(lambda request: tokens(*tokenizer.encode("a")), workshop)
    contents = []
    for samples in (chat_llm.chat(ask()), chat_llm.chat_n(ask(), 2)):
        async with samples:
            contents += [content_of(deltas) for deltas in await collect(samples)]
    assert contents == ["a#0", "a#1", "a#2"]


async def test_plain_text_is_content_up_to_the_finish(
    connect: Connect, ask: Ask, tokenizer: Tokenizer
) -> None:
    end = tokenizer.eos_token_id
    assert end is not None
    ids = [*tokenizer.encode("Hé!"), end]
    chat_llm, _ = await connect(lambda request: tokens(*ids, finish="stop"))
    async with chat_llm.chat(ask()) as samples:
        (deltas,) = await collect(samples)
    assert content_of(deltas) == "Hé!"
    assert [token_id for delta in deltas for token_id in delta.token_ids] == ids
    assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish == Finish("stop")
    assert deltas[-1].timing is not None
    assert deltas[0].prefill is not None
    assert deltas[0].prefill.num_prompt_tokens == len(
        tokenizer.encode("<user>Hi<|end|><assistant>")
    )


async def test_an_item_without_text_has_no_events(
    connect: Connect, ask: Ask, tokenizer: Tokenizer
) -> None:
    chat_llm, _ = await connect(lambda request: tokens(finish="stop"))
    async with chat_llm.chat(ask()) as samples:
        (deltas,) = await collect(samples)
    assert [(delta.events, delta.content) for delta in deltas] == [([], "")]


async def test_logprobs_are_handed_on(connect: Connect, ask: Ask, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("abc")
    chat_llm, _ = await connect(
        lambda request: [
            MockStep(token_ids=ids, logprobs=made_up_logprobs(ids, 1), finish="length")
        ]
    )
    async with chat_llm.chat(ask(logprobs=1)) as samples:
        ((delta,),) = await collect(samples)
    assert delta.logprobs is not None
    assert [position[0].token_id for position in delta.logprobs] == ids


async def test_text_is_parsed_when_it_is_handed_over_and_not_before(
    connect: Connect, ask: Ask, tokenizer: Tokenizer, workshop: Workshop
) -> None:
    ids = tokenizer.encode("abcdef")
    chat_llm, _ = await connect(lambda request: tokens(*ids), workshop)
    async with chat_llm.chat(ask(stream_interval=None)) as samples:
        ((delta,),) = await collect(samples)
    assert workshop.made[0].fed == [("abcdef", ids)]
    assert delta.events == [ContentDelta("abcdef"), ContentDelta("#0")]


async def test_an_abort_by_the_request_id_lets_every_processor_finish(
    connect: Connect, ask: Ask, tokenizer: Tokenizer, workshop: Workshop
) -> None:
    gate = asyncio.Event()
    first, *rest = tokenizer.encode("abc")
    chat_llm, engine = await connect(lambda request: tokens(first, *rest, wait=gate), workshop)
    async with chat_llm.chat_n(ask(stop=["STOP"]), 2) as samples:
        reading = aiter(samples)
        started = {(await anext(reading))[0]}
        while len(started) < 2:
            started.add((await anext(reading))[0])
        assert chat_llm.text.llm.abort(["chatcmpl-1"]) == 2
        remaining: list[list[ChatDelta]] = [[], []]
        async for index, delta in reading:
            remaining[index].append(delta)
    assert [content_of(deltas) for deltas in remaining] == ["a#0", "a#1"]
    assert [deltas[-1].finish for deltas in remaining] == [ABORTED, ABORTED]
    assert [len(aborted) for aborted in await engine.wait_aborts()] == [2]


async def test_an_error_of_one_child_leaves_the_others_alone(
    connect: Connect, ask: Ask, tokenizer: Tokenizer
) -> None:
    chat_llm, _ = await connect(
        per_child([MockStep(finish="error")], tokens(*tokenizer.encode("fine")))
    )
    async with chat_llm.chat_n(ask(), 2) as samples:
        failed, fine = await collect(samples)
    assert failed[-1].finish is not None
    assert isinstance(failed[-1].finish.error, EngineRequestError)
    assert (content_of(fine), fine[-1].finish) == ("fine", Finish("length"))


class Broken(Numbered):
    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        raise ZeroDivisionError("the parser is broken")


async def test_a_processor_that_fails_fails_its_reader_and_aborts_its_request_alone(
    connect: Connect, ask: Ask, tokenizer: Tokenizer
) -> None:
    numbers = itertools.count()
    # Of the second request only: its samples are made later.
    chat_llm, engine = await connect(
        lambda request: tokens(*tokenizer.encode("ab"), finish=None),
        lambda: Broken(0) if next(numbers) else Numbered(1),
    )
    failing, healthy = chat_llm.chat_n(ask(request_id="a"), 2), chat_llm.chat(ask(request_id="b"))
    async with healthy:
        with pytest.raises(ZeroDivisionError, match="the parser is broken"):
            async with failing:
                await collect(failing)
        (aborted,) = await engine.wait_aborts()
        assert sorted(request_id[:3] for request_id in aborted) == ["0_a", "1_a"]
        reading = aiter(healthy)
        content = ""
        while content != "ab":
            content += (await anext(reading))[1].content
        assert healthy[0].finish is None
