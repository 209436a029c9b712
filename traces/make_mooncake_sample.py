"""Writes mooncake_sample.jsonl: chat sessions of two tenants, hashed as Mooncake hashes prompts.

Run it in this folder; the output is always the same.
"""

import json
import random

BLOCK_TOKENS = 512
REQUESTS = 200
SYSTEM_PROMPT_TOKENS = [2300, 900]

rng = random.Random(20250225)
turns = []
for session in range(80):
    tenant = 0 if rng.random() < 0.7 else 1
    at_ms = rng.randrange(600_000)
    length = SYSTEM_PROMPT_TOKENS[tenant]
    for turn in range(rng.randint(1, 6)):
        length += rng.randint(20, 900)
        answer = rng.randint(5, 600)
        turns.append((at_ms, session, turn, tenant, length, answer))
        length += answer
        at_ms += rng.randint(5_000, 60_000)
turns.sort()

ids = {}
with open("mooncake_sample.jsonl", "w", encoding="ascii", newline="\n") as file:
    for at_ms, session, turn, tenant, length, answer in turns[:REQUESTS]:
        hash_ids = []
        for start in range(0, length, BLOCK_TOKENS):
            end = start + BLOCK_TOKENS
            if end <= SYSTEM_PROMPT_TOKENS[tenant]:
                block = ("tenant", tenant, start)
            elif end <= length:
                block = ("session", session, start)
            else:
                block = ("partial", session, turn)
            hash_ids.append(ids.setdefault(block, len(ids)))
        row = {"timestamp": at_ms, "input_length": length, "output_length": answer, "hash_ids": hash_ids}
        file.write(json.dumps(row) + "\n")
