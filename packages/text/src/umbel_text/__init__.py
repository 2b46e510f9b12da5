"""Text in, text out, n times: tokenizer, detokenizer, stop strings, sampling defaults."""

from umbel_text.defaults import SamplingDefaults, load_defaults
from umbel_text.errors import (
    InvalidRequestError,
    InvalidTextError,
    ModelFilesError,
    ModelNotFoundError,
    TextError,
)
from umbel_text.logprobs import PositionLogprobs, TokenLogprob, decode_prompt_logprobs
from umbel_text.lowering import LoweredRequest
from umbel_text.model import TextModel, load_text_model
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.sampling import ResolvedSampling
from umbel_text.stage import TextDelta, TextStage
from umbel_text.text import TextLlm
from umbel_text.tokenizer import Tokenizer, resolve_model_folder
from umbel_text.watched import EveryToken, Piece

__all__ = [
    "EveryToken",
    "InvalidRequestError",
    "InvalidTextError",
    "LoweredRequest",
    "ModelFilesError",
    "ModelNotFoundError",
    "Piece",
    "PositionLogprobs",
    "ResolvedSampling",
    "SamplingDefaults",
    "SamplingOptions",
    "TextDelta",
    "TextError",
    "TextLlm",
    "TextModel",
    "TextRequest",
    "TextStage",
    "TokenLogprob",
    "Tokenizer",
    "decode_prompt_logprobs",
    "load_defaults",
    "load_text_model",
    "resolve_model_folder",
]
