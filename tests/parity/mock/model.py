"""Models without weights: a tokenizer of a few words, a chat template, and configurations."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|pause|>")
END_OF_TEXT, MESSAGE_START, MESSAGE_END, END, PAUSE = range(5)

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""What a model that calls tools and reasons has besides; they are not special."""

FIRST_BYTE = 10
"""Every byte is a token, from here on."""

FIRST_WORD = 300
VOCABULARY_SIZE = 512
"""What the model knows; the tokenizer has texts for fewer."""

WORDS = (
    "Hello",
    " world",
    " Paris",
    " London",
    " Rome",
    " is",
    " the",
    " a",
    " city",
    " one",
    " two",
    " three",
    " four",
    " not",
    " never",
    "hi",
    "user",
    "assistant",
    "system",
    "été",
)

TEMPLATE = """\
{%- if documents %}<|im_start|>documents
{% for document in documents %}{{ document.title }}: {{ document.text }}
{% endfor %}<|im_end|>
{% endif -%}
{%- if tone is defined %}<|im_start|>system
{{ tone }}<|im_end|>
{% endif -%}
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOOLS_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning %}<think>
{{ message.reasoning }}
</think>

{% endif %}{{ message.content or "" }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined %}{% if enable_thinking %}<think>
{% else %}<think>

</think>

{% endif %}{% endif %}{% endif %}"""
"""The template of a model that calls tools and reasons."""

ENDS = [MESSAGE_END, END]
"""The first one ends a message by the tokenizer's word, the second by the generation config's."""


def build_tokenizer(markers=()):
    """Build a byte-level BPE in which every byte is a token, and so are the words."""
    vocabulary = {token: token_id for token_id, token in enumerate((*SPECIAL_TOKENS, *markers))}
    for offset, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())):
        vocabulary[character] = FIRST_BYTE + offset
    merges = []
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    unnamed = FIRST_WORD + len(WORDS)
    for token_id, word in enumerate(WORDS, FIRST_WORD):
        ((piece, _),) = split.pre_tokenize_str(word)
        for length in range(2, len(piece) + 1):
            merge = (piece[: length - 1], piece[length - 1])
            if merge not in merges:
                merges.append(merge)
                vocabulary[piece[:length]] = unnamed
                unnamed += 1
        if len(piece) > 1:
            vocabulary[piece] = token_id
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in markers])
    return tokenizer


def write_models(folder):
    """Write the models of all servers, by the names of their folders in this one."""
    write_model(folder / "plain" / "parity", TEMPLATE)
    write_model(folder / "tools" / "parity", TOOLS_TEMPLATE, MARKERS)
    return folder


def write_model(folder, template, markers=()):
    """Write all that a server reads of a model, weights excluded."""
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(markers).save(str(folder / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL_TOKENS[MESSAGE_END],
            "model_max_length": 8192,
            "chat_template": template,
        },
        "config.json": {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_attention_heads": 1,
            "num_hidden_layers": 1,
            "max_position_embeddings": 8192,
            "eos_token_id": MESSAGE_END,
        },
        "generation_config.json": {"eos_token_id": ENDS},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
