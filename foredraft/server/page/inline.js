/**
 * Markdown within a line: emphasis, code, links. The rules are CommonMark's, as far as answers use them.
 *
 * Every step is linear in the length of the text, whatever it holds: a model may say a megabyte of asterisks.
 */

import { make, withVisibleControls } from "./dom.js";

const PROTOCOLS = new Set(["http:", "https:", "mailto:"]);
const BARE_URL = /https?:\/\/[^\s<>"`*|\\^{}]{1,2000}/y;
const ANGLE_URL = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const ENTITY = /&(amp|lt|gt|quot|apos|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const SPECIAL = /[\\`*_~[!<&\nh]/g;
const MOST_URL = 2000;
const MOST_PARENTHESES = 8;
const MOST_NESTED = 16;

/** The text as nodes. breaks: whether "<br>" ends a line, as it does in cells of tables, which have no other way. */
export function inlineNodes(text, { breaks = false } = {}) {
  return scan(text, { breaks, inLink: false });
}

function scan(text, options) {
  const context = { text, options, pieces: [], codes: codeSpans(text), links: null, position: 0 };
  context.links = bracketPairs(text, context.codes);
  let plain = 0;
  while (context.position < text.length) {
    SPECIAL.lastIndex = context.position;
    const found = SPECIAL.exec(text);
    if (!found) break;
    const start = found.index;
    const piece = special(context, start);
    if (!piece) {
      context.position = start + 1;
      continue;
    }
    if (start > plain) context.pieces.push({ node: text.slice(plain, start) });
    context.pieces.push(piece);
    context.position = plain = piece.end;
  }
  if (plain < text.length) context.pieces.push({ node: text.slice(plain) });
  pairDelimiters(context.pieces);
  return assemble(context.pieces);
}

/** What begins at this place, or null where the character stands for itself. */
function special(context, start) {
  const { text } = context;
  switch (text[start]) {
    case "\\": return escaped(text, start);
    case "`": return code(context, start);
    case "*": case "_": case "~": return delimiters(text, start);
    case "[": return link(context, start, start);
    case "!": return text[start + 1] === "[" ? link(context, start, start + 1) : null;
    case "<": return angled(context, start);
    case "&": return entity(text, start);
    case "\n": return { node: make("br"), end: start + 1 };
    default: return bareUrl(context, start);
  }
}

function escaped(text, start) {
  const next = text[start + 1];
  if (next === "\n") return { node: make("br"), end: start + 2 };
  return next && /[!-/:-@[-`{-~]/.test(next) ? { node: next, end: start + 2 } : null;
}

function entity(text, start) {
  ENTITY.lastIndex = start;
  const found = ENTITY.exec(text);
  return found && { node: ENTITIES[found[1]], end: ENTITY.lastIndex };
}

/** Where spans of code begin: for each, where its text lies and where it ends. */
function codeSpans(text) {
  const runs = [...text.matchAll(/`+/g)].map(found => ({ start: found.index, length: found[0].length }));
  const later = new Map();
  for (let i = runs.length - 1; i >= 0; i--) {
    runs[i].next = later.get(runs[i].length);
    later.set(runs[i].length, i);
  }
  const spans = new Map();
  for (let i = 0; i < runs.length; i++) {
    const { start, length, next } = runs[i];
    if (next === undefined || text[start - 1] === "\\") continue;
    spans.set(start, { from: start + length, to: runs[next].start, end: runs[next].start + length });
    i = next;
  }
  return spans;
}

function code(context, start) {
  const { text } = context, span = context.codes.get(start);
  if (!span) {
    // The whole run stands for itself: a part of it must not pair with a shorter one.
    let end = start;
    while (text[end] === "`") end++;
    return { node: text.slice(start, end), end };
  }
  let inside = text.slice(span.from, span.to).replaceAll("\n", " ");
  if (inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ")) inside = inside.slice(1, -1);
  return { node: make("code", "", withVisibleControls(inside)), end: span.end };
}

/** For each opening bracket the closing one. */
function bracketPairs(text, codes) {
  const pairs = new Map(), open = [];
  const brackets = /[\\`[\]]/g;
  for (let found; (found = brackets.exec(text));) {
    const place = found.index;
    if (found[0] === "\\") brackets.lastIndex = place + 2;
    else if (found[0] === "`") brackets.lastIndex = codes.get(place)?.end ?? place + 1;
    else if (found[0] === "[") open.push(place);
    else if (open.length) pairs.set(open.pop(), place);
  }
  return pairs;
}

/** [text](address), or with a mark of exclamation: an image, which is shown as a link, as nothing is fetched here. */
function link(context, start, bracket) {
  const { text, options } = context, close = context.links.get(bracket);
  if (options.inLink || close === undefined || text[close + 1] !== "(") return null;
  const target = destination(text, close + 2);
  const address = target && safeAddress(target.address);
  if (!address) return null;
  const inside = text.slice(bracket + 1, close) || (start === bracket ? target.address : "image");
  const children = scan(inside, { ...options, inLink: true });
  return { node: anchor(address, children), end: target.end };
}

/** The address in parentheses, a title behind it left out. */
function destination(text, start) {
  let depth = 0, at = start, end = -1;
  for (const last = start + MOST_URL; at < text.length && at < last; at++) {
    const character = text[at];
    if (character === "\n") return null;
    if (character === "(" && ++depth > MOST_PARENTHESES) return null;
    if (character === ")" && depth-- === 0) {
      end = at;
      break;
    }
  }
  if (end < 0) return null;
  const [address = ""] = text.slice(start, end).trim().split(/\s/, 1);
  return { address: address.replace(/^<(.*)>$/, "$1"), end: end + 1 };
}

function angled(context, start) {
  const { text, options } = context;
  if (options.breaks) {
    const found = /^<br ?\/?>/i.exec(text.slice(start, start + 6));
    if (found) return { node: make("br"), end: start + found[0].length };
  }
  ANGLE_URL.lastIndex = start;
  const found = options.inLink ? null : ANGLE_URL.exec(text), address = found && safeAddress(found[1]);
  return address ? { node: anchor(address, [found[1]]), end: ANGLE_URL.lastIndex } : null;
}

function bareUrl(context, start) {
  const { text, options } = context;
  if (options.inLink || (start && /[\p{L}\p{N}]/u.test(text[start - 1]))) return null;
  BARE_URL.lastIndex = start;
  const found = BARE_URL.exec(text);
  if (!found) return null;
  const said = withoutTail(found[0]), address = safeAddress(said);
  return address ? { node: anchor(address, [said]), end: start + said.length } : null;
}

/** Marks at the end of an address belong to the sentence, and so does a parenthesis that it does not open. */
function withoutTail(address) {
  let end = address.length, depth = 0;
  for (const character of address) depth += character === "(" ? 1 : character === ")" ? -1 : 0;
  for (; end; end--) {
    const character = address[end - 1];
    if (character === ")" && depth < 0) depth++;
    else if (!/[.,;:!?'_~\]]/.test(character)) break;
  }
  return address.slice(0, end);
}

/** The address if a link may lead there, else null. Addresses relative to this page are none. */
export function safeAddress(text) {
  try {
    const url = new URL(text);
    return PROTOCOLS.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function anchor(address, children) {
  const element = make("a", "", children);
  element.href = address;
  element.rel = "noopener noreferrer nofollow";
  element.target = "_blank";
  element.title = address;
  return element;
}

function delimiters(text, start) {
  const character = text[start];
  let end = start;
  while (text[end] === character) end++;
  const count = end - start;
  if (character === "~" && count !== 2) return { node: text.slice(start, end), end };
  const before = text[start - 1] ?? " ", after = text[end] ?? " ";
  const left = flanks(after, before), right = flanks(before, after);
  const underscore = character === "_";
  const opens = left && (!underscore || !right || PUNCTUATION.test(before));
  const closes = right && (!underscore || !left || PUNCTUATION.test(after));
  return { character, count, opens, closes, opened: [], closed: [], end };
}

/** Whether a run of delimiters leans on what is beside it, as seen from there. */
function flanks(beside, other) {
  if (/\s/.test(beside)) return false;
  return !PUNCTUATION.test(beside) || /\s/.test(other) || PUNCTUATION.test(other);
}

/** Pair runs of delimiters. Each keeps a list of the tags that it closes and opens. */
function pairDelimiters(pieces) {
  const stacks = { "*": [], _: [], "~": [] };
  pieces.forEach((piece, place) => {
    if (!piece.character) return;
    const own = stacks[piece.character];
    while (piece.closes && piece.count && own.length) {
      const opener = pieces[own.at(-1)], used = Math.min(2, opener.count, piece.count);
      // What was opened within and not closed is text: elements must nest.
      for (const stack of Object.values(stacks)) while (stack.length && stack.at(-1) > own.at(-1)) stack.pop();
      const tag = piece.character === "~" ? "del" : used === 2 ? "strong" : "em";
      opener.opened.unshift(tag);
      piece.closed.push(tag);
      opener.count -= used;
      piece.count -= used;
      if (!opener.count) own.pop();
    }
    if (piece.opens && piece.count) own.push(place);
  });
}

function assemble(pieces) {
  const root = document.createDocumentFragment(), open = [root];
  for (const piece of pieces) {
    if (!piece.character) {
      open.at(-1).append(piece.node);
      continue;
    }
    for (const _ of piece.closed) open.pop();
    if (piece.count) open.at(-1).append(piece.character.repeat(piece.count));
    for (const tag of piece.opened) {
      if (open.length > MOST_NESTED) {
        open.push(open.at(-1));
        continue;
      }
      const element = make(tag);
      open.at(-1).append(element);
      open.push(element);
    }
  }
  return [...root.childNodes];
}
