/**
 * Markdown's blocks: which lines of a text are a paragraph, a list, a table, and so on. Nothing is rendered here.
 *
 * A block is {kind, lines, ...}: its lines without what marks them, so that those of a quote or of a list's item are
 * themselves lines of Markdown.
 */

const FENCE = /^( {0,3})(`{3,}|~{3,})(.*)$/s;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const HTML_TAGS = "address|article|aside|body|caption|center|col|colgroup|dd|details|dialog|div|dl|dt|fieldset|figcaption|" +
  "figure|footer|form|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|meta|nav|ol|option|p|pre|script|section|" +
  "select|style|summary|svg|table|tbody|td|template|textarea|tfoot|th|thead|title|tr|ul|video";
const HTML = new RegExp(`^ {0,3}<(?:/?(?:${HTML_TAGS})(?=[\\s/>]|$)|!--|!doctype )`, "i");
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;

/** The blocks of these lines, in order. first and last say where each lies: from first to before last. */
export function blocksOf(lines) {
  const blocks = [];
  let place = 0;
  while (place < lines.length) {
    if (isBlank(lines[place])) {
      place++;
      continue;
    }
    const block = blockAt(lines, place);
    block.first = place;
    blocks.push(block);
    place = block.last;
  }
  return blocks;
}

/** Lines of a text. Tabs that indent are four spaces, as everywhere in Markdown. */
export function linesOf(text) {
  return text.split(/\r\n|\r|\n/).map(line => (/^ *\t/.test(line) ? unTab(line) : line));
}

function unTab(line) {
  const indent = /^[ \t]*/.exec(line)[0];
  let width = 0;
  for (const character of indent) width += character === "\t" ? 4 - (width % 4) : 1;
  return " ".repeat(width) + line.slice(indent.length);
}

function isBlank(line) {
  return line.trim() === "";
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

function blockAt(lines, place) {
  const line = lines[place];
  return fence(lines, place) ?? heading(line, place) ?? rule(line, place) ?? quote(lines, place) ??
    html(lines, place) ?? list(lines, place) ?? table(lines, place) ?? paragraph(lines, place);
}

function fence(lines, place) {
  const found = FENCE.exec(lines[place]);
  // Three backticks with another in the same line are code in a paragraph.
  if (!found || (found[2][0] === "`" && found[3].includes("`"))) return null;
  const [, indent, marks, info] = found, inside = [];
  let last = place + 1, closed = false;
  for (; last < lines.length && !closed; last++) {
    closed = closes(lines[last], marks);
    if (!closed) inside.push(lines[last].slice(Math.min(indent.length, indentOf(lines[last]))));
  }
  return { kind: "code", lines: inside, language: info.trim().split(/\s/, 1)[0].slice(0, 40), closed, last };
}

function closes(line, marks) {
  const text = line.trim();
  return text.length >= marks.length && indentOf(line) < 4 && text === marks[0].repeat(text.length);
}

function heading(line, place) {
  const found = HEADING.exec(line);
  if (!found) return null;
  const text = line.slice(found[0].length).trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end--;
  const kept = end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text;
  return { kind: "heading", level: found[1].length, lines: [kept], last: place + 1 };
}

function rule(line, place) {
  return RULE.test(line) ? { kind: "rule", lines: [], last: place + 1 } : null;
}

function quote(lines, place) {
  let last = place;
  while (last < lines.length && QUOTE.test(lines[last])) last++;
  if (last === place) return null;
  return { kind: "quote", lines: lines.slice(place, last).map(line => line.replace(/^ {0,3}> ?/, "")), last };
}

/**
 * HTML that stands for itself. It is shown as what it is, code, so that it keeps its lines and their indentation. It ends
 * where Markdown says, at a blank line, unless more of it follows.
 */
function html(lines, place) {
  if (!HTML.test(lines[place])) return null;
  let last = place + 1;
  while (last < lines.length && !(isBlank(lines[last]) && !continuesHtml(lines, last))) {
    if (FENCE.test(lines[last])) break;
    last++;
  }
  return { kind: "code", lines: lines.slice(place, last), language: "html", closed: true, last };
}

function continuesHtml(lines, place) {
  const next = lines[place + 1];
  return next !== undefined && /^\s*</.test(next);
}

function marker(line) {
  const found = ITEM.exec(line);
  if (!found || found[1].length > 3 || RULE.test(line)) return null;
  const [all, indent, mark] = found, rest = line.slice(all.length);
  const gap = indentOf(rest), content = all.length + (isBlank(rest) || gap > 4 ? 1 : gap);
  return { indent: indent.length, content, kind: mark.length > 1 ? mark.at(-1) : mark, number: parseInt(mark, 10) };
}

/** A list: items with the same kind of mark. blank lines between them, or in one, make it loose. */
function list(lines, place) {
  const first = marker(lines[place]);
  if (!first) return null;
  const items = [];
  let last = place, loose = false;
  while (last < lines.length) {
    const next = marker(lines[last]);
    if (!next || next.kind !== first.kind) break;
    const item = itemAt(lines, last, next);
    items.push(item.lines);
    loose ||= item.lines.some((line, i) => isBlank(line) && i && !isBlank(item.lines[i - 1]));
    last = item.last;
    const behind = skipBlank(lines, last), follower = behind < lines.length ? marker(lines[behind]) : null;
    if (follower?.kind !== first.kind) break;
    loose ||= behind > last;
    last = behind;
  }
  return { kind: "list", ordered: !Number.isNaN(first.number), start: first.number, items, loose, lines: [], last };
}

function skipBlank(lines, place) {
  while (place < lines.length && isBlank(lines[place])) place++;
  return place;
}

/** The lines of an item. Models indent what is nested by two spaces even below "1. ", so that is enough. */
function itemAt(lines, place, { indent, content }) {
  const needed = Math.min(content, indent + 2), inside = [lines[place].slice(content)];
  let last = place + 1, fenced = fenceMarks(inside[0]);
  for (; last < lines.length; last++) {
    const line = lines[last], blank = isBlank(line), within = indentOf(line) >= needed;
    if (!blank && !within && (fenced || isBlank(lines[last - 1]) || marker(line) || interrupts(lines, last))) break;
    const stripped = line.slice(Math.min(content, indentOf(line)));
    if (fenced ? closes(stripped, fenced) : fenceMarks(stripped)) fenced = fenced ? null : fenceMarks(stripped);
    inside.push(stripped);
  }
  let end = last;
  while (end > place + 1 && isBlank(lines[end - 1])) end--;
  inside.length = end - place;
  return { lines: inside, last: end };
}

function fenceMarks(line) {
  return FENCE.exec(line)?.[2] ?? null;
}

/** Whether a paragraph ends before this line. A list may only follow at once if it has content, and begins with 1. */
function interrupts(lines, place) {
  const line = lines[place], next = marker(line);
  if (next) return !isBlank(line.slice(next.content)) && !(next.number > 1);
  return [FENCE, HEADING, RULE, QUOTE, HTML].some(block => block.test(line)) || table(lines, place) !== null;
}

function table(lines, place) {
  if (!lines[place].includes("|") || place + 1 >= lines.length) return null;
  const aligned = alignments(lines[place + 1]), head = cells(lines[place]);
  if (!aligned || aligned.length !== head.length) return null;
  const rows = [];
  let last = place + 2;
  for (; last < lines.length && !isBlank(lines[last]) && lines[last].includes("|"); last++) rows.push(cells(lines[last]));
  return { kind: "table", head, rows, aligned, lines: [], last };
}

function alignments(line) {
  if (!line.includes("-") || !/^[-:| \t]+$/.test(line)) return null;
  const found = cells(line);
  if (!found.every(cell => /^:?-+:?$/.test(cell))) return null;
  return found.map(cell => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
}

/** The cells of a line. A bar within code, or behind a backslash, parts nothing. */
function cells(line) {
  const text = line.trim().replace(/^\|/, "");
  const found = [];
  let cell = "", fenced = false;
  for (let place = 0; place < text.length; place++) {
    const character = text[place];
    if (character === "\\" && text[place + 1] === "|") cell += text[++place];
    else if (character === "|" && !fenced) {
      found.push(cell.trim());
      cell = "";
    } else {
      if (character === "`" && (fenced || text.indexOf("`", place + 1) > 0)) fenced = !fenced;
      cell += character;
    }
  }
  return isBlank(cell) ? found : [...found, cell.trim()];
}

function paragraph(lines, place) {
  let last = place + 1;
  while (last < lines.length && !isBlank(lines[last])) {
    const under = UNDERLINE.exec(lines[last]);
    if (under && under[1].length > 1) {
      return { kind: "heading", level: under[1][0] === "=" ? 1 : 2, lines: trimmed(lines, place, last), last: last + 1 };
    }
    if (interrupts(lines, last)) break;
    last++;
  }
  return { kind: "paragraph", lines: trimmed(lines, place, last), last };
}

function trimmed(lines, first, last) {
  return lines.slice(first, last).map(line => line.trim());
}
