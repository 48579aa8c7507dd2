// The CUDA side of the bench `primitives`: reads a line `<row>:<length> <times>`, does the row's work that often with NVIDIA's
// libraries, and answers with the nanoseconds that it took. Each row does what `primitives.rs` does in the row of the same name.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include <cublas_v2.h>
#include <cub/cub.cuh>

constexpr int BINS = 256;

void check(int error, const char *what) {
    if (error != 0) {
        std::fprintf(stderr, "%s: error %d\n", what, error);
        std::exit(1);
    }
}
#define CHECK(call) check(static_cast<int>(call), #call)

struct Kept {
    __host__ __device__ bool operator()(uint32_t value) const { return (value & 3) == 0; }
};

template <typename T>
T *zeroed(size_t len) {
    T *memory;
    CHECK(cudaMalloc(&memory, len * sizeof(T)));
    CHECK(cudaMemset(memory, 0, len * sizeof(T)));
    return memory;
}

__global__ void scramble(uint32_t *words, size_t len) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    uint32_t n = i;
    if (i < len) words[i] = ((n ^ (n >> 15)) * 2654435761u) ^ (n >> 7);
}

__global__ void remainders(uint32_t *words, size_t len) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < len) words[i] %= BINS;
}

uint32_t *words(size_t len) {
    uint32_t *memory = zeroed<uint32_t>(len);
    scramble<<<(len + 255) / 256, 256>>>(memory, len);
    return memory;
}

// A call of CUB: asks how much memory it needs, and gives it that at every later call.
template <typename Call>
std::function<void()> with_memory(Call call) {
    size_t bytes = 0;
    CHECK(call(nullptr, bytes));
    char *memory = zeroed<char>(bytes);
    return [=]() mutable { CHECK(call(memory, bytes)); };
}

std::function<void()> prepared(const std::string &row, size_t len, cublasHandle_t blas) {
    if (row == "reduce") {
        float *from = zeroed<float>(len), *to = zeroed<float>(1);
        return with_memory([=](void *memory, size_t &bytes) { return cub::DeviceReduce::Sum(memory, bytes, from, to, len); });
    }
    if (row == "scan") {
        uint32_t *from = words(len), *to = zeroed<uint32_t>(len);
        return with_memory([=](void *memory, size_t &bytes) { return cub::DeviceScan::InclusiveSum(memory, bytes, from, to, len); });
    }
    if (row == "compact") {
        uint32_t *from = words(len), *to = zeroed<uint32_t>(len), *count = zeroed<uint32_t>(1);
        return with_memory([=](void *memory, size_t &bytes) { return cub::DeviceSelect::If(memory, bytes, from, to, count, len, Kept()); });
    }
    if (row == "histogram") {
        uint32_t *from = words(len), *counts = zeroed<uint32_t>(BINS);
        remainders<<<(len + 255) / 256, 256>>>(from, len);
        return with_memory([=](void *memory, size_t &bytes) {
            return cub::DeviceHistogram::HistogramEven(memory, bytes, from, counts, BINS + 1, 0u, uint32_t(BINS), int(len));
        });
    }
    if (row == "sort") {
        uint32_t *from = words(len), *to = zeroed<uint32_t>(len);
        return with_memory([=](void *memory, size_t &bytes) { return cub::DeviceRadixSort::SortKeys(memory, bytes, from, to, len); });
    }
    if (row == "sort_pairs") {
        uint32_t *from = words(len), *to = zeroed<uint32_t>(len), *values = words(len), *moved = zeroed<uint32_t>(len);
        return with_memory([=](void *memory, size_t &bytes) {
            return cub::DeviceRadixSort::SortPairs(memory, bytes, from, to, values, moved, len);
        });
    }
    float one = 1, zero = 0;
    int n = int(len);
    float *a = zeroed<float>(len * len), *x = zeroed<float>(len * len), *y = zeroed<float>(len * len);
    if (row == "gemm") {
        // Rows lie behind each other in `primitives.rs`, columns do here: the factors change places.
        return [=] { CHECK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, x, n, a, n, &zero, y, n)); };
    }
    if (row == "gemv") {
        return [=] { CHECK(cublasSgemv(blas, CUBLAS_OP_T, n, n, &one, a, n, x, 1, &zero, y, 1)); };
    }
    std::fprintf(stderr, "no row %s\n", row.c_str());
    std::exit(1);
}

int main() {
    cublasHandle_t blas;
    CHECK(cublasCreate(&blas));
    CHECK(cublasSetMathMode(blas, CUBLAS_PEDANTIC_MATH));
    std::puts("ready");
    std::fflush(stdout);
    std::map<std::string, std::function<void()>> rows;
    char asked[64];
    int times;
    while (std::scanf("%63s %d", asked, &times) == 2) {
        std::string row = asked;
        if (!rows.count(row)) {
            size_t colon = row.find(':');
            rows[row] = prepared(row.substr(0, colon), std::stoull(row.substr(colon + 1)), blas);
            CHECK(cudaDeviceSynchronize());
        }
        auto &work = rows[row];
        auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < times; i++) {
            work();
            CHECK(cudaDeviceSynchronize());
        }
        auto spent = std::chrono::steady_clock::now() - begun;
        std::printf("%lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()));
        std::fflush(stdout);
    }
}
