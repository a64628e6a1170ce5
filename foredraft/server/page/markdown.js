/** Markdown as DOM nodes. See blocks.js and inline.js for the rules; all text ends in text nodes. */

import { blocksOf, linesOf } from "./blocks.js";
import { copyFrom, make, makeButton, withVisibleControls } from "./dom.js";
import { inlineNodes } from "./inline.js";

const MOST_DEPTH = 12;
const MOST_CELLS = 20_000;
const TASK = /^\[([ xX])\] /;

/** The text as a list of nodes. */
export function markdownNodes(text) {
  return nodesOf(linesOf(text), 0);
}

/**
 * Shows a text that grows. Blocks that have not changed keep their nodes: an answer is rendered in time that depends
 * on its last block alone, and what a reader has selected above it stays selected.
 */
export class GrowingMarkdown {
  /** @param {HTMLElement} root where the blocks go; all its children are theirs */
  constructor(root) {
    this.root = root;
    this.sources = [];
  }

  show(text) {
    const lines = linesOf(text), blocks = blocksOf(lines);
    const sources = blocks.map(block => lines.slice(block.first, block.last).join("\n"));
    let kept = 0;
    while (kept < sources.length && sources[kept] === this.sources[kept]) kept++;
    while (this.root.childNodes.length > kept) this.root.lastChild.remove();
    for (const block of blocks.slice(kept)) this.root.append(render(block, 0));
    this.sources = sources;
  }
}

function nodesOf(lines, depth) {
  // Deeper than anyone writes, quotes and lists would only cost the browser its stack.
  if (depth > MOST_DEPTH) return [make("p", "", lines.join("\n"))];
  return blocksOf(lines).map(block => render(block, depth));
}

function render(block, depth) {
  const element = RENDERERS[block.kind](block, depth);
  if (block.kind !== "code") element.dir = "auto";
  return element;
}

const RENDERERS = {
  paragraph: block => make("p", "", inlineNodes(block.lines.join("\n"))),
  // The page has headings of its own above those of an answer.
  heading: block => make(`h${Math.min(6, block.level + 2)}`, `level-${block.level}`, inlineNodes(block.lines.join("\n"))),
  rule: () => make("hr"),
  quote: (block, depth) => make("blockquote", "", nodesOf(block.lines, depth + 1)),
  code: codeBlock,
  list,
  table,
};

/** Code with its language and a button that copies it. */
export function codeBlock({ lines, language }) {
  const text = lines.join("\n");
  const copy = makeButton("Copy", button => copyFrom(button, text), { name: "Copy code" });
  const bar = make("div", "code-bar", make("span", "language", language || "text"), copy);
  const code = make("pre", "", make("code", "", withVisibleControls(text)));
  code.tabIndex = 0; // wide code scrolls, by keys too
  const block = make("div", "code-block", bar, code);
  block.dir = "ltr";
  return block;
}

function list({ ordered, start, items, loose }, depth) {
  const element = make(ordered ? "ol" : "ul");
  if (ordered && start !== 1) element.start = start;
  for (const lines of items) element.append(item(lines, loose, depth));
  return element;
}

function item(lines, loose, depth) {
  const task = TASK.exec(lines[0]);
  const rest = task ? [(task[1] === " " ? "\u2610 " : "\u2611 ") + lines[0].slice(4), ...lines.slice(1)] : lines;
  const nodes = nodesOf(rest, depth + 1);
  const element = make("li", task ? "task" : "");
  for (const node of nodes) {
    for (const child of !loose && node.tagName === "P" ? [...node.childNodes] : [node]) element.append(child);
  }
  return element;
}

function table({ head, rows, aligned }) {
  const element = make("table"), most = Math.floor(MOST_CELLS / head.length) || 1;
  element.append(make("thead", "", row("th", head, aligned)));
  const body = rows.slice(0, most).map(cells => row("td", head.map((_, i) => cells[i] ?? ""), aligned));
  if (rows.length > most) body.push(make("tr", "", make("td", "", `${rows.length - most} more rows`)));
  element.append(make("tbody", "", body));
  const scroller = make("div", "table-scroll", element);
  scroller.tabIndex = 0;
  return scroller;
}

function row(tag, cells, aligned) {
  return make("tr", "", cells.map((cell, i) => make(tag, aligned[i], inlineNodes(cell, { breaks: true }))));
}
