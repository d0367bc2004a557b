// How tensors travel: a table in JSON, then the numbers, little-endian. The same as clearhead/explore/wire.py.

/** The tensors of an answer, in the order they were asked for: { name, letters, shape, index, dtype, data }. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true),
    start = 4 + length;
  const table = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return table.tensors.map(row => {
    const count = row.shape.reduce((a, b) => a * b, 1),
      at = start + row.offset;
    let data;
    if (row.dtype === "uint8") data = new Uint8Array(buffer, at, count);
    else if (row.dtype === "float16") data = widen(new Uint16Array(buffer, at, count));
    else data = new Float32Array(buffer, at, count);
    return { ...row, data };
  });
}

/** float16, as 16-bit integers, to float32. */
export function widen(halves) {
  const result = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    const bits = halves[i],
      sign = bits & 0x8000 ? -1 : 1,
      exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    if (exponent === 0) result[i] = sign * fraction * 2 ** -24;
    else if (exponent === 31) result[i] = fraction ? NaN : sign * Infinity;
    else result[i] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return result;
}

/** base64 text to bytes. */
export function fromBase64(text) {
  const raw = atob(text),
    bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes.buffer;
}
