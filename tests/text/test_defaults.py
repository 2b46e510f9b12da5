import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from umbel_text.defaults import SamplingDefaults, load_defaults
from umbel_text.errors import ModelFilesError, ModelNotFoundError


def write(folder: Path, name: str, content: Mapping[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content))
    return folder


SETTINGS: dict[str, object] = {
    "repetition_penalty": 1.1,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.5,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "min_p": 0.05,
    "max_new_tokens": 100,
    "skip_special_tokens": False,
    "do_sample": True,
    "eos_token_id": [2, 7],
    "transformers_version": "4.51.0",
}


def test_a_model_without_a_generation_config_has_no_defaults(tmp_path: Path) -> None:
    assert load_defaults(tmp_path) == SamplingDefaults()


def test_the_model_says_what_holds(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", SETTINGS)
    assert load_defaults(tmp_path, "auto") == SamplingDefaults(
        repetition_penalty=1.1,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        temperature=0.6,
        top_k=20,
        top_p=0.95,
        min_p=0.05,
        max_tokens=100,
        skip_special_tokens=False,
        eos_token_ids=(2, 7),
    )


def test_neutral_defaults_keep_the_ends_of_sequence(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", SETTINGS)
    assert load_defaults(tmp_path, "vllm") == SamplingDefaults(eos_token_ids=(2, 7))


def test_another_folder_gives_defaults_and_caps_the_output(tmp_path: Path) -> None:
    model = write(tmp_path / "model", "generation_config.json", {"temperature": 0.1})
    other = write(tmp_path / "other", "generation_config.json", {"top_k": 3, "max_new_tokens": 9})
    assert load_defaults(model, str(other)) == SamplingDefaults(
        top_k=3, max_tokens=9, max_tokens_cap=9
    )


@pytest.mark.parametrize("mode", ["auto", "vllm"])
def test_an_override_is_laid_over_and_caps_the_output(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "generation_config.json", {"max_new_tokens": 100, "eos_token_id": 2})
    defaults = load_defaults(tmp_path, mode, {"max_new_tokens": 5, "temperature": 0})
    assert defaults == SamplingDefaults(
        temperature=0.0, max_tokens=5, max_tokens_cap=5, eos_token_ids=(2,)
    )


def test_the_models_own_limit_is_a_default_and_no_cap(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", {"max_new_tokens": 100})
    defaults = load_defaults(tmp_path, "auto", {"temperature": 0.5})
    assert (defaults.max_tokens, defaults.max_tokens_cap) == (100, None)


def test_an_override_of_null_unsets_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", {"temperature": 0.6, "top_p": 0.9})
    assert load_defaults(tmp_path, "auto", {"temperature": None}) == SamplingDefaults(top_p=0.9)


def test_an_old_model_says_it_in_its_config(tmp_path: Path) -> None:
    write(
        tmp_path,
        "config.json",
        {"temperature": 0.7, "eos_token_id": 3, "text_config": {"eos_token_id": 4, "top_k": 5}},
    )
    assert load_defaults(tmp_path) == SamplingDefaults(temperature=0.7, top_k=5, eos_token_ids=(3,))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"temperature": "hot"}', "temperature"),
        ('{"eos_token_id": ["x"]}', "eos_token_id"),
        ('{"top_k": true}', "top_k"),
        ("[1]", "JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_a_malformed_generation_config_is_refused_by_name(
    tmp_path: Path, content: str, fault: str
) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ModelFilesError, match=fault):
        load_defaults(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        load_defaults(tmp_path, str(tmp_path / "nowhere"))
