"""How the samples of a request are to be read."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from umbel_chat.answer import AnswerProcessor, AnswerRules
from umbel_chat.output import OutputProcessor, PlainTextProcessor
from umbel_chat.parsers.forced import read_call_list, read_named_call
from umbel_chat.parsers.formats import Schemas
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.reasoning import PromptState
from umbel_chat.parsers.sample import Read
from umbel_chat.request import AnswerRequest
from umbel_chat.tools import NamedTool

NO_SCHEMA: Mapping[str, object] = {}

THINKING_ARGUMENTS = ("enable_thinking", "thinking")
"""Template arguments with which a request turns reasoning on or off."""

ENGINE_PARSER_ARGUMENTS = ("enable_thinking", "thinking", "thinking_mode", "reasoning_effort")
"""Template arguments that vLLM's reasoning parsers look at."""


class AnswerPlan(msgspec.Struct, frozen=True):
    """What to look for in the samples of a request.

    `state` is what the prompt says of reasoning.  `tools` are the tools whose calls are looked for,
    None for none.  `forced` is the choice of tools where that makes the answer JSON.
    """

    state: PromptState = "closed"
    tools: Schemas | None = None
    forced: Literal["required"] | NamedTool | None = None
    rules: AnswerRules = AnswerRules()

    def new_processor(
        self, parsers: ModelParsers, on_calls_read: Callable[[bool], None] | None = None
    ) -> OutputProcessor:
        """Make the output processor of one sample.

        `on_calls_read` is told at its end whether there were calls, if the model's parser of calls
        has looked for them.
        """
        if self.tools is None and parsers.reasoning is None and not parsers.reads_whole:
            # There is nothing to look for.
            return PlainTextProcessor()
        parser = parsers.new_parser(self.state, self.tools, self._forced_read())
        looks_for_calls = self.tools is not None and self.forced is None
        return AnswerProcessor(parser, self.rules, on_calls_read if looks_for_calls else None)

    def _forced_read(self) -> Read | None:
        if self.forced is None:
            return None
        if isinstance(self.forced, NamedTool):
            return partial(read_named_call, name=self.forced.name)
        return read_call_list


def plan_answer(
    parsers: ModelParsers,
    prompt_token_ids: Sequence[int],
    request: AnswerRequest,
    template_arguments: Mapping[str, object],
) -> AnswerPlan:
    """Plan how to read the answers to a prompt."""
    state = parsers.prompt_state(prompt_token_ids)
    if state == "unsaid" and not _may_reason(parsers, template_arguments):
        state = "off"
    tool_format, tools, choice = parsers.tool, request.tools, request.tool_choice
    if tool_format is None or not tools or choice == "none":
        return AnswerPlan(state, None, None, AnswerRules(request.include_reasoning, 0))
    forced: Literal["required"] | NamedTool | None = None
    if choice != "auto" and tool_format.grammar is None and tool_format.forced_as_json:
        forced = choice
    most_calls = None if request.parallel_tool_calls else 1
    rules = AnswerRules(request.include_reasoning, most_calls, tool_format.call_ids)
    schemas = {tool.name: tool.parameters or NO_SCHEMA for tool in tools}
    return AnswerPlan(state, schemas, forced, rules)


def _may_reason(parsers: ModelParsers, template_arguments: Mapping[str, object]) -> bool:
    """Say whether a request lets a model reason whose prompt tells nothing."""
    asked = [template_arguments.get(name) for name in THINKING_ARGUMENTS]
    if any(value is False for value in asked):
        return False
    on_request = parsers.reasoning is not None and parsers.reasoning.on_request
    return not on_request or any(asked)


def engine_parser_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Give what the engine's reasoning parser is made with, of what templates are given.

    Nothing else of it crosses the wire: it may be large, or no MessagePack.
    """
    told = {
        name: arguments[name]
        for name in ENGINE_PARSER_ARGUMENTS
        if isinstance(arguments.get(name), (bool, str))
    }
    return {"chat_template_kwargs": told}
