"""What the files of a model say of sampling, and what is nonsense."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from gguf.constants import Keys

from foredraft.errors import ModelFileError
from foredraft.models.generation_defaults import FILE, GenerationDefaults, generation_defaults
from foredraft.models.gguf_file import GGUFFile
from foredraft.sampling import SamplingParams


def of(folder: Path, values: object) -> GenerationDefaults:
    (folder / FILE).write_text(values if isinstance(values, str) else json.dumps(values))
    return generation_defaults(folder)


PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, float], tuple[int, ...], tuple[str, ...]]] = {
    "qwen": (
        {"do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
         "bos_token_id": 151643, "pad_token_id": 151643, "eos_token_id": [151645, 151643], "transformers_version": "4"},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}, (151645, 151643), (),
    ),
    "llama": (
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": 128009},
        {"temperature": 0.6, "top_p": 0.9}, (128009,), (),
    ),
    "gemma": (
        {"cache_implementation": "hybrid", "do_sample": True, "top_k": 64, "top_p": 0.95, "eos_token_id": [1, 106]},
        {"temperature": 1.0, "top_k": 64, "top_p": 0.95}, (1, 106), (),
    ),
    "only numbers": ({"temperature": 1, "min_p": 0.1, "typical_p": 0.9, "top_k": 0},
                     {"temperature": 1.0, "top_k": 0, "min_p": 0.1, "typical_p": 0.9}, (), ()),
    "greedy": ({"do_sample": False, "temperature": 0.7, "top_k": 5, "repetition_penalty": 1.05},
               {"temperature": 0.0, "repetition_penalty": 1.05}, (), ()),
    "nothing": ({"_from_model_config": True, "temperature": None, "num_beams": 1, "suppress_tokens": []}, {}, (), ()),
    "what is not done here": ({"num_beams": 4, "no_repeat_ngram_size": 3}, {}, (),
                              ("num_beams", "no_repeat_ngram_size")),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_folders_say(tmp_path: Path, name: str) -> None:
    """Kind: what the makers of a model recommend is dropped silently."""
    values, sampling, eos_ids, left_out = PUBLISHED[name]
    found = of(tmp_path, values)
    assert (found.sampling, found.eos_ids, found.left_out) == (sampling, eos_ids, left_out)
    SamplingParams(**found.sampling)


def test_a_folder_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path) == GenerationDefaults()


def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path) -> None:
    assert of(tmp_path, '\ufeff{"top_k": 3}').sampling == {"top_k": 3}


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be a JSON object"),
        ({"temperature": -1}, "key 'temperature' must be a number from 0"),
        ({"temperature": "hot"}, "key 'temperature' must be"),
        ('{"temperature": NaN}', "key 'temperature' must be"),
        ({"top_p": 0}, "key 'top_p' must be a number above 0 up to 1, it is 0"),
        ({"top_p": 1.5}, "key 'top_p' must be"),
        ({"top_k": -2}, "key 'top_k' must be a whole number from -1"),
        ({"top_k": 2.5}, "key 'top_k' must be"),
        ({"min_p": 2}, "key 'min_p' must be"),
        ({"repetition_penalty": 0}, "key 'repetition_penalty' must be"),
        ({"do_sample": "yes"}, "key 'do_sample' must be true or false"),
        ({"eos_token_id": [1, "2"]}, "key 'eos_token_id' must be a token id or a list of them"),
        ({"eos_token_id": -1}, "key 'eos_token_id' must be"),
        ({"eos_token_id": True}, "key 'eos_token_id' must be"),
    ],
)
def test_nonsense_is_refused_in_a_line(tmp_path: Path, values: object, part: str) -> None:
    with pytest.raises(ModelFileError) as refused:
        of(tmp_path, values)
    assert str(refused.value).startswith(f"{tmp_path / FILE}: ")
    assert part in str(refused.value)


def test_what_gguf_files_say(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_float32(Keys.General.SAMPLING_TEMP, 0.5)
    writer.add_int32(Keys.General.SAMPLING_TOP_K, 20)
    writer.add_float32(Keys.General.SAMPLING_TOP_P, 0.75)
    writer.add_float32(Keys.General.SAMPLING_MIN_P, 0.0)
    writer.add_float32(Keys.General.SAMPLING_PENALTY_REPEAT, 1.25)
    writer.add_int32(Keys.General.SAMPLING_MIROSTAT, 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = GGUFFile(path).metadata
    found = generation_defaults(metadata)
    assert found.sampling == {"temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.0}
    assert found.left_out == ("general.sampling.mirostat", "general.sampling.penalty_repeat")
    whole = generation_defaults({**metadata, Keys.General.SAMPLING_PENALTY_LAST_N: -1})
    assert whole.sampling["repetition_penalty"] == 1.25
    assert generation_defaults({"general.architecture": "llama"}) == GenerationDefaults()
    with pytest.raises(ModelFileError, match=r"key 'general\.sampling\.temp' must be a number"):
        generation_defaults({Keys.General.SAMPLING_TEMP: -1.0})
