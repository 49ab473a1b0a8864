// Numbers in half precision (IEEE 754 binary16), as the server sends weights.

const TABLE = new Float32Array(65536);
for (let bits = 0; bits < 65536; bits++) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  TABLE[bits] =
    exponent === 31
      ? fraction
        ? NaN
        : sign * Infinity
      : exponent
        ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024)
        : (sign * 2 ** -14 * fraction) / 1024;
}

/** Little-endian halves, as all machines with browsers have them, as numbers. */
export const fromHalves = buffer => {
  const halves = new Uint16Array(buffer),
    found = new Float32Array(halves.length);
  for (let i = 0; i < found.length; i++) found[i] = TABLE[halves[i]];
  return found;
};
