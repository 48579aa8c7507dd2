// The CUDA side of the bench `cuda`: reads a line `<row> <times>`, does the row's work that often, and answers with the
// nanoseconds that it took. Each row does what `main.rs` does in the row of the same name.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

constexpr size_t SMALL = 4 << 10;
constexpr size_t LARGE = 256 << 20;
constexpr size_t COPIED = 512 << 20;
constexpr int BATCH = 1000;
constexpr size_t NUMBERS = 64 << 20;
constexpr uint32_t EDGE = 2048;
constexpr uint32_t PIXELS = 4096;

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

__global__ void saxpy(const float *x, float *y, uint32_t len) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) y[i] = 1.5f * x[i] + y[i];
}

// One sum for each block of 256 threads, by halves.
__global__ void reduce(const float *x, float *sums) {
    __shared__ float part[256];
    uint32_t i = threadIdx.x;
    part[i] = x[blockIdx.x * 256 + i];
    __syncthreads();
    for (uint32_t half = 128; half > 0; half >>= 1) {
        if (i < half) part[i] += part[i + half];
        __syncthreads();
    }
    if (i == 0) sums[blockIdx.x] = part[0];
}

// In tiles of 16 x 16.
__global__ void matmul(const float *a, const float *b, float *c) {
    __shared__ float ta[256], tb[256];
    uint32_t lx = threadIdx.x, ly = threadIdx.y;
    uint32_t row = blockIdx.y * 16 + ly, column = blockIdx.x * 16 + lx;
    float sum = 0;
    for (uint32_t t = 0; t < EDGE / 16; t++) {
        ta[ly * 16 + lx] = a[row * EDGE + t * 16 + lx];
        tb[ly * 16 + lx] = b[(t * 16 + ly) * EDGE + column];
        __syncthreads();
        for (uint32_t k = 0; k < 16; k++) sum += ta[ly * 16 + k] * tb[k * 16 + lx];
        __syncthreads();
    }
    c[row * EDGE + column] = sum;
}

__global__ void mandelbrot(uint32_t *steps) {
    uint32_t px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
    float side = PIXELS;
    float cx = px / side * 3.0f - 2.0f, cy = py / side * 2.0f - 1.0f;
    float x = 0, y = 0;
    uint32_t k = 0;
    while (k < 256 && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        k++;
    }
    steps[py * PIXELS + px] = k;
}

// The kernels of `kernels.rs`, with the same numbers.
struct Kernels {
    float *x, *y, *sums, *product;
    uint32_t *steps;

    Kernels() {
        CHECK(cudaMalloc(&x, NUMBERS * sizeof(float)));
        CHECK(cudaMalloc(&y, NUMBERS * sizeof(float)));
        CHECK(cudaMalloc(&sums, NUMBERS / 256 * sizeof(float)));
        CHECK(cudaMalloc(&product, EDGE * EDGE * sizeof(float)));
        CHECK(cudaMalloc(&steps, PIXELS * PIXELS * sizeof(uint32_t)));
        std::vector<float> numbers(NUMBERS);
        for (size_t i = 0; i < NUMBERS; i++) numbers[i] = float(i % 7);
        CHECK(cudaMemcpy(x, numbers.data(), NUMBERS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(y, 0, NUMBERS * sizeof(float)));
        // What each kernel leaves, once, against the host.
        launch("saxpy");
        expect("saxpy", y, [](size_t i) { return 1.5f * float(i % 7); }, NUMBERS);
        launch("reduce");
        expect("reduce", sums, [](size_t block) {
            float sum = 0;
            for (size_t i = 0; i < 256; i++) sum += float((block * 256 + i) % 7);
            return sum;
        }, NUMBERS / 256);
        launch("matmul");
        expect("matmul", product, [](size_t column) {
            float sum = 0;
            for (size_t k = 0; k < EDGE; k++) sum += float(k % 7) * float((k * EDGE + column) % 7);
            return sum;
        }, EDGE);
        launch("mandelbrot");
        uint32_t middle, corner;
        CHECK(cudaMemcpy(&middle, steps + PIXELS / 2 * PIXELS + PIXELS / 2, sizeof(middle), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&corner, steps, sizeof(corner), cudaMemcpyDeviceToHost));
        if (middle != 256 || corner != 1) fail("mandelbrot");
    }

    static void fail(const char *kernel) {
        std::fprintf(stderr, "CUDA's %s computes something else than the host\n", kernel);
        std::exit(1);
    }

    template <typename Expected>
    static void expect(const char *kernel, const float *memory, Expected expected, size_t len) {
        std::vector<float> found(len);
        CHECK(cudaMemcpy(found.data(), memory, len * sizeof(float), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < len; i++) {
            if (found[i] != expected(i)) fail(kernel);
        }
    }

    // Whether there is such a kernel.
    bool launch(const std::string &name) {
        dim3 tile(16, 16);
        if (name == "saxpy") {
            saxpy<<<NUMBERS / 256, 256>>>(x, y, NUMBERS);
        } else if (name == "reduce") {
            reduce<<<NUMBERS / 256, 256>>>(x, sums);
        } else if (name == "matmul") {
            matmul<<<dim3(EDGE / 16, EDGE / 16), tile>>>(x, x, product);
        } else if (name == "mandelbrot") {
            mandelbrot<<<dim3(PIXELS / 16, PIXELS / 16), tile>>>(steps);
        } else {
            return false;
        }
        CHECK(cudaGetLastError());
        return true;
    }
};

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
    Kernels kernels;
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
            } else if (kernels.launch(name)) {
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
