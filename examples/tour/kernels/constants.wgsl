// Specialization constants of every 32-bit kind, by name and by id.

override enabled: bool = true;
override offset: i32;
@id(7) override factor: u32 = 3;
override ratio: f32 = 0.5;

struct Values {
    enabled: u32,
    offset: i32,
    factor: u32,
    ratio: f32,
}

@group(0) @binding(0) var<storage, read_write> values: Values;

@compute @workgroup_size(1)
fn main() {
    values = Values(u32(enabled), offset, factor, ratio);
}
