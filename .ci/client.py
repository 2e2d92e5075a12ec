"""Uses the generated client once: it sends a task, works on it and reads it."""
import os

from mscheduler_client import AuthenticatedClient
from mscheduler_client.api.pull import complete, fetch
from mscheduler_client.api.tasks import get_task, send_task
from mscheduler_client.models import CompletingInput, FetchingInput, TaskInput

import json
import urllib.request


def resume(path: str) -> None:
    """What the other tool may have paused."""
    request = urllib.request.Request(os.environ["URL"] + path, data=json.dumps({}).encode(), method="POST", headers={
        "Authorization": "Bearer " + os.environ["TOKEN"], "Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


for path in "/api/v1/pauses/resume", "/api/v1/types/generated/resume":
    resume(path)

with AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["TOKEN"], raise_on_unexpected_status=True) as client:
    sent = send_task.sync_detailed(client=client, body=TaskInput.from_dict({"type": "generated", "key": "k", "args": {"n": 1}}))
    assert sent.status_code == 201, sent.content
    got = fetch.sync_detailed(client=client, body=FetchingInput.from_dict({"worker_id": "py", "types": ["generated"], "wait": "10s"}))
    assert got.status_code == 200, got.content
    [task] = got.parsed.tasks
    done = complete.sync_detailed(client=client, body=CompletingInput.from_dict({"handle": task.handle, "result": {"seen": task.args}}))
    assert done.status_code == 200, done.content
    read = get_task.sync_detailed("-", "generated", "k", client=client)
    assert read.parsed.to_dict()["result"] == {"seen": {"n": 1}}, read.content
    print("sent, fetched, completed and read a task with the generated client")
