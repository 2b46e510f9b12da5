"""The parsers of one model: its formats, bound to its tokenizer."""

from collections.abc import Container, Sequence

from umbel_chat.parsers.formats import Parse, ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.prompt import prompt_state
from umbel_chat.parsers.reasoning import PromptState, read_reasoning
from umbel_chat.parsers.sample import Read, SampleParser
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Markers, Source, Steps
from umbel_text import EveryToken, Tokenizer


class ModelParsers:
    """Makes parsers for the samples of a model.

    `tool` and `reasoning` are the formats in which the model writes, None for those that are not
    looked for.  Markers that are one token of the tokenizer are told by that token.
    """

    def __init__(
        self, tokenizer: Tokenizer, tool: ToolFormat | None, reasoning: ReasoningFormat | None
    ) -> None:
        self.tool = tool
        self.reasoning = reasoning
        self._tokenizer = tokenizer
        texts: list[str] = []
        if tool is not None:
            texts += [*tool.starts, *tool.markers]
        if reasoning is not None:
            texts += [*reasoning.starts, *reasoning.ends, *reasoning.markers]
        token_ids = {text: tokenizer.backend.token_to_id(text) for text in dict.fromkeys(texts)}
        self._tokens = {
            text: token_id for text, token_id in token_ids.items() if token_id is not None
        }
        self._markers = Markers(frozenset(self._tokens))
        self._marker_ids = frozenset(self._tokens.values())
        # Where no token ends the reasoning, it is the text of each that tells which are part of it.
        self._watched_ids: Container[int] | None = self._marker_ids or None
        if reasoning is not None and not self._tokens.keys() >= {
            *reasoning.starts,
            *reasoning.ends,
        }:
            self._watched_ids = EveryToken()
        # Such an answer is read as a whole, whichever of its parts are looked for.
        self._parse_whole: Parse | None = None
        if tool is not None and tool.reads_reasoning:
            self._parse_whole = tool.parse
        elif reasoning is not None:
            self._parse_whole = reasoning.parse

    @property
    def reads_whole(self) -> bool:
        """Whether answers are read as a whole, with reasoning among their parts."""
        return self._parse_whole is not None

    def prompt_state(self, prompt_token_ids: Sequence[int]) -> PromptState:
        """Tell what a prompt says of the reasoning after it; "closed" if none is looked for."""
        if self.reasoning is None or self._parse_whole is not None:
            return "closed"
        return prompt_state(prompt_token_ids, self.reasoning, self._tokenizer)

    def needs_special_tokens(self, with_tools: bool) -> bool:
        """Say whether markers are special tokens, which must not be left out of the text then."""
        texts: list[str] = []
        if with_tools and self.tool is not None:
            texts += [*self.tool.starts, *self.tool.markers]
        if self.reasoning is not None:
            texts += [*self.reasoning.starts, *self.reasoning.ends, *self.reasoning.markers]
        skipped = self._tokenizer.skipped_ids
        return any(self._tokens.get(text) in skipped for text in texts)

    def new_parser(
        self, state: PromptState, tools: Schemas | None, forced: Read | None = None
    ) -> SampleParser:
        """Make the parser of one sample.

        Without `tools`, no calls are looked for; formats that read an answer as a whole give them
        all the same.  `forced` reads an answer, after its reasoning, that is enforced to be calls in
        another form.
        """
        tool = self.tool if tools is not None and forced is None else None
        reasoning = self.reasoning
        sink = Sink(
            tool is not None and tool.trims_content,
            reasoning is not None and reasoning.trims_reasoning,
        )
        starts = () if tool is None else tool.starts
        parse_whole = self._parse_whole

        def read(source: Source, sink: Sink) -> Steps[None]:
            if parse_whole is not None:
                yield from parse_whole(source, sink, tools or {})
                return
            if reasoning is not None:
                yield from read_reasoning(source, sink, reasoning, state, starts)
            if forced is not None:
                yield from forced(source, sink)
            elif tool is not None:
                yield from tool.parse(source, sink, tools or {})

        source = Source(self._markers)
        return SampleParser(source, sink, read, self._marker_ids, self._watched_ids)
