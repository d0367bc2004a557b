// The numbers behind one cell: rows of the pass's tensors, and the rows of the model's matrices that made them.
import { sum } from "./numbers.js";

/** Everything of the pass that view 3 shows, as rows of numbers; what is not there is null. */
export async function rowsOf({ state, work, model }, pass, { kind, row, column }, path) {
  const { config } = model,
    heads = config.heads / (config.kv_heads || config.heads);
  const group = Math.floor(state.head / heads),
    wanted = namesOf(model, path, kind, state.head, group, row, column);
  const there = new Set(pass.tensors.map(one => one.name));
  const keys = Object.keys(wanted).filter(key => there.has(wanted[key][0]));
  const found = await work.tensors(
    pass,
    keys.map(key => ({ name: wanted[key][0], index: wanted[key][1] })),
  );
  const rows = Object.fromEntries(Object.keys(wanted).map(key => [key, null]));
  keys.forEach((key, i) => {
    rows[key] = key === "contexts" ? found[i] : found[i].data;
  });
  const matrices = await madeBy({ work, pass, model, path, head: state.head, row, token: tokenOf(pass, state) }, rows);
  return { ...rows, ...matrices };
}

export const tokenOf = (pass, state) => pass.answer[Math.max(0, state.step)];

/** The names of the tensors, and where in them the row stands. */
function namesOf({ kind: model, config }, path, kind, head, group, row, column) {
  const [stack, , number] = path.split("."),
    layer = `${stack}.layers.${number}`,
    crossing = model === "encoder-decoder";
  const own = kind !== "encoder" && crossing ? "#2" : "",
    other = kind === "self" ? own : "";
  const state = config.norm.placement === "pre" ? "residual" : "norm.norm"; // what a sub-layer leaves for the next
  const before = path.endsWith("cross_attention")
    ? `${layer}.self_attention_residual.${state}`
    : number === "0"
      ? `embedding.embedding${own}`
      : `${stack}.layers.${number - 1}.feed_forward_residual.${state}`;
  const last = crossing && stack === "decoder" ? "cross_attention" : "self_attention";
  return {
    e1: [`embedding.tokens${own}`, [0, row]],
    p1: [`embedding.positions${own}`, [0, row]],
    x1: [`embedding.embedding${own}`, [0, row]],
    e2: [`embedding.tokens${other}`, [0, column]],
    p2: [`embedding.positions${other}`, [0, column]],
    x2: [`embedding.embedding${other}`, [0, column]],
    before: [before, [0, row]],
    normed: [`${path}_residual.norm.norm`, [0, row]],
    q: [`${path}.q`, [0, head, row]],
    k: [`${path}.k`, [0, group, column]],
    v: [`${path}.v`, [0, group]],
    scores: [`${path}.scores`, [0, head, row]],
    context: [`${path}.context`, [0, head, row]],
    contexts: [`${path}.context`, [0]],
    output: [`${path}.output`, [0, row]],
    residual: [`${path}_residual.residual`, [0, row]],
    fedBefore: [`${layer}.${last}_residual.${state}`, [0, row]],
    fedNormed: [`${layer}.feed_forward_residual.norm.norm`, [0, row]],
    hidden: [`${layer}.feed_forward.hidden`, [0, row]],
    fed: [`${layer}.feed_forward.output`, [0, row]],
    after: [`${layer}.feed_forward_residual.residual`, [0, row]],
    last: [`${stack}.norm.norm`, [0, row]],
    end: [`${stack}.layers.${config[`${stack}_layers`] - 1}.feed_forward_residual.norm.norm`, [0, row]],
    logits: ["output.logits", [0, row]],
    row: [`${path}.weights`, [0, head, row]],
  };
}

/** Rows of matrices with what they multiply: { query, out, inner, outer, scored }, each { row, input, bias } or null, and
 *  the norms' weights. A row is given only where it makes the number that the pass has: no edit, turn or norm between. */
async function madeBy({ work, pass, model: { config, parameter_names: names }, path, head, row, token }, rows) {
  if (work.source.alive === false) return {};
  const named = new Set(names);
  const get = async (name, at) => {
    if (!named.has(name)) return null;
    const [found] = await work.tensors(pass, [{ name: `model:${name}`, index: [at] }]);
    return found.data;
  };
  const fits = async (matrix, at, input, wanted) => {
    if (!input || wanted === undefined || wanted === null) return null;
    const [row, bias] = await Promise.all([get(`${matrix}.weight`, at), get(`${matrix}.bias`, at)]);
    if (!row || row.length !== input.length) return null;
    const total = sum(Array.from(row, (x, i) => x * input[i])) + (bias?.[0] ?? 0);
    return Math.abs(total - wanted) < 1e-3 * Math.max(1, Math.abs(wanted))
      ? { row, input, bias: bias?.[0] ?? 0 }
      : null;
  };
  const norm = async name => {
    const [weight, bias] = await Promise.all([get(`${name}.weight`, 0), get(`${name}.bias`, 0)]);
    return weight && { weight: weight[0], bias: bias?.[0] ?? null };
  };
  const pre = config.norm.placement === "pre",
    layer = path.split(".").slice(0, 3).join(".");
  const { q, contexts, output, hidden, fed, logits, last, end } = rows;
  const merged = contexts ? mergedRow(contexts, row) : null; // what the output matrix multiplies
  const read = pre ? rows.normed : rows.before,
    fedRead = pre ? rows.fedNormed : rows.fedBefore;
  const most = hidden ? hidden.indexOf(Math.max(...hidden)) : 0; // of a ReLU most numbers are zero: the largest is shown
  const relu = config.activation === "relu"; // others are not worked out by hand
  const [query, out, inner, outer, tied, untied, norm1, norm2] = await Promise.all([
    fits(`${path}.query`, head * (q?.length ?? 0), read, q?.[0]),
    fits(`${path}.out`, 0, merged, output?.[0]),
    relu ? fits(`${layer}.feed_forward.inner`, most, fedRead, hidden?.[most]) : null,
    fits(`${layer}.feed_forward.outer`, 0, hidden, fed?.[0]),
    token && logits ? fits("embedding", token.id, last ?? end, logits[token.id]) : null,
    token && logits ? fits("output", token.id, last ?? end, logits[token.id]) : null,
    norm(`${path}_residual.norm`),
    norm(`${layer}.feed_forward_residual.norm`),
  ]);
  return { query, out, inner, outer, scored: tied ?? untied, norm1, norm2, most };
}

/** The contexts of all heads of a row, side by side. */
function mergedRow({ shape: [heads, rows, d], data }, row) {
  const made = new Float32Array(heads * d);
  for (let n = 0; n < heads; n++) made.set(data.subarray((n * rows + row) * d, (n * rows + row + 1) * d), n * d);
  return made;
}
