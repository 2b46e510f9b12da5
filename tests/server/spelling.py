"""Texts of models as steps of the engine."""

import random

import pytest

from umbel_engine.mock import MockStep


@pytest.fixture(scope="session")
def spell(tokenizer):
    """Write a text as steps of some tokens each, drawn by a seed; a limit or a stop ends it."""

    def spell(text, seed=None, finish="stop"):
        token_ids = tokenizer.encode(text, add_special_tokens=False).ids
        if finish == "stop":
            token_ids.append(2)
        steps = []
        draw = random.Random(seed)
        while token_ids:
            count = 1 if seed is None else draw.randint(1, 4)
            steps.append(MockStep(token_ids=tuple(token_ids[:count])))
            del token_ids[:count]
        last = steps.pop()
        return [*steps, MockStep(token_ids=last.token_ids, finish=finish)]

    return spell
