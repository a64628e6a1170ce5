"""Pre-tokenizers: how a text is cut into words before byte-pair merging.

GGUF files name one in `tokenizer.ggml.pre`. Each name stands for regular expressions applied one after the
other; matches and the gaps between them are the words. The expressions are those of the models' own
tokenizer files in the form that llama.cpp uses, so that both programs cut alike.
"""

from tokenizers import Regex, pre_tokenizers

from foredraft.errors import UnsupportedModelError

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SEED_CODER = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
    rf"|{_WORD}|\p{{N}}|{_MARKS}|\s*[\r\n]|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = (
    rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|\p{{N}}|{_TEKKEN_MARKS}|{_SPACES}"
)  # fmt: skip
_GPT4O = (
    rf"{_CASED}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_CASED}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{_TEKKEN_MARKS}|{_SPACES}"
)
_DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}"
)
_DEEPSEEK3_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt2": (_GPT2,),
    "digits+gpt2": (r"\p{N}", _GPT2),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "llama3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "minicpm5": (r"\p{N}{1,3}", _QWEN2.replace(r"|\p{N}|", r"|\p{N}+|")),
    "seed-coder": (_SEED_CODER,),
    "bailing": (_BAILING,),
    "tekken": (_TEKKEN,),
    "gpt-4o": (_GPT4O,),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", _DEEPSEEK3_CJK, _DEEPSEEK3_WORDS),
}

_FAMILY: dict[str, str] = {
    name: family
    for family, names in {
        "default": "default",
        "gpt2": "gpt-2 gpt2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4",
        "digits+gpt2": "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        "falcon": "falcon",
        "llama3": "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 "
        "dbrx smaug-bpe chatglm-bpe glm4 glm5",
        "qwen2": "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        "qwen35": "qwen35",
        "minicpm5": "minicpm5",
        "seed-coder": "seed-coder",
        "bailing": "bailingmoe bailingmoe2 llada-moe",
        "tekken": "tekken",
        "gpt-4o": "gpt-4o llama4 kanana2 talkie minimax-m2",
        "deepseek-coder": "deepseek-coder",
        "deepseek-v3": "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    }.items()
    for name in names.split()
}

_LLAMA3_NAMES = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken")
)


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """Build the pre-tokenizer that GGUF files call `name`, byte-level encoding included.

    Raises `UnsupportedModelError` for a name that is not known.
    """
    family = _FAMILY.get(name)
    if family is None:
        raise UnsupportedModelError(
            f"the model's pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported; use another model"
        )
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in _PATTERNS[family]
    ]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def takes_whole_words(name: str) -> bool:
    """Whether a word that is itself a token stays whole, merges or not (Llama 3 and its relatives)."""
    return name in _LLAMA3_NAMES or name in ("glm4", "glm5", "minicpm5")


def adds_bos_by_default(name: str) -> bool:
    """Whether a file that does not say so wants a beginning-of-text token."""
    return name in _LLAMA3_NAMES
