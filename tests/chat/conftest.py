"""A ChatLlm on a mock engine, whose tables must be empty when a test is over."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import tokenizers
from hypothesis import settings
from tokenizers import decoders, models, pre_tokenizers

from umbel_chat import ChatLlm, ChatModel, ChatRequest, ChatTemplate
from umbel_engine import EngineClient, EngineOptions
from umbel_engine.mock import MockEngine
from umbel_llm import Llm
from umbel_text import SamplingDefaults, SamplingOptions, TextLlm, TextModel, Tokenizer
from umbel_text.tokenizer import SpecialTokens

# Shared machines stall now and then; nothing here is about time.
settings.register_profile("umbel", deadline=None, database=None)
settings.load_profile("umbel")

TEMPLATE = """\
{%- for message in messages -%}
<{{ message.role }}>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<assistant>{% endif -%}
{%- if mood is defined %}({{ mood }}){% endif -%}
{%- if style is defined %}[{{ style }}]{% endif -%}
"""

MAX_MODEL_LEN = 256


@pytest.fixture
def tokenizer() -> Tokenizer:
    """A tokenizer with a token for every byte, and three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<user>", "<assistant>", "<|end|>"])
    return Tokenizer(backend, SpecialTokens({"eos_token": "<|end|>"}))


@pytest.fixture
def text_model(tokenizer: Tokenizer) -> TextModel:
    return TextModel(tokenizer, MAX_MODEL_LEN, tokenizer.max_token_id + 1, SamplingDefaults())


@pytest.fixture
def chat_model() -> ChatModel:
    return ChatModel("m", ChatTemplate(TEMPLATE))


@pytest.fixture
async def connect(
    chat_model: ChatModel, text_model: TextModel
) -> AsyncIterator[Callable[..., Awaitable[tuple[ChatLlm, MockEngine]]]]:
    """Connect a ChatLlm to a mock engine; what follows the script goes to the ChatLlm."""
    llms = []
    async with AsyncExitStack() as stack:

        async def connect(script=None, *arguments, model=chat_model, **options):
            client = await stack.enter_async_context(EngineClient(EngineOptions(ready_timeout=20)))
            engine = MockEngine(script, **options)
            await stack.enter_async_context(engine.serve(client))
            llms.append(Llm(client))
            return ChatLlm(model, TextLlm(text_model, llms[-1]), *arguments), engine

        yield connect
        for llm in llms:
            assert llm.client.in_flight == 0
            assert llm.in_flight.response_ids == []


@pytest.fixture
def ask() -> Callable[..., ChatRequest]:
    """Make a request; what is not a field of it is a sampling option."""

    def ask(content: object = "Hi", **fields: object) -> ChatRequest:
        own = {name: fields.pop(name) for name in set(ChatRequest.__struct_fields__) & set(fields)}
        own = {
            "request_id": "chatcmpl-1",
            "messages": [{"role": "user", "content": content}],
            "arrival_time": 0.0,
            **own,
        }
        return ChatRequest(sampling=SamplingOptions(**fields), **own)

    return ask
