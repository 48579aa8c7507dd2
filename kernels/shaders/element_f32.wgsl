alias Element = f32;

// WGSL has no constant expression for an infinity, so the bits come from a variable.
var<private> infinity_bits: u32 = 0x7f800000u;

fn least() -> Element { return bitcast<f32>(infinity_bits | 0x80000000u); }
fn most() -> Element { return bitcast<f32>(infinity_bits); }
