// Export: the drawings of the view as SVG, the whole view as PNG, the numbers of the shown pass as JSON.
import { byId, h } from "./dom.js";

const DRAWN = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
];
const SPACE = 16; // pixels between two drawings, and around a view

/** Hand a file to the user. */
function hand(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A drawing with the colours it has on the page written into it. */
function standalone(svg) {
  const copy = svg.cloneNode(true),
    from = [svg, ...svg.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const key of DRAWN) to[i].setAttribute(key, style.getPropertyValue(key));
  });
  return copy;
}

const serialised = svg => new XMLSerializer().serializeToString(svg);
const sized = (width, height, ...kids) =>
  h("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, kids);

/** All drawings of the view, one below the other; a view without any, as it stands. */
export function drawings(view) {
  const found = [...view.querySelectorAll("svg, .stack, canvas.big")].filter(
    one => one.getClientRects().length && !one.parentElement.closest("svg, .stack"),
  );
  if (!found.length) return whole(view);
  let high = 0,
    wide = 0;
  const parts = found.map(one => {
    const { width, height } = one.getBoundingClientRect(),
      y = high;
    high += height + SPACE;
    wide = Math.max(wide, width);
    if (one.tagName === "svg") {
      const copy = standalone(one);
      for (const [key, value] of Object.entries({ x: 0, y, width, height })) copy.setAttribute(key, value);
      return copy;
    }
    const layers = one.tagName === "CANVAS" ? [one] : [...one.querySelectorAll("canvas")];
    return layers.map(canvas => h("image", { x: 0, y, width, height, href: canvas.toDataURL() }));
  });
  const paper = h("rect", {
    width: wide,
    height: high,
    fill: getComputedStyle(document.documentElement).backgroundColor,
  });
  return sized(wide, high, paper, parts);
}

/** The view as it stands, with the page's styles, as a drawing. */
function whole(view) {
  const { width, height } = view.getBoundingClientRect(),
    wide = width + 2 * SPACE,
    high = height + 2 * SPACE,
    copy = view.cloneNode(true);
  const pictures = [...copy.querySelectorAll("canvas")],
    from = view.querySelectorAll("canvas");
  pictures.forEach((canvas, i) =>
    canvas.replaceWith(
      h("img", {
        src: from[i].toDataURL(),
        class: canvas.className,
        style: { width: from[i].style.width, height: from[i].style.height },
      }),
    ),
  );
  const styles = h(
    "style",
    {},
    [...document.styleSheets].flatMap(sheet => [...sheet.cssRules].map(rule => rule.cssText)).join("\n"),
  );
  const page = h(
    "div",
    { style: { padding: `${SPACE}px`, font: "16px/1.5 var(--sans)", color: "var(--ink)", background: "var(--paper)" } },
    styles,
    copy,
  );
  page.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
  const made = sized(wide, high, h("foreignObject", { width: wide, height: high }, page));
  made.setAttribute("data-theme", document.documentElement.dataset.theme);
  return made;
}

async function painted(view) {
  const text = serialised(whole(view)),
    picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = h("canvas", { width: 2 * picture.width, height: 2 * picture.height }),
    context = canvas.getContext("2d");
  context.scale(2, 2);
  context.drawImage(picture, 0, 0);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}

/** The state, what was told of the shown pass, and the weights of the chosen head. */
async function numbers({ state, work, model }) {
  const pass = work.shown(state),
    told = { run: model.run, checkpoint: pass.checkpoint, state, pass };
  if (state.at) {
    const { shape, data } = await work.head(pass, state.at, state.head),
      [rows, columns] = shape;
    told.weights = Array.from({ length: rows }, (_, i) => Array.from(data.subarray(i * columns, (i + 1) * columns)));
  }
  return JSON.stringify(told, null, 1);
}

/** Save what is shown in one of three forms. */
export async function save(app, form) {
  const name = `clearhead-${app.state.view}.${form}`,
    view = byId("view");
  if (form === "svg") hand(name, new Blob([serialised(drawings(view))], { type: "image/svg+xml" }));
  else if (form === "png") hand(name, await painted(view));
  else hand(name, new Blob([await numbers(app)], { type: "application/json" }));
}
