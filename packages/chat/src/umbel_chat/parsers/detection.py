"""Which formats a model writes in, told by its configuration, its chat template and its name."""

from collections.abc import Sequence

import msgspec


class ModelFacts(msgspec.Struct, frozen=True):
    """What there is to tell a model's formats by.

    `model_type` and `architectures` are those of its `config.json`, `template` is its chat template,
    or all that requests may get, `name` its folder or its repository.
    """

    name: str
    model_type: str = ""
    architectures: tuple[str, ...] = ()
    template: str = ""


class Rule(msgspec.Struct, frozen=True):
    """What models of one format have in common: all that is given here.

    `types` are model types or architectures, of which one is enough, and so is one of `names`, which
    are parts of a model's name in lower case.  The chat template has all of `texts` and none of
    `without`.
    """

    format: str
    texts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def reason(self, facts: ModelFacts) -> str | None:
        """Say why a model has the format; None when it has not."""
        reasons: list[str] = []
        if self.types:
            found = [
                name for name in (facts.model_type, *facts.architectures) if name in self.types
            ]
            if not found:
                return None
            reasons.append(f"the model is a {found[0]}")
        if self.texts or self.without:
            if any(text not in facts.template for text in self.texts):
                return None
            if any(text in facts.template for text in self.without):
                return None
            if self.texts:
                reasons.append(f"its chat template has {self.texts[0]!r}")
        if self.names:
            found = [part for part in self.names if part in facts.name.lower()]
            if not found:
                return None
            reasons.append(f"its name has {found[0]!r}")
        return " and ".join(reasons)


THINK = ("<think>",)

BARE = ("{",)
"""What every chat template has: without it, a model has no template."""

TOOL_RULES = (
    Rule("openai", types=("gpt_oss", "GptOssForCausalLM")),
    Rule("gemma4", texts=("<|tool_call>",)),
    Rule("deepseek_v32", texts=("｜DSML｜", "function_calls")),
    Rule("deepseek_v3", texts=("<｜tool▁calls▁begin｜>", "```json")),
    # Also that of DeepSeek-V3.2-Exp, whose type is that of DeepSeek-V3.2.
    Rule("deepseek_v31", texts=("<｜tool▁calls▁begin｜>",)),
    Rule("kimi_k2", texts=("<|tool_calls_section_begin|>",)),
    # Hunyuan models have the same tags, and one more.
    Rule("glm45", texts=("<arg_key>", "<tool_call>"), without=("<tool_sep",)),
    Rule("minimax_m2", texts=("<minimax:tool_call>",)),
    Rule("seed_oss", texts=("<seed:tool_call>",)),
    Rule("qwen3_coder", texts=("<function=", "<tool_call>")),
    Rule("granite4", texts=("<tool_call>", "<|start_of_role|>")),
    Rule("hermes", texts=("<tool_call>", "</tool_call>"), without=("<tool_sep",)),
    Rule("mistral", texts=("[TOOL_CALLS]",)),
    Rule("phi4_mini_json", texts=("functools[",)),
    Rule("phi4_mini_json", texts=("<|tool|>",), types=("phi3", "Phi3ForCausalLM")),
    Rule("llama4_pythonic", texts=("<|header_start|>", "func_name1(")),
    Rule("llama4_json", texts=("<|header_start|>", '"parameters"')),
    Rule("pythonic", texts=("func_name1(",)),
    Rule("llama3_json", texts=("<|start_header_id|>", '"parameters"')),
    # Models whose templates say nothing of calls, or that have none.
    Rule("kimi_k2", types=("kimi_k2",)),
    Rule("minimax_m2", types=("minimax_m2", "MiniMaxM2ForCausalLM")),
    Rule("seed_oss", types=("seed_oss", "SeedOssForCausalLM")),
    # All of Mistral's models that have this marker know tools.
    Rule("mistral", texts=("[SYSTEM_PROMPT]",)),
    Rule("hermes", texts=("<|im_start|>",), names=("hermes-2-pro", "hermes-2-theta", "hermes-3")),
    Rule("mistral", types=("mistral3", "Mistral3ForConditionalGeneration"), without=BARE),
    Rule("deepseek_v32", types=("deepseek_v32", "DeepseekV32ForCausalLM"), without=BARE),
)

REASONING_RULES = (
    Rule("openai_gptoss", types=("gpt_oss", "GptOssForCausalLM")),
    Rule("gemma4", texts=("<|channel>",)),
    Rule("mistral", texts=("[THINK]",)),
    Rule("seed_oss", texts=("<seed:think>",)),
    Rule("minimax_m2", texts=("<minimax:tool_call>", *THINK)),
    Rule("kimi_k2", texts=("<|tool_calls_section_begin|>", *THINK)),
    Rule("glm45", texts=("<arg_key>", *THINK), without=("<tool_sep",)),
    Rule("nemotron_v3", texts=THINK, types=("nemotron_h", "NemotronHForCausalLM")),
    # A template with a switch is that of a model that thinks when it is told to.
    Rule("deepseek_v3", texts=("<｜Assistant｜>", "thinking", "</think>")),
    Rule("deepseek_r1", texts=("<｜Assistant｜>", "</think>")),
    # Its prompt may not open the reasoning, and its answers may not either.
    Rule("deepseek_r1", texts=("<|im_start|>", *THINK), types=("qwen2",), names=("qwq",)),
    # One that only takes reasoning out of the history is that of a model that does not reason:
    # were it taken for one, its structured outputs would wait for an end of reasoning for ever.
    Rule("qwen3", texts=("<|im_start|>", "</think>", "enable_thinking")),
    Rule("qwen3", texts=("<|im_start|>", "assistant\\n<think>")),
    Rule("granite", texts=("<|start_of_role|>", "Here is my thought process")),
    # Models that reason whatever their templates say.
    Rule("seed_oss", types=("seed_oss", "SeedOssForCausalLM")),
    Rule("minimax_m2", types=("minimax_m2", "MiniMaxM2ForCausalLM")),
    Rule("deepseek_v3", types=("deepseek_v32", "DeepseekV32ForCausalLM"), without=BARE),
)


def detect(rules: Sequence[Rule], facts: ModelFacts) -> tuple[str, str] | None:
    """Give the format of the first rule that a model follows, and why; None when there is none."""
    for rule in rules:
        if (reason := rule.reason(facts)) is not None:
            return rule.format, reason
    return None
