"""Records what vLLM's internal load balancer of data-parallel engine cores chooses.

    python tests/vllm/record_load_balancer.py > tests/vllm/load_balancer.jsonl

Runs `DPLBAsyncMPClient.get_core_engine_for_request` itself, without processes: random published counts,
requests and ends of requests. One line for each API server:

    {"num_engines", "client_count", "client_index", "events": [...]}

with events ["counts", [[waiting, running, kv_cache_usage], ...]], ["request", engine] and
["finished", number of the request].
"""

import asyncio
import json
import random
from collections import Counter
from types import SimpleNamespace

from vllm.v1.engine.core_client import DPLBAsyncMPClient


def record(rng, num_engines, client_count, client_index, num_events):
    client = object.__new__(DPLBAsyncMPClient)
    client.client_count = client_count
    client.client_index = client_index
    client.reqs_in_flight = {}
    client.streaming_reqs = set()
    client.engine_inflight = Counter()
    client.core_engines = [bytes([index]) for index in range(num_engines)]
    client.lb_engines = [[0, 0, 0.0] for _ in range(num_engines)]
    client.eng_start_index = (num_engines * client_index) // client_count
    events, in_flight, num_requests = [], [], 0
    for _ in range(num_events):
        kind = rng.choices(["counts", "request", "finished"], [1, 6, 4])[0]
        if kind == "counts":
            # Few different values, so that equals are common.
            client.lb_engines = [
                [rng.choice([0, 0, 1, 4, 9]), rng.randrange(6), rng.choice([0.0, 0.5, 0.75, 0.9, 0.99])]
                for _ in range(num_engines)
            ]
            events.append(["counts", [list(counts) for counts in client.lb_engines]])
        elif kind == "request":
            request = SimpleNamespace(
                request_id=str(num_requests), resumable=False, data_parallel_rank=None, pooling_params=None
            )
            chosen = client.get_core_engine_for_request(request)
            events.append(["request", chosen[0]])
            in_flight.append(num_requests)
            num_requests += 1
        elif in_flight:
            number = in_flight.pop(rng.randrange(len(in_flight)))
            outputs = SimpleNamespace(finished_requests={str(number)})
            asyncio.run(DPLBAsyncMPClient.process_engine_outputs(client, outputs))
            events.append(["finished", number])
    return {
        "num_engines": num_engines,
        "client_count": client_count,
        "client_index": client_index,
        "events": events,
    }


rng = random.Random(7)
for num_engines, client_count, client_index in [(2, 1, 0), (2, 2, 1), (4, 4, 1), (4, 1, 0), (8, 3, 2), (16, 16, 11)]:
    print(json.dumps(record(rng, num_engines, client_count, client_index, 150), separators=(",", ":")))
