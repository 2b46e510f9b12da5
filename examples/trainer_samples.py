"""Draw n samples of every prompt for a trainer, with token ids and log-probabilities.

A trainer in small, on the layer umbel_llm alone: it rolls out every prompt n times, keeps the
siblings of a sample that failed, and exchanges the weights while the engine is paused.  It talks to
a mock engine unless it is told where a real one is going to say HELLO:

    trainer_samples.py --handshake-address tcp://127.0.0.1:29550
"""

import argparse
import asyncio
import math
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec

from umbel_engine import EngineClient, EngineCoreRequest, EngineOptions, SamplingParams, merge
from umbel_engine.mock import MockEngine, MockStep, child_index, sampled
from umbel_llm import GenerateRequest, Llm

PROMPTS = [[11, 12, 13], [21, 22], [31, 32, 33, 34]]


class Rollout(msgspec.Struct, frozen=True):
    """One sample: what a trainer needs of it; `logprobs` has one natural logarithm per token."""

    prompt: int
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    weights_version: int


async def roll_out(
    llm: Llm, prompts: Sequence[list[int]], n: int, params: SamplingParams, weights_version: int
) -> list[Rollout]:
    """Draw n samples of every prompt; those that an engine failed are left out."""
    groups = []
    for prompt, token_ids in enumerate(prompts):
        request = GenerateRequest(
            request_id=f"rollout-{weights_version}-{prompt}",
            prompt_token_ids=token_ids,
            sampling_params=params,
            stream_interval=None,
        )
        groups.append(llm.generate_n(request, n))
    rollouts = []
    async with merge(*groups) as samples:
        await samples.finished()
        for position, sample in enumerate(samples):
            prompt, index = divmod(position, n)
            delta = sample.take()
            assert delta is not None
            assert delta.finish is not None
            if delta.finish.error is not None:
                print(f"prompt {prompt}, sample {index}: {delta.finish.error}")
                continue
            # The first column has the sampled tokens.
            logprobs = [] if delta.logprobs is None else delta.logprobs.logprobs[:, 0].tolist()
            rollouts.append(
                Rollout(prompt, delta.token_ids, logprobs, delta.finish.reason, weights_version)
            )
    return rollouts


@asynccontextmanager
async def paused(client: EngineClient) -> AsyncIterator[None]:
    """Let the engines finish what they are at, and hold back the rest; caches are emptied."""
    await client.call("pause_scheduler", "wait", True)
    try:
        yield
    finally:
        await client.call("resume_scheduler")


def report(rollouts: Sequence[Rollout]) -> None:
    """Print a line for each prompt."""
    for prompt in sorted({rollout.prompt for rollout in rollouts}):
        group = [rollout for rollout in rollouts if rollout.prompt == prompt]
        count = sum(len(rollout.token_ids) for rollout in group)
        logprobs = [logprob for rollout in group for logprob in rollout.logprobs]
        mean = math.fsum(logprobs) / len(logprobs)
        print(f"prompt {prompt}: {len(group)} samples, {count} tokens, mean logprob {mean:.3f}")


async def train(client: EngineClient, options: argparse.Namespace) -> None:
    """Roll out and exchange the weights, in turn."""
    llm = Llm(client)
    params = SamplingParams(seed=options.seed, max_tokens=options.max_tokens, logprobs=0)
    for weights_version in range(options.steps):
        print(f"weights version {weights_version}")
        report(await roll_out(llm, PROMPTS, options.samples, params, weights_version))
        async with paused(client):
            # The place to compute new weights and to hand them to the engines, for example with
            # client.call("collective_rpc", ...).
            print("paused to exchange the weights")


def mock_engine() -> MockEngine:
    """Make an engine without a model that fails one sample of the second prompt."""
    sample = sampled()

    def script(request: EngineCoreRequest) -> Iterable[MockStep] | AsyncIterator[MockStep]:
        if request.prompt_token_ids == PROMPTS[1] and child_index(request) == 1:
            return [MockStep(finish="error")]
        return sample(request)

    utilities = {"pause_scheduler": lambda *_: None, "resume_scheduler": lambda: None}
    return MockEngine(script, utilities=utilities)


async def main(options: argparse.Namespace) -> None:
    """Find the engine and train on it."""
    if options.handshake_address is None:
        async with EngineClient(EngineOptions()) as client, mock_engine().serve(client):
            await train(client, options)
    else:
        async with EngineClient(EngineOptions(options.handshake_address)) as client:
            print(f"waiting for an engine at {client.handshake_address}", file=sys.stderr)
            await client.wait_ready()
            await train(client, options)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4, help="per prompt (%(default)s)")
    parser.add_argument("--steps", type=int, default=2, help="of the trainer (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=16, help="per sample (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the first sample; the others count up from it")
    parser.add_argument(
        "--handshake-address", metavar="ADDRESS", help="where a real engine says HELLO"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_arguments()))
