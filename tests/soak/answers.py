"""Whether an answer is the one that its request must have."""

import msgspec

from .mix import GENERATE

NULL = msgspec.Raw(b"null")


class Part(msgspec.Struct):
    """The message of a choice, or what an event adds to it."""

    content: str | None = None


class Choice(msgspec.Struct):
    """A choice of an answer or of an event, as far as it is looked at."""

    index: int
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    text: str | None = None
    message: Part | None = None
    delta: Part | None = None
    token_ids: list[int] | None = None
    logprobs: msgspec.Raw = NULL


class Usage(msgspec.Struct):
    """How many tokens have been generated, of all choices."""

    completion_tokens: int


class Body(msgspec.Struct):
    """An answer or an event."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: msgspec.Raw = NULL


class WrongAnswerError(Exception):
    """Say what is wrong with an answer."""


DECODER = msgspec.json.Decoder(Body)


def check(ask, answer):
    """Check a whole answer; raises WrongAnswerError."""
    if answer.status not in ask.status:
        raise WrongAnswerError(f"status {answer.status}: {answer.body[:300]!r}")
    if answer.status != 200 or not ask.samples:
        return
    bodies = _events(answer.body) if ask.streams else [DECODER.decode(answer.body)]
    errors = [body.error != NULL for body in bodies]
    if ask.fails:
        _check(errors[-1] and sum(errors) == 1, "a stream must end with the error of its sample")
        return
    _check(not any(errors), f"an error: {answer.body[-300:]!r}")
    _check_choices(ask, bodies)


def _events(text):
    frames = text.split(b"\n\n")
    if frames[-2:] != [b"data: [DONE]", b""]:
        raise WrongAnswerError(f"a stream ends with {text[-300:]!r}")
    return [
        DECODER.decode(frame[len(b"data: ") :])
        for frame in frames[:-2]
        if not frame.startswith(b":")
    ]


def _check_choices(ask, bodies):
    texts, tokens, ends = {}, {}, {}
    has_logprobs = False
    for body in bodies:
        for choice in body.choices:
            index = choice.index
            if index in ends:
                raise WrongAnswerError(f"something came after the end of choice {index}")
            part = choice.message or choice.delta
            text = choice.text if part is None else part.content
            texts[index] = texts.get(index, "") + (text or "")
            tokens[index] = tokens.get(index, 0) + len(choice.token_ids or ())
            has_logprobs = has_logprobs or choice.logprobs != NULL
            if choice.finish_reason is not None:
                ends[index] = (choice.finish_reason, choice.stop_reason)
    _check(sorted(ends) == list(range(ask.choices)), f"choices {sorted(ends)} of {ask.choices}")
    finish, stop_reason = ask.finish, None
    if finish == "stop string":
        finish, stop_reason = "stop", "STOP"
    _check(set(ends.values()) == {(finish, stop_reason)}, f"ends {ends}")
    _check(has_logprobs == ask.logprobs, f"logprobs: {has_logprobs}")
    if ask.text is not None:
        _check(set(texts.values()) == {ask.text}, f"texts {texts}")
    if ask.tokens is not None:
        if ask.path == GENERATE:
            _check(set(tokens.values()) == {ask.tokens}, f"{tokens} tokens, not {ask.tokens}")
        elif ask.usage:
            usage = bodies[-1].usage
            counted = None if usage is None else usage.completion_tokens
            _check(counted == ask.tokens * ask.samples, f"{counted} tokens counted")


def _check(holds, problem):
    if not holds:
        raise WrongAnswerError(problem)
