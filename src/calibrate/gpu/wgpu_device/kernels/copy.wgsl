// Device memory to device memory, 16 bytes at a time.

struct Params {
    count: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> from_words: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> to_words: array<vec4<u32>>;

@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < params.count; i += groups.x * 256u) {
        to_words[i] = from_words[i];
    }
}

// Nothing at all, to time a dispatch.
@compute @workgroup_size(1)
fn nothing() {}
