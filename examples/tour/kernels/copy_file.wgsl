// Opens two files, copies one into the other, block by block and in any order, and closes them.

@group(0) @binding(0) var<storage, read_write> files: array<u32, 2>;

@compute @workgroup_size(1)
fn open() {
    let source = file_open("from.bin", FILE_READ);
    let target_file = file_open("to.bin", FILE_WRITE | FILE_NEW);
    files = array(source.file, target_file.file);
    // Other folders are out of reach.
    if file_open("../from.bin", FILE_READ).status != FILE_OUTSIDE { exit(1u); }
}

@compute @workgroup_size(32)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    let offset = vec2(id.x * FILE_BLOCK_BYTES, 0u);
    let block = file_read_block(files[0], offset);
    if block.status != FILE_OK || file_write_block(files[1], offset, block).status != FILE_OK { exit(2u); }
}

@compute @workgroup_size(1)
fn close() {
    if file_close(files[0]) != FILE_OK || file_close(files[1]) != FILE_OK { exit(3u); }
    // The first one counts.
    exit(0u);
}
