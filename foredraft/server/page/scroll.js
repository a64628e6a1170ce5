/** Following an answer down the page, as long as its reader is at the bottom. */

const NEAR = 48;

export function atBottom() {
  const page = document.scrollingElement;
  return page.scrollHeight - page.clientHeight - page.scrollTop < NEAR;
}

export function scrollToBottom() {
  const page = document.scrollingElement;
  page.scrollTop = page.scrollHeight;
}
