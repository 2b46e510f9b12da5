"""Messages in, messages out, n times."""

import msgspec

from umbel_chat.content import ContentFormat
from umbel_chat.messages import Message, read_messages
from umbel_chat.output import OutputProcessorFactory, PlainTextProcessor
from umbel_chat.request import ChatRequest
from umbel_chat.stage import ChatDelta, ChatStage
from umbel_chat.template import ChatTemplate
from umbel_engine import Samples
from umbel_text import LoweredRequest, TextLlm, TextRequest, TextStage


class ChatModel(msgspec.Struct, frozen=True):
    """What the chat layer knows of a model.

    `name` is what messages call it.  `content_format` is the form of content that the template
    wants; None means the form that was detected.  `template_arguments` are handed to every
    rendering, below those of the request.
    """

    name: str
    template: ChatTemplate
    content_format: ContentFormat | None = None
    template_arguments: dict[str, object] = {}


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

    def read(self, request: ChatRequest) -> list[Message]:
        """Read the messages of a request; raises InvalidChatError for one that is not text."""
        content_format = self.model.content_format or self.model.template.content_format
        return read_messages(request.messages, content_format, self.model.name)

    def render(self, request: ChatRequest) -> str:
        """Render the prompt of a conversation; raises InvalidChatError when that fails."""
        return self.model.template.render(
            self.read(request),
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            template_kwargs={**self.model.template_arguments, **request.template_arguments},
        )

    def lower(self, request: ChatRequest, n: int = 1) -> LoweredRequest:
        """Render, tokenize and check a request.

        Raises InvalidChatError or umbel_text.InvalidRequestError for the first fault.
        """
        return self.text.lower(_text_request(request, self.render(request)), n)

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


def _text_request(request: ChatRequest, prompt: str) -> TextRequest:
    return TextRequest(
        request_id=request.request_id,
        prompt=prompt,
        sampling=request.sampling,
        arrival_time=request.arrival_time,
        add_special_tokens=request.add_special_tokens,
        max_tokens_name=request.max_tokens_name,
        stream_interval=request.stream_interval,
        cache_salt=request.cache_salt,
        data_parallel_rank=request.data_parallel_rank,
        priority=request.priority,
        session_id=request.session_id,
        trace_headers=request.trace_headers,
    )
