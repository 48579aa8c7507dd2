// The kernels of `cube.rs` and of the files in WGSL, invocation by invocation.

kernel void increment(global uint *data) {
    // The grid is as large as the buffer.
    data[get_global_id(0)] += 1;
}

kernel void saxpy(global const float *x, global float *y) {
    const size_t i = get_global_id(0);
    y[i] = 1.5f * x[i] + y[i];
}

kernel void reduce(global const float *x, global float *sums) {
    local float part[256];
    const size_t i = get_local_id(0);
    part[i] = x[get_group_id(0) * 256 + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = 128; half_size > 0; half_size >>= 1) {
        if (i < half_size) part[i] += part[i + half_size];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i == 0) sums[get_group_id(0)] = part[0];
}

kernel void histogram(global const uint *x, global uint *bins) {
    atomic_inc(&bins[x[get_global_id(0)] & 255]);
}

kernel void matmul(global const float *a, global const float *b, global float *c) {
    local float ta[256];
    local float tb[256];
    const size_t lx = get_local_id(0), ly = get_local_id(1);
    const size_t row = get_group_id(1) * 16 + ly, column = get_group_id(0) * 16 + lx;
    float sum = 0.0f;
    for (uint t = 0; t < 16; t++) {
        ta[ly * 16 + lx] = a[row * 256 + t * 16 + lx];
        tb[ly * 16 + lx] = b[(t * 16 + ly) * 256 + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < 16; k++) sum += ta[ly * 16 + k] * tb[k * 16 + lx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * 256 + column] = sum;
}

struct node {
    uint value, tag;
    global struct node *next;
};

kernel void chase(global struct node *const global *starts, global uint *out) {
    global struct node *p = starts[get_global_id(0)];
    uint sum = 0;
    for (uint i = 0; i < 2000; i++) {
        sum += p->value;
        p = p->next;
    }
    out[get_global_id(0)] = sum;
}

kernel void private_array(global uint *out) {
    const uint id = get_global_id(0);
    uint table[1024];
    uint x = id * 747796405u + 1u;
    for (uint i = 0; i < 1024; i++) {
        x = x * 1664525u + 1013904223u;
        table[i] = x;
    }
    uint at = id & 1023, sum = 0;
    for (uint i = 0; i < 1024; i++) {
        const uint value = table[at];
        sum += value;
        at = (value >> 10) & 1023;
    }
    out[id] = sum;
}

kernel void mandelbrot(global uint *out) {
    const uint x = get_global_id(0), y = get_global_id(1);
    const float2 c = (float2)(x / 512.0f * 3.0f - 2.0f, y / 512.0f * 2.0f - 1.0f);
    float2 z = (float2)(0.0f, 0.0f);
    uint k = 0;
    while (k < 256 && dot(z, z) <= 4.0f) {
        z = (float2)(z.x * z.x - z.y * z.y, 2.0f * z.x * z.y) + c;
        k++;
    }
    out[y * 512 + x] = k;
}

kernel void median(global const float *picture, global float *out) {
    const int column = get_global_id(0), row = get_global_id(1);
    float window[49];
    uint count = 0;
    for (int dy = -3; dy <= 3; dy++) {
        for (int dx = -3; dx <= 3; dx++) {
            const int x = clamp(column + dx, 0, 255), y = clamp(row + dy, 0, 255);
            window[count] = picture[y * 256 + x];
            count++;
        }
    }
    for (uint i = 0; i <= 24; i++) {
        for (uint j = i + 1; j < 49; j++) {
            const float a = window[i], b = window[j];
            window[i] = fmin(a, b);
            window[j] = fmax(a, b);
        }
    }
    out[row * 256 + column] = window[24];
}

kernel void barnes_hut(global const float *numbers, global const uint2 *links, global const float4 *bodies,
                       global float4 *out) {
    const float3 position = bodies[get_global_id(0)].xyz;
    float3 pull = (float3)(0.0f);
    float taken = 0.0f;
    uint at = 0;
    while (at != UINT_MAX) {
        global const float *cell = numbers + at * 5;
        const float3 away = (float3)(cell[0], cell[1], cell[2]) - position;
        const float distance = dot(away, away);
        if (distance < cell[4]) {
            at = links[at].x;
            continue;
        }
        const float inverse = rsqrt(distance + 1e-4f);
        pull += (cell[3] * inverse * inverse * inverse) * away;
        taken += 1.0f;
        at = links[at].y;
    }
    out[get_global_id(0)] = (float4)(pull, taken);
}

static void exchange_in_block(local uint *block, uint i, uint first, uint run, uint distance) {
    const uint low = 2 * i - (i & (distance - 1)), high = low + distance;
    const uint a = block[low], b = block[high];
    if ((a > b) == (((first + low) & run) == 0)) {
        block[low] = b;
        block[high] = a;
    }
}

kernel void sort_blocks(global const uint *source, global uint *keys) {
    local uint block[512];
    const uint i = get_local_id(0), first = get_group_id(0) * 512;
    block[i] = source[first + i];
    block[i + 256] = source[first + i + 256];
    for (uint run = 2; run <= 512; run <<= 1) {
        for (uint distance = run >> 1; distance > 0; distance >>= 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            exchange_in_block(block, i, first, run, distance);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    keys[first + i] = block[i];
    keys[first + i + 256] = block[i + 256];
}

kernel void merge_blocks(global uint *keys, uint run) {
    local uint block[512];
    const uint i = get_local_id(0), first = get_group_id(0) * 512;
    block[i] = keys[first + i];
    block[i + 256] = keys[first + i + 256];
    for (uint distance = 256; distance > 0; distance >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        exchange_in_block(block, i, first, run, distance);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    keys[first + i] = block[i];
    keys[first + i + 256] = block[i + 256];
}

kernel void exchange(global uint *keys, uint run, uint distance) {
    const uint id = get_global_id(0), low = 2 * id - (id & (distance - 1)), high = low + distance;
    const uint a = keys[low], b = keys[high];
    if ((a > b) == ((low & run) == 0)) {
        keys[low] = b;
        keys[high] = a;
    }
}

kernel void lines(global const float *x) {
    const uint id = get_global_id(0);
    printf("line %u has %.3f\n", id, x[id]);
}

// Of the strip that begins with the row `first`; `now` and `next` begin with the row `held`.
kernel void stencil(global const uint *now, global uint *next, uint width, uint height, uint first, uint held) {
    const uint x = get_global_id(0), row = first + get_global_id(1);
    const uint up = max(row, 1u) - 1 - held, down = min(row + 1, height - 1) - held;
    const uint left = max(x, 1u) - 1, right = min(x + 1, width - 1);
    const uint here = (row - held) * width;
    const uint around = now[up * width + x] + now[down * width + x] + now[here + left] + now[here + right];
    next[here + x] = (4 * now[here + x] + around) / 8;
}
