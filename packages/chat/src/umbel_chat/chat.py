"""Messages in, messages out, n times."""

import msgspec

from umbel_chat.content_format import ContentFormat
from umbel_chat.errors import InvalidChatError
from umbel_chat.messages import Message, read_messages
from umbel_chat.output import OutputProcessorFactory, PlainTextProcessor
from umbel_chat.processes import RenderingProcesses, TemplateLimits
from umbel_chat.request import ChatRequest
from umbel_chat.stage import ChatDelta, ChatStage
from umbel_chat.template import UNTRUSTED_TEMPLATE, ChatTemplate
from umbel_engine import Samples
from umbel_text import LoweredRequest, TextLlm, TextRequest, TextStage

FEW_MESSAGES = 1024
"""So many messages are read whatever the model's context."""


class ChatModel(msgspec.Struct, frozen=True):
    """What the chat layer knows of a model.

    `name` is what messages call it.  `content_format` is the form of content that the template
    wants; None means the form that was detected.  `template_arguments` are handed to every
    rendering, below those of the request.  `trust_request_template` allows requests to bring a
    template of their own, which runs in another process, within `template_limits`.
    """

    name: str
    template: ChatTemplate
    content_format: ContentFormat | None = None
    template_arguments: dict[str, object] = {}
    trust_request_template: bool = False
    template_limits: TemplateLimits = TemplateLimits()


class ChatLlm:
    """Generates samples of answers in a conversation.

    `new_processor` is called once per sample: parsers have state, and siblings must not share it.
    """

    def __init__(
        self,
        model: ChatModel,
        text: TextLlm,
        new_processor: OutputProcessorFactory = PlainTextProcessor,
    ) -> None:
        self.model = model
        self.text = text
        self._new_processor = new_processor
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
        # A value that asks for nothing leaves the model's (vllm/renderers/params.py).
        asked = {
            name: value
            for name, value in request.template_arguments.items()
            if value is not None and value != "auto"
        }
        arguments = {**self.model.template_arguments, **asked}
        if self.model.trust_request_template:
            arguments.pop("chat_template", None)
        template = self._template(request)
        return template.render(
            self._read(request, template),
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            documents=request.documents,
            template_kwargs=arguments,
        )

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
            return self.model.template
        # It may also stand among the arguments (vllm/renderers/params.py); "" is none.
        source = source or request.template_arguments.get("chat_template")
        if source is None or source == "":
            return self.model.template
        if not isinstance(source, str):
            raise InvalidChatError("chat_template must be a string.", "chat_template")
        return self.model.template.replaced(source, self._processes.compile(source))

    def close(self) -> None:
        """Render no template of a request any more; processes that do are ended."""
        self._processes.close()

    def lower(self, request: ChatRequest, n: int = 1) -> LoweredRequest:
        """Render, tokenize and check a request.

        Raises InvalidChatError or umbel_text.InvalidRequestError for the first fault.
        """
        prompt = request.prompt_token_ids or self.render(request)
        return self.text.lower(_text_request(request, prompt), n)

    def chat(self, request: ChatRequest | LoweredRequest) -> Samples[ChatDelta]:
        """Prepare the one sample of a request; the same as `chat_n` with n = 1."""
        return self.chat_n(request, 1)

    def chat_n(self, request: ChatRequest | LoweredRequest, n: int) -> Samples[ChatDelta]:
        """Prepare n samples of a request, in index order; it is rendered once.

        Nothing is sent before the samples are entered with `async with`.  Raises what `lower`
        raises, and ValueError when n is less than 1.
        """
        lowered = request if isinstance(request, LoweredRequest) else self.lower(request, n)

        def stage(text: TextStage) -> ChatStage:
            return ChatStage(text, self._new_processor())

        return self.text.generate_with(lowered, n, stage)


def _text_request(request: ChatRequest, prompt: str | list[int]) -> TextRequest:
    return TextRequest(
        request_id=request.request_id,
        prompt=prompt,
        sampling=request.sampling,
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
