"""The command: `python -m benchmarks speculation ...`, or `acceptance`, or `replay`; see README.md in this folder."""

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from foredraft.bench.machine import describe_file, describe_machine
from foredraft.bench.peer import LlamaCpp
from foredraft.errors import UserError
from foredraft.llm import LLM
from foredraft.models.load import load_decoder
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams

from . import acceptance, replay, speculation, summary
from .measuring import spaced
from .ours import Engine, built_in_path
from .prompts import read_all
from .records import Records
from .server import Server


def numbers(text: str) -> tuple[int, ...]:
    """A comma-separated list of integers."""
    return tuple(int(part) for part in text.split(",") if part)


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list of words."""
    return tuple(part for part in text.split(",") if part)


def parser() -> argparse.ArgumentParser:
    """The options."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-m", "--model", default="smollm2-135m", help="a model as foredraft takes it")
    common.add_argument("-t", "--threads", type=int, default=2)
    common.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON Lines files")
    common.add_argument("--num-prompts", type=int, help="only so many of them, evenly spaced")
    common.add_argument("--raw", action="store_true", help="continue the text, apply no chat template")
    common.add_argument("--context-length", type=int, default=4096)
    common.add_argument("-o", "--output", type=Path, help="JSON file; other benchmarks' figures in it are kept")
    main = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = main.add_subparsers(dest="command", required=True)

    spec = commands.add_parser("speculation", parents=[common], help="ways of drafting on real prompts")
    spec.add_argument("--peer-dir", type=Path, help="folder of llama.cpp's programs, to measure beside ours")
    spec.add_argument("--draft", help="draft model for the modes draft and draft:K")
    spec.add_argument("--modes", type=names, default=("lookup",), help="such as lookup,draft:4,auto; none is added")
    spec.add_argument("--peer-modes", type=names, default=(), help="such as none,draft:4,ngram-simple")
    spec.add_argument("--max-tokens", type=int, default=128)
    spec.add_argument("--temperature", type=float, help="also sample, at this temperature")
    spec.add_argument("--seeds", type=numbers, default=())
    spec.add_argument("--num-sampled", type=int, default=20)
    spec.add_argument(
        "--records", type=Path, required=True, help="JSON Lines file that an interrupted run goes on with"
    )

    rules = commands.add_parser("acceptance", parents=[common], help="how often a draft's next token is accepted")
    rules.add_argument("--draft", required=True, help="draft model")
    rules.add_argument("--temperature", type=float, default=1.0)
    rules.add_argument("--top-p", type=float, default=1.0)
    rules.add_argument("--max-tokens", type=int, default=64)
    rules.add_argument("--seed", type=int, default=0, help="of the answers whose places are looked at")
    rules.add_argument("--num-seeds", type=int, default=16, help="of the noise at each place")

    played = commands.add_parser("replay", parents=[common], help="what a replay predicts, beside what is measured")
    played.add_argument("--draft", help="draft model for draft:K")
    played.add_argument("--modes", type=names, required=True, help="such as suffix:4,draft:3,suffix+recycle")
    played.add_argument("--max-tokens", type=int, default=128)
    return main


def chosen_prompts(options: argparse.Namespace) -> list[Prompt]:
    """Those of the files, or some of them."""
    prompts = read_all(options.prompts)
    if options.num_prompts is not None:
        prompts = [prompts[i] for i in spaced(len(prompts), options.num_prompts)]
    return prompts


def run_acceptance(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The section `acceptance` of the output and its table."""
    if not options.temperature > 0:
        raise ValueError("--temperature must be above 0: at 0 all rules accept the same")
    llm = LLM(options.model, draft="none", threads=options.threads, context_length=options.context_length)
    drafter = load_decoder(built_in_path(options.draft), kernels=llm.decoder.kernels)
    params = SamplingParams(
        max_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p, seed=options.seed
    )
    prompts = chosen_prompts(options)
    records = acceptance.measure(llm, drafter, prompts, params, num_seeds=options.num_seeds, raw=options.raw)
    result = acceptance.summary(records)
    settings = {name: getattr(options, name) for name in ("max_tokens", "temperature", "top_p", "seed", "num_seeds")}
    return {**about_run(options, None), "settings": settings, **result}, acceptance.report(result)


def run_replay(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The section `replay` of the output and its table."""
    question = replay.Question(
        modes=options.modes,
        draft=None if options.draft is None else str(built_in_path(options.draft)),
        prompts=chosen_prompts(options),
        max_tokens=options.max_tokens,
        raw=options.raw,
    )
    llm = LLM(options.model, draft="none", threads=options.threads, context_length=options.context_length)
    rows = replay.compare(llm, question)
    return {**about_run(options, None), "max_tokens": options.max_tokens, "modes": rows}, replay.report(rows)


def peer_of(options: argparse.Namespace) -> LlamaCpp | None:
    """llama.cpp on the same file, where --peer-dir is given."""
    if options.peer_dir is None:
        return None
    path = built_in_path(options.model)
    if path.suffix != ".gguf":
        raise ValueError("--peer-dir needs a .gguf model, llama.cpp reads nothing else")
    return LlamaCpp(options.peer_dir, path, options.threads)


def run_speculation(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The section `speculation` of the output and its tables."""
    peer = peer_of(options)
    if options.peer_modes and peer is None:
        raise ValueError("--peer-modes needs --peer-dir")
    prompts = chosen_prompts(options)
    plan = speculation.SpeculationPlan(options.temperature, options.seeds, options.num_sampled)
    modes = tuple(dict.fromkeys(("none", *options.modes)))
    peer_modes = tuple(dict.fromkeys(("none", *options.peer_modes))) if options.peer_modes else ()
    about = about_run(options, peer)
    settings = {
        **{key: about[key] for key in ("model", "draft", "num_threads", "peer_version")},
        **{key: about["machine"][key] for key in ("processor", "foredraft")},
        **{key: getattr(options, key) for key in ("max_tokens", "context_length", "raw")},
        "modes": modes,
        "peer_modes": peer_modes,
    }
    records = Records(options.records, settings)
    records.open()
    if speculation.missing(prompts, plan, records):
        with contextlib.ExitStack() as stack:
            answers = our_answers(options, modes)
            if peer is not None:
                for mode in peer_modes:
                    answers[f"llama.cpp {mode}"] = peer_answer(options, peer, mode, stack)
            speculation.run(answers, prompts, plan, records)
    result = summary.summary(speculation.planned_cells(prompts, plan, records))
    return {**about, "settings": settings, **result}, summary.report(result)


def our_answers(options: argparse.Namespace, modes: Sequence[str]) -> dict[str, speculation.Answer]:
    """One engine for each mode, all on the same model."""
    llm = LLM(options.model, draft="none", threads=options.threads, context_length=options.context_length)
    answers: dict[str, speculation.Answer] = {}
    for mode in modes:
        engine = Engine(llm, mode, draft=options.draft, raw=options.raw)
        answers[f"foredraft {mode}"] = functools.partial(ask, engine.answer, options.max_tokens)
    return answers


def peer_answer(
    options: argparse.Namespace, peer: LlamaCpp, mode: str, stack: contextlib.ExitStack
) -> speculation.Answer:
    """A llama-server for a mode, ended when the stack is left."""
    if options.raw:
        raise ValueError("--raw cannot be compared with llama-server's chat; leave out --peer-modes")
    draft = None if options.draft is None else built_in_path(options.draft)
    log = options.records.with_suffix(".llama-server.log")
    server = stack.enter_context(Server(peer, mode, draft=draft, context=options.context_length, log=log))
    return functools.partial(ask, functools.partial(at_once, server.chat), options.max_tokens)


def ask(
    answer: Any, max_tokens: int, text: str, temperature: float, seed: int | None
) -> Generator[int, None, dict[str, Any]]:
    """Bring an engine's own signature into the one that is measured."""
    steps: Generator[int, None, dict[str, Any]] = answer(
        text, max_tokens=max_tokens, temperature=temperature, seed=seed
    )
    return steps


def at_once(answer: Any, text: str, **options: Any) -> Generator[int, None, dict[str, Any]]:
    """A server's answer, which cannot be stopped half-way: one step."""
    result: dict[str, Any] = answer(text, **options)
    yield int(result["num_tokens"])
    return result


def about_run(options: argparse.Namespace, peer: LlamaCpp | None) -> dict[str, Any]:
    """What was measured, where and with what."""
    draft = getattr(options, "draft", None)
    return {
        "machine": describe_machine(),
        "model": describe_file(built_in_path(options.model)),
        "draft": None if draft is None else describe_file(built_in_path(draft)),
        "num_threads": options.threads,
        "peer_version": None if peer is None else peer.version(),
    }


def write_section(path: Path, name: str, section: dict[str, Any]) -> None:
    """Put a section into the JSON file, whole or not at all, and leave the others as they are."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[name] = section
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 outputs differ from plain decoding, 2 a wrong option or file."""
    options = parser().parse_args(arguments)
    try:
        runs = {"speculation": run_speculation, "acceptance": run_acceptance, "replay": run_replay}
        section, text = runs[options.command](options)
        if options.output is not None:
            write_section(options.output, options.command, section)
    except (UserError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text)
    return 1 if section.get("num_different") else 0


if __name__ == "__main__":
    sys.exit(main())
