"use strict";
// The space-time diagram. A step is a publish or a delivery; the columns are one entry a step, life after life, each life
// in its own order. Only what is in view is drawn, and never two steps on one pixel: so 10^5 steps pan without a stutter.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const eventOf = new Uint32Array(bytes(data.event).buffer);
  const at = new Float32Array(bytes(data.at_ms).buffer);
  const held = new Float32Array(bytes(data.held_ms).buffer);
  const flags = bytes(data.flags);
  const N = data.steps, E = data.events.length;
  const RECOVERED = 1, SKIPPED = 2, WRONG = 32;
  const verdictOf = (s) => data.verdicts[(flags[s] >> 2) & 7];
  const inOrder = (s) => verdictOf(s) === "in order";
  const lifeOf = new Uint32Array(N);
  data.lives.forEach((life, i) => lifeOf.fill(i, life.first, life.last));
  const publishOf = new Int32Array(E).fill(-1);
  const count = new Uint32Array(E + 1);
  for (let s = 0; s < N; s++) {
    const e = eventOf[s];
    if (held[s] >= 0) count[e + 1]++;
    else if (publishOf[e] < 0 || at[s] < at[publishOf[e]]) publishOf[e] = s; // an id that is used again is still the first event
  }
  for (let e = 0; e < E; e++) count[e + 1] += count[e];
  const deliveries = new Uint32Array(count[E]), filled = count.slice();
  for (let s = 0; s < N; s++) if (held[s] >= 0) deliveries[filled[eventOf[s]]++] = s;
  const deliveriesOf = (e) => deliveries.subarray(count[e], count[e + 1]);
  const byTime = Array.from({ length: E }, (_, e) => e).filter((e) => publishOf[e] >= 0).sort((a, b) => at[publishOf[a]] - at[publishOf[b]]);
  // A gap or an inversion breaks a promise, or it does not: the judge knows which order allows it.
  const wrong = (s) => (flags[s] & WRONG) > 0;
  const suspect = (s) => !inOrder(s) && verdictOf(s) !== "after a gap";
  const suspects = [];
  for (let s = 0; s < N; s++) if (suspect(s)) suspects.push(s);
  suspects.sort((a, b) => wrong(b) - wrong(a) || at[a] - at[b]);
  let end = 0;
  for (let s = 0; s < N; s++) if (at[s] > end) end = at[s];
  end ||= 1;

  // -- happened-before, from the steps alone ---------------------------------------------------------------------------

  // What had happened at a life after its first `upto` steps, and at whom it learnt from: each life is walked once.
  function past(chosen) {
    const mark = new Uint8Array(E), seen = new Int32Array(data.lives.length), todo = [];
    const reach = (life, upto) => { if (upto > seen[life]) todo.push([life, upto]); };
    const start = publishOf[chosen];
    if (start >= 0) reach(lifeOf[start], start - data.lives[lifeOf[start]].first);
    while (todo.length) {
      const [life, upto] = todo.pop(), { first, base } = data.lives[life];
      if (seen[life] === 0 && base) reach(base[0], base[1]);
      for (let s = first + seen[life]; s < first + upto; s++) {
        const e = eventOf[s];
        if (mark[e]) continue;
        mark[e] = 1;
        const p = publishOf[e];
        if (p >= 0) reach(lifeOf[p], p - data.lives[lifeOf[p]].first);
      }
      seen[life] = Math.max(seen[life], upto);
    }
    mark[chosen] = 0;
    return mark;
  }

  // Whoever has it: all they publish afterwards.
  function future(chosen) {
    const mark = new Uint8Array(E), since = data.lives.map((life) => life.last), todo = [chosen];
    while (todo.length) {
      const e = todo.pop();
      for (const s of [publishOf[e], ...deliveriesOf(e)]) if (s >= 0) spread(lifeOf[s], s);
    }
    function spread(life, s) {
      for (let i = s + 1; i < since[life]; i++) {
        const e = eventOf[i];
        if (publishOf[e] === i && !mark[e]) { mark[e] = 1; todo.push(e); }
      }
      if (s >= since[life]) return;
      since[life] = s;
      data.lives.forEach((other, i) => {
        if (other.base && other.base[0] === life && data.lives[life].first + other.base[1] > s) spread(i, other.first - 1);
      });
    }
    mark[chosen] = 0;
    return mark;
  }

  // -- the view ------------------------------------------------------------------------------------------------------------

  const canvas = document.getElementById("diagram"), pen = canvas.getContext("2d");
  const told = document.getElementById("told"), box = document.getElementById("chosen");
  const AXIS = 24;
  let gutter = 90, lane = 22, width = 0, height = 0, view = { from: 0, to: end * 1.02 }, top = 0;
  let chosen = -1, before = null, after = null, focus = -1, colours = {};
  const lanes = data.lanes.length;
  const x = (ms) => gutter + (ms - view.from) / (view.to - view.from) * (width - gutter);
  const y = (l) => AXIS + (l + 0.5) * lane - top;
  const ms = (px) => view.from + (px - gutter) / (width - gutter) * (view.to - view.from);

  function resize() {
    const style = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
    for (const name of ["card", "ink", "soft", "rule", "publish", "deliver", "held", "recovered", "past", "future", "wrong", "gap"])
      colours[name] = style.getPropertyValue("--" + name).trim();
    width = canvas.clientWidth;
    pen.font = "12px system-ui, sans-serif";
    gutter = Math.min(width * 0.28, 16 + Math.max(0, ...data.lanes.map((name) => pen.measureText(name).width)));
    lane = lanes > 60 ? 14 : 22;
    // On a touch screen the page scrolls up and down, so all lanes are there at once.
    const touched = matchMedia("(pointer: coarse)").matches || navigator.maxTouchPoints > 0;
    const room = touched ? 1600 : Math.max(260, window.innerHeight * 0.7);
    height = Math.min(AXIS + lanes * lane + 8, room);
    canvas.style.height = height + "px";
    canvas.width = width * ratio; canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "12px system-ui, sans-serif";
    clamp();
  }

  function clamp() {
    const span = Math.min(Math.max(view.to - view.from, Math.min(0.02, end / 100)), end * 1.1);
    view.from = Math.min(Math.max(view.from, -span * 0.1), end * 1.02 - span * 0.5);
    view.to = view.from + span;
    top = Math.max(0, Math.min(top, AXIS + lanes * lane + 8 - height));
    if (!queued) { queued = true; requestAnimationFrame(paint); }
  }

  // The first step of a life at or after a time. Clocks may jump: a little before is looked at, too.
  function firstAt(life, t) {
    let low = life.first, high = life.last;
    while (low < high) { const middle = (low + high) >> 1; if (at[middle] < t) low = middle + 1; else high = middle; }
    return low;
  }

  function colourOf(s) {
    const e = eventOf[s];
    if (suspect(s)) return wrong(s) ? "wrong" : "gap";
    if (chosen >= 0) {
      if (e === chosen) return "ink";
      if (before[e]) return "past";
      if (after[e]) return "future";
      return "rule";
    }
    if (held[s] < 0) return "publish";
    return flags[s] & RECOVERED ? "recovered" : "deliver";
  }

  let queued = false;
  function paint() {
    queued = false;
    pen.fillStyle = colours.card; pen.fillRect(0, 0, width, height);
    axis();
    let visible = 0;
    const ranges = data.lives.map((life) => {
      const a = firstAt(life, view.from), b = firstAt(life, view.to);
      visible += b - a;
      return [Math.max(life.first, a - 1), Math.min(life.last, b + 1)];
    });
    pen.save();
    pen.beginPath(); pen.rect(gutter, AXIS, width - gutter, height - AXIS); pen.clip();
    rails();
    if (visible < 4000 && chosen < 0) messages(ranges);
    const buckets = {};
    data.lives.forEach((life, i) => {
      const row = y(life.lane);
      if (row < AXIS - lane || row > height + lane) return;
      let lastPixel = -9, lastColour = "";
      for (let s = ranges[i][0]; s < ranges[i][1]; s++) {
        const px = x(at[s]), colour = colourOf(s);
        if (Math.abs(px - lastPixel) < 1 && (colour === lastColour || colour === "rule")) continue;
        lastPixel = px; lastColour = colour;
        (buckets[colour] ||= []).push(s);
        if (visible < 4000 && held[s] > 0) {
          const w = held[s] / (view.to - view.from) * (width - gutter);
          if (w > 1.5) { pen.fillStyle = colours.held; pen.globalAlpha = 0.55; pen.fillRect(px - w, row - 2, w, 4); pen.globalAlpha = 1; }
        }
      }
    });
    const small = visible > 4000;
    for (const colour of ["rule", "deliver", "recovered", "publish", "past", "future", "ink", "gap", "wrong"]) {
      pen.fillStyle = colours[colour];
      for (const s of buckets[colour] || []) dot(s, small && colour !== "wrong" && colour !== "gap" && colour !== "ink");
    }
    if (chosen >= 0) tree(chosen);
    if (focus >= 0) { pen.strokeStyle = colours.ink; pen.lineWidth = 2; pen.beginPath(); pen.arc(x(at[focus]), y(data.lives[lifeOf[focus]].lane), 8, 0, 7); pen.stroke(); }
    pen.restore();
    names();
  }

  function dot(s, small) {
    const px = x(at[s]), row = y(data.lives[lifeOf[s]].lane), size = held[s] < 0 ? 4.5 : 3;
    if (small) { pen.fillRect(px - 1, row - size, 2, size * 2); return; }
    pen.beginPath(); pen.arc(px, row, size, 0, 7); pen.fill();
    if (held[s] < 0) { pen.lineWidth = 1.5; pen.strokeStyle = pen.fillStyle; pen.beginPath(); pen.arc(px, row, size + 2, 0, 7); pen.stroke(); }
  }

  function rails() {
    pen.strokeStyle = colours.rule; pen.lineWidth = 1;
    for (const life of data.lives) {
      pen.beginPath(); pen.moveTo(x(life.begin_ms), y(life.lane)); pen.lineTo(x(life.end_ms), y(life.lane)); pen.stroke();
    }
  }

  function messages(ranges) {
    pen.lineWidth = 1; pen.globalAlpha = 0.22; pen.strokeStyle = colours.soft;
    pen.beginPath();
    ranges.forEach(([a, b]) => {
      for (let s = a; s < b; s++) {
        const p = publishOf[eventOf[s]];
        if (held[s] < 0 || p < 0 || lifeOf[p] === lifeOf[s]) continue;
        pen.moveTo(x(at[p]), y(data.lives[lifeOf[p]].lane));
        pen.lineTo(x(at[s] - held[s]), y(data.lives[lifeOf[s]].lane));
      }
    });
    pen.stroke(); pen.globalAlpha = 1;
  }

  // The chosen event's way to everybody: to where it arrived, and on to where it was delivered.
  function tree(e) {
    const p = publishOf[e];
    pen.lineWidth = 1.5;
    for (const s of deliveriesOf(e)) {
      const row = y(data.lives[lifeOf[s]].lane), arrived = x(at[s] - held[s]);
      pen.strokeStyle = colours[flags[s] & RECOVERED ? "recovered" : "ink"];
      if (p >= 0 && lifeOf[p] !== lifeOf[s]) {
        pen.beginPath(); pen.moveTo(x(at[p]), y(data.lives[lifeOf[p]].lane)); pen.lineTo(arrived, row); pen.stroke();
      }
      if (held[s] > 0) { pen.fillStyle = colours.held; pen.fillRect(arrived, row - 3, Math.max(1, x(at[s]) - arrived), 6); }
      pen.fillStyle = colours[colourOf(s)];
      dot(s, false);
    }
    if (p >= 0) { pen.fillStyle = colours.ink; dot(p, false); }
  }

  function names() {
    pen.fillStyle = colours.card; pen.fillRect(0, AXIS, gutter - 4, height);
    pen.fillStyle = colours.ink; pen.textAlign = "right"; pen.textBaseline = "middle";
    data.lanes.forEach((name, l) => {
      const row = y(l);
      if (row < AXIS || row > height) return;
      let text = name;
      while (text.length > 3 && pen.measureText(text).width > gutter - 12) text = "…" + text.slice(2); // their ends differ
      pen.fillText(text, gutter - 8, row);
    });
  }

  function axis() {
    const span = view.to - view.from, raw = span / Math.max(2, (width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
    pen.strokeStyle = colours.rule; pen.fillStyle = colours.soft; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.lineWidth = 1;
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const px = x(t);
      if (px < gutter) continue;
      pen.beginPath(); pen.moveTo(px, AXIS - 4); pen.lineTo(px, height); pen.stroke();
      const [unit, much] = span > 4000 ? ["s", 1000] : span > 0.004 ? ["ms", 1] : span > 4e-6 ? ["µs", 1e-3] : ["ns", 1e-6];
      pen.fillText(+(t / much).toFixed(3) + " " + unit, px, 11);
    }
  }

  // -- choosing ----------------------------------------------------------------------------------------------------------

  const time = (t) => t >= 1000 ? (t / 1000).toFixed(3) + " s" : t >= 0.1 || !t ? t.toFixed(1) + " ms" : +(t * 1e6).toFixed(1) + " ns";

  function choose(e, step) {
    chosen = e; focus = step ?? -1;
    box.textContent = "";
    if (e < 0) { told.textContent = "No event is chosen."; clamp(); return; }
    before = past(e); after = future(e);
    const sum = (mask) => mask.reduce((a, b) => a + b, 0), a = sum(before), b = sum(after), p = publishOf[e];
    let concurrent = E - 1;
    for (let i = 0; i < E; i++) if (before[i] || after[i]) concurrent--;
    const who = p >= 0 ? `published by ${data.lives[lifeOf[p]].name} at ${time(at[p])}` : "published outside this part of the run";
    let text = `${data.events[e]}: ${who}. ${a} ${a === 1 ? "event" : "events"} in its past, ${b} in its future, ${concurrent} concurrent.`;
    if (step >= 0) text += " " + story(step);
    told.textContent = text;
    canvas.setAttribute("aria-label", "Space-time diagram. " + text);
    list(e);
    clamp();
  }

  // A wrong delivery in words: what it was delivered after, or what it skipped.
  function story(s) {
    const verdict = verdictOf(s), life = data.lives[lifeOf[s]];
    if (inOrder(s)) return "";
    if (verdict === "duplicate") return `${life.name} delivered this a second time.`;
    if (verdict === "unknown") return `${life.name} delivered this, and nobody had published it.`;
    const allowed = wrong(s) || verdict === "after a gap" ? "" : ` It asked for ${life.order} order, which allows that.`;
    let why = `Delivered ${verdict} at ${life.name}.${allowed}`;
    if (verdict === "inverted") {
      const effect = [];
      for (let i = life.first; i < s; i++) if (after[eventOf[i]]) effect.push(data.events[eventOf[i]]);
      if (effect.length) why = `${life.name} delivered ${effect[0]} first, and only then this, its cause: inverted.${allowed}`;
    }
    if (verdict === "over a gap") {
      const have = new Set();
      for (let i = life.first; i < s; i++) have.add(eventOf[i]);
      for (let e = 0; e < E; e++) if (before[e] && !have.has(e)) return `${life.name} delivered this without ${data.events[e]}, which is in its past.${allowed}`;
    }
    return why;
  }

  function list(e) {
    const table = document.createElement("table");
    const row = (cells, tag) => {
      const tr = table.insertRow();
      for (const cell of cells) { const td = document.createElement(tag); td.textContent = cell; if (tag === "th") td.scope = "col"; tr.append(td); }
    };
    row(["member", "delivered", "after", "held", "how"], "th");
    const p = publishOf[e];
    for (const s of deliveriesOf(e)) {
      const how = [verdictOf(s)];
      if (flags[s] & RECOVERED) how.push("recovered");
      if (flags[s] & SKIPPED) how.push("something before it was given up");
      row([data.lives[lifeOf[s]].name, time(at[s]), p >= 0 ? time(at[s] - at[p]) : "", held[s] > 0 ? time(held[s]) : "", how.join(", ")], "td");
    }
    box.append(table);
  }

  function bring(s) {
    const span = view.to - view.from, row = y(data.lives[lifeOf[s]].lane);
    if (at[s] < view.from || at[s] > view.to) { view.from = at[s] - span / 2; view.to = view.from + span; }
    if (row < AXIS + lane || row > height - lane) top += row - height / 2;
  }

  function walk(step) {
    if (!byTime.length) return;
    const here = byTime.indexOf(chosen);
    const e = byTime[here < 0 ? (step > 0 ? 0 : byTime.length - 1) : Math.min(byTime.length - 1, Math.max(0, here + step))];
    bring(publishOf[e]); choose(e);
  }

  let suspectAt = -1;
  function nextSuspect() {
    if (!suspects.length) { told.textContent = "There is no violation and no gap in the diagram."; return; }
    suspectAt = (suspectAt + 1) % suspects.length;
    const s = suspects[suspectAt], span = Math.min(view.to - view.from, Math.max(50, held[s] * 8));
    view.from = at[s] - span * 0.6; view.to = view.from + span;
    bring(s); choose(eventOf[s], s);
  }

  function zoom(factor, centre) {
    const t = centre === undefined ? (view.from + view.to) / 2 : ms(centre);
    view.from = t - (t - view.from) * factor; view.to = t + (view.to - t) * factor;
    clamp();
  }

  function pan(dx, dy) {
    const shift = dx / (width - gutter) * (view.to - view.from);
    view.from -= shift; view.to -= shift; top -= dy;
    clamp();
  }

  function pick(px, py) {
    let best = -1, near = 14 * 14;
    data.lives.forEach((life) => {
      const dy = y(life.lane) - py;
      if (dy * dy > near) return;
      for (let s = Math.max(life.first, firstAt(life, ms(px - 15)) - 2); s < Math.min(life.last, firstAt(life, ms(px + 15)) + 2); s++) {
        const dx = x(at[s]) - px, d = dx * dx + dy * dy - (held[s] < 0 ? 9 : 0);
        if (d < near) { near = d; best = s; }
      }
    });
    if (best >= 0) choose(eventOf[best], best); else choose(-1);
  }

  // -- hands ---------------------------------------------------------------------------------------------------------------

  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (ev) => { canvas.setPointerCapture(ev.pointerId); fingers.set(ev.pointerId, ev); moved = 0; });
  canvas.addEventListener("pointermove", (ev) => {
    const old = fingers.get(ev.pointerId);
    if (!old) return;
    const dx = ev.clientX - old.clientX, dy = ev.clientY - old.clientY;
    moved += Math.abs(dx) + Math.abs(dy);
    if (fingers.size === 1) pan(dx, dy);
    else {
      const other = [...fingers.values()].find((f) => f.pointerId !== ev.pointerId), left = canvas.getBoundingClientRect().left;
      const was = Math.abs(old.clientX - other.clientX), is = Math.abs(ev.clientX - other.clientX);
      if (was > 10 && is > 10) zoom(was / is, (ev.clientX + other.clientX) / 2 - left);
    }
    fingers.set(ev.pointerId, ev);
  });
  const lift = (ev) => {
    if (fingers.delete(ev.pointerId) && ev.type === "pointerup" && moved < 6) {
      const r = canvas.getBoundingClientRect();
      pick(ev.clientX - r.left, ev.clientY - r.top);
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (ev) => {
    ev.preventDefault();
    if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) pan(-(ev.deltaX || ev.deltaY), 0);
    else zoom(Math.exp(ev.deltaY * 0.0015), ev.clientX - canvas.getBoundingClientRect().left);
  }, { passive: false });
  canvas.addEventListener("keydown", (ev) => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
    const keys = {
      ArrowLeft: () => pan(80, 0), ArrowRight: () => pan(-80, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: everything, n: () => walk(1), p: () => walk(-1), v: nextSuspect,
      Escape: () => choose(-1),
    };
    const act = keys[ev.key];
    if (act) { ev.preventDefault(); act(); }
  });
  function everything() { view = { from: -end * 0.01, to: end * 1.02 }; top = 0; clamp(); }
  document.getElementById("closer").onclick = () => zoom(0.6);
  document.getElementById("farther").onclick = () => zoom(1.6);
  document.getElementById("all").onclick = everything;
  document.getElementById("next").onclick = () => walk(1);
  document.getElementById("previous").onclick = () => walk(-1);
  const find = document.getElementById("find"), ids = document.getElementById("ids");
  for (const e of byTime.slice(0, 500)) { const option = document.createElement("option"); option.value = data.events[e]; ids.append(option); }
  find.addEventListener("change", () => show(find.value.trim(), ""));
  function show(id, member) {
    const e = data.events.indexOf(id);
    if (e < 0) { told.textContent = `${id} is not in the diagram.`; return; }
    let s = publishOf[e];
    for (const d of deliveriesOf(e)) if (data.lives[lifeOf[d]].name === member && (s === publishOf[e] || !inOrder(d))) s = d;
    if (s < 0) s = deliveriesOf(e)[0];
    if (member && s >= 0) { const span = Math.min(view.to - view.from, 2000); view.from = at[s] - span * 0.7; view.to = view.from + span; }
    if (s >= 0) bring(s);
    choose(e, s);
  }
  for (const button of document.querySelectorAll(".show")) {
    button.addEventListener("click", () => {
      show(button.dataset.event, button.dataset.member);
      told.textContent = `${button.parentElement.firstElementChild.nextSibling.textContent.trim()}. ${told.textContent}`;
      document.getElementById("diagram-section").scrollIntoView({ block: "start" });
      canvas.focus({ preventScroll: true });
    });
  }
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);
  resize(); everything();
})();
