// Helpers for pointers as they lie in memory: addresses of 64 bits, the low word in x. The runtime
// appends those that a kernel calls, with what they call themselves, behind the kernel's own text.

// The null pointer.
fn usm_null() -> usm_ptr {
    return vec2<u32>(0u, 0u);
}

// Whether a pointer is null.
fn usm_is_null(p: usm_ptr) -> bool {
    return (p.x | p.y) == 0u;
}

// Whether two pointers are the same.
fn usm_eq(a: usm_ptr, b: usm_ptr) -> bool {
    return a.x == b.x && a.y == b.y;
}

// Whether a lies before b.
fn usm_less(a: usm_ptr, b: usm_ptr) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// The pointer `bytes` bytes further on.
fn usm_add(p: usm_ptr, bytes: u32) -> usm_ptr {
    let low = p.x + bytes;
    return vec2<u32>(low, p.y + select(0u, 1u, low < bytes));
}

// The pointer `bytes` bytes back.
fn usm_sub(p: usm_ptr, bytes: u32) -> usm_ptr {
    return vec2<u32>(p.x - bytes, p.y - select(0u, 1u, p.x < bytes));
}

// The pointer `bytes` bytes further on, or back for a negative number.
fn usm_offset(p: usm_ptr, bytes: i32) -> usm_ptr {
    let low = p.x + bitcast<u32>(bytes);
    let carry = select(0u, 1u, low < p.x);
    return vec2<u32>(low, p.y + carry - select(0u, 1u, bytes < 0));
}

// The pointer to element `index` of an array at p whose elements lie `stride` bytes apart. The product is
// taken in 64 bits.
fn usm_element(p: usm_ptr, index: u32, stride: u32) -> usm_ptr {
    let index_low = index & 0xffffu;
    let index_high = index >> 16u;
    let stride_low = stride & 0xffffu;
    let stride_high = stride >> 16u;
    let inner = index_low * stride_low;
    let middle = index_high * stride_low + (inner >> 16u);
    let other = index_low * stride_high + (middle & 0xffffu);
    let low = (other << 16u) | (inner & 0xffffu);
    let high = index_high * stride_high + (middle >> 16u) + (other >> 16u);
    let sum = p.x + low;
    return vec2<u32>(sum, p.y + high + select(0u, 1u, sum < low));
}

// The 64 bits of a pointer, for atomics of 64 bits.
fn usm_bits(p: usm_ptr) -> u64 {
    return (u64(p.y) << 32u) | u64(p.x);
}

// The pointer of 64 bits.
fn usm_from_bits(bits: u64) -> usm_ptr {
    return vec2<u32>(u32(bits & 0xfffffffflu), u32(bits >> 32u));
}

// Bytes from b to a, for pointers less than 2 GiB apart.
fn usm_diff(a: usm_ptr, b: usm_ptr) -> i32 {
    return bitcast<i32>(a.x - b.x);
}
