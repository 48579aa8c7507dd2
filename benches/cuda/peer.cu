// The CUDA side of the bench `cuda`: reads a line `<row> <times>`, does the row's work that often, and answers with the
// nanoseconds that it took. Each row does what `main.rs` does in the row of the same name.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

constexpr size_t SMALL = 4 << 10;
constexpr size_t LARGE = 256 << 20;
constexpr size_t COPIED = 512 << 20;
constexpr int BATCH = 1000;

void check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

__global__ void increment(uint32_t *data, uint32_t len) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) data[i] += 1;
}

__global__ void copy(const uint4 *from, uint4 *to, uint32_t len) {
    uint32_t stride = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += stride) to[i] = from[i];
}

int main() {
    uint32_t *small;
    char *from, *to, *pinned;
    CHECK(cudaMalloc(&small, SMALL));
    CHECK(cudaMalloc(&from, COPIED));
    CHECK(cudaMalloc(&to, COPIED));
    CHECK(cudaMallocHost(&pinned, LARGE));
    CHECK(cudaMemset(small, 0, SMALL));
    CHECK(cudaMemset(from, 7, LARGE));
    char *pageable = static_cast<char *>(std::malloc(LARGE));
    std::memset(pageable, 1, LARGE);
    std::memset(pinned, 1, LARGE);
    CHECK(cudaDeviceSynchronize());
    std::puts("ready");
    std::fflush(stdout);

    auto touch = [&](size_t bytes) { increment<<<(bytes / 4 + 63) / 64, 64>>>(small, bytes / 4); };
    char row[64];
    int times;
    while (std::scanf("%63s %d", row, &times) == 2) {
        std::string name = row;
        auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < times; i++) {
            if (name == "launch_wait") {
                touch(256);
                CHECK(cudaDeviceSynchronize());
            } else if (name == "batch_1000") {
                for (int n = 0; n < BATCH; n++) touch(256);
                CHECK(cudaDeviceSynchronize());
            } else if (name == "launch_read_4k") {
                touch(SMALL);
                CHECK(cudaMemcpy(pageable, small, SMALL, cudaMemcpyDeviceToHost));
            } else if (name == "read_256m") {
                CHECK(cudaMemcpy(pageable, from, LARGE, cudaMemcpyDeviceToHost));
            } else if (name == "write_256m") {
                CHECK(cudaMemcpy(to, pageable, LARGE, cudaMemcpyHostToDevice));
                CHECK(cudaDeviceSynchronize());
            } else if (name == "read_256m_pinned") {
                CHECK(cudaMemcpy(pinned, from, LARGE, cudaMemcpyDeviceToHost));
            } else if (name == "write_256m_pinned") {
                CHECK(cudaMemcpy(to, pinned, LARGE, cudaMemcpyHostToDevice));
                CHECK(cudaDeviceSynchronize());
            } else if (name == "copy_kernel") {
                uint32_t len = COPIED / sizeof(uint4);
                copy<<<len / 256 / 4, 256>>>(reinterpret_cast<uint4 *>(from), reinterpret_cast<uint4 *>(to), len);
                if (i + 1 == times) CHECK(cudaDeviceSynchronize());
            } else {
                std::fprintf(stderr, "no row %s\n", row);
                return 1;
            }
        }
        CHECK(cudaGetLastError());
        auto spent = std::chrono::steady_clock::now() - begun;
        std::printf("%lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()));
        std::fflush(stdout);
    }
}
