// Runs CUDA C on the CPU, to see what the kernels compute where there is no GPU: one block after the
// other, its threads as fibers that take turns at barriers and at the instructions of a whole warp.
//
// The fragments of `ldmatrix` and `mma` are laid out as the PTX ISA describes them (sections "Warp Level
// Matrix Load Instruction" and "Matrix Fragments for mma.m16n8k16").

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <ucontext.h>

typedef unsigned short bf16;
typedef unsigned char fp8;
typedef unsigned int u32;

struct uint3 {
    u32 x, y, z;
};
struct uint4 {
    u32 x, y, z, w;
};
struct uint2 {
    u32 x, y;
};
static inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
struct float2 {
    float x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }

static u32 __float_as_uint(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static float __uint_as_float(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static int __float2int_rn(float value) { return (int)rintf(value); }

#define __global__
#define __device__
#define __forceinline__ inline
// Blocks run one after the other, so the memory of one may be that of all.
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads)

static uint3 threadIdx, blockIdx, blockDim, gridDim;

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done = false, at_barrier = false;
    // Copies to shared memory that were started, by group; the last is not committed yet.
    std::vector<std::vector<std::function<void()>>> copies{1};
    // Which of the two exchanges of its warp comes next.
    u32 turn = 0;
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static u32 running;

static void yield() {
    swapcontext(&fibers[running].context, &scheduler);
    threadIdx.x = running;
}

static void __syncthreads() {
    fibers[running].at_barrier = true;
    yield();
}

// What a lane shows the others of its warp. Two, since a lane may be one exchange ahead of another.
struct Exchange {
    uint64_t words[2][8];
};
static std::vector<Exchange> exchanges;

static u32 lane() { return running % 32; }

// Shows words to the warp, and gives access to what lane `of` shows.
static std::function<const uint64_t *(u32)> exchange(std::initializer_list<uint64_t> words) {
    const u32 turn = fibers[running].turn++ % 2;
    std::copy(words.begin(), words.end(), exchanges[running].words[turn]);
    yield();
    const u32 first = running / 32 * 32;
    return [=](u32 of) { return exchanges[first + of].words[turn]; };
}

static float __shfl_xor_sync(u32, float value, int mask) {
    return __uint_as_float(exchange({__float_as_uint(value)})(lane() ^ mask)[0]);
}

static u32 round_to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    if (std::isnan(value)) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

static float from_bf16(u32 bits) {
    return __uint_as_float(bits << 16);
}

static u32 pack_bf16(float low, float high) { return round_to_bf16(low) | round_to_bf16(high) << 16; }

// Copied no sooner than the group is waited for, so that a missing wait shows.
static void copy_async(void *shared, const void *global, bool there) {
    if (there) {
        fibers[running].copies.back().push_back([=] { memcpy(shared, global, 16); });
    } else {
        fibers[running].copies.back().push_back([=] { memset(shared, 0, 16); });
    }
}

static void commit_copies() { fibers[running].copies.emplace_back(); }

template <int pending> static void wait_copies() {
    auto &groups = fibers[running].copies;
    while (groups.size() > pending + 1) {
        for (auto &copy : groups.front()) copy();
        groups.erase(groups.begin());
    }
}

static void load_matrices(u32 (&matrices)[4], const void *row) {
    auto rows = exchange({(uint64_t)(uintptr_t)row});
    for (u32 i = 0; i < 4; i++) {
        const bf16 *from = (const bf16 *)(uintptr_t)rows(i * 8 + lane() / 4)[0];
        memcpy(&matrices[i], from + lane() % 4 * 2, 4);
    }
}

static void load_matrices_transposed(u32 (&matrices)[4], const void *row) {
    auto rows = exchange({(uint64_t)(uintptr_t)row});
    for (u32 i = 0; i < 4; i++) {
        const bf16 *low = (const bf16 *)(uintptr_t)rows(i * 8 + lane() % 4 * 2)[0];
        const bf16 *high = (const bf16 *)(uintptr_t)rows(i * 8 + lane() % 4 * 2 + 1)[0];
        matrices[i] = low[lane() / 4] | (u32)high[lane() / 4] << 16;
    }
}

static float half_of(uint64_t word, u32 which) { return from_bf16(which ? word >> 16 & 0xFFFF : word & 0xFFFF); }

static void multiply_add(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    auto lanes = exchange({a[0], a[1], a[2], a[3], b0, b1});
    // Element (row, k) of a: lane row % 8 * 4 + k % 8 / 2, register row / 8 + k / 8 * 2.
    auto element_a = [&](u32 row, u32 k) {
        return half_of(lanes(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2], k % 2);
    };
    // Element (k, column) of b: lane column * 4 + k % 8 / 2, register k / 8.
    auto element_b = [&](u32 k, u32 column) { return half_of(lanes(column * 4 + k % 8 / 2)[4 + k / 8], k % 2); };
    for (u32 i = 0; i < 4; i++) {
        const u32 row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
        for (u32 k = 0; k < 16; k++) sums[i] += element_a(row, k) * element_b(k, column);
    }
}

static std::function<void()> kernel;

static void start_fiber() {
    kernel();
    fibers[running].done = true;
    swapcontext(&fibers[running].context, &scheduler);
}

static void run_block(u32 threads) {
    fibers.clear();
    fibers.resize(threads);
    exchanges.assign((threads + 31) / 32 * 32, {});
    for (auto &fiber : fibers) {
        const size_t bytes = 1 << 16;
        fiber.stack.reset(new char[bytes]);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = bytes;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, start_fiber, 0);
    }
    for (;;) {
        u32 live = 0, waiting = 0;
        for (u32 i = 0; i < threads; i++) {
            if (fibers[i].done) continue;
            live++;
            if (!fibers[i].at_barrier) {
                running = threadIdx.x = i;
                swapcontext(&scheduler, &fibers[i].context);
            }
            waiting += fibers[i].at_barrier;
        }
        if (live == 0) return;
        if (waiting == live) {
            for (auto &fiber : fibers) fiber.at_barrier = false;
        }
    }
}

// Runs a kernel over a grid.
static void run_kernel(const std::function<void()> &call, uint3 grid, u32 threads) {
    kernel = call;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    for (u32 z = 0; z < grid.z; z++) {
        for (u32 y = 0; y < grid.y; y++) {
            for (u32 x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                run_block(threads);
            }
        }
    }
}
