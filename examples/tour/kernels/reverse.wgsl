// Each invocation reverses its own run of N values by way of an array that is N long.

override N: u32 = 4;

struct Stack {
    top: u32,
    values: array<u32, N>,
}

@group(0) @binding(0) var<storage, read_write> data: array<u32>;

fn push(stack: ptr<function, Stack>, value: u32) {
    stack.values[stack.top] = value;
    stack.top++;
}

fn pop(stack: ptr<function, Stack>) -> u32 {
    stack.top--;
    return stack.values[stack.top];
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = id.x * N;
    if first + N > arrayLength(&data) {
        return;
    }
    var stack: Stack;
    for (var i = 0u; i < N; i++) {
        push(&stack, data[first + i]);
    }
    for (var i = 0u; i < N; i++) {
        data[first + i] = pop(&stack);
    }
}
