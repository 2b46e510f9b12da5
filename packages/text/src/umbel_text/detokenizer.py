"""Incremental detokenization: the text of each token, given what stands before it."""

from collections.abc import Sequence

import msgspec
from tokenizers.decoders import DecodeStream

from umbel_text.token_texts import REPLACEMENT, TokenTexts
from umbel_text.tokenizer import Tokenizer, shared_length

CHARACTER_TOKENS = 4
"""A UTF-8 character has at most four bytes, so no more than four tokens share one."""

LONGEST_WAIT = 256
"""Tokens without a text after which a stream begins anew: it decodes them all again for each."""


class LeftContext(msgspec.Struct, frozen=True):
    """The end of a prompt, as far as the text of the tokens after it depends on it.

    `open_texts` is empty unless the prompt ends within a character.  Then it has the text of
    `token_ids` as it is and without the beginning of that character: byte fallback may decode the
    former quite differently.  A context is made once per prompt and shared by all its samples.
    """

    token_ids: list[int]
    skip_special_tokens: bool
    open_texts: tuple[str, ...] = ()


def left_context(
    tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True
) -> LeftContext:
    """Find the shortest end of a prompt that stands for the whole of it.

    Decoding it must give text that does not end within a character.  If the prompt itself ends
    so, the context reaches back to where its last whole character ends.
    """
    texts = tokenizer.token_texts(skip_special_tokens)
    if texts is not None and _ends_whole(texts, prompt_token_ids):
        return LeftContext([], skip_special_tokens)
    tail = _visible_tail(tokenizer, prompt_token_ids, skip_special_tokens)
    for whole in range(len(tail), max(len(tail) - CHARACTER_TOKENS, -1), -1):
        start = _clean_start(tokenizer, tail[:whole], skip_special_tokens)
        if start is not None:
            break
    else:
        start, whole = 0, len(tail)
    context = tail[start:]
    text = tokenizer.decode(context, skip_special_tokens)
    if not text.endswith(REPLACEMENT):
        return LeftContext(context, skip_special_tokens)
    closed_text = tokenizer.decode(tail[start:whole], skip_special_tokens)
    return LeftContext(context, skip_special_tokens, (text, closed_text))


def _ends_whole(texts: TokenTexts, token_ids: Sequence[int]) -> bool:
    """Say whether the last token that has a text is known to end with a whole character."""
    for token_id in reversed(token_ids):
        if text := texts[token_id]:
            return True
        if text is None:
            return False
    return True


def _visible_tail(
    tokenizer: Tokenizer, token_ids: Sequence[int], skip_special_tokens: bool
) -> list[int]:
    """Give the last tokens that have a text: a first token may decode without its space."""
    tail: list[int] = []
    for token_id in reversed(token_ids):
        if not tokenizer.is_known(token_id):
            continue
        if skip_special_tokens and tokenizer.is_special(token_id):
            continue
        tail.append(token_id)
        # Three tokens that end within a character, and a clean context before them.
        if len(tail) == 3 * CHARACTER_TOKENS:
            break
    tail.reverse()
    return tail


def _clean_start(
    tokenizer: Tokenizer, token_ids: list[int], skip_special_tokens: bool
) -> int | None:
    """Find where the shortest context begins whose text ends with a whole character.

    It has at least one character's worth of tokens, and begins within one character of that: byte
    fallback decodes a run of bytes as a whole, so it has to begin where a character does.
    """
    last = max(len(token_ids) - CHARACTER_TOKENS, 0)
    for start in range(last, max(last - CHARACTER_TOKENS, -1), -1):
        text = tokenizer.decode(token_ids[start:], skip_special_tokens)
        if not text.endswith(REPLACEMENT):
            return start
    return None


class Detokenizer:
    """Turn the tokens of one sample into text, token by token.

    A token that ends within a character gives no text; the token that completes the character
    gives it.  What never becomes a character is not given at all.  The text is that of vLLM's
    detokenizer (vllm/v1/engine/detokenizer.py), which reads the whole prompt for context, except
    after a prompt that ends within a character: there vLLM gives the whole prompt's text once
    more, and this one the completed character.

    With `spaces_between_special_tokens` false (and special tokens not skipped), an added token
    that follows another one gives its bare text.
    """

    __slots__ = (
        "_added_tokens",
        "_after_added",
        "_backend",
        "_context",
        "_open_ids",
        "_open_texts",
        "_skipped",
        "_skips",
        "_stream",
        "_texts",
        "_waiting",
        "_whole",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        context: LeftContext,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._backend = tokenizer.backend
        self._skips = skips = context.skip_special_tokens
        self._context = context.token_ids
        self._skipped = tokenizer.skipped_ids if skips else frozenset()
        self._stream: DecodeStream | None = None
        self._waiting = 0
        self._open_texts = context.open_texts
        self._open_ids: list[int] = list(context.token_ids) if context.open_texts else []
        self._texts = tokenizer.token_texts(skips)
        # The texts to look up; None while the next token is to be decoded with those before it.
        self._whole = None if context.open_texts else self._texts
        keeps_spaces = skips or spaces_between_special_tokens
        self._added_tokens = None if keeps_spaces else tokenizer.added_tokens
        self._after_added = False

    def feed(self, token_id: int) -> str:
        """Take in the next token; give the text that it completes, which may be empty."""
        text = None if self._whole is None else self._whole[token_id]
        if text is None:
            text = self._decode(token_id)
        if self._added_tokens is not None:
            content = self._added_tokens.get(token_id)
            if content is not None and self._after_added:
                text = content
            self._after_added = content is not None
        return text

    def finish(self) -> str:
        """Give the text that is left at the end: none, as in vLLM."""
        return ""

    def _decode(self, token_id: int) -> str:
        """Decode a token together with those before it."""
        if token_id in self._skipped:
            # The stream would decode all of a long run of them again for each.
            return ""
        if self._texts is not None:
            return self._decode_bytes(self._texts, token_id)
        text = self._decode_open(token_id) if self._open_texts else self._step(token_id)
        self._waiting = 0 if text else self._waiting + 1
        if self._waiting == LONGEST_WAIT:
            # Bytes that are no character, or no tokens at all.  They are given up, as they are
            # where they change the text before them.
            self._waiting, self._open_texts = 0, ()
            self._stream = self._new_stream([token_id])
        return text

    def _decode_bytes(self, texts: TokenTexts, token_id: int) -> str:
        """Decode a token where every token stands for some bytes, those before it included.

        Whether a text ends within a character shows in its last bytes, so that the whole of it is
        decoded once.
        """
        self._whole = None
        if texts[token_id] == "":
            return ""
        self._open_ids.append(token_id)
        if self._decoded(self._open_ids[-CHARACTER_TOKENS:]).endswith(REPLACEMENT):
            return ""
        text = self._decoded(self._open_ids)
        known = max((shared_length(before, text) for before in self._open_texts), default=0)
        self._open_ids, self._open_texts, self._whole = [], (), texts
        return text[known:]

    def _step(self, token_id: int) -> str:
        stream = self._stream
        if stream is None:
            stream = self._stream = self._new_stream(self._context)
        try:
            return stream.step(self._backend, token_id) or ""
        except (OverflowError, TypeError):
            return ""  # not an unsigned 32-bit number, so not a token
        except Exception as error:
            if not str(error).startswith("Invalid prefix encountered"):
                raise
        # Bytes that were never a character have changed the text before them.  What was pending
        # is lost; this token begins anew.
        self._stream = self._new_stream([])
        return self._stream.step(self._backend, token_id) or ""

    def _new_stream(self, token_ids: list[int]) -> DecodeStream:
        return DecodeStream(ids=token_ids, skip_special_tokens=self._skips)

    def _decoded(self, token_ids: list[int]) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=self._skips)

    def _decode_open(self, token_id: int) -> str:
        """Decode a token while the prompt's last character is not complete."""
        try:
            text = self._decoded([*self._open_ids, token_id])
        except OverflowError:
            return ""  # not an unsigned 32-bit number, so not a token
        self._open_ids.append(token_id)
        known = max(shared_length(open_text, text) for open_text in self._open_texts)
        if text.endswith(REPLACEMENT) or len(text) == known:
            return ""
        self._context, self._open_texts = self._open_ids, ()
        return text[known:]
