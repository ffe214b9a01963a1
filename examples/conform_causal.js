// Causal broadcast with vector clocks over FIFO links, in JavaScript: a second example for the conformance kit.
//
//     whence conform -- node examples/conform_causal.js
//
// The simplest system that is right about order. It knows its peers from the beginning and never repeats a message, so
// it claims no more than order over links that are slow but lose nothing: the other scenarios are "not supported".
"use strict";

let me;
let peers = [];
let messages = 0;
const clock = {}; // node -> how many of its events are delivered here
let held = []; // events that wait for others

function send(dest, body) {
  process.stdout.write(JSON.stringify({ src: me, dest, body }) + "\n");
}

function deliver(event) {
  clock[event.node] = event.n;
  send("c1", { type: "delivered", id: `${event.node}/${event.n}`, value: event.value });
}

function ready(event) {
  const needs = { ...event.needs, [event.node]: event.n - 1 };
  return Object.entries(needs).every(([node, n]) => (clock[node] ?? 0) >= n);
}

function drain() {
  for (let next; (next = held.find(ready)) !== undefined; ) {
    held = held.filter((event) => event !== next);
    deliver(next);
  }
}

const handlers = {
  init(body) {
    me = body.node_id;
    peers = body.node_ids.filter((node) => node !== me);
    return { type: "init_ok", features: ["fifo", "causal", "reliable"] };
  },
  publish(body) {
    const event = { node: me, n: (clock[me] ?? 0) + 1, needs: { ...clock }, value: body.value };
    deliver(event);
    peers.forEach((peer) => send(peer, { type: "event", event }));
    return { type: "publish_ok", id: `${me}/${event.n}` };
  },
  echo(body) {
    return { type: "echo_ok", echo: body.echo };
  },
  event(body) {
    held.push(body.event);
    drain();
  },
};

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { src, body } = JSON.parse(line);
    const reply = handlers[body.type](body);
    if (reply) send(src, { ...reply, msg_id: ++messages, in_reply_to: body.msg_id });
  });
