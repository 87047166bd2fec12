"""`python -m localcloud firestore|tasks|indexes`: one emulator alone, from the command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import grpc
import pytest
from google.cloud import firestore, tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from localcloud import cli
from localcloud.testing import running

OWNER = """
import time
from localcloud.testing import running

with running("tasks", lines=2) as told:
    print(told["CLOUD_TASKS_EMULATOR_HOST"], flush=True)
    time.sleep(60)
"""


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "localcloud", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_tasks_alone_tells_its_lines_and_keeps_its_data(tmp_path):
    parent = "projects/p/locations/l"
    for is_new in (True, False):
        with running("tasks", "--data", str(tmp_path), lines=2) as told:
            assert sorted(told) == ["CLOUD_TASKS_EMULATOR_HOST", "OIDC_JWKS_URL"]
            with grpc.insecure_channel(told["CLOUD_TASKS_EMULATOR_HOST"]) as channel:
                client = tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
                if is_new:
                    client.create_queue(parent=parent, queue={"name": f"{parent}/queues/kept"})
                assert [queue.name for queue in client.list_queues(parent=parent)] == [
                    f"{parent}/queues/kept"
                ]


def test_firestore_alone_tells_its_line_and_keeps_its_data(tmp_path, monkeypatch):
    for is_new in (True, False):
        with running("firestore", "--data", str(tmp_path), lines=1) as told:
            monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", told["FIRESTORE_EMULATOR_HOST"])
            client = firestore.Client(project="p")
            if is_new:
                client.document("a/b").set({"kept": True})
            assert client.document("a/b").get().to_dict() == {"kept": True}


def test_taken_port_is_told_in_one_line():
    with running("tasks", lines=2) as told:
        port = told["CLOUD_TASKS_EMULATOR_HOST"].rsplit(":", 1)[1]
        refused = run("tasks", "--port", port)
    assert refused.returncode == 1
    assert "localcloud tasks cannot start" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_interrupt_is_an_orderly_end():
    process = subprocess.Popen(
        [sys.executable, "-m", "localcloud", "tasks", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline().startswith("CLOUD_TASKS_EMULATOR_HOST=127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_emulator_on_a_pipe_ends_when_its_owner_is_killed():
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    with owner:
        port = int(owner.stdout.readline().rsplit(":", 1)[1])
        owner.kill()
        owner.wait()
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                pass  # in the moment in which it ends
            time.sleep(0.05)
    pytest.fail("it outlived its owner")


def test_indexes_asks_for_an_address(monkeypatch, capsys):
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    assert cli.main(["indexes"]) == 2
    assert "FIRESTORE_EMULATOR_HOST" in capsys.readouterr().err
    assert cli.main(["indexes", "--port", "1"]) == 1


@pytest.mark.parametrize("command", ["up", "firestore", "tasks"])
def test_every_server_takes_host_port_and_data(command):
    asked = cli._parser().parse_args([command, "--host", "::1", "--port", "7", "--data", "d"])
    assert (asked.host, asked.port, str(asked.data)) == ("::1", 7, "d")
