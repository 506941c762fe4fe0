// The time line of a report: hover for what an event is and why it waits, zoom, filter rows, light the critical path.
"use strict";
(() => {
  const ROW_PX = 18, NAMES_PX = 130, AXIS_PX = 22, NEAR_PX = 3;
  const byId = (name) => document.getElementById(`explorer-${name}`);
  const data = JSON.parse(byId("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const start = new Float64Array(bytes(data.start)), end = new Float64Array(bytes(data.end));
  const idle = new Float64Array(bytes(data.idle)), cause = new Int32Array(bytes(data.cause));
  const first = new Int32Array(bytes(data.first)); // of each row: where its events begin; they are sorted by start
  const kind = new Uint8Array(bytes(data.kind)), reason = new Uint8Array(bytes(data.reason));
  const critical = new Uint8Array(bytes(data.critical));
  const rowOf = new Int32Array(start.length);
  for (let row = 0; row + 1 < first.length; row++) rowOf.fill(row, first[row], first[row + 1]);

  const canvas = byId("canvas"), scroll = byId("scroll"), spacer = byId("spacer"), tip = byId("tip");
  const pen = canvas.getContext("2d");
  const all = { from: 0, until: data.until_s || 1 };
  let view = { ...all }, rows = data.rows.map((_, row) => row), selected = -1, hovered = -1, isWaiting = false;

  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
  const words = (time_s) => {
    const [scale, unit] = units.find(([size]) => Math.abs(time_s) >= size) || (time_s ? units[3] : units[0]);
    return `${Number((time_s / scale).toPrecision(5))} ${unit}`;
  };
  const nameOf = (event) => `${data.names[event] || data.kinds[kind[event]]} (${data.rows[rowOf[event]]})`;
  const why = (event) => {
    const other = cause[event] < 0 ? "the start" : nameOf(cause[event]);
    return [
      "starts at once",
      `waits for what it reads, from ${other}`,
      `waits until its place is free, held by ${other}`,
      `could start ${words(idle[event])} earlier, after ${other}: the plan lets it wait`,
    ][reason[event]];
  };
  const about = (event) => [
    `${data.names[event] || data.kinds[kind[event]]}: ${data.kinds[kind[event]]} on ${data.rows[rowOf[event]]}`,
    `${words(start[event])} to ${words(end[event])}, ${words(end[event] - start[event])}`,
    why(event),
    ...(critical[event] ? ["on the critical path"] : []),
  ];

  let widthPx = 1; // measured once a drawing: to ask for each event would lay the page out for each
  const measure = () => { widthPx = Math.max(canvas.clientWidth - NAMES_PX, 1); };
  const width = () => widthPx;
  const xOf = (time_s) => NAMES_PX + ((time_s - view.from) / (view.until - view.from)) * width();
  const timeAt = (x) => view.from + ((x - NAMES_PX) / width()) * (view.until - view.from);
  const colour = (name) => getComputedStyle(byId("root")).getPropertyValue(name);

  // The first event of a row that ends after a time: rows are exclusive, so ends ascend with starts.
  const firstAfter = (row, time_s) => {
    let low = first[row], high = first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[middle] > time_s) high = middle; else low = middle + 1;
    }
    return low;
  };

  // Draws the events of a row, and counts the bars: with many events, as few as there are pixels.
  const bars = (row, y, isLit, wanted) => {
    let lastPx = -1, lastKind = -1, count = 0;
    for (let event = firstAfter(row, view.from); event < first[row + 1] && start[event] < view.until; event++) {
      if (isLit && critical[event] !== wanted) continue;
      const left = Math.max(xOf(start[event]), NAMES_PX), right = Math.min(xOf(end[event]), NAMES_PX + width());
      if (right - left < 1) { // narrower than a pixel: one bar for all of a kind that fall into it
        const pixel = Math.floor(left);
        if (pixel === lastPx && kind[event] === lastKind) continue;
        [lastPx, lastKind] = [pixel, kind[event]];
      }
      count += 1;
      pen.fillStyle = data.colours[kind[event]];
      pen.fillRect(left, y + 2, Math.max(right - left - (right - left > 4 ? 0.5 : 0), 1), ROW_PX - 4);
      if (event === selected || event === hovered) {
        pen.strokeStyle = colour("--ink");
        pen.lineWidth = 2;
        pen.strokeRect(left, y + 2, Math.max(right - left, 1), ROW_PX - 4);
      }
    }
    return count;
  };

  const ticks = (height) => {
    const span = view.until - view.from, rough = span / Math.max(width() / 90, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    pen.fillStyle = pen.strokeStyle = colour("--pale-ink");
    pen.lineWidth = 0.5;
    for (let time_s = Math.ceil(view.from / step) * step; time_s <= view.until; time_s += step) {
      const name = words(Math.abs(time_s) < step / 1e6 ? 0 : time_s), x = xOf(time_s) + 2;
      if (x + pen.measureText(name).width <= NAMES_PX + width()) pen.fillText(name, x, 14);  // a cut number misleads
      pen.beginPath(); pen.moveTo(xOf(time_s), 0); pen.lineTo(xOf(time_s), height); pen.stroke();
    }
  };

  const draw = () => {
    measure();
    isWaiting = false;
    const height = scroll.clientHeight, scale = window.devicePixelRatio || 1;
    spacer.style.height = `${Math.max(AXIS_PX + rows.length * ROW_PX - height, 0)}px`;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(canvas.clientWidth * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(canvas.clientWidth * scale);
      canvas.height = Math.round(height * scale);
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, canvas.clientWidth, height);
    pen.font = "11px system-ui, sans-serif";
    ticks(height);
    const top = Math.floor(scroll.scrollTop / ROW_PX), isLit = byId("critical").checked;
    let count = 0;
    for (let place = top; place < rows.length; place++) {
      const y = AXIS_PX + (place - top) * ROW_PX;
      if (y > height) break;
      pen.globalAlpha = isLit ? 0.2 : 1;
      count += bars(rows[place], y, isLit, 0);
      pen.globalAlpha = 1;
      if (isLit) count += bars(rows[place], y, isLit, 1);
      pen.fillStyle = colour("--ink");
      pen.fillText(data.rows[rows[place]], 2, y + 13, NAMES_PX - 6);
    }
    canvas.dataset.bars = count;
    canvas.dataset.from = view.from;
    canvas.dataset.until = view.until;
  };
  const redraw = () => {
    if (!isWaiting) { isWaiting = true; requestAnimationFrame(draw); }
  };

  const eventAt = (x, y) => {
    const place = Math.floor(scroll.scrollTop / ROW_PX) + Math.floor((y - AXIS_PX) / ROW_PX);
    if (y < AXIS_PX || x < NAMES_PX || place >= rows.length) return -1;
    const row = rows[place], slack = ((view.until - view.from) * NEAR_PX) / width();
    const event = firstAfter(row, timeAt(x) - slack);
    return event < first[row + 1] && start[event] <= timeAt(x) + slack ? event : -1;
  };
  const zoom = (factor, at) => {
    const span = Math.min((view.until - view.from) * factor, all.until - all.from);
    const share = (at - view.from) / (view.until - view.from);
    const from = Math.min(Math.max(at - share * span, all.from), all.until - span);
    view = { from, until: from + span };
    redraw();
  };
  const middle = () => (view.from + view.until) / 2;
  const pan = (share) => {
    const step = share * (view.until - view.from), span = view.until - view.from;
    const from = Math.min(Math.max(view.from + step, all.from), all.until - span);
    view = { from, until: from + span };
    redraw();
  };
  const select = (event) => {
    selected = event;
    const lines = event < 0 ? ["Click an event to keep what is said of it."] : about(event);
    byId("about").replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    byId("cause").disabled = event < 0 || cause[event] < 0;
    redraw();
  };
  const show = (event) => { // where it is: its row in sight, its time in the middle
    byId("filter").value = "";
    filter();
    scroll.scrollTop = Math.max(rows.indexOf(rowOf[event]) * ROW_PX - scroll.clientHeight / 2, 0);
    const span = view.until - view.from, from = (start[event] + end[event]) / 2 - span / 2;
    view.from = Math.min(Math.max(from, all.from), all.until - span);
    view.until = view.from + span;
    select(event);
  };
  const filter = () => {
    const wanted = byId("filter").value.trim().toLowerCase();
    rows = data.rows.map((_, row) => row).filter((row) => data.rows[row].toLowerCase().includes(wanted));
    byId("count").textContent = `${rows.length} of ${data.rows.length} rows`;
    redraw();
  };

  canvas.addEventListener("mousemove", (move) => {
    if (move.buttons === 1) { pan(-move.movementX / width()); return; }
    const event = eventAt(move.offsetX, move.offsetY);
    if (event !== hovered) { hovered = event; redraw(); }
    tip.hidden = event < 0;
    if (event < 0) return;
    tip.textContent = about(event).join("\n");
    const box = byId("root").getBoundingClientRect();
    tip.style.left = `${Math.min(move.clientX - box.left + 14, Math.max(box.width - 300, 0))}px`;
    tip.style.top = `${move.clientY - box.top + 14}px`;
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; hovered = -1; redraw(); });
  canvas.addEventListener("click", (click) => select(eventAt(click.offsetX, click.offsetY)));
  canvas.addEventListener("wheel", (wheel) => {
    if (!wheel.ctrlKey && !wheel.metaKey) return; // a plain wheel scrolls the rows
    wheel.preventDefault();
    zoom(wheel.deltaY > 0 ? 1.25 : 0.8, timeAt(wheel.offsetX));
  }, { passive: false });
  canvas.addEventListener("keydown", (key) => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5, middle()), "-": () => zoom(2, middle()) }[key.key];
    if (act) { key.preventDefault(); act(); }
  });
  byId("in").addEventListener("click", () => zoom(0.5, middle()));
  byId("out").addEventListener("click", () => zoom(2, middle()));
  byId("all").addEventListener("click", () => { view = { ...all }; redraw(); });
  byId("critical").addEventListener("change", redraw);
  byId("filter").addEventListener("input", filter);
  byId("cause").addEventListener("click", () => show(cause[selected]));
  scroll.addEventListener("scroll", redraw);
  window.addEventListener("resize", redraw);
  byId("root").hidden = false;
  filter();
  select(-1);
})();
