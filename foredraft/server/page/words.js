/** Numbers in words. */

/** "45.2" or "312". */
export function decimal(value) {
  return value >= 99.95 ? value.toFixed(0) : value.toFixed(1);
}

/** "62 %". */
export function percent(share) {
  return `${(100 * share).toFixed(0)} %`;
}

/** "0.21 s" or "12.3 s". */
export function seconds(milliseconds) {
  const value = milliseconds / 1000;
  return `${value >= 9.95 ? value.toFixed(1) : value.toFixed(2)} s`;
}

/** "1.8x". */
export function times(factor) {
  return `${factor >= 9.95 ? factor.toFixed(0) : factor.toFixed(1)}x`;
}

/** "1 token" or "12 tokens". */
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
