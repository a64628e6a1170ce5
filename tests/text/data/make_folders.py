"""Write expected_folders.json: what transformers makes of the folders in folder_variants.py.

    python tests/text/data/make_folders.py

Needs transformers (5.24 was used) beside foredraft's own packages. For each folder: the ids of bos and eos, the ids of
every text with special tokens parsed and added, their texts again, and the text and ids of every conversation, or null
where transformers refuses it.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from folder_variants import CONVERSATIONS, FOLDERS, TEXTS, write_folder  # noqa: E402


def _chats(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (messages, options) in CONVERSATIONS.items():
        options = {**options, **options.get("chat_template_kwargs", {})}
        options.pop("chat_template_kwargs", None)
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
            ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
        except Exception as error:
            print(f"  {name}: {' '.join(str(error).split())[:100]}")
            made[name] = None
        else:
            made[name] = [text, ids]
    return made


def _expected(files: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(write_folder(Path(folder), files))
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        return {
            "bos": tokenizer.bos_token_id,
            "eos": tokenizer.eos_token_id,
            "ids": ids,
            "texts": [tokenizer.decode(one) for one in ids],
            "plain": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
            "chats": _chats(tokenizer) if tokenizer.chat_template else {},
        }


def main() -> None:
    """Write the file."""
    lines = []
    for name, files in FOLDERS.items():
        print(name)
        lines.append(f"{json.dumps(name)}: {json.dumps(_expected(files), separators=(',', ':'))}")
    (HERE / "expected_folders.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
