"""Writes the samples of all formats but Mooncake's, which make_mooncake_sample.py writes.

Run it in this folder; the output is always the same. All of it is made up here.
"""

import csv
import json
import random

rng = random.Random(20261130)

WORDS = (
    "block cache queue token server answer prompt window batch step memory page route user trace "
    "long short warm cold next last again often never slow quick plain shared private whole half "
    "reads writes keeps drops waits starts ends asks tells counts fills frees moves turns holds the a "
    "of in on with from to and or because when until before after while"
).split()


def sentence(words):
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def text(words):
    parts = []
    while words > 0:
        parts.append(sentence(min(words, rng.randint(5, 14))))
        words -= 14
    return " ".join(parts)


def lines(name, rows):
    with open(name, "w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def table(name, header, rows):
    with open(name, "w", encoding="ascii", newline="\n") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


class HashIds:
    """Numbers blocks of prompts: equal blocks behind equal ones have equal numbers."""

    def __init__(self, block_tokens):
        self.block_tokens = block_tokens
        self.ids = {}

    def of(self, parts, length, whole_blocks_only=False):
        """`parts` are pairs of a name and the position at which the part ends."""
        ids = []
        for start in range(0, length, self.block_tokens):
            end = start + self.block_tokens
            if end > length and whole_blocks_only:
                break
            name = next(name for name, until in parts if start < until)
            key = (name, start, min(end, length) if end > length else end)
            ids.append(self.ids.setdefault(key, len(self.ids)))
        return ids


def sessions(number, mean_gap_s=4.0):
    """Turns of chats as (at_s, session, turn, prompt, answer), in order of time; prompts grow."""
    turns = []
    start = 0.0
    for session in range(number):
        start += rng.expovariate(1 / mean_gap_s)
        at, length = start, rng.randint(60, 400)
        for turn in range(rng.randint(1, 4)):
            answer = rng.randint(5, 250)
            turns.append((round(at, 3), session, turn, length, answer))
            length += answer + rng.randint(10, 200)
            at += rng.uniform(8, 40)
    return sorted(turns)


def qwen_bailian():
    hash_ids, chats, rows = HashIds(16), {}, []
    for chat_id, (at, session, turn, prompt, answer) in enumerate(sessions(40)):
        rows.append({
            "chat_id": chat_id,
            "parent_chat_id": chats.get(session, -1),
            "timestamp": at,
            "input_length": prompt,
            "output_length": answer,
            "type": rng.choice(["text", "text", "search", "file"]),
            "turn": turn + 1,
            "hash_ids": hash_ids.of([("system", 48), (session, prompt)], prompt),
        })
        chats[session] = chat_id
    lines("qwen_bailian_sample.jsonl", rows)


def azure():
    header = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
    for name, start, form in [
        ("azure_2023_sample.csv", 3.97996, "2023-11-16 18:{:02d}:{:010.7f}"),
        ("azure_2024_sample.csv", 0.00993, "2024-05-10 00:{:02d}:{:09.6f}+00:00"),
    ]:
        at, rows = start, []
        for _ in range(60):
            stamp = form.format(int(at // 60), at % 60)
            rows.append([stamp, rng.randint(3, 6000), rng.randint(1, 900)])
            at += rng.expovariate(1.5)
        table(name, header, rows)


def burstgpt():
    rows = []
    for at, session, turn, prompt, answer in sessions(30):
        is_api = session % 5 == 0
        rows.append([
            int(at) + 5, "" if is_api else f"s{session}", rng.randint(1, 30),
            rng.choice(["ChatGPT", "GPT-4"]), prompt, answer, prompt + answer,
            "API log" if is_api else "Conversation log",
        ])
    header = ["Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens",
              "Total tokens", "Log Type"]
    table("burstgpt_sample.csv", header, rows)


SYSTEM = "You are a helper of a library. " + text(60)


def conversation(turns):
    """Pairs of what the user and what the model says."""
    return [(text(rng.randint(6, 40)), text(rng.randint(10, 90))) for _ in range(turns)]


def sharegpt():
    items = []
    for number in range(8):
        said = []
        for question, answer in conversation(rng.randint(1, 4)):
            said += [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
        items.append({"id": f"made_up_{number}", "conversations": said})
    with open("sharegpt_sample.json", "w", encoding="utf-8", newline="\n") as file:
        json.dump(items, file, indent=1)
        file.write("\n")


def vllm_multi_turn():
    items = []
    for number in range(6):
        said = [{"role": "system", "content": SYSTEM}]
        for question, answer in conversation(rng.randint(2, 5)):
            said += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        items.append({"id": f"CONV{number}", "messages": said})
    with open("vllm_multi_turn_sample.json", "w", encoding="utf-8", newline="\n") as file:
        json.dump(items, file)
        file.write("\n")


def openai_chat():
    rows = []
    for session in range(10):
        said, at = [{"role": "system", "content": SYSTEM}], 1_767_000_000 + rng.uniform(0, 60)
        for question, answer in conversation(rng.randint(1, 4)):
            said = said + [{"role": "user", "content": question}]
            row = {
                "timestamp": round(at, 3),
                "session_id": f"chat-{session}",
                "request": {"model": "served", "messages": said, "max_tokens": 512},
                "response": {
                    "object": "chat.completion",
                    "created": int(at),
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": answer},
                                 "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": sum(len(m["content"]) for m in said) // 4,
                              "completion_tokens": len(answer) // 4},
                },
            }
            rows.append((at + len(answer) / 80, row))
            said = said + [{"role": "assistant", "content": answer}]
            at += rng.uniform(10, 50)
    # A log has its lines in the order in which the answers ended.
    lines("openai_chat_sample.jsonl", [row for _, row in sorted(rows, key=lambda pair: pair[0])])


def vllm_bench():
    number, at, starts = 40, 81234.5, []
    for _ in range(number):
        starts.append(at)
        at += rng.expovariate(4.0)
    result = {
        "date": "20261130-080000", "endpoint_type": "vllm", "backend": "vllm", "label": None,
        "model_id": "made-up", "tokenizer_id": "made-up", "num_prompts": number, "request_rate": 4.0,
        "burstiness": 1.0, "max_concurrency": None, "duration": round(at - 81234.5, 3), "completed": number,
        "input_lens": [rng.randint(16, 2048) for _ in range(number)],
        "output_lens": [rng.randint(1, 300) for _ in range(number)],
        "ttfts": [round(rng.uniform(0.02, 0.4), 4) for _ in range(number)],
        "itls": [[round(rng.uniform(0.01, 0.02), 4) for _ in range(3)] for _ in range(number)],
        "start_times": starts,
        "generated_texts": [sentence(5) for _ in range(number)],
        "errors": [""] * number,
    }
    with open("vllm_bench_sample.json", "w", encoding="utf-8", newline="\n") as file:
        json.dump(result, file)
        file.write("\n")


def prefix_blocks():
    hash_ids, rows = HashIds(16), []
    for number, (at, session, turn, prompt, answer) in enumerate(sessions(30, 1.0)):
        ids = hash_ids.of([("system", 64), (session, prompt)], prompt, whole_blocks_only=True)
        rows.append([f"req-{number}", prompt, answer, at, round(rng.uniform(20, 400), 3),
                     " ".join(map(str, ids))])
    header = ["request_id", "input_len", "output_len", "arrival_s", "ttft_ms", "prefix_block_ids"]
    table("prefix_blocks_sample.csv", header, rows)


def dynamo():
    hash_ids, rows = HashIds(64), []
    names = {}
    for at, session, turn, prompt, answer in sessions(25):
        received = 1_777_312_800_000 + int(at * 1000)
        end = received + 200 + 10 * answer
        ids = hash_ids.of([("tools", 128), (session, prompt)], prompt)
        # Hashes of 64 bits.
        hashes = [names.setdefault(number, rng.getrandbits(64)) for number in ids]
        context = {"session_id": f"run-1:agent-{session}"}
        rows.append((end, {
            "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": end,
            "event_source": "dynamo", "agent_context": context,
            "request": {
                "request_id": f"r-{session}-{turn}", "model": "served", "input_tokens": prompt,
                "output_tokens": answer, "request_received_ms": received, "total_time_ms": end - received,
                "replay": {"trace_block_size": 64, "input_length": prompt, "input_sequence_hashes": hashes},
            },
        }))
        rows.append((end + 300, {
            "schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": end + 300,
            "event_source": "harness", "agent_context": context,
            "tool": {"tool_call_id": f"c-{session}-{turn}", "tool_class": "search", "status": "succeeded",
                     "duration_ms": 280.0},
        }))
    lines("dynamo_sample.jsonl", [row for _, row in sorted(rows, key=lambda pair: pair[0])])


def aiperf():
    hash_ids, rows = HashIds(512), []
    at = 0
    for session in range(20):
        prompt = rng.randint(600, 4000)
        for turn in range(rng.randint(1, 4)):
            answer = rng.randint(20, 400)
            row = {"session_id": f"sess-{session}"}
            if turn == 0:
                row["timestamp"] = at
            else:
                row["delay"] = rng.randint(500, 5000)
            row |= {
                "input_length": prompt, "output_length": answer,
                "hash_ids": hash_ids.of([("system", 512), (session, prompt)], prompt),
            }
            rows.append(row)
            prompt += answer + rng.randint(20, 300)
        at += rng.randint(200, 4000)
    lines("aiperf_sample.jsonl", rows)


def kvsim():
    rows = [{"kvsim_trace": 1, "tenants": ["shop", "search"], "notes": ["made up"]}]
    at, token = 0.0, 1_000_000
    for session in range(12):
        tenant = session % 2
        prompt = [[tenant * 1000, 300]]
        at = round(at + rng.expovariate(0.5), 3)
        for turn in range(rng.randint(1, 4)):
            message, answer = rng.randint(10, 200), rng.randint(5, 120)
            prompt = prompt + [[token, message]]
            row = {} if turn else {"at_s": at}
            if turn:
                row["think_time_s"] = round(rng.uniform(1, 6), 3)
            row |= {"prompt": prompt, "output": [[token + message, answer]], "session": f"chat {session}"}
            if turn:
                row["turn"] = turn
            row["tenant"] = ["shop", "search"][tenant]
            if session == 3:
                row["lora"] = {"name": "tuned", "id": 1, "path": "/adapters/tuned"}
            if session == 4:
                row["cache_salt"] = "four"
            if session == 5:
                row["priority"] = -1
            if session == 6:
                row["mm"] = [{"identifier": "cat", "offset_tokens": 310, "length_tokens": 8}]
            if session == 7:
                row["patience"] = {"lasts_s": 30, "waits_for": "last_token"}
            if session == 8:
                row["skip_reading_prefix_cache"] = True
            rows.append(row)
            prompt = prompt + [[token + message, answer]]
            token += message + answer
    lines("kvsim_sample.jsonl", rows)


for make in [qwen_bailian, azure, burstgpt, sharegpt, vllm_multi_turn, openai_chat, vllm_bench,
             prefix_blocks, dynamo, aiperf, kvsim]:
    make()
