"""Rows about log-probabilities: of samples, of prompts, and of both in an echo."""

from .engine import end, ids_of, say, spell
from .model import MESSAGE_END, PAUSE
from .rows import QUESTION, both, chat, complete, in_every_way

TWO = say("Hello", (" world", " is"), "."), end(" Paris", "!")
BEGUN = [*QUESTION, {"role": "assistant", "content": "Hello"}]
OPEN_END = {"continue_final_message": True, "add_generation_prompt": False}


def chats(name, *says, **fields):
    """Make the rows of a chat as a whole and as a stream."""
    return [chat(name, *says, **fields), chat(f"{name}, streamed", *says, stream=True, **fields)]


def completions(name, *says, **fields):
    """Make the rows of a completion as a whole and as a stream."""
    return [
        complete(name, *says, **fields),
        complete(f"{name}, streamed", *says, stream=True, **fields),
    ]


# A row is a line.
# fmt: off

SAMPLES = [
    *chats("logprobs", *TWO, logprobs=True),
    *chats("logprobs and no rivals", *TWO, logprobs=True, top_logprobs=0),
    *chats("logprobs and a rival", *TWO, logprobs=True, top_logprobs=1),
    *chats("logprobs and rivals", *TWO, logprobs=True, top_logprobs=5),
    *chats("logprobs of everything", *TWO, logprobs=True, top_logprobs=-1, server="details"),
    *chats("no logprobs", *TWO, logprobs=False, top_logprobs=None),
    *completions("logprobs of nothing else", *TWO, logprobs=0),
    *completions("logprobs", *TWO, logprobs=1),
    *completions("logprobs of rivals", *TWO, logprobs=5, prompt=["Hello", "hi"]),
    *completions("logprobs of everything", *TWO, logprobs=-1, server="details"),
    *chats("logprobs of characters in pieces", spell("été\U0001f389"), logprobs=True, top_logprobs=2),
    *completions("logprobs of characters in pieces", spell("été\U0001f389"), logprobs=2),
    *chats("logprobs of a piece at the end", say(*ids_of("\U0001f389")[:2]), logprobs=True),
    *completions("logprobs of special tokens", say("Hello", PAUSE, MESSAGE_END), logprobs=2),
    *chats("logprobs of special tokens", say("Hello", PAUSE, MESSAGE_END), logprobs=True, skip_special_tokens=False),
    *chats("logprobs of what cannot be", say("Hello", " Rome", impossible=True), logprobs=True, top_logprobs=3),
    *completions("logprobs of what cannot be", say("Hello", " Rome", impossible=True), logprobs=3),
    *chats("logprobs as token ids", *TWO, logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True),
    *completions("logprobs as token ids", *TWO, logprobs=2, return_tokens_as_token_ids=True),
    *chats("logprobs as token ids by default", *TWO, logprobs=True, top_logprobs=2, server="token-ids"),
    *completions("logprobs as token ids by default", *TWO, logprobs=2, server="token-ids"),
    *chats("logprobs not as token ids", *TWO, logprobs=True, return_tokens_as_token_ids=False, server="token-ids"),
    *chats("logprobs of named tokens", *TWO, logprobs=True, logprob_token_ids=[302, 305, 20]),
    *completions("logprobs of named tokens", *TWO, logprobs=3, logprob_token_ids=[302, 305, 20]),
    *chats("logprobs of named tokens and rivals", *TWO, logprobs=True, top_logprobs=3, logprob_token_ids=[302, 305, 20]),
    *chats("logprobs held back", *TWO, logprobs=True, stop=["is not"]),
    *completions("logprobs held back", *TWO, logprobs=1, stop=["is not"]),
    *chats("logprobs by intervals", say(*[" one", " two"] * 4), logprobs=True, stream_interval=3),
    *both("logprobs that the engine left out", say("Hello", hidden=True), logprobs=1),
    *both("logprobs that the engine left out, streamed", say("Hello", hidden=True), logprobs=1, stream=True),
    *chats("logprobs with token ids", *TWO, logprobs=True, return_token_ids=True),
    *chats("logprobs of no token", say(finish="abort"), say("Hello"), logprobs=True),
    *completions("logprobs of no token", say(finish="abort"), say("Hello"), logprobs=1),
    *chats("logprobs of an end without a token", say("Hello", (), finish="abort"), say(" world"), logprobs=True, return_token_ids=True),
    *completions("logprobs of an end without a token", say("Hello", (), finish="abort"), say(" world"), logprobs=1),
    *completions("logprobs of no token, echoed", say(finish="abort"), say("Hello"), logprobs=1, echo=True),
]

PROMPTS = [
    *both("prompt logprobs", *TWO, prompt_logprobs=2),
    *both("prompt logprobs of nothing else", *TWO, prompt_logprobs=0),
    *both("prompt logprobs of everything", *TWO, prompt_logprobs=-1, server="details"),
    *both("no prompt logprobs in a stream", *TWO, prompt_logprobs=0, stream=True),
    *both("prompt logprobs of what cannot be", say("Hello", impossible=True), prompt_logprobs=1),
    *both("prompt logprobs as token ids", *TWO, prompt_logprobs=1, return_tokens_as_token_ids=True),
    *both("prompt logprobs of a truncated prompt", *TWO, prompt_logprobs=1, truncate_prompt_tokens=2),
    complete("prompt logprobs of prompts", *TWO, prompt_logprobs=1, prompt=["Hello world", "hi!"]),
    complete("prompt logprobs of a single token", *TWO, prompt_logprobs=1, prompt="Hello"),
    complete("prompt logprobs of characters in pieces", *TWO, prompt_logprobs=1, prompt="Hello \U0001f389"),
    complete("prompt logprobs and logprobs", *TWO, prompt_logprobs=1, logprobs=2),
    chat("prompt logprobs and logprobs", *TWO, prompt_logprobs=1, logprobs=True, top_logprobs=2),
]

ECHOES = [
    *chats("echo with logprobs", *TWO, messages=BEGUN, echo=True, **OPEN_END, logprobs=True, top_logprobs=1),
    *completions("echo with logprobs", *TWO, echo=True, logprobs=2),
    *completions("echo with logprobs of nothing else", *TWO, echo=True, logprobs=0),
    *completions("echo alone with logprobs", *TWO, echo=True, logprobs=1, max_tokens=0),
    *completions("echo of prompts with logprobs", *TWO, echo=True, logprobs=1, prompt=["Hello", "hi!"]),
    *completions("echo of token ids with logprobs", *TWO, echo=True, logprobs=1, prompt=[300, 301]),
    complete("echo with logprobs and token ids", *TWO, echo=True, logprobs=1, return_token_ids=True),
    complete("echo with logprobs as token ids", *TWO, echo=True, logprobs=1, return_tokens_as_token_ids=True),
    complete("echo with other prompt logprobs", *TWO, echo=True, logprobs=1, prompt_logprobs=2),
    complete("echo with prompt logprobs alone", *TWO, echo=True, prompt_logprobs=2),
]

ROWS = [*SAMPLES, *PROMPTS, *ECHOES, *in_every_way("logprobs on greedy", say("Hello"), n=1, temperature=0, logprobs=1)]
