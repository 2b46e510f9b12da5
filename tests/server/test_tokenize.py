"""Tokenizing and back, and what is told of the tokenizer."""

import asyncio
import json
import shutil
import threading

import pytest

from umbel_server.responses.tokenize import tokenizer_info
from umbel_text import Tokenizer

MESSAGES = [{"role": "user", "content": "Hello"}]
CHAT = "<|im_start|>user\nHello<|im_end|>\n"
STARTED = CHAT + "<|im_start|>assistant\n"

BOTH_PROMPTS = (
    "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
    "BadRequestError",
    None,
)


@pytest.fixture(scope="module")
def ids(tokenizer):
    """Give the token ids of a text."""
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


async def tokenize(served, **body):
    answer = await served.post("/tokenize", **body)
    assert answer.status == 200, answer.text
    return answer.json()["tokens"]


async def refusal(served, path="/tokenize", **body):
    """Give the message, type and param of a request that is answered with 400."""
    answer = await served.post(path, **body)
    assert (answer.status, answer.error["code"]) == (400, 400)
    return answer.error["message"], answer.error["type"], answer.error["param"]


async def test_a_text_is_answered_with_its_tokens(serve, ids):
    served = await serve()
    answer = await served.post("/tokenize", prompt="Hello world!")
    assert answer.headers["Content-Type"] == "application/json"
    token_ids = ids("Hello world!")
    assert answer.text == (
        f'{{"count":{len(token_ids)},"max_model_len":2048,"tokens":'
        f'{json.dumps(token_ids, separators=(",", ":"))},"token_strs":null}}'
    )


async def test_pieces_of_the_vocabulary_come_with_the_tokens_when_they_are_asked_for(serve):
    served = await serve()
    answer = (
        await served.post("/tokenize", prompt="Hello \u00df<|im_end|>", return_token_strs=True)
    ).json()
    assert answer["token_strs"] == ["Hello", "\u0120", "\u00c3", "\u0141", "<|im_end|>"]
    assert answer["count"] == len(answer["tokens"]) == 5


async def test_a_conversation_is_answered_with_the_tokens_of_its_prompt(serve, ids):
    served = await serve()
    assert await tokenize(served, messages=MESSAGES) == ids(STARTED)
    assert await tokenize(served, messages=MESSAGES, add_generation_prompt=False) == ids(CHAT)
    continued = [*MESSAGES, {"role": "assistant", "content": "hi"}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert await tokenize(served, messages=continued, **options) == ids(STARTED + "hi")


async def test_the_tokens_are_those_that_the_engine_would_get(serve, say):
    served = await serve(lambda request: say("hi"))
    messages = [{"role": "system", "content": "Say hi"}, *MESSAGES]
    await served.ask(messages=messages)
    await served.complete(prompt="Hello world")
    chat, completion = (add.prompt_token_ids for add in served.engine.adds)
    assert await tokenize(served, messages=messages) == chat
    assert await tokenize(served, prompt="Hello world") == completion


async def test_special_tokens_are_added_to_a_text_and_not_to_a_conversation(serve, monkeypatch):
    served = await serve()
    tokenizer = served.chat.text.model.tokenizer
    monkeypatch.setattr(tokenizer, "encode", lambda text, special: [int(special)])
    for body in ({"prompt": "Hello"}, {"messages": MESSAGES}):
        assert await tokenize(served, **body) == [int("prompt" in body)]
        assert await tokenize(served, **body, add_special_tokens=True) == [1]
        assert await tokenize(served, **body, add_special_tokens="no") == [0]


async def test_a_prompt_may_be_empty_or_longer_than_the_model_can_take(serve):
    served = await serve(max_model_len=4)
    assert await tokenize(served, prompt="") == []
    assert len(await tokenize(served, prompt="x" * 100)) == 100
    assert len(await tokenize(served, messages=MESSAGES)) > 4


async def test_arguments_of_the_template_are_handed_on(serve, ids):
    served = await serve()
    arguments = {"add_generation_prompt": False, "unknown": 1}
    assert await tokenize(served, messages=MESSAGES, chat_template_kwargs=arguments) == ids(STARTED)


@pytest.mark.parametrize(
    ("body", "is_chat"),
    [
        ({"messages": MESSAGES}, True),
        ({"messages": []}, False),
        ({"messages": [], "model": "smollm2", "add_special_tokens": True}, False),
        ({"messages": [{"role": "user"}, 5]}, False),
        ({"messages": MESSAGES, "prompt": 5}, True),
        ({"messages": MESSAGES, "add_generation_prompt": True}, True),
    ],
)
async def test_of_a_body_with_both_forms_the_fuller_one_counts(serve, ids, body, is_chat):
    served = await serve()
    tokens = await tokenize(served, **{"prompt": "Hello", **body})
    assert tokens == ids(STARTED if is_chat else "Hello")


async def test_a_field_of_chat_alone_makes_a_body_a_conversation(serve):
    served = await serve()
    message, _, _ = await refusal(served, prompt="a", messages=[], add_generation_prompt=True)
    assert message.startswith("Cannot apply chat template to an empty conversation.")


async def test_a_body_of_neither_form_is_answered_for_both(serve):
    served = await serve()
    message, kind, param = await refusal(served)
    assert (kind, param) == ("Bad Request", "body.prompt")
    first, *rest = message.split("\n")
    assert first == "2 validation errors:"
    assert ["'loc': 'body.prompt'" in rest[0], "'loc': 'body.messages'" in rest[1]] == [True, True]


@pytest.mark.parametrize(
    ("body", "count", "param"),
    [
        ({"prompt": None}, 2, "body.prompt"),
        ({"prompt": ["a"]}, 2, "body.prompt"),
        ({"messages": 5}, 2, "body.prompt"),
        ({"messages": MESSAGES, "add_generation_prompt": None}, 2, "body.prompt"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, 2, "body.prompt"),
        ({"prompt": "a", "model": 5}, 3, "body.model"),
        ({"prompt": "a", "add_special_tokens": None}, 3, "body.add_special_tokens"),
        ({"prompt": "a", "return_token_strs": "maybe"}, 3, "body.return_token_strs"),
    ],
)
async def test_a_value_of_a_wrong_type_is_refused(serve, body, count, param):
    served = await serve()
    message, kind, named = await refusal(served, **body)
    assert message.startswith(f"{count} validation errors:\n")
    assert (kind, named) == ("Bad Request", param)


async def test_values_are_read_leniently_and_unknown_ones_are_ignored(serve, ids):
    served = await serve()
    body = {"prompt": "Hello", "return_token_strs": None, "add_special_tokens": "yes", "other": 1}
    assert await tokenize(served, **body) == ids("Hello")
    assert await tokenize(served, messages=MESSAGES, tools=[], media_io_kwargs={}) == ids(STARTED)


async def test_the_last_message_is_either_continued_or_followed(serve):
    served = await serve()
    both = {"continue_final_message": True, "add_generation_prompt": True}
    for body in ({"messages": MESSAGES}, {"prompt": "Hello"}, {}):
        assert await refusal(served, **body, **both) == BOTH_PROMPTS
    message, kind, _ = await refusal(served, messages=MESSAGES, continue_final_message=True)
    assert message.startswith("continue_final_message and add_generation_prompt are not compatible")
    assert kind == "BadRequestError"


async def test_a_template_of_the_request_is_refused(serve):
    served = await serve()
    for body in ({"chat_template": "x"}, {"chat_template_kwargs": {"chat_template": "x"}}):
        message, kind, param = await refusal(served, messages=MESSAGES, **body)
        assert message == (
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )
        assert (kind, param) == ("BadRequestError", None)


async def test_what_is_not_served_is_refused(serve):
    served = await serve()
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        message, kind, param = await refusal(served, messages=MESSAGES, **{name: {"a": {}}})
        assert message.startswith(f"Per-request {name} are disabled by default")
        assert message.endswith(f" (parameter={name})")
        assert (kind, param) == ("BadRequestError", name)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "Hello"}),
        ("/tokenize", {"messages": MESSAGES, "tools": [{"function": {"name": "f"}}]}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
async def test_a_model_that_is_not_served_is_not_found(serve, path, body):
    served = await serve()
    answer = await served.post(path, model="other", **body)
    assert answer.status == 404
    assert answer.error == {
        "message": "The model `other` does not exist. Valid aliases: smollm2.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }
    with_right_name = await served.post("/tokenize", model="smollm2", prompt="Hello")
    assert with_right_name.status == 200


async def test_text_that_cannot_be_encoded_is_refused(serve):
    served = await serve()
    for body in ({"prompt": "\ud800"}, {"messages": [{"role": "user", "content": "\ud800"}]}):
        message, kind, param = await refusal(served, **body)
        assert message.startswith("TextEncodeInput must be")
        assert (kind, param) == ("BadRequestError", None)


async def test_tokens_are_answered_with_their_text(serve, ids):
    served = await serve()
    for text in ("Hello world \u00e9t\u00e9!", STARTED, ""):
        answer = await served.post("/detokenize", tokens=ids(text))
        assert (answer.status, answer.json()) == (200, {"prompt": text})


async def test_ids_that_are_no_tokens_have_no_text(serve, token):
    served = await serve()
    answer = await served.post("/detokenize", tokens=[49_000, token("hi"), 2**32 - 1])
    assert (answer.status, answer.json()) == (200, {"prompt": "hi"})


@pytest.mark.parametrize("token_id", [2**32, 2**63 - 1])
async def test_ids_that_the_tokenizer_has_no_room_for_are_refused(serve, token_id):
    served = await serve()
    _, kind, param = await refusal(served, "/detokenize", tokens=[token_id])
    assert (kind, param) == ("BadRequestError", None)


@pytest.mark.parametrize(
    ("tokens", "kind", "param"),
    [
        ([1, -1], "greater_than_equal", "body.tokens.1"),
        ([2**63], "less_than_equal", "body.tokens.0"),
        (["x"], "int_parsing", "body.tokens.0"),
        ([2.5], "int_from_float", "body.tokens.0"),
        ("x", "list_type", "body.tokens"),
        (None, "list_type", "body.tokens"),
    ],
)
async def test_what_is_no_list_of_token_ids_is_refused(serve, tokens, kind, param):
    served = await serve()
    message, error_type, named = await refusal(served, "/detokenize", tokens=tokens)
    assert f"'type': '{kind}'" in message
    assert (error_type, named) == ("Bad Request", param)


async def test_tokens_are_needed_to_give_their_text(serve):
    served = await serve()
    message, kind, param = await refusal(served, "/detokenize")
    assert message.startswith("1 validation error:")
    assert (kind, param) == ("Bad Request", "body.tokens")


async def test_no_engine_and_no_key_is_needed(serve, ids):
    served = await serve(api_keys=("secret",), enable_tokenizer_info_endpoint=True)
    served.engine.send_dead()
    await asyncio.wait_for(served.client.died(), 10)
    assert await tokenize(served, messages=MESSAGES) == ids(STARTED)
    answer = await served.post("/detokenize", tokens=ids("Hello"))
    assert (answer.status, answer.json()) == (200, {"prompt": "Hello"})
    assert (await served.get("/tokenizer_info")).status == 200


@pytest.mark.parametrize("method", ["encode", "decode"])
async def test_much_text_is_worked_on_while_others_are_answered(serve, monkeypatch, method):
    served = await serve()
    may_go_on = threading.Event()
    tokenizer = served.chat.text.model.tokenizer
    original = getattr(tokenizer, method)

    def slow(value, *args, **kwargs):
        if len(value) > 10_000:
            assert may_go_on.wait(timeout=10)
        return original(value, *args, **kwargs)

    monkeypatch.setattr(tokenizer, method, slow)
    if method == "encode":
        request = served.post("/tokenize", prompt="x" * 20_000)
    else:
        request = served.post("/detokenize", tokens=[300] * 20_000)
    long = asyncio.ensure_future(request)
    assert (await served.post("/tokenize", prompt="Hello")).status == 200
    assert not long.done()
    may_go_on.set()
    assert (await long).status == 200


async def test_the_tokenizer_is_described_only_when_the_server_is_told_to(serve):
    served = await serve()
    answer = await served.get("/tokenizer_info")
    assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})
    served = await serve(enable_tokenizer_info_endpoint=True)
    answer = await served.get("/tokenizer_info")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json() == {
        "eos_token": "<|im_end|>",
        "chat_template": served.chat.model.template.source,
        "truncation_side": "left",
        "added_tokens_decoder": {
            "0": "<|endoftext|>",
            "1": "<|im_start|>",
            "2": "<|im_end|>",
            "10": "<issue_closed>",
            "11": "<think>",
            "12": "</think>",
            "13": "<tool_call>",
            "14": "</tool_call>",
        },
        "backend": "tokenizers",
        "tokenizer_class": "TokenizersBackend",
    }


@pytest.fixture
def describe(model_folder, tmp_path):
    """Describe the tokenizer of a folder with these files and this chat template."""

    def describe(config, chat_template=None, **files):
        shutil.copy(model_folder / "tokenizer.json", tmp_path)
        for name, content in {"tokenizer_config": config, **files}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return json.loads(tokenizer_info(Tokenizer.from_folder(tmp_path), chat_template))

    return describe


def test_the_configuration_is_given_as_it_is_but_for_files(describe):
    kept = {
        "model_max_length": 10**30,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "pad_token": None,
        "auto_map": {"AutoTokenizer": ["a", None]},
        "chat_template": "from the file",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    info = describe({**kept, "vocab_file": "/home/someone/vocab.json", "merges_file": "merges"})
    assert {name: info[name] for name in kept} == kept
    assert not info.keys() & {"vocab_file", "merges_file"}


def test_tokens_are_given_as_their_content(describe):
    info = describe(
        {
            "eos_token": {"content": "<|im_end|>", "lstrip": False},
            "additional_special_tokens": [{"content": "<|im_start|>"}, "<issue_closed>"],
            "extra_special_tokens": {"image_token": "<image>"},
            "added_tokens_decoder": {"5000": {"content": "<tool>", "special": False}},
        }
    )
    assert info["eos_token"] == "<|im_end|>"
    assert info["extra_special_tokens"] == ["<|im_start|>", "<issue_closed>"]
    assert info["model_specific_special_tokens"] == {"image_token": "<image>"}
    assert "additional_special_tokens" not in info
    assert {"<tool>", "<image>"} < set(info["added_tokens_decoder"].values())


def test_what_other_files_say_completes_the_configuration(describe):
    info = describe(
        {"tokenizer_class": "GPT2Tokenizer", "chat_template": "from the file"},
        "of the server",
        special_tokens_map={"pad_token": "<|im_end|>"},
    )
    assert info["chat_template"] == "of the server"
    assert (info["bos_token"], info["pad_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert info["tokenizer_class"] == "GPT2Tokenizer"
