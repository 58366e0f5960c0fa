globalThis.manyeyes ??= {};
manyeyes.module ??= Promise.withResolvers();
export default async (args) => (await manyeyes.module.promise)(args);
