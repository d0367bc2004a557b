// Numbers as they are shown, and numbers computed from what is shown: whoever takes the digits on the screen and
// calculates gets the digits on the screen.

/** A number with `digits` after the point, with a real minus sign. */
export function f(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === -Infinity) return "−∞";
  if (value === Infinity) return "∞";
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** The number that a reader of the text sees. */
export const seen = text => (text === "−∞" ? -Infinity : Number(text.replace("−", "-")));

/** The number as it is shown: rounded. */
export const rounded = (value, digits) => seen(f(value, digits));

/** + or −, and the size. */
export const plus = (value, digits) => `${value < 0 ? "−" : "+"} ${f(Math.abs(value), digits)}`;

/** With its sign in front, also if it is positive. */
export const signedText = (value, digits = 2) => (value > 0 ? `+${f(value, digits)}` : f(value, digits));

export function pct(p) {
  if (p >= 0.9995) return "100 %";
  return `${(100 * p).toFixed(p >= 0.001 ? 1 : 3)} %`;
}

export const sum = values => {
  let total = 0;
  for (const value of values) total += value;
  return total;
};
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
export const count = value => value.toLocaleString("en");

/** The fewest digits, from `low` to `high`, with which `holds(digits)`; else `high`. */
export function enough(low, high, holds) {
  for (let digits = low; digits < high; digits++) if (holds(digits)) return digits;
  return high;
}

/** Factors a and b (lists), their products and the sum, such that the shown sum is that of the shown products, each
 *  of shown factors, and is right to `digits`. */
export function product(a, b, digits = 3) {
  const right = f(sum(Array.from(a, (x, i) => x * b[i])), digits);
  const made = n => {
    const left = Array.from(a, x => rounded(x, n + 1)),
      other = Array.from(b, x => rounded(x, n + 1));
    const products = left.map((x, i) => rounded(x * other[i], n));
    return { left, other, products, total: sum(products), digits: n };
  };
  const n = enough(
    4,
    8,
    n => f(made(n).total, digits) === right && f(rounded(made(n).total, digits + 1), digits) === right,
  );
  return made(n);
}
