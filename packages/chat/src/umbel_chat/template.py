"""The chat template: from a conversation to the text of a prompt.

Which variables templates are given, and in which words they are refused, is vLLM's rule
(vllm/renderers/hf.py).
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol

from umbel_chat.content_format import ContentFormat
from umbel_chat.environment import CompiledTemplate, reason_of
from umbel_chat.errors import ChatTemplateError, InvalidChatError
from umbel_chat.messages import Message, fold_developer_messages

NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a "
    "chat template if the tokenizer does not define one."
)
NO_MESSAGES = "Cannot apply chat template to an empty conversation. Provide at least one message."
CONTINUES_AND_STARTS = (
    "continue_final_message and add_generation_prompt are not compatible. Use "
    "continue_final_message when you want the model to continue the final message, and "
    "add_generation_prompt when you want to add a header that will prompt it to start a new "
    "assistant message instead."
)
NOTHING_TO_CONTINUE = (
    'continue_final_message is set but the final message has no "content" to continue!'
)
NO_TEXT_TO_CONTINUE = (
    "continue_final_message is set but we could not find any text to continue in the final message!"
)
CONTENT_NOT_ACCEPTED = (
    'continue_final_message is set to "content" but this is not an accepted field in the '
    "chat_template"
)
FINAL_MESSAGE_CHANGED = (
    "continue_final_message is set but the final message does not appear in the chat after applying "
    "the chat template! This can happen if the chat template deletes portions of the final message. "
    "Please verify the chat template and final message in your chat to ensure they are compatible."
)
UNTRUSTED_TEMPLATE = (
    "Chat template is passed with request, but --trust-request-chat-template is not set. Refused "
    "request with untrusted chat template."
)

# Appended to the message that is to be continued, to find its end in the rendered text. The space
# tells whether the template trims what it is given.
END_MARK = "END_OF_THE_FINAL_MESSAGE_TO_CONTINUE "

DECIDED_BY_REQUEST = frozenset(
    {"add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
)
"""Template arguments that have no effect, since the request or the server decides on them."""


class Renderer(Protocol):
    """What renders a template that has been compiled, wherever that is.

    `used` are the names of the variables that the template reads, `content_format` is the form of
    content that it was written for.  `render` raises InvalidChatError for whatever the template
    does not get along with, in the template's words where it has some.
    """

    @property
    def used(self) -> AbstractSet[str]: ...

    @property
    def content_format(self) -> ContentFormat: ...

    def render(self, variables: Mapping[str, object]) -> str: ...


class LocalRenderer(CompiledTemplate):
    """Renders in this process, as is right for a template that the operator chose."""

    def render(self, variables: Mapping[str, object]) -> str:
        """Render the template; raises InvalidChatError."""
        try:
            return super().render(variables)
        except Exception as error:
            # A template may fail in any way on what a client sent, and each is the request's fault.
            raise InvalidChatError(reason_of(error)) from error


class ChatTemplate:
    """A chat template, compiled once; it has no state and may render on several threads.

    `source` is its Jinja text; without one every rendering is refused, as vLLM does when a model
    has no template.  `special_tokens` are the tokenizer's, by the names that templates use
    (`bos_token`, ...).  `now` is the local time for templates that print the date.  Raises
    ChatTemplateError when the source is not a valid template.
    """

    def __init__(
        self,
        source: str | None,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._special_tokens = dict(special_tokens or {})
        self._source = ""
        self._renderer: Renderer | None = None
        if source is not None:
            try:
                self._take(source, LocalRenderer(source, now))
            except Exception as error:
                # Python's compiler has refusals of its own: of blocks nested too deeply, say.
                raise ChatTemplateError(f"the chat template is not valid: {error}") from error

    def _take(self, source: str, renderer: Renderer) -> None:
        self._source = source
        self._renderer = renderer

    @property
    def source(self) -> str | None:
        """The Jinja text of the template; None when there is no template."""
        return self._source if self._renderer is not None else None

    @property
    def content_format(self) -> ContentFormat:
        """The form of content that the template was written for."""
        return "string" if self._renderer is None else self._renderer.content_format

    def replaced(self, source: str, renderer: Renderer) -> "ChatTemplate":
        """Give another template for the same model; `renderer` is what `source` was compiled to."""
        other = ChatTemplate(None, self._special_tokens)
        other._take(source, renderer)
        return other

    def render(
        self,
        conversation: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[object] | None = None,
        documents: Sequence[object] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """Render a conversation, as `read_messages` gives it for this template's content format.

        `template_kwargs` are the request's `chat_template_kwargs`: the template sees those that it
        uses and that are neither null nor "auto".  `tools` among them replace the argument
        `tools`; all other arguments of this method win.  Raises InvalidChatError for whatever the
        template does not get along with, in the template's words where it has some.
        """
        renderer = self._renderer
        if renderer is None:
            raise InvalidChatError(NO_TEMPLATE)
        if not conversation:
            raise InvalidChatError(NO_MESSAGES)
        variables = {**self._special_tokens, **_select(template_kwargs or {}, renderer.used)}
        variables.setdefault("tools", tools)
        if documents is not None or "documents" not in variables:
            variables["documents"] = documents
        for name in ("tools", "documents"):
            _check_objects(name, variables[name])
        variables["messages"] = messages = self._fit_roles(conversation)
        variables["add_generation_prompt"] = add_generation_prompt
        if not continue_final_message:
            return renderer.render(variables)
        if add_generation_prompt:
            raise InvalidChatError(CONTINUES_AND_STARTS)
        if "content" not in self._source:
            raise InvalidChatError(CONTENT_NOT_ACCEPTED)
        marked, text = _mark_end(messages[-1])
        variables["messages"] = [*messages[:-1], marked]
        return _cut_at_mark(renderer.render(variables), text)

    def _fit_roles(self, conversation: Sequence[Message]) -> Sequence[Message]:
        if all(item.get("role") != "developer" for item in conversation):
            return conversation
        if '"developer"' in self._source or "'developer'" in self._source:
            return conversation
        return fold_developer_messages(conversation)


def _select(template_kwargs: Mapping[str, object], used: AbstractSet[str]) -> dict[str, object]:
    given = {
        name: value
        for name, value in template_kwargs.items()
        if value is not None and value != "auto"
    }
    if "chat_template" in given:
        raise InvalidChatError(UNTRUSTED_TEMPLATE)
    for name in ("messages", "conversation"):
        if name in given:
            raise InvalidChatError(f"chat_template_kwargs must not contain {name!r}.")
    accepted = (used | {"tools", "documents"}) - DECIDED_BY_REQUEST
    return {name: value for name, value in given.items() if name in accepted}


def _check_objects(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Sequence) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidChatError(f"{name} must be a list of objects.", name)


def _mark_end(message: Message) -> tuple[Message, str]:
    """Mark the end of the text in a message; gives the marked message and the text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + END_MARK}, content
    if not isinstance(content, list):
        raise InvalidChatError(NOTHING_TO_CONTINUE)
    for index in reversed(range(len(content))):
        text = content[index].get("text")
        if isinstance(text, str):
            part = {**content[index], "text": text + END_MARK}
            return {**message, "content": [*content[:index], part, *content[index + 1 :]]}, text
    raise InvalidChatError(NO_TEXT_TO_CONTINUE)


def _cut_at_mark(rendered: str, text: str) -> str:
    """Cut rendered text where the text to continue ends."""
    mark = END_MARK.rstrip()
    place = rendered.rfind(mark)
    if place < 0 or text.strip() not in rendered:
        raise InvalidChatError(
            f"{FINAL_MESSAGE_CHANGED}Final message to continue: {text.strip()}\n"
            f"Rendered chat:\n{rendered.replace(mark, '')}"
        )
    if rendered.startswith(END_MARK, place):
        return rendered[:place]
    # The template has trimmed the content, so the prompt must not end in space that it would trim.
    return rendered[:place].rstrip()
