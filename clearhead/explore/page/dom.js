// Elements of the page. What comes from a model or a user enters as text alone: a token can be a tag.

import { readable } from "./glyphs.js";

const DRAWN = new Set([
  "svg",
  "g",
  "rect",
  "line",
  "path",
  "text",
  "circle",
  "title",
  "tspan",
  "image",
  "foreignObject",
]);

/** An element with its attributes, listeners (onclick: …), styles (style: { … }) and children. */
export function h(tag, props, ...kids) {
  const svg = DRAWN.has(tag) && !(props && props.html);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const kid of kids.flat(9)) if (kid !== null && kid !== undefined && kid !== false) made.append(kid);
  return made;
}

export const byId = id => document.getElementById(id);

const FOCUSABLE = "button,a,input,select,summary,canvas[tabindex],[tabindex]";

/** Replace what an element holds; focus and open folds survive, by `data-key` or else by their place. */
export function fill(element, ...kids) {
  const active = document.activeElement,
    inside = active && active !== element && element.contains(active);
  const key = inside ? active.dataset.key : null,
    place = inside ? [...element.querySelectorAll(FOCUSABLE)].indexOf(active) : -1;
  const open = new Set([...element.querySelectorAll("details[open][data-key]")].map(one => one.dataset.key));
  const known = new Set([...element.querySelectorAll("details[data-key]")].map(one => one.dataset.key));
  element.replaceChildren(...kids.flat(9).filter(kid => kid !== null && kid !== undefined && kid !== false));
  for (const one of element.querySelectorAll("details[data-key]"))
    if (known.has(one.dataset.key)) one.open = open.has(one.dataset.key);
  if (!inside) return;
  const all = [...element.querySelectorAll(FOCUSABLE)];
  const again = (key && all.find(one => one.dataset.key === key)) || all[Math.min(place, all.length - 1)];
  again?.focus({ preventScroll: true });
}

let live = null;

/** Say something to those who do not see the page. */
export function say(text) {
  live ??= byId("live");
  live.textContent = text;
}

/** A name for a token where room is short: start and end as ⊢ ⊣. */
export const short = text => ({ "<s>": "⊢", "</s>": "⊣" })[text] ?? readable(text);

export const narrow = () => window.innerWidth < 720;
