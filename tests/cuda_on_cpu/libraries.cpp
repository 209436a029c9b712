// Stand-ins for cuBLASLt and NCCL with what the harness calls, computing on the CPU.

#include "on_cpu.h"

typedef int Status;
enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };

extern "C" void kvsim_enqueue(std::function<void()> *work);

static void enqueue(std::function<void()> work) { kvsim_enqueue(&work); }

// Values of cudaDataType.
enum { BF16 = 14, E4M3 = 28, F32 = 0 };

struct Desc {
    int compute, scale, transpose_a = 0, fast = 0;
};
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
};
struct Preference {
    size_t workspace = 0;
};
struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
};

// One sign bit, four of exponent with a bias of 7, three of mantissa.
static float from_e4m3(u32 bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float size =
        exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf(1.0f + (float)mantissa / 8.0f, exponent - 7);
    return bits & 0x80 ? -size : size;
}

static float element(const void *matrix, const Layout &layout, uint64_t row, uint64_t column) {
    const uint64_t at = column * layout.stride + row;
    return layout.type == BF16 ? from_bf16(((const bf16 *)matrix)[at]) : from_e4m3(((const fp8 *)matrix)[at]);
}

extern "C" {

size_t cublasLtGetVersion() { return 120804; }
Status cublasLtCreate(void **handle) { return *handle = &scheduler, SUCCESS; }
Status cublasLtMatmulDescCreate(Desc **desc, int compute, int scale) {
    // In 32 bits: CUBLAS_COMPUTE_32F.
    if (compute != 68 || scale != F32) return NOT_SUPPORTED;
    *desc = new Desc{compute, scale};
    return SUCCESS;
}
Status cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value, size_t bytes) {
    if (attribute == 3 && bytes == 4) return memcpy(&desc->transpose_a, value, 4), SUCCESS;
    if (attribute == 25 && bytes == 1) return desc->fast = *(const int8_t *)value, SUCCESS;
    return INVALID_VALUE;
}
Status cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    *layout = new Layout{type, rows, columns, stride};
    return SUCCESS;
}
Status cublasLtMatmulPreferenceCreate(Preference **preference) { return *preference = new Preference, SUCCESS; }
Status cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value,
                                            size_t bytes) {
    if (attribute != 1 || bytes != sizeof(size_t)) return INVALID_VALUE;
    return memcpy(&preference->workspace, value, bytes), SUCCESS;
}
Status cublasLtMatmulAlgoGetHeuristic(void *, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d,
                                      Preference *preference, int wanted, Heuristic *found, int *count) {
    const bool fits = desc->transpose_a == 1 && a->rows == b->rows && d->rows == a->columns &&
                      d->columns == b->columns && c->type == d->type && d->type == BF16 && a->type == b->type;
    if (!fits || preference->workspace == 0) return NOT_SUPPORTED;
    memset(found, 0, sizeof(*found) * wanted);
    found->algorithm.data[0] = 1234;
    *count = 1;
    return SUCCESS;
}
Status cublasLtMatmul(void *, Desc *, const float *alpha, const void *a, Layout *la, const void *b, Layout *lb,
                      const float *beta, const void *, Layout *, void *d, Layout *ld, const Algorithm *algorithm,
                      void *, size_t, void *) {
    if (algorithm->data[0] != 1234 || *alpha != 1.0f || *beta != 0.0f) return INVALID_VALUE;
    const Layout layout_a = *la, layout_b = *lb, layout_d = *ld;
    enqueue([=] {
        for (uint64_t column = 0; column < layout_d.columns; column++) {
            for (uint64_t row = 0; row < layout_d.rows; row++) {
                float sum = 0.0f;
                for (uint64_t k = 0; k < layout_a.rows; k++) {
                    sum += element(a, layout_a, k, row) * element(b, layout_b, k, column);
                }
                ((bf16 *)d)[column * layout_d.stride + row] = round_to_bf16(sum);
            }
        }
    });
    return SUCCESS;
}

struct Part {
    const bf16 *from;
    bf16 *to;
    size_t count;
    void *communicator;
};
static std::vector<Part> group;
static size_t num_ranks;
static bool in_group;

Status ncclGetVersion(int *version) { return *version = 22703, SUCCESS; }
Status ncclCommInitAll(void **communicators, int count, const int *ordinals) {
    for (int i = 0; i < count; i++) {
        communicators[i] = new int(ordinals[i]);
        for (int j = 0; j < i; j++) {
            if (ordinals[i] == ordinals[j]) return INVALID_VALUE;
        }
    }
    num_ranks = count;
    return SUCCESS;
}
Status ncclCommDestroy(void *communicator) { return delete (int *)communicator, SUCCESS; }
Status ncclGroupStart() { return in_group = true, SUCCESS; }
Status ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator, void *) {
    if (!in_group || type != 9 || operation != 0) return INVALID_VALUE;
    group.push_back({(const bf16 *)from, (bf16 *)to, count, communicator});
    return SUCCESS;
}
Status ncclGroupEnd() {
    in_group = false;
    std::vector<Part> parts = std::move(group);
    group.clear();
    if (parts.size() != num_ranks) return INVALID_VALUE;
    enqueue([=] {
        for (size_t i = 0; i < parts[0].count; i++) {
            float sum = 0.0f;
            for (auto &part : parts) sum += from_bf16(part.from[i]);
            for (auto &part : parts) part.to[i] = round_to_bf16(sum);
        }
    });
    return SUCCESS;
}
}
