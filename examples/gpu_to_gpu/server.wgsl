// What lives on one device: functions that kernels of other devices call.

struct Range { first: u32, last: u32 }

// How many numbers of a range are primes, by trial.
fn primes(range: Range) -> u32 {
    var count = 0u;
    for (var n = max(range.first, 2u); n <= range.last; n++) {
        var divisor = 2u;
        while divisor * divisor <= n && n % divisor != 0u {
            divisor++;
        }
        count += u32(divisor * divisor > n);
    }
    return count;
}
