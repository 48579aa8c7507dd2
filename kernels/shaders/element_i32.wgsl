alias Element = i32;

fn least() -> Element { return -2147483647i - 1i; }
fn most() -> Element { return 2147483647i; }
