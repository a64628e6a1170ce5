/** The conversation: asking, stopping, asking again. What is on the page follows from `turns`. */

import { addChunk, newAnswer } from "./answer.js";
import { ApiError, streamChat } from "./api.js";
import { at } from "./dom.js";
import { atBottom, scrollToBottom } from "./scroll.js";
import { saveConversation } from "./storage.js";
import { TurnView } from "./turn_view.js";

const SAVE_EVERY_MS = 1000;
/** A frame may take this share of the time: slow machines show less often, and the answer comes as fast as ever. */
const SHARE_OF_TIME = 0.25;

export class Chat {
  /**
   * @param {import("./turn_view.js").Turn[]} turns
   * @param {{settings: object, key: () => string, model: () => Promise<string>, changed: (event: string) => void,
   *   edit: (question: string) => void, enterKey: () => void}} surroundings
   */
  constructor(turns, surroundings) {
    this.turns = turns;
    this.surroundings = surroundings;
    this.controller = null;
    this.frame = 0;
    this.nextPaint = 0;
    this.views = [];
  }

  get busy() {
    return this.controller !== null;
  }

  /** Ask a question. compare: answer it twice, with drafts and without. */
  ask(question, { compare = false } = {}) {
    if (this.busy) return;
    this.turns.push({ question, answer: newAnswer(), plain: compare ? { ...newAnswer(), state: "waiting" } : null });
    this.addView();
    this.run();
    scrollToBottom();
  }

  /** Answer the last question again. */
  retry({ compare } = {}) {
    if (this.busy || !this.turns.length) return;
    const turn = this.turns.at(-1), twice = compare ?? turn.plain !== null;
    this.removeLast();
    this.ask(turn.question, { compare: twice });
  }

  /** Take the last question and its answer away. */
  removeLast() {
    this.turns.pop();
    this.views.pop().root.remove();
    saveConversation(this.turns);
  }

  /** End the answer that is coming; what there is of it stays. */
  stop() {
    this.controller?.abort();
  }

  /** Begin anew. */
  clear() {
    this.stop();
    this.controller = null;
    this.turns = [];
    saveConversation(this.turns);
    this.showAll();
  }

  async run() {
    const turn = this.turns.at(-1), { settings, changed } = this.surroundings;
    const controller = this.controller = new AbortController();
    // Both answers of a comparison are drawn with the same seed, or they could not be the same.
    const seed = settings.seed ?? (turn.plain ? Math.floor(Math.random() * 2 ** 31) : null);
    this.paint();
    changed("started");
    await this.answer(turn.answer, this.request(turn, { seed, draft: turn.plain || settings.speculation }), controller);
    if (turn.plain) {
      if (turn.answer.state === "done") {
        await this.answer(turn.plain, this.request(turn, { seed, draft: false }), controller);
      } else turn.plain.state = "stopped";
    }
    // A conversation that was cleared meanwhile has nothing of this any more.
    if (this.controller === controller) this.controller = null;
    if (this.turns.at(-1) !== turn) return;
    saveConversation(this.turns);
    this.paint();
    changed([turn.answer, turn.plain].find(answer => answer && answer.state !== "done")?.state ?? "done");
  }

  request(turn, { seed, draft }) {
    const { system, temperature, topP, maxTokens } = this.surroundings.settings;
    const body = {
      messages: this.messages(turn, system), temperature, stream: true, stream_options: { include_usage: true },
      include_drafts: true,
    };
    if (topP !== null) body.top_p = topP;
    if (maxTokens !== null) body.max_tokens = maxTokens;
    if (seed !== null) body.seed = seed;
    if (!draft) body.draft = "none";
    return body;
  }

  /** What was said up to this turn. Questions without an answer are left out: templates want the two to alternate. */
  messages(turn, system) {
    const messages = system.trim() ? [{ role: "system", content: system }] : [];
    for (const { question, answer } of this.turns) {
      if (answer === turn.answer || !answer.text) continue;
      messages.push({ role: "user", content: question }, { role: "assistant", content: answer.text });
    }
    messages.push({ role: "user", content: turn.question });
    return messages;
  }

  /** Let an answer come in. Whatever goes wrong ends up in it; what was said until then stays. */
  async answer(answer, body, { signal }) {
    let saved = performance.now();
    answer.state = "running";
    try {
      body.model = await this.surroundings.model();
      const sent = performance.now();
      signal.throwIfAborted();
      for await (const chunk of streamChat(body, { key: this.surroundings.key(), signal })) {
        const now = performance.now();
        addChunk(answer, chunk, now - sent);
        this.schedulePaint();
        if (now - saved > SAVE_EVERY_MS) {
          saveConversation(this.turns);
          saved = now;
        }
      }
      answer.state = "done";
    } catch (error) {
      Object.assign(answer, outcomeOf(error));
    }
    this.paint();
  }

  schedulePaint() {
    if (this.frame) return;
    const wait = Math.max(0, this.nextPaint - performance.now());
    this.frame = setTimeout(() => requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    }), wait);
  }

  /** Show the last turn as it is; the others do not change while it comes in. */
  paint() {
    const start = performance.now(), follow = atBottom();
    this.show(this.views.length - 1);
    if (follow) scrollToBottom();
    this.nextPaint = performance.now() + (performance.now() - start) * (1 / SHARE_OF_TIME - 1);
  }

  /** Show all turns, as after a change of what is shown of them. */
  showAll() {
    if (this.views.length !== this.turns.length || !this.turns.length) {
      at("turns").replaceChildren();
      this.views = [];
      for (const _ of this.turns) this.addView();
    }
    this.views.forEach((_, place) => this.show(place));
    this.surroundings.changed("shown");
  }

  addView() {
    const { edit, enterKey } = this.surroundings, turn = this.turns[this.views.length];
    const view = new TurnView(turn, {
      retry: () => this.retry(),
      compare: () => this.retry({ compare: true }),
      edit: () => edit(turn.question),
      enterKey,
    });
    this.views.push(view);
    at("turns").append(view.root);
    // The one before is no longer the last.
    if (this.views.length > 1) this.show(this.views.length - 2);
  }

  show(place) {
    const { showDrafts } = this.surroundings.settings;
    this.views[place]?.show({ showDrafts, isLast: place === this.turns.length - 1, busy: this.busy });
  }
}

function outcomeOf(error) {
  if (error.name === "AbortError") return { state: "stopped" };
  if (error instanceof ApiError) return { state: "failed", error: error.message, status: error.status };
  console.error(error);
  return { state: "failed", error: `This page could not read the answer: ${error.message}`, status: 0 };
}
