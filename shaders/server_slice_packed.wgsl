// The memory of a slice whose calls are all of one function: as `server_slice.wgsl`, without what is the same for each call.

// How many calls there are, and the lease << 4; then the arguments of each.
struct tombolo_server_requests { count: u32, lease: u32, spare: array<u32, 2>, $arguments$ }
// The results of each, up to where the words begin that say for each call: lease << 4 | status.
struct tombolo_server_answers { $before$ $results$ marks: array<u32, $most$> }

$binding0$ var<storage, read> tombolo_requests: tombolo_server_requests;
$binding1$ var<storage, read_write> tombolo_answers: tombolo_server_answers;

// Turns of loops that the call has taken, and how many there may be; loops of handlers count by a pass.
var<private> tombolo_server_turns: u32;
var<private> tombolo_server_limit: u32;
