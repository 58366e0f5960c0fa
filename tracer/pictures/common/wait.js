// An element's script: it draws once the module of all parts is there, which another element brings.
globalThis.manyeyes ??= {};
globalThis.manyeyes.module ??= Promise.withResolvers();
export default async (args) => (await globalThis.manyeyes.module.promise)(args);
