// A linear layer: c[m][n] = sum over k of a[m][k] * w[n][k], summed in 32 bits.
// k is a multiple of 16 in the tiled kernel, of 4 in the narrow one; n a multiple of 64 and of 4.

struct Params {
    m: u32,
    n: u32,
    k: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<Element4>;
@group(0) @binding(2) var<storage, read> w: array<Element4>;
@group(0) @binding(3) var<storage, read_write> c: array<Element>;

const TILE = 64u;
const STEP = 16u;

// Inner index first, so that neighbouring threads read neighbouring words; one column more than
// needed keeps the writes, which run along the other index, off one bank.
var<workgroup> tile_a: array<array<f32, 65>, 16>;
var<workgroup> tile_w: array<array<f32, 65>, 16>;

// A workgroup makes 64 x 64 outputs, a thread 4 x 4 of them.
@compute @workgroup_size(256)
fn tiled(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_n = group.x * TILE;
    let first_m = group.y * TILE;
    let row = thread / 16u;
    let column = thread % 16u;
    // Each thread loads 4 neighbours of one row of either tile.
    let load_row = thread / 4u;
    let load_k = (thread % 4u) * 4u;
    let row_vectors = params.k / 4u;
    var sums: array<vec4<f32>, 4>;
    for (var k = 0u; k < params.k; k += STEP) {
        var from_a = vec4<f32>(0.0);
        if first_m + load_row < params.m {
            from_a = vec4<f32>(a[(first_m + load_row) * row_vectors + (k + load_k) / 4u]);
        }
        let from_w = vec4<f32>(w[(first_n + load_row) * row_vectors + (k + load_k) / 4u]);
        for (var i = 0u; i < 4u; i++) {
            tile_a[load_k + i][load_row] = from_a[i];
            tile_w[load_k + i][load_row] = from_w[i];
        }
        workgroupBarrier();
        for (var i = 0u; i < STEP; i++) {
            let weights = vec4<f32>(
                tile_w[i][column], tile_w[i][column + 16u], tile_w[i][column + 32u], tile_w[i][column + 48u]);
            for (var j = 0u; j < 4u; j++) {
                sums[j] += tile_a[i][row + j * 16u] * weights;
            }
        }
        workgroupBarrier();
    }
    for (var j = 0u; j < 4u; j++) {
        let at_m = first_m + row + j * 16u;
        if at_m < params.m {
            for (var i = 0u; i < 4u; i++) {
                c[at_m * params.n + first_n + column + i * 16u] = Element(sums[j][i]);
            }
        }
    }
}

const ROWS = 8u;
const LANES = 32u;

var<workgroup> partial: array<array<f32, 128>, 8>;

// Few tokens: a workgroup makes 4 columns of up to 8 tokens, 32 threads share the inner sum of each,
// so that weights are read once, side by side.
@compute @workgroup_size(128)
fn narrow(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let column = group.x * 4u + thread / LANES;
    let lane = thread % LANES;
    let first_m = group.y * ROWS;
    let rows = min(ROWS, params.m - first_m);
    let row_vectors = params.k / 4u;
    var sums: array<f32, 8>;
    for (var i = lane; i < row_vectors; i += LANES) {
        let weights = vec4<f32>(w[column * row_vectors + i]);
        for (var j = 0u; j < rows; j++) {
            sums[j] += dot(weights, vec4<f32>(a[(first_m + j) * row_vectors + i]));
        }
    }
    for (var j = 0u; j < ROWS; j++) {
        partial[j][thread] = sums[j];
    }
    workgroupBarrier();
    // 4 columns of 8 rows: one thread adds up each.
    if thread < 4u * ROWS {
        let j = thread / 4u;
        let which = thread % 4u;
        if j < rows {
            var sum = 0.0;
            for (var i = 0u; i < LANES; i++) {
                sum += partial[j][which * LANES + i];
            }
            c[(first_m + j) * params.n + group.x * 4u + which] = Element(sum);
        }
    }
}
