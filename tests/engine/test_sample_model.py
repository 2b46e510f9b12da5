import fcntl
import importlib
import json
import multiprocessing
import re
import sys

import msgspec
import numpy as np
import pytest

from umbel_engine import EngineStartError
from umbel_engine.sample_model import (
    Metadata,
    gguf_path,
    hugging_face_name,
    is_whole,
    model_config,
    prepare_folder,
    prepare_sample_model,
    unpermute,
    user_cache,
)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "model"


@pytest.fixture
def report():
    return [].append


def write(folder):
    (folder / "config.json").write_text("{}")
    (folder / "weights").write_bytes(b"0123456789")


def fail(folder):
    write(folder)
    raise OSError("disk full")


def test_a_folder_is_made_once(folder, report):
    prepare_folder(folder, write, report)
    prepare_folder(folder, fail, report)
    assert is_whole(folder)
    assert (folder / "weights").read_bytes() == b"0123456789"


def test_the_user_is_told_when_it_takes_time(folder):
    lines = []
    prepare_folder(folder, write, lines.append)
    assert re.match("preparing the sample model model in .*cache", lines[0])
    lines.clear()
    prepare_folder(folder, write, lines.append)
    assert not lines


def test_a_folder_that_was_not_written_to_its_end_is_not_taken(folder, report):
    with pytest.raises(OSError, match="disk full"):
        prepare_folder(folder, fail, report)
    assert not folder.exists()
    assert [path.name for path in folder.parent.iterdir()] == ["model.lock"]
    prepare_folder(folder, write, report)
    assert is_whole(folder)


@pytest.mark.parametrize("harm", ["no manifest", "missing", "short", "stray"])
def test_a_harmed_folder_is_made_anew(folder, report, harm):
    prepare_folder(folder, write, report)
    match harm:
        case "no manifest":
            (folder / "umbel-manifest.json").unlink()
        case "missing":
            (folder / "config.json").unlink()
        case "short":
            (folder / "weights").write_bytes(b"01234")
        case "stray":
            (folder / "umbel-manifest.json").write_bytes(b"{")
    assert not is_whole(folder)
    prepare_folder(folder, write, report)
    assert is_whole(folder)


def test_what_a_killed_process_left_is_replaced(folder, report):
    partial = folder.with_name("model.partial")
    partial.mkdir(parents=True)
    (partial / "old").write_text("half")
    prepare_folder(folder, write, report)
    assert is_whole(folder)
    assert not (folder / "old").exists()
    assert not partial.exists()


def test_one_process_at_a_time_writes(folder, report):
    def write_alone(partial):
        with (
            folder.with_name("model.lock").open("w") as file,
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(partial)

    prepare_folder(folder, write_alone, report)
    assert is_whole(folder)


def prepare_in_a_process(folder, barrier, written):
    def write_once(partial):
        with written.get_lock():
            written.value += 1
        write(partial)

    barrier.wait(20)
    prepare_folder(folder, write_once, lambda line: None)
    assert is_whole(folder)


def test_of_several_processes_at_once_one_writes(folder):
    context = multiprocessing.get_context("fork")
    barrier, written = context.Barrier(4), context.Value("i", 0)
    workers = [
        context.Process(target=prepare_in_a_process, args=(folder, barrier, written))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert written.value == 1


@pytest.mark.parametrize("package", ["gguf", "ml_dtypes", "safetensors"])
def test_a_missing_package_is_named_with_what_to_install(tmp_path, monkeypatch, report, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EngineStartError, match=rf"needs the package {package}, .*`pip install"):
        prepare_sample_model(tmp_path, report)


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path, report):
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineStartError, match=r"cannot prepare the sample model in .*file"):
        prepare_sample_model(tmp_path / "file", report)


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "umbel"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == tmp_path / ".cache" / "umbel"


def test_unpermute_undoes_what_llama_cpp_does():
    heads, size, columns = 3, 8, 5
    rows = np.arange(heads * size * columns, dtype=np.float32).reshape(heads * size, columns)
    # convert_hf_to_gguf.py: the two halves of a head become the pairs that rotate together.
    permuted = rows.reshape(heads, 2, size // 2, columns).swapaxes(1, 2).reshape(rows.shape)
    assert not np.array_equal(permuted, rows)
    assert np.array_equal(unpermute(permuted, heads), rows)


def test_an_unknown_tensor_is_refused():
    assert hugging_face_name("blk.12.ffn_up.weight") == "model.layers.12.mlp.up_proj.weight"
    for name in ("blk.1.attn_q.bias", "blk.1.ffn_gate_exps.weight", "output.weight"):
        with pytest.raises(ValueError, match=f"unknown tensor {name}"):
            hugging_face_name(name)


class Reader:
    tensors = ()

    def __init__(self, values):
        self._values = values

    def get_field(self, key):
        value = self._values.get(key)
        return None if value is None else type("Field", (), {"contents": lambda self: value})()


def test_another_architecture_and_missing_or_wrong_metadata_are_refused():
    with pytest.raises(ValueError, match="llama architecture, got mamba"):
        model_config(Metadata(Reader({"general.architecture": "mamba"})))
    with pytest.raises(ValueError, match=r"has no llama\.attention\.head_count"):
        model_config(Metadata(Reader({"general.architecture": "llama"})))
    with pytest.raises(msgspec.ValidationError):
        model_config(Metadata(Reader({"general.architecture": 3})))


# The real conversion.  The packages that it needs are part of the test environment.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return prepare_sample_model(tmp_path_factory.mktemp("cache"), [].append)


def test_the_configuration_is_that_of_smollm2(model):
    config = json.loads((model / "config.json").read_bytes())
    assert config["model_type"] == "llama"
    assert config["rms_norm_eps"] == 1e-05
    assert config["rope_theta"] == 100_000
    assert config["tie_word_embeddings"] is True
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (9, 3)
    generation = json.loads((model / "generation_config.json").read_bytes())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def test_the_weights_have_the_names_shapes_and_type_that_transformers_expects(model):
    with (model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert header.pop("__metadata__") == {"format": "pt"}
    assert len(header) == 272
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}
    assert sum(np.prod(tensor["shape"]) for tensor in header.values()) == 134_515_008
    assert header["model.embed_tokens.weight"]["shape"] == [49152, 576]
    assert header["model.layers.29.self_attn.k_proj.weight"]["shape"] == [192, 576]
    assert header["model.layers.0.mlp.down_proj.weight"]["shape"] == [576, 1536]
    assert header["model.norm.weight"]["shape"] == [576]


def test_the_weights_are_those_of_the_gguf_file(model):
    gguf = importlib.import_module("gguf")
    importlib.import_module("ml_dtypes")
    weights = importlib.import_module("safetensors.numpy").load_file(model / "model.safetensors")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_path()).tensors}

    def original(name):
        return gguf.dequantize(tensors[name].data, tensors[name].tensor_type)

    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.7.mlp.down_proj", "blk.7.ffn_down"),
        ("model.layers.7.self_attn.v_proj", "blk.7.attn_v"),
    ):
        np.testing.assert_allclose(
            weights[f"{ours}.weight"].astype(np.float32), original(f"{theirs}.weight"), rtol=2**-8
        )
    # In a head of 64 rows, rows 0 and 32 rotate together.
    query = original("blk.7.attn_q.weight")
    ours = weights["model.layers.7.self_attn.q_proj.weight"].astype(np.float32)
    for row, permuted in ((0, 0), (32, 1), (1, 2), (64, 64), (96, 65)):
        np.testing.assert_allclose(ours[row], query[permuted], rtol=2**-8)


def test_the_tokenizer_has_every_digit_apart_and_knows_the_special_tokens(model):
    tokenizer = json.loads((model / "tokenizer.json").read_bytes())
    assert len(tokenizer["model"]["vocab"]) == 49152
    assert len(tokenizer["model"]["merges"]) == 48900
    assert {"type": "Digits", "individual_digits": True} in tokenizer["pre_tokenizer"][
        "pretokenizers"
    ]
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert special["<|endoftext|>"] == 0
    assert special["<|im_start|>"] == 1
    assert special["<|im_end|>"] == 2
    config = json.loads((model / "tokenizer_config.json").read_bytes())
    assert config["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in config["chat_template"]
