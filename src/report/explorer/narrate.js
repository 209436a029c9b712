// What a beat is, in a sentence or two, and which of the seven rules it shows.
const RULES = [
  null,
  "Only full blocks get a hash. The hash of block i uses that of block i − 1; block 0 uses NONE_HASH.",
  "The lookup checks at most (tokens − 1) ÷ block size hashes, and stops at the first miss.",
  "A request starts only if its new blocks and its free hit blocks fit in the free queue.",
  "touch() adds 1 to ref_cnt and takes a free hit block out of the queue. Only then are new blocks popped from the front, and their old hashes evicted.",
  "The blocks that are full now get their hash. An equal hash on a second block is kept as a duplicate.",
  "A request frees its blocks in reverse order. At ref_cnt 0 a block without a hash goes to the front of the queue, one with a hash to the back.",
  "Block 0 is the null block: the pool never hands it out.",
];
const RULE_NAMES = [null, "full blocks", "lookup", "admission", "touch, then pop", "cache", "free in reverse", "null block"];
const STATUS = [
  "waiting", "loading", "running", "preempted", "finished: stop", "finished: length", "aborted", "failed",
];

const narrator = (data, replay, names) => {
  "use strict";
  const sizeOf = group => data.groups[group][1];
  const plural = (count, one, many = one + "s") => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
  // A list of blocks, cut in its middle.
  const blocks = list => {
    const shown = list.length > 8 ? [...list.slice(0, 5), "…", ...list.slice(-2)] : list;
    if (list.length === 1) return `block ${list[0]}`;
    return `blocks ${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
  };
  // Names, the first few of many.
  const listed = (list, most = 6) => {
    const shown = list.length > most ? [...list.slice(0, most), `${list.length - most} more`] : list;
    return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
  };
  const digest = hash => data.hashes[hash][0].slice(0, 6);
  const of = (events, code) => events.filter(event => event[0] === code);
  const range = (first, end) => end - first === 1 ? `${first}` : `${first} to ${end - 1}`;

  // Who the entries of a beat are done for: the last one that was named.
  const insideOf = beat => {
    const events = data.frames[beat.frame].e;
    for (let i = beat.to - 1; i >= 0; i--) if ("LRACXF".includes(events[i][0])) return events[i][1];
    return null;
  };

  const tell = {
    begin: () => ({
      rule: 7,
      title: "The pool before the first step shown",
      text: `${plural(data.num_blocks, "block")} of ${plural(sizeOf(0), "token")}. Block 0 is the null block, which stands `
        + "for “no block”: it is never in the free queue, so nobody gets it.",
    }),
    add: (frame, events, state) => {
      const request = replay.request(state, frame.id), row = data.requests.find(row => row[0] === frame.id);
      const size = data.hash_block_size, tokens = row?.[1] ?? request.tokens, full = request.hashes.length;
      const rest = tokens - full * size;
      const known = of(events, "H").flatMap(event => event[2]).filter(hash => data.groups.some((_, group) => state.blocks[hash + ":" + group])).length;
      return {
        rule: 1, request: frame.id,
        title: `${names.of(frame.id)} arrives`,
        text: !data.caching ? `It has ${plural(tokens, "token")}. Prefix caching is off, so nothing is hashed.`
          : `Its prompt has ${plural(tokens, "token")}. The hasher makes a hash for ${full === 1 ? "its full block" : `each of its ${full} full blocks`}`
          + (rest ? `; the last ${plural(rest, "token")} fill no block and get none.` : ".")
          + (known ? ` ${known === 1 ? "One of them is" : `${known} of them are`} in the cache at this moment.` : ""),
      };
    },
    H: (frame, events) => ({
      rule: 1, request: events[0][1], title: `${names.of(events[0][1])} has new full blocks`, text: "They are hashed.",
    }),
    L: (frame, [[, id, most, tokens, hits]], state) => {
      const request = replay.request(state, id), size = sizeOf(0), single = data.groups.length === 1;
      const num = request.tokens || data.requests.find(row => row[0] === id)?.[1];
      // Where the walk ended: at a miss, or at the last hash that it may check.
      const walked = single && hits.length < most ? "; the hash after is in no block: a miss, and the walk ends."
        : request.hashes.length > most ? "; the full block after is not looked at." : ".";
      const first = `It hits ${blocks(hits)}, which is ${plural(tokens, "token")}`;
      return {
        rule: 2, request: id, blocks: hits,
        title: `${names.of(id)} looks for its prefix`,
        text: `It may check ${most === 1 ? "one hash" : `${most} hashes`}: (${num} − 1) ÷ ${size}, as its last token must be computed. `
          + (hits.length ? first + walked
            : most === 0 ? "So there is nothing to look for." : `The first one is in no block: a miss, and the walk ends at once.`),
      };
    },
    R: (frame, [[, id, needed, free]], state) => {
      const isRunning = replay.request(state, id).status === 2;
      return {
        rule: 3, request: id,
        title: isRunning ? `There is no block for ${names.of(id)}` : `${names.of(id)} has to wait`,
        text: isRunning
          ? `It needs ${plural(needed, "block")} to go on and the free queue holds ${free}. Somebody must be preempted: the last one that was admitted.`
          : `It would take ${plural(needed, "block")} from the free queue, new ones and hits that lie in it, and the queue holds ${free}. It starts only when all fit.`,
      };
    },
    A: (frame, events, state, beat) => {
      const id = events[0][1];
      // What this admission goes on to do.
      let pops = 0, freed = 0;
      for (const event of frame.e.slice(beat.to)) {
        if ("LRAXF".includes(event[0])) break;
        pops += event[0] === "P";
        freed += event[0] === "-";
      }
      const needs = [pops && plural(pops, "new block"), freed && plural(freed, "free hit block")].filter(Boolean).join(" and ") || "no block";
      return {
        rule: 3, request: id,
        title: `${names.of(id)} is admitted`,
        text: `It takes ${needs} from a free queue of ${state.queue.length}: it fits.`,
      };
    },
    T: (frame, events, state, beat) => {
      const touched = of(events, "T").map(event => event[1]), left = of(events, "-").map(event => event[1]);
      const id = insideOf(beat), held = touched.filter(block => !left.includes(block));
      return {
        rule: 4, request: id, blocks: touched,
        title: `${names.of(id)} touches its hits`,
        text: `${blocks(touched)[0].toUpperCase() + blocks(touched).slice(1)}: ref_cnt goes up by one. `
          + (left.length ? `${left.length === touched.length ? (left.length === 1 ? "It leaves" : "They leave") : `${blocks(left)} leave`} the free queue, so that nothing popped next can be one of them.` : "")
          + (held.length && left.length ? " " : "")
          + (held.length ? `${held.length === touched.length ? (held.length === 1 ? "It is" : "They are") : `${blocks(held)} are`} in use already and shared from now on.` : ""),
      };
    },
    P: (frame, events, state, beat) => {
      const popped = of(events, "P").map(event => event[1]), lost = of(events, "E");
      const id = insideOf(beat);
      const isBefore = beat.to < frame.e.length && frame.e[beat.to][0] === "P";
      return {
        rule: 4, request: id, blocks: popped,
        title: `${names.of(id)} gets ${blocks(popped)}`,
        text: `Popped from the front of the free queue. `
          + (lost.length === 0 ? (popped.length === 1 ? "It held nothing that could be hit." : "They held nothing that could be hit.")
            : lost.length === 1 ? `Its old hash ${digest(lost[0][2])} is evicted${replay.state.blocks[lost[0][2] + ":" + lost[0][3]] ? ", but a duplicate keeps it reachable" : ": who asks for it next misses"}.`
            : `${lost.length} old hashes are evicted.`) + (isBefore ? "" : ""),
      };
    },
    C: (frame, events, state) => {
      const call = of(events, "C")[0], inserted = of(events, "I");
      if (!call) return tell.E(frame, events, state);
      const [, id, group, first, end] = call;
      const doubles = inserted.filter(([, block, hash, group]) => (state.blocks[hash + ":" + group] ?? [])[0] !== block);
      return {
        rule: 5, request: id, blocks: inserted.map(event => event[1]),
        title: `${end - first === 1 ? "A block" : `${end - first} blocks`} of ${names.of(id)} can be hit from now on`,
        text: `${end - first === 1 ? `Block ${first}` : `Blocks ${range(first, end)}`} of its table will be full after this step`
          + (inserted.length === 1 ? ` and comes under hash ${digest(inserted[0][2])}.` : inserted.length ? " and come under their hashes." : ", and nothing can ever hit them.")
          + doubles.map(([, block, hash, group]) => ` Block ${state.blocks[hash + ":" + group][0]} has the hash ${digest(hash)} already: block ${block} stays as a duplicate.`).slice(0, 3).join(""),
      };
    },
    I: (frame, events) => ({
      rule: 5, blocks: events.slice(0, 1).map(event => event[1]),
      title: "A block comes under a hash", text: `Block ${events[0][1]} has the hash ${digest(events[0][2])} now.`,
    }),
    E: (frame, events) => ({
      blocks: of(events, "E").map(event => event[1]),
      title: "Hashes are taken from blocks", text: `What is in ${blocks(of(events, "E").map(event => event[1]))} is not what it was said to be.`,
    }),
    X: (frame, events, state) => {
      const id = events[0][1];
      return {
        rule: 6, request: id, blocks: of(events, "r").map(event => event[1]),
        title: `${names.of(id)} is preempted`,
        text: `It goes back to the head of the waiting queue with nothing computed. ${freed(events, state)} While nobody pops them, it will hit them when it resumes.`,
      };
    },
    F: (frame, events, state) => {
      const id = events[0][1];
      return {
        rule: 6, request: id, blocks: of(events, "r").map(event => event[1]),
        title: `${names.of(id)} is done`, text: freed(events, state),
      };
    },
    r: (frame, events) => ({
      rule: 6, blocks: of(events, "r").map(event => event[1]),
      title: "Blocks are given back", text: `${blocks(of(events, "r").map(event => event[1]))}: no request reads them any more.`,
    }),
    run: (frame, events, state) => {
      const parts = frame.s.map(([id, , tokens, computed]) => {
        const request = replay.request(state, id);
        const what = tokens === 1 && computed > 0 ? "1 token" : `${plural(tokens, "token")} from ${computed} on`;
        return `${names.of(id)} ${what}`;
      });
      return {
        title: frame.s.length ? `Step ${frame.n} runs on the GPU` : `Step ${frame.n} is empty`,
        text: frame.s.length
          ? `It computes ${listed(parts)}, and takes ${(frame.gpu[1] / 1e6).toFixed(2)} ms.`
          : "Nobody can be given a token.",
        isCall: true,
      };
    },
    update: (frame, events) => {
      const done = frame.o.filter(([, , finish]) => finish);
      const some = listed(frame.o.map(([id, tokens]) => `${names.of(id)}${tokens === 1 ? "" : ` (${tokens})`}`));
      const hashed = of(events, "H");
      return {
        rule: hashed.length ? 1 : undefined, isCall: true,
        title: `The output of step ${frame.n} is there`,
        text: (frame.o.length ? `A token for ${some}.` : "It samples nothing.")
          + (hashed.length ? ` With it ${listed(hashed.map(event => names.of(event[1])))} ${hashed.length === 1 ? "has" : "have"} a full block more, which is hashed.` : "")
          + (done.length ? ` ${listed(done.map(([id]) => names.of(id)))} ${done.length === 1 ? "has" : "have"} all that was asked for.` : ""),
      };
    },
    abort: frame => ({title: `${listed(frame.ids.map(names.of))} is aborted`, text: "Its client has gone.", isCall: true}),
    reset: frame => ({
      title: frame.done ? "The prefix cache is emptied" : "A reset of the prefix cache is refused", isCall: true,
      text: (frame.ids.length ? `${listed(frame.ids.map(names.of))} had to be preempted first. ` : "")
        + (frame.done ? "Every hash is dropped." : "Blocks are in use."),
    }),
    0: () => ({title: "Every hash is dropped", text: "No block can be hit any more."}),
  };

  const freed = (events, state) => {
    const order = of(events, "r").map(event => event[1]);
    const front = of(events, "f").map(event => event[1]), back = of(events, "b").map(event => event[1]);
    const held = order.filter(block => !front.includes(block) && !back.includes(block));
    const parts = [
      back.length && `${blocks(back)} with a hash to the back`,
      front.length && `${blocks(front)} without one to the front`,
      held.length && `${blocks(held)} ${held.length === 1 ? "is" : "are"} still held by others`,
    ].filter(Boolean);
    return order.length ? `Its blocks are freed, the last one first: ${parts.join("; ")}.` : "It held no blocks.";
  };

  return beat => {
    const frame = data.frames[beat.frame];
    const events = frame ? frame.e.slice(beat.from, beat.to) : [];
    return (tell[beat.code] ?? (() => ({title: beat.code, text: ""})))(frame, events, replay.state, beat);
  };
};
