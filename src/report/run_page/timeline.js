// The steps along time: as much of them as is looked at, drawn anew when that changes.
(() => {
  "use strict";
  const source = document.getElementById("timeline-data"), player = document.getElementById("timeline-player");
  if (!source || !player) return;
  const replicas = JSON.parse(source.textContent).map(({grain, bars}) => {
    let at = 0;
    return {grain, bars: bars.map(([step, planned, host, wait, span, gpu, prefill, decode, requests, preempted, steps]) => {
      at += step;
      return {at, planned: at + planned, host, start: at + wait, end: at + wait + span, gpu, prefill, decode, requests, preempted, steps};
    })};
  });
  const make = (tag, attributes, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };
  const button = (text, title, onclick) => make("button", {type: "button", textContent: text, title, ariaLabel: title, onclick});
  const canvas = make("canvas", {id: "timeline-canvas", tabIndex: 0, role: "img", ariaLabel: "Steps of the host and of the GPU along time. The table below has the slowest."});
  const chosen = make("select", {id: "timeline-replica"}, ...replicas.map((_, index) => new Option(index, index)));
  player.append(
    make("div", {className: "timeline-bar"},
      make("div", {}, ...[["host", "host plans"], ["prefill", "prefill"], ["both", "prefill and decode"], ["decode", "decode"], ["preempted", "preemption"]]
        .map(([kind, textContent]) => make("span", {className: `timeline-key ${kind}`, textContent}))),
      make("div", {className: "timeline-buttons"}, ...(replicas.length > 1 ? [make("label", {}, "Replica ", chosen)] : []),
        button("+", "Zoom in", () => zoom(.5)), button("−", "Zoom out", () => zoom(2)), button("whole run", "Show the whole run", () => look(...whole)))),
    make("div", {className: "timeline-view"}, canvas),
    make("p", {className: "timeline-hint", textContent: `${player.dataset.grain} Drag to move. Ctrl and the wheel zoom, as does the wheel alone once the chart is clicked. Keys: + and −, arrows, Home.`}));
  player.hidden = false;
  const LEFT = 46, ROWS = {host: [24, 26], gpu: [62, 66]}, AXIS = 146;
  const end = Math.max(...replicas.flatMap(({bars}) => bars.length ? [bars[bars.length - 1].end] : [1]));
  const begin = Math.min(...replicas.flatMap(({bars}) => bars.length ? [bars[0].at] : [end]));
  const whole = [begin - (end - begin) * .004, end + (end - begin) * .004];
  let [from, to] = whole, replica = replicas.findIndex(({bars}) => bars.length), width = 0, hovered = null;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  canvas.parentElement.append(tip);

  const x = ns => LEFT + (ns - from) / (to - from) * (width - LEFT);
  const nsAt = px => from + (px - LEFT) / (width - LEFT) * (to - from);
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const unitOf = span => span < 2e3 ? [1, "ns"] : span < 2e6 ? [1e3, "µs"] : span < 2e9 ? [1e6, "ms"] : [1e9, "s"];
  const text = (ns, span = ns) => {
    const [unit, name] = unitOf(span);
    return `${(ns / unit).toLocaleString("en", {maximumFractionDigits: 3})} ${name}`;
  };
  const kindOf = bar => !bar.decode ? "orange" : !bar.prefill ? "blue" : "purple";
  // The first bar that ends after a time.
  const firstAfter = (bars, ns) => {
    let [low, high] = [0, bars.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (Math.max(bars[middle].end, bars[middle].planned) < ns) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const draw = () => {
    const box = canvas.getBoundingClientRect(), scale = devicePixelRatio || 1;
    width = box.width;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(box.height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    const tones = Object.fromEntries(["ink", "muted", "grid", "grey", "blue", "orange", "purple"].map(name => [name, color(name)]));
    // The axis, in steps of 1, 2 or 5.
    const span = to - from, raw = span / Math.max(2, width / 130), power = 10 ** Math.floor(Math.log10(raw));
    const tick = [1, 2, 5, 10].map(times => times * power).find(size => size >= raw);
    const [unit, name] = unitOf(to);
    const digits = Math.max(0, Math.ceil(-Math.log10(tick / unit)));
    context.textAlign = "center";
    for (let ns = Math.ceil(from / tick) * tick; ns <= to; ns += tick) {
      context.fillStyle = tones.grid;
      context.fillRect(x(ns), 12, 1, AXIS - 12);
      context.fillStyle = tones.muted;
      context.fillText(`${(ns / unit).toFixed(Math.min(9, digits))} ${name}`, Math.min(Math.max(x(ns), LEFT + 22), width - 26), AXIS + 16);
    }
    context.textAlign = "left";
    context.fillStyle = tones.muted;
    context.fillText("host", 0, ROWS.host[0] + 17);
    context.fillText("GPU", 0, ROWS.gpu[0] + 37);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, AXIS);
    context.clip();
    const {bars} = replicas[replica];
    // A gap is left between steps where it can be seen.
    const rect = (a, b, alpha, [top, height]) => {
      const left = x(a), wide = x(b) - left, size = wide > 4 ? wide - 1 : Math.max(.6, wide);
      // What is thinner than can be drawn is fainter instead.
      context.globalAlpha = Math.max(b > a ? .06 : 0, alpha * Math.min(1, wide / .6));
      context.fillRect(left, top, size, height);
      context.globalAlpha = 1;
    };
    for (let i = firstAfter(bars, from); i < bars.length && bars[i].at <= to; i++) {
      const bar = bars[i];
      // How busy the row was while the bar lasts.
      const busy = (ns, a, b) => b > a ? Math.min(1, ns / (b - a)) : 1;
      context.fillStyle = tones.grey;
      rect(bar.at, bar.planned, busy(bar.host, bar.at, bar.planned), ROWS.host);
      context.fillStyle = tones[kindOf(bar)];
      rect(bar.start, bar.end, busy(bar.gpu, bar.start, bar.end), ROWS.gpu);
      if (bar.preempted) {
        context.fillStyle = tones.ink;
        context.beginPath();
        context.moveTo(x(bar.at) - 5, 12);
        context.lineTo(x(bar.at) + 5, 12);
        context.lineTo(x(bar.at), 21);
        context.fill();
      }
      if (bar === hovered) {
        context.strokeStyle = tones.ink;
        context.lineWidth = 1.5;
        context.strokeRect(x(bar.start) - 1, ROWS.gpu[0] - 2, Math.max(2, x(bar.end) - x(bar.start)) + 2, ROWS.gpu[1] + 4);
      }
    }
    context.restore();
    canvas.dataset.from = Math.round(from);
    canvas.dataset.to = Math.round(to);
  };

  let isAsked = false;
  const redraw = () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => { isAsked = false; draw(); });
  };
  const look = (a, b) => {
    const span = Math.min(Math.max(b - a, 2e3), whole[1] - whole[0]);
    const middle = (a + b) / 2;
    from = Math.max(whole[0], Math.min(middle - span / 2, whole[1] - span));
    to = from + span;
    redraw();
  };
  const zoom = (factor, around = (from + to) / 2) => look(around - (around - from) * factor, around + (to - around) * factor);
  const pan = share => look(from + share * (to - from), to + share * (to - from));

  const point = event => {
    const box = canvas.getBoundingClientRect(), ns = nsAt(event.clientX - box.left), {bars} = replicas[replica];
    const isHost = event.clientY - box.top < 58, reach = 3 * (to - from) / width;
    let found = null;
    for (let i = firstAfter(bars, ns - reach); i < bars.length && bars[i].at <= ns + reach; i++) {
      const [a, b] = isHost ? [bars[i].at, bars[i].planned] : [bars[i].start, bars[i].end];
      if (a - reach <= ns && ns <= b + reach) { found = bars[i]; if (a <= ns && ns <= b) break; }
    }
    hovered = found;
    tip.hidden = !found;
    if (found) {
      const rows = [
        [found.steps > 1 ? `${found.steps} steps` : "step", `at ${text(found.at, found.at || 1)}`],
        ["GPU", `${text(found.gpu)}${found.steps > 1 ? ` of ${text(found.end - found.start)}` : ""}`], ["host", text(found.host)],
        ["requests", found.steps > 1 ? `up to ${found.requests}` : found.requests],
        ["prefill tokens", found.prefill.toLocaleString("en")], ["decode tokens", found.decode.toLocaleString("en")],
        ...(found.preempted ? [["preempted", found.preempted]] : []),
      ];
      tip.replaceChildren(...rows.map(parts => {
        const line = document.createElement("div");
        line.append(...parts.map(part => Object.assign(document.createElement("span"), {textContent: part})));
        return line;
      }));
      tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.min(event.clientY - box.top + 14, box.height - 20)}px`;
    }
    redraw();
  };

  const pointers = new Map();
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); pointers.set(event.pointerId, event.clientX); });
  canvas.addEventListener("pointermove", event => {
    if (!pointers.has(event.pointerId)) return point(event);
    const before = [...pointers.values()];
    pointers.set(event.pointerId, event.clientX);
    const after = [...pointers.values()], perPixel = (to - from) / (width - LEFT);
    tip.hidden = true;
    if (after.length === 1) look(from - (after[0] - before[0]) * perPixel, to - (after[0] - before[0]) * perPixel);
    else {
      const gap = ([a, b]) => Math.max(8, Math.abs(a - b)), box = canvas.getBoundingClientRect();
      zoom(gap(before) / gap(after), nsAt((after[0] + after[1]) / 2 - box.left));
    }
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; hovered = null; redraw(); });
  canvas.addEventListener("dblclick", event => zoom(.4, nsAt(event.clientX - canvas.getBoundingClientRect().left)));
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else zoom(1.0015 ** event.deltaY, nsAt(event.clientX - canvas.getBoundingClientRect().left));
  }, {passive: false});
  canvas.addEventListener("keydown", event => {
    const action = {
      "+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), ArrowLeft: () => pan(-.2), ArrowRight: () => pan(.2), Home: () => look(...whole),
    }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  chosen.addEventListener("change", () => { replica = Number(chosen.value); redraw(); });
  new ResizeObserver(redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  draw();
})();
