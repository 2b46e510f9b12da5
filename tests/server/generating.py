"""Asking for tokens: what the tests of `/inference/v1/generate` have in common."""

import pytest

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"

PROMPT = [300, 301, 302]
EOS_ID = 2


@pytest.fixture
def generating(serve):
    """Start a server that is opened for generate requests."""

    async def generating(script=None, **options):
        return await serve(script, enable_scale_out=True, **options)

    return generating


async def generate(served, headers=None, token_ids=PROMPT, stream=None, **rest):
    """Ask for tokens; what is no field of the body is a sampling parameter."""
    fields = {
        name: rest.pop(name)
        for name in (
            "cache_salt",
            "kv_transfer_params",
            "model",
            "priority",
            "request_id",
            "return_token_ids",
            "stream_options",
        )
        if name in rest
    }
    if stream is not None:
        fields["stream"] = stream
    return await served.post(GENERATE, headers, token_ids=token_ids, sampling_params=rest, **fields)
