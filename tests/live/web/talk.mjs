// A client of a room for the tests: publishes numbers, prints what it hears. `node talk.mjs CLIENT COUNT USER URL ...`
const [client, count, user, ...urls] = process.argv.slice(2);
const { join } = await import(client);
const print = (line) => console.log(JSON.stringify(line));
const room = join(urls, { token: user });
room.on("event", ({ user, number, data, operation }) => print({ user, number, data, operation }));
room.on("reset", (why) => print({ reset: why }));
room.on("closed", (error) => print({ closed: error.message, code: error.code }));
room.on("state", ({ state, why, worker }) => print({ state, why, worker }));
await room.ready;
print({ ready: room.me });
const told = () => new Promise((done) => process.stdin.once("data", done));
await told();
const receipts = [];
for (let n = 1; n <= Number(count); n++) {
  receipts.push(room.publish(n), room.add("hits"), room.set("last", user, n));
  await new Promise((done) => setTimeout(done, 10));
}
await Promise.all(receipts);
print({ done: room.unsent, me: room.me });
await told();
print({ hits: room.counters.get("hits"), last: Object.fromEntries([...room.registers.get("last")].sort()) });
room.close();
process.stdin.destroy();
