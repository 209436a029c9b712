// New keys and values into their slots of the cache `[2][slots][heads_kv][head_dim]`.

struct Params {
    tokens: u32,
    // Vectors of 4 elements of all KV heads of a token.
    row: u32,
    slots: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> new_keys: array<Element4>;
@group(0) @binding(2) var<storage, read> new_values: array<Element4>;
@group(0) @binding(3) var<storage, read> slot_mapping: array<u32>;
@group(0) @binding(4) var<storage, read_write> cache: array<Element4>;

@compute @workgroup_size(256)
fn kv_cache_write(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var i = id.x; i < params.tokens * params.row; i += groups.x * 256u) {
        let to = slot_mapping[i / params.row] * params.row + i % params.row;
        cache[to] = new_keys[i];
        cache[params.slots * params.row + to] = new_values[i];
    }
}
