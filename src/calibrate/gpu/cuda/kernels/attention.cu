// The paged KV cache: writing new tokens into it, and causal attention over it on tensor cores, in bf16
// with heads of 128. The cache is [2][slots][heads_kv][128], keys first.
//
// Query heads that share a KV head are rows of one tile: row r of a sequence is token r / group, head
// r % group of the KV head's group. Blocks may share out the keys of a sequence (splits); each then
// writes what it has, and `combine_attention` puts the parts together.

#define HEAD_DIM 128
#define KEYS 32
// Rows 272 bytes apart: eight of them touch every bank once.
#define PITCH 136
#define LOWEST -1e30f

struct Lengths {
    u32 first_token, q_len, kv_len, unused;
};

// `row` counts 16-byte pieces of all KV heads of a token.
extern "C" __global__ void kv_cache_write(const uint4 *new_keys, const uint4 *new_values,
                                          const u32 *slot_mapping, uint4 *cache, u32 tokens, u32 row,
                                          u32 slots) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < tokens * row; i += gridDim.x * blockDim.x) {
        const size_t to = (size_t)slot_mapping[i / row] * row + i % row;
        cache[to] = new_keys[i];
        cache[(size_t)slots * row + to] = new_values[i];
    }
}

// Largest value, or sum, of the four lanes that hold a row.
__device__ __forceinline__ float row_largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

__device__ __forceinline__ float row_total(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// A warp has 16 rows; all warps of a block read the same keys.
template <int WARPS>
__device__ __forceinline__ void attention(const bf16 *queries, const bf16 *cache, const u32 *block_table,
                                          const Lengths *sequences, bf16 *output, float *parts, float2 *sums,
                                          u32 heads_q, u32 heads_kv, u32 block_size, u32 blocks_per_row,
                                          u32 slots, u32 splits, u32 tokens, float scale) {
    const int ROWS = WARPS * 16, THREADS = WARPS * 32;
    __shared__ __align__(16) bf16 keys[2 * KEYS * PITCH];
    __shared__ __align__(16) bf16 values[2 * KEYS * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 group = heads_q / heads_kv, head_kv = blockIdx.y;
    const u32 sequence = blockIdx.z / splits, split = blockIdx.z % splits;
    const Lengths lengths = sequences[sequence];
    const int rows = lengths.q_len * group, past = lengths.kv_len - lengths.q_len;
    const int first_row = blockIdx.x * ROWS;
    if (first_row >= rows) return;
    // Keys that the last row of this tile sees, cut into the splits at multiples of a tile.
    const int last_row = (first_row + ROWS < rows ? first_row + ROWS : rows) - 1;
    const int seen = past + last_row / group + 1;
    const int share = (seen + splits * KEYS - 1) / (splits * KEYS) * KEYS;
    const int first_key = split * share;
    const int end_key = first_key + share < seen ? first_key + share : seen;
    auto place = [&](int row) {
        return (size_t)(lengths.first_token + row / group) * heads_q + head_kv * group + row % group;
    };

    // Queries pass through the buffer of the keys into registers.
    for (int i = threadIdx.x; i < ROWS * 16; i += THREADS) {
        const int row = first_row + i / 16 < last_row ? first_row + i / 16 : last_row;
        copy_async(keys + i / 16 * PITCH + i % 16 * 8, queries + place(row) * HEAD_DIM + i % 16 * 8, true);
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    u32 query[8][4];
    for (int i = 0; i < 8; i++) {
        load_matrices(query[i], keys + (warp * 16 + lane % 16) * PITCH + i * 16 + lane / 16 * 8);
    }
    __syncthreads();

    auto load = [&](int tile) {
        for (int i = threadIdx.x; i < KEYS * 16; i += THREADS) {
            const int position = first_key + tile * KEYS + i / 16;
            const bool there = position < end_key;
            size_t from = 0;
            if (there) {
                const u32 block = block_table[sequence * blocks_per_row + position / block_size];
                from = ((size_t)(block * block_size + position % block_size) * heads_kv + head_kv) * HEAD_DIM +
                       i % 16 * 8;
            }
            const int to = (tile % 2 * KEYS + i / 16) * PITCH + i % 16 * 8;
            copy_async(keys + to, cache + from, there);
            copy_async(values + to, cache + (size_t)slots * heads_kv * HEAD_DIM + from, there);
        }
    };

    // This lane has parts of two rows.
    const int row[2] = {first_row + warp * 16 + lane / 4, first_row + warp * 16 + lane / 4 + 8};
    const int sees[2] = {past + row[0] / (int)group, past + row[1] / (int)group};
    float out[16][4] = {};
    float largest[2] = {LOWEST, LOWEST}, sum[2] = {0.0f, 0.0f};
    const int tiles = end_key > first_key ? (end_key - first_key + KEYS - 1) / KEYS : 0;
    if (tiles > 0) load(0);
    commit_copies();
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) load(tile + 1);
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        const bf16 *tile_keys = keys + tile % 2 * KEYS * PITCH;
        const bf16 *tile_values = values + tile % 2 * KEYS * PITCH;
        float scores[4][4] = {};
        for (int pair = 0; pair < 2; pair++) {
            for (int i = 0; i < 8; i++) {
                u32 key[4];
                const int at = pair * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(key, tile_keys + at * PITCH + i * 16 + lane / 8 % 2 * 8);
                multiply_add(scores[2 * pair], query[i], key[0], key[1]);
                multiply_add(scores[2 * pair + 1], query[i], key[2], key[3]);
            }
        }
        float before[2] = {largest[0], largest[1]};
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) {
                const int position = first_key + tile * KEYS + i * 8 + lane % 4 * 2 + j % 2;
                const bool visible = position < end_key && position <= sees[j / 2];
                // In powers of two: exp(x) = exp2(x log2(e)).
                scores[i][j] = visible ? scores[i][j] * (scale * 1.4426950408889634f) : LOWEST;
                largest[j / 2] = fmaxf(largest[j / 2], scores[i][j]);
            }
        }
        for (int half = 0; half < 2; half++) {
            largest[half] = row_largest(largest[half]);
            const float rescale = exp2f(before[half] - largest[half]);
            sum[half] *= rescale;
            for (int i = 0; i < 16; i++) {
                out[i][half * 2] *= rescale;
                out[i][half * 2 + 1] *= rescale;
            }
        }
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) {
                const float score = scores[i][j];
                scores[i][j] = score == LOWEST ? 0.0f : exp2f(score - largest[j / 2]);
                sum[j / 2] += scores[i][j];
            }
        }
        for (int half = 0; half < 2; half++) {
            const float(&left)[4] = scores[2 * half], (&right)[4] = scores[2 * half + 1];
            const u32 weights[4] = {pack_bf16(left[0], left[1]), pack_bf16(left[2], left[3]),
                                    pack_bf16(right[0], right[1]), pack_bf16(right[2], right[3])};
            for (int i = 0; i < 8; i++) {
                u32 value[4];
                const bf16 *at = tile_values + (half * 16 + lane % 16) * PITCH + i * 16 + lane / 16 * 8;
                load_matrices_transposed(value, at);
                multiply_add(out[2 * i], weights, value[0], value[1]);
                multiply_add(out[2 * i + 1], weights, value[2], value[3]);
            }
        }
        // Nobody reads this tile any more; the next copies may take its place.
        __syncthreads();
    }
    for (int half = 0; half < 2; half++) {
        const float total = row_total(sum[half]);
        if (row[half] > last_row) continue;
        const size_t at = place(row[half]);
        const size_t part = (size_t)split * tokens * heads_q + at;
        for (int i = 0; i < 16; i++) {
            const int column = i * 8 + lane % 4 * 2;
            const float left = out[i][half * 2], right = out[i][half * 2 + 1];
            if (splits == 1) {
                *(u32 *)(output + at * HEAD_DIM + column) = pack_bf16(left / total, right / total);
            } else {
                *(float2 *)(parts + part * HEAD_DIM + column) = make_float2(left, right);
            }
        }
        if (splits > 1 && lane % 4 == 0) sums[part] = make_float2(largest[half], total);
    }
}

#define ATTENTION(name, warps)                                                                               \
    extern "C" __global__ void __launch_bounds__(warps * 32)                                                 \
        name(const bf16 *queries, const bf16 *cache, const u32 *block_table, const Lengths *sequences,       \
             bf16 *output, float *parts, float2 *sums, u32 heads_q, u32 heads_kv, u32 block_size,            \
             u32 blocks_per_row, u32 slots, u32 splits, u32 tokens, float scale) {                           \
        attention<warps>(queries, cache, block_table, sequences, output, parts, sums, heads_q, heads_kv,     \
                         block_size, blocks_per_row, slots, splits, tokens, scale);                          \
    }

// One token of each sequence: its query heads fit into the rows of one warp.
ATTENTION(attention_16, 1)
ATTENTION(attention_64, 4)

// A block for each token and query head, a thread for each element.
extern "C" __global__ void __launch_bounds__(HEAD_DIM)
combine_attention(const float *parts, const float2 *sums, bf16 *output, u32 heads_q, u32 splits, u32 tokens) {
    const size_t at = (size_t)blockIdx.x * heads_q + blockIdx.y;
    const size_t stride = (size_t)tokens * heads_q;
    float largest = LOWEST;
    for (u32 split = 0; split < splits; split++) largest = fmaxf(largest, sums[split * stride + at].x);
    float total = 0.0f, out = 0.0f;
    for (u32 split = 0; split < splits; split++) {
        const size_t part = split * stride + at;
        const float weight = exp2f(sums[part].x - largest);
        total += weight * sums[part].y;
        out += weight * parts[part * HEAD_DIM + threadIdx.x];
    }
    output[at * HEAD_DIM + threadIdx.x] = (bf16)pack_bf16(out / total, 0.0f);
}
