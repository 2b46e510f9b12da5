"""What a server tells of itself in development mode."""

import asyncio

import pytest

from umbel_server.cli import make_parser, settings_of
from umbel_server.errors import OptionError


async def info(served, **query):
    answer = await served.get("/server_info", params=query)
    assert answer.status == 200
    return answer.json()


async def test_it_exists_in_development_mode_only(serve):
    assert (await (await serve()).get("/server_info")).status == 404
    served = await serve(development_mode=True, api_keys=("key",))
    assert set(await info(served)) == {"vllm_config", "vllm_env", "system_env", "umbel"}


async def test_the_configuration_is_that_of_engines_and_model(serve):
    served = await serve(development_mode=True, max_model_len=1000, max_logprobs=7)
    config = (await info(served, config_format="json"))["vllm_config"]
    assert config["model_config"]["served_model_name"] == ["smollm2"]
    assert config["model_config"]["max_model_len"] == 1000
    assert config["model_config"]["max_logprobs"] == 7
    assert config["parallel_config"]["data_parallel_size"] == 1
    text = (await info(served))["vllm_config"]
    assert "max_model_len=1000, max_logprobs=7" in text
    answer = await served.get("/server_info?config_format=yaml")
    assert (answer.status, answer.error["param"]) == (400, "query.config_format")


async def test_what_runs_is_counted(serve, say):
    served = await serve(
        lambda request: say("hi"), development_mode=True, engine_options={"paused": True}
    )
    before = (await info(served))["umbel"]["running"]
    assert (before["requests"], before["responses"], before["samples"]) == (0, 0, 0)
    asked = asyncio.ensure_future(served.ask(n=3))
    await served.engine.wait_adds(3)
    during = await info(served)
    assert during["umbel"]["running"]["requests"] == 1
    assert during["umbel"]["running"]["responses"] == 1
    assert during["umbel"]["running"]["samples"] == 3
    assert during["umbel"]["running"]["asyncio_tasks"] > before["asyncio_tasks"]
    assert during["umbel"]["engines"][0]["samples"] == 3
    assert during["umbel"]["engines"][0]["ready"]["vllm_version"] == "0.33.0"
    served.engine.resume()
    await asked
    after = (await info(served))["umbel"]["running"]
    assert (after["requests"], after["responses"], after["samples"]) == (0, 0, 0)


async def test_options_are_shown_but_for_secrets(serve):
    environ = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_API_KEY": "sesame",
        "VLLM_SOME_TOKEN": "sesame",
        "VLLM_MAX_N_SEQUENCES": "8",
        "HOME": "sesame",
    }
    settings = settings_of(make_parser().parse_args(["serve"]), (), environ)
    assert settings.development_mode
    served = await serve(
        development_mode=True,
        environment=settings.environment,
        api_keys=settings.api_keys,
        response_role="oracle",
    )
    answer = await served.get("/server_info")
    assert answer.json()["umbel"]["options"]["response_role"] == "oracle"
    assert answer.json()["vllm_env"] == {"VLLM_MAX_N_SEQUENCES": "8", "VLLM_SERVER_DEV_MODE": "1"}
    assert settings.api_keys == ("sesame",)
    assert "sesame" not in answer.text


@pytest.mark.parametrize(("text", "on"), [("0", False), ("1", True)])
def test_development_mode_is_read_from_the_environment(text, on):
    parsed = make_parser().parse_args(["serve"])
    assert settings_of(parsed, (), {"VLLM_SERVER_DEV_MODE": text}).development_mode is on


def test_a_development_mode_that_is_no_number_stops_the_start():
    with pytest.raises(OptionError, match="VLLM_SERVER_DEV_MODE must be 0 or 1, got 'yes'"):
        settings_of(make_parser().parse_args(["serve"]), (), {"VLLM_SERVER_DEV_MODE": "yes"})
