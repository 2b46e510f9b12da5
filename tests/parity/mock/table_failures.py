"""Rows about ends that are none of the model's: errors, aborts, and what becomes of siblings."""

from umbel_engine.wire import RequestFault

from .engine import end, say
from .rows import both, complete, in_every_way

PAUSED = RequestFault("Generation is paused.", "paused", True)
BROKEN = RequestFault("the cache is on fire at /var/cache/fire", "internal", False)
REFUSED = RequestFault("this prompt cannot be had", "validation_error", False)

LONG = say(*[" one"] * 12)
USAGE = {"include_usage": True}

# A row is a line.
# fmt: off

ROWS = [
    *in_every_way("an error at once", say(finish="error"), LONG),
    *in_every_way("an error later", say("Hello", " world", (), finish="error"), LONG),
    *both("an error later with usage", say("Hello", " world", (), finish="error"), LONG, stream=True, stream_options=USAGE),
    *in_every_way("an error of a single one", say("Hello", (), finish="error"), n=1),
    *in_every_way("paused at once", say(error=PAUSED), LONG),
    *in_every_way("paused later", say("Hello", " world", error=PAUSED), LONG),
    *in_every_way("broken at once", say(error=BROKEN), LONG),
    *in_every_way("broken later", LONG, say("Hello", " world", error=BROKEN)),
    *in_every_way("refused by the engine", say(error=REFUSED), LONG),
    *in_every_way("refused by the engine, one", say(error=REFUSED), n=1),
    *in_every_way("refused by the engine later", say("Hello", error=REFUSED), LONG),
    *in_every_way("aborted", say("Hello", (), finish="abort"), say(" Paris", " is", ".")),
    *in_every_way("aborted at once", say(finish="abort"), end("Hello")),
    *both("all aborted", say("Hello", finish="abort"), stream=True, stream_options=USAGE),
    *both("repetition", say("hi", "hi", "hi", finish="repetition"), end("Hello"), stream=True),
    *both("aborted while held back", say("Hello", " world", (), finish="abort"), stop="world is", stream=True),
    *both("an error while held back", say("Hello", " world", (), finish="error"), stop="world is", stream=True),
    complete("an error in one of the prompts", LONG, LONG, say("Hello", error=PAUSED), LONG, prompt=["a", "b"]),
    complete("an error in one of the prompts, streamed", LONG, LONG, say("Hello", error=PAUSED), LONG, prompt=["a", "b"], stream=True),
]
