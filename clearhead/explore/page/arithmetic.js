// What the forward pass is made of: matrix times rows, softmax, activations, the slopes of ALiBi.

/** A tensor of zeros, or of these numbers. */
export const tensorOf = (shape, data) => ({ shape, data: data ?? new Float32Array(shape.reduce((a, b) => a * b, 1)) });

/** x Wᵀ + b for `count` rows of x; W is (out, in), as PyTorch has it. Four rows at a time share each weight read. */
export function linear(x, count, weight, bias) {
  const [out, width] = weight.shape,
    w = weight.data,
    y = new Float32Array(count * out);
  for (let o = 0; o < out; o++) {
    const at = o * width,
      start = bias ? bias.data[o] : 0;
    let row = 0;
    for (; row + 3 < count; row += 4) {
      const p = row * width,
        q = p + width,
        r = q + width,
        s = r + width,
        to = row * out + o;
      let a = 0,
        b = 0,
        c = 0,
        d = 0;
      for (let i = 0; i < width; i++) {
        const v = w[at + i];
        a += x[p + i] * v;
        b += x[q + i] * v;
        c += x[r + i] * v;
        d += x[s + i] * v;
      }
      y[to] = a + start;
      y[to + out] = b + start;
      y[to + 2 * out] = c + start;
      y[to + 3 * out] = d + start;
    }
    for (; row < count; row++) {
      const p = row * width;
      let a = 0,
        b = 0,
        i = 0;
      for (; i + 1 < width; i += 2) {
        a += x[p + i] * w[at + i];
        b += x[p + i + 1] * w[at + i + 1];
      }
      if (i < width) a += x[p + i] * w[at + i];
      y[row * out + o] = a + b + start;
    }
  }
  return y;
}

/** The error function, to 1.2e-7 (Numerical Recipes, section 6.2). */
function erf(x) {
  const z = Math.abs(x),
    t = 1 / (1 + 0.5 * z);
  const terms = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
  ];
  const power = terms.reduceRight((sum, term) => term + t * sum, 0);
  const tail = t * Math.exp(-z * z + power);
  return x >= 0 ? 1 - tail : tail - 1;
}

const silu = x => x / (1 + Math.exp(-x));
export const ACTIVATIONS = {
  relu: x => Math.max(0, x),
  gelu: x => x * 0.5 * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: x => x * 0.5 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu,
  swiglu: silu,
};

/** m of each head, as in the ALiBi paper. */
export function alibiSlopes(heads) {
  const lower = 2 ** Math.floor(Math.log2(heads)),
    slopes = [];
  for (let i = 0; i < lower; i++) slopes.push(2 ** ((-8 * (i + 1)) / lower));
  for (let i = 0; i < 2 * (heads - lower); i += 2) slopes.push(2 ** ((-8 * (i + 1)) / (2 * lower)));
  return slopes;
}

/** exp(s) / Σ exp(s) along rows of `width`; a row of nothing but −∞ becomes zeros. */
export function softmaxRows(data, width) {
  const result = new Float32Array(data.length);
  for (let from = 0; from < data.length; from += width) {
    let top = -Infinity,
      total = 0;
    for (let i = 0; i < width; i++) top = Math.max(top, data[from + i]);
    if (top === -Infinity) continue;
    for (let i = 0; i < width; i++) total += Math.exp(data[from + i] - top);
    for (let i = 0; i < width; i++) result[from + i] = Math.exp(data[from + i] - top) / total;
  }
  return result;
}
