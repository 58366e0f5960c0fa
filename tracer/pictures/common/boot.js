globalThis.manyeyes ??= {};
const hub = globalThis.manyeyes;
hub.opened ??= new Promise((open) => {
  hub.open = open;
});
