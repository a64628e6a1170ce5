/** An answer as its tokens, each marked by who drafted it, with a legend. */

import { make, withVisibleControls } from "./dom.js";
import { counted } from "./words.js";

const NUM_MARKS = 8;

/** Which mark (colour and underline) each drafter has, the same in all answers of a page. */
const marks = new Map();

function markOf(source) {
  if (!marks.has(source)) marks.set(source, marks.size % NUM_MARKS);
  return `drafter mark-${marks.get(source)}`;
}

/** Give these drafters their marks in this order, whoever comes first in an answer. */
export function knowDrafters(names) {
  for (const name of names) markOf(name);
}

/** Shows tokens as they come. Those that are shown already are left alone. */
export class DraftsView {
  constructor() {
    this.legend = make("p", "legend");
    this.text = make("div", "tokens");
    this.root = make("div", "drafts", this.legend, this.text);
    this.text.dir = "auto";
    this.numShown = 0;
    this.seen = new Map();
    this.numRejected = 0;
  }

  /** @param {Array<[string, string|null, number]>} tokens see answer.js */
  show(tokens) {
    if (tokens.length === this.numShown) return;
    const added = document.createDocumentFragment();
    for (const token of tokens.slice(this.numShown)) this.addToken(added, token);
    this.text.append(added);
    this.numShown = tokens.length;
    this.showLegend();
  }

  addToken(parent, [text, source, rejected]) {
    if (rejected) parent.append(rejection(rejected));
    this.numRejected += rejected;
    if (!text) return; // it ended the answer, or waits for the rest of a character
    this.seen.set(source, (this.seen.get(source) ?? 0) + 1);
    const token = make("span", source === null ? "token own" : `token ${markOf(source)}`, withVisibleControls(text));
    token.title = source === null ? "said by the model itself" : `drafted by ${source}, accepted`;
    parent.append(token);
  }

  showLegend() {
    const drafters = [...this.seen.keys()].filter(source => source !== null);
    const entries = drafters.map(source => entry(markOf(source), source, this.seen.get(source)));
    if (this.seen.has(null)) entries.push(entry("own", "the model itself", this.seen.get(null)));
    if (this.numRejected) {
      const sign = make("span", "rejected", "\u00d7");
      sign.setAttribute("aria-hidden", "true");
      entries.push(make("span", "entry", sign, `${this.numRejected} rejected`));
    }
    this.legend.replaceChildren(...entries);
  }
}

function entry(className, name, number) {
  return make("span", "entry", make("span", `token ${className}`, name), ` ${number}`);
}

function rejection(number) {
  const sign = make("span", "rejected", "\u00d7");
  sign.title = `${counted(number, "drafted token")} rejected here`;
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", sign.title);
  return sign;
}
