// The page: a position in the recording, what is selected, and the picture of both.
(() => {
  "use strict";
  const source = document.getElementById("explorer-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const replay = new Replay(data);
  const byId = id => document.getElementById(id);

  // Conversations are A, B, C ..., their turns A, A2, A3 ...; where there are too many, requests are r0, r1 ...
  const names = (() => {
    const sessions = new Map(), of = new Map();
    for (const [id] of data.requests) {
      const [session, turn] = data.names[id] ?? [null, 0];
      const key = session ?? `request ${id}`;
      if (!sessions.has(key)) sessions.set(key, sessions.size);
      of.set(id, [sessions.get(key), turn]);
    }
    const isLettered = sessions.size <= 26;
    return {
      sessionOf: id => of.get(id)?.[0] ?? id,
      of: id => {
        const [session, turn] = of.get(id) ?? [id, 0];
        return isLettered ? String.fromCharCode(65 + session) + (turn ? turn + 1 : "") : `r${id}`;
      },
      long: id => {
        const [, turn, tenant] = data.names[id] ?? [null, 0, ""];
        return `request ${id}${tenant ? `, ${tenant}` : ""}, turn ${turn + 1}`;
      },
    };
  })();

  const narrate = narrator(data, replay, names);
  let selected = null, timer = null, ruleAt = null;
  const select = what => {
    const same = selected && JSON.stringify(selected) === JSON.stringify(what);
    selected = same ? null : what;
    highlight();
  };
  const {h, digest, tokensOf, holdersOf, drawPool, drawQueue, drawRequests, drawChain, hueOf, isDense} = artist(data, replay, names, select);
  const clock = ns => ns >= 1e9 ? `${(ns / 1e9).toFixed(3)} s` : `${(ns / 1e6).toFixed(2)} ms`;
  const callOf = frame => frame === undefined ? "the begin" : {
    add: () => "add_request()", schedule: () => `schedule() of step ${frame.n}`, update: () => `update_from_output() of step ${frame.n}`,
    abort: () => "finish_requests()", reset: () => "reset_prefix_cache()",
  }[frame.k]();

  // Blocks move to their new places instead of jumping there.
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let isNear = false;
  const replaceAndMove = (parent, children) => {
    const isAnimated = isNear && !isCalm && !document.hidden && parent.childElementCount < 150;
    const before = new Map();
    if (isAnimated) for (const child of parent.querySelectorAll("[data-key]")) before.set(child.dataset.key, child.getBoundingClientRect());
    const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    parent.replaceChildren(...children.filter(child => child !== null));
    for (const child of isAnimated || focused ? parent.querySelectorAll("[data-key]") : []) {
      if (child.dataset.key === focused) child.focus({preventScroll: true});
      if (!isAnimated) continue;
      const old = before.get(child.dataset.key), now = child.getBoundingClientRect();
      if (!old) child.animate([{opacity: 0, transform: "scale(.7)"}, {opacity: 1, transform: "none"}], {duration: 180, easing: "ease-out"});
      else if (Math.abs(old.left - now.left) + Math.abs(old.top - now.top) > 1) {
        child.animate([{transform: `translate(${old.left - now.left}px,${old.top - now.top}px)`}, {transform: "none"}], {duration: 260, easing: "ease-out"});
      }
    }
  };

  // What every event is, told once; and where each rule is seen.
  const stories = replay.beats.map((beat, i) => {
    replay.seek(i);
    return narrate(beat);
  });
  const ruleBeats = RULES.map((_, rule) => stories.flatMap((story, i) => rule && story.rule === rule ? [i] : []));

  const drawRules = story => {
    byId("rules").replaceChildren(...RULES.slice(1).map((text, i) => {
      const rule = i + 1, isNow = story.rule === rule, seen = ruleBeats[rule].length;
      return h("button", {
        type: "button", class: `rule ${isNow ? "now" : ""}`, title: `${text} ${seen ? `Seen ${seen} times; click for the next.` : "Not seen in this recording."}`,
        disabled: !seen, "data-rule": rule, "aria-pressed": String(isNow),
        onclick: () => {
          const next = ruleBeats[rule].find(at => at > replay.state.at) ?? ruleBeats[rule][0];
          if (next !== undefined) show(next);
        },
      }, h("b", {}, String(rule)), h("span", {}, RULE_NAMES[rule]), h("i", {}, String(seen)));
    }));
  };

  const drawEvents = (beat, at) => {
    const first = replay.beats.findIndex(other => other.frame === beat.frame);
    const frame = data.frames[beat.frame];
    byId("events-heading").textContent = frame ? `Events of ${callOf(frame)}` : "Events";
    const items = [];
    for (let i = Math.max(first, at - 40); i < replay.beats.length && replay.beats[i].frame === beat.frame && items.length < 80; i++) {
      const {rule, title} = stories[i];
      items.push(h("li", {class: i === at ? "now" : i > at ? "later" : ""}, h("button", {type: "button", onclick: () => show(i)}, h("b", {class: "badge"}, rule ? String(rule) : "·"), title)));
    }
    // What a router would be told.
    const published = (frame?.v ?? []).map(event => `${event.type}${event.block_hashes ? ` ${event.block_hashes.map(hash => hash.slice(0, 6)).join(" ")}` : ""}`);
    if (published.length) items.push(h("li", {class: "published"}, h("span", {}, "KV events published with it: ", h("code", {}, published.slice(0, 8).join(", ")), published.length > 8 ? ` and ${published.length - 8} more` : "")));
    byId("events").replaceChildren(...items);
  };

  const row = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  const jump = at => h("button", {type: "button", class: "jump", onclick: () => show(at)}, String(at));
  const historyOf = block => {
    const found = [];
    replay.beats.forEach((beat, i) => {
      const events = data.frames[beat.frame]?.e.slice(beat.from, beat.to) ?? [];
      if (events.some(([code, id, , , hits]) => "TPIErfb-".includes(code) ? id === block : code === "L" && hits.includes(block))) found.push(i);
    });
    return found;
  };

  const drawDetails = () => {
    const {state} = replay, holders = holdersOf(state), panel = byId("details");
    if (!selected) return panel.replaceChildren(h("p", {class: "hint"}, "Nothing is selected."));
    const parts = [];
    const aboutHash = hash => {
      const [full, parent, first, , keys] = data.hashes[hash];
      const blocks = Object.entries(state.blocks).filter(([key]) => key.startsWith(hash + ":")).flatMap(([, list]) => list);
      return [
        row("hash", h("code", {}, full)), row("parent", h("code", {}, parent === null ? "NONE_HASH" : data.hashes[parent][0])),
        first === null ? null : row("tokens", `${first} to ${first + data.hash_block_size - 1}: ${tokensOf(hash)}`),
        keys ? row("extra keys", h("code", {}, JSON.stringify(keys))) : null,
        row("in blocks", blocks.length ? blocks.join(", ") + (blocks.length > 1 ? " (a lookup takes the first)" : "") : "none: it is not cached now"),
      ];
    };
    if (selected.block === 0) parts.push(h("h4", {}, "Block 0"), h("p", {}, RULES[7]));
    else if (selected.block !== undefined) {
      const {block} = selected, place = state.queue.indexOf(block), history = historyOf(block);
      const near = history.filter(at => at <= state.at).slice(-6).concat(history.filter(at => at > state.at).slice(0, 6));
      parts.push(h("h4", {}, `Block ${block}`), h("dl", {},
        row("ref_cnt", String(state.refs[block] ?? 0)),
        row("held by", [...holders.get(block)?.entries() ?? []].map(([id, [at]]) => `${names.of(id)} (block ${at} of its table)`).join(", ") || "nobody"),
        row("free queue", place < 0 ? "not in it" : `place ${place + 1} of ${state.queue.length}`),
        ...(state.hashes[block] ?? []).flatMap(([hash]) => aboutHash(hash)),
        row("happens at", ...near.flatMap(at => [jump(at), " "]))));
    } else if (selected.request !== undefined) {
      const request = state.requests[selected.request], rowOf = data.requests.find(row => row[0] === selected.request);
      parts.push(h("h4", {}, `${names.of(selected.request)}: ${names.long(selected.request)}`), h("dl", {},
        row("status", request ? STATUS[request.status] : "not there yet"),
        rowOf ? row("prompt", `${rowOf[1]} tokens`) : null, rowOf ? row("asks for", `${rowOf[2]} tokens`) : null,
        request ? row("hashes", ...request.hashes.slice(0, 24).flatMap(hash => [h("button", {type: "button", class: "jump", "data-hash": hash, onclick: () => select({hash})}, digest(hash)), " "])) : null));
    } else parts.push(h("h4", {}, `Hash ${digest(selected.hash)}`), h("dl", {}, aboutHash(selected.hash)));
    panel.replaceChildren(...parts);
  };

  // What is selected, wherever it is shown; what belongs to it too.
  const highlight = () => {
    const {state} = replay, root = byId("explorer-root");
    const blocks = new Set(), hashes = new Set(), requests = new Set();
    if (selected?.block !== undefined) {
      blocks.add(selected.block);
      (state.hashes[selected.block] ?? []).forEach(([hash]) => hashes.add(hash));
      [...holdersOf(state).get(selected.block)?.keys() ?? []].forEach(id => requests.add(id));
    } else if (selected?.request !== undefined) {
      requests.add(selected.request);
      state.requests[selected.request]?.tables.flat().forEach(block => blocks.add(block));
      state.requests[selected.request]?.hashes.forEach(hash => hashes.add(hash));
    } else if (selected) {
      hashes.add(selected.hash);
      Object.entries(state.blocks).filter(([key]) => key.startsWith(selected.hash + ":")).forEach(([, list]) => list.forEach(block => blocks.add(block)));
    }
    root.classList.toggle("selecting", selected !== null);
    for (const element of root.querySelectorAll("[data-block],[data-hash],[data-request]")) {
      const {block, hash, request} = element.dataset;
      element.classList.toggle("chosen", selected !== null && (
        block !== undefined ? blocks.has(Number(block)) : request !== undefined ? requests.has(Number(request)) : hashes.has(Number(hash))));
    }
    drawDetails();
  };

  const show = at => {
    isNear = Math.abs(at - replay.state.at) === 1;
    const state = replay.seek(at), beat = replay.beats[state.at], frame = data.frames[beat.frame];
    const story = stories[state.at], holders = holdersOf(state);
    byId("position").value = state.at;
    byId("position").setAttribute("aria-valuetext", `event ${state.at}: ${story.title}`);
    byId("where").textContent = `event ${state.at} of ${replay.beats.length - 1}`;
    byId("story").replaceChildren(
      h("p", {class: "call"}, frame ? `${clock(frame.at)} · ${callOf(frame)}` : `${data.groups.length > 1 ? `${data.groups.length} KV cache groups · ` : ""}${data.algo} · ${data.async ? "async" : "sync"} scheduling`),
      h("p", {class: "title"}, story.title),
      h("p", {class: "text"}, story.text),
      story.rule ? h("p", {class: "because"}, h("b", {class: "badge"}, String(story.rule)), RULES[story.rule]) : h("p", {class: "because"}, "\u00a0"));
    drawRules(story);
    byId("pool").classList.toggle("dense", isDense);
    replaceAndMove(byId("pool"), drawPool(state, holders, story));
    replaceAndMove(byId("queue"), drawQueue(state, holders, story));
    replaceAndMove(byId("requests"), drawRequests(state, holders, story));
    replaceAndMove(byId("chain"), drawChain(state, story));
    drawEvents(beat, state.at);
    highlight();
    byId("back").disabled = byId("step-back").disabled = state.at === 0;
    byId("forward").disabled = byId("step-forward").disabled = state.at === replay.beats.length - 1;
    if (state.at === replay.beats.length - 1) pause();
    root.dataset.at = state.at;
  };

  const root = byId("explorer-root");
  const move = by => { pause(); show(replay.state.at + by); };
  const moveCall = by => {
    pause();
    const {at} = replay.state, {frame} = replay.beats[at];
    let to = at;
    if (by > 0) while (to < replay.beats.length - 1 && (to === at || !replay.beats[to].last)) to++;
    // To the end of the call before.
    else { while (to > 0 && replay.beats[to].frame === frame) to--; }
    show(to);
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    byId("play").textContent = "▶ Play";
  };
  const play = () => {
    if (timer) return pause();
    if (replay.state.at === replay.beats.length - 1) show(0);
    byId("play").textContent = "❚❚ Pause";
    timer = setInterval(() => show(replay.state.at + 1), Number(byId("speed").value));
  };
  byId("position").max = replay.beats.length - 1;
  byId("position").addEventListener("input", event => { pause(); show(Number(event.target.value)); });
  byId("back").addEventListener("click", () => move(-1));
  byId("forward").addEventListener("click", () => move(1));
  byId("step-back").addEventListener("click", () => moveCall(-1));
  byId("step-forward").addEventListener("click", () => moveCall(1));
  byId("play").addEventListener("click", play);
  byId("speed").addEventListener("change", () => { if (timer) { pause(); play(); } });
  document.addEventListener("keydown", event => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.("select")) return;
    const isSlider = event.target === byId("position");
    if (event.key === " " && (event.target.closest?.("button") && event.target !== byId("play"))) return;
    const action = {
      ArrowRight: () => event.shiftKey ? moveCall(1) : move(1), ArrowLeft: () => event.shiftKey ? moveCall(-1) : move(-1),
      Home: () => { pause(); show(0); }, End: () => { pause(); show(replay.beats.length - 1); }, " ": play, Escape: () => { selected = null; highlight(); },
    }[event.key];
    if (!action || (isSlider && event.key !== " " && event.key !== "Escape" && !event.shiftKey)) return;
    event.preventDefault();
    action();
  });

  byId("legend").replaceChildren(...[
    ["held cached", "in use, can be hit"], ["held", "in use, not full"], ["free cached", "free, can be hit until it is popped"], ["free", "free and empty"],
  ].map(([kind, text]) => h("span", {}, h("span", {class: `swatch ${kind} c0`}), text)));
  root.hidden = false;
  // The place may be named, so that one can be sent to it: #at=12.
  show(Number(/at=(\d+)/.exec(location.hash)?.[1] ?? 0));
  window.blockExplorer = {replay, show, check: () => { const at = replay.state.at, errors = replay.check(); show(at); return errors; }};
})();
