// Export: the state and numbers of the shown pass as JSON, the drawings of the view as SVG, its canvases as PNG.
import { byId } from "./dom.js";

function hand(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A drawing with the colours it has on the page written into it. */
export function standalone(svg) {
  const copy = svg.cloneNode(true),
    from = [svg, ...svg.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family"])
      to[i].setAttribute(key, style.getPropertyValue(key));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

export function exportAll({ state, work, model }) {
  const name = `clearhead-${state.view}`,
    pass = work.shown(state);
  const { tensors, ...told } = pass;
  hand(
    `${name}.json`,
    new Blob([JSON.stringify({ run: model.run, state, pass: told, tensors }, null, 1)], { type: "application/json" }),
  );
  const drawing = byId("view").querySelector("svg"),
    canvas = byId("view").querySelector("canvas");
  if (drawing) hand(`${name}.svg`, new Blob([standalone(drawing)], { type: "image/svg+xml" }));
  if (canvas) canvas.toBlob(blob => blob && hand(`${name}.png`, blob));
}
