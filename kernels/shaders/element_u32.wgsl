alias Element = u32;

fn least() -> Element { return 0u; }
fn most() -> Element { return 0xffffffffu; }
