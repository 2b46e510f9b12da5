"""A chat whose prompt was tokenized by the server that computed its key-value cache."""

import pytest

IDS = [300, 301, 302]


@pytest.mark.parametrize("stream", [False, True])
async def test_its_token_ids_stand_for_the_messages(serve, sent, stream):
    served = await serve()
    transfer = {"prompt_token_ids": IDS, "do_remote_prefill": True}
    answer = await served.ask(n=3, kv_transfer_params=transfer, stream=stream)
    assert answer.status == 200
    assert [add.prompt_token_ids for add in served.engine.adds] == [IDS] * 3
    assert sent(served.engine).extra_args == {"kv_transfer_params": {"do_remote_prefill": True}}


async def test_they_are_all_that_the_engine_is_not_told(serve, sent):
    served = await serve()
    await served.ask(kv_transfer_params={"prompt_token_ids": IDS})
    assert sent(served.engine).extra_args is None


async def test_there_is_no_text_of_such_a_prompt(serve):
    served = await serve()
    answer = await served.ask(
        kv_transfer_params={"prompt_token_ids": IDS}, return_prompt_text=True, return_token_ids=True
    )
    assert (answer.json()["prompt_text"], answer.json()["prompt_token_ids"]) == (None, IDS)


async def test_messages_that_are_echoed_are_rendered(serve):
    served = await serve()
    await served.ask(kv_transfer_params={"prompt_token_ids": IDS}, echo=True)
    await served.ask(echo=True)
    first, second = served.engine.adds
    assert first.prompt_token_ids == second.prompt_token_ids != IDS


@pytest.mark.parametrize("ids", [[], "x", [-1], [1.0], [True], {"a": 1}, 0])
async def test_ids_that_are_none_are_refused(serve, ids):
    served = await serve()
    refused = await served.ask(kv_transfer_params={"prompt_token_ids": ids})
    assert (refused.status, refused.error["type"]) == (400, "BadRequestError")
    assert refused.error["param"] == "kv_transfer_params.prompt_token_ids"
    assert "must be a non-empty list of non-negative integers." in refused.error["message"]


async def test_ids_out_of_the_vocabulary_are_refused(serve):
    served = await serve()
    refused = await served.ask(kv_transfer_params={"prompt_token_ids": [10**9]})
    assert refused.status == 400
    assert "Token id 1000000000 is out of vocabulary" in refused.error["message"]
