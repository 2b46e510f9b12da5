"""What an answer carries beside its text, where the engine sends it."""

import base64
import io

from umbel_engine import Extras, WeightVersionSpan
from umbel_server.responses.context import AnswerContext

TransferParameters = dict[str, object]
"""What another engine needs to take over a cache."""

NOTHING = Extras()


def weight_versions(context: AnswerContext, extras: Extras) -> list[WeightVersionSpan] | None:
    """Give which weights sampled which tokens, if it was asked for."""
    return extras.weight_versions if context.return_weight_versions else None


def routed_experts(extras: Extras) -> str | None:
    """Give the experts that tokens went to: a NumPy file in Base64 (vllm/utils/serial_utils.py)."""
    if extras.routed_experts is None:
        return None
    import numpy as np

    file = io.BytesIO()
    np.save(file, extras.routed_experts, allow_pickle=False)
    return base64.b64encode(file.getbuffer()).decode()
