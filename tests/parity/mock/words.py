"""What is said in answers, made comparable: the deltas of streams, and all but the words."""

import json

from .observed import EVENT, events_of
from .recorded import short

DELTA_FIELDS = ("reasoning", "content", "tool_calls")


def changed_events(change, of_both=False):
    """Rewrite the events of vLLM's stream, or of both."""

    def changed(answer):
        *events, done = events_of(answer.text, answer.headers)
        texts = [*map(short, change([json.loads(event) for event in events])), done]
        return answer._replace(text="".join(f"{EVENT}{text}\n\n" for text in texts))

    return lambda vllm, umbel: (changed(vllm), changed(umbel) if of_both else umbel)


def deltas_in(events):
    """Give the deltas of a stream, each with the index of its choice."""
    for event in events:
        for choice in event["choices"]:
            yield choice["index"], choice["delta"]


def deltas_of_our_form(events):
    for _, delta in deltas_in(events):
        given = {name: delta.pop(name) for name in DELTA_FIELDS if name in delta}
        if "tool_calls" in given:
            given["tool_calls"] = calls_of_our_form(given["tool_calls"])
        delta.update({name: value for name, value in given.items() if value is not None})
    return events


def calls_of_our_form(calls):
    """Put the entries of each call together, their fields in the order in which they are read."""
    made = {}
    for call in calls:
        fields = {name: call[name] for name in ("index", "id", "type") if name in call}
        if "name" in call["function"]:
            fields["function"] = {"name": call["function"]["name"], "arguments": ""}
        else:
            fields["function"] = {"arguments": ""}
        function = made.setdefault(call["index"], fields)["function"]
        function["arguments"] += call["function"].get("arguments", "")
    return list(made.values())


def arguments_cut_behind_space(events):
    """Put space at the start of a part of some arguments at the end of the part before."""
    last = {}
    for index, delta in deltas_in(events):
        for call in delta.get("tool_calls", ()):
            function, key = call["function"], (index, call["index"])
            arguments = function.setdefault("arguments", "")
            if key in last:
                rest = arguments.lstrip()
                last[key]["arguments"] += arguments[: len(arguments) - len(rest)]
                function["arguments"] = rest
            last[key] = function
    return [event for event in events if not any(map(is_without_arguments, deltas_in([event])))]


def is_without_arguments(entry):
    calls = entry[1].get("tool_calls", ())
    return [call["function"] for call in calls] == [{"arguments": ""}]


def space_with_what_follows(events):
    """Put reasoning that is space alone at the start of what follows it."""
    kept, held = [], {}
    for event in events:
        ((index, delta),) = deltas_in([event])
        if delta.keys() == {"reasoning"} and delta["reasoning"].isspace():
            held[index] = delta["reasoning"]
            continue
        if index in held:
            delta["reasoning"] = held.pop(index) + delta["reasoning"]
        kept.append(event)
    return kept


def ends_apart_from_calls(events):
    """Let events that begin a call not tell why a choice ended, but others after them."""
    return [part for event in events for part in parts_of(event)]


def parts_of(event):
    choices = event["choices"]
    if not choices or choices[0]["finish_reason"] is None or not begins_call(choices[0]["delta"]):
        return [event]
    (choice,) = choices
    only_at_the_end = ("stop_reason", "weight_versions")
    beginning = {name: value for name, value in choice.items() if name not in only_at_the_end}
    begun = {name: value for name, value in event.items() if name != "system_fingerprint"}
    ended = {"delta": {}, "logprobs": None, "token_ids": [] if choice["token_ids"] else None}
    return [
        {**begun, "choices": [{**beginning, "finish_reason": None}]},
        {**event, "choices": [{**choice, **ended}]},
    ]


def begins_call(delta):
    return any("id" in call for call in delta.get("tool_calls", ()))


def but_for_words(vllm, umbel):
    """Compare all but what is said, and whether that ends with calls."""
    return unsaid(vllm), unsaid(umbel)


def unsaid(answer):
    events = events_of(answer.text, answer.headers)
    if events is None:
        return answer._replace(text=short(without_words(json.loads(answer.text))))
    told = [without_words(json.loads(event)) for event in events[:-1]]
    # How many events there are is up to what is said.
    texts = dict.fromkeys(map(short, without_empty_events(told)))
    return answer._replace(text="".join(f"{EVENT}{text}\n\n" for text in texts))


def without_empty_events(events):
    """Leave out events that tell nothing."""
    return [event for event in events if not any(map(is_empty, event["choices"]))]


def is_empty(choice):
    shown = ("finish_reason", "token_ids", "logprobs")
    return choice["delta"] == {} and all(choice[name] is None for name in shown)


def without_words(body):
    for choice in body["choices"]:
        said = choice["message"] if "message" in choice else choice["delta"]
        for name in DELTA_FIELDS:
            said.pop(name, None)
        if choice["finish_reason"] == "tool_calls":
            choice["finish_reason"] = "stop"
    return body


def said(answer):
    """Give what the choices of an answer say and why they end, the same of a stream as of a whole."""
    events = events_of(answer.text, answer.headers)
    if events is None:
        return [
            outcome(choice["message"], choice["finish_reason"])
            for choice in json.loads(answer.text)["choices"]
        ]
    told = [json.loads(event) for event in events[:-1]]
    messages, finishes = {}, {}
    for index, delta in deltas_in(told):
        message = messages.setdefault(index, {"tool_calls": []})
        for name in ("reasoning", "content"):
            message[name] = message.get(name, "") + (delta.get(name) or "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                message["tool_calls"].append({"function": {**call["function"]}})
            else:
                function = message["tool_calls"][call["index"]]["function"]
                function["arguments"] += call["function"]["arguments"]
    for event in told:
        finishes |= {choice["index"]: choice["finish_reason"] for choice in event["choices"]}
    return [outcome(message, finishes[index]) for index, message in sorted(messages.items())]


def outcome(message, finish_reason):
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message.get("reasoning") or "", message["content"] or "", calls, finish_reason
