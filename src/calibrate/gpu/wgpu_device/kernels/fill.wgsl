// Random inputs, the same as `inputs.rs` makes on the host.

struct Params {
    input: u32,
    count: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> elements: array<Element>;
@group(0) @binding(2) var<storage, read_write> words: array<u32>;

fn word(index: u32) -> u32 {
    var x = (index * 0x9E3779B1u) ^ (params.input * 0xB7E15163u);
    x ^= x >> 15u;
    x *= 0x243F6A89u;
    x ^= x >> 13u;
    x *= 0xB7E15163u;
    return x ^ (x >> 16u);
}

@compute @workgroup_size(256)
fn fill_elements(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < params.count; i += groups.x * 256u) {
        // The upper byte with its sign.
        elements[i] = Element(f32(bitcast<i32>(word(i)) >> 24u) / 128.0);
    }
}

@compute @workgroup_size(256)
fn fill_words(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < params.count; i += groups.x * 256u) {
        words[i] = word(i);
    }
}
