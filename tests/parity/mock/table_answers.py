"""Rows about answers as such: choices, usage, prompts, roles, and what comes along."""

from .engine import end, ids_of, say, spell
from .model import PAUSE
from .rows import LEFT_OUT, QUESTION, both, chat, complete, in_every_way

USAGE = {"include_usage": True}
RUNNING_USAGE = {"include_usage": True, "continuous_usage_stats": True}

TALK = [
    {"role": "system", "content": "Hello world"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": "Hello!"},
    {
        "role": "user",
        "name": "Ann",
        "content": [{"type": "text", "text": "Paris"}, {"type": "text", "text": "is"}],
    },
]
BEGUN = [*QUESTION, {"role": "assistant", "content": "Hello"}]
OPEN_END = {"continue_final_message": True, "add_generation_prompt": False}

TWO = say("Hello", " world"), end(" Paris", " is", ".")
THREE = *TWO, say(" Rome")
CUT_CHARACTERS = spell("été \U0001f389"), say(*ids_of("\U0001f389")[:2], "!", finish="stop")

# A row is a line.
# fmt: off

CHOICES = [
    *in_every_way("one", say("Hello", " world"), n=LEFT_OUT, max_tokens=2),
    *in_every_way("two", *TWO),
    *in_every_way("three", *THREE, n=3),
    *both("three streamed with usage", *THREE, n=3, stream=True, stream_options=USAGE),
    *both("running usage", *TWO, stream=True, stream_options=RUNNING_USAGE),
    *both("running usage alone", *TWO, stream=True, stream_options={"continuous_usage_stats": True}),
    *both("empty stream options", *TWO, stream_options={}),
    *both("nothing said", end(), stream=True),
    *both("one says nothing", end(), say("Hello", " world"), stream=True),
    *both("an empty step first", say((), "Hello", " world"), stream=True),
    *in_every_way("several tokens in a step", say(("Hello", " world"), (".", "!", ","), "."), n=3),
    *both("cut by max_tokens", say("Hello", (" world", " is", " the"), "."), max_tokens=3, stream=True),
    *in_every_way("characters of several tokens", *CUT_CHARACTERS),
    *both("token ids", *TWO, return_token_ids=True),
    *both("token ids, streamed", *TWO, return_token_ids=True, stream=True, stream_options=USAGE),
    *both("interval", say(*[" one", " two", " three"] * 3), stream=True, stream_interval=4),
    *both("interval, as a whole", say(*[" one"] * 5), stream_interval=2),
    *both("ends with special tokens", say("Hello", PAUSE, " world"), end(PAUSE), stream=True),
    *both("special tokens shown", end("Hello", PAUSE, " world"), skip_special_tokens=False),
    *both("special tokens shown apart", end("Hello", PAUSE, " world"), end(PAUSE, PAUSE), skip_special_tokens=False, spaces_between_special_tokens=False, stream=True),
    *both("weight versions", *TWO, return_weight_versions=True, weight_version="v7"),
    *both("weight versions, streamed", *TWO, return_weight_versions=True, weight_version="v7", stream=True),
    *both("weight versions unasked", *TWO, weight_version="v7"),
    *both("weight versions without any", *TWO, return_weight_versions=True),
    *both("stop by the engine", say("Hello", " world", finish="stop", stop_reason=301), stream=True),
    *both("read leniently", *TWO, n="2", temperature="0.7", max_tokens=8.0, stream="false", seed="7"),
    *both("fields that nobody knows", *TWO, unheard_of={"a": [1]}, user="Ann"),
    *both("alias", *TWO, model="alias"),
    *both("empty model", *TWO, model=""),
    *both("nulls", say("Hello", " world"), n=LEFT_OUT, model=None, frequency_penalty=None, logit_bias=None,
          logprobs=None, presence_penalty=None, seed=None, stop=None, stream=None,
          stream_options=None, temperature=None, top_p=None, top_k=None, min_p=None,
          repetition_penalty=None, stop_token_ids=None, skip_special_tokens=None,
          truncate_prompt_tokens=None, truncation_side=None, prompt_logprobs=None,
          logprob_token_ids=None, allowed_token_ids=None, structured_outputs=None,
          session_id=None, return_tokens_as_token_ids=None, return_token_ids=None,
          return_token_offsets=None, kv_transfer_params=None, vllm_xargs=None,
          repetition_detection=None, stream_interval=None, cache_salt=None, response_format=None,
          thinking_token_budget=None, watermarking=None, ec_transfer_params=None),
]

SERVERS = [
    *in_every_way("cached tokens", say("Hello", " world", cached_tokens=2), end(" Paris"), server="details"),
    *both("cached tokens with usage", say("Hello", " world", cached_tokens=2), end(" Paris"), server="details", stream=True, stream_options=USAGE),
    *both("cached tokens with running usage", say("Hello", " world", cached_tokens=2), server="details", stream=True, stream_options=RUNNING_USAGE),
    *in_every_way("usage by force", *TWO, server="usage"),
    *both("usage by force, refused", *TWO, server="usage", stream=True, stream_options={"include_usage": False}),
    *in_every_way("timing of one", say("Hello", " world", "."), n=1, server="timing"),
    *both("timing of one with usage", say("Hello", " world", "."), n=1, server="timing", stream=True, stream_options=USAGE),
    *both("timing of a single token", say("Hello"), n=1, server="timing"),
    *both("timing of two", *TWO, server="timing"),
    *both("timing of two with usage", *TWO, server="timing", stream=True, stream_options=USAGE),
    *in_every_way("defaults", *TWO, temperature=0.5, server="defaults"),
    *both("a limit by default", say(*[" one"] * 9), temperature=0.5, max_tokens=100, server="defaults"),
    *both("greedy by default", server="defaults"),
    *both("greedy by default, one", say("Hello"), n=1, server="defaults"),
    chat("template arguments over the defaults", *TWO, temperature=0.5, chat_template_kwargs={"tone": "Shout."}, server="defaults"),
    chat("no tone", *TWO, temperature=0.5, chat_template_kwargs={"tone": None}, server="defaults"),
    chat("a role by default, continued", *TWO, temperature=0.5, messages=BEGUN, **OPEN_END, server="defaults"),
    chat("a role by default, echoed", *TWO, temperature=0.5, messages=BEGUN, echo=True, **OPEN_END, server="defaults", stream=True),
]

CHAT_ONLY = [
    chat("conversation", *TWO, messages=TALK),
    chat("conversation, streamed", *TWO, messages=TALK, stream=True),
    chat("continued", *TWO, messages=BEGUN, **OPEN_END),
    chat("continued and echoed", *TWO, messages=BEGUN, echo=True, **OPEN_END),
    chat("continued and echoed, streamed", *TWO, messages=BEGUN, echo=True, **OPEN_END, stream=True, stream_options=RUNNING_USAGE),
    chat("echo of a question", *TWO, echo=True),
    chat("echo of a question, streamed", *TWO, echo=True, stream=True),
    chat("no generation prompt", *TWO, add_generation_prompt=False),
    chat("no generation prompt, streamed", *TWO, add_generation_prompt=False, stream=True),
    chat("prompt text", *TWO, return_prompt_text=True, return_token_ids=True),
    chat("prompt text, streamed", *TWO, return_prompt_text=True, return_token_ids=True, stream=True),
    chat("documents", *TWO, documents=[{"title": "Rome", "text": "a city"}, {"title": "hi", "text": "."}]),
    chat("template arguments", *TWO, chat_template_kwargs={"tone": "Be kind.", "unused": [1]}),
    chat("template of its own", *TWO, chat_template="{{ messages[0].content }}!", server="trusting"),
    chat("template among its arguments", *TWO, chat_template_kwargs={"chat_template": "{{ messages[0].content }}?"}, server="trusting"),
    chat("template that fails", *TWO, chat_template="{{ raise_exception('no good') }}", server="trusting"),
    chat("template that is none", *TWO, chat_template="{% if %}", server="trusting"),
    chat("template that is not trusted", *TWO, chat_template="{{ messages[0].content }}"),
    chat("template that is not trusted, among its arguments", *TWO, chat_template_kwargs={"chat_template": "x"}),
    chat("special tokens added", *TWO, add_special_tokens=True),
    chat("null for the name of a tool", *TWO, messages=[{"role": "tool", "content": "hi", "tool_call_id": "a", "name": None}]),
    chat("a number for the name of a tool", *TWO, messages=[{"role": "tool", "content": "hi", "tool_call_id": "a", "name": 5}]),
    chat("unknown role", *TWO, messages=[{"role": "narrator", "content": "hi"}]),
    chat("no content", *TWO, messages=[{"role": "user"}]),
    chat("null content of an assistant", *TWO, messages=[*QUESTION, {"role": "assistant", "content": None}]),
    chat("developer", *TWO, messages=[{"role": "developer", "content": "Hello"}, *QUESTION]),
    chat("empty content", *TWO, messages=[{"role": "user", "content": ""}]),
    chat("special tokens in content", *TWO, messages=[{"role": "user", "content": "hi<|im_end|>hi"}]),
    chat("both limits", say(*[" one"] * 9), max_tokens=7, max_completion_tokens=3),
    chat("no limit", *TWO, max_tokens=None, max_completion_tokens=None),
    chat("a salt", *TWO, cache_salt="pepper"),
]

COMPLETIONS_ONLY = [
    complete("prompts", *THREE, end(), prompt=["Hello", " world is"]),
    complete("prompts, streamed", *THREE, end(), prompt=["Hello", " world is"], stream=True, stream_options=RUNNING_USAGE, return_token_ids=True),
    complete("prompts with token ids", *THREE, prompt=["Hello", "hi"], return_token_ids=True, seed=5),
    complete("prompt of token ids", *TWO, prompt=[300, 301, 302], return_token_ids=True),
    complete("prompts of token ids", *THREE, prompt=[[300, 301], [302]], stream=True, return_token_ids=True),
    complete("prompt that is true", *TWO, prompt=[True]),
    complete("echo", *TWO, echo=True),
    complete("echo, streamed", *TWO, echo=True, stream=True),
    complete("echo with token ids", *TWO, echo=True, return_token_ids=True),
    complete("echo with token ids, streamed", *TWO, echo=True, return_token_ids=True, stream=True),
    complete("echo of token ids", *TWO, prompt=[[300, 301], [2, 302]], echo=True),
    complete("echo alone", *TWO, echo=True, max_tokens=0),
    complete("echo alone, streamed", *TWO, echo=True, max_tokens=0, stream=True, stream_options=USAGE),
    complete("null echo", *TWO, echo=None),
    complete("null limit", say(*[" one"] * 20), max_tokens=None),
    complete("no special tokens", *TWO, add_special_tokens=False),
    complete("special tokens in a prompt", *TWO, prompt="<|im_start|>user hi<|im_end|>"),
    complete("three prompts of one sample", *THREE, prompt=["a", "b", "c"], n=1),
    complete("timing of prompts", *TWO, prompt=["a", "b"], n=1, server="timing"),
    complete("prompts that end within a character", *TWO, prompt=[ids_of("\U0001f389")[:3], [300]], stream=True),
]

ROWS = [*CHOICES, *SERVERS, *CHAT_ONLY, *COMPLETIONS_ONLY]
