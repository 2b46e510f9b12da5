"""What an answer carries beside its text, where the engine sends it."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from umbel_engine import Extras, WeightVersionSpan
from umbel_server.responses.context import AnswerContext

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TransferParameters = dict[str, object]
"""What another engine needs to take over a cache."""

NOTHING = Extras()


def weight_versions(context: AnswerContext, extras: Extras) -> list[WeightVersionSpan] | None:
    """Give which weights sampled which tokens, if it was asked for."""
    return extras.weight_versions if context.return_weight_versions else None


def array_file(array: NDArray[np.generic] | None) -> str | None:
    """Give an array as a NumPy file in Base64 (vllm/utils/serial_utils.py)."""
    if array is None:
        return None
    import numpy as np

    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getbuffer()).decode()
