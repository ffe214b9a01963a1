// The client of a room, for browsers and Node. One module, no build step; docs/web.md explains it.
//
//   import { join } from "/rooms/whence.js";
//   const room = join("/rooms/lobby", { token });
//   room.on("event", (event) => show(event.user, event.data));
//   await room.publish({ text: "hello" });
//
// It connects again by itself, also to another worker, and goes on exactly where it was. What is published meanwhile
// waits and is sent again until it comes back in the room's order; workers drop copies.

/**
 * An event of the room, in its place in the order.
 * @typedef {object} RoomEvent
 * @property {string} id Its id in the cluster.
 * @property {string} client Who published it: the name of a client.
 * @property {number} number Which one of that client it is.
 * @property {string} user
 * @property {boolean} own This client published it.
 * @property {any} [data] What was published.
 * @property {any[]} [operation] What changed: ["set", object, key, value], ["del", object, key],
 *   ["add", object, amount], ["edit", document, Uint8Array].
 */

/**
 * @typedef {object} Options
 * @property {string} [token] For the application's `authorize`.
 * @property {any} [here] What this client says of itself to all who are there (at most 1 kB).
 * @property {typeof WebSocket} [WebSocket] Where there is no global one.
 * @property {(row: [number, number, string, string]) => void} [trace] Is given each step of this client.
 */

/** Close codes, by name. After `RETRY` the client connects again; the others are final. */
export const CLOSE = Object.freeze({
  NONSENSE: 4400, REFUSED: 4401, FORBIDDEN: 4403, HALF_OPEN: 4408, REPLACED: 4409, FUTURE: 4412, TOO_LARGE: 4413,
  IMPOSTOR: 4415, ORIGIN: 4421, TOO_MANY: 4429, SLOW: 4430, LEAVING: 4503, FULL: 4507,
});
const FINAL = new Set([4400, 4401, 4403, 4409, 4413, 4415, 4421, 4507]);
const BACKOFF_MS = [50, 200, 500, 1000, 2000];
const MAX_UNSENT = 10000; // publishes that wait
const MAX_ROWS = 10000;
const KEPT = 16; // tenures of a ticket that a cursor names
const TAKE_EVERY = 32, TAKE_MS = 500;

/** The room is closed for good; `code` is one of `CLOSE`. */
export class RoomClosed extends Error {
  /** @param {number} code @param {string} why */
  constructor(code, why) {
    const name = Object.keys(CLOSE).find((each) => CLOSE[each] === code);
    super(`${name ?? code}: ${why}`);
    this.name = "RoomClosed";
    this.code = code;
  }
}

/** Bytes as base64, and back. @param {Uint8Array} bytes @returns {string} */
export function toBase64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}
/** @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

const older = (a, b) => { // incarnations, "epoch.term.count"
  const [x, y] = [a.split(".").map(Number), b.split(".").map(Number)];
  for (let i = 0; i < 3; i++) if (x[i] !== y[i]) return x[i] - y[i];
  return 0;
};

/** Which events were given: of each tenure of a ticket the last one. Good at any worker. */
class Cursor {
  constructor(upto = {}) { this.upto = upto; }

  add(id) {
    const cut = id.lastIndexOf(":"), tenure = id.slice(0, cut), seq = Number(id.slice(cut + 1));
    const known = tenure in this.upto;
    this.upto[tenure] = Math.max(seq, this.upto[tenure] ?? 0);
    if (known) return;
    const ticket = tenure.slice(0, tenure.indexOf(":") + 1);
    const mine = Object.keys(this.upto).filter((each) => each.startsWith(ticket)).map((each) => each.slice(ticket.length));
    for (const old of mine.sort(older).slice(0, -KEPT)) delete this.upto[ticket + old];
  }
}

export class Room {
  #urls; #options; #key; #socket = null; #attempt = 0; #timer = 0; #listeners = new Map();
  #run = ""; #cursor = null; #number = 0; #unsent = new Map(); #here; #taken = 0; #told = 0;
  #rows = []; #lseq = 0; #rowsSent = -1; #traced = true; #welcomed = false; #wait = []; #paused = false; #later = 0;

  /** @param {string | string[]} urls @param {Options} options */
  constructor(urls, options = {}) {
    this.#urls = [urls].flat().map(absolute);
    this.#options = options;
    this.#here = options.here ?? null;
    this.#key = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
    /** This client's name, once it has connected; others see it. */
    this.me = "";
    this.user = "";
    /** The worker that it is connected to. */
    this.worker = "";
    /** "connecting", "open", "offline" (as the browser says) or "closed". @type {string} */
    this.state = "connecting";
    /** What it waits for; empty: nothing. */
    this.why = "connecting";
    /** Who is there: `{client, user, data}`, at most 64; `count` are. */
    this.present = [];
    this.count = 0;
    /** @type {Map<string, Map<string, any>>} */
    this.registers = new Map();
    /** @type {Map<string, number>} */
    this.counters = new Map();
    /** Documents as the workers have them when this client (re)starts from the state: name -> Yjs update. */
    this.documents = new Map();
    this._stamps = new Map(); // registers: name -> key -> stamp of the last write
    this._online = () => this.resume();
    this._offline = () => this.pause("the browser is offline");
    globalThis.addEventListener?.("online", this._online);
    globalThis.addEventListener?.("offline", this._offline);
    this.#connect();
  }

  /**
   * Hear of something: "event" (a RoomEvent), "reset" (why: events were missed, and everything is as in the state
   * now), "start" (the state is here for the first time), "state" (this room: connected or not, waiting for something or not), "here" (who is there), "closed" (a
   * RoomClosed). Returns a function that ends it.
   * @param {string} what @param {(said: any) => void} listener @returns {() => void}
   */
  on(what, listener) {
    if (!this.#listeners.has(what)) this.#listeners.set(what, new Set());
    this.#listeners.get(what).add(listener);
    return () => this.#listeners.get(what).delete(listener);
  }

  #emit(what, said) {
    for (const listener of this.#listeners.get(what) ?? []) {
      try { listener(said); } catch (error) { queueMicrotask(() => { throw error; }); } // the others go on
    }
  }

  /** Resolves when the state of the room is here. @returns {Promise<Room>} */
  get ready() {
    return this.#welcomed ? Promise.resolve(this) : new Promise((done, fail) => this.#wait.push([done, fail]));
  }

  /** Publishes that have not come back yet. */
  get unsent() { return this.#unsent.size; }

  /** Which events this client was given. @returns {Record<string, number> | null} */
  get cursor() { return this.#cursor && { ...this.#cursor.upto }; }

  // -- publishing

  /** Publish a JSON value. Resolves when it has come back in the room's order, and two workers have it.
   * @param {any} data @returns {Promise<void>} */
  publish(data) { return this.#publish({ t: "pub", d: data }); }
  /** Write a register. @param {string} registers @param {string} key @param {any} value */
  set(registers, key, value) { return this.#publish({ t: "op", o: ["set", registers, key, value] }); }
  /** Delete a register. @param {string} registers @param {string} key */
  delete(registers, key) { return this.#publish({ t: "op", o: ["del", registers, key] }); }
  /** Add to a counter. @param {string} counter @param {number} amount */
  add(counter, amount = 1) { return this.#publish({ t: "op", o: ["add", counter, amount] }); }
  /** Publish a Yjs update. @param {string} document @param {Uint8Array} update */
  edit(document, update) { return this.#publish({ t: "op", o: ["edit", document, toBase64(update)] }); }
  /** Say this of oneself to all who are there; null: no more. @param {any} data */
  here(data) {
    this.#here = data;
    if (this.state === "open") this.#say({ t: "here", d: data });
  }

  #publish(word) {
    if (this.state === "closed") return Promise.reject(new RoomClosed(1000, "the room is closed"));
    if (this.#unsent.size >= MAX_UNSENT) return Promise.reject(new Error(`${MAX_UNSENT} publishes wait: ${this.why}`));
    word.n = ++this.#number;
    return new Promise((done, fail) => {
      this.#unsent.set(word.n, { word, done, fail });
      if (this.me) this.#step("publish", `${this.me}/${word.n}`);
      if (this.state === "open") this.#say(word);
    });
  }

  // -- the connection

  #connect() {
    clearTimeout(this.#timer);
    if (this.state === "closed") return;
    const Socket = this.#options.WebSocket ?? globalThis.WebSocket;
    if (!Socket) throw new Error("no WebSocket here: join(url, { WebSocket })");
    const socket = this.#socket = new Socket(this.#urls[this.#attempt % this.#urls.length]);
    this.#taken = this.#told = 0;
    this.#rowsSent = -1;
    socket.onopen = () => {
      const hello = { t: "hello", v: 1, key: this.#key, me: this.me, token: this.#options.token ?? "" };
      if (this.#cursor) Object.assign(hello, { run: this.#run, cursor: this.#cursor.upto });
      socket.send(JSON.stringify(hello));
    };
    socket.onmessage = (message) => { if (socket === this.#socket) this.#heard(JSON.parse(message.data)); };
    socket.onclose = (closed) => { if (socket === this.#socket) this.#lost(closed.code, closed.reason); };
    socket.onerror = () => {};
  }

  /** Disconnect for now; what is published waits. @param {string} [why] */
  pause(why = "paused") {
    this.#paused = true;
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#lost(1006, why);
    socket?.close();
  }

  /** Connect again after `pause`. */
  resume() {
    this.#paused = false;
    this.#attempt = 0;
    if (!this.#socket) this.#connect();
  }

  #lost(code, reason) {
    this.#socket = null;
    if (this.state === "closed") return;
    if (FINAL.has(code)) return this.#end(new RoomClosed(code, reason));
    if (code === CLOSE.FUTURE) this.#cursor = new Cursor(); // nobody has what it covers: start over, and say so
    if (this.#paused || globalThis.navigator?.onLine === false) return this.#change("offline", reason || String(code));
    this.#change("connecting", `connecting again: ${reason || code}`);
    const pause = BACKOFF_MS[Math.min(this.#attempt++, BACKOFF_MS.length - 1)];
    this.#timer = setTimeout(() => this.#connect(), pause * (0.5 + Math.random()));
  }

  #end(error) {
    this.#change("closed", error.message);
    for (const { fail } of this.#unsent.values()) fail(error);
    for (const [, fail] of this.#wait.splice(0)) fail(error);
    this.#emit("closed", error);
  }

  /** Leave the room. */
  close() {
    if (this.#welcomed && this.state === "open") { this.#step("leave", ""); this.#sendRows(); }
    globalThis.removeEventListener?.("online", this._online);
    globalThis.removeEventListener?.("offline", this._offline);
    clearTimeout(this.#timer);
    clearTimeout(this.#later);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(1000);
    if (this.state !== "closed") this.#end(new RoomClosed(1000, "closed by this client"));
  }

  #say(word) { this.#socket?.send(JSON.stringify(word)); }

  #change(state, why) {
    if (state === this.state && why === this.why) return;
    this.state = state;
    this.why = why;
    this.#emit("state", this);
  }

  #took() { // the worker sends only so much ahead
    clearTimeout(this.#later);
    this.#later = 0;
    if (this.state !== "open") return;
    this.#say({ t: "took", k: (this.#told = this.#taken) });
    this.#sendRows();
  }

  // -- what the worker says

  #heard(word) {
    if (word.t === "ev") {
      for (const event of word.e) this.#take(event);
      if (this.#taken >= this.#told + TAKE_EVERY) this.#took();
      else this.#later ||= setTimeout(() => this.#took(), TAKE_MS);
    } else if (word.t === "welcome") this.#welcome(word);
    else if (word.t === "here") {
      this.count = word.count;
      this.present = word.e.map(({ c, u, d }) => ({ client: c, user: u, data: d }));
      this.#emit("here", this.present);
    } else if (word.t === "why") this.#change(this.state, word.why);
    else if (word.t === "behind") this.#change(this.state, `${word.lag} events behind`);
    else if (word.t === "rows") this.#rows = this.#rows.filter(([lseq]) => lseq > word.upto);
  }

  #welcome(word) {
    const known = this.me !== "", again = this.state === "open";
    Object.assign(this, { me: word.me, user: word.user, worker: word.worker });
    this.#run = word.run;
    this.#attempt = 0;
    this.#traced = word.traced || !!this.#options.trace;
    if (word.state) {
      this.#install(word.state);
      this.#cursor = new Cursor(word.cursor);
      this.#step("join", word.token);
      for (const number of [...this.#unsent.keys()]) if (number <= word.last) this.#receipt(number); // in the state
    }
    if (!known) for (const number of this.#unsent.keys()) this.#step("publish", `${this.me}/${number}`);
    if (!again) {
      if (this.#here !== null) this.#say({ t: "here", d: this.#here });
      for (const { word } of this.#unsent.values()) this.#say(word);
    }
    this.#welcomed = true;
    if (word.state) this.#emit(known ? "reset" : "start", word.why);
    this.#change("open", "");
    for (const [done] of this.#wait.splice(0)) done(this);
  }

  #install({ registers, counters, documents }) {
    this.registers.clear();
    this._stamps.clear();
    for (const [name, of] of Object.entries(registers)) {
      for (const [key, row] of Object.entries(of)) this.#write(name, key, row[0], row.length > 1, row[1]);
    }
    this.counters = new Map(Object.entries(counters));
    this.documents = new Map(Object.entries(documents).map(([name, text]) => [name, fromBase64(text)]));
  }

  #take(said) {
    this.#cursor.add(said.i);
    this.#taken++;
    const operation = said.o && this.#operated(said.o);
    if (said.again) return; // a copy of a write: only its stamp is new
    this.#step("deliver", `${said.c}/${said.n}`);
    const event = { id: said.i, client: said.c, number: said.n, user: said.u, own: said.c === this.me };
    this.#emit("event", operation ? { ...event, operation } : { ...event, data: said.d });
    if (event.own) this.#receipt(said.n);
  }

  #operated(operation) {
    const [what, name, key, value] = operation;
    if (what === "set") this.#write(name, key, operation[4], true, value);
    else if (what === "del") this.#write(name, key, operation[3], false);
    else if (what === "add") this.counters.set(name, (this.counters.get(name) ?? 0) + key);
    else if (what === "edit") return ["edit", name, fromBase64(key)];
    return what === "set" || what === "del" ? operation.slice(0, -1) : operation;
  }

  #write(name, key, stamp, there, value) { // the greatest stamp wins, as at the workers
    if (!this._stamps.has(name)) { this._stamps.set(name, new Map()); this.registers.set(name, new Map()); }
    const stamps = this._stamps.get(name);
    if (stamps.has(key) && stamps.get(key) >= stamp) return;
    stamps.set(key, stamp);
    if (there) this.registers.get(name).set(key, value);
    else this.registers.get(name).delete(key);
  }

  #receipt(number) {
    const waiting = this.#unsent.get(number);
    this.#unsent.delete(number);
    waiting?.done();
  }

  // -- the trace

  #step(kind, what) {
    if (!this.#traced) return;
    const row = [this.#lseq++, Date.now(), kind, what];
    this.#options.trace?.(row);
    this.#rows.push(row);
    if (this.#rows.length > MAX_ROWS) this.#rows.shift();
  }

  #sendRows() {
    for (let rows; (rows = this.#rows.filter(([lseq]) => lseq > this.#rowsSent).slice(0, 512)).length;) {
      this.#say({ t: "rows", r: rows });
      this.#rowsSent = rows[rows.length - 1][0];
    }
  }
}

/** A URL that may be a path of this page. @param {string} url */
function absolute(url) {
  const found = new URL(url, globalThis.location?.href);
  found.protocol = found.protocol.replace(/^http/, "ws");
  return found.href;
}

/**
 * Join a room: `join("/rooms/lobby", { token })`. With the URLs of several workers it goes on at the next when one is
 * gone.
 * @param {string | string[]} urls @param {Options} [options] @returns {Room}
 */
export function join(urls, options) {
  return new Room(urls, options);
}
