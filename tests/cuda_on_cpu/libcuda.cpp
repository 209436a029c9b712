// A stand-in for NVIDIA's driver that has what the harness calls, and runs its kernels on the CPU. Its
// clock is a count: a microsecond for each item of work.

#include "on_cpu.h"

#include "fill.cu"
#include "gemm.cu"
#include "attention.cu"

#include <map>
#include <string>
#include <tuple>
#include <utility>

typedef int Status;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, CAPTURE_ISOLATION = 906 };

typedef std::vector<std::function<void()>> Work;

// Calls a kernel with arguments that the driver got as pointers; they are read at the call.
typedef std::function<std::function<void()>(void **)> Launcher;

template <class T> static T argument(void *pointer) {
    T value;
    memcpy(&value, pointer, sizeof(T));
    return value;
}

template <class... A, size_t... I>
static Launcher launcher_of(void (*function)(A...), std::index_sequence<I...>) {
    return [=](void **pointers) -> std::function<void()> {
        std::tuple<A...> arguments{argument<A>(pointers[I])...};
        return [=] { function(std::get<I>(arguments)...); };
    };
}

template <class... A> static Launcher launcher(void (*function)(A...)) {
    return launcher_of(function, std::index_sequence_for<A...>{});
}

static std::map<std::string, Launcher> kernels = {
    {"fill_words", launcher(fill_words)},
    {"fill_bf16", launcher(fill_bf16)},
    {"fill_fp8", launcher(fill_fp8)},
    {"quantise_fp8", launcher(quantise_fp8)},
    {"nothing", launcher(nothing)},
    {"gemm_wide", launcher(gemm_wide)},
    {"gemm_narrow", launcher(gemm_narrow)},
    {"add_parts", launcher(add_parts)},
    {"kv_cache_write", launcher(kv_cache_write)},
    {"attention_16", launcher(attention_16)},
    {"attention_64", launcher(attention_64)},
    {"combine_attention", launcher(combine_attention)},
};

static Work *capture = nullptr;
static double clock_ms = 0.0;
static const char *module_text;

// Does the work, or records it if the stream is being captured.
static void enqueue(std::function<void()> work) {
    if (capture) {
        capture->push_back(std::move(work));
    } else {
        clock_ms += 1e-3;
        work();
    }
}

// What is called in the middle of a capture and would break it on a real driver.
#define NOT_DURING_CAPTURE                                                                                   \
    if (capture) return CAPTURE_ISOLATION

extern "C" {

// For the libraries: work on a stream.
void kvsim_enqueue(std::function<void()> *work) { enqueue(*work); }

Status cuInit(u32) { return getenv("KVSIM_FAKE_NO_DEVICE") ? 100 : SUCCESS; }
Status cuDriverGetVersion(int *version) {
    const char *wanted = getenv("KVSIM_FAKE_DRIVER_VERSION");
    *version = wanted ? atoi(wanted) : 12080;
    return SUCCESS;
}
static int num_gpus() {
    const char *wanted = getenv("KVSIM_FAKE_GPUS");
    return wanted ? atoi(wanted) : 1;
}
Status cuDeviceGetCount(int *count) { return *count = num_gpus(), SUCCESS; }
Status cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < num_gpus() ? SUCCESS : 101;
}
Status cuDeviceGetName(char *name, int length, int) {
    snprintf(name, length, "CUDA on the CPU");
    return SUCCESS;
}
Status cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = 1u << 30, SUCCESS; }
Status cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
    case 16: *value = 4; break;         // SMs
    case 38: *value = 1 << 16; break;   // L2 in bytes
    case 75: *value = 9; break;         // compute capability
    case 76: *value = 0; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}
Status cuDeviceGetPCIBusId(char *, int, int) { return INVALID_VALUE; }
Status cuDevicePrimaryCtxRetain(void **context, int) { return *context = &clock_ms, SUCCESS; }
Status cuCtxSetCurrent(void *) { return SUCCESS; }
Status cuCtxSynchronize() {
    NOT_DURING_CAPTURE;
    return SUCCESS;
}
Status cuGetErrorString(Status status, const char **text) {
    switch (status) {
    case 100: *text = "no CUDA-capable device is detected"; break;
    case OUT_OF_MEMORY: *text = "out of memory"; break;
    case NOT_FOUND: *text = "named symbol not found"; break;
    default: *text = "an error of the stand-in"; break;
    }
    return SUCCESS;
}
Status cuGetErrorName(Status, const char **text) { return *text = "CUDA_ERROR", SUCCESS; }

Status cuModuleLoadData(void **module, const void *image) {
    NOT_DURING_CAPTURE;
    module_text = strdup((const char *)image);
    *module = (void *)module_text;
    return SUCCESS;
}
// A kernel must be in the PTX that was loaded, and among those that we run in its place.
Status cuModuleGetFunction(void **function, void *module, const char *name) {
    const bool in_module = strstr((const char *)module, (".entry " + std::string(name) + "(").c_str());
    auto found = kernels.find(name);
    if (!in_module || found == kernels.end()) return NOT_FOUND;
    *function = &found->second;
    return SUCCESS;
}

Status cuMemAlloc_v2(void **pointer, size_t bytes) {
    NOT_DURING_CAPTURE;
    if (bytes > 1u << 28) return OUT_OF_MEMORY;
    *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
    // What nobody wrote is a NaN in every format.
    memset(*pointer, 0xFF, bytes);
    return SUCCESS;
}
Status cuMemFree_v2(void *pointer) { return free(pointer), SUCCESS; }
Status cuMemHostAlloc(void **pointer, size_t bytes, u32) { return *pointer = calloc(bytes, 1), SUCCESS; }
Status cuMemFreeHost(void *pointer) { return free(pointer), SUCCESS; }
static Status copy_now(void *to, const void *from, size_t bytes) {
    NOT_DURING_CAPTURE;
    memcpy(to, from, bytes);
    return SUCCESS;
}
Status cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { return copy_now(to, from, bytes); }
Status cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { return copy_now(to, from, bytes); }
static Status copy_later(void *to, const void *from, size_t bytes) {
    enqueue([=] { memcpy(to, from, bytes); });
    return SUCCESS;
}
Status cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *) { return copy_later(to, from, bytes); }
Status cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *) { return copy_later(to, from, bytes); }
Status cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *) { return copy_later(to, from, bytes); }

Status cuStreamDestroy_v2(void *) { return SUCCESS; }
Status cuStreamCreate(void **stream, u32) { return *stream = &clock_ms, SUCCESS; }
Status cuStreamSynchronize(void *) {
    NOT_DURING_CAPTURE;
    return SUCCESS;
}
Status cuStreamBeginCapture_v2(void *, int) {
    NOT_DURING_CAPTURE;
    capture = new Work;
    return SUCCESS;
}
Status cuStreamEndCapture(void *, void **graph) {
    *graph = capture;
    capture = nullptr;
    return SUCCESS;
}
Status cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
    *exec = new Work(*(Work *)graph);
    return SUCCESS;
}
Status cuGraphUpload(void *, void *) { return SUCCESS; }
Status cuGraphLaunch(void *exec, void *) {
    Work work = *(Work *)exec;
    for (auto &item : work) enqueue(item);
    return SUCCESS;
}
Status cuGraphExecDestroy(void *exec) { return delete (Work *)exec, SUCCESS; }
Status cuGraphDestroy(void *graph) { return delete (Work *)graph, SUCCESS; }

Status cuEventCreate(void **event, u32) { return *event = new double(0.0), SUCCESS; }
Status cuEventRecord(void *event, void *) {
    enqueue([=] { *(double *)event = clock_ms; });
    return SUCCESS;
}
Status cuEventSynchronize(void *) {
    NOT_DURING_CAPTURE;
    return SUCCESS;
}
Status cuEventElapsedTime(float *ms, void *start, void *end) {
    *ms = (float)(*(double *)end - *(double *)start);
    return SUCCESS;
}

Status cuLaunchKernel(void *function, u32 x, u32 y, u32 z, u32 threads, u32 threads_y, u32 threads_z, u32,
                      void *, void **arguments, void **) {
    if (x == 0 || y == 0 || z == 0 || threads > 1024 || threads_y != 1 || threads_z != 1) return INVALID_VALUE;
    if (y > 65535 || z > 65535) return INVALID_VALUE;
    auto call = (*(Launcher *)function)(arguments);
    enqueue([=] { run_kernel(call, {x, y, z}, threads); });
    return SUCCESS;
}
}
