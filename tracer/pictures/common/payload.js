// Bytes from Python to arrays, as tracer.pictures.payload packs them, and the codes in these arrays to numbers.

const ARRAY_TYPES = { uint8: Uint8Array, uint16: Uint16Array, float32: Float32Array, float64: Float64Array };
const MISSING = 65535; // the code of a value that was not measured

/**
 * The header of a payload, and the bytes after it.
 * @param {Uint8Array} bytes
 * @returns {{ head: Header, body: Uint8Array }}
 */
function headerOf(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  return { head, body: bytes.subarray(4 + size) };
}

/** The named arrays of a payload, each with its shape. */
async function arraysOf(head, body) {
  const stream = new Blob([body]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const arrays = {};
  let at = 0;
  for (const { name, dtype, shape } of head.arrays) {
    const size = shape.reduce((a, b) => a * b, 1) * ARRAY_TYPES[dtype].BYTES_PER_ELEMENT;
    arrays[name] = Object.assign(new ARRAY_TYPES[dtype](buffer.slice(at, at + size)), { shape });
    at += size;
  }
  return arrays;
}

/** A uint16 code of quantise_linear as its value. */
const valueOfCode = (code, lo, hi) => (code === MISSING ? Number.NaN : lo + (code / (MISSING - 1)) * (hi - lo));
/** A uint8 code of quantise_sqrt as its share. */
const shareOfCode = (code) => (code / 255) ** 2;
/** A share as the place of its colour in a ramp: fine where shares are small. */
const tintOf = (share) => Math.round(255 * Math.sqrt(Math.min(1, share)));
