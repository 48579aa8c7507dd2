// An ordinary function: the server is written around it.
fn digit_sum(x: u32) -> u32 {
    var rest = x;
    var sum = 0u;
    while rest > 0u {
        sum += rest % 10u;
        rest /= 10u;
    }
    return sum;
}
