// Attention over a paged cache with online softmax, causal. Query heads that share a KV head are rows
// of one tile: row r of a sequence is token r / group, head r % group of the KV head's group.
//
// The keys of a sequence may be shared out to several workgroups (splits); each then writes what it
// has, and `combine` puts the parts together.

struct Params {
    heads_q: u32,
    heads_kv: u32,
    block_size: u32,
    blocks_per_row: u32,
    slots: u32,
    splits: u32,
    // New tokens in all.
    tokens: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<Element4>;
@group(0) @binding(2) var<storage, read> cache: array<Element4>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
// First new token, new tokens, all tokens of each sequence.
@group(0) @binding(4) var<storage, read> sequences: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> output: array<Element>;
// Of each split, token and query head: weighted values, then highest score and sum of weights.
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;
@group(0) @binding(7) var<storage, read_write> sums: array<vec2<f32>>;

const HEAD_DIM = 128u;
const VECTORS = 32u;
const ROWS = 16u;
const KEYS = 32u;
const LOWEST = -1e30;

// One vector more than needed keeps rows off one bank.
var<workgroup> tile_q: array<array<Element4, 33>, 16>;
var<workgroup> tile_k: array<array<Element4, 33>, 32>;
var<workgroup> weights: array<array<f32, 32>, 16>;
var<workgroup> slots: array<u32, 32>;
var<workgroup> row_max: array<f32, 16>;
var<workgroup> row_sum: array<f32, 16>;
var<workgroup> row_rescale: array<f32, 16>;

@compute @workgroup_size(128)
fn attention(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = params.heads_q / params.heads_kv;
    let head_kv = workgroup.y;
    let sequence = workgroup.z / params.splits;
    let split = workgroup.z % params.splits;
    let lengths = sequences[sequence];
    let first_token = lengths.x;
    let rows = lengths.y * group;
    let past = lengths.z - lengths.y;
    let first_row = workgroup.x * ROWS;
    if first_row >= rows {
        return;
    }
    // Keys that the last row of this tile sees, cut into the splits at multiples of a tile.
    let last_row = min(first_row + ROWS, rows) - 1u;
    let seen = past + last_row / group + 1u;
    let share = (seen + params.splits * KEYS - 1u) / (params.splits * KEYS) * KEYS;
    let first_key = split * share;
    let end_key = min(first_key + share, seen);

    for (var i = thread; i < ROWS * VECTORS; i += 128u) {
        let row = min(first_row + i / VECTORS, last_row);
        let at = (first_token + row / group) * params.heads_q + head_kv * group + row % group;
        tile_q[i / VECTORS][i % VECTORS] = queries[at * VECTORS + i % VECTORS];
    }
    if thread < ROWS {
        row_max[thread] = LOWEST;
        row_sum[thread] = 0.0;
    }
    // This thread's element of each row's output.
    var out: array<f32, 16>;
    for (var key = first_key; key < end_key; key += KEYS) {
        if thread < KEYS {
            let position = min(key + thread, end_key - 1u);
            let block = block_table[sequence * params.blocks_per_row + position / params.block_size];
            slots[thread] = block * params.block_size + position % params.block_size;
        }
        workgroupBarrier();
        for (var i = thread; i < KEYS * VECTORS; i += 128u) {
            let at = slots[i / VECTORS] * params.heads_kv + head_kv;
            tile_k[i / VECTORS][i % VECTORS] = cache[at * VECTORS + i % VECTORS];
        }
        workgroupBarrier();
        // 8 threads to a row, 4 keys to a thread.
        let row = thread / 8u;
        var scores = vec4<f32>(0.0);
        for (var i = 0u; i < VECTORS; i++) {
            let q = vec4<f32>(tile_q[row][i]);
            for (var j = 0u; j < 4u; j++) {
                scores[j] += dot(q, vec4<f32>(tile_k[thread % 8u + j * 8u][i]));
            }
        }
        let sees = past + (first_row + row) / group;
        for (var j = 0u; j < 4u; j++) {
            let position = key + thread % 8u + j * 8u;
            let visible = position < end_key && position <= sees;
            weights[row][thread % 8u + j * 8u] = select(LOWEST, scores[j] * params.scale, visible);
        }
        workgroupBarrier();
        if thread < ROWS {
            var highest = row_max[thread];
            for (var j = 0u; j < KEYS; j++) {
                highest = max(highest, weights[thread][j]);
            }
            let rescale = exp(row_max[thread] - highest);
            var sum = row_sum[thread] * rescale;
            for (var j = 0u; j < KEYS; j++) {
                let score = weights[thread][j];
                let weight = select(exp(score - highest), 0.0, score == LOWEST);
                weights[thread][j] = weight;
                sum += weight;
            }
            row_max[thread] = highest;
            row_sum[thread] = sum;
            row_rescale[thread] = rescale;
        }
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r++) {
            out[r] *= row_rescale[r];
        }
        for (var j = 0u; j < KEYS; j++) {
            let at = (params.slots + slots[j]) * params.heads_kv + head_kv;
            let value = f32(cache[at * VECTORS + thread / 4u][thread % 4u]);
            for (var r = 0u; r < ROWS; r++) {
                out[r] += weights[r][j] * value;
            }
        }
        workgroupBarrier();
    }
    workgroupBarrier();
    for (var r = 0u; r < ROWS; r++) {
        let row = first_row + r;
        if row <= last_row {
            let at = (first_token + row / group) * params.heads_q + head_kv * group + row % group;
            if params.splits == 1u {
                output[at * HEAD_DIM + thread] = Element(out[r] / row_sum[r]);
            } else {
                let part = split * params.tokens * params.heads_q + at;
                parts[part * HEAD_DIM + thread] = out[r];
                if thread == 0u {
                    sums[part] = vec2<f32>(row_max[r], row_sum[r]);
                }
            }
        }
    }
}

// One workgroup for each token and query head.
@compute @workgroup_size(128)
fn combine(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let at = workgroup.x * params.heads_q + workgroup.y;
    let stride = params.tokens * params.heads_q;
    var highest = LOWEST;
    for (var split = 0u; split < params.splits; split++) {
        highest = max(highest, sums[split * stride + at].x);
    }
    var total = 0.0;
    var out = 0.0;
    for (var split = 0u; split < params.splits; split++) {
        let part = split * stride + at;
        let weight = exp(sums[part].x - highest);
        total += weight * sums[part].y;
        out += weight * parts[part * HEAD_DIM + thread];
    }
    output[at * HEAD_DIM + thread] = Element(out / total);
}
