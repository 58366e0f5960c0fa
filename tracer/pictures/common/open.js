export default async ({ data }) => { // the deflated module of every part, which the first element of a page brings
  if (hub.opening || !(data instanceof Uint8Array)) return;
  hub.opening = true;
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).arrayBuffer()], { type: "text/javascript" }));
  hub.open((await import(url)).default);
  URL.revokeObjectURL(url);
};
