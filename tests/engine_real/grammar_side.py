"""Compile constraints as vLLM's engine does and run texts through them; in the engine's environment.

Reads from standard input what is asked, as JSON: a tokenizer, the tokens that stop it, and
constraints with texts.  Writes for each text whether it is accepted to its end, and texts that a
random walk found; and the structural tags that vLLM itself makes of tools.
"""

import json
import random
import sys
from types import SimpleNamespace

import tokenizers
import torch
import xgrammar
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionToolsParam,
)
from vllm.parser import harmony  # noqa: F401 - registers its tag
from vllm.sampling_params import StructuredOutputsParams
from vllm.tool_parsers import structural_tag_registry as registry
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key

LONGEST_WALK = 1500
FEW = 100
"""Where more tokens than that may follow, text is free."""

TEXT = 'abXY 09<>/_"\\{}[]:,.\n'
"""What a walk writes where text is free."""

CLOSERS = ("</parameter>", "</｜DSML｜parameter>", "</arg_value>")
"""What ends text between tags, which chance would not write."""


class Engine:
    """The part of an engine that holds samples to constraints."""

    def __init__(self, asked):
        self._tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer.from_str(asked["tokenizer"]),
            eos_token=asked["stops"][0],
            clean_up_tokenization_spaces=False,
        )
        self._stops = self._tokenizer.convert_tokens_to_ids(asked["stops"])
        config = SimpleNamespace(
            structured_outputs_config=SimpleNamespace(disable_any_whitespace=False),
            model_config=None,
            speculative_config=None,
        )
        size = len(self._tokenizer)
        self._backend = XgrammarBackend(config, self._tokenizer, size)
        self._bits = xgrammar.allocate_token_bitmask(1, size)
        self._text = set(self._tokenizer.encode(TEXT, add_special_tokens=False))
        (self._line_break,) = self._tokenizer.encode("\n", add_special_tokens=False)

    def _matcher(self, constraint):
        params = StructuredOutputsParams(**constraint)
        kind, specification = get_structured_output_key(params)
        grammar = self._backend.compile_grammar(kind, specification, set(self._stops))
        return grammar.matcher

    def try_case(self, case):
        matcher = self._matcher(case["constraint"])
        accepted = [self._accepts(matcher, text) for text in case["texts"]]
        walks = [self._walk(matcher, random.Random(seed)) for seed in range(case["walks"])]
        return {"accepted": accepted, "walks": [text for text in walks if text is not None]}

    def _accepts(self, matcher, text):
        """Say whether a sample may be this text and stop there."""
        matcher.reset()
        token_ids = self._tokenizer.encode(text, add_special_tokens=False)
        return all(map(matcher.accept_token, token_ids)) and matcher.accept_token(self._stops[0])

    def _walk(self, matcher, draw):
        """Sample a text at random; None if it does not come to an end."""
        matcher.reset()
        token_ids = []
        while len(token_ids) < LONGEST_WALK:
            matcher.fill_next_token_bitmask(self._bits)
            allowed = self._allowed()
            may_stop = not allowed.isdisjoint(self._stops)
            allowed.difference_update(self._stops)
            if may_stop and (not allowed or draw.random() < 0.5):
                return self._tokenizer.decode(token_ids)
            written = self._written(allowed, draw)
            assert all(map(matcher.accept_token, written))
            token_ids += written
        return None

    def _written(self, allowed, draw):
        """Draw what comes next: a token, or a closing tag where lines of text may be."""
        if len(allowed) > FEW:
            closer = self._tokenizer.encode(draw.choice(CLOSERS), add_special_tokens=False)
            if self._line_break in allowed and closer[0] in allowed and draw.random() < 0.2:
                return closer
            allowed = allowed & self._text
        return [draw.choice(sorted(allowed))]

    def _allowed(self):
        bits = torch.arange(32, dtype=torch.int64)
        flags = (self._bits[0].to(torch.int64)[:, None] >> bits) & 1
        return set(flags.flatten().nonzero().flatten().tolist())


def own_tags(tools):
    """Give the structural tags of all models that vLLM knows, by model and choice."""
    given = [ChatCompletionToolsParam(**tool) for tool in tools]
    named = {"type": "function", "function": {"name": given[0].function.name}}
    choices = {
        "auto": "auto",
        "required": "required",
        "named": ChatCompletionNamedToolChoiceParam(**named),
    }
    models = {*registry.SUPPORTED_STRUCTURAL_TAG_MODELS, *registry._VLLM_STRUCTURAL_TAG_REGISTRY}
    return {
        f"{model}-{name}": json.dumps(tag.model_dump())
        for model in sorted(models)
        for name, choice in choices.items()
        if (tag := registry.get_model_structural_tag(model, given, choice, False)) is not None
    }


def main():
    asked = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = Engine(asked)
    cases = [engine.try_case(case) for case in asked["cases"]]
    told = {"cases": cases, "own_tags": own_tags(asked["tools"])}
    # Nothing flushes this file at the exit: to Python it is no longer the standard output.
    print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
