"""What the text layer knows of a model."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from umbel_text.defaults import AUTO, SamplingDefaults, load_defaults
from umbel_text.tokenizer import Tokenizer, read_model_vocabulary_size


class TextModel(msgspec.Struct, frozen=True):
    """A model's tokenizer, limits and defaults.

    `max_model_len` limits prompt plus output, in tokens.  `vocabulary_size` is the model's, which
    may differ from the tokenizer's.  `max_logprobs` limits the logprobs per token, -1 for no limit.
    `structured_outputs_backend` is what the engine enforces structured outputs with;
    `limits_thinking` says that it knows what reasoning is, and how to end it.
    """

    tokenizer: Tokenizer
    max_model_len: int
    vocabulary_size: int
    defaults: SamplingDefaults
    max_logprobs: int = 20
    structured_outputs_backend: str = "xgrammar"
    limits_thinking: bool = False

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a sample without being reported as a stop reason."""
        return self.tokenizer.eos_token_id

    @property
    def extra_eos_token_ids(self) -> list[int]:
        """Other tokens that end a sample; they are reported as stop reasons."""
        return [
            token_id for token_id in self.defaults.eos_token_ids if token_id != self.eos_token_id
        ]


def load_text_model(
    folder: Path,
    max_model_len: int,
    generation_config: str = AUTO,
    override: Mapping[str, object] | None = None,
    max_logprobs: int = 20,
    tokenizer_folder: Path | None = None,
    structured_outputs_backend: str = "xgrammar",
    limits_thinking: bool = False,
) -> TextModel:
    """Load what the text layer needs of the model in a folder.

    See `load_defaults` for `generation_config` and `override`.  The tokenizer comes from the same
    folder unless another is given.  Raises ModelFilesError for files that cannot be used.
    """
    tokenizer = Tokenizer.from_folder(tokenizer_folder or folder)
    vocabulary_size = read_model_vocabulary_size(folder)
    if vocabulary_size is None:
        vocabulary_size = tokenizer.max_token_id + 1
    defaults = load_defaults(folder, generation_config, override)
    return TextModel(
        tokenizer,
        max_model_len,
        vocabulary_size,
        defaults,
        max_logprobs,
        structured_outputs_backend,
        limits_thinking,
    )
