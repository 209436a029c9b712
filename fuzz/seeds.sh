#!/usr/bin/env bash
# Fills fuzz/corpus with what the repository has of each kind, and writes a dictionary of the names of
# fields: a fuzzer that starts from nothing learns little in a short time.
set -euo pipefail
cd "$(dirname "$0")"

mkdir -p corpus/{conformance_case,scenario,trace,overrides}
for case in ../tests/conformance/*.case.json.gz; do
    name=$(basename "$case" .gz)
    gzip -dc "$case" > "corpus/conformance_case/$name"
done
# Cases of more are too slow to be changed thousands of times.
find corpus/conformance_case -type f -size +8k -delete
# Shorter, so that what follows from a change is seen within a few events.
for scenario in ../scenarios/*.yaml; do
    name=$(basename "$scenario")
    grep -v '^#' "$scenario" | sed '/num_gpu_blocks_override/!s/^engine: {/engine: {num_gpu_blocks_override: 2000, /' > "corpus/scenario/$name"
done
for trace in ../traces/*.{csv,jsonl}; do
    head -n 5 "$trace" > "corpus/trace/$(basename "$trace")"
done
cp ../traces/*.json corpus/trace/
gzip -c corpus/trace/mooncake_sample.jsonl > corpus/trace/mooncake_sample.jsonl.gz
grep -oh -- '--set [^ )`,]*' ../scenarios/*.yaml ../README.md | sed 's/^--set //; s/\.$//' | sort -u > corpus/overrides/all
i=0
while IFS= read -r override; do
    printf '%s' "$override" > "corpus/overrides/$((i += 1))"
done < corpus/overrides/all

{
    grep -ohE '[a-z_]+:' ../scenarios/*.yaml
    for case in corpus/conformance_case/*; do grep -ohE '"[a-z_]+":' "$case"; done
} | tr -d '":' | sort -u | sed 's/.*/"&"/' > dictionary
