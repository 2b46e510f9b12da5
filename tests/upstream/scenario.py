"""What the mock engine says, written as texts in `scenario.toml` and handed over as token ids."""

import json
import tomllib
from pathlib import Path

from tokenizers import Tokenizer

SCENARIO = Path(__file__).with_name("scenario.toml")

TEXTS = {"prompt": "prompt_token_ids", "asks": "prompt_contains", "says": "token_ids"}
"""What a text is called, and its token ids in a rule of the mock engine."""


def write_scenario(path, model):
    """Write the rules for the mock engine; gives the path."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def rule(answer):
        return {
            TEXTS.get(key, key): tokenizer.encode(value, add_special_tokens=False).ids
            if key in TEXTS
            else value
            for key, value in answer.items()
        }

    answers = tomllib.loads(SCENARIO.read_text())["answer"]
    path.write_text(json.dumps([rule(answer) for answer in answers]))
    return path
