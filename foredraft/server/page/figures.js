/** How fast an answer came, and why: a line, which opens to the rest. */

import { acceptanceRate, numTokens, tokensPerSecond, writingMs } from "./answer.js";
import { make } from "./dom.js";
import { counted, decimal, percent, seconds, times } from "./words.js";

/** The line while an answer comes. */
export function liveLine(answer) {
  if (answer.state === "waiting") return "Comes next";
  if (!answer.numTokens) return "Reading the question\u2026";
  return joined(speed(answer), counted(answer.numTokens, "token"), accepted(answer));
}

/** The line when it is there. */
function finalLine(answer) {
  const speedup = answer.report?.speculation?.speedup;
  return joined(
    speed(answer),
    speedup && drafted(answer) ? `${times(speedup)} plain decoding` : null,
    answer.report ? null : counted(answer.numTokens, "token"),
    accepted(answer),
    answer.firstTokenMs === null ? null : `first token ${seconds(answer.firstTokenMs)}`,
  );
}

/** The line of one side of a comparison. */
export function comparedLine(answer) {
  return joined(seconds(writingMs(answer)), speed(answer), counted(numTokens(answer), "token"));
}

function joined(...parts) {
  return parts.filter(Boolean).join(" \u00b7 ");
}

function speed(answer) {
  const found = tokensPerSecond(answer);
  return found && `${decimal(found)} tokens/s`;
}

function accepted(answer) {
  const rate = acceptanceRate(answer);
  return rate === null ? null : `${percent(rate)} accepted`;
}

function drafted(answer) {
  return (answer.report?.speculation?.num_draft_tokens ?? answer.numDrafted) > 0;
}

/** The figures of a complete answer. line: instead of the usual one. */
export function figures(answer, line = finalLine(answer)) {
  if (!answer.report) return make("p", "figures", line);
  return make("details", "figures", make("summary", "", line), make("div", "figures-body", facts(answer), byDrafter(answer)));
}

function facts(answer) {
  const { usage, timings, speculation } = answer.report, list = make("dl");
  const add = (term, text) => text && list.append(make("dt", "", term), make("dd", "", text));
  const cached = usage.prompt_tokens_details?.cached_tokens || 0;
  add("Drafting", speculation?.reason);
  add("Rounds", speculation?.num_rounds && rounds(speculation));
  add("Answer", `${counted(usage.completion_tokens, "token")}${timings ? ` in ${seconds(timings.predicted_ms)}` : ""}`);
  const read = timings ? `, read in ${seconds(timings.prompt_ms)}` : "";
  add("Prompt", `${counted(usage.prompt_tokens, "token")}, ${cached} of them cached${read}`);
  add("Text", speculation && exactness(speculation));
  return list;
}

function exactness({ lossless }) {
  return lossless === false ? "may differ from the model's own (lossy acceptance)" : "the model's own, drafts or not";
}

function rounds(speculation) {
  const mean = speculation.mean_acceptance_length;
  return `${speculation.num_rounds}${mean ? `, ${mean.toFixed(2)} tokens each` : ""}`;
}

function byDrafter(answer) {
  const methods = Object.entries(answer.report.speculation?.by_method ?? {});
  if (!methods.length) return null;
  const line = (tag, cells) => make("tr", "", cells.map(cell => make(tag, "", String(cell))));
  const rows = methods.map(([name, { num_draft_tokens: drafts, num_accepted_tokens: kept }]) =>
    line("td", [name, drafts, kept, drafts ? percent(kept / drafts) : "\u2013"]));
  const head = make("thead", "", line("th", ["drafter", "drafted", "accepted", "rate"]));
  return make("table", "", head, make("tbody", "", rows));
}

/** What a comparison comes to, in a sentence. */
export function verdict(fast, plain) {
  const ratio = tokensPerSecond(fast) / tokensPerSecond(plain);
  const speedWords = Number.isFinite(ratio) && ratio > 0 ? `With drafts it was written ${times(ratio)} as fast.` : "";
  return { identical: fast.text === plain.text && fast.reasoning === plain.reasoning, words: [texts(fast, plain), speedWords] };
}

function texts(fast, plain) {
  const [a, b] = [fast.reasoning + fast.text, plain.reasoning + plain.text];
  if (a === b) return "The two texts are identical.";
  let place = 0;
  while (a[place] === b[place] && place < a.length) place++;
  return `The two texts differ from character ${place + 1} on.`;
}
