// A linear layer on tensor cores: c[m][n] = sum over k of a[m][k] * w[n][k], in bf16, summed in 32 bits.
// For machines without cuBLASLt. n is a multiple of 64 (narrow) or 128 (wide) or not, k of 32.
//
// A block makes BM x BN outputs from tiles of 32 along k, which are copied ahead into STAGES buffers.
// Blocks may share out k (gridDim.z); each then writes its sums to `parts`, which `add_parts` adds up.

#define STEP 32
// Rows 80 bytes apart: eight of them touch every bank once.
#define GEMM_PITCH 40

template <int BM, int BN, int WM, int WN, int STAGES>
__device__ __forceinline__ void gemm(const bf16 *a, const bf16 *w, bf16 *c, float *parts, int m, int n, int k) {
    const int THREADS = BM / WM * (BN / WN) * 32;
    __shared__ __align__(16) bf16 tile_a[STAGES][BM * GEMM_PITCH];
    __shared__ __align__(16) bf16 tile_w[STAGES][BN * GEMM_PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / (BN / WN) * WM, warp_n = warp % (BN / WN) * WN;
    const int first_m = blockIdx.y * BM, first_n = blockIdx.x * BN;
    const int steps = k / STEP;
    const int share = (steps + gridDim.z - 1) / gridDim.z;
    const int first = blockIdx.z * share;
    const int end = first + share < steps ? first + share : steps;
    float sums[WM / 16][WN / 8][4] = {};

    auto load = [&](int step) {
        const int stage = (step - first) % STAGES;
        for (int i = threadIdx.x; i < (BM + BN) * 4; i += THREADS) {
            const int row = i / 4 < BM ? i / 4 : i / 4 - BM, column = i % 4 * 8;
            const bool is_a = i / 4 < BM;
            const bool there = is_a ? first_m + row < m : first_n + row < n;
            const bf16 *from = is_a ? a + (size_t)(there ? first_m + row : 0) * k
                                    : w + (size_t)(there ? first_n + row : 0) * k;
            bf16 *to = (is_a ? tile_a[stage] : tile_w[stage]) + row * GEMM_PITCH + column;
            copy_async(to, from + step * STEP + column, there);
        }
    };

    for (int step = first; step < first + STAGES - 1; step++) {
        if (step < end) load(step);
        commit_copies();
    }
    for (int step = first; step < end; step++) {
        wait_copies<STAGES - 2>();
        // This step's tiles are there for all threads, and none still reads those of the last step.
        __syncthreads();
        if (step + STAGES - 1 < end) load(step + STAGES - 1);
        commit_copies();
        const int stage = (step - first) % STAGES;
        for (int inner = 0; inner < STEP; inner += 16) {
            u32 from_a[WM / 16][4];
            for (int i = 0; i < WM / 16; i++) {
                const int row = warp_m + i * 16 + lane % 16;
                load_matrices(from_a[i], tile_a[stage] + row * GEMM_PITCH + inner + lane / 16 * 8);
            }
            for (int j = 0; j < WN / 16; j++) {
                u32 from_w[4];
                const int row = warp_n + j * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(from_w, tile_w[stage] + row * GEMM_PITCH + inner + lane / 8 % 2 * 8);
                for (int i = 0; i < WM / 16; i++) {
                    multiply_add(sums[i][2 * j], from_a[i], from_w[0], from_w[1]);
                    multiply_add(sums[i][2 * j + 1], from_a[i], from_w[2], from_w[3]);
                }
            }
        }
    }
    for (int i = 0; i < WM / 16; i++) {
        for (int half = 0; half < 2; half++) {
            const int row = first_m + warp_m + i * 16 + half * 8 + lane / 4;
            for (int j = 0; j < WN / 8; j++) {
                const int column = first_n + warp_n + j * 8 + lane % 4 * 2;
                if (row >= m || column >= n) continue;
                const float left = sums[i][j][half * 2], right = sums[i][j][half * 2 + 1];
                const size_t at = (size_t)row * n + column;
                if (gridDim.z == 1) {
                    *(u32 *)(c + at) = pack_bf16(left, right);
                } else {
                    float *part = parts + (size_t)blockIdx.z * m * n + at;
                    part[0] = left;
                    part[1] = right;
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
gemm_wide(const bf16 *a, const bf16 *w, bf16 *c, float *parts, int m, int n, int k) {
    gemm<128, 128, 64, 32, 2>(a, w, c, parts, m, n, k);
}

extern "C" __global__ void __launch_bounds__(128)
gemm_narrow(const bf16 *a, const bf16 *w, bf16 *c, float *parts, int m, int n, int k) {
    gemm<16, 64, 16, 16, 4>(a, w, c, parts, m, n, k);
}

// Pairs of elements; `count` is even.
extern "C" __global__ void add_parts(const float *parts, bf16 *c, u32 count, u32 splits) {
    const u32 i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count) return;
    float left = 0.0f, right = 0.0f;
    for (u32 split = 0; split < splits; split++) {
        left += parts[(size_t)split * count + i];
        right += parts[(size_t)split * count + i + 1];
    }
    *(u32 *)(c + i) = pack_bf16(left, right);
}
