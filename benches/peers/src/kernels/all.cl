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
