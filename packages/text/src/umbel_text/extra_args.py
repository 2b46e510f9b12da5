"""Extra arguments: values of the client's own that go to custom parts of the engine."""

from collections.abc import Mapping

from umbel_text.errors import InvalidRequestError

DEEPEST = 64
"""How deep values may nest: the engine's decoder gives up on a very deep one, and with it dies."""

TRANSFER_PARAMETERS = ("kv_transfer_params", "ec_transfer_params")
"""The arguments that the engine itself reads, as objects (vllm/v1/request.py)."""


def check_extra_args(extra_args: Mapping[str, object] | None) -> None:
    """Refuse values that MessagePack or the engine's decoder has no room for.

    Raises InvalidRequestError; the rule for integers is that of vllm/sampling_params.py.
    """
    if extra_args is None:
        return
    for name in TRANSFER_PARAMETERS:
        if name in extra_args and not isinstance(extra_args[name], Mapping):
            raise InvalidRequestError(f"{name} must be an object.", name)
    level: list[object] = [extra_args]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inner_values(value)]
        if not level:
            return
    raise InvalidRequestError(
        f"extra_args must not be nested more than {DEEPEST} levels deep.", "extra_args"
    )


def _inner_values(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidRequestError(
            "extra_args integers must be between -2**63 and 2**64 - 1.", "extra_args"
        )
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(
                "extra_args must not contain lone surrogates.", "extra_args"
            ) from None
    return []
