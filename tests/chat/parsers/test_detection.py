"""Which formats a model is taken to write in: the real families, and models that have none."""

from typing import NamedTuple

import pytest

from umbel_chat.parsers.detection import (
    REASONING_RULES,
    TOOL_RULES,
    ModelFacts,
    Rule,
    detect,
)
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS

# What tells in the templates that the models come with.
CHATML = "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}"
QWEN_TOOLS = CHATML + '<tool_call>\\n{"name": <name>, "arguments": <arguments>}\\n</tool_call>'
QWEN_HISTORY = QWEN_TOOLS + "{{ '<think>\\n' + message.reasoning_content + '\\n</think>' }}"
QWEN_THINK = QWEN_HISTORY + "{% if enable_thinking is defined and enable_thinking is false %}"
QWEN_ALWAYS = QWEN_HISTORY + "{{ '<|im_start|>assistant\\n<think>\\n' }}"
QWEN_XML = CHATML + "<tool_call>\\n<function={{ name }}>\\n<parameter={{ key }}></tool_call>"
LLAMA2 = "{{ '[INST] ' + message.content + ' [/INST]' }}"
LLAMA3 = "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>' }}"
LLAMA3_TOOLS = LLAMA3 + '{"name": function name, "parameters": dictionary of arguments}'
LLAMA4_TOOLS = '<|header_start|>{{ role }}<|header_end|>{"name": name, "parameters": {}}'
LLAMA4_LISTS = "<|header_start|>{{ role }}<|header_end|>[func_name1(name=value), func_name2()]"
MISTRAL_V3 = LLAMA2 + "{{ '[AVAILABLE_TOOLS]' }}{{ '[TOOL_CALLS] [' }}"
MISTRAL_V7 = "{{ '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}" + LLAMA2
MISTRAL_V11 = MISTRAL_V7 + "{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"
DEEPSEEK = "{{ '<｜User｜>' + message['content'] + '<｜Assistant｜>' }}"
DEEPSEEK_V3 = DEEPSEEK + "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}\n```json\n"
DEEPSEEK_R1 = DEEPSEEK_V3 + "{% if '</think>' in content %}{% endif %}"
DEEPSEEK_R1_OPEN = DEEPSEEK_R1 + "{{ '<｜Assistant｜><think>\\n' }}"
DEEPSEEK_V31 = (
    DEEPSEEK + "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}"
    "{% if not thinking %}{{ '</think>' }}{% else %}{{ '<think>' }}{% endif %}"
)
DEEPSEEK_V32 = DEEPSEEK + "<｜DSML｜function_calls>{% if thinking %}<think>{% endif %}</think>"
KIMI = "{{ '<|im_assistant|>assistant<|im_middle|>' }}"
KIMI_TOOLS = KIMI + "{{ '<|tool_calls_section_begin|><|tool_call_begin|>' }}"
GLM = "[gMASK]<sop><tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key><think></think></tool_call>"
MINIMAX = "{% set begin = '<minimax:tool_call>' %}{{ ']~b]ai' ~ '\\n' ~ '<think>' ~ '\\n' }}"
SEED = (
    "{% set toolcall = '<seed:tool_call>' %}{% set think = '<seed:think>' %}<function={{ name }}>"
)
GRANITE = "{{ '<|start_of_role|>' + message.role + '<|end_of_role|>' }}"
GRANITE_3_TOOLS = GRANITE + "{{ '<|tool_call|>' + calls }}"
GRANITE_3_THINK = GRANITE_3_TOOLS + "Write the thoughts after 'Here is my thought process:'"
GRANITE_4 = GRANITE + "{{ '<tool_call>' + call + '</tool_call>' }}"
GEMMA_3 = "{{ '<start_of_turn>' + role + '\\n' + message['content'] }}"
GEMMA_4 = "{{ '<|turn>' + role }}{{ '<|channel>thought\\n' }}{{ '<|tool_call>call:' + name }}"
PHI_3 = "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
PHI_4_MINI = PHI_3 + "{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}"
NEMOTRON_2 = "{{ '<SPECIAL_11>Assistant\\n' }}{{ '<TOOLCALL>[' }}{{ '<think>\\n\\n' }}"
HARMONY = "{{ '<|start|>assistant<|channel|>analysis<|message|>' }}"
COMMAND = "{{ '<|START_OF_TURN_TOKEN|>' }}{{ '<|START_ACTION|>' }}"
HUNYUAN = "<tool_calls><tool_call>{{ name }}<tool_sep><arg_key>{{ k }}</tool_call><think></think>"
KIMI_K3 = "{{ '<|open|>tools<|sep|>' }}"
LFM2 = CHATML + "{{ '<|tool_call_start|>[' + calls + ']<|tool_call_end|>' }}"


class Model(NamedTuple):
    """A model as its files are, and how it writes."""

    name: str
    model_type: str
    architecture: str
    template: str
    tool: str | None
    reasoning: str | None


MODELS = (
    Model("Qwen/Qwen2.5-7B-Instruct", "qwen2", "Qwen2ForCausalLM", QWEN_TOOLS, "hermes", None),
    Model("Qwen/Qwen3-8B", "qwen3", "Qwen3ForCausalLM", QWEN_THINK, "hermes", "qwen3"),
    Model("Qwen/a-model", "qwen3", "Qwen3ForCausalLM", QWEN_HISTORY, "hermes", None),
    Model("/models/thinks", "qwen3", "Qwen3ForCausalLM", QWEN_ALWAYS, "hermes", "qwen3"),
    Model("/models/q3", "qwen3_moe", "Qwen3MoeForCausalLM", QWEN_THINK, "hermes", "qwen3"),
    Model(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        *("qwen3_next", "Qwen3NextForCausalLM", QWEN_TOOLS, "hermes", None),
    ),
    Model(
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        *("qwen3_moe", "Qwen3MoeForCausalLM", QWEN_XML, "qwen3_coder", None),
    ),
    Model(
        "Qwen/Qwen3.5-35B-A3B",
        *("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
        *(QWEN_XML + "<think>\n\n</think>{% if enable_thinking %}", "qwen3_coder", "qwen3"),
    ),
    Model("Qwen/QwQ-32B", "qwen2", "Qwen2ForCausalLM", QWEN_THINK, "hermes", "deepseek_r1"),
    Model("/models/local", "qwen2", "Qwen2ForCausalLM", QWEN_THINK, "hermes", "qwen3"),
    Model(
        "NousResearch/Hermes-2-Pro-Llama-3-8B",
        *("llama", "LlamaForCausalLM", CHATML, "hermes", None),
    ),
    Model(
        "NousResearch/Hermes-3-Llama-3.1-8B",
        *("llama", "LlamaForCausalLM", QWEN_TOOLS, "hermes", None),
    ),
    Model(
        "HuggingFaceTB/SmolLM3-3B",
        *("smollm3", "SmolLM3ForCausalLM", QWEN_THINK, "hermes", "qwen3"),
    ),
    Model(
        "meta-llama/Llama-3.1-8B-Instruct",
        *("llama", "LlamaForCausalLM", LLAMA3_TOOLS, "llama3_json", None),
    ),
    Model(
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        *("mllama", "MllamaForConditionalGeneration", LLAMA3_TOOLS, "llama3_json", None),
    ),
    Model("/srv/llama", "llama", "LlamaForCausalLM", LLAMA3_TOOLS, "llama3_json", None),
    Model(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        *("llama4", "Llama4ForConditionalGeneration", LLAMA4_TOOLS, "llama4_json", None),
    ),
    Model(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        *("llama4", "Llama4ForConditionalGeneration", LLAMA4_LISTS, "llama4_pythonic", None),
    ),
    Model(
        "mistralai/Mistral-7B-Instruct-v0.3",
        *("mistral", "MistralForCausalLM", MISTRAL_V3, "mistral", None),
    ),
    Model("/models/nemo", "mistral", "MistralForCausalLM", MISTRAL_V3, "mistral", None),
    Model(
        "mistralai/Mistral-Small-24B-Instruct-2501",
        *("mistral", "MistralForCausalLM", MISTRAL_V7, "mistral", None),
    ),
    Model(
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        *("mistral3", "Mistral3ForConditionalGeneration", "", "mistral", None),
    ),
    Model(
        "mistralai/Devstral-Small-2507",
        *("mistral", "MistralForCausalLM", MISTRAL_V11, "mistral", None),
    ),
    Model(
        "mistralai/Magistral-Small-2509",
        *("mistral3", "Mistral3ForConditionalGeneration"),
        *(MISTRAL_V11 + "{{ '[THINK]' + thinking + '[/THINK]' }}", "mistral", "mistral"),
    ),
    Model(
        "deepseek-ai/DeepSeek-V3-0324",
        *("deepseek_v3", "DeepseekV3ForCausalLM", DEEPSEEK_V3, "deepseek_v3", None),
    ),
    Model(
        "deepseek-ai/DeepSeek-R1",
        *("deepseek_v3", "DeepseekV3ForCausalLM", DEEPSEEK_R1, "deepseek_v3", "deepseek_r1"),
    ),
    Model(
        "/models/r1",
        *("deepseek_v3", "DeepseekV3ForCausalLM"),
        *(DEEPSEEK_R1_OPEN, "deepseek_v3", "deepseek_r1"),
    ),
    Model(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
        *("qwen2", "Qwen2ForCausalLM", DEEPSEEK_R1_OPEN, "deepseek_v3", "deepseek_r1"),
    ),
    Model(
        "/models/distilled",
        *("llama", "LlamaForCausalLM", DEEPSEEK_R1_OPEN, "deepseek_v3", "deepseek_r1"),
    ),
    Model(
        "deepseek-ai/DeepSeek-V3.1",
        *("deepseek_v3", "DeepseekV3ForCausalLM", DEEPSEEK_V31, "deepseek_v31", "deepseek_v3"),
    ),
    Model(
        "deepseek-ai/DeepSeek-V3.2-Exp",
        *("deepseek_v32", "DeepseekV32ForCausalLM", DEEPSEEK_V31, "deepseek_v31", "deepseek_v3"),
    ),
    Model(
        "deepseek-ai/DeepSeek-V3.2",
        *("deepseek_v32", "DeepseekV32ForCausalLM", "", "deepseek_v32", "deepseek_v3"),
    ),
    Model(
        "/models/v32",
        *("deepseek_v32", "DeepseekV32ForCausalLM", DEEPSEEK_V32, "deepseek_v32", "deepseek_v3"),
    ),
    Model(
        "moonshotai/Kimi-K2-Instruct",
        *("kimi_k2", "DeepseekV3ForCausalLM", KIMI_TOOLS, "kimi_k2", None),
    ),
    # The template that the model came out with says nothing of calls.
    Model("/models/k2", "kimi_k2", "DeepseekV3ForCausalLM", KIMI, "kimi_k2", None),
    Model(
        "moonshotai/Kimi-K2-Thinking",
        *("kimi_k2", "DeepseekV3ForCausalLM"),
        *(KIMI_TOOLS + "<think></think>", "kimi_k2", "kimi_k2"),
    ),
    Model(
        "moonshotai/Kimi-K2.5",
        *("kimi_k25", "KimiK25ForConditionalGeneration"),
        *(KIMI_TOOLS + "<think></think>", "kimi_k2", "kimi_k2"),
    ),
    Model("zai-org/GLM-4.5", "glm4_moe", "Glm4MoeForCausalLM", GLM, "glm45", "glm45"),
    Model("/models/glm", "glm4_moe", "Glm4MoeForCausalLM", GLM, "glm45", "glm45"),
    Model(
        "zai-org/GLM-4.7-Flash",
        *("glm4_moe_lite", "Glm4MoeLiteForCausalLM", GLM, "glm47", "glm47"),
    ),
    Model(
        "MiniMaxAI/MiniMax-M2",
        *("minimax_m2", "MiniMaxM2ForCausalLM", MINIMAX, "minimax_m2", "minimax_m2"),
    ),
    Model(
        "/models/m2",
        *("minimax_m2", "MiniMaxM2ForCausalLM", CHATML, "minimax_m2", "minimax_m2"),
    ),
    Model(
        "ByteDance-Seed/Seed-OSS-36B-Instruct",
        *("seed_oss", "SeedOssForCausalLM", SEED, "seed_oss", "seed_oss"),
    ),
    Model("/models/seed", "seed_oss", "SeedOssForCausalLM", CHATML, "seed_oss", "seed_oss"),
    Model(
        "ibm-granite/granite-3.1-8b-instruct",
        *("granite", "GraniteForCausalLM", GRANITE_3_TOOLS, None, None),
    ),
    Model(
        "ibm-granite/granite-3.2-8b-instruct",
        *("granite", "GraniteForCausalLM", GRANITE_3_THINK, None, "granite"),
    ),
    Model(
        "ibm-granite/granite-4.0-h-small",
        *("granitemoehybrid", "GraniteMoeHybridForCausalLM", GRANITE_4, "granite4", None),
    ),
    Model(
        "google/gemma-4-31B-it",
        *("gemma4", "Gemma4ForConditionalGeneration", GEMMA_4, "gemma4", "gemma4"),
    ),
    Model(
        "microsoft/Phi-4-mini-instruct",
        *("phi3", "Phi3ForCausalLM", PHI_4_MINI, "phi4_mini_json", None),
    ),
    Model(
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        *("nemotron_h", "NemotronHForCausalLM", NEMOTRON_2, None, "nemotron_v3"),
    ),
    Model(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        *("nemotron_h", "NemotronHForCausalLM"),
        *(QWEN_XML + "<think></think>", "qwen3_coder", "nemotron_v3"),
    ),
    Model(
        "openai/gpt-oss-20b",
        *("gpt_oss", "GptOssForCausalLM", HARMONY, "openai", "openai_gptoss"),
    ),
    Model("/models/oss", "gpt_oss", "", "", "openai", "openai_gptoss"),
    # Models that have none of these formats, whatever they are called.
    Model("HuggingFaceTB/SmolLM2-135M-Instruct", "llama", "LlamaForCausalLM", CHATML, None, None),
    Model("/models/nano/smollm2", "llama", "LlamaForCausalLM", CHATML, None, None),
    Model("/models/qwen3/smollm2", "llama", "LlamaForCausalLM", CHATML, None, None),
    Model("/data/deepseek-r1/llama-2", "llama", "LlamaForCausalLM", LLAMA2, None, None),
    Model("me/my-command-line-helper", "llama", "LlamaForCausalLM", LLAMA3, None, None),
    Model("me/qwq-qwen2.5-judge", "qwen2", "Qwen2ForCausalLM", QWEN_TOOLS, "hermes", None),
    Model("google/gemma-3-4b-it", "gemma3", "Gemma3ForConditionalGeneration", GEMMA_3, None, None),
    Model("microsoft/Phi-3-mini-4k-instruct", "phi3", "Phi3ForCausalLM", PHI_3, None, None),
    Model("meta-llama/Llama-2-7b-chat-hf", "llama", "LlamaForCausalLM", LLAMA2, None, None),
    Model("meta-llama/Meta-Llama-3-8B-Instruct", "llama", "LlamaForCausalLM", LLAMA3, None, None),
    Model(
        "mistralai/Mistral-7B-Instruct-v0.2", "mistral", "MistralForCausalLM", LLAMA2, None, None
    ),
    Model(
        "CohereLabs/c4ai-command-r7b-12-2024", "cohere2", "Cohere2ForCausalLM", COMMAND, None, None
    ),
    Model(
        "moonshotai/Moonlight-16B-A3B-Instruct",
        *("deepseek_v3", "DeepseekV3ForCausalLM", KIMI, None, None),
    ),
    Model("tencent/Hy3", "hy_v3", "HYV3ForCausalLM", HUNYUAN, None, None),
    Model("moonshotai/Kimi-K3", "kimi_k3", "KimiK3ForCausalLM", KIMI_K3, None, None),
    Model("LiquidAI/LFM2-1.2B", "lfm2", "Lfm2ForCausalLM", LFM2, None, None),
    Model("/models/base", "mistral", "MistralForCausalLM", "", None, None),
)


def facts_of(model: Model) -> ModelFacts:
    architectures = (model.architecture,) if model.architecture else ()
    return ModelFacts(model.name, model.model_type, architectures, model.template)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.model_type}")
def test_a_model_has_the_formats_that_it_writes_in(model: Model) -> None:
    tool = detect(TOOL_RULES, facts_of(model))
    reasoning = detect(REASONING_RULES, facts_of(model))
    assert (tool and TOOL_FORMATS[tool[0]]) == (model.tool and TOOL_FORMATS[model.tool])
    assert (reasoning and REASONING_FORMATS[reasoning[0]]) == (
        model.reasoning and REASONING_FORMATS[model.reasoning]
    )


@pytest.mark.parametrize("rules", [TOOL_RULES, REASONING_RULES], ids=["tools", "reasoning"])
def test_every_rule_is_the_first_for_some_model(rules: tuple[Rule, ...]) -> None:
    firsts = [
        next((rule for rule in rules if rule.reason(facts_of(model)) is not None), None)
        for model in MODELS
    ]
    # Not a model's own template, but vLLM's for it; tests/parity/test_templates.py has them.
    examples = {Rule("pythonic", texts=("func_name1(",)), Rule("phi4_mini_json", ("functools[",))}
    assert [rule for rule in rules if rule not in firsts and rule not in examples] == []


def test_the_reason_names_what_told() -> None:
    assert detect(TOOL_RULES, ModelFacts("m", "mistral3", (), "")) == (
        "mistral",
        "the model is a mistral3",
    )
    assert detect(REASONING_RULES, ModelFacts("Qwen/QwQ-32B", "qwen2", (), QWEN_THINK)) == (
        "deepseek_r1",
        "the model is a qwen2 and its chat template has '<|im_start|>' and its name has 'qwq'",
    )
