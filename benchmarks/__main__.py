"""The command: `python -m benchmarks speculation ...`, or another one; see README.md in this folder."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.bench.command import KernelBench
from foredraft.bench.kernels import KernelPlan
from foredraft.bench.peer import LlamaCpp
from foredraft.bench.report import report as kernel_report
from foredraft.bench.tables import figure
from foredraft.errors import UserError
from foredraft.llm import LLM, SamplingParams
from foredraft.models.load import load_decoder
from foredraft.models.store import resolve
from foredraft.prompts import Prompt, read_prompts, spread

from . import acceptance, figures, interference, replay, results, serving, speculation, summary
from .modes import PLAIN, config_of
from .records import OURS, THEIRS, Records
from .server import Server

Ran = tuple[dict[str, Any], str]
"""The figures of a run, and what is printed of them."""


def numbers(text: str) -> tuple[int, ...]:
    """A comma-separated list of integers."""
    return tuple(int(part) for part in text.split(",") if part)


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list of words."""
    return tuple(part for part in text.split(",") if part)


def parser() -> argparse.ArgumentParser:
    """The options."""
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("-m", "--model", default="smollm2-135m", help="a model as foredraft takes it")
    machine.add_argument("-t", "--threads", type=int, default=2)
    machine.add_argument("-o", "--output", type=Path, help="JSON file for the result")
    common = argparse.ArgumentParser(add_help=False, parents=[machine])
    common.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON Lines files")
    common.add_argument("--num-prompts", type=int, help="only so many of them, of all families")
    common.add_argument("--raw", action="store_true", help="continue the text, apply no chat template")
    common.add_argument("--context-length", type=int, default=4096)
    main = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = main.add_subparsers(dest="command", required=True)
    add_speculation(commands.add_parser("speculation", parents=[common], help="ways of drafting on real prompts"))

    rules = commands.add_parser("acceptance", parents=[common], help="how often a draft's next token is accepted")
    rules.add_argument("--draft", required=True, help="draft model")
    rules.add_argument("--temperature", type=float, default=1.0)
    rules.add_argument("--top-p", type=float, default=1.0)
    rules.add_argument("--max-tokens", type=int, default=64)
    rules.add_argument("--seed", type=int, default=0, help="of the completions whose places are looked at")
    rules.add_argument("--num-seeds", type=int, default=16, help="of the noise at each place")

    played = commands.add_parser("replay", parents=[common], help="what a replay predicts, beside what is measured")
    played.add_argument("--draft", help="draft model for draft:K")
    played.add_argument("--modes", type=names, required=True, help="such as suffix:4,draft:3,suffix+recycle")
    played.add_argument("--max-tokens", type=int, default=128)

    passes = commands.add_parser("kernels", parents=[machine], help="what passes cost, as foredraft bench kernels")
    passes.add_argument("--peer-dir", type=Path, help="folder of llama.cpp's programs, to measure beside ours")
    passes.add_argument("--rounds", type=int, default=5)
    passes.add_argument("--contexts", type=numbers, default=(0,))

    pauses = commands.add_parser("interference", parents=[machine], help="a long prompt arrives while others stream")
    pauses.add_argument("--prompt-tokens", type=int, default=interference.PROMPT_TOKENS)

    served = commands.add_parser("serving", parents=[machine], help="servers under load, over HTTP")
    served.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON Lines files")
    served.add_argument("--clients", type=numbers, default=(1, 2, 4, 8, 16))
    served.add_argument("--per-client", type=int, default=1, help="requests of each client in a round")
    served.add_argument("--rounds", type=int, default=3)
    served.add_argument("--max-tokens", type=int, default=96)
    served.add_argument("--max-prompt-chars", type=int, default=10**9, help="leave longer prompts out")
    served.add_argument("--peer-dir", type=Path, help="folder of llama.cpp's programs, to measure beside ours")
    served.add_argument("--peer-modes", type=names, default=("none", "ngram-simple"))
    served.add_argument("--draft", help="draft model of ours")

    commands.add_parser("tables", help="write the figures of the documents anew, from the results in this folder")
    return main


def add_speculation(spec: argparse.ArgumentParser) -> None:
    """The options of `speculation`."""
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


def chosen_prompts(options: argparse.Namespace) -> list[Prompt]:
    """Those of the files, or some of them."""
    prompts = read_prompts(*options.prompts)
    return prompts if options.num_prompts is None else spread(prompts, options.num_prompts)


def loaded(options: argparse.Namespace) -> LLM:
    """The model, which all ways of drafting share."""
    return LLM(options.model, draft=PLAIN, threads=options.threads, context_length=options.context_length)


def run_acceptance(options: argparse.Namespace) -> Ran:
    """How often the next token is accepted."""
    if not options.temperature > 0:
        raise ValueError("--temperature must be above 0: at 0 all rules accept the same")
    llm = loaded(options)
    drafter = load_decoder(resolve(options.draft), kernels=llm.decoder.kernels)
    params = SamplingParams(
        max_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p, seed=options.seed
    )
    prompts = chosen_prompts(options)
    records = acceptance.measure(llm, drafter, prompts, params, num_seeds=options.num_seeds, raw=options.raw)
    result = acceptance.summary(records)
    return result, acceptance.report(result)


def run_replay(options: argparse.Namespace) -> Ran:
    """What a replay predicts, and what is measured."""
    question = replay.Question(
        modes=options.modes,
        draft=None if options.draft is None else str(resolve(options.draft)),
        prompts=chosen_prompts(options),
        max_tokens=options.max_tokens,
        raw=options.raw,
    )
    result = {"max_tokens": options.max_tokens, "modes": replay.compare(loaded(options), question)}
    return result, replay.report(result)


def run_kernels(options: argparse.Namespace) -> Ran:
    """What passes cost; the rounds that the medians are of are not kept."""
    bench = KernelBench(
        model=resolve(options.model),
        num_threads=options.threads,
        plan=KernelPlan(contexts=options.contexts, num_rounds=options.rounds),
        peer_folder=options.peer_dir,
        contexts_given=True,
    )
    result = bench.run(note=lambda line: print(f"kernels: {line}", file=sys.stderr))
    return {name: value for name, value in result.items() if name != "rounds"}, kernel_report(result)


def run_interference(options: argparse.Namespace) -> Ran:
    """What a long prompt does to streams."""
    llm = LLM(options.model, draft=PLAIN, threads=options.threads)
    found = interference.measure(llm, prompt_tokens=options.prompt_tokens)
    return found.to_json(), f"the longest pause is {figure(found.longest_to_budget_pass)} passes of the token budget"


def peer_of(options: argparse.Namespace) -> LlamaCpp | None:
    """llama.cpp on the same file, where --peer-dir is given."""
    if getattr(options, "peer_dir", None) is None:
        return None
    path = resolve(options.model)
    if path.suffix != ".gguf":
        raise ValueError("--peer-dir needs a .gguf model, llama.cpp reads nothing else")
    return LlamaCpp(options.peer_dir, path, options.threads)


def run_speculation(options: argparse.Namespace) -> Ran:
    """Every way of drafting on every prompt."""
    peer = peer_of(options)
    if options.peer_modes and peer is None:
        raise ValueError("--peer-modes needs --peer-dir")
    prompts = chosen_prompts(options)
    plan = speculation.SpeculationPlan(options.temperature, options.seeds, options.num_sampled)
    modes = tuple(dict.fromkeys((PLAIN, *options.modes)))
    peer_modes = tuple(dict.fromkeys((PLAIN, *options.peer_modes))) if options.peer_modes else ()
    about = results.about("speculation", (), options, peer)
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
            ways = our_ways(options, modes)
            if peer is not None:
                for mode in peer_modes:
                    ways[f"{THEIRS} {mode}"] = their_way(options, peer, mode, stack)
            speculation.run(ways, prompts, plan, records)
    result = summary.summary(speculation.planned_cells(prompts, plan, records))
    return {"settings": settings, **result}, summary.report(result)


def our_ways(options: argparse.Namespace, modes: Sequence[str]) -> dict[str, speculation.Complete]:
    """The model under each way of drafting."""
    llm = loaded(options)
    draft = None if options.draft is None else str(resolve(options.draft))
    return {
        f"{OURS} {mode}": speculation.ours(
            llm.with_drafts(config_of(mode, draft=draft)), max_tokens=options.max_tokens, raw=options.raw
        )
        for mode in modes
    }


def their_way(
    options: argparse.Namespace, peer: LlamaCpp, mode: str, stack: contextlib.ExitStack
) -> speculation.Complete:
    """A llama-server for a mode, ended when the stack is left."""
    if options.raw:
        raise ValueError("--raw cannot be compared with llama-server's chat; leave out --peer-modes")
    draft = None if options.draft is None else resolve(options.draft)
    log = options.records.with_suffix(".llama-server.log")
    server = stack.enter_context(Server(peer, mode, draft=draft, context=options.context_length, log=log))
    return speculation.theirs(server, max_tokens=options.max_tokens)


def run_serving(options: argparse.Namespace) -> Ran:
    """Servers under load."""
    plan = serving.Plan(
        model=resolve(options.model),
        prompts=[one.text for one in read_prompts(*options.prompts) if len(one.text) <= options.max_prompt_chars],
        clients=options.clients,
        rounds=options.rounds,
        per_client=options.per_client,
        max_tokens=options.max_tokens,
        threads=options.threads,
        peer=peer_of(options),
        peer_modes=options.peer_modes,
        options=() if options.draft is None else ("--draft", "auto", "--draft", str(resolve(options.draft))),
        log=Path("/dev/null") if options.output is None else options.output.with_suffix(".servers.log"),
    )
    found = serving.measure(plan)
    result = serving.summary(found)
    return result, serving.report(result)


RUNS: Mapping[str, Callable[[argparse.Namespace], Ran]] = {
    "speculation": run_speculation,
    "acceptance": run_acceptance,
    "replay": run_replay,
    "kernels": run_kernels,
    "interference": run_interference,
    "serving": run_serving,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 outputs differ from plain decoding, 2 a wrong option or file."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given)
    try:
        if options.command == "tables":
            print("\n".join(figures.update_all()) or "all figures are those of the results")
            return 0
        about = results.about(options.command, given, options, peer_of(options))
        found, text = RUNS[options.command](options)
        if options.output is not None:
            results.write(options.output, {**found, **about})
    except (UserError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text)
    return 1 if found.get("num_different") else 0


if __name__ == "__main__":
    sys.exit(main())
