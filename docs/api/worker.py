"""A worker for mscheduler in Python: it runs tasks of the type greet, one after the other."""
import json, os, threading, time, urllib.error, urllib.request

URL = os.environ.get("MSCHEDULER_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("MSCHEDULER_TOKEN", "")  # of the role worker


def call(verb, body):  # repeats a request that did not come through: each of them may be repeated
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + TOKEN}
    request = urllib.request.Request(f"{URL}/api/v1/pull/{verb}", json.dumps(body).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=70) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise
        except OSError:
            pass  # no connection, or it was cut off
        time.sleep(1)


def ping(task, done):  # until the work is done, in a thread of its own
    interval = task["ping_interval_ms"]
    while not done.wait(interval / 1000):
        pinged = call("ping", {"handles": [task["handle"]]})["executions"][0]  # says, too, whether to stop
        interval = pinged.get("ping_interval_ms", interval)


def greet(args):
    return f"Hello {args['name']}!"


while True:
    for task in call("fetch", {"worker_id": "python-1", "types": ["greet"], "wait": "30s"})["tasks"]:
        done = threading.Event()
        threading.Thread(target=ping, args=(task, done), daemon=True).start()
        try:
            end = "complete", {"handle": task["handle"], "result": greet(task.get("args", {}))}
        except Exception as error:
            end = "fail", {"handle": task["handle"], "reason": repr(error)}
        done.set()
        try:
            call(*end)
        except urllib.error.HTTPError as error:
            if error.code != 409:  # another worker has taken the task over
                raise
