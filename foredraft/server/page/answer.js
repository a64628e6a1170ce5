/** What an answer is: text, who drafted it, and numbers. No DOM here; all of it can be kept as JSON. */

/**
 * @typedef {object} Answer
 * @property {"waiting"|"running"|"done"|"stopped"|"failed"} state
 * @property {string} text
 * @property {string} reasoning
 * @property {Array<[string, string|null, number]>} tokens text, drafter (null: the target), and how many drafted
 *   tokens were rejected in front of it; empty where the server told nothing
 * @property {number} numTokens
 * @property {number} numDrafted
 * @property {number} numAccepted
 * @property {number|null} firstTokenMs since the question was sent
 * @property {number|null} elapsedMs since then, up to the last chunk
 * @property {string} finish
 * @property {string} error
 * @property {object|null} report usage, timings and speculation, which come at the end
 */

/** An answer of which nothing has come. @returns {Answer} */
export function newAnswer() {
  return {
    state: "running", text: "", reasoning: "", tokens: [], numTokens: 0, numDrafted: 0, numAccepted: 0,
    firstTokenMs: null, elapsedMs: null, finish: "", error: "", report: null,
  };
}

/**
 * Add a chunk of the stream. elapsedMs: since the question was sent.
 * @param {Answer} answer
 */
export function addChunk(answer, chunk, elapsedMs) {
  if (chunk.usage) answer.report = { usage: chunk.usage, timings: chunk.timings, speculation: chunk.speculation };
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const { content, reasoning_content: reasoning } = choice.delta ?? {};
  answer.text += content ?? "";
  answer.reasoning += reasoning ?? "";
  answer.finish = choice.finish_reason ?? answer.finish;
  if (!content && !reasoning && !choice.drafts) return;
  if (choice.drafts) addDrafts(answer, choice.drafts);
  else answer.numTokens += 1;
  answer.firstTokenMs ??= elapsedMs;
  answer.elapsedMs = elapsedMs;
}

function addDrafts(answer, drafts) {
  const rejected = drafts.num_draft_tokens - drafts.num_accepted_tokens;
  const tokens = drafts.tokens.map(({ text, source }) => [text, source ?? null, 0]);
  // A round ends with a token of the target's own, which stands where the draft went wrong. A chunk is mostly one
  // round; of several, all that was rejected is shown at the last.
  const own = tokens.findLast(token => token[1] === null) ?? tokens.at(-1);
  if (own && rejected > 0) own[2] = rejected;
  answer.tokens.push(...tokens);
  answer.numTokens += tokens.length;
  answer.numDrafted += drafts.num_draft_tokens;
  answer.numAccepted += drafts.num_accepted_tokens;
}

/** Share of the drafted tokens that were accepted, or null where nothing was drafted. @param {Answer} answer */
export function acceptanceRate(answer) {
  const { num_draft_tokens: drafted, num_accepted_tokens: accepted } = answer.report?.speculation ?? {};
  if (drafted) return accepted / drafted;
  return answer.numDrafted ? answer.numAccepted / answer.numDrafted : null;
}

/** Tokens per second: the server's own number when it is there, before that what was seen. @param {Answer} answer */
export function tokensPerSecond(answer) {
  const known = answer.report?.timings?.predicted_per_second;
  if (known) return known;
  const elapsed = answer.elapsedMs - answer.firstTokenMs;
  // The first chunk came at the start of the time that is measured.
  return answer.numTokens > 1 && elapsed > 0 ? ((answer.numTokens - 1) * 1000) / elapsed : null;
}

/** Milliseconds it took to write the answer, the reading of the prompt left out. @param {Answer} answer */
export function writingMs(answer) {
  return answer.report?.timings?.predicted_ms ?? (answer.elapsedMs ?? 0) - (answer.firstTokenMs ?? 0);
}

/** Number of tokens, by the server's count where it has come. @param {Answer} answer */
export function numTokens(answer) {
  return answer.report?.usage?.completion_tokens ?? answer.numTokens;
}
