// The picture of one moment, as elements.
const artist = (data, replay, names, select) => {
  "use strict";
  const size = data.groups[0][1];
  const h = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes ?? {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "style") element.style.cssText = value;
      else if (key === "onclick") element.addEventListener("click", value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
    return element;
  };
  const digest = hash => data.hashes[hash][0].slice(0, 6);

  // Whose a hash is: of the one conversation that has it, or shared.
  const owners = new Map();
  for (const events of [data.begin.e, ...data.frames.map(frame => frame.e)]) {
    for (const [code, id, hashes] of events) {
      if (code !== "H") continue;
      for (const hash of hashes) {
        if (!owners.has(hash)) owners.set(hash, new Set());
        owners.get(hash).add(names.sessionOf(id));
      }
    }
  }
  const hueOf = session => `c${session % 6}`;
  const hueOfHash = hash => {
    const sessions = [...owners.get(hash) ?? []];
    return sessions.length === 1 ? hueOf(sessions[0]) : sessions.length ? "shared" : "unknown";
  };

  // The blocks that ever do anything here.
  const used = new Set([...data.begin.refs.map(([block]) => block), ...data.begin.hashes.map(([block]) => block)]);
  for (const frame of data.frames) for (const [code, block, , , hits] of frame.e) {
    if ("TPIErfb-".includes(code)) used.add(block);
    if (code === "L") hits.forEach(hit => used.add(hit));
  }
  const pool = [...used].sort((a, b) => a - b);
  const unused = data.num_blocks - 1 - pool.length;
  const isDense = pool.length > 96;

  const tokensOf = hash => {
    const runs = data.hashes[hash][3];
    if (!runs) return "unknown tokens";
    return runs.map(([start, length]) => length === 1 ? start : `${short(start)}–${short(String(BigInt(start) + BigInt(length - 1)))}`).join(" ");
  };
  const short = id => id.length > 7 ? "…" + id.slice(-5) : id;

  // Who holds a block, and at which places of their tables.
  const holdersOf = state => {
    const holders = new Map();
    for (const id of [...state.running, ...state.waiting, ...Object.keys(state.requests).map(Number)]) {
      state.requests[id]?.tables.forEach((table, group) => table.forEach((block, at) => {
        if (!block) return;
        if (!holders.has(block)) holders.set(block, new Map());
        if (!holders.get(block).has(id)) holders.get(block).set(id, [at, group]);
      }));
    }
    return holders;
  };

  const blockStatus = (state, block) => {
    const held = (state.refs[block] ?? 0) > 0, cached = (state.hashes[block] ?? []).length > 0;
    return held ? (cached ? "held cached" : "held") : cached ? "free cached" : "free";
  };

  const hueOfBlock = (state, block, holders) => {
    const [first] = state.hashes[block] ?? [];
    if (first) return hueOfHash(first[0]);
    const [holder] = holders.get(block)?.keys() ?? [];
    return holder === undefined ? "unknown" : hueOf(names.sessionOf(holder));
  };

  const attention = (state, block, holders, story) => [
    blockStatus(state, block), hueOfBlock(state, block, holders),
    story.blocks?.includes(block) ? "now" : "",
  ].join(" ");

  const labelOf = (state, block, holders) => {
    const count = state.refs[block] ?? 0, [first] = state.hashes[block] ?? [];
    const who = [...holders.get(block)?.keys() ?? []].map(names.of).join(", ");
    return `Block ${block}: ref_cnt ${count}${who ? `, held by ${who}` : ""}${first ? `, hash ${digest(first[0])}` : ", no hash"}`;
  };

  const tile = (state, block, holders, story) => {
    const [first] = state.hashes[block] ?? [], count = state.refs[block] ?? 0;
    const copies = first ? (state.blocks[first[0] + ":" + first[1]] ?? []) : [];
    const label = labelOf(state, block, holders);
    return h("button", {
      type: "button", class: `tile ${attention(state, block, holders, story)}`, "data-block": block,
      "data-key": `pool ${block}`, "data-hash": first?.[0], title: label, "aria-label": label, onclick: () => select({block}),
    },
    h("span", {class: "id"}, String(block)),
    isDense ? null : h("span", {class: "count"}, count ? `×${count}` : ""),
    isDense ? null : h("span", {class: "tokens"}, first ? tokensOf(first[0]) : partOf(state, block, holders)),
    isDense ? null : h("span", {class: "digest"}, first ? digest(first[0]) : "no hash", copies.length > 1 ? h("i", {title: "an equal hash is on another block"}, " dup") : ""),
    isDense ? null : h("span", {class: "holders"}, [...holders.get(block)?.keys() ?? []].map(id => h("b", {class: hueOf(names.sessionOf(id))}, names.of(id)))));
  };

  // How far a block without a hash is filled.
  const partOf = (state, block, holders) => {
    for (const [id, [at, group]] of holders.get(block) ?? []) {
      const request = state.requests[id], width = data.groups[group][1];
      const filled = Math.min(width, Math.max(0, request.computed - at * width));
      return filled ? `${filled} of ${width} tokens` : "";
    }
    return "";
  };

  const drawPool = (state, holders, story) => [
    h("button", {type: "button", class: "tile null", title: "Block 0, the null block", "aria-label": "Block 0, the null block", onclick: () => select({block: 0})},
      h("span", {class: "id"}, "0"), isDense ? null : h("span", {class: "tokens"}, "null block"), isDense ? null : h("span", {class: "digest"}, "never used")),
    ...pool.map(block => tile(state, block, holders, story)),
    unused > 0 ? h("span", {class: "rest"}, `and ${unused.toLocaleString("en")} more that nothing happens to`) : null,
  ];

  const chip = (state, block, holders, story, where, extra = "") => {
    const label = labelOf(state, block, holders);
    return h("button", {
      type: "button", class: `chip ${attention(state, block, holders, story)} ${extra}`, "data-block": block, "data-key": `${where} ${block}`,
      "data-hash": state.hashes[block]?.[0]?.[0], title: label, "aria-label": label, onclick: () => select({block}),
    }, String(block));
  };

  const drawQueue = (state, holders, story) => {
    // Blocks that nothing happens to, in a row, are told by their number.
    const items = [];
    for (const block of state.queue) {
      if (used.has(block)) items.push(block);
      else if (items.length && items[items.length - 1].skipped) items[items.length - 1].skipped++;
      else items.push({skipped: 1});
    }
    const most = 140;
    if (items.length > most) items.splice(100, items.length - most, {skipped: items.slice(100, items.length - 40).reduce((sum, item) => sum + (item.skipped ?? 1), 0)});
    if (!items.length) return [h("span", {class: "rest"}, "empty: nobody can get a block without a preemption")];
    return [
      h("span", {class: "end"}, "front"),
      ...items.map(item => item.skipped ? h("span", {class: "chip skipped"}, `${item.skipped.toLocaleString("en")} more`) : chip(state, item, holders, story, "queue")),
      h("span", {class: "end"}, "back"),
    ];
  };

  const drawRequest = (state, id, holders, story) => {
    const request = state.requests[id], row = data.requests.find(row => row[0] === id);
    const prompt = row?.[1] ?? 0, most = prompt + (row?.[2] ?? 0);
    const tokens = request.tokens || prompt, hue = hueOf(names.sessionOf(id));
    const share = value => `${Math.min(100, 100 * value / Math.max(1, most)).toFixed(1)}%`;
    const status = STATUS[request.status];
    const card = h("div", {
      class: `request ${hue} ${status.split(":")[0]} ${story.request === id ? "now" : ""}`, "data-request": id, "data-key": `request ${id}`,
    },
    h("button", {type: "button", class: "name", onclick: () => select({request: id}), title: names.long(id)},
      h("b", {class: hue}, names.of(id)), h("span", {class: "status"}, status)),
    h("span", {class: "counts"}, `${request.computed} computed of ${tokens} tokens`, request.inFlight ? ` (${request.inFlight} in flight)` : ""),
    h("div", {class: "bar", role: "img", "aria-label": `${request.computed} of ${tokens} tokens computed; ends with ${most}`},
      h("i", {class: "known", style: `width:${share(tokens)}`}), h("i", {class: "computed", style: `width:${share(request.computed)}`}),
      h("i", {class: "prompt", style: `left:${share(prompt)}`})),
    ...request.tables.map((table, group) => {
      if (!table.length) return null;
      const from = table.length > 48 ? table.length - 40 : 0;
      return h("div", {class: "table"},
        data.groups.length > 1 ? h("span", {class: "hint"}, data.groups[group][0]) : null,
        from ? h("span", {class: "rest"}, `${table.slice(0, 8).join(" ")} … ${from - 8 > 0 ? `${from - 8} more …` : ""}`) : null,
        table.slice(from).map((block, at) => block
          ? chip(state, block, holders, story, `table ${id} ${group}`, "")
          : h("span", {class: "chip null", title: `block ${from + at} of the table is the null block`}, "0")));
    }));
    return card;
  };

  const drawRequests = (state, holders, story) => {
    const groups = [["Running", state.running], ["Waiting", state.waiting]];
    const live = new Set([...state.running, ...state.waiting]);
    const ended = Object.values(state.requests).filter(request => !live.has(request.id) && request.status > 3).map(request => request.id);
    const parts = groups.flatMap(([title, ids]) => [
      h("h4", {}, `${title} `, h("span", {class: "hint"}, String(ids.length))),
      ...(ids.length ? ids.slice(0, 24).map(id => drawRequest(state, id, holders, story)) : [h("span", {class: "rest"}, "nobody")]),
      ids.length > 24 ? h("span", {class: "rest"}, `and ${ids.length - 24} more`) : null,
    ]);
    if (ended.length) {
      parts.push(h("h4", {}, "Ended ", h("span", {class: "hint"}, String(ended.length))),
        h("div", {class: "ended"}, ended.slice(-40).map(id => h("button", {
          type: "button", class: `name ${hueOf(names.sessionOf(id))}`, "data-request": id, "data-key": `request ${id}`, onclick: () => select({request: id}),
          title: `${names.long(id)}, ${STATUS[state.requests[id].status]}`,
        }, h("b", {class: hueOf(names.sessionOf(id))}, names.of(id))))));
    }
    return parts;
  };

  // The cached hashes as a tree; a chain without branches is one line.
  const drawChain = (state, story) => {
    const cached = new Map();
    for (const [key, blocks] of Object.entries(state.blocks)) {
      const hash = Number(key.split(":")[0]);
      cached.set(hash, [...cached.get(hash) ?? [], ...blocks]);
    }
    if (!cached.size) return [h("span", {class: "rest"}, "the cache is empty")];
    const children = new Map(), roots = [];
    for (const hash of [...cached.keys()].sort((a, b) => a - b)) {
      const parent = data.hashes[hash][1];
      if (parent !== null && cached.has(parent)) {
        if (!children.has(parent)) children.set(parent, []);
        children.get(parent).push(hash);
      } else roots.push(hash);
    }
    const node = hash => {
      const [full, parent, first, , keys] = data.hashes[hash], blocks = cached.get(hash);
      const isOrphan = parent !== null && !cached.has(parent);
      const isHeld = blocks.some(block => (state.refs[block] ?? 0) > 0);
      const title = `hash ${full}\nparent ${parent === null ? "NONE_HASH" : data.hashes[parent][0]}\n`
        + (first === null ? "" : `tokens at ${first}: ${tokensOf(hash)}\n`) + `in block ${blocks.join(" and ")}`
        + (isOrphan ? "\nits parent is not cached, so no lookup can reach it" : "");
      return h("button", {
        type: "button", title, "aria-label": title.replaceAll("\n", ", "), "data-hash": hash, "data-key": `hash ${hash}`, onclick: () => select({hash}),
        class: `node ${hueOfHash(hash)} ${isHeld ? "held" : "free"} ${isOrphan ? "orphan" : ""} ${blocks.some(block => story.blocks?.includes(block)) ? "now" : ""}`,
      }, h("span", {class: "digest"}, digest(hash)), h("span", {class: "in"}, `in ${blocks.join(", ")}`),
      keys ? h("span", {class: "keys-of", title: "extra keys"}, JSON.stringify(keys).slice(0, 24)) : null);
    };
    // A chain is a line, whose middle is told by its length where nothing branches off or happens; where it
    // branches, the others begin below the hash that they share.
    let left = 400;
    const branch = hash => {
      const chain = [];
      for (let at = hash; at !== undefined; at = children.get(at)?.[0]) chain.push(at);
      const isShown = (at, place) => place < 3 || place >= chain.length - 3 || chain.length < 12 || children.get(at)?.length > 1
        || cached.get(at).some(block => story.blocks?.includes(block) && story.blocks.length < 12);
      const line = [], below = [];
      let skipped = 0;
      chain.forEach((at, place) => {
        if (left <= 0) return;
        if (!isShown(at, place)) { skipped++; return; }
        if (skipped) line.push(h("span", {class: "node skipped"}, `${skipped.toLocaleString("en")} more`));
        skipped = 0;
        line.push(node(at));
        left--;
        const others = (children.get(at) ?? []).slice(1);
        if (others.length) below.push([line.length - 1, others]);
      });
      // The last first, so that no line crosses another.
      return h("li", {}, h("div", {class: "line"}, line),
        below.reverse().map(([place, others]) => h("ul", {style: `--place:${place}`}, others.map(branch))));
    };
    const isFirst = hash => data.hashes[hash][1] === null;
    const whole = roots.filter(isFirst), orphans = roots.filter(hash => !isFirst(hash));
    return [
      whole.length ? h("ul", {class: "tree"}, h("li", {}, h("div", {class: "line"}, h("span", {class: "node none"}, "NONE_HASH")), h("ul", {style: "--place:0"}, whole.map(branch)))) : null,
      orphans.length ? h("p", {class: "hint"}, "Out of reach, since a hash before is gone:") : null,
      orphans.length ? h("ul", {class: "tree"}, orphans.map(branch)) : null,
      left <= 0 ? h("span", {class: "rest"}, "and more") : null,
    ];
  };

  return {h, digest, tokensOf, holdersOf, drawPool, drawQueue, drawRequests, drawChain, hueOf, isDense};
};
