"""Take requests as vLLM's engine does, and tell whether it could; runs in the engine environment.

Each ADD comes on standard input as a length (four bytes, little-endian) and a payload, and is
answered with one line of JSON: null, or what was raised.  A request goes the way it goes in the
engine: decoded by vLLM's own struct, which validates it; made a scheduler's request, blocks hashed;
put into a batch; and sampled from once, on logits of its own.  In between it passes the check that
vLLM's frontend makes against the model, which umbel makes in its place.
"""

import json
import struct
import sys
import traceback
from types import SimpleNamespace

import numpy as np
import torch
from vllm import envs
from vllm.sampling_params import SamplingType
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.utils import check_sequence_repetition
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.request import Request
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.logits_processor.builtin import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.sampler import Sampler
from vllm.v1.serial_utils import MsgpackDecoder
from vllm.v1.worker.gpu.sample.logit_bias import (
    MAX_NUM_ALLOWED_TOKEN_IDS,
    MAX_NUM_LOGIT_BIAS_TOKENS,
    MAX_NUM_STOP_TOKEN_IDS,
)
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

VOCABULARY_SIZE = 49152
MAX_MODEL_LEN = 2048
BLOCK_SIZE = 16
BLOCKS = MAX_MODEL_LEN // BLOCK_SIZE


class Engine:
    """The parts of an engine that look at what a request asks for."""

    def __init__(self):
        init_none_hash(sha256)
        device = torch.device("cpu")
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=1))
        self._decoder = MsgpackDecoder(EngineCoreRequest)
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self._model = SimpleNamespace(
            max_logprobs=20,
            max_model_len=MAX_MODEL_LEN,
            is_diffusion=False,
            get_vocab_size=lambda: VOCABULARY_SIZE,
        )
        processors = (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)
        self._batch = InputBatch(
            max_num_reqs=1,
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=MAX_MODEL_LEN,
            device=device,
            vocab_size=VOCABULARY_SIZE,
            block_sizes=[BLOCK_SIZE],
            max_num_blocks_per_req=[BLOCKS],
            logitsprocs=LogitsProcessors([made(config, device, False) for made in processors]),
        )
        self._sampler = Sampler()
        self._logits = torch.randn((1, VOCABULARY_SIZE), generator=torch.Generator().manual_seed(0))

    def take(self, payload):
        """Take a request; raises what the engine would."""
        decoded = self._decoder.decode([payload])
        params = decoded.sampling_params
        params.verify(self._model, None, None, None)
        request = Request.from_engine_core_request(decoded, self._hasher)
        assert isinstance(request.request_id, str)
        assert 0 < request.num_prompt_tokens < MAX_MODEL_LEN
        assert request.num_prompt_tokens + request.max_tokens <= MAX_MODEL_LEN
        assert min(request.prompt_token_ids) >= 0
        assert max(request.prompt_token_ids) < VOCABULARY_SIZE
        self._check_scheduling(request, params)
        self._check_for_gpu(params)
        self._sample(request, params)
        self._score(request, params)

    def _check_scheduling(self, request, params):
        """Check what the scheduler reads of a request, and with it the thread that takes it in."""
        for transfer in (request.kv_transfer_params, request.ec_transfer_params):
            assert transfer is None or isinstance(transfer, dict)
        constrained = request.structured_output_request
        assert (constrained is None) == (params.structured_outputs is None)
        if constrained is not None:
            _, specification = constrained.structured_output_key
            specification.encode()
            assert params.structured_outputs._backend == "xgrammar"
        if params.repetition_detection is not None:
            check_sequence_repetition(request.prompt_token_ids, params.repetition_detection)

    def _check_for_gpu(self, params):
        """Check what the sampler of a GPU keeps in arrays of fixed size."""
        np.array([params.seed or 0], np.int64)
        np.array([params.top_k], np.int32)
        bad_words = params.bad_words_token_ids or ()
        assert len(bad_words) <= envs.VLLM_MAX_NUM_BAD_WORDS
        assert sum(map(len, bad_words)) <= envs.VLLM_MAX_BAD_WORDS_TOTAL_TOKENS
        for token_ids in bad_words:
            assert 0 <= min(token_ids) <= max(token_ids) < VOCABULARY_SIZE
        assert len(params.allowed_token_ids or ()) <= MAX_NUM_ALLOWED_TOKEN_IDS
        assert len(params.logit_bias or ()) <= MAX_NUM_LOGIT_BIAS_TOKENS
        if params.min_tokens:
            assert len(params.all_stop_token_ids) <= MAX_NUM_STOP_TOKEN_IDS

    def _sample(self, request, params):
        generator = None
        if params.sampling_type == SamplingType.RANDOM_SEED:
            generator = torch.Generator()
            generator.manual_seed(params.seed)
        state = CachedRequestState(
            req_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            mm_features=[],
            sampling_params=params,
            generator=generator,
            block_ids=(list(range(BLOCKS)),),
            num_computed_tokens=0,
            output_token_ids=[],
        )
        batch = self._batch
        batch.add_request(state)
        try:
            batch.refresh_metadata()
            output = self._sampler(self._logits.clone(), batch.sampling_metadata)
            assert 0 <= int(output.sampled_token_ids[0, 0]) < VOCABULARY_SIZE
        finally:
            batch.remove_request(request.request_id)
            batch.condense()
            batch.refresh_metadata()

    def _score(self, request, params):
        """Make the log-probabilities of the prompt, for its first position."""
        if params.prompt_logprobs is None or request.num_prompt_tokens < 2:
            return
        scores = self._sampler.compute_logprobs(self._logits)
        target = torch.tensor([request.prompt_token_ids[1]])
        self._sampler.gather_logprobs(scores, params.prompt_logprobs, target)


def main():
    """Answer until the input ends."""
    # What vLLM logs or prints is not for the one who reads the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = Engine()
    print("ready", file=answers, flush=True)
    source = sys.stdin.buffer
    while head := source.read(4):
        payload = source.read(struct.unpack("<I", head)[0])
        try:
            engine.take(payload)
            fault = None
        except Exception:
            fault = traceback.format_exc(limit=-3)
        print(json.dumps(fault), file=answers, flush=True)


if __name__ == "__main__":
    main()
