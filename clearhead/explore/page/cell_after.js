// View 3, after the attention: all heads through one matrix and back onto the road, norm, feed-forward, and at the end
// a number for each token.
import { h } from "./dom.js";
import { adding, dotted, eq, inBrackets, linear, normOf, note, strip } from "./cell_parts.js";
import { tokenOf } from "./cell_data.js";
import { enough, f, rounded, sum } from "./numbers.js";

const pre = model => model.config.norm.placement === "pre";

export function onTheRoad({ output, residual, out, before, normed, norm1, app: { model } }) {
  if (!output || !residual || !before) return null;
  const { letters } = model,
    after = pre(model)
      ? null
      : norm1 && normed && normOf(residual, normed, norm1, model.config.norm, "after attention");
  return {
    title: "All heads side by side, one matrix, and back onto the road",
    shape: `output, residual (S, D) = (·, ${letters.D})`,
    code: ["out", "residual"],
    body: [
      out && [
        note(`The first number of the output: a row of the matrix times the ${letters.H} contexts of ${letters.d}.`),
        linear(out, ["O", "contexts"], "output"),
      ],
      adding(
        [
          ["the road", before],
          ["+ output", output],
        ],
        Array.from(residual),
        "= the road",
      ),
      strip(Array.from(residual), "the road"),
      after && [note("Then the norm, as the paper has it:"), after],
    ],
  };
}

export function fed({
  hidden,
  fed: output,
  after,
  fedBefore,
  fedNormed,
  norm2,
  inner,
  outer,
  most,
  sides,
  path,
  app: { model },
}) {
  if (!hidden || !output || !after || !fedBefore) return null;
  const active = Array.from(hidden).filter(value => value > 0).length,
    { config } = model,
    between = sides.kind === "self" && path.startsWith("decoder") && model.kind === "encoder-decoder";
  const worked =
    norm2 && fedNormed && normOf(pre(model) ? fedBefore : after, fedNormed, norm2, config.norm, "feed-forward");
  return {
    title: pre(model) ? "Norm, feed-forward, and onto the road again" : "Feed-forward, onto the road again, norm",
    shape: `hidden (S, F) = (·, ${hidden.length})`,
    code: [
      ...(pre(model) ? [] : ["norm"]),
      config.activation === "swiglu" ? "feed_forward_gated" : "feed_forward",
      "feed_forward_out",
    ],
    body: [
      between && note("Cross-attention comes between, and has added to the road already."),
      pre(model) && worked,
      note(`${hidden.length} numbers in between, ${active} of them above zero (${config.activation}).`),
      strip(Array.from(hidden), "hidden"),
      inner && [
        note(
          `The largest, number ${most + 1}: a row of the first matrix times the state, plus a bias; what is negative becomes 0.`,
        ),
        linear(inner, ["W1", "x"], "hidden"),
      ],
      outer && [
        note("The first number of the output: a row of the second matrix times all of these."),
        linear(outer, ["W2", "hidden"], "fed"),
      ],
      adding(
        [
          ["the road", fedBefore],
          ["+ output", output],
        ],
        Array.from(after),
        "= the road",
      ),
      !pre(model) && worked,
    ],
  };
}

export function logits({ logits: all, scored, sides: { kind }, pass, app: { state } }) {
  const token = tokenOf(pass, state);
  if (!all || !token || (kind === "encoder" && pass.kind !== "encoder")) return null;
  const values = Array.from(all),
    top = Math.max(...values),
    total = top + Math.log(sum(values.map(value => Math.exp(value - top)))),
    value = values[token.id];
  const n = enough(3, 7, n => f(Math.exp(rounded(value, n) - rounded(total, n)), 3) === f(Math.exp(value - total), 3));
  const made = scored && dotted(scored.row, scored.input, ["E", "state"], 3);
  return {
    title: "After all layers: a number for each token",
    shape: `logits (S, V) = (·, ${values.length})`,
    code: ["logits"],
    body: [
      made && [
        note(
          `The last state times the row of “${token.text}” in the matrix, ${scored.row.length} products${scored.bias ? `, plus ${f(scored.bias, 3)}` : ""}, is its logit: `,
          h("b", { class: "mono", id: "logit" }, f(value, 3)),
        ),
        made.box,
      ],
      note(
        "Softmax once more, over the whole vocabulary; the second number is the logarithm of the sum of all e^logit.",
      ),
      eq(`e^(${f(value, n)} − ${inBrackets(f(total, n))}) = `, h("b", { id: "chance" }, f(Math.exp(value - total), 3))),
    ],
  };
}
