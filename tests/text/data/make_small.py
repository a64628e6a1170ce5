"""Cut small vocabularies out of real ones, in which chosen strings keep their tokens.

    PYTHONPATH=. python tests/text/data/make_small.py qwen2.5-coder=PATH.gguf gemma3=PATH.gguf

A small vocabulary holds the special tokens, the single bytes or characters, and every token that merging
the chosen strings goes through. At each step the best merge of the whole vocabulary is then also the best one
here, so the strings are encoded by the same tokens. Each NAME=PATH reads expected_NAME.json (ids from
llama.cpp) and writes small_NAME.json: metadata as in a GGUF file, the numbers of the strings, and their ids
in the small vocabulary.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from foredraft.models.gguf_file import GGUFFile
from foredraft.text.pretokenize import pre_tokenizer
from foredraft.text.vocabulary import SPACE_MARK, byte_alphabet

HERE = Path(__file__).resolve().parent
NUM_TOKENS = 650
KEPT_KEYS = ("model", "pre", "add_bos_token", "add_eos_token", "add_space_prefix")
ID_KEYS = ("bos_token_id", "eos_token_id", "padding_token_id", "unknown_token_id")


def _bpe_steps(word: str, ranks: dict[tuple[str, str], int]) -> Iterator[tuple[str, str]]:
    symbols = list(word)
    while True:
        pairs = [(ranks[pair], i, pair) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not pairs:
            return
        _, place, pair = min(pairs)
        yield pair
        symbols[place : place + 2] = ["".join(pair)]


def _spm_steps(text: str, scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    symbols = list(text.replace(" ", SPACE_MARK))
    while True:
        pairs = [(-scores[a + b], i, (a, b)) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return
        _, place, pair = min(pairs)
        yield pair
        symbols[place : place + 2] = ["".join(pair)]


def _steps(metadata: dict[str, object], text: str) -> list[tuple[str, str]]:
    tables = _tables(metadata)
    if metadata["tokenizer.ggml.model"] == "llama":
        return list(_spm_steps(text, tables))
    words = pre_tokenizer(str(metadata["tokenizer.ggml.pre"])).pre_tokenize_str(text)
    return [pair for word, _ in words for pair in _bpe_steps(word, tables)]


def _tables(metadata: dict[str, object], known: dict[int, dict] = {}) -> dict:  # noqa: B006
    if id(metadata) not in known:
        tokens = metadata["tokenizer.ggml.tokens"]
        if metadata["tokenizer.ggml.model"] == "llama":
            kinds = metadata["tokenizer.ggml.token_type"]
            rows = zip(tokens, metadata["tokenizer.ggml.scores"], kinds, strict=True)
            known[id(metadata)] = {text: score for text, score, kind in rows if kind in (1, 4)}
        else:
            merges = metadata["tokenizer.ggml.merges"]
            known[id(metadata)] = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
    return known[id(metadata)]


def _base(metadata: dict[str, object]) -> set[int]:
    """Special tokens (few of the many unused ones), padding (three entries) and single bytes."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    alphabet = byte_alphabet() if metadata["tokenizer.ggml.model"] == "gpt2" else {}
    special = [i for i, kind in enumerate(kinds) if kind in (2, 3, 4) and "unused" not in tokens[i]]
    padding = [i for i, kind in enumerate(kinds) if kind == 5][:3]
    single = [i for i, text in enumerate(tokens) if text in alphabet or kinds[i] == 6]
    return {*special, *padding, *single}


def _make(name: str, path: str, texts: list[str]) -> None:
    metadata = GGUFFile(Path(path)).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {text: i for i, text in enumerate(tokens)}
    expected = json.loads((HERE / f"expected_{name}.json").read_text(encoding="utf-8"))["plain"]
    chosen, merges, kept = [], set(), _base(metadata)
    for place in sorted(range(len(texts)), key=lambda i: (i % 7, i)):
        steps = _steps(metadata, texts[place])
        chars = {c for c in texts[place].replace(" ", SPACE_MARK) if metadata["tokenizer.ggml.model"] == "llama"}
        needed = {ids[a + b] for a, b in steps} | set(expected[place]) | {ids[c] for c in chars if c in ids}
        if len(needed - kept) > 8 or len(kept | needed) > NUM_TOKENS:
            continue
        chosen.append(place)
        kept |= needed
        merges.update(steps)
    order = sorted(kept)
    renumbered = {old: new for new, old in enumerate(order)}
    small = {f"tokenizer.ggml.{key}": metadata.get(f"tokenizer.ggml.{key}") for key in KEPT_KEYS}
    for key in ID_KEYS:
        old = metadata.get(f"tokenizer.ggml.{key}")
        small[f"tokenizer.ggml.{key}"] = renumbered.get(old)
    small["tokenizer.ggml.tokens"] = [tokens[i] for i in order]
    small["tokenizer.ggml.token_type"] = [metadata["tokenizer.ggml.token_type"][i] for i in order]
    if "tokenizer.ggml.scores" in metadata:
        small["tokenizer.ggml.scores"] = [metadata["tokenizer.ggml.scores"][i] for i in order]
    else:
        small["tokenizer.ggml.merges"] = [" ".join(p) for p in sorted(merges, key=_tables(metadata).__getitem__)]
    chosen.sort()
    result = {
        "metadata": {key: value for key, value in small.items() if value is not None},
        "strings": chosen,
        "ids": [[renumbered[i] for i in expected[place]] for place in chosen],
    }
    lines = json.dumps(result, ensure_ascii=True, separators=(",", ":")).replace('],"', '],\n"')
    (HERE / f"small_{name}.json").write_text(lines + "\n", encoding="utf-8")
    print(f"{name}: {len(order)} tokens, {len(merges)} merges, {len(chosen)} strings")


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=PATH")
    texts = json.loads((HERE / "strings.json").read_text(encoding="utf-8"))
    for pair in parser.parse_args().models:
        name, _, path = pair.partition("=")
        _make(name, path, texts)


if __name__ == "__main__":
    main()
