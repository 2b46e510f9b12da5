"""Where umbel differs from the reference on purpose in what it says of tool calls and reasoning."""

import json
import re

from .differences import (
    Difference,
    changed_wire,
    named,
    refused,
    refused_alike,
)
from .observed import events_of
from .recorded import short
from .words import (
    arguments_cut_behind_space,
    but_for_words,
    changed_events,
    deltas_of_our_form,
    ends_apart_from_calls,
    space_with_what_follows,
    without_empty_events,
)

ARGUMENTS_FOR_PARSERS = ("enable_thinking", "thinking", "thinking_mode", "reasoning_effort")
"""Arguments of templates that vLLM's reasoning parsers look at."""


def arguments_as_values(vllm, umbel):
    """Compare the arguments of calls as values."""

    def read(answer):
        body = json.loads(answer.text)
        for choice in body["choices"]:
            for call in choice["message"].get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return answer._replace(text=short(body))

    return read(vllm), read(umbel)


def no_empty_reasoning(vllm, umbel):
    """Take reasoning that is empty for none."""
    return vllm._replace(text=vllm.text.replace('"reasoning":""', '"reasoning":null')), umbel


def without_counts(vllm, umbel):
    """Leave out how many tokens were reasoning."""

    def silent(answer):
        return answer._replace(text=re.sub(r'"reasoning_tokens":\d+', "", answer.text))

    return silent(vllm), silent(umbel)


def fewer_arguments(sample):
    told = sample["reasoning_parser_kwargs"]["chat_template_kwargs"]
    kept = {name: told[name] for name in ARGUMENTS_FOR_PARSERS if name in told}
    return {**sample, "reasoning_parser_kwargs": {"chat_template_kwargs": kept}}


def told_parser_arguments(row, vllm):
    """Choose rows in which the engine is told what its reasoning parser is made with."""
    return any("reasoning_parser_kwargs" in sample for sample in vllm.wire)


def tag_of(sample):
    return ((sample["sampling_params"].get("structured_outputs")) or {}).get("structural_tag") or ""


def leaves_arguments_free(row, vllm):
    """Choose rows in which vLLM lets calls have any arguments."""
    return any('"json_schema": true' in tag_of(sample) for sample in vllm.wire)


def free_arguments(vllm, umbel):
    """Let vLLM leave the arguments of calls free."""
    if len(vllm.wire) != len(umbel.wire):
        return vllm, umbel
    pairs = zip(vllm.wire, umbel.wire, strict=True)
    return vllm._replace(wire=[with_schemas(*pair) for pair in pairs]), umbel


def with_schemas(sample, other):
    """Put the other's schemas where a sample has none."""
    tag = agreed(json.loads(tag_of(sample)), json.loads(tag_of(other) or "null"))
    params = sample["sampling_params"]
    constraint = {**params["structured_outputs"], "structural_tag": json.dumps(tag)}
    return {**sample, "sampling_params": {**params, "structured_outputs": constraint}}


def agreed(value, other):
    if isinstance(value, dict) and isinstance(other, dict):
        if value.get("json_schema") is True:
            value = {**value, "json_schema": other.get("json_schema")}
        return {key: agreed(item, other.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [agreed(*pair) for pair in zip(value, other, strict=True)]
    return value


def one_end(vllm, umbel):
    """Leave out the ends of calls that have more after them."""

    def with_one(value):
        if isinstance(value, dict):
            ends = value.get("end")
            if value.get("type") == "tag" and isinstance(ends, list):
                value = {**value, "end": ends[0]}
            return {key: with_one(item) for key, item in value.items()}
        return [with_one(item) for item in value] if isinstance(value, list) else value

    def changed(sample):
        if not (tag := tag_of(sample)):
            return sample
        params = sample["sampling_params"]
        tag = json.dumps(with_one(json.loads(tag)))
        constraint = {**params["structured_outputs"], "structural_tag": tag}
        return {**sample, "sampling_params": {**params, "structured_outputs": constraint}}

    return vllm, umbel._replace(wire=[changed(sample) for sample in umbel.wire])


def calls_are_enforced(row, vllm):
    """Choose rows in which the form of calls is enforced."""
    return any(
        "<tool_call>" in tag_of(sample) and '"stop_after_first": true' not in tag_of(sample)
        for sample in vllm.wire
    )


def taken(vllm, umbel):
    """Take umbel's word where it answers what vLLM refuses."""
    return (umbel, umbel) if umbel.status == 200 and vllm.status == 400 else (vllm, umbel)


WHOLE, STREAMED, EITHER = "", ", streamed", "(, streamed)?"


def tools(names, form=EITHER):
    """Choose rows by their names and by the form of their answers."""
    return named(rf"chat: tools: ({names}){form}")


SAID_OTHERWISE = [
    Difference(reason, tools(names, form), but_for_words)
    for reason, names, form in (
        (
            "A call without arguments is one, and has `{}`.",
            "no arguments",
            EITHER,
        ),
        (
            "Text after a call is content; vLLM drops it.",
            "a call and text|text between calls|required, with text",
            EITHER,
        ),
        (
            "A call that is cut off is a call; in vLLM only in streams.",
            "a call that is cut off( by max_tokens)?|a stop string within a call"
            "|thinking, and a call that is cut off",
            WHOLE,
        ),
        (
            "Of a call that is cut off, space at the end is there, too.",
            "thinking, and a call that is cut off",
            STREAMED,
        ),
        (
            "What never became a call is content; vLLM drops it from streams.",
            "no JSON|required, but none is called|logprobs|a prompt's text",
            STREAMED,
        ),
        (
            "Arguments may stand before the name; a stream of vLLM goes on with the name in them.",
            "arguments first",
            STREAMED,
        ),
        (
            "A choice of null is as good as none; vLLM drops what could be a call.",
            "a choice that is null",
            EITHER,
        ),
        (
            "Where nothing is echoed, a call comes without content.",
            "echo",
            WHOLE,
        ),
        (
            "Reasoning of white space alone is none.",
            "thinking, and white space",
            EITHER,
        ),
        (
            "A message of which nothing is shown has empty content, not none.",
            "thinking, (that is cut off|hidden(, with (logprobs|token ids|a constraint))?)",
            WHOLE,
        ),
        (
            "The marker at the start of reasoning is no part of it; in vLLM's streams it is, where "
            "other text comes with it.",
            "thinking, (one sample|and no text|two ends)",
            STREAMED,
        ),
        (
            "Text before the marker of reasoning that has begun belongs to it; vLLM drops it.",
            "thinking, text before it",
            EITHER,
        ),
        (
            "Lines between reasoning and a call are no content, streamed or not.",
            "thinking, and calls( in one step)?",
            STREAMED,
        ),
        (
            "Where the prompt has ended reasoning, the answer has none, as in vLLM's streams.",
            "thinking, (turned off(, with a (required )?call)?|of no effort)",
            WHOLE,
        ),
    )
]


def said_otherwise(row, vllm):
    """Choose rows in which other things are said."""
    return any(difference.concerns(row, vllm) for difference in SAID_OTHERWISE)


def streamed(pattern):
    """Choose streams that say the same by what vLLM has in them."""
    return lambda row, vllm: (
        not said_otherwise(row, vllm)
        and events_of(vllm.text, vllm.headers) is not None
        and re.search(pattern, vllm.text) is not None
    )


def cuts_before_space(row, vllm):
    """Choose streams in which vLLM sends the space in arguments with what follows it."""
    with_space = streamed(r'"function":\{"arguments":"(: )?( |")')
    # Text that is held back comes in other parts.
    is_held_back = tools("a stop string", STREAMED)
    return with_space(row, vllm) and not is_held_back(row, vllm)


def counts_otherwise(row, vllm):
    """Choose rows in which the tokens of reasoning are not what vLLM takes for them."""
    is_counted_alike = tools(
        "thinking, (one sample|that is empty|two ends|turned off.*|of no effort)"
    )
    return (
        row.server == "reasoning"
        and '"reasoning_tokens"' in vllm.text
        and not is_counted_alike(row, vllm)
    )


TOOL_DIFFERENCES = [
    *SAID_OTHERWISE,
    Difference(
        "A delta has no nulls, its reasoning comes before its content, and a call has one entry, "
        "with arguments always.",
        streamed(r'"tool_calls":\[\{|"content":"[^"]*","reasoning"|"reasoning":null\}'),
        changed_events(deltas_of_our_form),
    ),
    Difference(
        "Why a choice ended is not told in the event in which a call begins, of whose end a client would "
        "not tell then.",
        streamed(r'"tool_calls":\[\{"id"[^\n]*"finish_reason":"'),
        changed_events(ends_apart_from_calls),
    ),
    Difference(
        "Space in the arguments of a call is sent as it comes.",
        cuts_before_space,
        changed_events(arguments_cut_behind_space, of_both=True),
    ),
    Difference(
        "Space that may belong to a marker waits for what follows.",
        tools("thinking, and text, token by token", STREAMED),
        changed_events(space_with_what_follows),
    ),
    Difference(
        "Where a call is not to be shown, there is no event for it.",
        tools("not in parallel(, required)?", STREAMED),
        changed_events(without_empty_events),
    ),
    Difference(
        "Arguments are the text that the model wrote; vLLM writes them anew where it does not stream.",
        tools("two calls|escapes|spacing|named|named without a type", WHOLE),
        arguments_as_values,
    ),
    Difference(
        "Reasoning that is empty is none.",
        tools("thinking, that is empty", WHOLE),
        no_empty_reasoning,
    ),
    Difference(
        "The tokens of reasoning are counted whether or not a marker comes before them; vLLM counts "
        "those between two markers.",
        counts_otherwise,
        without_counts,
    ),
    Difference(
        "The engine is told the template's arguments that a reasoning parser looks at, not all.",
        told_parser_arguments,
        changed_wire(fewer_arguments),
    ),
    Difference(
        "A line break may follow a call whose form is enforced, as templates write it; vLLM has it not.",
        calls_are_enforced,
        one_end,
    ),
    Difference(
        "Arguments have to fit the schema of their tool where a call must be, and to be an object "
        "wherever calls are constrained.",
        leaves_arguments_free,
        free_arguments,
    ),
    Difference(
        "A call in the history needs an object with a name; vLLM refuses it without an id, a type or "
        "arguments that are a text.",
        tools("arguments that are (an object|null|missing)|a call without (an id|a type)", WHOLE),
        taken,
    ),
    Difference(
        "A call or a choice that is none has one fault, not one for each of its kinds.",
        tools(
            "a call without a (function|name)|a word for (a call|calls)"
            "|a number for the id of a result|a choice of another type",
            WHOLE,
        ),
        refused_alike,
    ),
    Difference(
        "A tool without a function is a fault of the request; vLLM fails.",
        tools("a choice among tools without a function", WHOLE),
        refused,
    ),
]
