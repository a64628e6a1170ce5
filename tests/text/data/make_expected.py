"""Write expected token ids for the nasty strings, as llama.cpp gives them.

    python tests/text/data/make_expected.py --llama-server PATH --llama-tokenize PATH \
        smollm2=PATH.gguf qwen2.5-coder=PATH.gguf gemma3=PATH.gguf

Ids come from `/tokenize` of llama-server, which loads a model once for all strings. Every tenth string is
tokenized again by llama-tokenize, and both must agree. Each NAME=PATH writes expected_NAME.json beside
this script; the strings are those of strings.json. No beginning-of-text token is added.
"""

import argparse
import ast
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORT = 18437


def _ask(path: str, body: object) -> object:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _wait_until_ready(server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"llama-server ended with code {server.returncode}")
        try:
            _ask("/health", None)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit("llama-server did not get ready within two minutes")


def _server_ids(texts: list[str], *, parse_special: bool) -> list[list[int]]:
    ids = []
    for text in texts:
        body = {"content": text, "add_special": False, "parse_special": parse_special}
        answer = _ask("/tokenize", body)
        assert isinstance(answer, dict)
        ids.append(answer["tokens"])
    return ids


def _tool_ids(tool: str, model: str, text: str, *, parse_special: bool) -> list[int]:
    flags = [] if parse_special else ["--no-parse-special"]
    command = [tool, "-m", model, "--ids", "--stdin", "--no-bos", "--no-escape", "--log-disable", *flags]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    ids = ast.literal_eval(done.stdout.decode())
    assert isinstance(ids, list)
    return ids


def _make(name: str, model: str, texts: list[str], options: argparse.Namespace) -> None:
    command = [options.llama_server, "-m", model, "--port", str(PORT), "-c", "256", "--no-warmup", "-t", "1"]
    command += ["-np", "1", "--log-disable"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(server)
        plain = _server_ids(texts, parse_special=False)
        special = _server_ids(texts, parse_special=True)
    finally:
        server.terminate()
        server.wait()
    for place in range(0, len(texts), options.check_every):
        for ids, parse_special in ((plain, False), (special, True)):
            again = _tool_ids(options.llama_tokenize, model, texts[place], parse_special=parse_special)
            if again != ids[place]:
                raise SystemExit(f"{name}: llama-tokenize disagrees on {texts[place]!r}: {again} {ids[place]}")
    changed = {str(i): ids for i, (ids, was) in enumerate(zip(special, plain, strict=True)) if ids != was}
    lines = ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in plain)
    text = f'{{"plain": [\n{lines}\n],\n"special": {json.dumps(changed, separators=(",", ":"))}}}\n'
    (HERE / f"expected_{name}.json").write_text(text, encoding="utf-8")
    print(f"{name}: {len(plain)} strings, {len(changed)} with special tokens")


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--llama-tokenize", required=True)
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("models", nargs="+", metavar="NAME=PATH")
    options = parser.parse_args()
    texts = json.loads((HERE / "strings.json").read_text(encoding="utf-8"))
    for pair in options.models:
        name, _, model = pair.partition("=")
        _make(name, model, texts, options)


if __name__ == "__main__":
    main()
