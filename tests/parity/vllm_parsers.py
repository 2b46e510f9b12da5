"""vLLM's own parsers on transcripts; runs in the engine's environment.

Reads corpora as JSON from standard input and writes what vLLM makes of each transcript, as a whole
and token by token.
"""

import json
import sys

import tokenizers
from openai_harmony import load_harmony_encoding
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager


def main() -> None:
    asked = json.load(sys.stdin)
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "?"}],
        model="m",
        tools=[
            {"type": "function", "function": {"name": name, "parameters": parameters}}
            for name, parameters in asked["tools"].items()
        ],
        tool_choice="auto",
    )
    answers = [parse_corpus(corpus, request) for corpus in asked["corpora"]]
    print(json.dumps(answers), flush=True)


class HarmonyTokenizer:
    """The one tokenizer whose tokens vLLM's parser of Harmony knows."""

    def __init__(self):
        self.encoding = load_harmony_encoding("HarmonyGptOss")

    def encode(self, text, add_special_tokens=True):
        return self.encoding.encode(text, allowed_special="all")

    def decode(self, token_ids, skip_special_tokens=False):
        return self.encoding.decode(token_ids)


def parse_corpus(corpus: dict, request: ChatCompletionRequest) -> list[dict]:
    is_harmony = corpus["tool"] == "openai" or corpus["reasoning"] == "openai_gptoss"
    if is_harmony:
        tokenizer = HarmonyTokenizer()
    else:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer.from_str(corpus["tokenizer"]),
            eos_token=corpus["eos_token"],
            clean_up_tokenization_spaces=False,
        )
    parser_class = ParserManager.get_parser(
        tool_parser_name=corpus["tool"],
        reasoning_parser_name=corpus["reasoning"],
        enable_auto_tools=True,
        is_harmony=is_harmony,
    )

    def new_parser():
        return parser_class(tokenizer, request.tools, chat_template_kwargs=corpus["arguments"])

    return [
        {
            "whole": attempt(parse_whole, new_parser, tokenizer, transcript, request),
            "streamed": attempt(parse_streamed, new_parser, tokenizer, transcript, request),
        }
        for transcript in corpus["transcripts"]
    ]


def attempt(parse, new_parser, *arguments):
    try:
        return parse(new_parser(), *arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def parse_whole(parser, tokenizer, transcript, request):
    token_ids = tokenizer.encode(transcript["text"], add_special_tokens=False)
    parser.set_prompt_token_ids(tokenizer.encode(transcript["prompt"], add_special_tokens=False))
    reasoning, content, calls = parser.parse(
        transcript["text"], request, enable_auto_tools=True, model_output_token_ids=token_ids
    )
    calls = [(call.name, call.arguments) for call in calls or []]
    return [reasoning or "", content or "", calls]


def parse_streamed(parser, tokenizer, transcript, request):
    prompt = tokenizer.encode(transcript["prompt"], add_special_tokens=False)
    token_ids = tokenizer.encode(transcript["text"], add_special_tokens=False)
    reasoning = content = text = ""
    calls = {}
    for index, token_id in enumerate(token_ids):
        now = tokenizer.decode(token_ids[: index + 1], skip_special_tokens=False)
        new = "" if now.endswith("\ufffd") else now[len(text) :]
        text += new
        finished = index + 1 == len(token_ids)
        delta = parser.parse_delta(new, [token_id], request, prompt, finished=finished)
        if delta is None:
            continue
        reasoning += delta.reasoning or ""
        content += delta.content or ""
        for call in delta.tool_calls or []:
            so_far = calls.setdefault(call.index, ["", ""])
            if call.function is not None:
                so_far[0] += call.function.name or ""
                so_far[1] += call.function.arguments or ""
    return [reasoning, content, [tuple(call) for _, call in sorted(calls.items())]]


if __name__ == "__main__":
    main()
