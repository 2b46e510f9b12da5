"""Messages in, messages out, n times."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from umbel_chat.constraint import constraint_beside_reasoning, tool_constraint
from umbel_chat.content_format import ContentFormat
from umbel_chat.errors import InvalidChatError
from umbel_chat.messages import Message, read_messages
from umbel_chat.output import OutputProcessor, OutputProcessorFactory, PlainTextProcessor
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.plan import AnswerPlan, engine_parser_arguments, plan_answer
from umbel_chat.processes import RenderingProcesses, TemplateLimits
from umbel_chat.request import AnswerRequest, ChatRequest
from umbel_chat.stage import ChatDelta, ChatStage
from umbel_chat.template import UNTRUSTED_TEMPLATE, ChatTemplate
from umbel_engine import Samples
from umbel_text import LoweredRequest, SamplingOptions, TextLlm, TextRequest, TextStage

CallsListener: TypeAlias = Callable[[bool, bool], None]
"""Gets whether a sample was streamed, and whether calls were found in it."""

FEW_MESSAGES = 1024
"""So many messages are read whatever the model's context."""


class ChatModel(msgspec.Struct, frozen=True):
    """What the chat layer knows of a model.

    `name` is what messages call it.  Where there is a `tool_template`, requests with tools get that
    in place of `template`.  `content_format` is the form of content that the template
    wants; None means the form that was detected.  `template_arguments` are handed to every
    rendering, below those of the request.  `trust_request_template` allows requests to bring a
    template of their own, which runs in another process, within `template_limits`.  `tool_format` and
    `reasoning_format` are how the model writes tool calls and reasoning; without one, all that it
    writes of them is content.
    """

    name: str
    template: ChatTemplate
    content_format: ContentFormat | None = None
    template_arguments: dict[str, object] = {}
    trust_request_template: bool = False
    template_limits: TemplateLimits = TemplateLimits()
    tool_format: ToolFormat | None = None
    reasoning_format: ReasoningFormat | None = None
    tool_template: ChatTemplate | None = None


class LoweredChat(msgspec.Struct, frozen=True):
    """A checked request in tokens, with how its answers are to be read.

    `holds_to_tools` says that answers are held to a form that is made of the request's tools.
    """

    text: LoweredRequest
    plan: AnswerPlan = AnswerPlan()
    holds_to_tools: bool = False


class ChatLlm:
    """Generates samples of answers in a conversation.

    `new_processor` reads samples in place of the model's formats.  It is called once per sample:
    parsers have state, and siblings must not share it.
    """

    def __init__(
        self,
        model: ChatModel,
        text: TextLlm,
        new_processor: OutputProcessorFactory | None = None,
    ) -> None:
        self.model = model
        self.text = text
        self.parsers: ModelParsers | None = None
        """What reads the model's tool calls and reasoning; None when all is content."""
        self.calls_listener: CallsListener | None = None
        """Told of every sample in which the model's parser looked for calls, at its end."""
        self._new_processor = new_processor or PlainTextProcessor
        formats = (model.tool_format, model.reasoning_format)
        if new_processor is None and any(form is not None for form in formats):
            self.parsers = ModelParsers(text.model.tokenizer, *formats)
        self._processes = RenderingProcesses(model.template_limits)

    def read(self, request: ChatRequest) -> list[Message]:
        """Read the messages of a request; raises InvalidChatError for one that is not text."""
        return self._read(request, self._template(request))

    def _read(self, request: ChatRequest, template: ChatTemplate) -> list[Message]:
        content_format = self.model.content_format or template.content_format
        return read_messages(request.messages, content_format, self.model.name)

    def render(self, request: ChatRequest) -> str:
        """Render the prompt of a conversation; raises InvalidChatError when that fails."""
        most = max(self.text.model.max_model_len, FEW_MESSAGES)
        if len(request.messages) > most:
            raise InvalidChatError(
                f"The conversation has {len(request.messages)} messages. At most {most} are read, one "
                "for each token of the model's context.",
                "messages",
            )
        arguments = self.template_arguments(request)
        if self.model.trust_request_template:
            arguments.pop("chat_template", None)
        template = self._template(request)
        return template.render(
            self._read(request, template),
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            tools=[tool.definition for tool in request.tools or ()] or None,
            documents=request.documents,
            template_kwargs=arguments,
        )

    def template_arguments(self, request: ChatRequest) -> dict[str, object]:
        """Give the arguments of the template, the model's where a request asks for nothing else."""
        # A value that asks for nothing leaves the model's (vllm/renderers/params.py).
        asked = {
            name: value
            for name, value in request.template_arguments.items()
            if value is not None and value != "auto"
        }
        return {**self.model.template_arguments, **asked}

    def brings_template(self, request: ChatRequest) -> bool:
        """Tell whether a request brings a template that it may bring.

        To read, render or lower it takes another process, and so more time than others need.
        """
        among = request.template_arguments.get("chat_template")
        return self.model.trust_request_template and bool(request.chat_template or among)

    def _template(self, request: ChatRequest) -> ChatTemplate:
        source: object = request.chat_template
        if not self.model.trust_request_template:
            if source is not None:
                raise InvalidChatError(UNTRUSTED_TEMPLATE)
            return self._own_template(request)
        # It may also stand among the arguments (vllm/renderers/params.py); "" is none.
        source = source or request.template_arguments.get("chat_template")
        if source is None or source == "":
            return self._own_template(request)
        if not isinstance(source, str):
            raise InvalidChatError("chat_template must be a string.", "chat_template")
        return self.model.template.replaced(source, self._processes.compile(source))

    def _own_template(self, request: ChatRequest) -> ChatTemplate:
        template = self.model.tool_template
        if template is None:
            return self.model.template
        # Tools among the arguments of the template replace those of the request.
        tools = self.template_arguments(request).get("tools", request.tools or None)
        return self.model.template if tools is None else template

    def close(self) -> None:
        """Render no template of a request any more; processes that do are ended."""
        self._processes.close()

    def lower(self, request: ChatRequest, n: int = 1) -> LoweredChat:
        """Render, tokenize and check a request.

        Raises InvalidChatError or umbel_text.InvalidRequestError for the first fault.
        """
        prompt = request.prompt_token_ids or self.render(request)
        sampling = self._sampling(request)
        text = _text_request(request, prompt, sampling)
        lowered = self.text.lower(text, n)
        arguments = self.template_arguments(request)
        plan, told = self.plan(lowered.prompt_token_ids, request, arguments), None
        if self.parsers is not None and self.parsers.reasoning is not None:
            told = engine_parser_arguments(arguments)
        own = request.sampling.structured_outputs
        calls_enforced = request.allows_calls and sampling.structured_outputs is not own
        ended = self._reasoning_ended(request, plan)
        if ended is not None:
            text = msgspec.structs.replace(
                lowered.request, reasoning_ended=ended, reasoning_parser_kwargs=told
            )
            lowered = msgspec.structs.replace(lowered, request=text)
        return LoweredChat(lowered, plan, calls_enforced)

    def plan(
        self,
        prompt_token_ids: Sequence[int],
        request: AnswerRequest,
        template_arguments: Mapping[str, object],
    ) -> AnswerPlan:
        """Plan how to read the answers to a prompt that was rendered with these arguments."""
        if self.parsers is None:
            return AnswerPlan()
        return plan_answer(self.parsers, prompt_token_ids, request, template_arguments)

    def needs_special_tokens(self, request: AnswerRequest) -> bool:
        """Say whether parsers look for special tokens, which must not be left out of the text then."""
        parsers = self.parsers
        return parsers is not None and parsers.needs_special_tokens(request.allows_calls)

    def _reasoning_ended(self, request: ChatRequest, plan: AnswerPlan) -> bool | None:
        """Say whether the engine is to enforce structured outputs from the first token on."""
        if not request.include_reasoning:
            # Hidden reasoning has ended before it begins.
            return True
        if self.parsers is None or self.parsers.reasoning is None:
            return None
        return plan.state in ("closed", "off")

    def _sampling(self, request: ChatRequest) -> SamplingOptions:
        """Give how to sample so that parsers see markers, and calls are made that must be."""
        sampling, tools, parsers = request.sampling, request.tools, self.parsers
        if self.needs_special_tokens(request):
            sampling = msgspec.structs.replace(sampling, skip_special_tokens=False)
        tool_format = None if parsers is None else parsers.tool
        if tool_format is None:
            return sampling
        constraint = own = sampling.structured_outputs
        if tools is not None and request.allows_calls:
            constraint = tool_constraint(
                tool_format,
                tools,
                request.tool_choice,
                not request.parallel_tool_calls,
                own,
                self.text.model.structured_outputs_backend,
            )
        if constraint is not None and constraint is own and tool_format.reads_reasoning:
            constraint = constraint_beside_reasoning(tool_format, own)
        return msgspec.structs.replace(sampling, structured_outputs=constraint)

    def chat(self, request: ChatRequest | LoweredChat) -> Samples[ChatDelta]:
        """Prepare the one sample of a request; the same as `chat_n` with n = 1."""
        return self.chat_n(request, 1)

    def chat_n(self, request: ChatRequest | LoweredChat, n: int) -> Samples[ChatDelta]:
        """Prepare n samples of a request, in index order; it is rendered once.

        Nothing is sent before the samples are entered with `async with`.  Raises what `lower`
        raises, and ValueError when n is less than 1.
        """
        lowered = request if isinstance(request, LoweredChat) else self.lower(request, n)

        listener, on_calls_read = self.calls_listener, None
        if listener is not None:
            on_calls_read = partial(listener, lowered.text.request.stream_interval is not None)

        def stage(text: TextStage) -> ChatStage:
            if lowered.holds_to_tools:
                text.blame("tools")
            return ChatStage(text, self._processor(lowered.plan, on_calls_read))

        return self.text.generate_with(lowered.text, n, stage)

    def _processor(
        self, plan: AnswerPlan, on_calls_read: Callable[[bool], None] | None
    ) -> OutputProcessor:
        if self.parsers is None:
            return self._new_processor()
        return plan.new_processor(self.parsers, on_calls_read)


def _text_request(
    request: ChatRequest,
    prompt: str | list[int],
    sampling: SamplingOptions,
) -> TextRequest:
    return TextRequest(
        request_id=request.request_id,
        prompt=prompt,
        sampling=sampling,
        arrival_time=request.arrival_time,
        add_special_tokens=request.add_special_tokens,
        max_tokens_name=request.max_tokens_name,
        truncate_prompt_tokens=request.truncate_prompt_tokens,
        truncation_side=request.truncation_side,
        return_token_offsets=request.return_token_offsets,
        stream_interval=request.stream_interval,
        cache_salt=request.cache_salt,
        data_parallel_rank=request.data_parallel_rank,
        priority=request.priority,
        session_id=request.session_id,
        trace_headers=request.trace_headers,
    )
