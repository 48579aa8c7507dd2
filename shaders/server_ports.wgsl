// The memory in which kernels of the server's own device call: their ports. A dispatch behind such a kernel serves what it
// has posted; each invocation looks at one port. Appended behind the program; what stands in dollar signs is put in by
// `kernel::server`.

// What clients write.
$binding0$ var<storage, read_write> tombolo_server: array<atomic<u32>>;
$answers$
// Turns of loops that the call has taken, and how many there may be; loops of handlers count by a pass.
var<private> tombolo_server_turns: u32;
var<private> tombolo_server_limit: u32;
