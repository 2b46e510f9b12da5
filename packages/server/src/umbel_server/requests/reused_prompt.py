"""The prompt of a chat that another server has rendered and tokenized before.

With prefill and decode on different servers, the first hands its token ids on among the transfer
parameters (vllm/renderers/online_renderer.py).
"""

from umbel_server.errors import bad_request, validation_error
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_text import TextModel

KEY = "prompt_token_ids"


def reused_prompt_token_ids(body: ChatCompletionRequest, model: TextModel) -> list[int] | None:
    """Give the token ids that stand for the messages; None when these have to be rendered.

    They are rendered where they are echoed, and where there is more to them than text.  Raises
    ApiError for ids that are none, and for more than the model takes.
    """
    ids = (body.kv_transfer_params or {}).get(KEY)
    if ids is None or body.echo or not all(_is_text(message) for message in body.messages):
        return None
    place = f"kv_transfer_params.{KEY}"
    if not isinstance(ids, list) or not ids or any(type(x) is not int or x < 0 for x in ids):
        raise validation_error(
            f"`kv_transfer_params['{KEY}']` must be a non-empty list of non-negative integers.",
            place,
        )
    if max(ids) >= model.vocabulary_size:
        raise validation_error(f"Token id {max(ids)} is out of vocabulary", place)
    limit = model.max_model_len
    if body.truncate_prompt_tokens is None and len(ids) > limit:
        raise bad_request(
            f"Input length ({len(ids)}) exceeds model's maximum context length ({limit})."
        )
    return ids


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
