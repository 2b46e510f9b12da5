"""Sampling defaults that come with a model, and those that whoever runs the server puts over them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from umbel_text.errors import ModelFilesError, ModelNotFoundError
from umbel_text.tokenizer import read_json

AUTO = "auto"
"""Take the defaults of the model."""

NEUTRAL = "vllm"
"""Take none but neutral ones."""


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds where a request is silent; None means the neutral value.

    `max_tokens` counts output tokens and is a default; `max_tokens_cap` limits every request.
    `eos_token_ids` end a sample besides the tokenizer's own end-of-sequence token, whatever the
    mode.
    """

    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    skip_special_tokens: bool | None = None
    max_tokens_cap: int | None = None
    eos_token_ids: tuple[int, ...] = ()


class _Settings(msgspec.Struct, frozen=True):
    """The keys of a generation config that matter here, under the names they have there."""

    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    max_new_tokens: int | None = None
    skip_special_tokens: bool | None = None


_MODEL_KEYS = (
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "max_new_tokens",
    "eos_token_id",
)
"""What an old model's `config.json` may say in place of a generation config."""


def load_defaults(
    folder: Path, mode: str = AUTO, override: Mapping[str, object] | None = None
) -> SamplingDefaults:
    """Read the sampling defaults of the model in `folder`.

    `mode` is "auto", "vllm" (the model's sampling settings are ignored) or another folder whose
    generation config is taken.  `override` is laid over it; its keys are those of a generation
    config (`max_new_tokens`), and None unsets one.  The rules, including which limit caps every
    request, are those of vllm/config/model.py (get_diff_sampling_param) and of
    vllm/entrypoints/openai/chat_completion/serving.py.  Raises ModelNotFoundError for a folder that
    does not exist and ModelFilesError for values of a wrong type.
    """
    source = folder if mode in (AUTO, NEUTRAL) else Path(mode).expanduser()
    if not source.is_dir():
        raise ModelNotFoundError(f"there is no folder {source} to take a generation config from")
    config = _read_generation_config(source)
    overriding = dict(override or {})
    settings = _convert({**({} if mode == NEUTRAL else config), **overriding}, source, _Settings)
    cap = settings.max_new_tokens
    if mode in (AUTO, NEUTRAL):
        cap = _convert(overriding, source, _Settings).max_new_tokens
    values = msgspec.structs.asdict(settings)
    max_tokens = values.pop("max_new_tokens")
    return SamplingDefaults(
        **values,
        max_tokens=max_tokens,
        max_tokens_cap=cap,
        eos_token_ids=_eos_token_ids(config, source),
    )


def _read_generation_config(folder: Path) -> dict[str, object]:
    path = folder / "generation_config.json"
    if path.is_file():
        return read_json(path)
    model = read_json(folder / "config.json")
    text = model.get("text_config")
    parts = [text if isinstance(text, dict) else {}, model]
    return {key: part[key] for part in parts for key in _MODEL_KEYS if part.get(key) is not None}


def _eos_token_ids(config: Mapping[str, object], source: Path) -> tuple[int, ...]:
    value = config.get("eos_token_id")
    if value is None:
        return ()
    ids = _convert({"eos_token_id": value}, source, _EosTokenIds).eos_token_id
    return (ids,) if isinstance(ids, int) else tuple(dict.fromkeys(ids))


class _EosTokenIds(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int]


SettingsT = TypeVar("SettingsT")


def _convert(values: Mapping[str, object], source: Path, kind: type[SettingsT]) -> SettingsT:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ModelFilesError(f"generation config of {source}: {error}") from error
