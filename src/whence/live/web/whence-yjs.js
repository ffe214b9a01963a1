// A Yjs provider over a room: any editor with a Yjs binding works.
//
//   import * as Y from "yjs";
//   const room = join("/rooms/lobby", { token });
//   const provider = new WhenceProvider(Y, room, "notes", doc, { awareness });
//   await provider.synced;
//
// Edits are published in causal order, offline ones when the connection is back. `awareness` (y-protocols) travels with
// `room.here`; it is optional.

const MERGE_MS = 20; // what is typed meanwhile becomes one update

export class WhenceProvider {
  /**
   * @param {typeof import("yjs")} Y Your Yjs: two copies of it do not understand each other.
   * @param {import("./whence.js").Room} room
   * @param {string} name The document's name in the room.
   * @param {import("yjs").Doc} doc
   * @param {{ awareness?: any }} [options]
   */
  constructor(Y, room, name, doc, { awareness } = {}) {
    Object.assign(this, { Y, room, name, doc, awareness });
    this._updates = [];
    this._timer = 0;
    /** Edits that are not held by the workers yet. */
    this.pending = 0;
    this._edited = (update, origin) => {
      if (origin === this) return;
      this._updates.push(update);
      this._timer ||= setTimeout(() => this.flush(), MERGE_MS);
    };
    doc.on("update", this._edited);
    this._ends = [
      room.on("event", ({ operation, own }) => {
        if (!own && operation?.[0] === "edit" && operation[1] === name) Y.applyUpdate(doc, operation[2], this);
      }),
      room.on("reset", () => this._start()),
    ];
    /** Resolves when the document is here. @type {Promise<void>} */
    this.synced = room.ready.then(() => this._start());
    if (awareness) this._share(awareness);
  }

  /** Take the workers' state, and give them what they lack. */
  _start() {
    const { Y, doc, room, name } = this;
    const theirs = room.documents.get(name);
    if (theirs) Y.applyUpdate(doc, theirs, this);
    const lacks = Y.encodeStateAsUpdate(doc, theirs && Y.encodeStateVectorFromUpdate(theirs));
    if (lacks.length > 2) this._publish(lacks);
  }

  /** Publish what was typed, now. */
  flush() {
    clearTimeout(this._timer);
    this._timer = 0;
    if (this._updates.length) this._publish(this.Y.mergeUpdates(this._updates.splice(0)));
  }

  _publish(update) {
    this.pending++;
    const done = () => { this.pending--; };
    this.room.edit(this.name, update).then(done, done); // the room says why it is closed
  }

  _share(awareness) {
    const mine = awareness.clientID;
    const tell = (_changes, origin) => {
      if (origin !== this) this.room.here({ id: mine, state: awareness.getLocalState() });
    };
    awareness.on("update", tell);
    const hear = (present) => {
      const states = new Map(present.filter(({ data }) => data?.id !== undefined).map(({ data }) => [data.id, data.state]));
      states.delete(mine);
      const removed = [...awareness.states.keys()].filter((id) => id !== mine && !states.has(id));
      const added = [...states.keys()].filter((id) => !awareness.states.has(id));
      const updated = [...states.keys()].filter((id) => !added.includes(id));
      for (const id of removed) awareness.states.delete(id);
      for (const [id, state] of states) awareness.states.set(id, state);
      awareness.emit("change", [{ added, updated, removed }, this]);
    };
    this._ends.push(this.room.on("here", hear), () => awareness.off("update", tell));
    tell();
  }

  /** Publish what is left, and follow no more. The room stays open. */
  destroy() {
    this.flush();
    this.doc.off("update", this._edited);
    for (const end of this._ends) end();
  }
}
