"""Bucket bounds of the histograms, in families, as vLLM has them (vllm/v1/metrics/buckets.py)."""

import itertools

# fmt: off
REQUEST_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)
"""The phases of a request, in seconds."""

TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)
"""From arrival to the first output, in seconds."""

INTER_TOKEN_LATENCY = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)
"""From one output to the next, in seconds."""
# fmt: on

ITERATION_TOKENS = tuple(float(2**power) for power in (0, *range(3, 15)))
"""Tokens of an engine step: 1, then 8 to 16384."""

REQUEST_PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How many samples a request asks for."""

REQUEST_NUM_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
"""How often a sample was preempted."""


def request_tokens(max_model_len: int) -> tuple[float, ...]:
    """Give the bounds for the tokens of one request: 1, 2, 5, 10 and so on to `max_model_len`."""
    series = (float(step * 10**power) for power in itertools.count() for step in (1, 2, 5))
    return tuple(itertools.takewhile(lambda bound: bound <= max_model_len, series))
