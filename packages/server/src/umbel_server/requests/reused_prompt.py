"""The prompt of a chat that another server has rendered and tokenized before.

With prefill and decode on different servers, the first hands its token ids on among the transfer
parameters (vllm/renderers/online_renderer.py).
"""

from umbel_server.errors import validation_error
from umbel_server.requests.chat import ChatCompletionRequest

KEY = "prompt_token_ids"


def reused_prompt_token_ids(body: ChatCompletionRequest) -> list[int] | None:
    """Give the token ids that stand for the messages; None when these have to be rendered.

    They are rendered where they are echoed, and where there is more to them than text.  Raises
    ApiError for ids that are none.
    """
    ids = (body.kv_transfer_params or {}).get(KEY)
    if ids is None or body.echo or not all(_is_text(message) for message in body.messages):
        return None
    if isinstance(ids, list) and ids and all(type(item) is int and item >= 0 for item in ids):
        return ids
    raise validation_error(
        f"`kv_transfer_params['{KEY}']` must be a non-empty list of non-negative integers.",
        f"kv_transfer_params.{KEY}",
    )


def engine_transfer_parameters(body: ChatCompletionRequest) -> dict[str, object] | None:
    """Give what the engine gets of the transfer parameters: all but the token ids."""
    parameters = body.kv_transfer_params
    if parameters is None or KEY not in parameters:
        return parameters
    return {name: value for name, value in parameters.items() if name != KEY}


def _is_text(message: dict[str, object]) -> bool:
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(isinstance(part, str) or _is_text_part(part) for part in content)


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in ("text", "refusal", "thinking")
