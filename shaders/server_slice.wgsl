// The memory of a slice: its calls and their answers, for devices that show nothing to running kernels. A launch brings all
// its calls, each invocation serves one of them, and the answers leave when the launch has ended. Appended behind the
// program; what stands in dollar signs is put in by `kernel::server`.

// Calls | lease | 0 | 0, then for each call { opcode, length, arguments … }.
$binding0$ var<storage, read> tombolo_requests: array<u32>;
// For each call { status, lease, results … }.
$binding1$ var<storage, read_write> tombolo_answers: array<u32>;

// Turns of loops that the call has taken, and how many there may be; loops of handlers count by a pass.
var<private> tombolo_server_turns: u32;
var<private> tombolo_server_limit: u32;
