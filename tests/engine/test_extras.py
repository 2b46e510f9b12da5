"""What comes with a sample beside its tokens: transfer parameters, weight versions, experts."""

import numpy as np
import pytest

from umbel_engine import ABORTED, Extras, Step, TokenStage, WeightVersionSpan
from umbel_engine.mock import MockStep, child_index
from umbel_engine.tensors import from_array
from umbel_engine.wire import EngineCoreOutput

LENGTH = 1


def feed(stage, tokens, version=None, finish=None, count=None, experts=None, **fields):
    """Feed one output of an engine whose weights have this label; gives the delta."""
    frames = []
    if experts is not None:
        fields["routed_experts"] = from_array(np.asarray(experts), frames)
    output = EngineCoreOutput("x", list(tokens), finish_reason=finish, **fields)
    step = Step(0, 1.0, 2.0, [b"payload", *frames], version)
    if count is None:
        stage.feed(output, step)
    else:
        stage.add(output, step, count)
    return stage.take()


def spans(*steps):
    """The weight versions of a sample made of these steps, each the label and the tokens."""
    stage = TokenStage()
    for version, tokens in steps[:-1]:
        assert feed(stage, tokens, version).extras is None
    version, tokens = steps[-1]
    versions = feed(stage, tokens, version, LENGTH).extras.weight_versions
    return versions and [(span.version, span.start, span.end) for span in versions]


# Weight versions.


def test_one_set_of_weights_is_one_span():
    assert spans(("a", [1, 2]), ("a", [3]), ("a", [4])) == [("a", 0, 4)]


def test_weights_that_change_in_mid_sample_begin_a_span_with_their_first_token():
    steps = [("a", [1]), ("a", [2, 3]), ("b", [4, 5]), ("b", [6]), ("a", [7])]
    assert spans(*steps) == [("a", 0, 3), ("b", 3, 6), ("a", 6, 7)]


def test_a_change_without_tokens_is_none():
    assert spans(("a", [1]), ("b", []), ("a", [2])) == [("a", 0, 2)]
    assert spans(("a", [1, 2]), ("b", [])) == [("a", 0, 2)]


def test_a_step_without_a_label_belongs_to_the_weights_before_it():
    assert spans(("a", [1]), (None, [2]), ("b", [3])) == [("a", 0, 2), ("b", 2, 3)]


def test_tokens_without_any_label_have_no_versions():
    assert spans((None, [1]), (None, [2])) is None


def test_no_tokens_have_no_spans():
    assert spans((None, [])) == []
    assert spans(("a", [])) == []


def test_tokens_of_a_step_that_are_dropped_belong_to_no_span():
    stage = TokenStage()
    feed(stage, [1, 2], "a")
    feed(stage, [3, 4, 5, 6], "b", count=1)
    stage.end(ABORTED)
    versions = stage.take().extras.weight_versions
    assert versions == [WeightVersionSpan("a", 0, 2), WeightVersionSpan("b", 2, 3)]


# Transfer parameters and experts.


def test_transfer_parameters_are_the_last_that_came():
    stage = TokenStage()
    feed(stage, [1], kv_transfer_params={"block": 1}, ec_transfer_params={"x": 1})
    feed(stage, [2], kv_transfer_params={"block": 2})
    extras = feed(stage, [3], finish=LENGTH).extras
    assert extras == Extras({"block": 2}, {"x": 1})


def test_extras_come_once_with_the_finish():
    stage = TokenStage()
    assert feed(stage, [1], "a", kv_transfer_params={"a": 1}).extras is None
    stage.end(ABORTED)
    assert stage.take().extras == Extras({"a": 1}, None, [WeightVersionSpan("a", 0, 1)])


@pytest.mark.parametrize("size", [2, 200])
def test_experts_of_all_steps_are_joined(size):
    first = np.arange(3 * size, dtype=np.int16).reshape(3, 1, size)
    second = first[:1] + 7
    stage = TokenStage()
    feed(stage, [1], experts=first)
    feed(stage, [2])
    experts = feed(stage, [3], finish=LENGTH, experts=second).extras.routed_experts
    np.testing.assert_array_equal(experts, np.concatenate([first, second]))
    assert experts.dtype == np.int16


def test_tokens_that_are_dropped_take_their_experts_with_them():
    stage = TokenStage()
    feed(stage, [1, 2, 3, 4], experts=np.arange(4).reshape(4, 1, 1), count=3)
    feed(stage, [5, 6], experts=np.arange(10, 12).reshape(2, 1, 1), count=2)
    stage.end(ABORTED)
    assert stage.take().extras.routed_experts.ravel().tolist() == [0, 1, 2, 10, 11]


# Over the wire.


async def test_every_sibling_has_its_own(connect, open_samples):
    def script(request):
        index = child_index(request)
        experts = np.full((2, 1, 1), index)
        yield MockStep(token_ids=(1, 2))
        yield MockStep(
            token_ids=(3,),
            finish="length",
            kv_transfer_params={"child": index},
            ec_transfer_params={"other": index},
            routed_experts=experts,
        )

    client, (engine,) = await connect(script)
    engine.weight_version = "step-7"
    async with open_samples(client, 2, interval=None) as samples:
        ended = {index: delta async for index, delta in samples}
    for index in range(2):
        extras = ended[index].extras
        assert extras.kv_transfer_params == {"child": index}
        assert extras.ec_transfer_params == {"other": index}
        assert extras.weight_versions == [WeightVersionSpan("step-7", 0, 3)]
        np.testing.assert_array_equal(extras.routed_experts, np.full((2, 1, 1), index))


async def test_weights_may_change_between_two_steps(connect, open_samples, step):
    def script(request):
        yield MockStep(token_ids=(1, 2))
        yield MockStep(token_ids=(3, 4, 5), finish="length")

    client, (engine,) = await connect(script, paused=True)
    engine.weight_version = "old"
    async with open_samples(client, 2, interval=None) as samples:
        await engine.wait_adds(2)
        await step(client, engine)
        engine.weight_version = "new"
        await step(client, engine)
        ended = {index: delta async for index, delta in samples}
    expected = [WeightVersionSpan("old", 0, 2), WeightVersionSpan("new", 2, 5)]
    assert [ended[index].extras.weight_versions for index in range(2)] == [expected] * 2


async def test_an_engine_without_a_label_reports_no_versions(connected, open_samples):
    client, _ = connected
    async with open_samples(client, interval=None) as samples:
        extras = [delta.extras async for _, delta in samples]
    assert extras == [Extras()]
