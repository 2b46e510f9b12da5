"""The prompt in tokens: tokenized, cut where that was asked for, refused where it is too long.

Stages and messages follow vllm/renderers/params.py (TokenizeParams).
"""

from umbel_text.errors import InvalidRequestError
from umbel_text.model import TextModel
from umbel_text.request import TextRequest

Offsets = list[tuple[int, int]]

LONGEST_TEXT = 1024 * 1024
"""Characters of a text that is tokenized whole, however few tokens of it are wanted.

A model that reads more gets more.  Tokenizing takes some seconds and hundreds of bytes of memory
for each character, if every one is a token.
"""


def check_truncation(request: TextRequest, max_model_len: int) -> None:
    """Refuse to cut a prompt to more than fits."""
    size = request.truncate_prompt_tokens
    if size is not None and size > max_model_len:
        raise InvalidRequestError(
            f"truncate_prompt_tokens={size} cannot be greater than max_model_len = "
            f"{max_model_len}. Please request a smaller truncation size.",
            "truncate_prompt_tokens",
            size,
        )


def check_text(text: str, model: TextModel) -> None:
    """Refuse a text that is too long to be tokenized for any purpose."""
    limit = max(LONGEST_TEXT, model.max_model_len * model.tokenizer.max_characters_per_token)
    if len(text) > limit:
        raise InvalidRequestError(
            f"The text has {len(text)} characters. At most {limit} are tokenized.",
            "input_text",
            len(text),
        )


def tokenize(request: TextRequest, model: TextModel) -> tuple[list[int], Offsets | None]:
    """Give the token ids of the prompt, and their places in the text if they were asked for.

    Raises InvalidRequestError when the prompt is too long.
    """
    limit = model.max_model_len
    prompt = request.prompt
    offsets: Offsets | None = None
    keep = _kept_tokens(request, limit)
    at_least = ""
    if isinstance(prompt, str):
        token_ids, offsets = _encode(request, prompt, model, keep)
        if keep is None and len(token_ids) > limit:
            # vLLM stops tokenizing one token past the limit, and says so.
            token_ids, at_least = token_ids[: limit + 1], "at least "
    else:
        token_ids = prompt
        if len(prompt) == limit + 1:
            at_least = "at least "
    kept = _kept_slice(request, keep, len(token_ids))
    token_ids = token_ids[kept]
    _check_length(len(token_ids), limit, at_least)
    return token_ids, offsets[kept] if offsets is not None else None


def _kept_tokens(request: TextRequest, limit: int) -> int | None:
    """Give how many tokens of a longer prompt are kept; None when it is not to be cut."""
    size = request.truncate_prompt_tokens
    if size is None or size >= 0:
        return size
    # As many as leave room for one output token; a request that wants none is refused anyway.
    return max(limit - 1, 0)


def _kept_slice(request: TextRequest, keep: int | None, length: int) -> slice:
    if keep is None or keep >= length:
        return slice(None)
    return slice(0, keep) if request.truncation_side == "right" else slice(length - keep, None)


def _encode(
    request: TextRequest, text: str, model: TextModel, keep: int | None
) -> tuple[list[int], Offsets | None]:
    skipped = 0
    side = request.truncation_side
    if keep is None or side is not None:
        characters = model.max_model_len * model.tokenizer.max_characters_per_token
        if len(text) > characters:
            if keep is None:
                raise _too_many_characters(len(text), characters, model.max_model_len)
            skipped = len(text) - characters if side == "left" else 0
            text = text[skipped : skipped + characters]
    check_text(text, model)
    special = request.add_special_tokens
    if (keep is None or side is not None) and not request.return_token_offsets:
        return model.tokenizer.encode(text, special), None
    token_ids, offsets = model.tokenizer.encode_end(text, special, keep if side is None else None)
    if not request.return_token_offsets:
        return token_ids, None
    return token_ids, [(start + skipped, end + skipped) for start, end in offsets]


def _too_many_characters(length: int, characters: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"This model's maximum context length is {limit} tokens. However, your prompt contains "
        f"{length} characters (more than {characters} characters, which is the upper bound for "
        f"{limit} input tokens). Please reduce the length of the input prompt.",
        "input_text",
        length,
    )


def _check_length(length: int, limit: int, at_least: str) -> None:
    if length > limit:
        raise InvalidRequestError(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains "
            f"{at_least}{length} input tokens, which exceeds this limit even without any output "
            "tokens. Please reduce the length of the input prompt.",
            "input_tokens",
            length,
        )
