"""Best of: sample more often than is asked for, answer with the best."""

from collections.abc import Sequence

from umbel_text import TextDelta


def best_of_each(deltas: Sequence[TextDelta], best_of: int, n: int) -> list[TextDelta]:
    """Give the n best of the `best_of` samples of each prompt, prompt by prompt."""
    return [
        delta
        for start in range(0, len(deltas), best_of)
        for delta in best(deltas[start : start + best_of], n)
    ]


def best(deltas: Sequence[TextDelta], n: int) -> list[TextDelta]:
    """Give the n samples with the highest mean log-probability per token, the best first.

    The rule is that of OpenAI's reference for completions.  Every sample must have the
    log-probabilities of its tokens; of equals the earlier one comes first.
    """
    return sorted(deltas, key=mean_logprob, reverse=True)[:n]


def mean_logprob(delta: TextDelta) -> float:
    """Give the mean log-probability of a sample's tokens, the lowest of all if it has none."""
    if not delta.logprobs:
        return float("-inf")
    return sum(position[0].logprob for position in delta.logprobs) / len(delta.logprobs)
