"""Options that several commands share, and what becomes of them.

Only what is cheap to import is imported here at the top, so that `foredraft --help` is quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.cli.console import PullDisplay
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foredraft.config import DraftConfig
    from foredraft.llm import LLM
    from foredraft.trace import Sink

MODEL_HELP = (
    "A .gguf file, a safetensors folder, a hub id (org/name or org/name:Q4_K_M), or the built-in name smollm2-135m."
)

Model = Annotated[str, typer.Option("-m", "--model", metavar="MODEL", help=MODEL_HELP)]
Prompt = Annotated[str | None, typer.Argument(metavar="PROMPT", help="The text to answer; - or none: standard input.")]
PromptFile = Annotated[
    Path | None, typer.Option(parser=user_path, metavar="FILE", help="Read the prompt from this file.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it stands, without the chat template.")]
JsonForTables = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", parser=user_path, metavar="FILE", help="Also write the JSON object to this file."),
]
Special = Annotated[
    bool, typer.Option("--special", help="Read special tokens that stand in the prompt as such (with --raw).")
]
ChatTemplate = Annotated[
    Path | None, typer.Option(parser=user_path, metavar="FILE", help="A chat template in place of the model's own.")
]
ChatTemplateKwargs = Annotated[
    str | None,
    typer.Option(metavar="JSON", help='Variables of the chat template, such as {"enable_thinking": false}.'),
]
GenerationConfig = Annotated[
    str | None,
    typer.Option(
        metavar="auto|none|FOLDER",
        help="auto: sample as the makers of the model advise, where no option says otherwise; FOLDER: as its "
        "generation_config.json does (default: none).",
    ),
]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")]
Draft = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DRAFTER",
        help="What drafts: a model (as for --model), lookup, suffix, recycle, prediction, skip, jacobi, none, "
        "a package's name, or auto (the default). Repeatable.",
        show_default=False,
    ),
]
NumDraftTokens = Annotated[
    int | None,
    typer.Option(metavar="N", help="Draft so many tokens in every round, 1 to 64 (default: as many as pay)."),
]
DraftVocab = Annotated[
    int | None,
    typer.Option(metavar="N", help="Frequent tokens a draft model chooses from; 0: all (default: by the vocabulary)."),
]
DraftBranches = Annotated[
    int | None,
    typer.Option(metavar="N", help="Most tokens a draft model proposes after each, 1 to 16 (default: 1, a chain)."),
]
DraftMemory = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Keep earlier texts here for suffix; process: in memory (the default); none: not at all."
    ),
]
Acceptance = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Which drafts are kept: coupled (default), rejection, block, tree, traversal; lossy: typical, threshold.",
    ),
]
SpeculativeConfig = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="Instead of --draft and --num-draft-tokens, as vLLM has it: method, model, num_speculative_tokens.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Most tokens to produce (default: 128; chat: 1024, inspect: 64); -1: as many as fit.",
    ),
]
NumAnswers = Annotated[
    int | None, typer.Option("--n", metavar="N", help="Number of answers (default: 1).", show_default=False)
]
BestOf = Annotated[
    int | None, typer.Option(metavar="N", help="Produce N answers and keep the --n most likely.", show_default=False)
]
Logprobs = Annotated[
    int | None, typer.Option(metavar="N", help="With --json: log-probabilities of each token and the N likeliest.")
]
PromptLogprobs = Annotated[int | None, typer.Option(metavar="N", help="With --json: the same of the prompt.")]
Echo = Annotated[bool, typer.Option("--echo", help="Begin the text with the prompt (with --raw).")]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Threads to compute with (default: all processors).")]
ContextLength = Annotated[
    int | None,
    typer.Option(metavar="N", help="Most tokens of prompt and answer (default: what the model was made for)."),
]
KvMemory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory for keys and values, such as 512M or 2G (default: by the free memory)."),
]
MaxRunning = Annotated[
    int | None, typer.Option(metavar="N", help="Most sequences that are worked on at a time (default: 8).")
]
MaxBatchedTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Most prompt tokens of a forward pass (default: 256).")
]
Trace = Annotated[
    Path | None,
    typer.Option(parser=user_path, metavar="FILE", help="Write what every round did, as JSON Lines, to this file."),
]
Profile = Annotated[
    Path | None,
    typer.Option(parser=user_path, metavar="FILE", help="Start from what `foredraft tune` found out about this model."),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="A second line of figures, on how drafting went.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary on stderr.")]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What the engine is made of, as given on the command line; None: left to the engine."""

    model: str
    draft: list[str] | None
    num_draft_tokens: int | None = None
    draft_vocab: int | None = None
    draft_branches: int | None = None
    draft_memory: str | None = None
    acceptance: str | None = None
    speculative_config: str | None = None
    threads: int | None = None
    context_length: int | None = None
    kv_memory: str | None = None
    max_running: int | None = None
    max_batched_tokens: int | None = None
    trace: "Path | Sink | None" = None
    profile: Path | None = None

    def __post_init__(self) -> None:
        """Raise OptionError before anything is fetched or loaded."""
        at_least_1("--num-draft-tokens", self.num_draft_tokens, hint="; --draft none switches drafting off")
        self.drafting(self.draft or ())
        if self.limits:
            from foredraft.loaded import EngineOptions as Limits

            Limits(**self.limits)
        if self.context_length is not None and self.context_length < 2:
            raise OptionError(f"--context-length must be at least 2, prompt and answer, got {self.context_length}")

    @property
    def limits(self) -> dict[str, Any]:
        """What is given of memory, threads and batches, as keywords of `LLM`."""
        names = ("threads", "kv_memory", "max_running", "max_batched_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def drafting(self, drafters: "Sequence[str]") -> "DraftConfig":
        """How is to be drafted. drafters: those asked for, models as they were resolved; empty: auto.

        Raises OptionError for what is out of range or has no meaning.
        """
        from foredraft.config import DraftConfig

        given: dict[str, Any] = {
            "drafters": tuple(drafters) or None,
            "num_draft_tokens": self.num_draft_tokens,
            "vocab_size": self.draft_vocab,
            "num_branches": self.draft_branches,
            "memory": None if self.draft_memory is None else str(user_path(self.draft_memory)),
            "acceptance": self.acceptance,
        }
        config = DraftConfig(**{name: value for name, value in given.items() if value is not None})
        if self.speculative_config is None:
            return config
        if self.draft or self.num_draft_tokens is not None:
            raise OptionError("--speculative-config cannot be combined with --draft or --num-draft-tokens")
        from foredraft.speculative_config import parse_speculative_config

        return parse_speculative_config(self.speculative_config, config)


def at_least_1(option: str, value: int | None, *, hint: str = "") -> None:
    """Raise OptionError when the value of an option is given and below 1."""
    if value is not None and value < 1:
        raise OptionError(f"{option} must be at least 1, got {value}{hint}")


def refuse_others(context: typer.Context, allowed: set[str], *, why: str) -> None:
    """Raise OptionError where a parameter was given that means nothing beside another one."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in allowed and source is not None and source.name == "COMMANDLINE":
            name = next((name for name in parameter.opts if name.startswith("--")), "PROMPT")
            raise OptionError(f"{why}, for which {name} means nothing; leave one of them out")


def load(options: EngineOptions, *, quiet: bool) -> "LLM":
    """Fetch the models where needed, with progress on stderr unless `quiet`, and load them.

    Raises:
        UserError: a model cannot be had or used, or the options contradict each other.
    """
    from foredraft.drafters import names_a_model
    from foredraft.models import store

    with PullDisplay(shown=not quiet) as display:

        def resolve(name: str) -> str:
            return str(store.resolve(name, progress=display.for_model(name)))

        model = resolve(options.model)
        drafts = [resolve(name) if names_a_model(name) else name for name in options.draft or ()]
    from foredraft.llm import LLM

    return LLM(
        model,
        draft=options.drafting(drafts),
        context_length=options.context_length,
        trace=options.trace,
        profile=options.profile,
        **options.limits,
    )
