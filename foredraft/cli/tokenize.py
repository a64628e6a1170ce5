"""`foredraft tokenize` and `foredraft detokenize`: what the model reads of a text, and which text ids stand for."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.cli import options
from foredraft.cli.console import PullDisplay, write
from foredraft.cli.inputs import read_prompt, read_stdin
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from foredraft.text import Tokenizer

Text = Annotated[str | None, typer.Argument(metavar="PROMPT", help="The text; - or none: standard input.")]
File = Annotated[
    Path | None, typer.Option("--prompt-file", parser=user_path, metavar="FILE", help="Read the text from this file.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]


def tokenize(
    prompt: Text = None,
    model: options.Model = "smollm2-135m",
    prompt_file: File = None,
    special: Annotated[
        bool, typer.Option("--special", help="Read the text of special tokens, such as <|im_end|>, as these tokens.")
    ] = False,
    no_bos: Annotated[
        bool, typer.Option("--no-bos", help="Without the tokens that the model wants at the beginning and the end.")
    ] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print only the ids, as a list.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: ids, tokens and num_tokens.")] = False,
    escape: Annotated[bool, typer.Option("-e", "--escape", help=r"Read \n, \t, \xHH and the like in PROMPT.")] = False,
    quiet: Quiet = False,
) -> None:
    """Show the tokens of a text.

    Prints a line for each, its id and its text, as llama-tokenize does. The text is taken as it stands, with the line
    ending of a file.
    """
    if ids and as_json:
        raise OptionError("--ids and --json are two forms of the same; give one of them")
    text = read_prompt(prompt, prompt_file, raw=True, escape=escape)
    tokenizer = _tokenizer(model, quiet=quiet)
    found = tokenizer.encode(text, add_special=not no_bos, parse_special=special)
    tokens = [_shown(tokenizer, token) for token in found]
    if as_json:
        entry = {"ids": found, "tokens": tokens, "num_tokens": len(found)}
        write(json.dumps(entry, ensure_ascii=False) + "\n")
    elif ids:
        write(f"{found}\n")
    else:
        lines = (f"{token:6d} -> '{text}'\n" for token, text in zip(found, tokens, strict=True))
        write("".join(lines))


def detokenize(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="IDS", help="Token ids, with spaces or commas, or as a list of JSON; none: stdin."),
    ] = None,
    model: options.Model = "smollm2-135m",
    skip_special: Annotated[bool, typer.Option("--skip-special", help="Leave out special tokens.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: text and num_tokens.")] = False,
    quiet: Quiet = False,
) -> None:
    """Show the text of token ids.

    Bytes that form no character are shown as U+FFFD.
    """
    found = _ids(" ".join(ids) if ids and ids != ["-"] else read_stdin("no token ids: give them as arguments"))
    tokenizer = _tokenizer(model, quiet=quiet)
    num_tokens = len(tokenizer.vocabulary.tokens)
    if unknown := [token for token in found if token >= num_tokens]:
        raise OptionError(f"there is no token {unknown[0]}: the model has ids from 0 to {num_tokens - 1}")
    text = tokenizer.decode(found, skip_special=skip_special)
    write((json.dumps({"text": text, "num_tokens": len(found)}, ensure_ascii=False) if as_json else text) + "\n")


def _tokenizer(model: str, *, quiet: bool) -> "Tokenizer":
    """The tokenizer of a model, fetched where needed. Its weights are not looked at."""
    from foredraft.models import store
    from foredraft.models.source import tokenizer_data
    from foredraft.text import load_tokenizer

    with PullDisplay(shown=not quiet) as display:
        path = store.resolve(model, progress=display.for_model(model))
    return load_tokenizer(tokenizer_data(path))


def _shown(tokenizer: "Tokenizer", token: int) -> str:
    """The text of one token; special ones as they are written, bytes of no whole character as U+FFFD."""
    if token in tokenizer.special_ids:
        return tokenizer.token_text(token)
    return tokenizer.token_bytes(token).decode("utf-8", "replace")


def _ids(text: str) -> list[int]:
    words = re.split(r"[\s,]+", text.strip().removeprefix("[").removesuffix("]").strip(", \n"))
    if words == [""]:
        raise OptionError("there are no token ids; give some, such as 1 15 42 or [1, 15, 42]")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 19):
            raise OptionError(f"token ids must be integers of at least 0, got {word[:40]!r}")
    return [int(word) for word in words]
