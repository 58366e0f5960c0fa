export default async (args) => (await hub.opened)(args);
