"""Tool calls and reasoning as Granite writes them."""

from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat
from umbel_chat.parsers.hermes import END, START, read_hermes

GRANITE4 = ToolFormat(
    names=("granite4",),
    parse=read_hermes,
    starts=(START,),
    markers=(START, END),
    trims_content=False,
    summary="As hermes; arguments may be a string that holds JSON.",
    models=("Granite 4",),
    example='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    differences=(
        "Arguments stream as they come.",
        "A call that is cut off, or is malformed after its name, is still a call.",
    ),
)

GRANITE = ReasoningFormat(
    names=("granite",),
    start="Here is my thought process:",
    end="Here is my response:",
    other_starts=("Here's my thought process:",),
    other_ends=("Here's my response:",),
    begins_open=False,
    on_request=True,
    summary="`Here is my thought process:` and `Here is my response:`, also with `Here's`.",
    models=("Granite 3.2",),
    differences=("Reasoning that is cut off is reasoning; without a stream, vLLM gives content.",),
)
