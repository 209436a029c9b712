// The engine's state at any moment of the recording: the state at its begin, and the journal's entries
// applied to it. Nothing is decided here.
const Replay = (() => {
  "use strict";
  const WAITING = 0, RUNNING = 2, PREEMPTED = 3;

  // How many entries from `i` on belong to one beat: something that is told in one sentence.
  const beatLength = (events, i) => {
    const run = codes => {
      let end = i + 1;
      while (end < events.length && codes.includes(events[end][0])) end++;
      return end - i;
    };
    switch (events[i][0]) {
      // A running request gets a block, or its full ones their hash: told with what is done.
      case "A": {
        const before = events[i - 1];
        const isAdmission = before?.[0] === "L" && before[1] === events[i][1];
        return isAdmission || i + 1 >= events.length ? 1 : 1 + beatLength(events, i + 1);
      }
      case "T": return run("T-");
      case "C": return run("I");
      case "X": case "F": case "r": return run(events[i][0] === "X" ? "Frfb" : "rfb");
      case "P": {
        // One block at a time, unless there are many.
        const all = run("PE"), pops = events.slice(i, i + all).filter(event => event[0] === "P").length;
        if (pops > 6) return all;
        let end = i + 1;
        while (end < events.length && events[end][0] === "E") end++;
        return end - i;
      }
      case "E": return run("E");
      default: return 1;
    }
  };

  const beatsOf = frames => {
    const beats = [{frame: -1, from: 0, to: 0, code: "begin", last: true}];
    frames.forEach((frame, at) => {
      const first = beats.length;
      const events = frame.e;
      let i = 0;
      // What comes in is told with the hashes that it makes.
      if (frame.k !== "schedule") {
        while (i < events.length && events[i][0] === "H") i++;
        beats.push({frame: at, from: 0, to: i, code: frame.k});
      }
      while (i < events.length) {
        const length = beatLength(events, i);
        const code = events[i][0] === "A" && length > 1 ? events[i + 1][0] : events[i][0];
        beats.push({frame: at, from: i, to: i + length, code});
        i += length;
      }
      if (frame.k === "schedule" && (frame.s.length || beats.length === first)) {
        beats.push({frame: at, from: i, to: i, code: "run"});
      }
      beats[beats.length - 1].last = true;
    });
    return beats;
  };

  return class Replay {
    constructor(data) {
      this.data = data;
      this.beats = beatsOf(data.frames);
      // Where going back begins: often enough, and not so often that memory runs out.
      this.every = Math.max(64, Math.ceil(this.beats.length / 200));
      this.state = this.begin();
      this.snapshots = [structuredClone(this.state)];
    }

    begin() {
      const {data} = this, {begin} = data;
      const state = {
        at: 0, queue: [], refs: {}, hashes: {}, blocks: {}, requests: {}, running: [], waiting: [], inside: null,
      };
      for (const [start, length] of begin.free) for (let i = 0; i < length; i++) state.queue.push(start + i);
      for (const [block, count] of begin.refs) state.refs[block] = count;
      for (const [block, hash, group] of begin.hashes) this.insert(state, block, hash, group);
      for (const event of begin.e) this.apply(state, event);
      this.endFrame(state, begin);
      return state;
    }

    seek(at) {
      at = Math.max(0, Math.min(this.beats.length - 1, at));
      if (at < this.state.at) {
        const snapshot = this.snapshots[Math.floor(at / this.every)];
        this.state = structuredClone(snapshot);
      }
      while (this.state.at < at) this.next();
      return this.state;
    }

    next() {
      const {state} = this, beat = this.beats[state.at + 1];
      const frame = this.data.frames[beat.frame];
      for (const event of frame.e.slice(beat.from, beat.to)) this.apply(state, event);
      if (beat.last) this.endFrame(state, frame);
      state.at++;
      if (state.at % this.every === 0) this.snapshots[state.at / this.every] ??= structuredClone(state);
    }

    request(state, id) {
      return state.requests[id] ??= {
        id, status: WAITING, tokens: 0, computed: 0, inFlight: 0, hashes: [],
        tables: this.data.groups.map(() => []),
      };
    }

    insert(state, block, hash, group) {
      (state.hashes[block] ??= []).push([hash, group]);
      (state.blocks[hash + ":" + group] ??= []).push(block);
    }

    apply(state, [code, ...args]) {
      const remove = (list, item) => {
        const at = list.indexOf(item);
        if (at >= 0) list.splice(at, 1);
      };
      const single = this.data.groups.length === 1;
      const inside = state.inside === null ? null : this.request(state, state.inside);
      const [block] = args;
      switch (code) {
        case "H": this.request(state, args[0]).hashes.push(...args[1]); break;
        case "L": case "R": case "C": state.inside = args[0]; break;
        case "A": {
          state.inside = args[0];
          const request = this.request(state, args[0]);
          if (request.status !== RUNNING) {
            request.status = RUNNING;
            remove(state.waiting, request.id);
            state.running.push(request.id);
          }
          break;
        }
        case "T":
          state.refs[block] = (state.refs[block] ?? 0) + 1;
          if (inside && single) inside.tables[0].push(block);
          break;
        case "P":
          state.queue.splice(state.queue.indexOf(block), 1);
          state.refs[block] = 1;
          if (inside && single) inside.tables[0].push(block);
          break;
        case "-": remove(state.queue, block); break;
        case "I": this.insert(state, block, args[1], args[2]); break;
        case "E": {
          const list = state.hashes[block] ?? [];
          const at = list.findIndex(([hash, group]) => hash === args[1] && group === args[2]);
          if (at >= 0) list.splice(at, 1);
          if (!list.length) delete state.hashes[block];
          const key = args[1] + ":" + args[2];
          remove(state.blocks[key] ?? [], block);
          if (!state.blocks[key]?.length) delete state.blocks[key];
          break;
        }
        case "X": {
          const request = this.request(state, args[0]);
          state.inside = args[0];
          request.status = PREEMPTED;
          remove(state.running, request.id);
          state.waiting.unshift(request.id);
          break;
        }
        case "F": state.inside = args[0]; break;
        case "r":
          state.refs[block]--;
          if (inside && single) remove(inside.tables[0], block);
          break;
        case "f": state.queue.unshift(block); break;
        case "b": state.queue.push(block); break;
        case "0": state.hashes = {}; state.blocks = {}; state.refs = {}; break;
      }
    }

    // What the engine itself says of its requests after the call.
    endFrame(state, frame) {
      for (const [id, status, tokens, computed, inFlight] of frame.r ?? []) {
        Object.assign(this.request(state, id), {status, tokens, computed, inFlight});
        if (status > PREEMPTED) state.requests[id].tables = this.data.groups.map(() => []);
      }
      for (const [id, group, keep, blocks] of frame.t ?? []) {
        const tables = this.request(state, id).tables;
        tables[group] = tables[group].slice(0, keep).concat(blocks);
      }
      if (frame.q) [state.running, state.waiting] = frame.q.map(ids => [...ids]);
      state.inside = null;
    }

    // Where the state by the journal differs from what the engine says of itself; empty if nowhere.
    check() {
      const errors = [];
      const single = this.data.groups.length === 1;
      for (let at = 1; at < this.beats.length; at++) {
        const beat = this.beats[at], frame = this.data.frames[beat.frame];
        // Tables by the journal, before the engine's are put in their place.
        const before = beat.last && single ? this.peek(at) : null;
        const state = this.seek(at);
        if (!beat.last) continue;
        const [free, hashes, pairs, head] = frame.x;
        const found = [
          state.queue.length, Object.keys(state.blocks).length,
          Object.values(state.blocks).reduce((sum, blocks) => sum + blocks.length, 0), state.queue.slice(0, 8),
        ];
        if (JSON.stringify(found) !== JSON.stringify([free, hashes, pairs, head])) {
          errors.push(`frame ${beat.frame}: ${JSON.stringify(found)}, the engine says ${JSON.stringify(frame.x)}`);
        }
        for (const [id, tables] of before ?? []) {
          const now = JSON.stringify(state.requests[id].tables);
          if (tables !== now) errors.push(`frame ${beat.frame}: request ${id} by the journal ${tables}, the engine says ${now}`);
        }
      }
      return errors;
    }

    // The tables after a beat's entries alone.
    peek(at) {
      const state = structuredClone(this.seek(at - 1));
      const beat = this.beats[at];
      for (const event of this.data.frames[beat.frame].e.slice(beat.from, beat.to)) this.apply(state, event);
      return Object.values(state.requests).map(request => [request.id, JSON.stringify(request.tables)]);
    }
  };
})();
