// The deflated module of every part, which the first element of a page brings.
/** @param {{ data: any }} args */
export default async ({ data }) => {
  globalThis.manyeyes ??= {};
  const hub = globalThis.manyeyes;
  if (hub.opening || !(data instanceof Uint8Array)) return;
  hub.opening = true;
  const stream = new Blob([/** @type {any} */ (data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).arrayBuffer()], { type: "text/javascript" }));
  hub.module ??= Promise.withResolvers();
  hub.module.resolve((await import(url)).default);
  URL.revokeObjectURL(url);
};
