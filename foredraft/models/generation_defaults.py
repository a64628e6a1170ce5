"""How the makers of a model want its tokens sampled: generation_config.json of a folder, general.sampling.* of a GGUF
file.

Only offered: nothing here changes an answer by itself. Keys are those of transformers (GenerationConfig) and llama.cpp
(gguf-py's constants).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from foredraft.models.fields import Fields
from foredraft.models.safetensors_files import read_json

FILE = "generation_config.json"
_PREFIX = "general.sampling."

_FOLDER_NEUTRAL: dict[str, tuple[object, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "top_h": (),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "length_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "bad_words_ids": (),
    "sequence_bias": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1.0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
}
_GGUF_NEUTRAL: dict[str, tuple[object, ...]] = {
    "xtc_probability": (0.0,),
    "xtc_threshold": (0.1,),
    "mirostat": (0,),
    "sequence": (),
}
"""Keys of what cannot be taken over, and the values by which they ask for nothing. None always does."""


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """What a model's files say of sampling; None: nothing. Names and meanings are those of `SamplingParams`.

    Attributes:
        eos_ids: tokens that end a text, besides those of the tokenizer.
        left_out: keys of the file that ask for something else, which foredraft does not do.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    eos_ids: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def sampling(self) -> dict[str, float | int]:
        """What is said, as keywords of `SamplingParams`."""
        names = [field.name for field in fields(self) if field.name not in ("eos_ids", "left_out")]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def generation_defaults(data: Mapping[str, object] | Path) -> GenerationDefaults:
    """What the files of a model say of sampling. data: `tokenizer_data` of a `ModelSource`: metadata, or the folder.

    A folder without the file says nothing. Raises ModelFileError for a file that is damaged or holds nonsense.
    """
    if not isinstance(data, Path):
        return _of_gguf(data)
    path = data / FILE
    return _of_folder(read_json(path), str(path)) if path.exists() else GenerationDefaults()


def _of_folder(values: Mapping[str, object], where: str) -> GenerationDefaults:
    """As transformers reads it: without `do_sample` the rest may stand there but says nothing of greedy answers.

    vLLM takes the numbers whatever `do_sample` says; where it is not given, so is done here. `do_sample: false` asks
    for the most likely token, and `do_sample: true` without a temperature for one of 1.
    """
    found = Fields(values, where)
    eos_ids = _eos_ids(found)
    left_out = _left_out(values, _FOLDER_NEUTRAL)
    numbers = GenerationDefaults(
        temperature=_number(found, "temperature", low=0.0, high=1e30),
        top_k=_top_k(found),
        top_p=_number(found, "top_p", low=0.0, high=1.0, positive=True),
        min_p=_number(found, "min_p", low=0.0, high=1.0),
        typical_p=_number(found, "typical_p", low=0.0, high=1.0, positive=True),
        repetition_penalty=_number(found, "repetition_penalty", low=0.0, high=1e30, positive=True),
        eos_ids=eos_ids,
        left_out=left_out,
    )
    samples = found.flag("do_sample") if found.has("do_sample") else None
    if samples is False:
        return GenerationDefaults(
            temperature=0.0, repetition_penalty=numbers.repetition_penalty, eos_ids=eos_ids, left_out=left_out
        )
    if samples and numbers.temperature is None:
        return replace(numbers, temperature=1.0)
    return numbers


def _of_gguf(metadata: Mapping[str, object]) -> GenerationDefaults:
    """As llama.cpp reads it. Its penalty counts the last 64 tokens, so one that is not of all tokens is left out."""
    found = Fields(metadata, "the GGUF file", _PREFIX)
    given = {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key.startswith(_PREFIX)}
    left_out = _left_out(given, _GGUF_NEUTRAL)
    penalty = _number(found, "penalty_repeat", low=0.0, high=1e30, positive=True)
    if penalty not in (None, 1.0) and given.get("penalty_last_n") != -1:
        penalty, left_out = None, (*left_out, "penalty_repeat")
    return GenerationDefaults(
        temperature=_number(found, "temp", low=0.0, high=1e30),
        top_k=_top_k(found),
        top_p=_number(found, "top_p", low=0.0, high=1.0, positive=True),
        min_p=_number(found, "min_p", low=0.0, high=1.0),
        repetition_penalty=penalty,
        left_out=tuple(_PREFIX + name for name in left_out),
    )


def _number(found: Fields, key: str, *, low: float, high: float, positive: bool = False) -> float | None:
    return found.number(key, low=low, high=high, positive=positive) if found.has(key) else None


def _top_k(found: Fields) -> int | None:
    """0 and, in llama.cpp, what is below it stand for all tokens."""
    return max(0, found.integer("top_k", low=-1)) if found.has("top_k") else None


def _eos_ids(found: Fields) -> tuple[int, ...]:
    if not found.has("eos_token_id"):
        return ()
    value = found.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and 0 <= token < 1 << 31 for token in ids):
        raise found.wrong("eos_token_id", value, "a token id or a list of them")
    return tuple(ids)


def _left_out(values: Mapping[str, object], neutral: Mapping[str, tuple[object, ...]]) -> tuple[str, ...]:
    return tuple(
        name for name, nothing in neutral.items() if values.get(name) is not None and values[name] not in nothing
    )
