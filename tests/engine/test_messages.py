import numpy as np
import pytest

from umbel_engine.messages import Logprobs, join_logprobs


def logprobs(token_ids):
    token_ids = np.array(token_ids)
    return Logprobs(token_ids, -token_ids / 10, np.arange(1, len(token_ids) + 1))


@pytest.mark.parametrize("wide_first", [True, False])
def test_steps_with_more_columns_than_others_join_to_what_all_of_them_have(wide_first):
    # How it comes: a neighbour in the batch that asks for more logprobs ends, or begins.
    wide, narrow = logprobs([[5, 6, 7], [8, 9, 10]]), logprobs([[1, 2]])
    chunks = [wide, narrow] if wide_first else [narrow, wide]
    joined = join_logprobs(chunks)
    rows = [[5, 6], [8, 9], [1, 2]] if wide_first else [[1, 2], [5, 6], [8, 9]]
    assert joined.token_ids.tolist() == rows
    assert joined.logprobs.tolist() == (-np.array(rows) / 10).tolist()
    assert joined.ranks.tolist() == ([1, 2, 1] if wide_first else [1, 1, 2])
