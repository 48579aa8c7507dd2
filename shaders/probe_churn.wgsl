// Work for the turns of the probe's kernels; it stands before each of them.

fn churn_4(seed: u32) -> u32 {
    var x = seed;
    x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
    x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
    x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
    x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
    return x;
}

fn churn_16(x: u32) -> u32 {
    return churn_4(churn_4(churn_4(churn_4(x))));
}

// A turn must take some time without costing back-edges of a loop, which some drivers ration; so
// this is work that is long, straight, and not to be shortened by a compiler.
fn churn_64(x: u32) -> u32 {
    return churn_16(churn_16(churn_16(churn_16(x))));
}
