// Colours: weights from pale to dark (on a dark page from dark to bright), signed numbers in blue and orange, both safe
// for the colour-blind. More weight is always more contrast with the page; the scale is linear.

const LIGHT = ["#fbf8ec", "#f1e29a", "#cbb66a", "#8f8a79", "#4b5a80", "#00224e"],
  DARK = ["#0f1a30", "#1f3a6e", "#5b6273", "#938c76", "#d0bd5d", "#ffea46"];
const parts = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
const RAMPS = { light: LIGHT.map(parts), dark: DARK.map(parts) };
const mixed = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));

export const isDark = () => document.documentElement.dataset.theme === "dark";

/** The page's theme: the one chosen, else the system's. */
export function applyTheme(chosen) {
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** A colour of the style sheet. */
export const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** [r, g, b] for a weight from 0 to 1. */
export function ramp(weight) {
  const colours = RAMPS[isDark() ? "dark" : "light"],
    x = Math.max(0, Math.min(1, weight || 0)) * 5,
    i = Math.min(4, Math.floor(x));
  return mixed(colours[i], colours[i + 1], x - i);
}

/** The ramp as a table of 256 colours of four bytes, to paint many cells. */
export function table() {
  const made = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) made.set([...ramp(i / 255), 255], 4 * i);
  return made;
}

/** [r, g, b] for a number between -most and most. */
export function signed(value, most) {
  const t = Math.max(-1, Math.min(1, value / (most || 1)));
  return mixed(isDark() ? [27, 30, 36] : [255, 255, 255], parts(css(t < 0 ? "--neg" : "--pos")), Math.abs(t));
}

export const rgb = colour => `rgb(${colour.join(" ")})`;

const light = ([r, g, b]) => {
  const linear = [r, g, b].map(x => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};

/** Of black and white ink the one that can be read better on a colour, by the contrast of WCAG: 4.5 at the least. */
export const inkOn = colour => (1.05 / (light(colour) + 0.05) > (light(colour) + 0.05) / 0.05 ? "#ffffff" : "#000000");
