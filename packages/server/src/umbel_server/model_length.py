"""How many tokens a model takes, where no engine tells."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from umbel_server.errors import OptionError
from umbel_server.flag_types import number_of_tokens
from umbel_text.tokenizer import read_json

LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Under which a `config.json` may have the length; the smallest counts."""

UNKNOWN_LENGTH = 2048

SCALED_ALREADY = frozenset(
    {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)
"""Kinds of rotary embedding whose factor is part of the length that the configuration states."""


def read_max_model_len(folder: Path, option: str | None) -> int:
    """Give the longest prompt plus output, in tokens, of the model in a folder.

    `option` is --max-model-len, which is believed: what is longer than the model was made for is
    for the engine to refuse.  Without it (or "auto", or -1) the rule is that of
    _get_and_verify_max_len in vllm/config/model.py, for text.  Raises OptionError for an option
    that is no length and umbel_text.ModelFilesError for a file that is no configuration.
    """
    if option is not None and option.strip().lower() not in ("auto", "-1"):
        return _read_length(option.strip())
    config = read_json(folder / "config.json")
    text = config.get("text_config")
    return _length_of(text if isinstance(text, dict) else config)


def _read_length(text: str) -> int:
    length = number_of_tokens(text)
    if not length:
        raise OptionError(
            f"--max-model-len must be a number of tokens, such as 8192, got {text!r}."
        )
    return length


def _length_of(config: Mapping[str, object]) -> int:
    lengths = [value for key in LENGTH_KEYS if isinstance(value := config.get(key), int)]
    length: float = min(lengths, default=UNKNOWN_LENGTH)
    if isinstance(own := config.get("model_max_length"), int) and own:
        length = own
    ropes = list(_ropes(config))
    if any(kind == "longrope" for kind, _ in ropes):
        # What such a model was first trained with serves short prompts best.
        original = config.get("original_max_position_embeddings")
        return original if isinstance(original, int) else int(length)
    factors = [factor for kind, factor in ropes if factor and kind not in SCALED_ALREADY]
    if factors and "gemma3" not in str(config.get("model_type")):
        length *= factors[-1]
    return int(length)


def _ropes(config: Mapping[str, object]) -> Iterator[tuple[str, float | None]]:
    """Give kind and factor, if there is one, of the rotary embeddings: one, or one for each kind of layer."""
    given = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(given, dict):
        return
    layers = [part for part in given.values() if isinstance(part, dict)]
    for rope in layers or [given]:
        factor = rope.get("factor")
        kind = rope.get("rope_type") or rope.get("type") or "default"
        yield str(kind), float(factor) if isinstance(factor, int | float) else None
