// View 3, the steps before the attention: a text becomes ids, ids become rows, rows become a query and a key. Each step
// is { title, shape, code (names of lines of the package), body }, or null where the model has no such step.
import { h } from "./dom.js";
import { adding, eq, linear, normOf, note, strip } from "./cell_parts.js";
import { f, rounded } from "./numbers.js";

/** What a text is cut into, and the name of the lines that do it, by the kind of tokenizer. */
const CUT = {
  BytePair: ["byte pairs", "tokens"],
  Characters: ["characters", "characters"],
  Integers: ["integers", "integers"],
  Pieces: ["pieces", "pieces"],
  Delegated: ["tokens", "delegated"],
};

export function tokens({ app: { model }, pass, sides: { kind, rows, read, columns, row, column } }) {
  const asks = kind === "encoder" ? rows[row] : read[row],
    ids = kind === "self" ? pass.read : pass.source;
  const lane = (who, token, place, mark) =>
    h(
      "div",
      { class: "lane" },
      h("p", { class: "who" }, who),
      h("p", { class: "eq" }, h("span", { class: `tok ${mark}` }, token.text), ` → id ${token.id}, position ${place}`),
    );
  const word = wordAt(pass.pieces ?? [], ids, column),
    [into, code] = CUT[model.tokenizer] ?? ["tokens", ""];
  return {
    title: "A token is a number",
    shape: `text → ${into} → ids`,
    code: [code],
    body: [
      h(
        "div",
        { class: "lanes" },
        lane("the one that looks (query)", asks, row, "chosen"),
        lane("the one looked at (key)", columns[column], column, "key"),
      ),
      word &&
        note(
          "Byte pairs: ",
          h(
            "span",
            { class: "mono" },
            [word.bytes.join(" "), ...word.merges.map(one => one.pieces.join(" "))].slice(0, 6).join(" → "),
          ),
        ),
    ],
  };
}

/** The word of the text that the token at a place was made of. */
function wordAt(words, ids, place) {
  let from = 0;
  for (const word of words) {
    if (place >= from && place < from + word.ids.length) return ids[place]?.id === word.ids[place - from] ? word : null;
    from += word.ids.length;
  }
  return null;
}

export function embedded({ app: { model }, e1, p1, x1, e2, p2, x2 }) {
  if (!e1 || !e2) return null;
  const { config } = model,
    scale = config.embedding.scaled ? Math.sqrt(config.d_model) : 1,
    later = config.embedding.norm || config.embedding.segments;
  const lane = (e, p, x) => {
    const scaled = Array.from(e, value => value * scale);
    const total = later ? scaled.map((value, i) => value + (p ? p[i] : 0)) : Array.from(x);
    return h(
      "div",
      { class: "lane" },
      scale !== 1 && eq(`${f(e[0], 6)} × ${f(scale, 5)} = `, h("b", {}, f(rounded(e[0], 6) * rounded(scale, 5), 3))),
      adding([[scale === 1 ? "E" : "E·√D", scaled], ...(p ? [["+ pos", p]] : [])], total, "= x"),
      strip(Array.from(x), "x"),
    );
  };
  return {
    title: `The number picks a row${scale === 1 ? "" : ", times √D"}${p1 ? ", plus its position" : ""}`,
    shape: `x (S, D) = (·, ${config.d_model})`,
    code: ["embedding"],
    body: [
      h("div", { class: "lanes" }, lane(e1, p1, x1), lane(e2, p2, x2)),
      later ? note("Then segments and a norm are applied: the strip shows the result.") : null,
    ],
  };
}

/** What the sub-layer reads: the state after the layers so far, brought to a standard size. */
export function normed({ app: { model }, before, normed: made, norm1, path }) {
  const { config } = model;
  if (!before || !made || config.norm.placement !== "pre") return null;
  const first = path.includes(".layers.0.") && !path.endsWith("cross_attention");
  return {
    title: `${first ? "Norm" : "Through the sub-layers so far, then norm"}: every row to one size`,
    shape: `(S, D) = (·, ${config.d_model})`,
    code: [config.norm.kind === "rms" ? "rms" : "norm"],
    body: [
      note(first ? "the row before" : "the road, as the sub-layers before this one left it"),
      strip(Array.from(before), "the road"),
      norm1 && normOf(before, made, norm1, config.norm, "attention"),
      note("normed"),
      strip(Array.from(made), "normed"),
    ],
  };
}

export function projected({ app: { model }, q, k, query }) {
  if (!q || !k) return null;
  const { letters, config } = model,
    turned = config.positions.kind === "rope";
  return {
    title: "Into a query and a key",
    shape: `q (H, S, d) = (${letters.H}, ·, ${letters.d})`,
    code: ["projections", ...(turned ? ["rotation"] : [])],
    body: [
      h(
        "div",
        { class: "lanes" },
        h(
          "div",
          { class: "lane" },
          note("its query, ", h("span", { class: "mono" }, four(q))),
          strip(Array.from(q), "q"),
        ),
        h(
          "div",
          { class: "lane" },
          note("the other’s key, ", h("span", { class: "mono" }, four(k))),
          strip(Array.from(k), "k"),
        ),
      ),
      query && [
        note(
          `The first number of q: a row of the query’s matrix times the state, ${query.row.length} products, plus a bias.`,
        ),
        linear(query, ["W", "x"], "query"),
      ],
      turned && note("Query and key are turned by their positions (RoPE) after that."),
    ],
  };
}

const four = values => `${Array.from(values.slice(0, 4), value => f(value, 3)).join(" ")} …`;
