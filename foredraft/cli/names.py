"""Options as users of other programs type them: what means the same is taken, all else is answered in one line.

Names are those of llama.cpp's programs, and some of vLLM, transformers and MLX. A name counts only where the command
has the option that it stands for, and never where it is the value of an option.
"""

from typing import Any

from typer.core import TyperCommand

from foredraft.errors import OptionError

SAME = {
    "-n": "--max-tokens",
    "--predict": "--max-tokens",
    "--n-predict": "--max-tokens",
    "--max-new-tokens": "--max-tokens",
    "-c": "--context-length",
    "--ctx-size": "--context-length",
    "--max-model-len": "--context-length",
    "-t": "--threads",
    "-s": "--seed",
    "--temp": "--temperature",
    "--typical": "--typical-p",
    "--dry-penalty-last-n": "--dry-range",
    "--dry-sequence-breaker": "--dry-sequence-breakers",
    "-j": "--json-schema",
    "-sys": "--system",
    "--system-prompt": "--system",
    "-f": "--prompt-file",
    "--file": "--prompt-file",
    "-hf": "--model",
    "-hfr": "--model",
    "--hf-repo": "--model",
    "-md": "--draft",
    "--model-draft": "--draft",
    "--draft-model": "--draft",
}
"""Other names of our options."""
PROMPT = ("-p", "--prompt")
"""What stands before the prompt elsewhere; here it stands alone."""

OURS = {
    "--repeat-penalty": ("--repetition-penalty", "which counts all of the prompt and the answer"),
    "-r": ("--stop", "which ends the answer"),
    "--reverse-prompt": ("--stop", "which ends the answer"),
    "-l": ("--logit-bias", "written as ID=BIAS"),
    "-jf": ("--json-schema", "with @ before the file"),
    "--json-schema-file": ("--json-schema", "with @ before the file"),
    "--grammar-file": ("--grammar", "with @ before the file"),
    "--draft-max": ("--num-draft-tokens", "which is a fixed number; without it as many as pay"),
    "--draft-n": ("--num-draft-tokens", "which is a fixed number; without it as many as pay"),
    "--draft-n-max": ("--num-draft-tokens", "which is a fixed number; without it as many as pay"),
    "--spec-type": ("--draft", "which takes lookup, suffix and others"),
    "--n-probs": ("--logprobs", "with --json"),
    "--do-sample": ("--temperature", "above 0"),
    "--num-return-sequences": ("--n", "with a --temperature above 0"),
    "-no-cnv": ("--raw", "which leaves the chat template out"),
    "--no-conversation": ("--raw", "which leaves the chat template out"),
    "--no-display-prompt": ("--echo", "and off unless it is given"),
    "--log-disable": ("--quiet", "which leaves the summary out"),
    "--no-escape": ("--escape", "and off unless it is given"),
}
"""Names of what is written otherwise here: our option, and what to know of it."""

_PROCESSOR = "foredraft computes on the processor"
_MEMORY = "weights are read from the file where they lie"
_FILE = "this is read from the model file"
_PLANNER = "the planner decides it"
_CACHE = "the cache of keys and values is always float32"
WITHOUT = {
    **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers", "-ngld", "--gpu-layers-draft"), _PROCESSOR),
    **dict.fromkeys(("-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-dev"), _PROCESSOR),
    **dict.fromkeys(("--device", "-fa", "--flash-attn", "--tensor-parallel-size"), _PROCESSOR),
    **dict.fromkeys(("--gpu-memory-utilization", "--numa"), _PROCESSOR),
    **dict.fromkeys(("--mlock", "--no-mmap", "--mmap"), _MEMORY),
    **dict.fromkeys(("-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "--kv-cache-dtype"), _CACHE),
    **dict.fromkeys(("-b", "--batch-size", "-ub", "--ubatch-size"), "sizes of passes are chosen for the processor"),
    **dict.fromkeys(("-tb", "--threads-batch"), "--threads is for all passes"),
    **dict.fromkeys(("--draft-min", "--draft-n-min", "--draft-p-min", "--draft-p-split"), _PLANNER),
    **dict.fromkeys(("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"), _FILE),
    **dict.fromkeys(("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--dtype"), _FILE),
    "--jinja": "templates are always read as Jinja",
    **dict.fromkeys(("--lora", "--lora-scaled"), "adapters cannot be applied; merge it into the model first"),
    **dict.fromkeys(("--mmproj", "--image", "--audio"), "foredraft reads text only"),
    **dict.fromkeys(("-cnv", "--conversation"), "foredraft chat is a conversation"),
    "--repeat-last-n": "penalties count all of the prompt and the answer",
    **dict.fromkeys(("--mirostat", "--mirostat-lr", "--mirostat-ent"), "there is no such sampling here"),
    **dict.fromkeys(("--xtc-probability", "--xtc-threshold", "--top-nsigma"), "there is no such sampling here"),
    **dict.fromkeys(("--dynatemp-range", "--dynatemp-exp", "--top-n-sigma"), "there is no such sampling here"),
    **dict.fromkeys(("--samplers", "--sampling-seq", "--sampler-seq"), "the order of the filters is fixed"),
    "--trust-remote-code": "no code of a model is ever run",
}
"""Names of what there is nothing to choose about, and why."""


class PeerNames(TyperCommand):
    """A command that understands other programs' names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Raises OptionError for a name that is written otherwise here."""
        return super().parse_args(ctx, in_our_words(self, args))


def in_our_words(command: Any, arguments: list[str]) -> list[str]:
    """The arguments with our names of options, and the prompt behind them.

    Raises OptionError for a name that is written otherwise here, or means nothing.
    """
    options = {name: parameter for parameter in command.params for name in parameter.opts if name.startswith("-")}
    takes_prompt = any(parameter.opts == ["prompt"] for parameter in command.params)
    translated: list[str] = []
    prompts: list[str] = []
    position = 0
    while position < len(arguments) and arguments[position] != "--":
        name, equals, value = arguments[position].partition("=")
        if name in options or not name.startswith("-"):
            ours = name
        elif takes_prompt and name in PROMPT and (equals or position + 1 < len(arguments)):
            prompts.append(value if equals else arguments[position + 1])
            position += 1 if equals else 2
            continue
        else:
            ours = _our_name(name, options)
        translated.append(ours + equals + value)
        position += 1
        if not equals and ours in options and not options[ours].is_flag and position < len(arguments):
            translated.append(arguments[position])
            position += 1
    rest = arguments[position:] or (["--"] if prompts else [])
    return [*translated, *rest, *prompts]


def _our_name(name: str, options: dict[str, Any]) -> str:
    """Our name of an option; names that nobody is known to use stay as they are."""
    ours = SAME.get(name)
    if ours in options:
        return ours
    ours, remark = OURS.get(name, (None, ""))
    if ours in options:
        raise OptionError(f"{name} is {ours} here, {remark}")
    if name in WITHOUT:
        raise OptionError(f"{name} has no counterpart: {WITHOUT[name]}; leave it out")
    return name
