//! Block hashes against the recorded vectors and logs of the conformance material.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use kvsim::engine::hash::{
    BlockDigest, BlockExtraKeys, BlockHash, ExternalBlockHash, ExtraKey, HashCursor, HashFunction,
    PrefixCachingHashAlgo, RequestBlockHasher, init_none_hash, resolve_none_hash_seed,
};
use kvsim::prompt::{LoraRequest, MmItem, PromptEmbeds, PromptExtras, TokenRuns};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn conformance() -> Option<PathBuf> {
    let shared = std::env::var_os("KVSIM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let folder = shared.join("conformance");
    let found = folder.is_dir();
    if !found {
        eprintln!("skipped: {} is not there", folder.display());
    }
    found.then_some(folder)
}

fn vectors() -> Option<Value> {
    let file = File::open(conformance()?.join("hash_vectors.json")).unwrap();
    Some(serde_json::from_reader(BufReader::new(file)).unwrap())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn number(value: &Value, key: &str) -> u32 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}")) as u32
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn digest_from_hex(text: &str) -> BlockDigest {
    let bytes = from_hex(text);
    match <[u8; 16]>::try_from(bytes.as_slice()) {
        Ok(short) => short.into(),
        Err(_) => <[u8; 32]>::try_from(bytes).unwrap().into(),
    }
}

fn push_segments(tokens: &mut TokenRuns, segments: &[Value]) {
    for segment in segments {
        tokens.push_run(segment[0].as_u64().unwrap(), segment[1].as_u64().unwrap() as u32);
    }
}

fn algo(value: &Value, key: &str) -> PrefixCachingHashAlgo {
    text(value, key).parse().unwrap()
}

fn none_hash(algo: PrefixCachingHashAlgo, python_hash_seed: &Value) -> BlockDigest {
    init_none_hash(algo, &resolve_none_hash_seed(algo, python_hash_seed.as_str(), &[0; 32]))
}

#[test]
fn none_hashes() {
    let Some(vectors) = vectors() else { return };
    assert_eq!(list(&vectors, "none_hash").len(), 18);
    for vector in list(&vectors, "none_hash") {
        let hash = none_hash(algo(vector, "algo"), &vector["python_hash_seed"]);
        assert_eq!(hash.to_string(), text(vector, "hex"), "{vector}");
    }
}

#[test]
fn blocks() {
    let Some(vectors) = vectors() else { return };
    assert_eq!(list(&vectors, "blocks").len(), 180);
    for vector in list(&vectors, "blocks") {
        let algo = algo(vector, "algo");
        let parent = vector["parent"]
            .as_str()
            .map_or_else(|| none_hash(algo, &vector["python_hash_seed"]), digest_from_hex);
        let mut tokens = TokenRuns::new();
        push_segments(&mut tokens, list(vector, "tokens"));
        let keys: Vec<_> = list(vector, "extra_keys").iter().map(extra_key).collect();
        let lookahead: Vec<_> = list(vector, "lookahead").iter().map(|id| id.as_u64().unwrap()).collect();
        let extra = BlockExtraKeys { keys: &keys, lookahead_token_ids: &lookahead };

        let mut function = HashFunction::new(algo);
        let serialized = function.serialize_block(&parent, &tokens, 0..tokens.len(), extra);
        let name = format!("{} {algo}", text(vector, "name"));
        if let Some(expected) = vector["serialized"].as_str() {
            assert_eq!(hex(serialized), expected, "{name}");
        }
        assert_eq!(serialized.len() as u64, vector["serialized_len"].as_u64().unwrap(), "{name}");
        assert_eq!(hex(&Sha256::digest(serialized)), text(vector, "serialized_sha256"), "{name}");
        let digest = function.hash_block_tokens(&parent, &tokens, 0..tokens.len(), extra);
        assert_eq!(digest.to_string(), text(vector, "digest"), "{name}");
    }
}

fn extra_key(key: &Value) -> ExtraKey<'_> {
    let second = || key[1].as_str().unwrap();
    match key[0].as_str().unwrap() {
        "lora" => ExtraKey::Lora { name: second(), path: key[2].as_str().unwrap() },
        "mm" => ExtraKey::Mm { identifier: second(), offset_tokens: key[2].as_i64().unwrap() },
        "cache_salt" => ExtraKey::CacheSalt(second()),
        "prompt_embeds" => ExtraKey::PromptEmbeds(from_hex(text(&key[1], "bytes")).try_into().unwrap()),
        tag => panic!("unknown tag {tag}"),
    }
}

#[test]
fn chains() {
    let Some(vectors) = vectors() else { return };
    assert_eq!(list(&vectors, "chains").len(), 12);
    for vector in list(&vectors, "chains") {
        let algo = algo(vector, "algo");
        let none_hash = none_hash(algo, &vector["python_hash_seed"]);
        let mut tokens = TokenRuns::new();
        push_segments(&mut tokens, list(vector, "tokens"));
        let mut hasher = RequestBlockHasher::digests(algo, none_hash, number(vector, "block_size"), 0);
        let mut hashes = Vec::new();
        hasher.extend(&tokens, None, &mut HashCursor::default(), &mut hashes);
        assert_eq!(hashes.len() as u32, number(vector, "count"));
        let mut digests: Vec<_> =
            hashes.iter().map(|&hash| hasher.digest(hash).unwrap().to_string()).collect();
        if vector["all"] == false {
            let last = digests.split_off(digests.len() - 1);
            digests.truncate(4);
            digests.extend(last);
        }
        assert_eq!(Value::from(digests), vector["digests"], "{algo}");
    }
}

#[test]
fn external_integers_and_keys() {
    let Some(vectors) = vectors() else { return };
    for vector in list(&vectors, "external_ints") {
        let digest = digest_from_hex(text(vector, "digest"));
        assert_eq!(digest.external(true), ExternalBlockHash::Int(vector["int"].as_u64().unwrap()));
        assert_eq!(digest.external(false), ExternalBlockHash::Bytes(digest));
        assert_eq!(hex(&digest.with_group_id(3)), text(vector, "key_group_3"));
    }
}

/// The logs have the hashes of each request when it finishes: of its prompt, of the output that the
/// log says it kept, and of its extras.
#[test]
fn hashes_of_finished_requests() {
    let Some(folder) = conformance() else { return };
    let mut num_requests = 0;
    for entry in folder.join("cases").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.to_str().filter(|path| path.contains(".case.json")) else { continue };
        let case: Value = serde_json::from_reader(open(&path)).unwrap();
        let stem = name.split_once(".case.json").map_or(name, |(stem, _)| stem);
        let log = [".expected.jsonl", ".expected.jsonl.gz"].map(|end| PathBuf::from(format!("{stem}{end}")));
        let log = log.iter().find(|log| log.exists()).unwrap();
        // A log in digest form does not have the output.
        if case["log"].is_null() {
            num_requests += check_case(name, &case, open(log));
        }
    }
    assert!(num_requests > 6_000, "only {num_requests} finished requests");
}

fn open(path: &Path) -> BufReader<Box<dyn Read>> {
    let file = File::open(path).unwrap();
    let gzip = path.extension().is_some_and(|extension| extension == "gz");
    BufReader::new(if gzip { Box::new(GzDecoder::new(file)) } else { Box::new(file) })
}

/// Returns the number of requests that it compared.
fn check_case(name: &str, case: &Value, log: impl BufRead) -> usize {
    let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let start = lines.next().unwrap();
    let algo = algo(&case["engine"], "prefix_caching_hash_algo");
    let none_hash = none_hash(algo, &case["engine"]["python_hash_seed"]);
    if start["none_hash"].is_null() {
        return 0; // nothing is hashed
    }
    assert_eq!(none_hash.to_string(), text(&start, "none_hash"), "{name}");
    let (block_size, lookahead) =
        (number(&start, "hash_block_size"), number(&start, "num_hash_lookahead_tokens"));
    let mut hasher = RequestBlockHasher::digests(algo, none_hash, block_size, lookahead);

    let mut requests: HashMap<_, _> =
        list(case, "requests").iter().map(|request| (text(request, "id"), Request::new(request))).collect();
    let mut num_compared = 0;
    for line in lines {
        for output in list(&line, "outputs") {
            let request = requests.get_mut(text(output, "id")).unwrap();
            for token in list(output, "tokens") {
                request.tokens.push(token.as_u64().unwrap());
                hasher.extend(
                    &request.tokens,
                    Some(&request.extras),
                    &mut request.cursor,
                    &mut request.hashes,
                );
            }
        }
        for finished in list(&line, "finished").iter().filter(|finished| finished["num_hashes"] != 0) {
            let request = requests.get_mut(text(finished, "id")).unwrap();
            hasher.extend(&request.tokens, Some(&request.extras), &mut request.cursor, &mut request.hashes);
            let digests: Vec<_> =
                request.hashes.iter().map(|&hash| hasher.digest(hash).unwrap().to_string()).collect();
            assert_eq!(digests.len() as u32, number(finished, "num_hashes"), "{name}: {finished}");
            assert_eq!(
                Value::from(&digests[..digests.len().min(4)]),
                finished["hashes"],
                "{name}: {finished}"
            );
            assert_eq!(digests.last().unwrap(), text(finished, "last_hash"), "{name}: {finished}");
            num_compared += 1;
        }
    }
    num_compared
}

struct Request {
    tokens: TokenRuns,
    extras: PromptExtras,
    cursor: HashCursor,
    hashes: Vec<BlockHash>,
}

impl Request {
    fn new(request: &Value) -> Self {
        let extras = extras(request);
        let mut tokens = TokenRuns::new();
        match &extras.prompt_embeds {
            Some(embeds) => (0..embeds.num_tokens()).for_each(|_| tokens.push(0)),
            None => push_segments(&mut tokens, list(request, "prompt")),
        }
        Self { tokens, extras, cursor: HashCursor::default(), hashes: Vec::new() }
    }
}

fn extras(request: &Value) -> PromptExtras {
    let part = |key| (!request[key].is_null()).then_some(&request[key]);
    PromptExtras {
        lora: part("lora").map(|lora| LoraRequest {
            name: text(lora, "name").to_owned(),
            id: u64::from(number(lora, "id")),
            path: text(lora, "path").to_owned(),
        }),
        mm: list(request, "mm")
            .iter()
            .map(|item| MmItem {
                identifier: text(item, "identifier").to_owned(),
                offset_tokens: number(item, "offset"),
                length_tokens: number(item, "length"),
            })
            .collect(),
        cache_salt: part("cache_salt").map(|salt| salt.as_str().unwrap().to_owned()),
        prompt_embeds: part("prompt_embeds").map(|embeds| PromptEmbeds::Counting {
            num_tokens: number(embeds, "num_tokens"),
            dim: number(embeds, "dim"),
            start: embeds["start"].as_i64().unwrap(),
        }),
    }
}
