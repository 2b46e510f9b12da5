"""The same thoughts between the markers of other models."""

from ..transcripts import Corpus, Transcript
from . import think


def with_markers(start: str, end: str) -> tuple[Transcript, ...]:
    """Write the transcripts of `think` with other markers."""

    def rewritten(text: str) -> str:
        return text.replace(think.START, start).replace(think.END, end)

    return tuple(
        transcript._replace(
            text=rewritten(transcript.text),
            prompt=rewritten(transcript.prompt),
            reasoning=rewritten(transcript.reasoning),
            content=rewritten(transcript.content),
        )
        for transcript in think.REASONING
    )


SEED_START, SEED_END = "<seed:think>", "</seed:think>"

MINIMAX_M2 = Corpus(None, "minimax_m2", think.TOKENS, think.trimmed(think.REASONING))
SEED_OSS = Corpus(None, "seed_oss", (SEED_START, SEED_END), with_markers(SEED_START, SEED_END))

CORPORA = (MINIMAX_M2, SEED_OSS)
