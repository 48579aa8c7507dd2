// words: the kernel's announcement, the host's answer, the token of this launch, the kernel's reply.
@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;

@compute @workgroup_size(1)
fn main() {
    let token = atomicLoad(&words[2]);
    atomicStore(&words[0], token);
    // Bounded, so that it ends on every adapter even if nobody answers.
    for (var i = 0u; i < 60000u; i++) {
        if atomicLoad(&words[1]) == token + 1u {
            atomicStore(&words[3], token + 2u);
            break;
        }
    }
}
