"""The figures of the documents: tables made of committed results, between markers that say which.

<!-- figures: NAME -->
...
<!-- end of figures -->
"""

import os
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foredraft.bench.kernels import OURS, THEIRS
from foredraft.bench.tables import figure, percent, table

from . import acceptance, replay
from .results import FOLDER, ROOT, read_all
from .summary import ALL

Result = Mapping[str, Any]
Results = Mapping[str, Result]

SIZES = ("2", "4", "8", "16")
AUTO = f"{OURS} auto"
FAMILIES = {
    "humaneval": "code (HumanEval)",
    "summarization": "summarization",
    "math_reasoning": "mathematics",
    "mt_bench": "conversation",
    "rag": "retrieval",
    "qa": "questions",
    "translation": "translation",
    ALL: "all",
}
"""Families of prompts as documents call them, in the order of their tables."""

_BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)


class FiguresError(ValueError):
    """A marker names figures that there are not, or has no end."""


def kernels(result: Result) -> str:
    """What passes cost, and what a start takes; llama.cpp beside, if it was measured."""
    ours, theirs = result[OURS], result[THEIRS]
    sides = [OURS] if theirs is None else [OURS, THEIRS]
    start = result["start_up"][OURS]

    def row(name: str, cell: Callable[[Result], str], *, of_both: bool = True) -> list[str]:
        return [name, cell(ours), *([] if theirs is None else [cell(theirs) if of_both else ""])]

    def relative(side: Result) -> str:
        costs = side["forward"]["0"]["relative"]
        return ", ".join(figure(costs[size]["median"]) for size in SIZES)

    rows = [
        row("plain decoding, tokens/s", lambda side: figure(side["decode_tokens_per_s"]["median"], 1)),
        row("prompt, tokens/s", lambda side: figure(side["prompt_tokens_per_s"]["median"], 0)),
        row(f"pass of {', '.join(SIZES)} tokens, to a pass of one", relative),
        row("weights read, of what the memory delivers", lambda _: _limit(ours), of_both=False),
        row("start until ready, s", lambda _: figure(start["ready_s"]["median"], 1), of_both=False),
        row("peak memory, to the file", lambda _: figure(start["peak_to_file"]["median"]), of_both=False),
    ]
    bandwidth = result["read_bytes_per_s"]
    between = " to ".join(figure(1e-9 * bandwidth[edge], 0) for edge in ("low", "high"))
    return f"{table(['', *sides], rows)}\n\nThe memory delivered {between} GB/s meanwhile (quartiles)."


def _limit(ours: Result) -> str:
    return percent(ours["of_bandwidth_limit"]["median"])


def speed_up(result: Result) -> str:
    """What `auto` gains by kind of prompt; beside llama.cpp's best mode, if that was measured."""
    found = result["greedy"]["families"]
    peers = "ours_to_best_peer" in found[ALL]
    header = ["prompts", "speed-up", "worst", *(["to llama.cpp's best mode"] if peers else [])]
    rows = []
    for family, name in FAMILIES.items():
        if family in found:
            auto = found[family]["modes"][AUTO]
            cells = [figure(auto["speed_up"]["median"]), figure(auto["worst"]["speed_up"])]
            if peers:
                cells.append(figure(found[family]["ours_to_best_peer"]["ratio"][AUTO]["median"]))
            rows.append([name, *cells])
    lines = [table(header, rows), "", _equal(result)]
    outside = found[ALL]["modes"][AUTO]["outside_s"]["median"]
    lines.append(f"Planning, model-free drafts and the choice of tokens take {figure(1e3 * outside)} ms of a round.")
    lines += [*_estimates(found[ALL]), *_peers(found[ALL]["modes"])]
    return "\n".join(lines)


def _equal(result: Result) -> str:
    compared, different = result["num_compared"], result["num_different"]
    return f"Outputs with the token ids of plain decoding: {compared - different} of {compared}."


def _estimates(entry: Result) -> list[str]:
    told = entry.get("against_fixed", {}).get("estimated", {}).get(AUTO)
    return [f"The speed-up that completions report is {figure(told['median'])} of the measured one."] if told else []


def _peers(modes: Result) -> list[str]:
    """What drafting brings llama.cpp on the same prompts; nothing where it was not measured."""
    told = [
        f"`{name.removeprefix(THEIRS).strip()}` {figure(found['speed_up']['median'])}"
        for name, found in modes.items()
        if name.startswith(f"{THEIRS} ") and name != f"{THEIRS} none"
    ]
    return [f"llama.cpp's own modes have these speed-ups over its plain decoding: {', '.join(told)}."] if told else []


def lengths(result: Result) -> str:
    """The mean acceptance length of each mode by kind of prompt."""
    found = result["greedy"]["families"]
    families = [family for family in FAMILIES if family in found]
    modes = [name for name in found[ALL]["modes"] if name != f"{OURS} none"]
    rows = [
        [
            f"`{mode.removeprefix(OURS).strip()}`",
            *(figure(found[family]["modes"][mode]["mean_acceptance_length"]["median"]) for family in families),
        ]
        for mode in modes
    ]
    return f"{table(['mode', *(FAMILIES[family] for family in families)], rows)}\n\n{_equal(result)}"


def acceptance_rates(result: Result) -> str:
    """How often a draft's next token is accepted, by rule."""
    gaps = {family: means["coupled below optimum"] for family, means in result["families"].items()}
    widest = max(gaps, key=gaps.__getitem__)
    return (
        f"{acceptance.report(result)}\n\nCoupled acceptance lies {figure(gaps[ALL], 3)} below the optimum of one draw, "
        f"at most {figure(gaps[widest], 3)} ({widest})."
    )


def predictions(result: Result) -> str:
    """What a replay predicts, beside what was measured."""
    off = max(abs(row["predicted"] / row["measured"] - 1) for row in result["modes"])
    return f"{replay.report(result)}\n\nPredictions were off by {percent(off)} at most."


def interference(result: Result) -> str:
    """What a long prompt does to streams."""
    milliseconds = {
        "median pause of a stream before": result["alone_pause_s"],
        "median pause while the prompt is computed": result["usual_pause_s"],
        "longest pause while the prompt is computed": result["longest_pause_s"],
        f"a pass of {result['max_batched_tokens']} tokens": result["budget_pass_s"],
        "longest from a cancellation until the blocks are free": max(result["cancel_s"]),
    }
    return table(["", "ms"], [[name, figure(1e3 * seconds, 0)] for name, seconds in milliseconds.items()])


def serving_load(result: Result) -> str:
    """Tokens per second of servers under load."""
    names = list(result["clients"][0]["servers"])
    rows = []
    for row in result["clients"]:
        servers = [figure(row["servers"][name]["tokens_per_s"], 1) for name in names]
        ratios = [figure(row["to_plain"]), *([] if row["to_peer"] is None else [figure(row["to_peer"])])]
        rows.append([str(row["num_clients"]), *servers, *ratios])
    peers = ["to llama-server's best"] if result["clients"][0]["to_peer"] is not None else []
    header = ["clients", *(f"`{name}`" for name in names), "drafts to none", *peers]
    same = all(row["equal"] for row in result["clients"])
    texts = "All texts are the same with drafts and without." if same else "Some texts DIFFER between the two."
    return f"{table(header, rows)}\n\n{texts}"


FIGURES: Mapping[str, tuple[str, Callable[[Result], str]]] = {
    "kernels": ("kernels", kernels),
    "speed-up": ("speculation", speed_up),
    "lengths": ("lengths", lengths),
    "acceptance": ("acceptance", acceptance_rates),
    "replay": ("replay", predictions),
    "interference": ("interference", interference),
    "serving": ("serving", serving_load),
}
"""By the names of markers: the result they come from, and what is made of it."""


def source(name: str, result: Result, document: Path) -> str:
    """Where figures come from: models, machine, date, commit, command, and the file."""
    models = [result["model"], *([result["draft"]] if result["draft"] else [])]
    machine = result["machine"]
    told = [
        " and ".join(f"`{model['name']}`" for model in models),
        *([f"llama.cpp {result['peer_version']}"] if result["peer_version"] else []),
        f"{machine['processor']}, {machine['num_cores']} cores, {result['num_threads']} threads",
        f"{machine['time'][:10]}, commit {result['commit']}",
    ]
    link = Path(os.path.relpath(FOLDER / f"{name}.json", document.parent)).as_posix()
    return f"{'; '.join(told)}: `{result['command']}` ([{name}.json]({link}))"


def made(name: str, results: Results, document: Path) -> str:
    """The text between two markers. Raises FiguresError for a name that there is not, or that has no result."""
    if name not in FIGURES:
        raise FiguresError(f"{document.name}: there are no figures {name!r}; there are {', '.join(FIGURES)}")
    file, make = FIGURES[name]
    if file not in results:
        raise FiguresError(f"{document.name}: figures {name!r} need {FOLDER.name}/{file}.json")
    where = textwrap.fill(source(file, results[file], document), 120, break_long_words=False, break_on_hyphens=False)
    return f"{make(results[file])}\n\n{where}\n"


def updated(document: Path, results: Results) -> str:
    """A document with its figures made anew. Raises FiguresError."""
    text = document.read_text(encoding="utf-8")
    num_blocks = len(_BLOCK.findall(text))
    if not num_blocks == text.count("<!-- figures:") == text.count("<!-- end of figures"):
        raise FiguresError(f"{document.name}: a marker has no end, or no beginning")
    return _BLOCK.sub(lambda block: block[1] + made(block[2], results, document) + block[4], text)


def documents() -> list[Path]:
    """Those that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def names_in(document: Path) -> list[str]:
    """The figures that a document holds."""
    return [block[1] for block in _BLOCK.findall(document.read_text(encoding="utf-8"))]


def update_all() -> list[str]:
    """Write all documents whose figures are not those of the results; returns their names."""
    results, changed = read_all(), []
    for document in documents():
        text = updated(document, results)
        if text != document.read_text(encoding="utf-8"):
            document.write_text(text, encoding="utf-8")
            changed.append(document.relative_to(ROOT).as_posix())
    return changed
