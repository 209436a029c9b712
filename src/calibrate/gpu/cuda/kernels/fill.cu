// Random inputs, the same as inputs.rs makes on the host.

__device__ u32 word(u32 input, u32 index) {
    u32 x = (index * 0x9E3779B1u) ^ (input * 0xB7E15163u);
    x ^= x >> 15;
    x *= 0x243F6A89u;
    x ^= x >> 13;
    x *= 0xB7E15163u;
    return x ^ (x >> 16);
}

extern "C" __global__ void fill_words(u32 *to, u32 input, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        to[i] = word(input, i);
    }
}

// Multiples of 1/128 in [-1, 1): the upper byte with its sign.
extern "C" __global__ void fill_bf16(bf16 *to, u32 input, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        to[i] = (bf16)pack_bf16((float)((int)word(input, i) >> 24) / 128.0f, 0.0f);
    }
}

// Multiples of 1/8 in [-1, 1) as e4m3: the upper 4 bits with their sign.
extern "C" __global__ void fill_fp8(fp8 *to, u32 input, u32 count) {
    const unsigned long long eighths = 0x363432302C282000ull;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int value = (int)word(input, i) >> 28;
        int size = value < 0 ? -value : value;
        int bits = size == 8 ? 0x38 : (int)(eighths >> (8 * size)) & 0xFF;
        to[i] = (fp8)(bits | (value < 0 ? 0x80 : 0));
    }
}

// To e4m3, to the nearest, ties to even: activations on their way into a product of 8-bit floats.
__device__ __forceinline__ u32 to_fp8(float value) {
    const u32 bits = __float_as_uint(value), sign = bits >> 24 & 0x80;
    const float size = fminf(fabsf(value), 448.0f);
    // Below 2^-6 there are only multiples of 2^-9.
    if (size < 0.015625f) return sign | (u32)__float2int_rn(size * 512.0f);
    u32 rounded = __float_as_uint(size);
    rounded += 0x7FFFF + (rounded >> 20 & 1);
    return sign | ((rounded >> 20) - (120 << 3));
}

// Eight elements at a time, with a scale of one.
extern "C" __global__ void quantise_fp8(const uint4 *from, uint2 *to, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const uint4 pairs = from[i];
        const u32 words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
        u32 bytes[2] = {0, 0};
        for (int j = 0; j < 8; j++) {
            const u32 half = words[j / 2] >> (j % 2 * 16) & 0xFFFF;
            bytes[j / 4] |= to_fp8(__uint_as_float(half << 16)) << (j % 4 * 8);
        }
        to[i] = make_uint2(bytes[0], bytes[1]);
    }
}

// Nothing at all, to time a launch.
extern "C" __global__ void nothing() {}
